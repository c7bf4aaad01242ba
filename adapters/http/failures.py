"""A backend's answer to a failed request -> AdapterError. Law: the error's own code decides before the HTTP status, and
no secret stays in a text.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import msgspec

from adapters.http.document import read_document
from gateway.a2a import nesting
from gateway.a2a.model import Json
from gateway.foundation.clock import Clock
from gateway.foundation.retry import parse_retry_after
from gateway.foundation.spellings import pattern_of
from gateway.ports.adapter import AdapterError, ErrorClass

_DETAIL_LIMIT = 300
_PASSING_SECRETS = 16
"""More than the tokens of one adapter that are good at the same time."""

_STATUSES = {
    401: ErrorClass.UNAUTHORISED,
    402: ErrorClass.NOT_SERVED,
    403: ErrorClass.UNAUTHORISED,
    404: ErrorClass.NOT_SERVED,
    405: ErrorClass.NOT_SERVED,
    406: ErrorClass.NOT_SERVED,
    407: ErrorClass.UNAUTHORISED,
    # Most often of a proxy or a library that has waited for the model in vain.
    408: ErrorClass.TIMED_OUT,
    409: ErrorClass.LOCKED,
    410: ErrorClass.NOT_SERVED,
    413: ErrorClass.OVERFLOW,
    421: ErrorClass.NOT_SERVED,
    425: ErrorClass.RATE_LIMITED,
    426: ErrorClass.NOT_SERVED,
    429: ErrorClass.RATE_LIMITED,
    451: ErrorClass.POLICY,
    529: ErrorClass.RATE_LIMITED,
}
"""Another 4xx is about the content of the request, and is REJECTED."""

_PROXY_STATUSES = frozenset({502, 503, 504})
"""The statuses of a proxy whose service is down. A service that fails itself sends 500, which may concern this request
only."""

_WITHOUT_MESSAGE = {
    ErrorClass.INTERRUPTED: ErrorClass.UNREACHABLE,
    ErrorClass.TIMED_OUT: ErrorClass.UNREACHABLE,
    ErrorClass.BACKEND_FAILED: ErrorClass.UNREACHABLE,
    ErrorClass.UNKNOWN: ErrorClass.UNREACHABLE,
    ErrorClass.REJECTED: ErrorClass.NOT_SERVED,
    ErrorClass.UNSENDABLE: ErrorClass.NOT_SERVED,
    ErrorClass.OVERFLOW: ErrorClass.NOT_SERVED,
    ErrorClass.POLICY: ErrorClass.NOT_SERVED,
    ErrorClass.CONTRACT_BROKEN: ErrorClass.NOT_SERVED,
}
"""What the failure of a request is that carries nothing of the conversation."""

_STATUS_CODES = frozenset(str(status) for status in range(400, 600))

_BAD_REQUESTS = frozenset({"invalid_request_error", "BadRequestError"})
"""The types of error that servers send with the status 400, and in a stream without a status."""


@dataclass(frozen=True, slots=True)
class BackendError:
    """An error in any of its forms: an object in an envelope, a bare text, FastAPI's `detail`, fields without envelope."""

    message: str
    code: str | None = None
    kind: str | None = None
    param: str | None = None

    def describe(self, start: str) -> str:
        names = [name for name in (self.code, self.kind, self.param) if name]
        return f"{start}: {', '.join(names)}: {self.message}" if names else f"{start}: {self.message}"


@contextmanager
def nothing_sent() -> Iterator[None]:
    """Surrounds requests that carry nothing of the conversation: whatever became of them, the backend has processed no
    message, and the content of none is at fault."""
    try:
        yield
    except AdapterError as error:
        kind = _WITHOUT_MESSAGE.get(error.kind)
        if kind is None:
            raise
        raise error.as_kind(kind) from error


