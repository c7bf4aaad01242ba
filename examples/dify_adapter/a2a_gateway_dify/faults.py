"""Dify's errors as those of the port. No IO."""

from gateway.ports.adapter import AdapterError, ErrorClass

# What the operator has to mend, in the app or in the settings.
_NOT_SERVED = {
    "app_unavailable",
    "not_chat_app",
    "not_workflow_app",
    "provider_not_initialize",
    "provider_quota_exceeded",
    "model_currently_not_support",
    "agent_not_published",
    "bad_request",
    "workflow_version_execution_not_allowed",
    "rate_limit_error",  # a quota of the plan: no wait helps
}
_CODES = {
    **dict.fromkeys(_NOT_SERVED, ErrorClass.NOT_SERVED),
    "invalid_param": ErrorClass.REJECTED,
    "file_too_large": ErrorClass.REJECTED,
    "unsupported_file_type": ErrorClass.REJECTED,
    "conversation_completed": ErrorClass.HANDLE_EXPIRED,
    "completion_request_error": ErrorClass.BACKEND_FAILED,
    "too_many_requests": ErrorClass.RATE_LIMITED,
    "unauthorized": ErrorClass.UNAUTHORISED,
    "forbidden": ErrorClass.UNAUTHORISED,
    "internal_server_error": ErrorClass.BACKEND_FAILED,
}
_STATUSES = {401: ErrorClass.UNAUTHORISED, 403: ErrorClass.UNAUTHORISED, 404: ErrorClass.NOT_SERVED}
_STATUSES |= {429: ErrorClass.RATE_LIMITED}


class Faults:
    """Makes errors whose detail never holds the key."""

    def __init__(self, key: str) -> None:
        self._key = key

    def error(
        self,
        kind: ErrorClass,
        detail: str,
        *,
        retry_after: float | None = None,
        backend_down: bool = False,
    ) -> AdapterError:
        masked = detail.replace(self._key, "***") if self._key else detail
        return AdapterError(kind, masked[:200], retry_after=retry_after, backend_down=backend_down)

    def refusal(
        self, status: int, code: str, text: str, *, handle: str | None, retry_after: float | None = None
    ) -> AdapterError:
        """For an answer with an HTTP status other than success."""
        kind = _CODES.get(code) or _STATUSES.get(status)
        if kind is None:
            kind = ErrorClass.BACKEND_FAILED if status >= 500 else ErrorClass.REJECTED
        if status == 404 and handle is not None and "workflow" not in text.lower():
            kind = ErrorClass.HANDLE_NOT_FOUND
        if code == "invalid_param" and "input form" in text:
            kind = ErrorClass.NOT_SERVED  # `inputs` lacks a variable of the app: every message would fail
        return self.error(
            kind,
            f"HTTP {status} {code}: {text}",
            retry_after=retry_after if kind is ErrorClass.RATE_LIMITED else None,
            backend_down=status in (502, 503, 504),
        )

    def event(self, code: str, text: str, *, shown: bool) -> AdapterError:
        """For an `error` event in an open stream. `shown`: output came before it, so the request was processed."""
        kind = ErrorClass.BACKEND_FAILED if shown else _CODES.get(code, ErrorClass.BACKEND_FAILED)
        return self.error(kind, f"error event {code}: {text}")
