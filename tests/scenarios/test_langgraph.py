"""Conversations with a graph behind a LangGraph Agent Server: threads, runs, interrupts, from the caller to the wire."""

import asyncio
from collections.abc import AsyncGenerator, Iterable
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

import pytest

from adapters.langgraph.adapter import factory
from gateway.a2a.model import Message, Part, Role, SendMessageRequest, Task, TaskState
from gateway.a2a.tool_calls import URI
from gateway.core.agents import Agent, AgentPolicies
from gateway.testing.serving import serve
from tests.emulators.langgraph_server import LangGraphServer, Late
from tests.emulators.scripts import (
    Ask,
    Conversation,
    Cut,
    ErrorEvent,
    Item,
    NoTerminal,
    Pause,
    Say,
    ServerTool,
    Status,
    Step,
)
from tests.openapi import langgraph_judge
from tests.support.core import CARD, Core, answer, query, soon, until
from tests.support.withdrawing import withdrawals

TURNS = pytest.mark.parametrize("turn", [1, 2])


class Talk:
    """A gateway in front of the server. `script` may be changed; the answer to a message repeats it by default."""

    def __init__(self, core: Core, server: LangGraphServer) -> None:
        self.core, self.server = core, server

    async def say(self, text: str, **where: Any) -> Task:
        return await self.core.send(text, context="x", **where)

    def limit(self, **policies: Any) -> None:
        agent = self.core.default
        assert agent is not None
        self.core.agents.clear()
        self.core.default = replace(agent, policies=AgentPolicies(**policies))
        self.core.agents.append(self.core.default)

    async def before(self, turn: int) -> None:
        """The turns before this one."""
        if turn == 2:
            assert answer(await self.say("one")) == "You said one."

    def plays(self, *steps: Step) -> None:
        self.server.script = lambda _: steps

    def repeats(self) -> None:
        self.server.script = _repeats

    async def decide(self, task: Task, *decisions: bool, words: str = "") -> Task:
        calls = [
            row[0] for row in query(self.core.path, "SELECT id FROM tool_call WHERE server = 'mcp:graph' ORDER BY id")
        ]
        data = {
            "approvals": [{"id": c, "approved": d} for c, d in zip(calls[-len(decisions) :], decisions, strict=True)]
        }
        parts = (Part(data=data), *((Part(text=words),) if words else ()))
        message = Message(message_id="m", context_id=task.context_id, task_id=task.id, role=Role.USER, parts=parts)
        reply = await self.core.operations.send_message(self.core.call(), SendMessageRequest(message=message))
        assert reply.task is not None
        return reply.task

    @property
    def bodies(self) -> list[dict[str, Any]]:
        return [body for body in self.server.requests if "assistant_id" in body]

    @property
    def named(self) -> list[str | None]:
        """The name of each call."""
        return [run for (run,) in query(self.core.path, "SELECT run FROM service_call ORDER BY prepared_at, id")]

    @property
    def sent(self) -> list[Any]:
        """What each run brought: the texts of its messages, or the answers to interrupts."""
        return [
            list(body["command"]["resume"].values())
            if "command" in body
            else [message["content"] for message in body["input"]["messages"]]
            for body in self.bodies
        ]

    @property
    def thread(self) -> list[tuple[str, Any]]:
        """The messages of the only thread."""
        [thread] = self.server.threads.values()
        return [(message["type"], message["content"]) for message in thread.messages]


def _repeats(conversation: Conversation) -> Iterable[Step]:
    yield Say(f"You said {conversation.text}.", chunks=3)


def calls_shown(task: Task) -> list[tuple[str, str]]:
    """The phases of tool calls, as callers see them."""
    shown = []
    for artifact in task.artifacts or ():
        for part in artifact.parts:
            told = (part.metadata or {}).get(URI)
            if isinstance(told, dict):
                shown.append((str(told.get("name")), str(told.get("phase"))))
    return shown


