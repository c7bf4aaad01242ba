"""Calls whose end did not come: looked up by the name of their run, or found in their thread without it."""

import asyncio
from contextlib import aclosing
from typing import Any

import pytest

from adapters.assistants.adapter import ThreadsAdapter
from adapters.assistants.lookup import BROUGHT, brought, digests
from gateway.ports.adapter import (
    AdapterError,
    AdapterEvent,
    ApprovalAsked,
    CallCompleted,
    CallStarted,
    ErrorClass,
    ToolCallReady,
    ToolResultReady,
)
from gateway.ports.capabilities import Fate, Fetched, Ongoing, Tail
from gateway.ports.conversation import Item, OutputItem, UserItem
from gateway.testing.adapter_scripts import collect, completed, message, of_type, only, request, text
from tests.adapters.assistants.support import KINDS, server
from tests.adapters.emulator_support import Build, Start, plays
from tests.emulators.assistants import AssistantsServer
from tests.emulators.scripts import Ask, Call, Cut, Fail, Incomplete, Pause, Say, ServerTool, in_rounds

OSLO = [Call("weather", {"city": "Oslo"}, "call_1")]


@pytest.fixture
def emulator() -> AssistantsServer:
    return server()


@pytest.fixture
async def adapter(emulator: AssistantsServer, start: Start, build: Build) -> ThreadsAdapter:
    built = build(KINDS["assistants"][0], await start(emulator))
    assert isinstance(built, ThreadsAdapter)
    return built


def said(words: str) -> UserItem:
    return UserItem(message(words))


def follows(after: CallCompleted, *items: Item) -> Any:
    return request("Hi", handle=after.handle, state=after.state, items=items)


async def cut(adapter: ThreadsAdapter, asked: Any) -> Ongoing:
    """A call that is cut: its names."""
    started: list[CallStarted] = []

    async def listen() -> None:
        async for event in adapter.call(asked):
            started.extend([event] if isinstance(event, CallStarted) else [])

    with pytest.raises(AdapterError) as caught:
        await listen()
    assert caught.value.kind is ErrorClass.INTERRUPTED
    return Ongoing(started[0].handle, started[-1].run)


async def resumed(adapter: ThreadsAdapter, names: Ongoing) -> list[AdapterEvent]:
    return [event async for event in adapter.resume(request("Hi"), names)]


# --- by the name of a run ---------------------------------------------------------------------------------------------


async def test_a_run_that_ended_without_a_listener_tells_what_its_stream_would_have(
    emulator: AssistantsServer, adapter: ThreadsAdapter
) -> None:
    tool = ServerTool("mcp", "lookup", {"q": 1}, "found")
    emulator.script = plays(Say("One. "), tool, Cut(), Say("Two."))
    names = await cut(adapter, request("Hi"))
    found = await adapter.fetch(names)
    assert found.fate is Fate.COMPLETED
    emulator.script = plays(Say("One. "), tool, Say("Two."))
    whole = await collect(adapter, request("Hi"))
    assert list(map(type, found.events)) == list(map(type, whole[1:]))
    assert text(found.events) == text(whole) == "One. Two."
    assert only(found.events, ToolResultReady).output == "found"
    assert found.events[0] == CallStarted(names.handle, names.run)
    ended = completed(found.events)
    assert (ended.state, ended.usage is not None) == ({"run": names.run}, True)
    assert await resumed(adapter, names) == list(found.events)


async def test_a_run_that_still_works_is_asked_about_later(emulator: AssistantsServer, adapter: ThreadsAdapter) -> None:
    rest = asyncio.Event()
    emulator.script = plays(Say("One"), Cut(), Pause(rest))
    names = await cut(adapter, request("Hi"))
    assert await adapter.fetch(names) == Fetched(Fate.RUNNING)
    with pytest.raises(AdapterError) as caught:
        await resumed(adapter, names)
    assert caught.value.kind is ErrorClass.INTERRUPTED
    rest.set()
    async with asyncio.timeout(30):
        while (found := await adapter.fetch(names)).fate is Fate.RUNNING:  # noqa: ASYNC110
            await asyncio.sleep(0)
    assert text(found.events) == "One"


