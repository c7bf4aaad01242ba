"""OpenAI's words for errors, and those of compatible servers."""

import re

from adapters.http.failures import BackendError, Failures
from gateway.ports.adapter import ErrorClass

_CODES = {
    "previous_response_not_found": ErrorClass.HANDLE_NOT_FOUND,
    "conversation_locked": ErrorClass.LOCKED,
    "rate_limit_exceeded": ErrorClass.RATE_LIMITED,
    "rate_limit_error": ErrorClass.RATE_LIMITED,
    "too_many_requests": ErrorClass.RATE_LIMITED,
    "slow_down": ErrorClass.RATE_LIMITED,
    "overloaded_error": ErrorClass.RATE_LIMITED,
    # Also sent with 429, but waiting does not help.
    "insufficient_quota": ErrorClass.REJECTED,
    "invalid_api_key": ErrorClass.UNAUTHORISED,
    "context_length_exceeded": ErrorClass.OVERFLOW,
    "exceed_context_size_error": ErrorClass.OVERFLOW,
}
_STORED_OBJECT = re.compile("response|conversation", re.IGNORECASE)


class OpenAIFailures(Failures):
    def class_of(self, error: BackendError) -> ErrorClass | None:
        for name in (error.code, error.kind):
            if name in _CODES:
                return _CODES[name]
        # Many compatible servers give no code, only a text.
        message = error.message.lower()
        refused = (error.code, error.param)
        if "zero data retention" in message or refused == ("unsupported_parameter", "previous_response_id"):
            return ErrorClass.STORAGE_DISABLED
        return ErrorClass.OVERFLOW if "maximum context length" in message else None

    def is_about(self, handle: str, error: BackendError) -> bool:
        return super().is_about(handle, error) or _STORED_OBJECT.search(error.message) is not None