@pytest.fixture
async def talk(core: Core) -> AsyncGenerator[Talk]:
    server = LangGraphServer(_repeats, validator=langgraph_judge())
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(serve(server.app))
        adapter = factory.build(factory.settings.model_validate({"url": url}))
        stack.push_async_callback(adapter.aclose)
        core.default = Agent(name="graph", card=CARD, adapter=adapter)
        core.agents.append(core.default)
        yield Talk(core, server)
        await soon(core.runner.idle())
    assert server.violations == []


# --- turns


async def test_each_turn_is_a_run_of_the_same_thread_with_the_new_message_alone(talk: Talk) -> None:
    first, second = await talk.say("one"), await talk.say("two")
    assert [answer(task) for task in (first, second)] == ["You said one.", "You said two."]
    assert talk.sent == [["one"], ["two"]]
    [thread] = talk.server.threads
    assert query(talk.core.path, "SELECT handle FROM thread") == [(thread,)]
    assert talk.named == [run.id for run in talk.server.runs]


async def test_two_contexts_have_two_threads(talk: Talk) -> None:
    await talk.say("one")
    await talk.core.send("two", context="y")
    assert [len(thread.messages) for thread in talk.server.threads.values()] == [2, 2]


async def test_messages_that_come_at_once_are_runs_one_after_the_other(talk: Talk) -> None:
    await talk.say("one")
    tasks = await asyncio.gather(talk.say("two", message_id="m2"), talk.say("three", message_id="m3"))
    assert [task.status.state for task in tasks] == [TaskState.COMPLETED] * 2
    assert [kind for kind, _ in talk.thread] == ["human", "ai"] * 3


async def test_the_same_message_in_another_task_is_another_message(talk: Talk) -> None:
    await talk.say("one")
    await talk.say("one")
    assert [kind for kind, _ in talk.thread] == ["human", "ai"] * 2


async def test_a_thread_that_is_gone_fails_the_turn(talk: Talk) -> None:
    await talk.say("one")
    talk.server.threads.clear()
    task = await talk.say("two")
    assert (task.status.state, talk.server.threads) == (TaskState.FAILED, {})


async def test_a_lost_thread_is_told_again_where_that_is_wanted(talk: Talk) -> None:
    talk.limit(on_lost_handle="rebuild")
    await talk.say("one")
    talk.plays(ServerTool("mcp", "weather", {"city": "Oslo"}, "3C"), Say("3C."))
    await talk.say("two")
    talk.server.threads.clear()
    talk.repeats()
    assert answer(await talk.say("three")) == "You said three."
    assert [kind for kind, _ in talk.thread] == ["human", "ai", "human", "ai", "tool", "ai", "human", "ai"]


async def test_a_rate_limit_before_the_run_is_waited_for(talk: Talk) -> None:
    await talk.say("one")
    refusals = iter([Status(429, {"detail": "slow down"}, {"Retry-After": "1"})])
    talk.server.script = lambda conversation: [next(refusals, Say(f"You said {conversation.text}."))]
    assert answer(await talk.say("two")) == "You said two."
    assert len(talk.core.waits) == 1


async def test_a_thread_that_somebody_else_uses_is_waited_for(talk: Talk) -> None:
    await talk.say("one")
    [thread] = talk.server.threads.values()
    thread.status = "busy"
    held = talk.core.waits.held
    assert held is None

    async def release() -> None:
        while not talk.core.waits:  # noqa: ASYNC110  # the waits of the core pass at once
            await asyncio.sleep(0)
        thread.status = "idle"

    async with asyncio.TaskGroup() as group:
        group.create_task(release())
        task = await talk.say("two")
    assert answer(task) == "You said two."


