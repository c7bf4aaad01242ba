"""Every operation of A2A 1.0, section 3.1, reaches the core and returns the same result over both bindings."""

from typing import Any

import pytest

from gateway.a2a.model import (
    CancelTaskRequest,
    GetTaskRequest,
    ListTasksRequest,
    ListTasksResponse,
    Message,
    Part,
    Role,
    SendMessageConfiguration,
    SendMessageRequest,
    SendMessageResponse,
    TaskState,
    Wire,
)
from gateway.ledger.threads import Caller
from tests.interaction.harness import MESSAGE, SEND, Gateway, Refusal
from tests.interaction.scripted import TASK_JSON

SENT = Message(message_id="message-1", role=Role.USER, parts=(Part(text="Hello"),))


async def test_a_message_is_sent_and_its_task_comes_back(gateway: Gateway) -> None:
    answer = await gateway.ask("SendMessage", SEND)

    assert (answer.status, answer.json) == (200, gateway.binding.result({"task": TASK_JSON}))
    assert answer.header("content-type") == "application/json"
    assert gateway.operations.requests == [("send_message", SendMessageRequest(message=SENT))]


async def test_the_core_gets_the_caller_and_the_agent(gateway: Gateway) -> None:
    await gateway.ask("SendMessage", SEND)

    [(_, call, _)] = gateway.operations.calls
    assert (call.agent.name, call.caller) == ("echo", Caller("anonymous"))
    assert (call.extensions, call.idempotency_key, call.last_event_id) == (frozenset(), None, None)


async def test_a_message_can_come_back_instead_of_a_task(gateway: Gateway) -> None:
    reply = Message(message_id="m", role=Role.AGENT, parts=(Part(data=None),))
    gateway.operations.answers["send_message"] = SendMessageResponse(message=reply)

    answer = await gateway.ask("SendMessage", SEND)

    message = {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"data": None}]}
    assert answer.json == gateway.binding.result({"message": message})


REQUESTS: tuple[tuple[str, dict[str, Any], str, Wire], ...] = (
    (
        "SendMessage",
        {
            "message": {
                **MESSAGE,
                "contextId": "c",
                "taskId": "",
                "referenceTaskIds": ["a", "b"],
                "extensions": ["https://e.example"],
                "metadata": {"context_id": None, "n": 12345678901234567890},
                "unknown": {"context_id": 1},
            },
            "configuration": {"historyLength": "3", "returnImmediately": True, "acceptedOutputModes": ["text/plain"]},
            "metadata": {"k": [1.5]},
        },
        "send_message",
        SendMessageRequest(
            message=Message(
                message_id="message-1",
                role=Role.USER,
                parts=(Part(text="Hello"),),
                context_id="c",
                reference_task_ids=("a", "b"),
                extensions=("https://e.example",),
                metadata={"context_id": None, "n": 12345678901234567890},
            ),
            configuration=SendMessageConfiguration(
                history_length=3, return_immediately=True, accepted_output_modes=("text/plain",)
            ),
            metadata={"k": [1.5]},
        ),
    ),
    ("GetTask", {"id": "task-1"}, "get_task", GetTaskRequest(id="task-1")),
    (
        "GetTask",
        {"id": "urn:task:1", "historyLength": 0},
        "get_task",
        GetTaskRequest(id="urn:task:1", history_length=0),
    ),
    ("GetTask", {"id": "ä %2F+", "tenant": "echo"}, "get_task", GetTaskRequest(id="ä %2F+", tenant="echo")),
    ("ListTasks", {}, "list_tasks", ListTasksRequest()),
    (
        "ListTasks",
        {
            "contextId": "c",
            "status": "TASK_STATE_WORKING",
            "pageSize": 100,
            "pageToken": "t",
            "historyLength": 2,
            "statusTimestampAfter": "2026-11-20T10:00:00Z",
        },
        "list_tasks",
        ListTasksRequest(
            context_id="c",
            status=TaskState.WORKING,
            page_size=100,
            page_token="t",
            history_length=2,
            status_timestamp_after="2026-11-20T10:00:00Z",
        ),
    ),
    (
        "ListTasks",
        {"page_size": 1, "status": 3},
        "list_tasks",
        ListTasksRequest(page_size=1, status=TaskState.COMPLETED),
    ),
    ("ListTasks", {"status": 0, "pageToken": ""}, "list_tasks", ListTasksRequest()),
    ("CancelTask", {"id": "a:b"}, "cancel_task", CancelTaskRequest(id="a:b")),
    (
        "CancelTask",
        {"id": "a", "metadata": {"why": "late"}},
        "cancel_task",
        CancelTaskRequest(id="a", metadata={"why": "late"}),
    ),
)


@pytest.mark.parametrize(("operation", "params", "name", "request_"), REQUESTS)
async def test_a_request_arrives_as_it_was_meant(
    gateway: Gateway, operation: str, params: dict[str, Any], name: str, request_: Wire
) -> None:
    answer = await gateway.ask(operation, params)

    assert answer.status == 200
    assert gateway.operations.requests == [(name, request_)]


