"""The official client, a2a-sdk, where it speaks A2A 0.3, over both bindings."""

from collections.abc import AsyncGenerator
from pathlib import Path

import httpx
import pytest
from a2a.client.transports.base import ClientTransport
from a2a.compat.v0_3.jsonrpc_transport import CompatJsonRpcTransport
from a2a.compat.v0_3.rest_transport import CompatRestTransport
from a2a.types import (
    AuthenticationInfo,
    CancelTaskRequest,
    GetTaskPushNotificationConfigRequest,
    GetTaskRequest,
    Part,
    SendMessageConfiguration,
    SendMessageRequest,
    StreamResponse,
    SubscribeToTaskRequest,
    Task,
    TaskPushNotificationConfig,
    TaskState,
)
from a2a.utils.errors import InvalidParamsError, TaskNotCancelableError, TaskNotFoundError
from google.protobuf.json_format import MessageToDict  # type: ignore[import-untyped]

from tests.interop.echo_agent import gate, knows
from tests.interop.sdk import UNFINISHED, held_text, kinds, request_of, streamed_text, text_of
from tests.receiver import LOOPBACK
from tests.running import local_gateway

WAITING = SendMessageConfiguration(return_immediately=False)


@pytest.fixture(params=[CompatJsonRpcTransport, CompatRestTransport], ids=["JSONRPC", "HTTP+JSON"])
async def client(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[ClientTransport]:
    agents = "echo: {type: python, ref: 'tests.interop.echo_agent:reply'}"
    settings = f"limits: {{stream_keepalive: 1h}}\npush: {{{LOOPBACK}}}"
    async with (
        local_gateway(agents, tmp_path, settings=settings) as gateway,
        httpx.AsyncClient(timeout=30, trust_env=False) as http,
    ):
        yield request.param(http, None, f"{gateway.url}/a2a/echo")


def waited_for(text: str, **where: str) -> SendMessageRequest:
    return request_of(text, configuration=WAITING, **where)


async def sent(client: ClientTransport, request: SendMessageRequest) -> Task:
    response = await client.send_message(request)
    assert response.HasField("task")
    return response.task


async def test_a_message_is_waited_for_where_it_says_so(client: ClientTransport) -> None:
    task = await sent(client, waited_for("one"))
    at_once = await sent(client, request_of("two", configuration=SendMessageConfiguration(return_immediately=True)))

    assert (task.status.state, text_of(task)) == (TaskState.TASK_STATE_COMPLETED, knows("one"))
    assert at_once.status.state in UNFINISHED


async def test_an_answer_is_streamed_and_can_be_read_later(client: ClientTransport) -> None:
    responses = [response async for response in client.send_message_streaming(request_of("one two"))]

    assert kinds(responses) == ["task", "artifact_update", "TASK_STATE_COMPLETED"]
    assert streamed_text(responses) == knows("one two")
    task = await client.get_task(GetTaskRequest(id=responses[0].task.id))
    assert text_of(task) == knows("one two")


async def test_each_kind_of_part_comes_back_as_it_was_sent(client: ClientTransport) -> None:
    request = waited_for("one")
    request.message.parts.extend(
        [
            Part(raw=b"\x00\xff\xfe", media_type="text/plain", filename="a.bin"),
            Part(url="https://f.example/x", media_type="text/plain"),
        ]
    )
    request.message.parts.add().data.struct_value["a"] = [1, "ü", None]

    task = await sent(client, request)

    read = await client.get_task(GetTaskRequest(id=task.id, history_length=1))
    [message] = read.history
    assert [MessageToDict(part) for part in message.parts] == [MessageToDict(part) for part in request.message.parts]


async def test_a_question_is_answered(client: ClientTransport) -> None:
    waiting = await sent(client, waited_for("ask"))
    answered = await sent(client, waited_for("Oslo", task_id=waiting.id, context_id=waiting.context_id))

    assert waiting.status.state == TaskState.TASK_STATE_INPUT_REQUIRED
    assert [part.text for part in waiting.status.message.parts] == ["Which city?"]
    assert (answered.id, answered.status.state) == (waiting.id, TaskState.TASK_STATE_COMPLETED)


async def test_a_held_task_is_subscribed_to_and_cancelled(client: ClientTransport) -> None:
    task = await sent(client, request_of(held_text(), configuration=SendMessageConfiguration(return_immediately=True)))

    cancelled: Task | None = None
    seen: list[StreamResponse] = []
    async for response in client.subscribe(SubscribeToTaskRequest(id=task.id)):
        seen.append(response)
        if cancelled is None:
            cancelled = await client.cancel_task(CancelTaskRequest(id=task.id))

    assert cancelled is not None
    assert cancelled.status.state == TaskState.TASK_STATE_CANCELED
    assert kinds(seen)[-1] == "TASK_STATE_CANCELED"


async def test_a_held_answer_goes_on(client: ClientTransport) -> None:
    text = held_text()
    responses = []
    async for response in client.send_message_streaming(request_of(text)):
        responses.append(response)
        gate(text).set()

    assert streamed_text(responses) == "before after"


async def test_a_push_configuration_is_made_and_read(client: ClientTransport) -> None:
    task = await sent(client, waited_for("one"))
    wanted = TaskPushNotificationConfig(
        task_id=task.id,
        id="p",
        url="https://hook.invalid/a",
        token="t",
        authentication=AuthenticationInfo(scheme="Bearer", credentials="secret"),
    )

    made = await client.create_task_push_notification_config(wanted)

    read = await client.get_task_push_notification_config(GetTaskPushNotificationConfigRequest(task_id=task.id, id="p"))
    assert read == made
    assert (made.task_id, made.id, made.url, made.token) == (task.id, "p", wanted.url, "")
    assert (made.authentication.scheme, made.authentication.credentials) == ("Bearer", "")


async def test_errors_are_those_of_0_3(client: ClientTransport) -> None:
    task = await sent(client, waited_for("one"))

    with pytest.raises(TaskNotFoundError):
        await client.get_task(GetTaskRequest(id="unknown"))
    with pytest.raises(TaskNotCancelableError):
        await client.cancel_task(CancelTaskRequest(id=task.id))
    with pytest.raises(InvalidParamsError):
        await client.send_message(waited_for("two", task_id=task.id, context_id=task.context_id))
