"""Whole HTTP responses, and A2A errors as the bodies of the two bindings. Law: each error has its own row of the
specification's table 5.4; HTTP+JSON of 0.3 says the same and more.

Source: A2A 1.0, sections 9.5 and 11.6. Bodies stay small: texts are cut, and only the first violations are named.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from http import HTTPStatus
from typing import Any

import msgspec
from starlette.types import Receive, Scope, Send

from gateway.a2a import errors
from gateway.a2a.errors import A2AError
from gateway.a2a.model import Json
from gateway.a2a.wire.v0_3 import errors as v0_3

Headers = Sequence[tuple[bytes, bytes]]

JSON = b"application/json"
A2A_JSON = b"application/a2a+json"
DOMAIN = "a2a-protocol.org"

TYPES = "type.googleapis.com/google.rpc."
_MESSAGE = 300
_VIOLATIONS = 2
_WORDS = re.compile(r"(?<=[a-z])(?=[A-Z])")

# Errors of the transport below JSON-RPC: a client, a proxy or a load balancer reads them from the HTTP status. All others
# travel in a 200, because clients (a2a-sdk 1.3 among them) discard a JSON-RPC error's body under any other status.
_TRANSPORT = (
    errors.Busy,
    errors.MethodNotAllowed,
    errors.NoSuchAddress,
    errors.NotFound,
    errors.PayloadTooLarge,
    errors.PermissionDenied,
    errors.TooManyRequests,
    errors.Unauthenticated,
    errors.UnsupportedMediaType,
)

_encoder = msgspec.json.Encoder()


class Reply(msgspec.Struct, frozen=True):
    """An ASGI application that answers every request in the same way."""

    body: bytes
    status: int = 200
    media_type: bytes = JSON
    headers: Headers = ()

    async def __call__(self, scope: Scope, _receive: Receive, send: Send) -> None:
        kind = [(b"content-type", self.media_type)] if self.body else []
        # The length in a 304 would be that of the body that is left out. Source: RFC 9110, section 8.6.
        length = [] if self.status == HTTPStatus.NOT_MODIFIED else [(b"content-length", b"%d" % len(self.body))]
        headers = [*kind, *length, *self.headers]
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else self.body})


def cut(text: str) -> str:
    """The text of an error, cut to what fits into any answer."""
    return text if len(text) <= _MESSAGE else text[: _MESSAGE - 1] + "…"


def reason(error: A2AError) -> str:
    """The reason of ErrorInfo: the error's name in UPPER_SNAKE_CASE, as the specification and clients have it."""
    return _WORDS.sub("_", type(error).__name__).upper()


def details(error: A2AError) -> list[dict[str, Any]]:
    """The details of an error as google.rpc objects, each with its `@type`."""
    info: dict[str, Any] = {"@type": f"{TYPES}ErrorInfo", "reason": reason(error), "domain": DOMAIN}
    if error.metadata:
        info["metadata"] = {key: cut(value) for key, value in error.metadata.items()}
    found = [info]
    if error.violations:
        violations = [
            {"field": cut(violation.field), "description": cut(violation.description)}
            for violation in error.violations[:_VIOLATIONS]
        ]
        found.append({"@type": f"{TYPES}BadRequest", "fieldViolations": violations})
    return found


def rpc_error(error: A2AError, code: int) -> bytes:
    """The `error` object of JSON-RPC. `code` is the error's code in the version of the request."""
    return _encoder.encode({"code": code, "message": cut(error.message), "data": details(error)})


def rpc_status(error: A2AError) -> int:
    return error.http if isinstance(error, _TRANSPORT) else HTTPStatus.OK


def status_body(code: int, status: str, message: str) -> bytes:
    """google.rpc.Status, as an object with the one key `error`."""
    return _encoder.encode({"error": {"code": code, "status": status, "message": message}})


class RestErrors(msgspec.Struct, frozen=True):
    """The errors of one version of HTTP+JSON: `beside` are the members of a body beside `error`."""

    status: Callable[[A2AError], int]
    beside: Callable[[A2AError], dict[str, Json]]

    def body(self, error: A2AError) -> bytes:
        """google.rpc.Status in `error`."""
        inner = {
            "code": self.status(error),
            "status": error.grpc,
            "message": cut(error.message),
            "details": details(error),
        }
        return _encoder.encode({**self.beside(error), "error": inner})

    def reply(self, error: A2AError, media_type: bytes = JSON, allowed: Iterable[str] = ()) -> Reply:
        """`allowed` are the HTTP methods of the address."""
        allow = ((b"allow", ", ".join(sorted(allowed)).encode()),) if isinstance(error, errors.MethodNotAllowed) else ()
        return Reply(self.body(error), self.status(error), media_type, (*allow, *error_headers(error)))


def _beside_of_0_3(error: A2AError) -> dict[str, Json]:
    return {"code": v0_3.code(error), "type": v0_3.name(error), "message": cut(error.message)}


REST = RestErrors(status=lambda error: error.http, beside=lambda _: {})
REST_0_3 = RestErrors(status=v0_3.http, beside=_beside_of_0_3)
"""Version 0.3 gives errors no form, and each SDK reads another: `code` and `message`, `type` and `message`, or `error`."""

rest_body, rest_reply = REST.body, REST.reply


def error_headers(error: A2AError) -> Headers:
    """When to retry, and with which credentials. Source: RFC 9110, sections 10.2.3 and 11.6.1; RFC 6750, section 3."""
    if isinstance(error, errors.Unauthenticated):
        fault = b', error="invalid_token"' if error.presented else b""
        return ((b"www-authenticate", b'Bearer realm="a2a-gateway"' + fault),)
    return () if error.retry_after is None else ((b"retry-after", b"%d" % error.retry_after),)