@pytest.mark.parametrize("operation", ["GetTask", "CancelTask"])
async def test_a_task_comes_back(gateway: Gateway, operation: str) -> None:
    answer = await gateway.ask(operation, {"id": "task-1"})

    assert (answer.status, answer.json) == (200, gateway.binding.result(TASK_JSON))


async def test_a_page_of_tasks_comes_back(gateway: Gateway) -> None:
    answer = await gateway.ask("ListTasks", {})

    page = {"tasks": [TASK_JSON], "nextPageToken": "", "pageSize": 50, "totalSize": 1}
    assert (answer.status, answer.json) == (200, gateway.binding.result(page))


async def test_an_empty_page_says_so_in_full(gateway: Gateway) -> None:
    gateway.operations.answers["list_tasks"] = ListTasksResponse(
        tasks=(), next_page_token="", page_size=50, total_size=0
    )

    answer = await gateway.ask("ListTasks", {})

    page = {"tasks": [], "nextPageToken": "", "pageSize": 50, "totalSize": 0}
    assert answer.json == gateway.binding.result(page)


async def test_include_artifacts_is_true_only_where_it_says_so(gateway: Gateway) -> None:
    for given in (True, False):
        text = given if gateway.binding.name == "jsonrpc" else str(given).lower()
        await gateway.ask("ListTasks", {"includeArtifacts": text})

    assert gateway.operations.requests == [
        ("list_tasks", ListTasksRequest(include_artifacts=True)),
        ("list_tasks", ListTasksRequest(include_artifacts=False)),
    ]


@pytest.mark.parametrize(
    ("operation", "params"),
    [
        ("CreateTaskPushNotificationConfig", {"taskId": "t", "url": "https://hook.example"}),
        ("GetTaskPushNotificationConfig", {"taskId": "t", "id": "c"}),
        ("ListTaskPushNotificationConfigs", {"taskId": "t"}),
        ("DeleteTaskPushNotificationConfig", {"taskId": "t", "id": "c"}),
    ],
)
async def test_push_notifications_are_not_supported(gateway: Gateway, operation: str, params: dict[str, Any]) -> None:
    answer = await gateway.ask(operation, params)

    refusal = Refusal(
        -32003,
        400,
        "FAILED_PRECONDITION",
        "PUSH_NOTIFICATION_NOT_SUPPORTED",
        "this agent sends no push notifications",
    )
    assert (answer.status, answer.json) == gateway.binding.refusal(refusal)


async def test_there_is_no_extended_card(gateway: Gateway) -> None:
    answer = await gateway.ask("GetExtendedAgentCard", {})

    refusal = Refusal(-32004, 400, "FAILED_PRECONDITION", "UNSUPPORTED_OPERATION", "this agent has no extended card")
    assert (answer.status, answer.json) == gateway.binding.refusal(refusal)


@pytest.mark.parametrize("kind", ["application/a2a+json", "Application/JSON; charset=UTF-8", "application/json", ""])
async def test_json_is_read_under_each_of_its_names(gateway: Gateway, kind: str) -> None:
    answer = await gateway.ask("SendMessage", SEND, content_type=kind)

    assert answer.status == 200


@pytest.mark.parametrize("header", ["content_type", "accept"])
async def test_rest_answers_in_the_a2a_type_to_clients_that_name_it(rest: Gateway, header: str) -> None:
    answer = await rest.ask("SendMessage", SEND, **{header: "application/a2a+json"})
    refused = await rest.ask("SendMessage", {}, **{header: "application/a2a+json"})

    assert (answer.status, answer.header("content-type")) == (200, "application/a2a+json")
    assert (refused.status, refused.header("content-type")) == (400, "application/a2a+json")


@pytest.mark.parametrize("body", [b"", b"{}", b'{"id": "task-1"}', b'{"id": "", "tenant": null}'])
async def test_cancel_needs_no_body(rest: Gateway, body: bytes) -> None:
    answer = await rest.request("POST", "/a2a/echo/tasks/task-1:cancel", body)

    assert (answer.status, answer.json) == (200, TASK_JSON)
    assert rest.operations.requests == [("cancel_task", CancelTaskRequest(id="task-1"))]


@pytest.mark.parametrize("params", [b"", b',"params":null', b',"params":{}'])
async def test_json_rpc_needs_no_params(jsonrpc: Gateway, params: bytes) -> None:
    answer = await jsonrpc.request("POST", "/a2a/echo", b'{"jsonrpc":"2.0","id":1,"method":"ListTasks"%b}' % params)

    assert answer.status == 200
    assert jsonrpc.operations.requests == [("list_tasks", ListTasksRequest())]


async def test_a_line_separator_in_a_result_is_escaped(gateway: Gateway) -> None:
    reply = Message(message_id="m", role=Role.AGENT, parts=(Part(text="a\u2028b\u2029c\u0085d"),))
    gateway.operations.answers["send_message"] = SendMessageResponse(message=reply)

    answer = await gateway.ask("SendMessage", SEND)

    assert b"a\\u2028b\\u2029c\\u0085d" in answer.body
    assert len(answer.body.decode().splitlines()) == 1
