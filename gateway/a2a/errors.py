"""Every error that a caller can get, with its row of table 5.4 of the specification. Law: one class per reaction.

    A2AError
    |- TaskNotFound            |- TaskNotCancelable       |- PushNotificationNotSupported
    |- UnsupportedOperation    |- ContentTypeNotSupported |- InvalidAgentResponse
    |- ExtendedAgentCardNotConfigured                     |- ExtensionSupportRequired
    |- VersionNotSupported
    |- ParseError              |- InvalidRequest          |- MethodNotFound
    |- InvalidParams           |- PayloadTooLarge         |- Unauthenticated
    |- PermissionDenied        |- NotFound                |- MethodNotAllowed
    |- Busy (try again later)  |- TooManyRequests (try again later: the caller is over a limit)
    |- InternalError

A text states the fault and names the field; it never contains the text of an exception, a secret or more than 100
characters of the request. Source: A2A 1.0, sections 3.3.2, 5.4, 9.5, 11.6.
"""

from dataclasses import dataclass
from typing import ClassVar

_ECHO = 100


def echo(value: object) -> str:
    """The `repr` of a value from a request, cut to 100 characters, for an error's text."""
    text = repr(value)
    return text if len(text) <= _ECHO else text[: _ECHO - 2] + "…" + text[0]


@dataclass(frozen=True, slots=True)
class FieldViolation:
    """`field` is a path like `message.parts[0].text`."""

    field: str
    description: str


class A2AError(Exception):
    """`code`: JSON-RPC code. `grpc`: gRPC status. `http`: HTTP status. `reason`: that of ErrorInfo."""

    code: ClassVar[int] = -32603
    grpc: ClassVar[str] = "INTERNAL"
    http: ClassVar[int] = 500
    reason: ClassVar[str | None] = None

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


class TaskNotFound(A2AError):
    code, grpc, http, reason = -32001, "NOT_FOUND", 404, "TASK_NOT_FOUND"


class TaskNotCancelable(A2AError):
    code, grpc, http, reason = -32002, "FAILED_PRECONDITION", 400, "TASK_NOT_CANCELABLE"


class PushNotificationNotSupported(A2AError):
    code, grpc, http, reason = -32003, "FAILED_PRECONDITION", 400, "PUSH_NOTIFICATION_NOT_SUPPORTED"


class UnsupportedOperation(A2AError):
    code, grpc, http, reason = -32004, "FAILED_PRECONDITION", 400, "UNSUPPORTED_OPERATION"


class ContentTypeNotSupported(A2AError):
    code, grpc, http, reason = -32005, "INVALID_ARGUMENT", 400, "CONTENT_TYPE_NOT_SUPPORTED"


class InvalidAgentResponse(A2AError):
    code, grpc, http, reason = -32006, "INTERNAL", 500, "INVALID_AGENT_RESPONSE"


class ExtendedAgentCardNotConfigured(A2AError):
    code, grpc, http, reason = -32007, "FAILED_PRECONDITION", 400, "EXTENDED_AGENT_CARD_NOT_CONFIGURED"


class ExtensionSupportRequired(A2AError):
    code, grpc, http, reason = -32008, "FAILED_PRECONDITION", 400, "EXTENSION_SUPPORT_REQUIRED"


class VersionNotSupported(A2AError):
    code, grpc, http, reason = -32009, "FAILED_PRECONDITION", 400, "VERSION_NOT_SUPPORTED"


class ParseError(A2AError):
    """The body is not acceptable JSON."""

    code, grpc, http = -32700, "INVALID_ARGUMENT", 400


class InvalidRequest(A2AError):
    """The body is JSON, but not a request of the binding."""

    code, grpc, http = -32600, "INVALID_ARGUMENT", 400


class MethodNotFound(A2AError):
    code, grpc, http = -32601, "UNIMPLEMENTED", 404


class InvalidParams(A2AError):
    code, grpc, http = -32602, "INVALID_ARGUMENT", 400


class PayloadTooLarge(A2AError):
    code, grpc, http = -32600, "RESOURCE_EXHAUSTED", 413


class UnsupportedMediaType(A2AError):
    code, grpc, http = -32600, "INVALID_ARGUMENT", 415


class Unauthenticated(A2AError):
    """`presented`: the request has a credential, but an invalid one."""

    code, grpc, http = -32600, "UNAUTHENTICATED", 401

    def __init__(self, message: str, *, presented: bool = False) -> None:
        super().__init__(message)
        self.presented = presented


class PermissionDenied(A2AError):
    """Only in the admin API: elsewhere the objects of other callers are not found."""

    code, grpc, http = -32600, "PERMISSION_DENIED", 403


class NotFound(A2AError):
    """No agent, no context and no route at this path."""

    code, grpc, http = -32601, "NOT_FOUND", 404


class MethodNotAllowed(A2AError):
    code, grpc, http = -32600, "UNIMPLEMENTED", 405


class Busy(A2AError):
    """Nothing was stored; the same request may succeed after `retry_after` seconds."""

    code, grpc, http = -32603, "UNAVAILABLE", 503


class TooManyRequests(A2AError):
    """The caller is over a limit. Nothing was done; the same request may succeed after `retry_after` seconds."""

    code, grpc, http = -32603, "RESOURCE_EXHAUSTED", 429


class InternalError(A2AError):
    """Contains a correlation id and nothing else."""


def invalid(field: str, description: str) -> InvalidParams:
    """Invalid params that name one field."""
    return InvalidParams(
        f"Invalid parameters: {field}: {description}", violations=(FieldViolation(field, description),)
    )
