"""The errors of A2A agents, in the forms of every binding and version."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from adapters.a2a.failures import A2AFailures, Refused, told
from gateway.ports.adapter import NOT_PROCESSED, AdapterError, ErrorClass

FAILURES = A2AFailures(["sk-proj-0123456789abcdef"])
INFO = "type.googleapis.com/google.rpc.ErrorInfo"
RETRY = "type.googleapis.com/google.rpc.RetryInfo"


def response(
    status: int, body: Any, headers: Mapping[str, str] | None = None, handle: str | None = None
) -> AdapterError:
    content = body.encode() if isinstance(body, str) else json.dumps(body).encode()
    return FAILURES.from_response(status, headers or {}, content, handle=handle)


# --- by JSON-RPC ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (-32700, ErrorClass.NOT_SERVED),
        (-32600, ErrorClass.NOT_SERVED),
        (-32601, ErrorClass.NOT_SERVED),
        (-32602, ErrorClass.REJECTED),
        (-32603, ErrorClass.BACKEND_FAILED),
        (-32001, ErrorClass.REJECTED),
        (-32004, ErrorClass.NOT_SERVED),
        (-32005, ErrorClass.REJECTED),
        (-32006, ErrorClass.BACKEND_FAILED),
        (-32008, ErrorClass.NOT_SERVED),
        (-32009, ErrorClass.NOT_SERVED),
        (-32099, ErrorClass.BACKEND_FAILED),
    ],
)
def test_a_code_of_json_rpc_has_its_class(code: int, kind: ErrorClass) -> None:
    assert FAILURES.from_rpc(code, "no", None).kind is kind


def test_a_task_that_is_not_found_is_the_conversation_of_a_request_that_continues_one() -> None:
    assert FAILURES.from_rpc(-32001, "Task not found", None, handle="c").kind is ErrorClass.HANDLE_NOT_FOUND


@pytest.mark.parametrize(
    "text", ["Unknown context c", "The context 'c' does not exist", "'c' is no context of yours", "context c not found"]
)
def test_a_context_that_the_agent_does_not_know_is_a_lost_one(text: str) -> None:
    assert FAILURES.from_rpc(-32602, text, None, handle="c").kind is ErrorClass.HANDLE_NOT_FOUND
    assert FAILURES.from_rpc(-32602, text, None).kind is ErrorClass.REJECTED


def test_a_reason_decides_before_a_code() -> None:
    data = [{"@type": INFO, "reason": "UNSUPPORTED_OPERATION"}, {"@type": RETRY, "retryDelay": "3s"}]
    error = FAILURES.from_rpc(-32602, "no", data)
    assert (error.reason, error.kind, error.retry_after) == ("UNSUPPORTED_OPERATION", ErrorClass.NOT_SERVED, 3)


# --- by HTTP ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (401, ErrorClass.UNAUTHORISED),
        (403, ErrorClass.UNAUTHORISED),
        (413, ErrorClass.OVERFLOW),
        (429, ErrorClass.RATE_LIMITED),
        (500, ErrorClass.BACKEND_FAILED),
        (502, ErrorClass.BACKEND_FAILED),
    ],
)
def test_a_status_that_any_server_may_give_decides_before_the_body(status: int, kind: ErrorClass) -> None:
    body = {"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": "no"}}
    expected = ErrorClass.NOT_SERVED if status == 500 else kind
    assert response(status, body).kind is expected
    assert response(status, "<html>").kind is kind


def test_a_busy_server_is_tried_again_when_it_says() -> None:
    body = {"jsonrpc": "2.0", "id": 1, "error": {"code": -32603, "message": "Busy"}}
    error = response(503, body, {"Retry-After": "2"})
    assert (error.kind, error.retry_after) == (ErrorClass.RATE_LIMITED, 2)
    assert response(502, "<html>").backend_down


def test_the_error_of_http_json_is_read_by_its_reason() -> None:
    info = {"@type": INFO, "reason": "TASK_NOT_FOUND", "domain": "a2a-protocol.org"}
    body = {"error": {"code": 404, "status": "NOT_FOUND", "message": "Task t not found", "details": [info]}}
    error = response(404, body, handle="c")
    assert isinstance(error, Refused)
    assert (error.reason, error.kind) == ("TASK_NOT_FOUND", ErrorClass.HANDLE_NOT_FOUND)


def test_a_404_without_a_reason_is_an_address_that_is_not_there() -> None:
    assert response(404, {"detail": "Not Found"}, handle="c").kind is ErrorClass.NOT_SERVED


@pytest.mark.parametrize("body", [{"code": -32001, "message": "Task not found"}, {"type": "TaskNotFoundError"}])
def test_an_error_of_0_3_by_http_is_read_in_either_form(body: dict[str, Any]) -> None:
    error = response(404, body)
    assert isinstance(error, Refused)
    assert error.reason == "TASK_NOT_FOUND"


def test_an_error_in_a_stream_of_http_json_is_one() -> None:
    info = {"@type": INFO, "reason": "INVALID_AGENT_RESPONSE"}
    error = FAILURES.in_stream(
        json.dumps({"error": {"status": "INTERNAL", "message": "x", "details": [info]}}).encode()
    )
    assert error is not None
    assert error.kind is ErrorClass.BACKEND_FAILED
    assert FAILURES.in_stream(b'{"taskId": "t"}') is None


def test_the_key_is_in_no_text() -> None:
    error = FAILURES.from_rpc(-32602, "your key sk-proj-0123456789abcdef is bad", None)
    assert "0123" not in error.detail
    assert "***" in error.detail


def test_a_refusal_was_not_processed_and_a_failure_may_have_been() -> None:
    refused = {"INVALID_PARAMS", "CONTENT_TYPE_NOT_SUPPORTED", "METHOD_NOT_FOUND", "UNSUPPORTED_OPERATION", "BUSY"}
    assert all(FAILURES.refusal(reason, "").kind in NOT_PROCESSED for reason in refused)
    assert FAILURES.refusal("INTERNAL_ERROR", "").kind not in NOT_PROCESSED
    assert FAILURES.refusal("", "").kind not in NOT_PROCESSED


@pytest.mark.parametrize("details", [None, "x", [1], [{"@type": INFO}], [{"@type": RETRY, "retryDelay": "soon"}]])
def test_details_in_an_unknown_form_say_nothing(details: Any) -> None:
    assert told(details) == ("", None)


def test_a_wait_is_read_in_the_forms_of_json_and_of_protobuf() -> None:
    assert told([{"@type": RETRY, "retryDelay": "1.5s"}]) == ("", 1.5)
    assert told([{"@type": RETRY, "retryDelay": {"seconds": 4}}]) == ("", 4)