async def test_a_run_that_fails_fails_the_turn_and_its_message_stays_in_the_thread_once(talk: Talk) -> None:
    await talk.say("one")
    talk.plays(Say("I "), ErrorEvent("ValueError", "boom"))
    failed = await talk.say("two")
    assert failed.status.state is TaskState.FAILED
    assert "boom" not in repr(failed)
    talk.repeats()
    assert answer(await talk.say("three")) == "You said three."
    assert talk.thread == [
        ("human", "one"),
        ("ai", "You said one."),
        ("human", "two"),
        ("human", "three"),
        ("ai", "You said three."),
    ]


# --- cut, joined, cancelled


@TURNS
async def test_a_cut_stream_is_joined_and_every_word_is_said_once(talk: Talk, turn: int) -> None:
    await talk.before(turn)
    talk.plays(Say("Hel"), Cut(), Say("lo"))
    task = await talk.say("two")
    assert (task.status.state, answer(task)) == (TaskState.COMPLETED, "Hello")
    assert len(talk.bodies) == turn


@TURNS
async def test_a_stream_that_ends_before_its_run_is_no_end(talk: Talk, turn: int) -> None:
    await talk.before(turn)
    talk.plays(Say("Hel"), NoTerminal())
    talk.limit(turn_timeout=1)
    task = await talk.say("two")
    assert (task.status.state, talk.server.runs[-1].status) == (TaskState.FAILED, "interrupted")


@TURNS
async def test_a_cancelled_task_ends_its_run(talk: Talk, turn: int) -> None:
    await talk.before(turn)
    talk.plays(Say("Hel"), Pause(asyncio.Event()))
    task = await talk.say("two", at_once=True)
    await until(lambda: talk.named[-1] is not None)
    cancelled = await talk.core.cancel(task.id)
    await soon(talk.core.runner.idle())
    assert (cancelled.status.state, talk.server.runs[-1].status) == (TaskState.CANCELED, "interrupted")
    talk.repeats()
    assert answer(await talk.say("three")) == "You said three."
    assert [kind for kind, _ in talk.thread][-4:] == ["human", "human", "human", "ai"]
    before, part, after = [text for kind, text in talk.thread if kind == "human"][-3:]
    assert (before, part.rpartition("\n")[2], after) == ("two", "Hel", "three")


@TURNS
@pytest.mark.parametrize("status", [500, 503, 429, 0])
@pytest.mark.parametrize("look_up", ["/runs/{run}/stream", "/runs/{run}"])
async def test_a_server_that_fails_once_to_look_a_run_up_does_not_fail_the_turn(
    talk: Talk, turn: int, look_up: str, status: int
) -> None:
    await talk.before(turn)
    talk.plays(Say("Hel"), Cut(), Say("lo"))
    talk.server.faults[f"GET /threads/{{thread}}{look_up}"] = status
    task = await talk.say("two")
    assert (task.status.state, answer(task)) == (TaskState.COMPLETED, "Hello")
    assert talk.server.faults == {}


@TURNS
async def test_a_run_that_is_cancelled_before_its_name_is_known_does_not_lock_the_context(
    talk: Talk, turn: int
) -> None:
    await talk.before(turn)
    talk.plays(Pause(asyncio.Event()))
    talk.server.named.clear()
    task = await talk.say("two", at_once=True)
    await until(lambda: len(talk.server.runs) == turn)
    await talk.core.cancel(task.id)
    await soon(talk.core.runner.idle())
    assert talk.server.runs[-1].status == "running"
    talk.server.named.set()
    talk.repeats()
    assert answer(await talk.say("three")) == "You said three."
    assert talk.server.runs[turn - 1].status == "interrupted"


# --- tools


async def test_the_tools_of_the_graph_are_told_as_they_run(talk: Talk) -> None:
    talk.plays(
        Say("I look. "),
        ServerTool("mcp", "weather", {"city": "Oslo"}, "3C"),
        ServerTool("mcp", "height", {}, error="no"),
        Say("3C."),
    )
    task = await talk.say("weather?")
    assert answer(task) == "I look. 3C."
    rows = query(talk.core.path, "SELECT name, arguments, status, outcome FROM tool_call ORDER BY sequence")
    assert rows == [
        ("weather", '{"city": "Oslo"}', "completed", '"3C"'),
        ("height", "{}", "failed", '"no"'),
    ]


