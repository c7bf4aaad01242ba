"""What the errors of A2A agents mean. Law: an error's reason decides, but behind the statuses that any HTTP server may give.

Sources: A2A 1.0, sections 3.3.2, 5.4 and 9.5; A2A 0.3.0, section 8; google.rpc.ErrorInfo and RetryInfo.
"""

import re
from collections.abc import Iterator, Mapping

from adapters.http.document import read_document
from adapters.http.failures import BackendError, Failures
from gateway.a2a.model import Json
from gateway.ports.adapter import AdapterError, ErrorClass

_DETAILS = "type.googleapis.com/google.rpc."
_CODES = {
    -32700: "PARSE_ERROR",
    -32600: "INVALID_REQUEST",
    -32601: "METHOD_NOT_FOUND",
    -32602: "INVALID_PARAMS",
    -32603: "INTERNAL_ERROR",
    -32001: "TASK_NOT_FOUND",
    -32002: "TASK_NOT_CANCELABLE",
    -32003: "PUSH_NOTIFICATION_NOT_SUPPORTED",
    -32004: "UNSUPPORTED_OPERATION",
    -32005: "CONTENT_TYPE_NOT_SUPPORTED",
    -32006: "INVALID_AGENT_RESPONSE",
    -32007: "EXTENDED_AGENT_CARD_NOT_CONFIGURED",
    -32008: "EXTENSION_SUPPORT_REQUIRED",
    -32009: "VERSION_NOT_SUPPORTED",
}
_CLASSES = {
    "INVALID_PARAMS": ErrorClass.REJECTED,
    "CONTENT_TYPE_NOT_SUPPORTED": ErrorClass.REJECTED,
    "PAYLOAD_TOO_LARGE": ErrorClass.REJECTED,
    "TASK_NOT_FOUND": ErrorClass.REJECTED,
    "METHOD_NOT_FOUND": ErrorClass.NOT_SERVED,
    "UNSUPPORTED_OPERATION": ErrorClass.NOT_SERVED,
    "EXTENSION_SUPPORT_REQUIRED": ErrorClass.NOT_SERVED,
    "VERSION_NOT_SUPPORTED": ErrorClass.NOT_SERVED,
    "TASK_NOT_CANCELABLE": ErrorClass.NOT_SERVED,
    "PUSH_NOTIFICATION_NOT_SUPPORTED": ErrorClass.NOT_SERVED,
    "EXTENDED_AGENT_CARD_NOT_CONFIGURED": ErrorClass.NOT_SERVED,
    "PARSE_ERROR": ErrorClass.NOT_SERVED,
    "INVALID_REQUEST": ErrorClass.NOT_SERVED,
    "UNAUTHENTICATED": ErrorClass.UNAUTHORISED,
    "PERMISSION_DENIED": ErrorClass.UNAUTHORISED,
    "BUSY": ErrorClass.RATE_LIMITED,
    "TOO_MANY_REQUESTS": ErrorClass.RATE_LIMITED,
    "INTERNAL_ERROR": ErrorClass.BACKEND_FAILED,
    "INVALID_AGENT_RESPONSE": ErrorClass.BACKEND_FAILED,
}
"""By reason. A task that is not found is that of the conversation where the request continues one."""

GONE = frozenset({"TASK_NOT_FOUND"})
CANNOT = frozenset({"METHOD_NOT_FOUND", "UNSUPPORTED_OPERATION", "INVALID_PARAMS"})
"""The answers to a request for the stream of a task that has ended, or that has none. Versions differ in the choice."""
OVER = frozenset({"TASK_NOT_CANCELABLE"})

_BY_STATUS = frozenset({401, 403, 407, 408, 413, 429, 502, 503, 504})
_FORGOTTEN = re.compile(
    r"\bcontext\b.*\b(not found|unknown|does not exist|expired)\b|\b(no|unknown) (such )?context\b", re.IGNORECASE
)
_SECONDS = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)s")


class Refused(AdapterError):
    """An error of A2A; `reason` is its name there, as TASK_NOT_FOUND, or empty where it has none."""

    reason = ""


