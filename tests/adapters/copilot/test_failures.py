"""Errors of the services, with their classes."""

import json

import pytest

from adapters.copilot.failures import CopilotFailures
from gateway.ports.adapter import AdapterError, ErrorClass

KEY = "line-secret-0123456789"


def error(status: int, code: str, message: str = "No.", handle: str | None = "c1") -> AdapterError:
    body = json.dumps({"error": {"code": code, "message": message}}).encode()
    return CopilotFailures((KEY,)).from_response(status, {}, body, handle=handle)


@pytest.mark.parametrize(
    ("status", "code", "handle", "kind"),
    [
        (400, "BadArgument", "c1", ErrorClass.REJECTED),
        (401, "Unauthorized", "c1", ErrorClass.UNAUTHORISED),
        (403, "BadArgument", "c1", ErrorClass.UNAUTHORISED),
        (403, "TokenExpired", "c1", ErrorClass.HANDLE_EXPIRED),
        (404, "BadArgument", "c1", ErrorClass.HANDLE_NOT_FOUND),
        (404, "BadArgument", None, ErrorClass.NOT_SERVED),
        (413, "MessageSizeTooBig", "c1", ErrorClass.OVERFLOW),
        (429, "TooManyRequests", "c1", ErrorClass.RATE_LIMITED),
        (500, "ServiceError", "c1", ErrorClass.BACKEND_FAILED),
        (502, "BotRejectedActivity", "c1", ErrorClass.BACKEND_FAILED),
    ],
)
def test_an_error_has_the_class_of_its_code_or_its_status(
    status: int, code: str, handle: str | None, kind: ErrorClass
) -> None:
    assert error(status, code, handle=handle).kind is kind


def test_a_bot_that_fails_is_not_a_service_that_is_down() -> None:
    assert not error(502, "BotRejectedActivity").backend_down
    assert error(502, "").backend_down


@pytest.mark.parametrize(
    "text",
    [
        "wss://host/stream?watermark=1&t=RCurR_XV9ZA.cwA.iaJr refused",
        "the token eyJhbGciOiJSUzI1NiJ9.eyJib3QiOiJ4In0.c2lnbmF0dXJl is invalid",
        f"the secret {KEY} is invalid",
    ],
)
def test_no_token_and_no_secret_stays_in_a_text(text: str) -> None:
    detail = CopilotFailures((KEY,)).error(ErrorClass.UNKNOWN, text).detail
    assert "***" in detail
    assert not any(part in detail for part in ("RCurR", "eyJ", KEY))
