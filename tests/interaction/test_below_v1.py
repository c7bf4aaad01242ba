"""HTTP+JSON of A2A 0.3: its addresses, its version, and the body of an error, of which each client reads another place."""

from typing import Any

import msgspec
import pytest

from gateway.a2a import errors
from gateway.a2a.errors import A2AError
from gateway.a2a.model import CancelTaskRequest, GetTaskRequest, StreamResponse, SubscribeToTaskRequest
from gateway.a2a.tool_calls import URI as TOOL_CALLS
from gateway.a2a.wire import v1_0
from tests.interaction import asgi
from tests.interaction.harness import Gateway, Refusal, Rest, agent
from tests.interaction.scripted import TASK, TASK_JSON, ScriptedStream

SEND = msgspec.json.encode(
    {"message": {"messageId": "m", "role": "ROLE_USER", "content": [{"text": "Hello"}]}, "configuration": {}}
)
NOT_FOUND = errors.TaskNotFound("Task not found", metadata={"taskId": "t"})


@pytest.fixture
def gateway() -> Gateway:
    return Gateway(Rest(), agent("echo"), agent("support", "acme"))


async def ask(gateway: Gateway, method: str, target: str, body: bytes = b"", **headers: str) -> asgi.Answer:
    return await gateway.request(method, target, body, **{"a2a_version": "", **headers})


# --- addresses


@pytest.mark.parametrize(
    ("target", "name"), [("/a2a/echo/v1", "echo"), ("/a2a/support/v1", "support"), ("/a2a/acme/v1", "support")]
)
async def test_each_agent_answers_below_v1_of_its_address(gateway: Gateway, target: str, name: str) -> None:
    answer = await ask(gateway, "POST", f"{target}/message:send", SEND)

    assert (answer.status, answer.json) == (200, {"task": TASK_JSON})
    [(_, call, _)] = gateway.operations.calls
    assert (call.agent.name, call.version) == (name, "0.3")


async def test_the_only_agent_needs_no_name() -> None:
    gateway = Gateway(Rest())

    answer = await ask(gateway, "GET", "/a2a/v1/tasks/t?historyLength=0")

    assert (answer.status, answer.json) == (200, TASK_JSON)
    assert gateway.operations.requests == [("get_task", GetTaskRequest(id="t"))]


async def test_a_task_may_be_called_v1() -> None:
    gateway = Gateway(Rest())

    await gateway.request("GET", "/a2a/tasks/v1")
    await gateway.request("GET", "/a2a/echo/tasks/v1")

    assert gateway.operations.requests == [("get_task", GetTaskRequest(id="v1"))] * 2


@pytest.mark.parametrize("name", ["tasks", "v1"])
@pytest.mark.parametrize("tenant", [True, False])
def test_no_agent_and_no_tenant_is_called_like_a_part_of_an_address(name: str, tenant: bool) -> None:
    with pytest.raises(ValueError, match=f"an agent cannot be called '{name}': /a2a/{name} is "):
        Gateway(Rest(), agent("echo", name) if tenant else agent(name))


@pytest.mark.parametrize(
    "target",
    [
        "/a2a/echo/v1",
        "/a2a/v1",
        "/a2a/echo/v1/",
        "/a2a/echo/v1/extendedAgentCard",
        "/a2a/echo/v1/message:delete",
        "/a2a/echo/v1/v1/tasks/t",
        "/a2a/support/acme/v1/tasks/t",
    ],
)
async def test_an_unknown_address_is_not_found(gateway: Gateway, target: str) -> None:
    answer = await ask(gateway, "GET", target)

    assert answer.status in (404, 405)
    assert gateway.operations.calls == []


@pytest.mark.parametrize(
    ("method", "target", "allowed"),
    [
        ("GET", "message:send", "POST"),
        ("DELETE", "tasks/a:subscribe", "GET, POST"),
        ("PUT", "tasks/a/pushNotificationConfigs", "GET, POST"),
        ("POST", "card", "GET"),
    ],
)
async def test_a_wrong_method_is_refused_with_the_allowed_ones(
    gateway: Gateway, method: str, target: str, allowed: str
) -> None:
    answer = await ask(gateway, method, f"/a2a/echo/v1/{target}")

    assert (answer.status, answer.header("allow")) == (405, allowed)
    assert answer.json["message"] == answer.json["error"]["message"]


@pytest.mark.parametrize("body", [b"", b"{}", b'{"name": "tasks/a:b"}'])
async def test_a_task_is_cancelled_with_and_without_a_body(gateway: Gateway, body: bytes) -> None:
    answer = await ask(gateway, "POST", "/a2a/echo/v1/tasks/a:b:cancel", body)

    assert (answer.status, answer.json) == (200, TASK_JSON)
    assert gateway.operations.requests == [("cancel_task", CancelTaskRequest(id="a:b"))]


@pytest.mark.parametrize(("method", "body"), [("GET", b""), ("POST", b""), ("POST", b'{"name": "tasks/t"}')])
async def test_a_task_is_subscribed_to_by_get_and_post(gateway: Gateway, method: str, body: bytes) -> None:
    gateway.operations.answers["subscribe_to_task"] = ScriptedStream([(7, v1_0.encode(StreamResponse(task=TASK)))])

    answer = await ask(gateway, method, "/a2a/echo/v1/tasks/t:subscribe", body, last_event_id="6")

    assert answer.body.startswith(b'id: 7\ndata: {"task":{"id":"task-1"')
    [(name, call, request)] = gateway.operations.calls
    assert (name, request, call.last_event_id) == ("subscribe_to_task", SubscribeToTaskRequest(id="t"), 6)


