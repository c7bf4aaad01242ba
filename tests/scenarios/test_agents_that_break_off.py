"""Conversations with another A2A agent whose answers break off, from the caller to the wire: nothing is said twice, and nothing
that the agent has said is lost."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from starlette.responses import JSONResponse, Response

from adapters.a2a.adapter import A2AAdapter, factory
from gateway.a2a.model import Task, TaskState
from gateway.testing.serving import serve
from tests.emulators import a2a_events
from tests.emulators.a2a_agent import A2AAgent
from tests.emulators.scripts import Conversation, Cut, Pause, Say, Step
from tests.support.core import START, Core, answer, running_core, soon, until

LATER = START + 60_000
TURNS = pytest.mark.parametrize("turn", [1, 2])
BINDINGS = pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])


class Talk:
    """A gateway in front of the agent, which repeats what is said to it until its script is changed."""

    def __init__(self, core: Core, agent: A2AAgent) -> None:
        self.core, self.agent = core, agent

    async def say(self, text: str, **where: Any) -> Task:
        return await self.core.send(text, context="x", **where)

    async def before(self, turn: int) -> None:
        """The turns before this one."""
        if turn == 2:
            assert answer(await self.say("zero")) == "You said zero."

    @property
    def told(self) -> list[str]:
        """The texts of all messages that the agent has taken."""
        return [part["text"] for sent in self.agent.sent for part in sent["message"]["parts"]]

    @property
    def contexts(self) -> int:
        return len(self.agent.contexts)


def repeats(conversation: Conversation) -> list[Step]:
    return [Say(f"You said {conversation.text}.", chunks=3)]


@asynccontextmanager
async def adapter_of(url: str, **settings: object) -> AsyncGenerator[A2AAdapter]:
    adapter = factory.build(factory.settings.model_validate({"url": url, "poll": "100ms", **settings}))
    assert isinstance(adapter, A2AAdapter)
    try:
        yield adapter
    finally:
        await adapter.aclose()


@asynccontextmanager
async def talking(core: Core, agent: A2AAgent, **settings: object) -> AsyncGenerator[Talk]:
    async with serve(agent.app) as url, adapter_of(url, **settings) as adapter:
        core.agent(adapter)
        yield Talk(core, agent)
        await soon(core.runner.idle())


# --- before the agent has named a task


@TURNS
@BINDINGS
async def test_a_message_whose_answer_is_cut_before_its_first_byte_is_found_and_listened_to(
    core: Core, turn: int, binding: str
) -> None:
    async with talking(core, A2AAgent(repeats), transport=binding) as talk:
        await talk.before(turn)
        talk.agent.unheard = 1
        assert answer(await talk.say("one")) == "You said one."
        assert answer(await talk.say("two")) == "You said two."
        assert (talk.told[-2:], talk.contexts) == (["one", "two"], 1)


@TURNS
async def test_a_message_that_is_not_found_in_time_is_looked_for_before_the_next_one(core: Core, turn: int) -> None:
    async with talking(core, A2AAgent(repeats)) as talk:
        await talk.before(turn)
        talk.agent.unheard = 1
        talk.agent.faults["ListTasks"] += [Response("{}", 500)] * 3
        assert (await talk.say("one")).status.state is TaskState.FAILED
        assert answer(await talk.say("two")) == "You said two."
        assert (talk.told[-2:], talk.contexts) == (["one", "two"], 1)


async def test_a_message_that_never_arrived_goes_with_the_next_one(core: Core) -> None:
    async with talking(core, A2AAgent(repeats)) as talk:
        nothing = JSONResponse({"jsonrpc": "2.0", "id": "1", "result": {"tasks": []}})
        talk.agent.faults["SendStreamingMessage"].append(Response(media_type="text/event-stream"))
        talk.agent.faults["ListTasks"] += [nothing, None, None]
        assert (await talk.say("one")).status.state is TaskState.FAILED
        await talk.say("two")
        assert talk.told == ["one", "two"]
        assert len(talk.agent.sent) == 1


@TURNS
@BINDINGS
async def test_a_message_of_a_dead_process_is_found_and_its_answer_is_told(
    tmp_path: Path, turn: int, binding: str
) -> None:
    path, agent, goes_on = tmp_path / "gateway.db", A2AAgent(repeats), asyncio.Event()
    async with serve(agent.app) as url:
        async with running_core(path, prefix="one") as one, adapter_of(url, transport=binding) as adapter:
            one.agent(adapter)
            talk = Talk(one, agent)
            await talk.before(turn)
            agent.script = lambda said: [Pause(goes_on), *repeats(said)]
            agent.silent = True
            task = await talk.say("one", at_once=True)
            await until(lambda: "one" in talk.told)
            await one.die()
        agent.silent = False
        goes_on.set()
        async with (
            adapter_of(url, transport=binding) as adapter,
            running_core(path, prefix="two", now=LATER, adapter=adapter) as two,
        ):
            await soon(two.runner.idle())
            assert answer(await two.get(task.id)) == "You said one."
            assert answer(await Talk(two, agent).say("two")) == "You said two."
    assert talk.told[-2:] == ["one", "two"]
    assert talk.contexts == 1


# --- in one piece, or without its beginning


@pytest.mark.parametrize("version", ["1.0", "0.3"])
async def test_an_answer_that_is_no_stream_is_told_and_its_message_is_said_once(core: Core, version: str) -> None:
    async with talking(core, A2AAgent(repeats, version=version)) as talk:
        talk.agent.documents = True
        assert answer(await talk.say("one")) == "You said one."
        assert answer(await talk.say("two")) == "You said two."
        assert (talk.told, talk.contexts) == (["one", "two"], 1)


async def test_a_cut_answer_is_whole_where_its_subscription_begins_in_the_middle(core: Core) -> None:
    agent = A2AAgent(lambda _: [Say("one "), Cut(), Say("two "), Say("three")])
    async with talking(core, agent) as talk:
        agent.faults["SubscribeToTask"].append(_ends_with("three"))
        assert answer(await talk.say("count")) == "one two three"
        assert talk.told == ["count"]


def _ends_with(words: str) -> Response:
    """A subscription to the first task that begins with its last words."""
    owner = {"taskId": "task-1", "contextId": "context-1"}
    events = (a2a_events.artifact("answer", [{"text": words}], append=True), a2a_events.status("TASK_STATE_COMPLETED"))
    results = [{name: {**owner, **member} for name, member in event.items()} for event in events]
    lines = [json.dumps({"jsonrpc": "2.0", "id": "1", "result": result}) for result in results]
    return Response("".join(f"data: {line}\n\n" for line in lines), media_type="text/event-stream")
