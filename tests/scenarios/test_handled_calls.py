"""A function that the backend may already have run runs once in total, whatever the shape of call and result. The lists are
known failures of layered function loops.

Source: docs/state-model.md, scenarios 64 to 73.
"""

from dataclasses import dataclass

import msgspec
import pytest

from gateway.a2a.model import TaskState
from gateway.ports.adapter import (
    CallCompleted,
    ReasoningDelta,
    TextDelta,
    ToolCallAnnounced,
    ToolCallReady,
    ToolResultReady,
)
from gateway.ports.conversation import CallItem, Item, OutputItem, Ownership, decode, encode
from tests.scenarios.test_tool_loop import adapter_of, call, say
from tests.support.core import Core, query
from tests.support.scripted import BR, BS, G, Script
from tests.support.scripted_tools import ScriptedTools


@dataclass(frozen=True)
class Case:
    """`ran`: the functions that run here, in the order of their calls."""

    name: str
    scripts: list[Script]
    ran: list[str]


A, B, C = (call(f"c-{name}", name) for name in "abc")
RA, RB, RC = (ToolResultReady(f"c-{name}", f"R{name}") for name in "abc")
END = CallCompleted("r1")
LAST: Script = [TextDelta("done"), CallCompleted("r9")]


def marked(made: ToolCallReady, handled: bool | None) -> ToolCallReady:
    return msgspec.structs.replace(made, handled=handled)


CASES = [
    Case("nothing is handled", [[A, END], LAST], ["a"]),
    Case("call and result in one message", [[A, RA, END]], []),
    Case("call and result in separate messages", [[A, TextDelta("then"), RA, TextDelta("so"), END]], []),
    Case("the result before the call", [[RA, A, END]], []),
    Case("the result later in the stream", [[A, *[TextDelta("x")] * 20, RA, END]], []),
    Case("arguments in pieces, the result between", [[ToolCallAnnounced("c-a", "a"), RA, A, END]], []),
    Case("some of the calls have results", [[A, B, C, RB, END], LAST], ["a", "c"]),
    Case("results in another order than the calls", [[A, B, C, RC, RA, END], LAST], ["b"]),
    Case("all calls have results", [[A, B, RB, RA, END]], []),
    Case("text between all of them", [[TextDelta("1"), A, TextDelta("2"), RA, B, TextDelta("3"), END], LAST], ["b"]),
    Case("thoughts between all of them", [[ReasoningDelta("1"), A, ReasoningDelta("2"), RA, B, END], LAST], ["b"]),
    Case("marked as handled, with its result", [[marked(A, True), RA, END]], []),
    Case("marked as handled, without a result", [[marked(A, True), TextDelta("so"), END]], []),
    Case("marked as open", [[marked(A, False), END], LAST], ["a"]),
    Case("marked as open, and answered all the same", [[marked(A, False), RA, END]], []),
    Case("handled and open by mark", [[marked(A, True), marked(B, False), RA, END], LAST], ["b"]),
    Case("two loops: the inner one answers its own call", [[A, RA, B, END], LAST], ["b"]),
    Case("two loops: the inner one works in every round", [[A, RA, B, END], [C, RC, TextDelta("so"), END]], ["b"]),
    Case("three loops: each answers what is its own", [[A, RA, marked(B, True), RB, C, END], LAST], ["c"]),
    Case("three loops: nothing is left for the outermost", [[A, RA, marked(B, True), RB, C, RC, END]], []),
    Case("a result of a call that nobody made", [[RB, A, END], LAST], ["a"]),
]


@pytest.mark.parametrize("streaming", [False, True], ids=["send", "stream"])
@pytest.mark.parametrize("ownership", [G, BR, BS], ids=["G", "BR", "BS"])
@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
async def test_67_each_function_runs_once_in_total(
    core: Core, case: Case, ownership: Ownership, streaming: bool
) -> None:
    box = ScriptedTools({"a": "Ra", "b": "Rb", "c": "Rc"})
    adapter = adapter_of(ownership, *case.scripts)
    core.agent(adapter, toolset=box)
    task = await say(core, "1", streaming=streaming)
    assert task.status.state is TaskState.COMPLETED
    assert box.ran == case.ran
    assert len(adapter.requests) == len(case.scripts)
    outcomes = query(core.path, "SELECT executor, count(*) FROM tool_call WHERE outcome IS NOT NULL GROUP BY executor")
    assert dict(outcomes).get("gateway", 0) == len(case.ran)
    later = [item for request in adapter.requests[1:] for item in request.items]
    sent_later = [item.call_id for item in later if isinstance(item, OutputItem)]
    if ownership is not G:
        assert sent_later == [f"c-{name}" for name in case.ran]
    else:
        assert len(sent_later) == len(set(sent_later))


@pytest.mark.parametrize("handled", [True, False, None])
@pytest.mark.parametrize("trips", [1, 3])
def test_69_the_mark_comes_back_from_json_as_it_was(handled: bool | None, trips: int) -> None:
    item: Item = CallItem("c-a", "a", '{"n":1}', handled)
    for _ in range(trips):
        item = decode(encode(item))
    assert item == CallItem("c-a", "a", '{"n":1}', handled)


def test_69_a_call_stored_without_the_mark_has_none() -> None:
    assert decode(b'{"kind":"call","call_id":"c","name":"a","arguments":"{}"}') == CallItem("c", "a", "{}")
