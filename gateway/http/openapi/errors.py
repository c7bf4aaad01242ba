"""The errors of a binding in an OpenAPI description: which statuses an operation may have, and the form of their bodies."""

from collections.abc import Iterable, Mapping

from gateway.a2a import errors
from gateway.a2a.errors import A2AError
from gateway.a2a.model import Json
from gateway.http.openapi.schemas import reference
from gateway.http.reply import A2A_JSON, JSON, RestErrors, reason

_DETAIL = {"type": "object", "required": ["@type"], "properties": {"@type": {"type": "string"}}}
_STATUS: Mapping[str, Json] = {
    "type": "object",
    "description": "google.rpc.Status.",
    "required": ["code", "status", "message"],
    "properties": {
        "code": {"type": "integer", "description": "The HTTP status."},
        "status": {"type": "string", "description": "Name of the gRPC status."},
        "message": {"type": "string"},
        "details": {"type": "array", "items": _DETAIL, "description": "google.rpc.ErrorInfo, and others."},
    },
}


def error_schema(form: RestErrors) -> dict[str, Json]:
    """The body of an error. What the version has beside `error` is left out where an address is none of the version."""
    beside = {name: {"type": _type(value)} for name, value in form.beside(errors.InternalError("")).items()}
    return {"type": "object", "required": ["error"], "properties": {**beside, "error": _STATUS}}


def _type(value: Json) -> str:
    return "integer" if isinstance(value, int) else "string"


def refusals(kinds: Iterable[type[A2AError]], form: RestErrors, schema: str) -> dict[str, Json]:
    """The responses for these errors, by status. `schema` is the name of that of their bodies."""
    reasons: dict[int, set[str]] = {}
    for kind in kinds:
        error = kind("")
        reasons.setdefault(form.status(error), set()).add(reason(error))
    content = {media_type.decode(): {"schema": reference(schema)} for media_type in (JSON, A2A_JSON)}
    return {
        str(status): {"description": ", ".join(sorted(found)), "content": content}
        for status, found in sorted(reasons.items())
    }
