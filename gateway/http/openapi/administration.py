"""The admin API in an OpenAPI description."""

from collections.abc import Iterable

from gateway.a2a import errors
from gateway.a2a.model import Json
from gateway.http.admin import Action, AdminAddress
from gateway.http.openapi.errors import refusals
from gateway.http.openapi.schemas import Schemas
from gateway.http.reply import JSON, REST

TAG = "Administration"
SPACE = "admin."
_ALWAYS = (errors.InvalidParams, errors.TooManyRequests, errors.Busy, errors.InternalError)
_OF_A_BODY = (errors.ParseError, errors.InvalidRequest, errors.PayloadTooLarge, errors.UnsupportedMediaType)
_KEYED = (errors.Unauthenticated, errors.PermissionDenied)


def admin_paths(addresses: Iterable[AdminAddress], schemas: Schemas, error: str, *, keyed: bool) -> dict[str, Json]:
    """`error` is the name of the schema of an error. `keyed`: callers authenticate."""
    found: dict[str, Json] = {}
    for address in addresses:
        path, fields = _path(address.path)
        found[path] = {
            "parameters": [_in_path(field) for field in fields],
            **{
                method.lower(): _operation(action, schemas, error, keyed=keyed)
                for method, action in address.actions.items()
            },
        }
    return found


def _path(route: str) -> tuple[str, list[str]]:
    """The path without the converters of Starlette, and its fields."""
    fields = [each.partition("}")[0].partition(":")[0] for each in route.split("{")[1:]]
    for field in fields:
        route = route.replace(f"{{{field}:path}}", f"{{{field}}}")
    return route, fields


def _in_path(field: str) -> dict[str, Json]:
    return {"name": field, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}


def _operation(action: Action, schemas: Schemas, error: str, *, keyed: bool) -> dict[str, Json]:
    kinds = [*_ALWAYS, *action.refusals, *(_KEYED if keyed else ()), *(_OF_A_BODY if action.body else ())]
    body = {} if action.body is None else {"requestBody": {"required": True, "content": _json(action.body, schemas)}}
    answer = {} if action.answer is None else {"content": _json(action.answer, schemas)}
    return {
        "operationId": f"{SPACE}{action.name}",
        "summary": action.summary,
        "tags": [TAG],
        "parameters": [{"name": name, "in": "query", "schema": {"type": "string"}} for name in action.query],
        **body,
        "responses": {
            str(action.status): {"description": "It is done.", **answer},
            **refusals(kinds, REST, error),
        },
    }


def _json(kind: type, schemas: Schemas) -> dict[str, Json]:
    return {JSON.decode(): {"schema": schemas.of(kind, SPACE)}}