@pytest.mark.parametrize(
    ("ends", "fate"),
    [(Fail(), Fate.FAILED), (Incomplete(), Fate.COMPLETED)],
    ids=["failed", "incomplete"],
)
async def test_the_fate_of_a_run_is_its_status(
    emulator: AssistantsServer, adapter: ThreadsAdapter, ends: Any, fate: Fate
) -> None:
    emulator.script = plays(Say("One"), Cut(), ends)
    assert (await adapter.fetch(await cut(adapter, request("Hi")))).fate is fate


async def test_a_run_that_failed_or_is_gone_cannot_be_resumed(
    emulator: AssistantsServer, adapter: ThreadsAdapter
) -> None:
    emulator.script = plays(Say("One"), Cut(), Fail())
    names = await cut(adapter, request("Hi"))
    details = []
    for forgotten in (False, True):
        if forgotten:
            emulator.threads.clear()
        with pytest.raises(AdapterError) as caught:
            await resumed(adapter, names)
        assert caught.value.kind is ErrorClass.BACKEND_FAILED
        details.append(caught.value.detail)
    assert details == ["the run has failed", "the run, or the submission to it, is gone"]
    assert await adapter.fetch(names) == Fetched(Fate.GONE)


@pytest.mark.parametrize("status", [409, 429, 500, 503])
@pytest.mark.parametrize("look_up", ["run", "steps", "messages"])
async def test_a_look_up_that_fails_says_nothing_of_the_run(
    emulator: AssistantsServer, adapter: ThreadsAdapter, look_up: str, status: int
) -> None:
    emulator.script = plays(Say("One. "), Cut(), Say("Two."))
    names = await cut(adapter, request("Hi"))
    emulator.failing_look_ups[look_up] = status
    with pytest.raises(AdapterError) as caught:
        await resumed(adapter, names)
    assert caught.value.kind is ErrorClass.INTERRUPTED
    assert text(await resumed(adapter, names)) == "One. Two."


@pytest.mark.parametrize(("status", "kind"), [(401, ErrorClass.UNAUTHORISED), (400, ErrorClass.REJECTED)])
async def test_a_look_up_that_is_refused_is_not_repeated(
    emulator: AssistantsServer, adapter: ThreadsAdapter, status: int, kind: ErrorClass
) -> None:
    emulator.script = plays(Say("One. "), Cut(), Say("Two."))
    names = await cut(adapter, request("Hi"))
    emulator.failing_look_ups["run"] = status
    with pytest.raises(AdapterError) as caught:
        await resumed(adapter, names)
    assert caught.value.kind is kind


async def test_a_run_that_waits_has_ended_its_call_with_the_calls_it_waits_for(
    emulator: AssistantsServer, adapter: ThreadsAdapter
) -> None:
    emulator.script = in_rounds([Say("I look."), Cut(), *OSLO], [Say("3 C")])
    names = await cut(adapter, request("Hi"))
    found = await adapter.fetch(names)
    assert found.fate is Fate.COMPLETED
    assert only(found.events, ToolCallReady) == ToolCallReady("call_1", "weather", '{"city": "Oslo"}')
    answered = await collect(adapter, follows(completed(found.events), OutputItem("call_1", "3 C")))
    assert text(answered) == "3 C"


async def test_a_call_that_went_on_with_outcomes_is_told_without_what_came_before(
    emulator: AssistantsServer, adapter: ThreadsAdapter
) -> None:
    emulator.script = in_rounds([Say("I look."), *OSLO], [Say("It is "), Cut(), Say("cold.")])
    waiting = completed(await collect(adapter, request("Hi")))
    names = await cut(adapter, follows(waiting, OutputItem("call_1", "3 C")))
    found = await adapter.fetch(names)
    assert text(found.events) == "It is cold."
    assert of_type(found.events, ToolCallReady) == []
    assert found.events[0] == CallStarted(waiting.handle, names.run)