class A2AFailures(Failures):
    def refusal(
        self,
        reason: str,
        message: str,
        *,
        handle: str | None = None,
        retry_after: float | None = None,
        start: str = "the agent refuses",
    ) -> Refused:
        """`handle` is the conversation that the request continues."""
        kind = _CLASSES.get(reason, ErrorClass.BACKEND_FAILED)
        if handle is not None and (reason in GONE or (kind is ErrorClass.REJECTED and _FORGOTTEN.search(message))):
            kind = ErrorClass.HANDLE_NOT_FOUND
        elif kind is ErrorClass.BACKEND_FAILED and retry_after is not None:
            kind = ErrorClass.RATE_LIMITED
        refused = Refused(kind, self.detail(f"{start}: {reason or 'no reason'}: {message}"), retry_after=retry_after)
        refused.reason = reason
        return refused

    def from_rpc(self, code: int, message: str, data: Json, *, handle: str | None = None) -> Refused:
        """The `error` object of JSON-RPC."""
        reason, wait = told(data)
        return self.refusal(reason or _CODES.get(code, ""), message, handle=handle, retry_after=wait)

    def in_stream(self, data: bytes, *, handle: str | None = None) -> Refused | None:
        """The error in an event of HTTP+JSON; None where it is none."""
        error = _error_of(data)
        if error is None or not (error.get("details") or error.get("status")):
            return None
        reason, wait = told(error.get("details"))
        message = error.get("message")
        text = message if isinstance(message, str) else ""
        return self.refusal(reason, text, handle=handle, retry_after=wait, start="error in the stream")

    def from_response(
        self,
        status: int,
        headers: Mapping[str, str],
        body: bytes,
        *,
        handle: str | None = None,
        instead_of: str = "an event stream",
    ) -> AdapterError:
        plain = super().from_response(status, headers, body, handle=handle, instead_of=instead_of)
        error = None if status in _BY_STATUS else _error_of(body)
        if error is None:
            return plain
        reason, wait = told(error.get("details") or error.get("data"))
        code, message = error.get("code"), error.get("message")
        if isinstance(code, int):
            reason = reason or _CODES.get(code, "")
        reason = reason or _named(error.get("type"))
        if not reason:
            return plain
        text = message if isinstance(message, str) else ""
        return self.refusal(reason, text, handle=handle, retry_after=wait or plain.retry_after, start=f"HTTP {status}")

    def is_about(self, handle: str, error: BackendError) -> bool:
        """A 404 without a reason is about an address."""
        return False


def told(details: Json) -> tuple[str, float | None]:
    """The reason and the seconds to wait in google.rpc objects."""
    reason, wait = "", None
    for each in _objects(details):
        match each:
            case {"@type": str(kind), "reason": str(name)} if kind == f"{_DETAILS}ErrorInfo":
                reason = reason or name
            case {"@type": str(kind), "retryDelay": str(delay)} if kind == f"{_DETAILS}RetryInfo":
                match_ = _SECONDS.fullmatch(delay)
                wait = float(match_[1]) if match_ else wait
            case {"@type": str(kind), "retryDelay": {"seconds": int(seconds)}} if kind == f"{_DETAILS}RetryInfo":
                wait = float(seconds)
    return reason, wait


def _objects(details: Json) -> Iterator[dict[str, Json]]:
    yield from (each for each in (details if isinstance(details, list) else ()) if isinstance(each, dict))


def _error_of(body: bytes) -> dict[str, Json] | None:
    """The object that says what is wrong: that of JSON-RPC and of HTTP+JSON 1.0 is in `error`, that of 0.3 is the body."""
    try:
        content = read_document(body)
    except ValueError:
        return None
    if not isinstance(content, dict):
        return None
    inner = content.get("error")
    return inner if isinstance(inner, dict) else content


def _named(kind: Json) -> str:
    """The reason in the name of an error, as TaskNotFoundError."""
    if not isinstance(kind, str):
        return ""
    reason = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", kind.removesuffix("Error")).upper()
    return reason if reason in _CLASSES else {"INTERNAL": "INTERNAL_ERROR"}.get(reason, "")
