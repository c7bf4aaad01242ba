"""Errors of the services in their own words -> classes."""

import json
from typing import Any

import pytest

from adapters.assistants.failures import ThreadFailures
from gateway.ports.adapter import ErrorClass

THREAD = "thread_abc123"


def openai(message: str, **fields: Any) -> dict[str, Any]:
    """As OpenAI and Azure OpenAI send it."""
    return {"error": {"message": message, "type": "invalid_request_error", "param": None, "code": None} | fields}


def azure(code: str, message: str) -> dict[str, Any]:
    """As Azure's gateways send it."""
    return {"error": {"code": code, "message": message}}


RUN = "run_def456"
KNOWN: dict[str, tuple[int, dict[str, Any], ErrorClass]] = {
    "a run while one is active": (400, openai(f"Thread {THREAD} already has an active run {RUN}."), ErrorClass.LOCKED),
    "a message while a run is active": (
        400,
        openai(f"Can't add messages to {THREAD} while a run {RUN} is active."),
        ErrorClass.LOCKED,
    ),
    "a lock by its code": (400, azure("run_already_active", "Wait."), ErrorClass.LOCKED),
    "a conflict": (409, azure("Conflict", "Wait."), ErrorClass.LOCKED),
    "no such thread": (404, openai(f"No thread found with id '{THREAD}'."), ErrorClass.HANDLE_NOT_FOUND),
    "no such assistant": (404, openai("No assistant found with id 'asst_1'."), ErrorClass.NOT_SERVED),
    "no such resource": (404, azure("404", "Resource not found"), ErrorClass.NOT_SERVED),
    "no such deployment": (
        404,
        azure("DeploymentNotFound", "The API deployment for this resource does not exist."),
        ErrorClass.NOT_SERVED,
    ),
    "a wrong key": (
        401,
        azure("401", "Access denied due to invalid subscription key or wrong API endpoint."),
        ErrorClass.UNAUTHORISED,
    ),
    "a role that is missing": (
        403,
        azure("PermissionDenied", "The principal lacks the required data action."),
        ErrorClass.UNAUTHORISED,
    ),
    "a limit of requests": (
        429,
        azure("429", "Requests to the Creates a thread Operation have exceeded the call rate limit."),
        ErrorClass.RATE_LIMITED,
    ),
    "a quota": (
        429,
        openai("You exceeded your current quota.", type="insufficient_quota", code="insufficient_quota"),
        ErrorClass.NOT_SERVED,
    ),
    "a filter": (
        400,
        azure("content_filter", "The response was filtered due to the prompt triggering the policy."),
        ErrorClass.POLICY,
    ),
    "a filter in words": (
        400,
        openai("The prompt was filtered by Azure OpenAI's content management policy."),
        ErrorClass.POLICY,
    ),
    "a message that is too long": (
        400,
        openai(
            "Invalid 'content': string too long. Expected a string with maximum length 256000, but got 300000 instead.",
            param="content",
            code="string_above_max_length",
        ),
        ErrorClass.OVERFLOW,
    ),
    "a field of the settings": (
        400,
        openai("Unknown parameter: 'temperature'.", param="temperature", code="unknown_parameter"),
        ErrorClass.NOT_SERVED,
    ),
    "a field of a tool": (
        400,
        openai("Invalid 'tools[0].function.name'.", param="tools[0].function.name"),
        ErrorClass.NOT_SERVED,
    ),
    "a field of the message": (
        400,
        openai("Invalid type for 'additional_messages[0].content'.", param="additional_messages[0].content"),
        ErrorClass.REJECTED,
    ),
    "outcomes that nobody waits for": (
        400,
        openai('Runs in status "expired" do not accept tool outputs.'),
        ErrorClass.REJECTED,
    ),
    "a fault": (500, openai("Sorry, something went wrong.", type="server_error"), ErrorClass.BACKEND_FAILED),
}


@pytest.mark.parametrize("case", KNOWN)
def test_an_answer_has_the_class_of_what_it_means(case: str) -> None:
    status, body, kind = KNOWN[case]
    failures = ThreadFailures([])
    assert failures.from_response(status, {}, json.dumps(body).encode(), handle=THREAD).kind is kind


def test_what_a_run_reports_was_processed() -> None:
    failures = ThreadFailures([])
    for code in ("rate_limit_exceeded", "invalid_prompt", "content_filter", "server_error"):
        error = failures.of_run("failed", {"code": code, "message": "x"}, {"total_tokens": 1})
        assert (error.kind, error.usage) == (ErrorClass.BACKEND_FAILED, {"total_tokens": 1})
