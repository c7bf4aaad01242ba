"""The draft of A2A 1.1 over both bindings: what a setting adds, and that nothing else changes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest

from gateway.a2a.draft_1_1 import ConditionalConfiguration, ConditionalMessageRequest, LongPollRequest, numbered
from gateway.a2a.errors import TaskGenerationMismatch
from gateway.a2a.model import GetTaskRequest, Message, Part, Role, SendMessageConfiguration, SendMessageRequest
from tests.a2a_client import a2a_http, user_message
from tests.interaction.harness import MESSAGE, SEND, Binding, Gateway, Refusal
from tests.interaction.scripted import TASK, TASK_JSON, ScriptedStream
from tests.interaction.test_keys import ASKED, ask, issue, revoke
from tests.interaction.test_streams import events
from tests.running import Local, local_gateway
from tests.support.core import BOUND

SENT = Message(message_id="message-1", role=Role.USER, parts=(Part(text="Hello"),))
UPDATE = b'{"statusUpdate":{"taskId":"task-1","contextId":"context-1","status":{"state":"TASK_STATE_WORKING"}}}'
MISMATCH = Refusal(
    -32010,
    409,
    "ABORTED",
    "TASK_GENERATION_MISMATCH",
    "Task generation mismatch: expected 3 but current generation is 5",
    metadata={"taskId": "task-1", "expectedGeneration": "3", "currentGeneration": "5"},
)


@pytest.fixture
def spoken(binding: Binding) -> Gateway:
    return Gateway(binding, draft_1_1=True)


# --- with the setting


async def test_a_message_reaches_the_core_with_the_generation_that_it_is_for(spoken: Gateway) -> None:
    params = {"message": MESSAGE, "configuration": {"ifGenerationMatch": "3"}}

    answer = await spoken.ask("SendMessage", params, a2a_version="1.1")

    assert answer.status == 200
    configuration = ConditionalConfiguration(if_generation_match=3)
    assert spoken.operations.requests == [
        ("send_message", ConditionalMessageRequest(message=SENT, configuration=configuration))
    ]


async def test_a_reader_is_held_and_reaches_the_core_with_what_it_knows(spoken: Gateway) -> None:
    spoken.operations.answers["get_task"] = numbered(TASK, 4)

    answer = await spoken.ask("GetTask", {"id": "task-1", "currentGeneration": 3}, a2a_version="1.1")

    assert (answer.status, answer.json) == (200, spoken.binding.result({**TASK_JSON, "generation": "5"}))
    assert spoken.operations.requests == [("get_task", LongPollRequest(id="task-1", current_generation=3))]


async def test_a_mismatch_has_its_own_row(spoken: Gateway) -> None:
    spoken.operations.answers["send_message"] = TaskGenerationMismatch(MISMATCH.message, metadata=MISMATCH.metadata)

    answer = await spoken.ask("SendMessage", SEND, a2a_version="1.1")

    assert (answer.status, answer.json) == spoken.binding.refusal(MISMATCH)


@pytest.mark.parametrize("operation", ["SendStreamingMessage", "SubscribeToTask"])
async def test_events_go_out_with_their_generations(spoken: Gateway, operation: str) -> None:
    stream = ScriptedStream([(4, UPDATE), (5, UPDATE)])
    spoken.operations.answers |= {"send_streaming_message": stream, "subscribe_to_task": stream}

    answer = await spoken.ask(operation, SEND if "Send" in operation else {"id": "task-1"}, a2a_version="1.1")

    update = msgspec.json.decode(UPDATE)["statusUpdate"]
    assert events(answer.body) == [
        {"id": str(number), "data": spoken.binding.event({"statusUpdate": {**update, "generation": str(number + 1)}})}
        for number in (4, 5)
    ]


# --- other versions


REQUESTS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("SendMessage", {"message": MESSAGE, "configuration": {"ifGenerationMatch": "x", "historyLength": 1}}),
    ("SendStreamingMessage", {"message": MESSAGE, "configuration": {"ifGenerationMatch": 3}}),
    ("GetTask", {"id": "task-1", "currentGeneration": "x"}),
    ("ListTasks", {}),
    ("CancelTask", {"id": "task-1"}),
    ("SubscribeToTask", {"id": "task-1"}),
)


@pytest.mark.parametrize(("operation", "params"), REQUESTS, ids=[name for name, _ in REQUESTS])
async def test_a_caller_of_1_0_sees_no_difference(binding: Binding, operation: str, params: dict[str, Any]) -> None:
    answers, requests = [], []
    for draft in (False, True):
        gateway = Gateway(binding, draft_1_1=draft)
        stream = ScriptedStream([(1, UPDATE)])
        gateway.operations.answers |= {"send_streaming_message": stream, "subscribe_to_task": stream}
        answers.append(await gateway.ask(operation, params))
        requests.append(gateway.operations.requests)

    assert answers[0] == answers[1]
    assert answers[0].status == 200
    assert b"generation" not in answers[0].body
    assert requests[0] == requests[1]
    assert [type(request) for _, request in requests[0]] == [type(request) for _, request in requests[1]]
    for _, request in requests[1]:
        match request:
            case SendMessageRequest():
                assert type(request.configuration) is SendMessageConfiguration
            case GetTaskRequest():
                assert type(request) is GetTaskRequest


# --- a whole gateway


AGENTS = 'echo: {type: python, ref: "./asking.py:reply"}'
ASKING = """
from gateway.agent import InputRequired
async def reply(text):
    if text == "ask":
        raise InputRequired("Which city?")
    yield "done"