# --- approvals


async def test_a_yes_lets_the_graph_run_its_tool(talk: Talk) -> None:
    talk.plays(Say("I pay."), Ask("pay", {"to": "a"}))
    asked = await talk.say("pay")
    assert asked.status.state is TaskState.INPUT_REQUIRED
    talk.plays(Say("Paid."))
    task = await talk.decide(asked, True)
    assert (task.status.state, answer(task)) == (TaskState.COMPLETED, "I pay.\n\nPaid.")
    assert talk.sent[-1] == [{"decisions": [{"type": "approve"}]}]
    rows = query(talk.core.path, "SELECT name, server, status FROM tool_call ORDER BY service_call, sequence")
    assert ("pay", None, "completed") in rows


async def test_a_no_is_told_to_the_graph_with_its_reason(talk: Talk) -> None:
    talk.plays(Ask("pay", {"to": "a"}))
    asked = await talk.say("pay")
    talk.plays(Say("Then not."))
    task = await talk.decide(asked, False)
    assert (task.status.state, answer(task)) == (TaskState.COMPLETED, "Then not.")
    assert talk.sent[-1] == [{"decisions": [{"type": "reject", "message": "The user rejected this call."}]}]


async def test_all_calls_of_an_answer_are_decided_in_one_run(talk: Talk) -> None:
    talk.plays(Ask("pay", {"to": "a"}), Ask("pay", {"to": "b"}))
    asked = await talk.say("pay")
    talk.plays(Say("Done."))
    await talk.decide(asked, True, False)
    [resumed] = talk.sent[-1]
    assert [decision["type"] for decision in resumed["decisions"]] == ["approve", "reject"]
    assert [(kind, text) for kind, text in talk.thread if kind == "tool"] == [
        ("tool", "pay is done"),
        ("tool", "User rejected the tool call for `pay` with reason: The user rejected this call."),
    ]


async def test_words_beside_a_decision_follow_in_a_run_of_their_own(talk: Talk) -> None:
    talk.plays(Ask("pay", {"to": "a"}))
    asked = await talk.say("pay")
    talk.server.script = lambda conversation: [Say("Paid. " if "command" in conversation.request else "Gladly.")]
    task = await talk.decide(asked, True, words="and thanks")
    assert answer(task) == "Paid. Gladly."
    assert talk.sent[1:] == [[{"decisions": [{"type": "approve"}]}], ["and thanks"]]
    assert [kind for kind, _ in talk.thread] == ["human", "ai", "tool", "ai", "human", "ai"]


async def test_a_message_instead_of_a_decision_closes_the_calls_of_the_thread(talk: Talk) -> None:
    talk.plays(Ask("pay", {"to": "a"}))
    asked = await talk.say("pay")
    talk.repeats()
    task = await talk.say("never mind", task=asked.id)
    assert answer(task) == "You said never mind."
    assert [kind for kind, _ in talk.thread] == ["human", "ai", "tool", "human", "ai"]


async def test_a_cancelled_question_closes_the_calls_of_the_thread_with_the_next_message(talk: Talk) -> None:
    talk.plays(Ask("pay", {"to": "a"}))
    asked = await talk.say("pay")
    await talk.core.cancel(asked.id)
    talk.repeats()
    assert answer(await talk.say("hello")) == "You said hello."
    assert [kind for kind, _ in talk.thread] == ["human", "ai", "tool", "human", "ai"]


async def test_words_beside_a_no_are_its_reason_where_no_call_of_the_model_waits(talk: Talk) -> None:
    request = {"action_request": {"action": "send", "args": {"to": "bob"}}, "description": "Send it?"}
    allowed = {"allow_accept": True, "allow_ignore": True, "allow_respond": True, "allow_edit": False}
    talk.plays(Item({"interrupt": [request | {"config": allowed}]}))
    asked = await talk.say("mail")
    talk.repeats()
    await talk.decide(asked, False, words="make it shorter")
    assert talk.sent == [["mail"], [[{"type": "response", "args": "make it shorter"}]]]


