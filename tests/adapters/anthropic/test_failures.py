"""Errors as Anthropic and compatible services send them, and their classes."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from adapters.anthropic.failures import AnthropicFailures
from gateway.ports.adapter import ErrorClass

FAILURES = AnthropicFailures(())


def error(message: str, kind: str = "invalid_request_error", **more: Any) -> dict[str, Any]:
    return {"type": "error", "error": {"type": kind, "message": message, **more}, "request_id": "req_1"}


ERRORS: dict[str, tuple[int, Any, ErrorClass]] = {
    "too long": (400, error("prompt is too long: 208310 tokens > 200000 maximum"), ErrorClass.OVERFLOW),
    "too long with its answer": (
        400,
        error(
            "input length and `max_tokens` exceed context limit: 198000 + 21333 > 200000, decrease input length or "
            "`max_tokens` and try again"
        ),
        ErrorClass.OVERFLOW,
    ),
    "too large": (413, error("Request exceeds the maximum size", "request_too_large"), ErrorClass.OVERFLOW),
    "too large, of a proxy": (413, "<html>413 Request Entity Too Large</html>", ErrorClass.OVERFLOW),
    "filtered": (400, error("Output blocked by content filtering policy"), ErrorClass.POLICY),
    "no credit": (
        400,
        error("Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing."),
        ErrorClass.NOT_SERVED,
    ),
    "spent": (
        400,
        error("You have reached your specified API usage limits. You will regain access on 2026-12-01 at 00:00 UTC."),
        ErrorClass.NOT_SERVED,
    ),
    "disabled": (400, error("This organization has been disabled."), ErrorClass.NOT_SERVED),
    "billing": (402, error("There is an issue with your billing.", "billing_error"), ErrorClass.NOT_SERVED),
    "no key": (401, error("x-api-key header is required", "authentication_error"), ErrorClass.UNAUTHORISED),
    "no permission": (403, error("Your API key may not use this.", "permission_error"), ErrorClass.UNAUTHORISED),
    "no model": (404, error("model: claude-nope", "not_found_error"), ErrorClass.NOT_SERVED),
    "no container": (404, error("Container container_1 not found", "not_found_error"), ErrorClass.HANDLE_EXPIRED),
    "an old container": (400, error("container: the container has expired"), ErrorClass.HANDLE_EXPIRED),
    "a field of the settings": (
        400,
        error("max_tokens: 99999 > 8192, which is the maximum allowed number of output tokens for claude-x"),
        ErrorClass.NOT_SERVED,
    ),
    "the budget": (
        400,
        error("`max_tokens` must be greater than `thinking.budget_tokens`."),
        ErrorClass.NOT_SERVED,
    ),
    "a tool": (400, error("tools.0.custom.input_schema: JSON schema is invalid."), ErrorClass.NOT_SERVED),
    "a beta": (
        400,
        error("Unexpected value(s) `nope` for the `anthropic-beta` header."),
        ErrorClass.NOT_SERVED,
    ),
    "content": (400, error("messages.0.content.1.image.source.base64.data: invalid base64"), ErrorClass.REJECTED),
    "a picture": (400, error("Could not process image"), ErrorClass.REJECTED),
    "too often": (
        429,
        error("This request would exceed your rate limit.", "rate_limit_error"),
        ErrorClass.RATE_LIMITED,
    ),
    "overloaded": (529, error("Overloaded", "overloaded_error"), ErrorClass.RATE_LIMITED),
    "overloaded, without a word": (529, "", ErrorClass.RATE_LIMITED),
    "slow": (504, error("Request timed out", "timeout_error"), ErrorClass.TIMED_OUT),
    "failed": (500, error("Internal server error", "api_error"), ErrorClass.BACKEND_FAILED),
    "in use": (409, error("Conflict", "conflict_error"), ErrorClass.LOCKED),
    "of OGX": (
        404,
        error("Model 'nope/nope' not found. Use 'client.models.list()' to list available Models.", "not_found_error"),
        ErrorClass.NOT_SERVED,
    ),
    "of FastAPI": (422, {"detail": [{"loc": ["body"], "msg": "field required"}]}, ErrorClass.REJECTED),
}


@pytest.mark.parametrize(("status", "body", "kind"), ERRORS.values(), ids=ERRORS)
def test_an_error_has_its_class(status: int, body: Any, kind: ErrorClass) -> None:
    content = body.encode() if isinstance(body, str) else json.dumps(body).encode()
    assert FAILURES.from_response(status, {}, content).kind is kind


IN_THE_STREAM = {
    "overloaded_error": ErrorClass.RATE_LIMITED,
    "rate_limit_error": ErrorClass.RATE_LIMITED,
    "api_error": ErrorClass.BACKEND_FAILED,
    "timeout_error": ErrorClass.TIMED_OUT,
    "authentication_error": ErrorClass.UNAUTHORISED,
    "permission_error": ErrorClass.UNAUTHORISED,
    "not_found_error": ErrorClass.NOT_SERVED,
    "request_too_large": ErrorClass.OVERFLOW,
    "invalid_request_error": ErrorClass.REJECTED,
    "something_new": ErrorClass.BACKEND_FAILED,
}


@pytest.mark.parametrize(("kind", "wanted"), IN_THE_STREAM.items())
def test_an_error_in_the_stream_has_the_class_of_its_type(kind: str, wanted: ErrorClass) -> None:
    assert FAILURES.from_event({"type": kind, "message": "no"}).kind is wanted


LIMITED = json.dumps(error("no", "rate_limit_error")).encode()


def test_the_service_says_when_to_come_back() -> None:
    headers = {"retry-after": "12", "anthropic-ratelimit-tokens-remaining": "0"}
    assert FAILURES.from_response(429, {"Retry-After": headers["retry-after"]}, LIMITED).retry_after == 12


def test_without_its_word_the_limit_that_is_used_up_says_it() -> None:
    soon, late = (
        (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z") for seconds in (60, 3600)
    )
    headers = {
        "anthropic-ratelimit-requests-remaining": "0",
        "anthropic-ratelimit-requests-reset": soon,
        "anthropic-ratelimit-tokens-remaining": "7",
        "anthropic-ratelimit-tokens-reset": late,
    }
    wait = FAILURES.from_response(429, headers, LIMITED).retry_after
    assert wait is not None
    assert 0 < wait < 3600


@pytest.mark.parametrize("reset", ["", "soon", "2026-01-01T00:00:00"])
def test_a_limit_without_a_time_says_nothing(reset: str) -> None:
    headers = {"anthropic-ratelimit-requests-remaining": "0", "anthropic-ratelimit-requests-reset": reset}
    assert FAILURES.from_response(429, headers, LIMITED).retry_after is None
