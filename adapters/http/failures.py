"""What a backend says when it fails -> AdapterError. Law: the error's code decides before its status, and no secret
stays in a text."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import msgspec

from gateway.a2a.model import Json
from gateway.foundation.clock import Clock
from gateway.foundation.retry import parse_retry_after
from gateway.ports.adapter import AdapterError, ErrorClass

_DETAIL_LIMIT = 300

_CODES = {
    "previous_response_not_found": ErrorClass.HANDLE_NOT_FOUND,
    "conversation_locked": ErrorClass.LOCKED,
    "rate_limit_exceeded": ErrorClass.RATE_LIMITED,
    "rate_limit_error": ErrorClass.RATE_LIMITED,
    "too_many_requests": ErrorClass.RATE_LIMITED,
    "slow_down": ErrorClass.RATE_LIMITED,
    "overloaded_error": ErrorClass.RATE_LIMITED,
    # It comes as 429 too, but waiting does not help.
    "insufficient_quota": ErrorClass.REJECTED,
    "invalid_api_key": ErrorClass.UNAUTHORISED,
    "context_length_exceeded": ErrorClass.OVERFLOW,
    "exceed_context_size_error": ErrorClass.OVERFLOW,
}

_STATUSES = {
    401: ErrorClass.UNAUTHORISED,
    403: ErrorClass.UNAUTHORISED,
    409: ErrorClass.LOCKED,
    413: ErrorClass.OVERFLOW,
    429: ErrorClass.RATE_LIMITED,
    529: ErrorClass.RATE_LIMITED,
}

_NOBODY_BEHIND = frozenset({502, 503, 504})
"""What a proxy says for a service that is not there. One that fails by itself says 500, and may fail at this request only."""

_KEPT = re.compile("response|conversation", re.IGNORECASE)

_STATUS_CODES = frozenset(str(status) for status in range(400, 600))


@dataclass(frozen=True, slots=True)
class _Told:
    """An error in whatever form it came: OpenAI's object, a bare text, FastAPI's `detail`, fields without envelope."""

    message: str
    code: str | None = None
    kind: str | None = None
    param: str | None = None


class Failures:
    """Makes the errors of one adapter. `secrets` are masked wherever a backend quotes them."""

    def __init__(self, secrets: Iterable[str]) -> None:
        # A vendor that masks a key itself still shows how it begins.
        patterns = [re.escape(s[:6]) + r"[^\s\"']*" if len(s) >= 12 else re.escape(s) for s in secrets if s]
        self._secrets = re.compile("|".join(patterns)) if patterns else None

    def error(
        self, kind: ErrorClass, text: str, *, retry_after: float | None = None, backend_down: bool = False
    ) -> AdapterError:
        if self._secrets is not None:
            text = self._secrets.sub("***", text)
        text = " ".join(text.split())
        detail = text if len(text) <= _DETAIL_LIMIT else f"{text[: _DETAIL_LIMIT - 3]}..."
        return AdapterError(kind, detail, retry_after=retry_after, backend_down=backend_down)

    def of_event(self, error: Json, *, handle: str | None = None) -> AdapterError:
        """For an error inside a stream: its HTTP status said that all is well. `handle` as in `of_answer`."""
        told = _told(error)
        # OGX puts the status that it would have sent without a stream into the code.
        status = int(told.code) if told.code in _STATUS_CODES else 500
        kind = _named(told) or _of_status(status, told, handle, None)
        return self.error(kind, _words("error in the stream", told))

    def of_answer(
        self, status: int, headers: Mapping[str, str], body: bytes, *, handle: str | None = None
    ) -> AdapterError:
        """For an HTTP answer that is no event stream. `handle` is the one that the request went on from."""
        told = _read(body)
        retry_after = parse_retry_after(headers, Clock().now())
        words = _words(f"HTTP {status}", told)
        if 200 <= status < 400:
            what = headers.get("Location") if status >= 300 else headers.get("Content-Type")
            words = f"{words} ({what!r} instead of an event stream)"
        kind = _named(told) or _of_status(status, told, handle, retry_after)
        backend_down = kind is ErrorClass.BACKEND_FAILED and status in _NOBODY_BEHIND
        return self.error(kind, words, retry_after=retry_after, backend_down=backend_down)


def _words(start: str, told: _Told) -> str:
    names = [name for name in (told.code, told.kind, told.param) if name]
    return f"{start}: {', '.join(names)}: {told.message}" if names else f"{start}: {told.message}"


def _read(body: bytes) -> _Told:
    try:
        content = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _Told(body.decode("utf-8", "replace"))
    if isinstance(content, dict):
        for envelope in ("error", "detail"):
            if content.get(envelope):
                return _told(content[envelope])
    return _told(content)


def _told(error: Json) -> _Told:
    if not isinstance(error, dict):
        return _Told(error if isinstance(error, str) else msgspec.json.encode(error).decode())
    message, *names = (error.get(key) for key in ("message", "code", "type", "param"))
    code, kind, param = (None if name is None else str(name) for name in names)
    return _Told(message if isinstance(message, str) else msgspec.json.encode(error).decode(), code, kind, param)


def _named(told: _Told) -> ErrorClass | None:
    """The class that the error itself names; many compatible servers only say it in words."""
    for name in (told.code, told.kind):
        if name in _CODES:
            return _CODES[name]
    message = told.message.lower()
    if "zero data retention" in message or (told.code, told.param) == ("unsupported_parameter", "previous_response_id"):
        return ErrorClass.STORAGE_DISABLED
    if "maximum context length" in message:
        return ErrorClass.OVERFLOW
    return None


def _of_status(status: int, told: _Told, handle: str | None, retry_after: float | None) -> ErrorClass:
    if status == 404 and handle is not None and (handle in told.message or _KEPT.search(told.message)):
        return ErrorClass.HANDLE_NOT_FOUND
    if status == 503 and retry_after is not None:
        return ErrorClass.RATE_LIMITED
    if status >= 500:
        return _STATUSES.get(status, ErrorClass.BACKEND_FAILED)
    return _STATUSES.get(status, ErrorClass.REJECTED) if status >= 400 else ErrorClass.CONTRACT_BROKEN