async def test_a_submission_that_is_answered_late_tells_its_run_before(
    emulator: AssistantsServer, adapter: ThreadsAdapter
) -> None:
    emulator.script = in_rounds([*OSLO], [Say("Cold.")])
    waiting = completed(await collect(adapter, request("Hi")))
    emulator.silent_replies = 1
    async with aclosing(adapter.call(follows(waiting, OutputItem("call_1", "3 C")))) as events:
        started = only([await anext(events)], CallStarted)
    await emulator.left.wait()
    [run] = emulator.runs
    assert (started.handle, str(started.run).partition("/")[0]) == (waiting.handle, run.body["id"])
    assert text(await resumed(adapter, Ongoing(started.handle, started.run))) == "Cold."


async def test_a_submission_that_did_not_arrive_is_gone(emulator: AssistantsServer, adapter: ThreadsAdapter) -> None:
    emulator.script = in_rounds([*OSLO], [Say("Cold.")])
    waiting = completed(await collect(adapter, request("Hi")))
    assert isinstance(waiting.state, dict)
    names = Ongoing(waiting.handle, f"{waiting.state['run']}/{waiting.state['step']}")
    assert await adapter.fetch(names) == Fetched(Fate.GONE)
    answered = await collect(adapter, follows(waiting, OutputItem("call_1", "3 C")))
    assert text(answered) == "Cold."


async def test_a_call_that_went_on_with_a_yes_tells_the_run_of_the_tool(
    emulator: AssistantsServer, adapter: ThreadsAdapter
) -> None:
    done = ServerTool("mcp", "lookup", {}, "found", question="call_1")
    emulator.script = in_rounds([Ask("lookup", {}, "call_1")], [done, Say("It"), Cut(), Say(" is.")])
    waiting = completed(await collect(adapter, request("Hi")))
    names = await cut(adapter, follows(waiting, OutputItem("call_1", "", approved=True)))
    found = await adapter.fetch(names)
    assert only(found.events, ToolCallReady).question == "call_1"
    assert only(found.events, ToolResultReady) == ToolResultReady("call_1/run", "found")
    assert of_type(found.events, ApprovalAsked) == []


async def test_long_runs_are_read_page_by_page(emulator: AssistantsServer, adapter: ThreadsAdapter) -> None:
    tool = ServerTool("mcp", "lookup", {}, "found")
    emulator.script = plays(*[tool] * 120, Cut(), Say("Done"))
    found = await adapter.fetch(await cut(adapter, request("Hi")))
    assert len(of_type(found.events, ToolResultReady)) == 120
    assert text(found.events) == "Done"


# --- without a name ---------------------------------------------------------------------------------------------------


@pytest.fixture
async def first(adapter: ThreadsAdapter) -> CallCompleted:
    """The end of the first call of a thread."""
    return completed(await collect(adapter, request("one")))


def words(tail: Tail | None) -> tuple[int, str] | None:
    return None if tail is None else (tail.held, text(tail.answer))


async def test_a_request_that_did_not_arrive_left_nothing(adapter: ThreadsAdapter, first: CallCompleted) -> None:
    assert await adapter.tail(follows(first, said("two"))) == Tail(0)
    assert await adapter.tail(request("one")) == Tail(0)


async def test_a_request_that_arrived_is_found_with_its_answer(
    emulator: AssistantsServer, adapter: ThreadsAdapter, first: CallCompleted
) -> None:
    emulator.script = plays(Say("Two."))
    await collect(adapter, follows(first, said("two")))
    assert words(await adapter.tail(follows(first, said("two")))) == (1, "Two.")
    assert words(await adapter.tail(follows(first, said("two"), said("three")))) == (1, "Two.")