class Failures:
    """Makes the errors of one adapter. `secrets` are masked wherever a backend quotes them, but the short ones.

    A family overrides `class_of`, `is_about` and `is_about_settings` for its own words.
    """

    def __init__(self, secrets: Iterable[str]) -> None:
        self._lasting = frozenset(secrets)
        self._passing: deque[str] = deque(maxlen=_PASSING_SECRETS)
        self._secrets = pattern_of(self._lasting, begun=True)

    def hide(self, *secrets: str) -> None:
        """Masks secrets that came at run time, such as a token, until many others have come."""
        fresh = [secret for secret in secrets if secret not in self._passing]
        if fresh:
            self._passing.extend(fresh)
            self._secrets = pattern_of(self._lasting.union(self._passing), begun=True)

    def error(
        self,
        kind: ErrorClass,
        text: str,
        *,
        retry_after: float | None = None,
        backend_down: bool = False,
        stale_connection: bool = False,
    ) -> AdapterError:
        """The fields of AdapterError; the detail is what `detail` makes of the text."""
        return AdapterError(
            kind,
            self.detail(text),
            retry_after=retry_after,
            backend_down=backend_down,
            stale_connection=stale_connection,
        )

    def unsendable(self, why: str, detail: str = "") -> AdapterError:
        """The error for content that a request of this adapter has no form for. `why` is a sentence for callers; the detail is
        for the log alone, the same where it is empty."""
        error = self.error(ErrorClass.UNSENDABLE, detail or why)
        error.hint = why
        return error

    def detail(self, text: str) -> str:
        """A backend's words for the log: one line, without secrets."""
        if self._secrets is not None:
            text = self._secrets.sub("***", text)
        text = " ".join(text.split())
        return text if len(text) <= _DETAIL_LIMIT else f"{text[: _DETAIL_LIMIT - 3]}..."

    def from_event(self, content: Json, *, handle: str | None = None) -> AdapterError:
        """The error for an error event in a stream whose HTTP status was a success. `handle` has the meaning that it
        has in `from_response`."""
        error = _backend_error(content)
        # Some servers (OGX) use the code for the HTTP status that they send when there is no stream.
        status = int(error.code) if error.code in _STATUS_CODES else 400 if error.kind in _BAD_REQUESTS else 500
        kind = self.class_of(error) or self._class_of_status(status, error, handle, None)
        return self.error(kind, error.describe("error in the stream"))

    def from_response(
        self,
        status: int,
        headers: Mapping[str, str],
        body: bytes,
        *,
        handle: str | None = None,
        instead_of: str = "an event stream",
    ) -> AdapterError:
        """The error for a response that is not what was asked for. `handle` is the handle that the request continued."""
        error = _decode(body)
        retry_after = parse_retry_after(headers, Clock().now())
        text = error.describe(f"HTTP {status}")
        if 200 <= status < 400:
            what = headers.get("Location") if status >= 300 else headers.get("Content-Type")
            text = f"{text} ({what!r} instead of {instead_of})"
        kind = self.class_of(error) or self._class_of_status(status, error, handle, retry_after)
        backend_down = kind is ErrorClass.BACKEND_FAILED and status in _PROXY_STATUSES
        return self.error(kind, text, retry_after=retry_after, backend_down=backend_down)

    def class_of(self, error: BackendError) -> ErrorClass | None:
        """The class that the error itself names; None where only its status tells."""
        return None

    def is_about_settings(self, error: BackendError) -> bool:
        """Whether a refused request is the fault of the agent's settings, and not of the content of the conversation."""
        return False

    def is_about(self, handle: str, error: BackendError) -> bool:
        """Whether an error with HTTP status 404 is about `handle`."""
        return handle in error.message

    def _class_of_status(
        self, status: int, error: BackendError, handle: str | None, retry_after: float | None
    ) -> ErrorClass:
        if status == 404 and handle is not None and self.is_about(handle, error):
            return ErrorClass.HANDLE_NOT_FOUND
        if status == 503 and retry_after is not None:
            return ErrorClass.RATE_LIMITED
        if status >= 500:
            return _STATUSES.get(status, ErrorClass.BACKEND_FAILED)
        if status < 400:
            # A redirect is not followed, so that nobody has read the request.
            return ErrorClass.CONTRACT_BROKEN if status < 300 else ErrorClass.NOT_SERVED
        kind = _STATUSES.get(status, ErrorClass.REJECTED)
        return ErrorClass.NOT_SERVED if kind is ErrorClass.REJECTED and self.is_about_settings(error) else kind


def _decode(body: bytes) -> BackendError:
    try:
        content = read_document(body)
    except ValueError:
        return BackendError(body.decode("utf-8", "replace"))
    if isinstance(content, list) and len(content) == 1:
        # Gemini puts its error into a list.
        [content] = content
    if isinstance(content, dict):
        for envelope in ("error", "detail"):
            if content.get(envelope):
                return _backend_error(content[envelope])
    return _backend_error(content)


def _backend_error(content: Json) -> BackendError:
    if not nesting.fits(content):
        return BackendError(f"an error that is {nesting.TOO_DEEP}")
    if not isinstance(content, dict):
        return BackendError(content if isinstance(content, str) else msgspec.json.encode(content).decode())
    message, *names = (content.get(key) for key in ("message", "code", "type", "param"))
    code, kind, param = (None if name is None else str(name) for name in names)
    text = message if isinstance(message, str) else msgspec.json.encode(content).decode()
    return BackendError(text, code, kind, param)
