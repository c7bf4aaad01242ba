"""The spans of turns: of those that run here, that another process began, and that end in none."""

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from gateway.a2a.model import TaskState
from gateway.a2a.redaction import json_path
from gateway.a2a.tool_calls import Visibility
from gateway.core.turn_trace import locate
from gateway.foundation import trace
from gateway.foundation.trace import TraceContext
from gateway.ledger.calls import RESTARTED
from gateway.ports.adapter import AdapterError, CallCompleted, ErrorClass, TextDelta
from gateway.ports.spans import CallSpan, Tokens, ToolSpan, TrySpan, TurnSpan
from tests.scenarios.test_approvals import PAY, asked, reply, setup, start, yes
from tests.scenarios.test_tool_loop import adapter_of, asks, call
from tests.support.core import START, Core, query, running_core, soon, until
from tests.support.scripted import BR, G, Pause, Script, ScriptedAdapter, says
from tests.support.scripted_tools import ScriptedTools
from tests.support.spans import CALLER, SpanLog

USAGE = {"prompt_tokens": 5, "completion_tokens": 2}
ANSWER: Script = [TextDelta("done"), CallCompleted(None, usage=USAGE)]
LATER = START + 6000
"""The leases of a process that died at the start have run out."""


@pytest.fixture
def log() -> SpanLog:
    return SpanLog()


@pytest.fixture
async def core(tmp_path: Path, log: SpanLog) -> AsyncGenerator[Core, None]:
    async with running_core(tmp_path / "ledger.db", observer=log) as core:
        core.time.step = 1
        yield core


def turn_of(core: Core) -> str:
    [(turn,)] = query(core.path, "SELECT id FROM turn")
    return str(turn)


def one(log: SpanLog) -> TurnSpan:
    [span] = log.of(TurnSpan)
    return span


async def test_a_turn_with_a_tool_is_a_turn_two_calls_and_a_tool(core: Core, log: SpanLog) -> None:
    box = ScriptedTools({"add": "3"})
    core.agent(adapter_of(G, asks("", call("c1")), ANSWER), toolset=box)
    task = await core.send("hi", context="c")
    assert [type(span) for span in log.spans] == [CallSpan, ToolSpan, CallSpan, TurnSpan]
    turn = one(log)
    assert (turn.agent, turn.task, turn.context, turn.turn) == ("echo", task.id, "c", turn_of(core))
    assert (turn.state, turn.failure, turn.tokens) == (TaskState.COMPLETED, "", Tokens(5, None, 2, None))
    assert (turn.place, turn.parent) == locate(turn_of(core), None, log.samples)
    assert {span.parent for span in log.spans[:-1]} == {turn.place.span_id}
    assert {span.place.trace_id for span in log.spans} == {turn.place.trace_id}
    assert len({span.place.span_id for span in log.spans}) == 4
    [tool] = log.of(ToolSpan)
    assert (tool.tool, tool.call, tool.source, tool.failure) == ("add", box.runs[0].key, "test:box", "")
    first, second = log.of(CallSpan)
    assert turn.began < first.began < first.ended < tool.began < tool.ended < second.began < second.ended < turn.ended
    assert (first.round, first.tokens, second.round, second.attempts) == (0, Tokens(), 1, 1)
    assert second.first is not None
    assert second.began < second.first < second.ended
    assert (turn.said, turn.answered, tool.arguments, tool.result) == (None, None, None, None)


async def test_what_runs_knows_where_it_is_in_the_trace(core: Core, log: SpanLog) -> None:
    seen: list[TraceContext | None] = []

    def look(_: dict[str, Any]) -> str:
        seen.append(trace.current())
        return "seen"

    class Looking(ScriptedAdapter):
        async def call(self, request: Any) -> AsyncGenerator[Any, None]:
            seen.append(trace.current())
            async for event in super().call(request):
                yield event

    core.agent(Looking(G, asks("", call("c1")), says("done")), toolset=ScriptedTools({"add": look}))
    await core.send("hi")
    assert seen == [span.place for span in log.spans[:-1]]
    assert trace.current() is None


async def test_a_turn_is_a_part_of_its_callers_trace(core: Core, log: SpanLog) -> None:
    core.agent(ScriptedAdapter(G, says("a")))
    await core.send("hi", replace(core.call(), trace=CALLER.text))
    assert {span.place.trace_id for span in log.spans} == {CALLER.trace_id}
    assert one(log).parent == CALLER.span_id
    assert log.asked == [(CALLER.trace_id, CALLER)]