"""


class Running:
    """A gateway that speaks the draft, and its callers."""

    def __init__(self, gateway: Local, binding: Binding, stack: AsyncExitStack) -> None:
        self.gateway = gateway
        self.binding = binding
        self._stack = stack

    async def caller(self, principal: str, name: str | None = None) -> httpx2.AsyncClient:
        http = await self._stack.enter_async_context(a2a_http(self.gateway.url))
        http.headers |= {"A2A-Version": "1.1", "X-API-Key": await issue(self.gateway, principal, name=name)}
        return http

    async def ask(self, http: httpx2.AsyncClient, operation: str, **params: Any) -> tuple[int, Any]:
        """Status and answer; the result where there is one."""
        answer = await ask(http, self.binding, operation, params)
        body = answer.json()
        return answer.status_code, body.get("result", body)

    async def may_stream(self, http: httpx2.AsyncClient) -> bool:
        return (await ask(http, self.binding, "SubscribeToTask", {"id": "unknown"})).status_code != 429

    async def waits(self, http: httpx2.AsyncClient, task: dict[str, Any]) -> tuple[int, Any]:
        """The answer to a read that waits for another generation. It is made again while `may_stream` has its place."""
        while True:
            answer = await self.ask(http, "GetTask", id=task["id"], currentGeneration=task["generation"])
            if answer[0] != 429:
                return answer

    async def asking(self, http: httpx2.AsyncClient) -> dict[str, Any]:
        """A task that waits for its caller."""
        _, sent = await self.ask(http, "SendMessage", message=user_message("ask"))
        task: dict[str, Any] = sent["task"]
        assert task["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
        return task


@pytest.fixture
async def running(tmp_path: Path, binding: Binding) -> AsyncIterator[Running]:
    (tmp_path / "asking.py").write_text(ASKING)
    settings = f"{ASKED}\nprotocol: {{draft_1_1: true}}\nlimits: {{streams_per_principal: 1}}"
    async with AsyncExitStack() as stack:
        gateway = await stack.enter_async_context(local_gateway(AGENTS, tmp_path, settings=settings))
        yield Running(gateway, binding, stack)


async def test_a_client_follows_a_task_by_its_generations(running: Running) -> None:
    ada = await running.caller("ada")
    task = await running.asking(ada)
    id_, seen = task["id"], task["generation"]
    assert await running.ask(ada, "GetTask", id=id_, currentGeneration=int(seen) - 1) == (200, task)
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(running.ask(ada, "GetTask", id=id_, currentGeneration=seen))
        configuration = {"ifGenerationMatch": seen}
        message = user_message("Paris", taskId=id_)
        _, done = await running.ask(ada, "SendMessage", message=message, configuration=configuration)
    assert done["task"]["status"]["state"] == "TASK_STATE_COMPLETED"
    assert int(waiting.result()[1]["generation"]) > int(seen)
    status, refusal = await running.ask(ada, "SendMessage", message=message, configuration=configuration)
    mismatch = Refusal(
        -32010,
        409,
        "ABORTED",
        "TASK_GENERATION_MISMATCH",
        f"Task generation mismatch: expected {seen} but current generation is {done['task']['generation']}",
        metadata={"taskId": id_, "expectedGeneration": seen, "currentGeneration": done["task"]["generation"]},
    )
    assert (status, refusal) == running.binding.refusal(mismatch)


async def test_a_client_that_leaves_gives_its_place_back(running: Running) -> None:
    ada = await running.caller("ada")
    task = await running.asking(ada)

    async with asyncio.timeout(BOUND), asyncio.TaskGroup() as group:
        waiting = group.create_task(running.waits(ada, task))
        other = await running.caller("ada", "ada-2")
        while await running.may_stream(other):
            pass
        waiting.cancel()
        while not await running.may_stream(other):
            pass


async def test_a_key_that_is_revoked_during_the_wait_gets_no_answer(running: Running) -> None:
    ada, again = await running.caller("ada"), await running.caller("ada", "ada-2")
    task = await running.asking(ada)
    async with asyncio.timeout(BOUND), asyncio.TaskGroup() as group:
        waiting = group.create_task(running.waits(ada, task))
        while await running.may_stream(again):
            pass
        await revoke(running.gateway, "ada")
        while (await running.ask(ada, "ListTasks"))[0] != 401:
            pass
        await running.ask(again, "SendMessage", message=user_message("Paris", taskId=task["id"]))
    assert waiting.result()[0] == 401


async def test_the_card_names_the_draft_behind_the_final_version(running: Running) -> None:
    ada = await running.caller("ada")
    card = (await ada.get("/a2a/echo/.well-known/agent-card.json")).json()
    assert [each["protocolVersion"] for each in card["supportedInterfaces"]] == ["1.0", "1.0", "1.1", "1.1"]
    assert card["url"] == f"{running.gateway.url}/a2a/echo"