# --- versions and extensions


@pytest.mark.parametrize("version", ["", "0.3", "0.3.0", "0.3.26"])
async def test_0_3_is_spoken_below_v1(gateway: Gateway, version: str) -> None:
    assert (await ask(gateway, "POST", "/a2a/echo/v1/message:send", SEND, a2a_version=version)).status == 200


@pytest.mark.parametrize("version", ["1.0", "0.2", "7"])
async def test_another_version_is_refused_with_the_place_of_1_0(gateway: Gateway, version: str) -> None:
    answer = await ask(gateway, "POST", "/a2a/echo/v1/message:send", SEND, a2a_version=version)

    where = "HTTP+JSON of A2A 1.0 is at the agent's address without /v1"
    text = f"A2A version '{version}' is not supported; supported: 0.3; {where}"
    refusal = Refusal(
        -32009, 400, "FAILED_PRECONDITION", "VERSION_NOT_SUPPORTED", text, metadata={"supportedVersions": "0.3"}
    )
    assert (answer.status, answer.json["error"]) == (400, refusal.rest()["error"])
    assert (answer.json["code"], answer.json["type"]) == (-32600, "InvalidRequestError")
    assert gateway.operations.calls == []


async def test_a_list_of_tasks_is_refused_with_the_place_where_it_is(gateway: Gateway) -> None:
    answer = await ask(gateway, "GET", "/a2a/echo/v1/tasks")

    assert (answer.status, answer.json["code"]) == (404, -32601)
    assert answer.json["message"] == (
        "Method not found: A2A 0.3 has no 'ListTasks'; A2A 1.0 has it, at an address without /v1"
    )


async def test_an_active_extension_is_named_in_the_header_of_0_3(gateway: Gateway) -> None:
    answer = await ask(gateway, "POST", "/a2a/echo/v1/message:send", SEND, x_a2a_extensions=TOOL_CALLS)

    assert (answer.header("x-a2a-extensions"), answer.header("a2a-extensions")) == (TOOL_CALLS, None)


# --- errors


def as_read(body: Any) -> dict[str, Any]:
    """What the SDKs of JavaScript, Python, Go and Java take from the body of an error."""
    assert isinstance(body["error"], dict)  # a text would be the name of a class in Java
    details = body["error"]["details"]
    return {"code": body["code"], "type": body["type"], "message": body["message"], "reason": details[0]["reason"]}


async def test_an_error_is_read_by_each_client(gateway: Gateway) -> None:
    gateway.operations.answers["get_task"] = NOT_FOUND

    answer = await ask(gateway, "GET", "/a2a/echo/v1/tasks/t")

    refusal = Refusal(-32001, 404, "NOT_FOUND", "TASK_NOT_FOUND", "Task not found", metadata={"taskId": "t"})
    assert (answer.status, answer.header("content-type")) == (404, "application/json")
    assert answer.json == {
        "code": -32001,
        "type": "TaskNotFoundError",
        "message": "Task not found",
        **refusal.rest(),
    }


async def test_an_error_in_a_stream_has_the_same_body(gateway: Gateway) -> None:
    gateway.operations.answers["send_streaming_message"] = ScriptedStream(error=NOT_FOUND)

    answer = await ask(gateway, "POST", "/a2a/echo/v1/message:stream", SEND)

    kind, data = answer.body.decode().strip().split("\n")
    assert (answer.status, kind) == (200, "event: error")
    assert as_read(msgspec.json.decode(data.removeprefix("data: "))) == {
        "code": -32001,
        "type": "TaskNotFoundError",
        "message": "Task not found",
        "reason": "TASK_NOT_FOUND",
    }


@pytest.mark.parametrize(
    ("error", "status", "code", "kind"),
    [
        (errors.TaskNotCancelable("x"), 409, -32002, "TaskNotCancelableError"),
        (errors.UnsupportedOperation("x"), 501, -32004, "UnsupportedOperationError"),
        (errors.UnsupportedOperation("x", metadata={"taskId": "t"}), 422, -32602, "InvalidParamsError"),
        (errors.TooManyRequests("x", retry_after=3), 429, -32603, "TooManyRequestsError"),
    ],
)
async def test_a_status_says_what_clients_read_from_it(
    gateway: Gateway, error: A2AError, status: int, code: int, kind: str
) -> None:
    gateway.operations.answers["send_message"] = error

    answer = await ask(gateway, "POST", "/a2a/echo/v1/message:send", SEND)

    assert (answer.status, answer.json["code"], answer.json["type"]) == (status, code, kind)
    assert answer.json["error"]["code"] == status


@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        (b'{"message": {"messageId": "m", "role": "ROLE_USER", "content": [{}]}}', 422, "message.content[0]"),
        (b'{"message": {"messageId": "m", "role": "user", "parts": [{}]}}', 422, "message.parts[0]"),
        (b'{"message": "x"}', 422, "message"),
        (b"[]", 400, ""),
        (b"{", 400, ""),
        (b"", 400, ""),
    ],
)
async def test_a_request_that_is_not_right_is_refused(gateway: Gateway, body: bytes, status: int, field: str) -> None:
    answer = await ask(gateway, "POST", "/a2a/echo/v1/message:send", body)

    assert answer.status == status
    assert field in answer.json["message"]
    assert gateway.operations.calls == []


async def test_an_unknown_agent_is_not_found(gateway: Gateway) -> None:
    answer = await ask(gateway, "POST", "/a2a/nobody/v1/message:send", SEND)

    assert (answer.status, answer.json["code"], answer.json["message"]) == (
        404,
        -32601,
        "no agent is called 'nobody'",
    )
