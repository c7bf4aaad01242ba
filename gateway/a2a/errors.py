"""Every error that a caller can get, with its row of table 5.4 of the specification. Law: one class per reaction.

A text states the fault and names the field; it never contains the text of an exception, a secret or more than 100
characters of the request. Source: A2A 1.0, sections 3.3.2, 5.4, 9.5, 11.6.
"""

from typing import ClassVar

import msgspec

_ECHO = 100


def echo(value: object) -> str:
    """The `repr` of a value from a request, cut to 100 characters, for an error's text."""
    text = repr(value)
    return text if len(text) <= _ECHO else text[: _ECHO - 2] + "…" + text[0]


class FieldViolation(msgspec.Struct, frozen=True):
    """`field` is a path like `message.parts[0].text`."""

    field: str
    description: str


class A2AError(Exception):
    """An error of an A2A operation. `code` is its JSON-RPC code, `grpc` its gRPC status, `http` its HTTP status."""

    code: ClassVar[int] = -32603
    grpc: ClassVar[str] = "INTERNAL"
    http: ClassVar[int] = 500

    def __init__(
        self,
        message: str,
        *,
        violations: tuple[FieldViolation, ...] = (),
        metadata: dict[str, str] | None = None,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.violations = violations
        self.metadata = metadata or {}
        self.retry_after = retry_after


def _row(name: str, code: int, grpc: str, http: int) -> type[A2AError]:
    return type(name, (A2AError,), {"code": code, "grpc": grpc, "http": http, "__module__": __name__})


TaskNotFound = _row("TaskNotFound", -32001, "NOT_FOUND", 404)
TaskNotCancelable = _row("TaskNotCancelable", -32002, "FAILED_PRECONDITION", 400)
PushNotificationNotSupported = _row("PushNotificationNotSupported", -32003, "FAILED_PRECONDITION", 400)
UnsupportedOperation = _row("UnsupportedOperation", -32004, "FAILED_PRECONDITION", 400)
ContentTypeNotSupported = _row("ContentTypeNotSupported", -32005, "INVALID_ARGUMENT", 400)
InvalidAgentResponse = _row("InvalidAgentResponse", -32006, "INTERNAL", 500)
ExtendedAgentCardNotConfigured = _row("ExtendedAgentCardNotConfigured", -32007, "FAILED_PRECONDITION", 400)
ExtensionSupportRequired = _row("ExtensionSupportRequired", -32008, "FAILED_PRECONDITION", 400)
VersionNotSupported = _row("VersionNotSupported", -32009, "FAILED_PRECONDITION", 400)
TaskGenerationMismatch = _row("TaskGenerationMismatch", -32010, "ABORTED", 409)
"""Only in the draft of A2A 1.1."""
ParseError = _row("ParseError", -32700, "INVALID_ARGUMENT", 400)
"""The body is not acceptable JSON."""
InvalidRequest = _row("InvalidRequest", -32600, "INVALID_ARGUMENT", 400)
"""The body is JSON, but not a request of the binding."""
MethodNotFound = _row("MethodNotFound", -32601, "UNIMPLEMENTED", 404)
PayloadTooLarge = _row("PayloadTooLarge", -32600, "RESOURCE_EXHAUSTED", 413)
UnsupportedMediaType = _row("UnsupportedMediaType", -32600, "INVALID_ARGUMENT", 415)
EncodingNotSupported = _row("EncodingNotSupported", -32600, "UNIMPLEMENTED", 415)
"""The body is compressed."""
TooManyMessages = _row("TooManyMessages", -32600, "UNIMPLEMENTED", 400)
"""A call of gRPC that is made with one message has further ones."""
PermissionDenied = _row("PermissionDenied", -32600, "PERMISSION_DENIED", 403)
"""Only in the admin API: elsewhere the objects of other callers are not found."""
NotFound = _row("NotFound", -32601, "NOT_FOUND", 404)
"""No agent and no context of this name."""
NoSuchAddress = _row("NoSuchAddress", -32601, "NOT_FOUND", 404)
"""No route at this path."""
MethodNotAllowed = _row("MethodNotAllowed", -32600, "UNIMPLEMENTED", 405)
Busy = _row("Busy", -32603, "UNAVAILABLE", 503)
"""Nothing was stored; the same request may succeed after `retry_after` seconds."""
Unanswered = _row("Unanswered", -32603, "INTERNAL", 500)
"""The message was accepted, and its answer is not waited for or not taken any more; `taskId` in the metadata names its task,
where there is one that the caller may know. The same request gets the answer under the same idempotency key, and is another
message without one."""
TooManyRequests = _row("TooManyRequests", -32603, "RESOURCE_EXHAUSTED", 429)
"""The caller is over a limit. Nothing was done; the same request may succeed after `retry_after` seconds."""


class InvalidParams(A2AError):
    code, grpc, http = -32602, "INVALID_ARGUMENT", 400


class Unauthenticated(A2AError):
    """The request has no valid credential. `presented` says that it has an invalid credential."""

    code, grpc, http = -32600, "UNAUTHENTICATED", 401

    def __init__(self, message: str, *, presented: bool = False) -> None:
        super().__init__(message)
        self.presented = presented


class InternalError(A2AError):
    """Contains a correlation id and nothing else."""


def invalid(field: str, description: str) -> InvalidParams:
    """Invalid params that name one field."""
    violation = FieldViolation(field, description)
    return InvalidParams(f"Invalid parameters: {field}: {description}", violations=(violation,))