async def test_an_unwanted_trace_is_carried_and_not_told(core: Core, log: SpanLog) -> None:
    log.wanted = False
    seen: list[str] = []

    def look(_: dict[str, Any]) -> str:
        seen.append(trace.current_headers()["traceparent"])
        return "seen"

    core.agent(adapter_of(G, asks("", call("c1")), says("done")), toolset=ScriptedTools({"add": look}))
    await core.send("hi")
    assert ([header[-2:] for header in seen], log.spans) == (["00"], [])


async def test_a_failed_try_is_a_part_of_its_call(core: Core, log: SpanLog) -> None:
    core.agent(ScriptedAdapter(G, [AdapterError(ErrorClass.UNREACHABLE, "down")], says("a")))
    await core.send("hi")
    [failed], [whole] = log.of(TrySpan), log.of(CallSpan)
    assert (failed.failure, failed.attempt, failed.parent) == ("unreachable", 0, whole.place.span_id)
    assert (whole.failure, whole.attempts) == ("", 2)
    assert whole.began <= failed.began < failed.ended < whole.ended


async def test_a_turn_that_fails_says_why_and_so_does_its_call(core: Core, log: SpanLog) -> None:
    core.agent(ScriptedAdapter(G, [AdapterError(ErrorClass.UNAUTHORISED, "no")]))
    await core.send("hi")
    assert [(type(span), span.failure) for span in log.spans] == [
        (CallSpan, "unauthorised"),
        (TurnSpan, "unauthorised"),
    ]


async def test_what_runs_when_a_turn_is_cancelled_ends_with_it(core: Core, log: SpanLog) -> None:
    waits = Pause()
    core.agent(adapter_of(G, asks("", call("c1"))), toolset=ScriptedTools({"add": waits}))
    task = await core.send("hi", at_once=True)
    await soon(waits.reached.wait())
    await soon(core.cancel(task.id))
    assert [(type(span), span.failure) for span in log.spans] == [
        (CallSpan, ""),
        (ToolSpan, "cancelled"),
        (TurnSpan, "cancelled"),
    ]


async def test_a_call_that_is_cancelled_ends_with_its_turn(core: Core, log: SpanLog) -> None:
    adapter = ScriptedAdapter(G, [TextDelta("a"), Pause()])
    core.agent(adapter)
    task = await core.send("hi", at_once=True)
    await soon(adapter.paused.wait())
    await soon(core.cancel(task.id))
    assert [(type(span), span.failure) for span in log.spans] == [(CallSpan, "cancelled"), (TurnSpan, "cancelled")]


async def test_a_tool_that_takes_too_long_says_so(core: Core, log: SpanLog) -> None:
    core.agent(adapter_of(G, asks("", call("c1")), says("done")), toolset=ScriptedTools({"add": Pause()}, timeout=0.01))
    await core.send("hi")
    assert [span.failure for span in log.of(ToolSpan)] == ["timeout"]


async def test_a_turn_that_waits_for_its_caller_is_one_span_at_its_end(core: Core, log: SpanLog) -> None:
    setup(core, G, asks("", PAY), says("paid"))
    task = await start(core, call=replace(core.call(), trace=CALLER.text))
    assert [type(span) for span in log.spans] == [CallSpan]
    await reply(core, task.id, yes(asked(task)[0]["id"]))
    assert [type(span) for span in log.spans] == [CallSpan, ToolSpan, CallSpan, TurnSpan]
    turn = one(log)
    assert (turn.parent, turn.taken_over) == (CALLER.span_id, False)
    assert turn.began < log.of(CallSpan)[0].began
    assert {span.parent for span in log.spans[:-1]} == {turn.place.span_id}


async def test_a_turn_that_is_cancelled_while_it_waits_is_told(core: Core, log: SpanLog) -> None:
    setup(core, G, asks("", PAY))
    task = await start(core)
    await soon(core.cancel(task.id))
    turn = one(log)
    assert (turn.failure, turn.state) == ("cancelled", TaskState.CANCELED)
    assert turn.place == locate(turn_of(core), None, log.samples)[0]


async def test_a_turn_that_another_message_ends_is_told(core: Core, log: SpanLog) -> None:
    setup(core, G, asks("", PAY), says("other"))
    task = await start(core)
    await reply(core, task.id, "something else")
    assert sorted(span.failure for span in log.of(TurnSpan)) == ["", "cancelled"]