async def test_the_same_words_again_are_another_message(
    emulator: AssistantsServer, adapter: ThreadsAdapter, first: CallCompleted
) -> None:
    assert await adapter.tail(follows(first, said("one"))) == Tail(0)
    emulator.script = plays(Say("Two."))
    second = completed(await collect(adapter, follows(first, said("two"))))
    assert await adapter.tail(follows(second, said("two"))) == Tail(0)


async def test_a_run_that_failed_has_taken_its_messages(
    emulator: AssistantsServer, adapter: ThreadsAdapter, first: CallCompleted
) -> None:
    emulator.script = plays(Say("par"), Fail())
    with pytest.raises(AdapterError):
        await collect(adapter, follows(first, said("two")))
    assert await adapter.tail(follows(first, said("two"))) == Tail(1)
    emulator.script = plays(Say("Three."))
    await collect(adapter, follows(first, said("three")))
    assert words(await adapter.tail(follows(first, said("three")))) == (1, "Three.")
    assert await adapter.tail(follows(first, said("four"))) == Tail(0)


async def locked(adapter: ThreadsAdapter, asked: Any) -> None:
    with pytest.raises(AdapterError) as caught:
        await adapter.tail(asked)
    assert caught.value.kind is ErrorClass.LOCKED


async def test_a_run_to_which_nobody_listens_is_ended_and_has_taken_its_messages(
    emulator: AssistantsServer, adapter: ThreadsAdapter, first: CallCompleted
) -> None:
    emulator.script = plays(Say("par"), Cut(), Pause(asyncio.Event()))
    await cut(adapter, follows(first, said("two")))
    following = follows(first, said("two"), said("three"))
    await locked(adapter, following)
    assert emulator.runs[-1].body["status"] == "cancelled"
    assert await adapter.tail(following) == Tail(1)


async def test_a_run_that_takes_a_while_to_end_is_waited_for(
    emulator: AssistantsServer, adapter: ThreadsAdapter, first: CallCompleted
) -> None:
    emulator.cancels = "later"
    emulator.script = plays(Say("par"), Cut(), Pause(asyncio.Event()))
    await cut(adapter, follows(first, said("two")))
    for _ in range(2):
        await locked(adapter, follows(first, said("two")))
    emulator.end_cancelled()
    assert await adapter.tail(follows(first, said("two"))) == Tail(1)


@pytest.mark.parametrize("metadata", [{}, {BROUGHT: digests([said("other")])}], ids=["unmarked", "of other messages"])
async def test_a_run_of_another_client_is_waited_for_and_left_alone(
    emulator: AssistantsServer, adapter: ThreadsAdapter, first: CallCompleted, metadata: dict[str, str]
) -> None:
    emulator.script = plays(Say("par"), Cut(), Pause(asyncio.Event()))
    await cut(adapter, follows(first, said("two")))
    emulator.runs[-1].body["metadata"] = metadata
    await locked(adapter, follows(first, said("two")))
    assert emulator.runs[-1].body["status"] == "in_progress"


async def test_outcomes_that_did_not_arrive_are_still_waited_for(
    emulator: AssistantsServer, adapter: ThreadsAdapter
) -> None:
    emulator.script = in_rounds([*OSLO], [Say("3 C")])
    waiting = completed(await collect(adapter, request("Hi")))
    assert await adapter.tail(follows(waiting, OutputItem("call_1", "3 C"))) == Tail(0)


async def test_outcomes_that_arrived_are_found_with_the_answer_to_them(
    emulator: AssistantsServer, adapter: ThreadsAdapter
) -> None:
    emulator.script = in_rounds([Say("I look."), *OSLO], [Say("Cold.")])
    waiting = completed(await collect(adapter, request("Hi")))
    output = OutputItem("call_1", "3 C")
    await collect(adapter, follows(waiting, output))
    assert words(await adapter.tail(follows(waiting, output))) == (1, "Cold.")
    assert words(await adapter.tail(follows(waiting, output, said("two")))) == (1, "Cold.")


