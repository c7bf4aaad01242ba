"""Conversations over the whole gateway with a service of threads and runs: cut, cancelled, locked, expired, killed."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway.a2a.tool_calls import URI
from gateway.ports.adapter import ErrorClass
from gateway.testing.serving import serve
from tests.a2a_client import A2A, COMPLETED, Json, a2a_http, failed, streamed_text, text_of, why
from tests.adapters.assistants.support import VERSION, server
from tests.adapters.emulator_support import KEY
from tests.emulators.assistants import ASSISTANT, AssistantsServer
from tests.emulators.scripts import (
    Ask,
    Call,
    Conversation,
    Cut,
    Fail,
    Pause,
    Say,
    ServerTool,
    Step,
    in_rounds,
    rate_limited,
)
from tests.running import AT_ONCE, StartLocal, child_gateways, start_local
from tests.support.core import query, until

__all__ = ["start_local"]

WAITS = "TASK_STATE_INPUT_REQUIRED"
CANCELED = "TASK_STATE_CANCELED"
TURNS = pytest.mark.parametrize("turn", [1, 2])


def repeats(conversation: Conversation) -> list[Step]:
    return [Say(" ".join(conversation.user_texts))]


class Stalling:
    """Repeats what was said; an answer to words with `slow` stops in the middle until `rest` is set."""

    def __init__(self, *stop: Step) -> None:
        self.rest = asyncio.Event()
        self._stop = stop

    def __call__(self, conversation: Conversation) -> list[Step]:
        if "slow" not in conversation.text:
            return repeats(conversation)
        return [Say("one "), *self._stop, Pause(self.rest), Say("two")]


def agent(url: str, more: str = "unknown_tool: error_result") -> str:
    where = f"base_url: '{url}/v1', assistant_id: {ASSISTANT}, api_key: {KEY}, api_version: '{VERSION}'"
    return f"thread: {{type: assistants, {where}, {more}}}"


@asynccontextmanager
async def talking(emulator: AssistantsServer, start_local: StartLocal, **more: Any) -> AsyncIterator[A2A]:
    async with serve(emulator.app) as url:
        gateway = await start_local(agent(url, **more), pace=AT_ONCE)
        async with a2a_http(gateway.url) as http:
            yield A2A(http, "thread")


async def context_of(caller: A2A, turn: int) -> str | None:
    """The context in which the turn of this number comes next."""
    return None if turn == 1 else str((await caller.send("first"))["contextId"])


def statuses(emulator: AssistantsServer) -> list[str]:
    return [run.body["status"] for run in emulator.runs]


def sent(emulator: AssistantsServer) -> list[list[str]]:
    """The messages that each run brought."""
    return [
        [message["content"][0]["text"] for message in body["additional_messages"]]
        for body in emulator.asked
        if "additional_messages" in body
    ]


async def test_a_context_is_a_thread_and_a_turn_a_run(start_local: StartLocal) -> None:
    emulator = server(repeats)
    async with talking(emulator, start_local) as caller:
        first = await caller.send("one")
        second = await caller.send("two", first["contextId"])
    assert [text_of(task) for task in (first, second)] == ["one", "one two"]
    assert [len(thread.runs) for thread in emulator.threads.values()] == [2]
    assert sent(emulator) == [["one"], ["two"]]
    assert second["metadata"]["usage"]["turn"] == {"inputTokens": 20, "outputTokens": 1, "totalTokens": 21}


@TURNS
async def test_a_stream_that_breaks_off_is_made_whole_from_what_the_run_has_left(
    start_local: StartLocal, turn: int
) -> None:
    script = Stalling(Cut())
    script.rest.set()
    emulator = server(script)
    async with talking(emulator, start_local) as caller:
        context = await context_of(caller, turn)
        async with caller.stream("slow", context) as stream:
            frames = await stream.rest()
        task = await caller.get(frames[0].event["task"]["id"])
        after = await caller.send("next", task["contextId"])
    assert (why(task), text_of(task), streamed_text(frames)) == (COMPLETED, "one two", "one two")
    assert why(after) == COMPLETED
    assert len(emulator.runs) == turn + 1


async def test_look_ups_that_fail_after_a_cut_are_made_again(start_local: StartLocal) -> None:
    script = Stalling(Cut())
    script.rest.set()
    emulator = server(script)
    emulator.failing_look_ups = {"run": 500, "steps": 503, "messages": None}
    async with talking(emulator, start_local) as caller:
        task = await caller.send("slow")
    assert (why(task), text_of(task), emulator.failing_look_ups) == (COMPLETED, "one two", {})


@TURNS
async def test_a_task_that_is_cancelled_before_its_run_has_a_name_ends_the_run_with_the_next_message(
    start_local: StartLocal, turn: int
) -> None:
    emulator = server(Stalling())
    async with talking(emulator, start_local) as caller:
        context = await context_of(caller, turn)
        emulator.silent_replies = 1
        async with caller.stream("slow", context) as stream:
            await until(lambda: len(emulator.runs) == turn)
            [begun] = await stream.read(1)
            task = await caller.call("CancelTask", id=begun.event["task"]["id"])
            await stream.rest()
        after = await caller.send("next", task["contextId"])
    assert task["status"]["state"] == CANCELED
    assert (why(after), statuses(emulator)[turn - 1]) == (COMPLETED, "cancelled")
    assert sent(emulator)[turn - 1 :] == [["slow"], ["next"]]


@TURNS
async def test_a_run_whose_name_did_not_come_in_time_is_ended_with_the_next_message(
    start_local: StartLocal, turn: int
) -> None:
    emulator = server(Stalling())
    more = "timeouts: {first_byte: 1s}"
    async with talking(emulator, start_local, more=more) as caller:
        context = await context_of(caller, turn)
        emulator.silent_replies = 1
        late = await caller.send("slow", context)
        after = await caller.send("next", late["contextId"])
    assert why(late) == failed(ErrorClass.TIMED_OUT)
    assert (why(after), statuses(emulator)[turn - 1]) == (COMPLETED, "cancelled")


@TURNS
async def test_a_cancelled_task_ends_its_run_and_the_context_goes_on(start_local: StartLocal, turn: int) -> None:
    emulator = server(Stalling())
    async with talking(emulator, start_local) as caller:
        context = await context_of(caller, turn)
        async with caller.stream("slow", context) as stream:
            await stream.read_until(lambda frames: streamed_text(frames) == "one ")
            task = await caller.call("CancelTask", id=stream.frames[0].event["task"]["id"])
            await stream.rest()
        after = await caller.send("next", task["contextId"])
    assert task["status"]["state"] == CANCELED
    assert statuses(emulator)[turn - 1] == "cancelled"
    assert why(after) == COMPLETED
    # What was said is in the thread, and only the part of the answer that was seen is told.
    note, following = sent(emulator)[-1]
    assert ("slow" not in note, note.endswith("one "), following) == (True, True, "next")


async def test_turns_at_once_in_one_context_come_one_after_another(start_local: StartLocal) -> None:
    emulator = server(repeats)
    async with talking(emulator, start_local) as caller:
        context = (await caller.send("one"))["contextId"]
        tasks = await asyncio.gather(*(caller.send(word, context) for word in ("two", "three", "four")))
    assert [why(task) for task in tasks] == [COMPLETED] * 3
    assert [len(words) for words in sent(emulator)] == [1] * 4


async def test_a_limit_is_waited_for_and_nothing_is_said_twice(start_local: StartLocal) -> None:
    answers = iter([[rate_limited(None)], [rate_limited(None)]])
    emulator = server(repeats)
    async with talking(emulator, start_local) as caller:
        context = (await caller.send("one"))["contextId"]
        emulator.script = lambda conversation: next(answers, repeats(conversation))
        task = await caller.send("two", context)
    assert (why(task), text_of(task)) == (COMPLETED, "one two")
    [thread] = emulator.threads.values()
    assert [message["role"] for message in thread.messages] == ["user", "assistant"] * 2


async def test_a_run_of_somebody_else_locks_the_thread_and_is_left_alone(start_local: StartLocal) -> None:
    emulator = server(repeats)
    async with talking(emulator, start_local) as caller:
        first = await caller.send("one")
        [run] = emulator.runs
        run.body["status"] = "in_progress"
        locked = await caller.send("two", first["contextId"])
        run.body["status"] = "completed"
        third = await caller.send("three", first["contextId"])
    assert (why(locked), why(third)) == (failed(ErrorClass.LOCKED), COMPLETED)
    assert text_of(third) == "one two three"
    assert sent(emulator)[-1] == ["two", "three"]


async def test_a_thread_that_was_deleted_is_told_as_lost(start_local: StartLocal) -> None:
    emulator = server(repeats)
    async with talking(emulator, start_local) as caller:
        first = await caller.send("one")
        emulator.threads.clear()
        lost = await caller.send("two", first["contextId"])
        again = await caller.send("three", first["contextId"])
    assert why(lost) == failed(ErrorClass.HANDLE_NOT_FOUND)
    assert again["status"]["state"] == "TASK_STATE_FAILED"
    assert emulator.threads == {}


async def test_a_context_that_is_deleted_takes_its_thread_and_its_files_with_it(start_local: StartLocal) -> None:
    emulator = server(repeats)
    async with talking(emulator, start_local) as caller:
        picture = {"raw": "cG5n", "mediaType": "image/png"}
        task = await caller.send("", parts=[{"text": "Look"}, picture])
        assert (len(emulator.threads), len(emulator.files)) == (1, 1)
        await caller.http.delete(f"/admin/api/v1/contexts/{task['contextId']}")
        await until(lambda: not emulator.threads)
    assert emulator.files == {}


async def test_a_lost_thread_is_told_again_in_a_new_one_where_that_is_wanted(start_local: StartLocal) -> None:
    emulator = server(in_rounds(TWO_CALLS, [Say("So be it.")]))
    async with talking(emulator, start_local, more="on_lost_handle: rebuild, unknown_tool: error_result") as caller:
        first = await caller.send("How high?")
        emulator.threads.clear()
        emulator.script = repeats
        second = await caller.send("And now?", first["contextId"])
    assert (why(second), text_of(second)) == (COMPLETED, "How high? And now?")
    messages = emulator.asked[-1]["additional_messages"]
    assert [message["role"] for message in messages] == ["user", "assistant", "assistant", "assistant", "user"]
    assert messages[1]["content"].startswith('[height({"of": "Oslo"}): ')


@pytest.mark.parametrize("answered", [True, False])
async def test_a_message_whose_reply_was_lost_is_found_in_the_thread_and_not_said_again(
    start_local: StartLocal, answered: bool
) -> None:
    script = Stalling()
    script.rest.set()
    emulator = server(script)
    async with talking(emulator, start_local) as caller:
        context = (await caller.send("one"))["contextId"]
        emulator.lost_replies = 1
        emulator.script = script if answered else lambda _: [Fail()]
        lost = await caller.send("slow", context)
        emulator.script = repeats
        third = await caller.send("three", context)
    assert why(lost) == failed(ErrorClass.INTERRUPTED)
    assert (why(third), text_of(third)) == (COMPLETED, "one slow three")
    assert sent(emulator) == [["one"], ["slow"], ["three"]]


NAMES = "SELECT run FROM service_call WHERE run IS NOT NULL"


async def test_a_task_that_is_cancelled_while_its_outcomes_are_not_answered_ends_its_run(
    start_local: StartLocal, tmp_path: Path
) -> None:
    path = tmp_path / "gateway.db"
    never = asyncio.Event()

    def silent(conversation: Conversation) -> list[Step]:
        if conversation.tool_outputs:
            emulator.silent_replies = 1
            return [Say("one "), Pause(never)]
        return list(TWO_CALLS) if conversation.text == "How high?" else repeats(conversation)

    emulator = server(silent)
    async with talking(emulator, start_local) as caller:
        async with caller.stream("How high?") as stream:
            [begun] = await stream.read(1)
            await until(lambda: any("tool_outputs" in body for body in emulator.asked))
            await until(lambda: any("/" in run for (run,) in query(path, NAMES)))
            task = await caller.call("CancelTask", id=begun.event["task"]["id"])
            await stream.rest()
        assert statuses(emulator) == ["cancelled"]
        after = await caller.send("next", task["contextId"])
    assert (task["status"]["state"], why(after)) == (CANCELED, COMPLETED)


# --- tools ------------------------------------------------------------------------------------------------------------

TWO_CALLS = [Call("height", {"of": "Oslo"}, "call_1"), Call("height", {"of": "Rome"}, "call_2")]


async def test_calls_that_no_tool_answers_are_answered_together_to_the_waiting_run(start_local: StartLocal) -> None:
    emulator = server(in_rounds(TWO_CALLS, [Say("So be it.")]))
    async with talking(emulator, start_local) as caller:
        task = await caller.send("How high?")
    assert (why(task), text_of(task)) == (COMPLETED, "So be it.")
    assert statuses(emulator) == ["completed"]
    assert [len(body["tool_outputs"]) for body in emulator.asked if "tool_outputs" in body] == [2]


async def test_calls_that_stay_without_an_outcome_get_one_with_the_next_message(start_local: StartLocal) -> None:
    def calls(conversation: Conversation) -> list[Step]:
        asked = conversation.text == "How high?" and not conversation.tool_outputs
        return list(TWO_CALLS) if asked else repeats(conversation)

    emulator = server(calls)
    async with talking(emulator, start_local, more="unknown_tool: fail") as caller:
        first = await caller.send("How high?")
        second = await caller.send("Never mind", first["contextId"])
    assert first["status"]["state"] == "TASK_STATE_FAILED"
    assert (why(second), text_of(second)) == (COMPLETED, "How high? Never mind")
    outputs = [body["tool_outputs"] for body in emulator.asked if "tool_outputs" in body]
    assert [[one["tool_call_id"] for one in given] for given in outputs] == [["call_1", "call_2"]]
    assert sent(emulator)[-1] == ["Never mind"]


async def test_outcomes_whose_reply_was_lost_are_not_brought_again(start_local: StartLocal) -> None:
    emulator = server()

    def loses(conversation: Conversation) -> list[Step]:
        if conversation.tool_outputs:
            emulator.lost_replies = 1
            return [Say("So be it.")]
        return list(TWO_CALLS) if conversation.text == "How high?" else repeats(conversation)

    emulator.script = loses
    async with talking(emulator, start_local) as caller:
        lost = await caller.send("How high?")
        after = await caller.send("next", lost["contextId"])
    assert why(lost) == failed(ErrorClass.INTERRUPTED)
    assert (why(after), text_of(after)) == (COMPLETED, "How high? next")
    assert [len(body["tool_outputs"]) for body in emulator.asked if "tool_outputs" in body] == [2]
    assert sent(emulator) == [["How high?"], ["next"]]


async def test_a_limit_on_outcomes_is_waited_for(start_local: StartLocal) -> None:
    limits = iter([[rate_limited(None)]])
    emulator = server(in_rounds(TWO_CALLS, [Say("So be it.")]))
    plain = emulator.script
    emulator.script = lambda conversation: next(limits, plain(conversation)) if conversation.tool_outputs else TWO_CALLS
    async with talking(emulator, start_local) as caller:
        task = await caller.send("How high?")
    assert (why(task), text_of(task)) == (COMPLETED, "So be it.")
    assert len([body for body in emulator.asked if "tool_outputs" in body]) == 2


def asking(conversation: Conversation) -> list[Step]:
    """Asks for leave to look something up, unless it is told something else."""
    if not conversation.decisions:
        return [Ask("lookup", {"q": 1}, "call_1")] if conversation.text == "look" else repeats(conversation)
    if conversation.decisions["call_1"]:
        return [ServerTool("mcp", "lookup", {"q": 1}, "found", question="call_1"), Say("I found it.")]
    return [Say("Then not.")]


def decision(task: Json, *, yes: bool) -> Json:
    [tool] = task["status"]["message"]["metadata"][URI]["approval"]["tools"]
    return {"parts": [{"data": {"approvals": [{"id": tool["id"], "approved": yes, "reason": "because"}]}}]}


@pytest.mark.parametrize("yes", [True, False])
async def test_a_question_of_the_service_is_decided_by_the_caller(start_local: StartLocal, yes: bool) -> None:
    emulator = server(asking)
    async with talking(emulator, start_local) as caller:
        asked = await caller.send("look")
        assert asked["status"]["state"] == WAITS
        done = await caller.send("", asked["contextId"], taskId=asked["id"], **decision(asked, yes=yes))
        after = await caller.send("next", asked["contextId"])
    assert (why(done), text_of(done)) == (COMPLETED, "I found it." if yes else "Then not.")
    assert statuses(emulator) == ["completed", "completed"]
    assert why(after) == COMPLETED


async def test_another_message_says_no_and_ends_the_run_that_waits(start_local: StartLocal) -> None:
    emulator = server(asking)
    async with talking(emulator, start_local) as caller:
        asked = await caller.send("look")
        done = await caller.send("never mind", asked["contextId"], taskId=asked["id"])
    assert (why(done), text_of(done)) == (COMPLETED, "look never mind")
    [approvals] = [body["tool_approvals"] for body in emulator.asked if "tool_approvals" in body]
    assert approvals == [{"tool_call_id": "call_1", "approve": False}]


async def test_a_question_that_is_cancelled_ends_the_run_that_waits(start_local: StartLocal) -> None:
    emulator = server(asking)
    async with talking(emulator, start_local) as caller:
        asked = await caller.send("look")
        task = await caller.call("CancelTask", id=asked["id"])
        await until(lambda: statuses(emulator) == ["cancelled"])
        after = await caller.send("next", asked["contextId"])
    assert (task["status"]["state"], why(after), text_of(after)) == (CANCELED, COMPLETED, "look next")


async def test_a_decision_that_comes_too_late_fails_its_task_and_the_context_goes_on(start_local: StartLocal) -> None:
    emulator = server(asking)
    async with talking(emulator, start_local) as caller:
        asked = await caller.send("look")
        emulator.expire()
        done = await caller.send("", asked["contextId"], taskId=asked["id"], **decision(asked, yes=True))
        after = await caller.send("next", asked["contextId"])
    assert why(done) == failed(ErrorClass.BACKEND_FAILED)
    assert (why(after), text_of(after)) == (COMPLETED, "look next")


# --- a process that dies ----------------------------------------------------------------------------------------------


@pytest.fixture
async def stalling() -> Stalling:
    return Stalling()


@TURNS
async def test_a_run_outlives_the_process_that_began_it(tmp_path: Path, stalling: Stalling, turn: int) -> None:
    emulator = server(stalling)
    async with serve(emulator.app) as url, child_gateways(agent(url), tmp_path) as start:
        first = await start()
        async with a2a_http(first.url) as http:
            caller = A2A(http, "thread")
            context = await context_of(caller, turn)
            async with caller.stream("slow", context) as stream:
                await stream.read_until(lambda frames: streamed_text(frames) == "one ")
                number = stream.frames[-1].number
                name = stream.frames[0].event["task"]["id"]
                await first.kill()
        stalling.rest.set()
        second = await start()
        async with a2a_http(second.url) as http:
            caller = A2A(http, "thread")
            async with caller.subscribe(name, number) as stream:
                rest = await stream.rest()
            task = await caller.get(name)
            after = await caller.send("next", task["contextId"])
    assert (why(task), text_of(task), streamed_text(rest)) == (COMPLETED, "one two", "two")
    assert why(after) == COMPLETED
    assert len(emulator.runs) == turn + 1


@TURNS
async def test_a_run_that_had_no_name_when_its_process_died_is_ended_with_the_next_message(
    tmp_path: Path, stalling: Stalling, turn: int
) -> None:
    emulator = server(stalling)
    async with serve(emulator.app) as url, child_gateways(agent(url), tmp_path) as start:
        first = await start()
        async with a2a_http(first.url) as http:
            caller = A2A(http, "thread")
            context = await context_of(caller, turn)
            emulator.silent_replies = 1
            async with caller.stream("slow", context) as stream:
                await until(lambda: len(emulator.runs) == turn)
                [begun] = await stream.read(1)
                await first.kill()
        second = await start()
        async with a2a_http(second.url) as http:
            after = await A2A(http, "thread").send("next", begun.event["task"]["contextId"])
    assert (why(after), statuses(emulator)[turn - 1]) == (COMPLETED, "cancelled")


async def test_a_run_whose_outcomes_were_not_answered_outlives_the_process_that_brought_them(tmp_path: Path) -> None:
    rest = asyncio.Event()

    def silent(conversation: Conversation) -> list[Step]:
        if not conversation.tool_outputs:
            return list(TWO_CALLS)
        emulator.silent_replies = 1
        return [Say("So "), Pause(rest), Say("be it.")]

    emulator = server(silent)
    async with serve(emulator.app) as url, child_gateways(agent(url), tmp_path) as start:
        first = await start()
        async with a2a_http(first.url) as http, A2A(http, "thread").stream("How high?") as stream:
            [begun] = await stream.read(1)
            await until(lambda: any("/" in run for (run,) in query(tmp_path / "gateway.db", NAMES)))
            await first.kill()
        rest.set()
        second = await start()
        async with a2a_http(second.url) as http:
            caller = A2A(http, "thread")
            async with caller.subscribe(begun.event["task"]["id"]) as following:
                await following.rest()
            task = await caller.get(begun.event["task"]["id"])
    assert (why(task), text_of(task), len(emulator.runs)) == (COMPLETED, "So be it.", 1)


async def test_a_question_outlives_the_process_that_asked_it(tmp_path: Path) -> None:
    emulator = server(asking)
    async with serve(emulator.app) as url, child_gateways(agent(url), tmp_path) as start:
        first = await start()
        async with a2a_http(first.url) as http:
            asked = await A2A(http, "thread").send("look")
        await first.kill()
        second = await start()
        async with a2a_http(second.url) as http:
            caller = A2A(http, "thread")
            done = await caller.send("", asked["contextId"], taskId=asked["id"], **decision(asked, yes=True))
    assert (why(done), text_of(done)) == (COMPLETED, "I found it.")
    assert statuses(emulator) == ["completed"]


async def test_a_question_that_comes_when_its_process_is_dead_is_asked_by_the_next(tmp_path: Path) -> None:
    held = asyncio.Event()

    def script(conversation: Conversation) -> list[Step]:
        begins = conversation.text == "look" and not conversation.decisions
        before: list[Step] = [Say("I "), Pause(held)] if begins else []
        return [*before, *asking(conversation)]

    emulator = server(script)
    async with serve(emulator.app) as url, child_gateways(agent(url), tmp_path) as start:
        first = await start()
        async with a2a_http(first.url) as http:
            caller = A2A(http, "thread")
            context = (await caller.send("first"))["contextId"]
            async with caller.stream("look", context) as stream:
                await stream.read_until(lambda frames: streamed_text(frames) == "I ")
                name = stream.frames[0].event["task"]["id"]
                await first.kill()
        held.set()
        second = await start()
        async with a2a_http(second.url) as http:
            caller = A2A(http, "thread")
            async with caller.subscribe(name) as stream:
                await stream.read_until(lambda frames: WAITS in str(frames[-1:]))
            asked = await caller.get(name)
            done = await caller.send("", context, taskId=name, **decision(asked, yes=True))
    assert (why(done), text_of(done)) == (COMPLETED, "I I found it.")
