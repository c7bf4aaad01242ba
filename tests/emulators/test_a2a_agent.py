"""The emulated A2A agent answers the official client as an agent of a2a-sdk does, in both versions."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any, TypeAlias

import httpx
import pytest
from a2a.client import A2ACardResolver, Client, ClientConfig, ClientFactory
from a2a.types import (
    CancelTaskRequest,
    GetTaskRequest,
    ListTasksRequest,
    Message,
    Part,
    Role,
    SendMessageRequest,
    StreamResponse,
    SubscribeToTaskRequest,
    TaskState,
)
from a2a.utils.errors import TaskNotCancelableError, TaskNotFoundError, UnsupportedOperationError

from gateway.testing.serving import serve
from tests.emulators.a2a_agent import A2AAgent
from tests.emulators.scripts import Ask, Fail, Item, Pause, Say, Script
from tests.support.polling import until

WAYS = {
    "JSON-RPC": ("1.0", "JSONRPC"),
    "HTTP+JSON": ("1.0", "HTTP+JSON"),
    "0.3": ("0.3", "JSONRPC"),
}
Connect: TypeAlias = Callable[..., Awaitable[tuple[Client, A2AAgent]]]


@pytest.fixture(params=list(WAYS.values()), ids=list(WAYS))
async def connect(request: pytest.FixtureRequest) -> AsyncGenerator[Connect]:
    """Serves an agent with a script, and gives the official client of it."""
    version, binding = request.param
    async with AsyncExitStack() as stack:

        async def connected(script: Script, **more: Any) -> tuple[Client, A2AAgent]:
            agent = A2AAgent(script, version=version, **more)
            url = await stack.enter_async_context(serve(agent.app))
            http = await stack.enter_async_context(httpx.AsyncClient(trust_env=False, timeout=30))
            card = await A2ACardResolver(http, url).get_agent_card()
            config = ClientConfig(httpx_client=http, supported_protocol_bindings=[binding])
            return ClientFactory(config).create(card), agent

        yield connected


def said(text: str, **where: Any) -> SendMessageRequest:
    parts = [Part(text=text)]
    return SendMessageRequest(message=Message(message_id=text, role=Role.ROLE_USER, parts=parts, **where))


async def events(client: Client, request: SendMessageRequest) -> list[StreamResponse]:
    return [event async for event in client.send_message(request)]


async def begun(client: Client) -> str:
    """A task whose listener has left."""
    async for event in client.send_message(said("Hi")):
        return event.task.id
    raise AssertionError("nothing came")


def kinds(found: list[StreamResponse]) -> list[str | None]:
    return [event.WhichOneof("payload") for event in found]


def text_of(found: list[StreamResponse]) -> str:
    return "".join(part.text for event in found for part in event.artifact_update.artifact.parts)


async def test_an_answer_comes_in_pieces_of_one_artifact(connect: Connect) -> None:
    client, _ = await connect(lambda conversation: [Say(f"echo {conversation.text}", chunks=2)])
    found = await events(client, said("Hi"))
    assert kinds(found)[0] == "task"
    assert text_of(found) == "echo Hi"
    assert [event.artifact_update.append for event in found if event.HasField("artifact_update")] == [False, True]
    assert found[-1].status_update.status.state == TaskState.TASK_STATE_COMPLETED


async def test_a_context_is_remembered_until_all_is_forgotten(connect: Connect) -> None:
    client, agent = await connect(lambda conversation: [Say(" | ".join(conversation.user_texts))])
    first = await events(client, said("one"))
    context = first[0].task.context_id
    assert text_of(await events(client, said("two", context_id=context))) == "one | two"
    agent.forget_everything()
    with pytest.raises(TaskNotFoundError):
        await client.get_task(GetTaskRequest(id=first[0].task.id))


async def test_a_task_waits_and_goes_on_with_the_next_message(connect: Connect) -> None:
    question = {"messageId": "q", "role": "ROLE_AGENT", "parts": [{"text": "Which?"}]}
    asks = Item({"statusUpdate": {"status": {"state": "TASK_STATE_INPUT_REQUIRED", "message": question}}})
    client, _ = await connect(lambda conversation: [asks] if conversation.text == "Go" else [Say("There.")])
    asked = await events(client, said("Go"))
    assert asked[-1].status_update.status.message.parts[0].text == "Which?"
    task = asked[0].task
    done = await events(client, said("Oslo", context_id=task.context_id, task_id=task.id))
    assert (done[0].task.id, text_of(done)) == (task.id, "There.")


async def test_a_question_for_approval_has_the_form_of_a_gateway(connect: Connect) -> None:
    client, _ = await connect(lambda _: [Ask("pay", {"eur": 3}, "q1")])
    status = (await events(client, said("Go")))[-1].status_update.status
    assert status.state == TaskState.TASK_STATE_INPUT_REQUIRED
    [facts] = status.message.metadata.values()
    assert facts["approval"]["tools"][0]["name"] == "pay"


async def test_a_task_goes_on_without_a_listener_and_is_cancelled(connect: Connect) -> None:
    client, _ = await connect(lambda _: [Say("one"), Pause(asyncio.Event())])
    task = await begun(client)
    assert (await client.get_task(GetTaskRequest(id=task))).status.state == TaskState.TASK_STATE_WORKING
    cancelled = await client.cancel_task(CancelTaskRequest(id=task))
    assert cancelled.status.state == TaskState.TASK_STATE_CANCELED
    with pytest.raises(TaskNotCancelableError):
        await client.cancel_task(CancelTaskRequest(id=task))


async def test_a_task_is_listened_to_again_until_it_has_ended(connect: Connect) -> None:
    goes_on = asyncio.Event()
    client, agent = await connect(lambda _: [Say("one "), Pause(goes_on), Say("two")])
    task = await begun(client)

    async def listening() -> None:
        await until(lambda: agent.called[-1] == "SubscribeToTask")
        goes_on.set()

    async def heard() -> list[StreamResponse]:
        return [event async for event in client.subscribe(SubscribeToTaskRequest(id=task))]

    found, _ = await asyncio.gather(heard(), listening())
    assert found[-1].status_update.status.state == TaskState.TASK_STATE_COMPLETED
    assert text_of(found).endswith("two") or found[0].task.artifacts[0].parts[-1].text == "two"
    if agent.version == "1.0":
        with pytest.raises(UnsupportedOperationError):
            await anext(client.subscribe(SubscribeToTaskRequest(id=task)))


async def test_a_task_that_fails_says_why(connect: Connect) -> None:
    client, _ = await connect(lambda _: [Fail(message="out of ink")])
    status = (await events(client, said("Hi")))[-1].status_update.status
    assert (status.state, status.message.parts[0].text) == (TaskState.TASK_STATE_FAILED, "out of ink")


async def test_the_tasks_of_a_context_are_listed_the_latest_first(connect: Connect) -> None:
    client, agent = await connect(lambda _: [Say("Hello")])
    if agent.version != "1.0":
        pytest.skip("A2A 0.3 has no such list")
    first = (await events(client, said("one")))[0].task
    second = (await events(client, said("two", context_id=first.context_id)))[0].task
    listed = await client.list_tasks(ListTasksRequest(context_id=first.context_id))
    assert [task.id for task in listed.tasks] == [second.id, first.id]
    assert listed.tasks[0].history[0].message_id == "two"


async def test_without_streams_a_whole_task_comes(connect: Connect) -> None:
    client, _ = await connect(lambda _: [Say("Hello")], streaming=False)
    [whole] = await events(client, said("Hi"))
    assert whole.task.artifacts[0].parts[0].text == "Hello"