async def test_a_run_that_works_on_outcomes_to_which_nobody_listens_is_ended(
    emulator: AssistantsServer, adapter: ThreadsAdapter
) -> None:
    emulator.script = in_rounds([*OSLO], [Say("So "), Cut(), Pause(asyncio.Event())])
    waiting = completed(await collect(adapter, request("Hi")))
    output = OutputItem("call_1", "3 C")
    await cut(adapter, follows(waiting, output))
    await locked(adapter, follows(waiting, output))
    assert emulator.runs[-1].body["status"] == "cancelled"
    assert await adapter.tail(follows(waiting, output, said("next"))) == Tail(1)


async def test_outcomes_for_a_run_that_has_expired_are_of_no_use_any_more(
    emulator: AssistantsServer, adapter: ThreadsAdapter
) -> None:
    emulator.script = in_rounds([*OSLO], [Say("3 C")])
    waiting = completed(await collect(adapter, request("Hi")))
    emulator.expire()
    assert await adapter.tail(follows(waiting, OutputItem("call_1", "3 C"))) == Tail(1)


async def test_a_message_beside_outcomes_is_found_in_the_run_that_followed(
    emulator: AssistantsServer, adapter: ThreadsAdapter
) -> None:
    emulator.script = in_rounds([*OSLO], [Say("3 C")])
    waiting = completed(await collect(adapter, request("Hi")))
    both = (OutputItem("call_1", "not run"), said("Never mind"))
    emulator.script = plays(Say("Very well."))
    await collect(adapter, follows(waiting, *both))
    assert words(await adapter.tail(follows(waiting, *both))) == (2, "Very well.")


async def test_a_thread_that_does_not_have_the_last_run_tells_nothing(
    adapter: ThreadsAdapter, first: CallCompleted
) -> None:
    elsewhere = CallCompleted(first.handle, state={"run": "run_9"})
    assert await adapter.tail(follows(elsewhere, said("two"))) is None


async def test_in_a_thread_of_another_client_only_an_own_run_counts(
    emulator: AssistantsServer, adapter: ThreadsAdapter, first: CallCompleted
) -> None:
    adopted = CallCompleted(first.handle)
    emulator.runs[0].body["metadata"].clear()
    assert await adapter.tail(follows(adopted, said("one"))) == Tail(0)
    await collect(adapter, follows(adopted, said("two")))
    assert words(await adapter.tail(follows(adopted, said("two")))) == (1, "Hello.")


async def test_a_thread_that_is_not_there_is_told(adapter: ThreadsAdapter, emulator: AssistantsServer) -> None:
    with pytest.raises(AdapterError) as caught:
        await adapter.tail(request("one", handle="thread_9"))
    assert caught.value.kind is ErrorClass.HANDLE_NOT_FOUND


# --- the digests ------------------------------------------------------------------------------------------------------


def numbered(count: int) -> list[Item]:
    return [said(str(number)) for number in range(count)]


@pytest.mark.parametrize("count", [1, 2, 39, 40, 100])
def test_a_run_tells_how_many_of_the_messages_it_brought(count: int) -> None:
    metadata = {BROUGHT: digests(numbered(count))}
    assert len(metadata[BROUGHT]) <= 512
    assert brought(metadata, numbered(count)) == count
    assert brought(metadata, [said("other"), *numbered(count)]) == 0


@pytest.mark.parametrize("count", [1, 38, 39, 40])
def test_a_message_after_those_of_a_run_is_not_among_them(count: int) -> None:
    assert brought({BROUGHT: digests(numbered(count))}, numbered(count + 1)) == count


@pytest.mark.parametrize("metadata", [None, {}, {"other": "x"}, {BROUGHT: ""}, {BROUGHT: "1:"}, {BROUGHT: "x:y"}])
def test_a_run_of_another_client_brought_none(metadata: dict[str, str] | None) -> None:
    assert brought(metadata, numbered(1)) == 0
    assert brought(metadata, []) == 0