async def test_content_is_masked_and_there_only_where_it_is_asked_for(tmp_path: Path) -> None:
    log = SpanLog(contents=True)
    masks = Visibility(redact=(json_path("$.args.pin"), json_path("$.response.card")))
    async with running_core(tmp_path / "ledger.db", observer=log) as core:
        box = ScriptedTools({"add": {"card": "4111", "sum": 3}})
        script = asks("", call("c1", "add", '{"pin": "1234", "to": "ada"}'))
        core.agent(adapter_of(G, script, says("done")), toolset=box, tool_calls=masks)
        await core.send("hi")
    [tool] = log.of(ToolSpan)
    assert (tool.arguments, tool.result) == (
        {"pin": "[redacted]", "to": "ada"},
        {"card": "[redacted]", "sum": 3},
    )
    turn = one(log)
    assert turn.said == [{"role": "user", "parts": [{"type": "text", "content": "hi"}]}]
    assert turn.answered == [
        {"role": "assistant", "parts": [{"type": "text", "content": "done"}], "finish_reason": "stop"}
    ]


# --- more than one process


async def test_a_process_that_takes_a_turn_over_goes_on_in_its_trace(tmp_path: Path) -> None:
    """The first process dies behind its first service call and its tool, before it has sent their spans."""
    path, lost, log = tmp_path / "ledger.db", SpanLog(), SpanLog()
    box = ScriptedTools({"add": "3"})
    async with running_core(path, prefix="one", observer=lost) as core:
        adapter = adapter_of(G, asks("", call("c1")), [Pause()])
        core.agent(adapter, toolset=box)
        await core.send("hi", replace(core.call(), trace=CALLER.text), at_once=True)
        await soon(adapter.paused.wait())
        await core.get((await core.list()).tasks[0].id)
    assert [type(span) for span in lost.spans] == [CallSpan, ToolSpan]
    adapter = adapter_of(G, says("done"))
    async with running_core(path, prefix="two", now=LATER, observer=log, adapter=adapter, toolset=box):
        await until(lambda: log.of(TurnSpan))
    assert [(type(span), span.failure) for span in log.spans] == [
        (CallSpan, ""),
        (TrySpan, RESTARTED),
        (ToolSpan, ""),
        (CallSpan, ""),
        (TurnSpan, ""),
    ]
    assert [span.place for span in lost.spans] == [log.spans[0].place, log.spans[2].place]
    turn, [_, second] = one(log), log.of(CallSpan)
    assert (turn.taken_over, turn.parent, second.attempts) == (True, CALLER.span_id, 2)
    assert (turn.began, second.began, second.ended) == (START, START, LATER)
    assert {span.place.trace_id for span in log.spans} == {CALLER.trace_id}
    assert len({span.place.span_id for span in log.spans}) == len(log.spans)


async def test_a_turn_that_no_process_can_go_on_with_is_told_by_the_one_that_ends_it(tmp_path: Path) -> None:
    path, log = tmp_path / "ledger.db", SpanLog()
    async with running_core(path, prefix="one", observer=SpanLog()) as core:
        waits = Pause()
        core.agent(adapter_of(G, asks("", call("c1"))), toolset=ScriptedTools({"add": waits}))
        await core.send("hi", at_once=True)
        await soon(waits.reached.wait())
        await core.get((await core.list()).tasks[0].id)
    async with running_core(path, prefix="two", now=LATER, observer=log):
        await until(lambda: log.of(TurnSpan))
    assert [(type(span), span.failure) for span in log.spans] == [
        (CallSpan, ""),
        (ToolSpan, "interrupted"),
        (TurnSpan, "tool-outcome-unknown"),
    ]
    assert one(log).place == log.spans[0].place.beside(one(log).place.span_id, sampled=True)


async def test_an_answer_that_comes_to_another_process_goes_on_in_the_same_trace(tmp_path: Path) -> None:
    path, lost, log = tmp_path / "ledger.db", SpanLog(), SpanLog()
    async with running_core(path, prefix="one", observer=lost) as core:
        setup(core, G, asks("", PAY))
        task = await start(core, call=replace(core.call(), trace=CALLER.text))
    async with running_core(path, prefix="two", now=LATER, observer=log) as core:
        setup(core, G, says("paid"))
        await reply(core, task.id, yes(asked(task)[0]["id"]))
    assert [type(span) for span in log.spans] == [CallSpan, ToolSpan, CallSpan, TurnSpan]
    assert log.spans[0].place == lost.spans[0].place
    assert (one(log).parent, one(log).taken_over, one(log).began) == (CALLER.span_id, True, START)


async def test_a_process_that_stops_leaves_the_spans_of_its_turns_to_the_next(tmp_path: Path) -> None:
    log = SpanLog()
    async with running_core(tmp_path / "ledger.db", observer=log) as core:
        adapter = ScriptedAdapter(BR, [TextDelta("a"), Pause()])
        core.agent(adapter)
        await core.send("hi", at_once=True)
        await soon(adapter.paused.wait())
    assert log.spans == []
