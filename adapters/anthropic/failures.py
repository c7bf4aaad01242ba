"""What the errors of the Messages API and of compatible services mean. Law: the words of the services are in the tables here;
the type decides, except where it stands for several reasons.

Source: Anthropic's Messages API, errors of version 2023-06-01; their texts are in tests/adapters/anthropic/test_failures.py.
"""

import re
from collections.abc import Mapping
from datetime import datetime

from adapters.http.failures import BackendError, Failures
from gateway.foundation.clock import Clock
from gateway.ports.adapter import AdapterError, ErrorClass

# The type `api_error` says no more than its status.
_TYPES = {
    "authentication_error": ErrorClass.UNAUTHORISED,
    "permission_error": ErrorClass.UNAUTHORISED,
    "billing_error": ErrorClass.NOT_SERVED,
    "not_found_error": ErrorClass.NOT_SERVED,
    "request_too_large": ErrorClass.OVERFLOW,
    "rate_limit_error": ErrorClass.RATE_LIMITED,
    "overloaded_error": ErrorClass.RATE_LIMITED,
    "timeout_error": ErrorClass.TIMED_OUT,
    "conflict_error": ErrorClass.LOCKED,
}


def _words(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(patterns), re.IGNORECASE)


_TEXTS = (
    (_words(r"\bcontainer\b.{0,80}(expired|not found|not exist|no longer)"), ErrorClass.HANDLE_EXPIRED),
    (
        _words(
            "prompt is too long",
            "exceeds? (the )?(context|maximum) (limit|window|length)",
            "context (length|window|limit)",
            "too many total text bytes",
            "request (exceeds the maximum|is too large)",
        ),
        ErrorClass.OVERFLOW,
    ),
    (_words("content filtering policy", "usage polic", "violat.{0,40}policy"), ErrorClass.POLICY),
    (_words("credit balance", "usage limits?", "organization has been disabled"), ErrorClass.NOT_SERVED),
)
"""The type of all of these is `invalid_request_error`, or none."""

_SETTINGS = _words(
    r"^`?(model|max_tokens|temperature|top_[pk]|stop_sequences|thinking|output_config|tools|tool_choice|system)\b",
    r"^`?(mcp_servers|metadata|service_tier|anthropic-(beta|version)|container|context_management)\b",
    r"^unexpected value\(s\) .{0,80}`anthropic-beta`",
)
"""How the text of an error begins that is about a field which the settings decide: with the way to it."""

_LIMIT = "anthropic-ratelimit-"


class AnthropicFailures(Failures):
    def from_response(
        self,
        status: int,
        headers: Mapping[str, str],
        body: bytes,
        *,
        handle: str | None = None,
        instead_of: str = "an event stream",
    ) -> AdapterError:
        error = super().from_response(status, headers, body, handle=handle, instead_of=instead_of)
        if error.kind is ErrorClass.RATE_LIMITED and error.retry_after is None:
            error.retry_after = _until_reset(headers)
        return error

    def class_of(self, error: BackendError) -> ErrorClass | None:
        general = error.kind in (None, "invalid_request_error")
        for words, kind in _TEXTS if general or error.kind == "not_found_error" else ():
            if words.search(error.message):
                return kind
        return None if general else _TYPES.get(error.kind or "")

    def is_about_settings(self, error: BackendError) -> bool:
        return _SETTINGS.search(error.message) is not None


def _until_reset(headers: Mapping[str, str]) -> float | None:
    """Seconds until the last of the used-up limits is filled again, where the service reports one."""
    low = {name.lower(): value for name, value in headers.items()}
    resets = [
        moment
        for name, left in low.items()
        if name.startswith(_LIMIT) and name.endswith("-remaining") and left.strip() == "0"
        if (moment := _moment(low.get(f"{name.removesuffix('-remaining')}-reset", ""))) is not None
    ]
    return max(0.0, max(resets) - Clock().now() / 1000) if resets else None


def _moment(text: str) -> float | None:
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        return None
    return moment.timestamp() if moment.tzinfo else None