# --- questions


async def test_a_question_of_the_graph_waits_for_the_next_message_of_its_task(talk: Talk) -> None:
    talk.plays(Item({"interrupt": "Which city?"}))
    asked = await talk.say("book")
    assert asked.status.state is TaskState.INPUT_REQUIRED
    assert asked.status.message is not None
    assert [part.text for part in asked.status.message.parts] == ["Which city?"]
    talk.plays(Say("Oslo it is."))
    task = await talk.say("Oslo", task=asked.id)
    assert (task.id, answer(task)) == (asked.id, "Oslo it is.")
    assert talk.sent == [["book"], ["Oslo"]]
    assert "command" in talk.bodies[-1]


async def test_a_message_in_another_task_does_not_answer_the_question(talk: Talk) -> None:
    talk.plays(Item({"interrupt": "Which city?"}))
    asked = await talk.say("book")
    await talk.core.cancel(asked.id)
    talk.repeats()
    assert answer(await talk.say("hello")) == "You said hello."
    assert "input" in talk.bodies[-1]


@pytest.mark.parametrize(
    "asks", [Item({"interrupt": "Which city?"}), Ask("pay", {"to": "a"})], ids=["words", "approval"]
)
async def test_a_question_that_is_cancelled_leaves_no_interrupt_in_the_thread(talk: Talk, asks: Step) -> None:
    talk.plays(asks)
    asked = await talk.say("book")
    [thread] = talk.server.threads.values()
    assert (thread.status, len(thread.interrupts)) == ("interrupted", 1)
    await talk.core.cancel(asked.id)
    assert await soon(withdrawals(talk.core).run_due()) is None
    assert (thread.status, thread.interrupts) == ("idle", [])
    talk.repeats()
    assert answer(await talk.say("hello")) == "You said hello."


async def test_a_question_is_not_dropped_by_the_late_withdrawal_of_the_one_before(talk: Talk) -> None:
    talk.plays(Item({"interrupt": "Which city?"}))
    await talk.core.cancel((await talk.say("book")).id)
    late = talk.server.late["POST /threads/{thread}/state"] = Late()
    async with asyncio.TaskGroup() as group:
        group.create_task(withdrawals(talk.core).run_due())
        await soon(late.sent.wait())
        asking = group.create_task(talk.say("book again"))
        await until(lambda: asking.done() or talk.core.waits)
        late.lands.set()
    [thread] = talk.server.threads.values()
    assert (thread.status, len(thread.interrupts)) == ("interrupted", 1)
    talk.repeats()
    task = await talk.say("Oslo", task=asking.result().id)
    assert (task.status.state, answer(task), talk.sent[-1]) == (TaskState.COMPLETED, "You said book again.", ["Oslo"])


async def test_questions_that_come_at_once_are_asked_one_after_the_other(talk: Talk) -> None:
    talk.plays(Item({"interrupt": "One?"}), Item({"interrupt": {"question": "Two?", "choices": [1, 2]}}))
    asked = await talk.say("go")
    talk.plays(Item({"interrupt": {"question": "Two?", "choices": [1, 2]}}))
    again = await talk.say("A", task=asked.id)
    assert again.status.message is not None
    assert [part.text for part in again.status.message.parts] == ["Two?", None]
    assert again.status.message.parts[1].data == {"question": "Two?", "choices": [1, 2]}


async def test_a_deleted_context_takes_its_thread_along(talk: Talk) -> None:
    await talk.say("one")
    agent = talk.core.default
    assert agent is not None
    [handle] = talk.server.threads
    await agent.adapter.forget(handle)  # type: ignore[attr-defined]
    assert talk.server.threads == {}
