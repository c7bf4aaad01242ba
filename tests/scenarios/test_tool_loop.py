"""Rounds of service call, tools, service call: each tool runs once, the model gets each outcome once. Source:
docs/state-model.md, scenarios of groups E and F, and those of C and D with tools."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from gateway.a2a.model import Json, Task, TaskState
from gateway.a2a.tool_calls import URI
from gateway.core.failures import (
    ROUND_LIMIT,
    TOOL_OUTCOME_UNKNOWN,
    TOOLS_FAILING,
    TOOLS_UNAVAILABLE,
    TURN_TIMEOUT,
    UNKNOWN_TOOL,
)
from gateway.core.tools import tool_call
from gateway.ledger.calls import Complete
from gateway.ledger.tool_calls import ToolEnds, ToolStarts
from gateway.ports.adapter import (
    AdapterError,
    CallCompleted,
    CallStarted,
    ErrorClass,
    TextDelta,
    ToolCallAnnounced,
    ToolCallReady,
    ToolResultReady,
)
from gateway.ports.conversation import REFUSED_OUTPUT, CallItem, Ownership, decode, encode
from gateway.ports.tools import ToolError, ToolOutput
from tests.scenarios.test_golden_traces import OWNERS, Send, Sent, _fresh, refused, rejected
from tests.support.core import START, Core, answer, error_class, events, frames, query, running_core, soon, until
from tests.support.scripted import BR, BS, G, Pause, Script, ScriptedAdapter, says
from tests.support.scripted_tools import Answer, ScriptedTools

ALL = pytest.mark.parametrize("ownership", [G, BR, BS], ids=["G", "BR", "BS"])
BOTH_WAYS = pytest.mark.parametrize("streaming", [False, True], ids=["send", "stream"])

CALLS = "SELECT name, executor, status, outcome FROM tool_call ORDER BY id"
OPEN = "SELECT count(*) FROM tool_call WHERE outcome IS NULL"
NOT_RUN = tool_call.NOT_RUN
UNKNOWN = tool_call.OUTCOME_UNKNOWN


def call(call_id: str, name: str = "add", arguments: str = "{}", handled: bool | None = None) -> ToolCallReady:
    return ToolCallReady(call_id, name, arguments, handled)


def asks(handle: str, *calls: ToolCallReady | ToolResultReady) -> Script:
    return [*calls, CallCompleted(handle)]


def adapter_of(ownership: Ownership, *scripts: Script) -> ScriptedAdapter:
    return ScriptedAdapter(ownership, *(_fresh(script, ownership) for script in scripts))


def told(task: Task) -> list[tuple[str, str]]:
    """The phases in the task's record, by name."""
    messages = [*(task.history or ()), *([task.status.message] if task.status.message else [])]
    facts: list[Any] = [part.metadata.get(URI) for m in messages for part in m.parts if part.metadata]
    return [(fact["name"], fact["phase"]) for fact in facts if fact]


async def say(core: Core, text: str, *, streaming: bool) -> Task:
    """The task as it stands when its turn is over."""
    if not streaming:
        return await core.send(text, context="c")
    read = events(await frames(await core.stream(text, context="c")))
    assert read[0].task is not None
    return await core.get(read[0].task.id)


# --- the golden traces with tools of the gateway ---


@dataclass(frozen=True)
class Row:
    """As in the other golden traces, with the answers of the tools."""

    name: str
    script: list[Script]
    tools: dict[str, Answer]
    steps: list[Send]
    upstream: dict[str, Sent]
    tasks: list[str]
    policies: dict[str, Any] = field(default_factory=dict)


C1, C2 = call("c1", "one"), call("c2", "two")

ROWS = [
    Row(
        "one tool round",
        [asks("r1", C1), says("A1", "r2"), says("A2", "r3")],
        {"one": "O"},
        [Send("1"), Send("2")],
        {
            "G": [
                (None, ["U 1"]),
                (None, ["U 1", "C c1 one", "O c1 O"]),
                (None, ["U 1", "C c1 one", "O c1 O", "A A1", "U 2"]),
            ],
            "BR": [(None, ["U 1"]), ("r1", ["O c1 O"]), ("r2", ["U 2"])],
            "BS": [(None, ["U 1"]), ("c", ["O c1 O"]), ("c", ["U 2"])],
        },
        ["COMPLETED", "COMPLETED"],
    ),
    Row(
        "two parallel calls",
        [asks("r1", C1, C2), says("A1", "r2")],
        {"one": "O", "two": "P"},
        [Send("1")],
        {
            "G": [(None, ["U 1"]), (None, ["U 1", "C c1 one", "C c2 two", "O c1 O", "O c2 P"])],
            "BR": [(None, ["U 1"]), ("r1", ["O c1 O", "O c2 P"])],
            "BS": [(None, ["U 1"]), ("c", ["O c1 O", "O c2 P"])],
        },
        ["COMPLETED"],
    ),
    Row(
        "two rounds, then turn 2",
        [asks("r1", C1), asks("r2", C2), says("A1", "r3"), says("A2", "r4")],
        {"one": "O", "two": "P"},
        [Send("1"), Send("2")],
        {
            "G": [
                (None, ["U 1"]),
                (None, ["U 1", "C c1 one", "O c1 O"]),
                (None, ["U 1", "C c1 one", "O c1 O", "C c2 two", "O c2 P"]),
                (None, ["U 1", "C c1 one", "O c1 O", "C c2 two", "O c2 P", "A A1", "U 2"]),
            ],
            "BR": [(None, ["U 1"]), ("r1", ["O c1 O"]), ("r2", ["O c2 P"]), ("r3", ["U 2"])],
            "BS": [(None, ["U 1"]), ("c", ["O c1 O"]), ("c", ["O c2 P"]), ("c", ["U 2"])],
        },
        ["COMPLETED", "COMPLETED"],
    ),
    Row(
        "handled C1 and open C2",
        [
            asks("r1", call("c1", "one", handled=True), C2, ToolResultReady("c1", "X")),
            says("A1", "r2"),
        ],
        {"one": "never", "two": "P"},
        [Send("1")],
        {
            "G": [(None, ["U 1"]), (None, ["U 1", "C c1 one", "C c2 two", "O c1 X", "O c2 P"])],
            "BR": [(None, ["U 1"]), ("r1", ["O c2 P"])],
            "BS": [(None, ["U 1"]), ("c", ["O c2 P"])],
        },
        ["COMPLETED"],
    ),
    Row(
        "call 2 of a tool round fails, new message",
        [asks("r1", C1), rejected(), says("A2", "r2"), says("A3", "r3")],
        {"one": "O"},
        [Send("1"), Send("2"), Send("3")],
        {
            "G": [
                (None, ["U 1"]),
                (None, ["U 1", "C c1 one", "O c1 O"]),
                (None, ["U 1", "C c1 one", "O c1 O", "U 2"]),
                (None, ["U 1", "C c1 one", "O c1 O", "U 2", "A A2", "U 3"]),
            ],
            "BR": [(None, ["U 1"]), ("r1", ["O c1 O"]), ("r1", ["O c1 O", "U 2"]), ("r2", ["U 3"])],
            "BS": [(None, ["U 1"]), ("c", ["O c1 O"]), ("c", ["O c1 O", "U 2"]), ("c", ["U 3"])],
        },
        ["FAILED", "COMPLETED", "COMPLETED"],
    ),
    Row(
        "call 2 of a tool round fails, new message, per_turn",
        [asks("r1", C1), rejected(), says("A2", "r2")],
        {"one": "O"},
        [Send("1"), Send("2")],
        {
            "G": [(None, ["U 1"]), (None, ["U 1", "C c1 one", "O c1 O"]), (None, ["U 2"])],
            "BR": [(None, ["U 1"]), ("r1", ["O c1 O"]), (None, ["U 2"])],
        },
        ["FAILED", "COMPLETED"],
        {"persistence": "per_turn"},
    ),
    Row(
        "call 2 refused for a tool's output, new message",
        [asks("r1", C1), refused(), says("A2", "r2"), says("A3", "r3")],
        {"one": "O"},
        [Send("1"), Send("2"), Send("3")],
        {
            "G": [
                (None, ["U 1"]),
                (None, ["U 1", "C c1 one", "O c1 O"]),
                (None, ["U 1", "C c1 one", f"O c1 {REFUSED_OUTPUT}", "U 2"]),
                (None, ["U 1", "C c1 one", f"O c1 {REFUSED_OUTPUT}", "U 2", "A A2", "U 3"]),
            ],
            "BR": [(None, ["U 1"]), ("r1", ["O c1 O"]), ("r1", [f"O c1 {REFUSED_OUTPUT}", "U 2"]), ("r2", ["U 3"])],
            "BS": [(None, ["U 1"]), ("c", ["O c1 O"]), ("c", [f"O c1 {REFUSED_OUTPUT}", "U 2"]), ("c", ["U 3"])],
        },
        ["FAILED", "COMPLETED", "COMPLETED"],
    ),
    Row(
        "call 2 refused for a tool's output, per_turn",
        [asks("r1", C1), refused(), says("A2", "r2")],
        {"one": "O"},
        [Send("1"), Send("2")],
        {
            "G": [(None, ["U 1"]), (None, ["U 1", "C c1 one", "O c1 O"]), (None, ["U 2"])],
            "BR": [(None, ["U 1"]), ("r1", ["O c1 O"]), (None, ["U 2"])],
        },
        ["FAILED", "COMPLETED"],
        {"persistence": "per_turn"},
    ),
    Row(
        "call 2 refused for a tool's output, and what stands for it refused too",
        [says("A0", "r0"), asks("r1", C1), refused(), refused(), says("A2", "r2"), says("A3", "r3")],
        {"one": "O"},
        [Send("0"), Send("1"), Send("2"), Send("3")],
        {
            "G": [
                (None, ["U 0"]),
                (None, ["U 0", "A A0", "U 1"]),
                (None, ["U 0", "A A0", "U 1", "C c1 one", "O c1 O"]),
                (None, ["U 0", "A A0", "U 1", "C c1 one", f"O c1 {REFUSED_OUTPUT}", "U 2"]),
                (None, ["U 0", "A A0", "U 2"]),
                (None, ["U 0", "A A0", "U 2", "A A2", "U 3"]),
            ],
            "BR": [
                (None, ["U 0"]),
                ("r0", ["U 1"]),
                ("r1", ["O c1 O"]),
                ("r1", [f"O c1 {REFUSED_OUTPUT}", "U 2"]),
                ("r0", ["U 2"]),
                ("r2", ["U 3"]),
            ],
        },
        ["COMPLETED", "FAILED", "COMPLETED", "COMPLETED"],
    ),
    Row(
        "call 2 refused for a tool's output, and the next message refused",
        [asks("r1", C1), refused(), refused(), refused(), says("A3", "r3")],
        {"one": "O"},
        [Send("1"), Send("2"), Send("3")],
        {
            "G": [
                (None, ["U 1"]),
                (None, ["U 1", "C c1 one", "O c1 O"]),
                (None, ["U 1", "C c1 one", f"O c1 {REFUSED_OUTPUT}", "U 2"]),
                (None, ["U 2"]),
                (None, ["U 1", "C c1 one", f"O c1 {REFUSED_OUTPUT}", "U 3"]),
            ],
            "BR": [
                (None, ["U 1"]),
                ("r1", ["O c1 O"]),
                ("r1", [f"O c1 {REFUSED_OUTPUT}", "U 2"]),
                (None, ["U 2"]),
                ("r1", [f"O c1 {REFUSED_OUTPUT}", "U 3"]),
            ],
        },
        ["FAILED", "FAILED", "COMPLETED"],
    ),
    Row(
        "call 2 refused for a tool's output, static, and the next message refused",
        [asks("r1", C1), refused(), refused(), refused(), says("A3", "r3")],
        {"one": "O"},
        [Send("1"), Send("2"), Send("3")],
        {
            "BS": [
                (None, ["U 1"]),
                ("c", ["O c1 O"]),
                ("c", [f"O c1 {REFUSED_OUTPUT}", "U 2"]),
                ("c", ["U 2"]),
                ("c", [f"O c1 {REFUSED_OUTPUT}", "U 3"]),
            ],
        },
        ["FAILED", "FAILED", "COMPLETED"],
    ),
    Row(
        "call 2 refused for a tool's output, static, and what stands for it refused too, rebuild",
        [asks("r1", C1), refused(), refused(), refused(), says("A2", "r2"), says("A3", "r3")],
        {"one": "O"},
        [Send("1"), Send("2"), Send("3")],
        {
            "BS": [
                (None, ["U 1"]),
                ("c", ["O c1 O"]),
                ("c", [f"O c1 {REFUSED_OUTPUT}", "U 2"]),
                ("c", ["U 2"]),
                (None, ["U 1", "C c1 one", f"O c1 {REFUSED_OUTPUT}", "U 2"]),
                ("c", ["U 3"]),
            ],
        },
        ["FAILED", "COMPLETED", "COMPLETED"],
        {"on_lost_handle": "rebuild"},
    ),
    Row(
        "call 2 of a tool round fails, the next message refused",
        [asks("r1", C1), rejected(), refused(), refused(), refused(), says("A3", "r3")],
        {"one": "O"},
        [Send("1"), Send("2"), Send("3")],
        {
            "BS": [
                (None, ["U 1"]),
                ("c", ["O c1 O"]),
                ("c", ["O c1 O", "U 2"]),
                ("c", [f"O c1 {REFUSED_OUTPUT}", "U 2"]),
                ("c", ["U 2"]),
                ("c", ["O c1 O", "U 3"]),
            ],
        },
        ["FAILED", "FAILED", "COMPLETED"],
    ),
    Row(
        "call 2 of a tool round fails, its output refused with the next message",
        [asks("r1", C1), rejected(), refused(), says("A2", "r2"), says("A3", "r3")],
        {"one": "O"},
        [Send("1"), Send("2"), Send("3")],
        {
            "G": [
                (None, ["U 1"]),
                (None, ["U 1", "C c1 one", "O c1 O"]),
                (None, ["U 1", "C c1 one", "O c1 O", "U 2"]),
                (None, ["U 1", "C c1 one", f"O c1 {REFUSED_OUTPUT}", "U 2"]),
                (None, ["U 1", "C c1 one", f"O c1 {REFUSED_OUTPUT}", "U 2", "A A2", "U 3"]),
            ],
            "BR": [
                (None, ["U 1"]),
                ("r1", ["O c1 O"]),
                ("r1", ["O c1 O", "U 2"]),
                ("r1", [f"O c1 {REFUSED_OUTPUT}", "U 2"]),
                ("r2", ["U 3"]),
            ],
        },
        ["FAILED", "COMPLETED", "COMPLETED"],
    ),
]
CELLS = [(row, owner) for row in ROWS for owner in row.upstream]


@BOTH_WAYS
@pytest.mark.parametrize(("row", "owner"), CELLS, ids=[f"{row.name} - {owner}" for row, owner in CELLS])
async def test_what_is_sent_upstream_follows_from_what_was_said_and_done(
    core: Core, row: Row, owner: str, streaming: bool
) -> None:
    adapter = adapter_of(OWNERS[owner], *row.script)
    core.agent(adapter, toolset=ScriptedTools(row.tools), **row.policies)
    states = [(await say(core, step.text, streaming=streaming)).status.state.name for step in row.steps]
    assert adapter.sent == row.upstream[owner]
    assert states == row.tasks
    assert query(core.path, OPEN) == [(0,)]


# --- E: the loop ---


@ALL
async def test_62_parallel_calls_run_beside_each_other_and_answer_in_the_order_in_which_they_were_made(
    core: Core, ownership: Ownership
) -> None:
    slow, quick = Pause(), Pause()
    adapter = adapter_of(ownership, asks("r1", C1, C2), says("A1", "r2"))
    core.agent(adapter, toolset=ScriptedTools({"one": slow, "two": quick}))
    task = await core.send("1", context="c", at_once=True)
    await soon(slow.reached.wait())
    await soon(quick.reached.wait())
    quick.go.set()
    await _outcomes(core, 1)
    slow.go.set()
    await soon(core.runner.idle())
    assert (await core.get(task.id)).status.state is TaskState.COMPLETED
    assert adapter.sent[1][1][-2:] == ["O c1 done", "O c2 done"]


async def _outcomes(core: Core, count: int) -> None:
    """Returns when so many outcomes are stored."""
    stored = "SELECT count(*) FROM tool_call WHERE outcome IS NOT NULL"
    await until(lambda: query(core.path, stored)[0][0] >= count)


async def test_62_no_more_run_at_once_than_the_limit_allows(core: Core) -> None:
    first, second = Pause(), Pause()
    box = ScriptedTools({"one": first, "two": second})
    core.agent(adapter_of(G, asks("r1", C1, C2), says("A1")), toolset=box, parallel_tools=1)
    await core.send("1", context="c", at_once=True)
    await soon(first.reached.wait())
    assert box.ran == ["one"]
    first.go.set()
    await soon(second.reached.wait())
    second.go.set()
    await soon(core.runner.idle())
    assert box.ran == ["one", "two"]


@ALL
async def test_63_rounds_and_calls_are_numbered_from_0_without_gaps(core: Core, ownership: Ownership) -> None:
    scripts = [asks("r1", C1, C2), asks("r2", call("c3", "one")), says("A", "r3")]
    core.agent(adapter_of(ownership, *scripts), toolset=ScriptedTools({"one": 1, "two": 2}))
    await core.send("1", context="c")
    assert query(
        core.path,
        "SELECT round, sequence FROM tool_call JOIN service_call ON service_call.id = service_call ORDER BY 1, 2",
    ) == [(0, 0), (0, 1), (1, 0)]
    assert query(core.path, "SELECT round FROM service_call ORDER BY round") == [(0,), (1,), (2,)]


HANDLED: list[Script] = [
    asks("r1", call("c1", "one", handled=True), ToolResultReady("c1", "X")),
    asks("r1", call("c1", "one"), ToolResultReady("c1", "X")),
    [call("c1", "one"), TextDelta("a"), TextDelta("b"), ToolResultReady("c1", "X"), CallCompleted("r1")],
    asks("r1", ToolResultReady("c1", "X"), call("c1", "one")),
    [ToolCallAnnounced("c1", "one"), ToolResultReady("c1", "X"), call("c1", "one"), CallCompleted("r1")],
    asks(
        "r1", call("c1", "one", handled=True), call("c2", "two"), ToolResultReady("c2", "Y"), ToolResultReady("c1", "X")
    ),
]
NAMES = ["marked", "matched", "late result", "result first", "result between", "two loops"]


@BOTH_WAYS
@ALL
@pytest.mark.parametrize("script", HANDLED, ids=NAMES)
async def test_64_a_call_that_the_backend_answered_is_not_run_here(
    core: Core, script: Script, ownership: Ownership, streaming: bool
) -> None:
    box = ScriptedTools({"one": 1, "two": 2})
    adapter = adapter_of(ownership, script, says("A2", "r2"))
    core.agent(adapter, toolset=box)
    assert (await say(core, "1", streaming=streaming)).status.state is TaskState.COMPLETED
    assert (box.ran, len(adapter.requests)) == ([], 1)
    assert query(core.path, "SELECT DISTINCT executor, status FROM tool_call") == [("backend", "completed")]
    await say(core, "2", streaming=streaming)
    assert not [line for line in adapter.sent[1][1] if line.startswith("O") and ownership is not G]


@pytest.mark.parametrize("script", HANDLED[2:5], ids=NAMES[2:5])
async def test_65_whether_a_call_was_answered_is_decided_when_the_service_call_is_complete(
    core: Core, script: Script
) -> None:
    box = ScriptedTools({"one": 1})
    core.agent(adapter_of(G, script), toolset=box)
    await core.send("1", context="c")
    assert box.ran == []


async def test_66_a_result_may_come_before_its_call(core: Core) -> None:
    adapter = adapter_of(G, HANDLED[3], says("A2"))
    core.agent(adapter, toolset=ScriptedTools({"one": 1}))
    task = await core.send("1", context="c")
    assert told(task) == [("one", "requested"), ("one", "succeeded")]
    await core.send("2", context="c")
    assert adapter.sent[1][1] == ["U 1", "C c1 one", "O c1 X", "U 2"]


@ALL
async def test_67_in_layered_loops_each_call_runs_once_in_total(core: Core, ownership: Ownership) -> None:
    box = ScriptedTools({"one": "inner would be", "two": "P"})
    inner: list[ToolCallReady | ToolResultReady] = [call("c1", "one"), ToolResultReady("c1", "X")]
    scripts = [asks("r1", *inner, C2), asks("r2", call("c3", "one", handled=True), ToolResultReady("c3", "Z"))]
    core.agent(adapter_of(ownership, *scripts), toolset=box)
    await core.send("1", context="c")
    assert box.ran == ["two"]
    assert query(core.path, "SELECT external_id, executor FROM tool_call ORDER BY id") == [
        ("c1", "backend"),
        ("c2", "gateway"),
        ("c3", "backend"),
    ]


@BOTH_WAYS
async def test_68_a_call_for_information_is_not_run_and_left_out(core: Core, streaming: bool) -> None:
    box = ScriptedTools({"one": 1})
    adapter = adapter_of(G, [call("c1", "one", handled=True), *says("A1")], says("A2"))
    core.agent(adapter, toolset=box)
    await say(core, "1", streaming=streaming)
    await say(core, "2", streaming=streaming)
    assert box.ran == []
    assert query(core.path, "SELECT executor, status FROM tool_call") == [("backend", "external")]
    assert adapter.sent[1][1] == ["U 1", "A A1", "U 2"]


@pytest.mark.parametrize("handled", [True, False, None])
def test_69_the_mark_of_a_handled_call_survives_storage(handled: bool | None) -> None:
    item = CallItem("c1", "one", "{}", handled)
    assert decode(encode(item)) == item


async def test_70_calls_of_earlier_turns_are_not_run(core: Core) -> None:
    box = ScriptedTools({"one": 1})
    adapter = adapter_of(G, asks("r1", C1), says("A1"), says("A2"))
    core.agent(adapter, toolset=box)
    await core.send("1", context="c")
    await core.send("2", context="c")
    assert "C c1 one" in adapter.sent[2][1]
    assert box.ran == ["one"]


@ALL
async def test_71_of_handled_and_open_calls_only_the_open_ones_run_and_are_answered(
    core: Core, ownership: Ownership
) -> None:
    box = ScriptedTools({"one": 1, "two": 2})
    scripts = [asks("r1", call("c1", "one"), ToolResultReady("c1", "X"), C2), says("A1", "r2")]
    adapter = adapter_of(ownership, *scripts)
    core.agent(adapter, toolset=box)
    await core.send("1", context="c")
    assert box.ran == ["two"]
    assert adapter.sent[1][1] == (["U 1", "C c1 one", "O c1 X", "C c2 two", "O c2 2"] if ownership is G else ["O c2 2"])


@BOTH_WAYS
@ALL
async def test_74_the_result_of_a_call_that_nobody_made_is_kept_and_never_sent(
    core: Core, ownership: Ownership, streaming: bool
) -> None:
    adapter = adapter_of(ownership, [ToolResultReady("ghost", "boo"), *says("A1", "r1")], says("A2", "r2"))
    core.agent(adapter, toolset=ScriptedTools({"one": 1}))
    assert (await say(core, "1", streaming=streaming)).status.state is TaskState.COMPLETED
    await say(core, "2", streaming=streaming)
    assert not [line for line in adapter.sent[1][1] if "boo" in line]
    assert query(core.path, "SELECT replayable FROM history_item WHERE kind = 'output'") == [(0,)]


@BOTH_WAYS
@ALL
async def test_75_an_unknown_tool_is_told_to_the_model_and_its_siblings_run(
    core: Core, ownership: Ownership, streaming: bool
) -> None:
    box = ScriptedTools({"two": "P"})
    adapter = adapter_of(ownership, asks("r1", call("c1", "nope"), C2), says("A1", "r2"))
    core.agent(adapter, toolset=box)
    task = await say(core, "1", streaming=streaming)
    assert (task.status.state, box.ran) == (TaskState.COMPLETED, ["two"])
    assert adapter.sent[1][1][-2:] == [f"O c1 {tool_call.NO_SUCH_TOOL}", "O c2 P"]
    assert query(core.path, "SELECT status FROM tool_call ORDER BY sequence") == [("not_found",), ("completed",)]


@ALL
async def test_75_where_it_is_said_so_an_unknown_tool_fails_the_turn(core: Core, ownership: Ownership) -> None:
    box = ScriptedTools({"two": "P"})
    adapter = adapter_of(ownership, asks("r1", call("c1", "nope"), C2), says("A2", "r2"))
    core.agent(adapter, toolset=box, unknown_tool="fail")
    task = await core.send("1", context="c")
    assert (error_class(task), box.ran) == (UNKNOWN_TOOL, [])
    await core.send("2", context="c")
    refusal = f"O c1 {tool_call.NO_SUCH_TOOL}"
    assert adapter.sent[1][1] == (
        ["U 1", "C c1 nope", refusal, "U 2"] if ownership is G else [refusal, f"O c2 {NOT_RUN}", "U 2"]
    )


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("password is hunter2"),
        ToolError("db at 10.0.0.1 is down"),
        BaseExceptionGroup("x", [ValueError("y")]),
    ],
)
@BOTH_WAYS
async def test_76_a_tool_that_raises_is_told_in_general_words_and_its_siblings_go_on(
    core: Core, error: Exception, streaming: bool
) -> None:
    adapter = adapter_of(BR, asks("r1", C1, C2), says("A1", "r2"))
    core.agent(adapter, toolset=ScriptedTools({"one": error, "two": "P"}))
    task = await say(core, "1", streaming=streaming)
    assert task.status.state is TaskState.COMPLETED
    assert adapter.sent[1][1] == [f"O c1 {tool_call.FAILED}", "O c2 P"]
    assert "hunter2" not in str(query(core.path, "SELECT * FROM tool_call"))
    assert ("one", "failed") in told(task)


async def test_76_a_tool_says_itself_that_it_failed_and_why(core: Core) -> None:
    adapter = adapter_of(BR, asks("r1", C1), says("A1", "r2"))
    core.agent(adapter, toolset=ScriptedTools({"one": ToolOutput({"why": "no such city"}, error=True)}))
    await core.send("1", context="c")
    assert adapter.sent[1][1] == ["O c1 {'why': 'no such city'}"]
    assert query(core.path, CALLS)[0][2] == "failed"


async def test_77_a_tool_that_hangs_is_cut_off_and_the_loop_goes_on(core: Core) -> None:
    adapter = adapter_of(BR, asks("r1", C1, C2), says("A1", "r2"))
    core.agent(adapter, toolset=ScriptedTools({"one": Pause(), "two": "P"}, timeout=0.02))
    task = await core.send("1", context="c")
    assert task.status.state is TaskState.COMPLETED
    assert adapter.sent[1][1] == [f"O c1 {tool_call.TIMED_OUT}", "O c2 P"]
    assert query(core.path, CALLS)[0][2] == "cancelled"


@ALL
async def test_78_three_rounds_of_nothing_but_failures_end_the_turn(core: Core, ownership: Ownership) -> None:
    scripts = [asks(f"r{n}", call(f"c{n}", "one")) for n in range(3)]
    adapter = adapter_of(ownership, *scripts, says("A2", "r9"))
    core.agent(adapter, toolset=ScriptedTools({"one": ToolError("down")}))
    assert error_class(await core.send("1", context="c")) == TOOLS_FAILING
    assert query(core.path, "SELECT status FROM tool_call") == [("failed",)] * 3
    await core.send("2", context="c")
    assert adapter.sent[3][1][-2:] == [f"O c2 {tool_call.FAILED}", "U 2"]


@ALL
async def test_79_at_the_limit_of_rounds_one_last_call_goes_without_tools(core: Core, ownership: Ownership) -> None:
    scripts = [asks("r1", C1), asks("r2", call("c3", "one")), says("enough", "r3")]
    adapter = adapter_of(ownership, *scripts)
    core.agent(adapter, toolset=ScriptedTools({"one": 1}), tool_rounds=2)
    assert answer(await core.send("1", context="c")) == "enough"
    assert [len(request.tools) for request in adapter.requests] == [1, 1, 0]


@ALL
@pytest.mark.parametrize("action", ["final_call_without_tools", "fail"])
async def test_79_a_call_beyond_the_limit_is_closed_and_the_turn_fails(
    core: Core, ownership: Ownership, action: str
) -> None:
    box = ScriptedTools({"one": 1})
    adapter = adapter_of(ownership, asks("r1", C1), asks("r2", call("c3", "one")), says("A2", "r3"))
    core.agent(adapter, toolset=box, tool_rounds=1, round_limit_action=action)
    task = await core.send("1", context="c")
    assert (error_class(task), box.ran, query(core.path, OPEN)) == (ROUND_LIMIT, ["one"], [(0,)])
    await core.send("2", context="c")
    closed = f"O c3 {tool_call.LIMIT_REACHED}"
    assert adapter.sent[2][1][-2:] == [closed, "U 2"]


@ALL
async def test_80_calls_that_did_not_start_when_the_turn_was_canceled_are_closed_too(
    core: Core, ownership: Ownership
) -> None:
    running = Pause()
    box = ScriptedTools({"one": running, "two": 2})
    adapter = adapter_of(ownership, asks("r1", C1, C2), says("A2", "r2"))
    core.agent(adapter, toolset=box, parallel_tools=1)
    task = await core.send("1", context="c", at_once=True)
    await soon(running.reached.wait())
    assert (await core.cancel(task.id)).status.state is TaskState.CANCELED
    assert query(core.path, "SELECT status FROM tool_call ORDER BY sequence") == [("interrupted",), ("cancelled",)]
    await core.send("2", context="c")
    unknown = f"O c1 {UNKNOWN}"
    assert adapter.sent[1][1] == (
        ["U 1", "C c1 one", unknown, "U 2"] if ownership is G else [unknown, f"O c2 {NOT_RUN}", "U 2"]
    )


@ALL
async def test_82_an_external_id_that_comes_again_in_another_response_is_another_call(
    core: Core, ownership: Ownership
) -> None:
    box = ScriptedTools({"one": lambda arguments: arguments["n"]})
    scripts = [asks("r1", call("c1", "one", '{"n":1}')), asks("r2", call("c1", "one", '{"n":2}')), says("A", "r3")]
    adapter = adapter_of(ownership, *scripts)
    core.agent(adapter, toolset=box)
    await core.send("1", context="c")
    assert [run.arguments for run in box.runs] == [{"n": 1}, {"n": 2}]
    assert adapter.sent[2][1] == (["U 1", "C c1 one", "O c1 1", "C c1 one", "O c1 2"] if ownership is G else ["O c1 2"])
    assert len({run.key for run in box.runs}) == 2


THREAD_IDS = {name: replace(owned, call_ids="thread") for name, owned in (("G", G), ("BR", BR), ("BS", BS))}


@pytest.mark.parametrize("ownership", THREAD_IDS.values(), ids=THREAD_IDS)
async def test_82_where_ids_hold_for_the_thread_the_same_call_is_run_once_and_its_result_used_again(
    core: Core, ownership: Ownership
) -> None:
    box = ScriptedTools({"one": "O"})
    adapter = adapter_of(ownership, asks("r1", C1), says("A1", "r2"), asks("r3", C1), says("A2", "r4"))
    core.agent(adapter, toolset=box)
    await core.send("1", context="c")
    await core.send("2", context="c")
    assert box.ran == ["one"]
    assert adapter.sent[3][1][-1] == "O c1 O"


@pytest.mark.parametrize("ownership", THREAD_IDS.values(), ids=THREAD_IDS)
async def test_82_where_ids_hold_for_the_thread_another_call_of_the_same_id_is_refused_before_it_runs(
    core: Core, ownership: Ownership
) -> None:
    box = ScriptedTools({"one": "O"})
    other = call("c1", "one", '{"n":2}')
    core.agent(adapter_of(ownership, asks("r1", C1), asks("r2", other)), toolset=box)
    assert error_class(await core.send("1", context="c")) == ErrorClass.CONTRACT_BROKEN
    assert (box.ran, query(core.path, OPEN)) == (["one"], [(0,)])


@ALL
async def test_83_calls_without_an_id_are_known_by_one_of_ours_on_both_sides(core: Core, ownership: Ownership) -> None:
    scripts = [asks("r1", call("", "one"), call("", "two")), says("A1", "r2"), says("A2", "r3")]
    adapter = adapter_of(ownership, *scripts)
    core.agent(adapter, toolset=ScriptedTools({"one": 1, "two": 2}))
    await core.send("1", context="c")
    (one, first), (two, second) = query(core.path, "SELECT id, external_id FROM tool_call ORDER BY sequence")
    assert (one, two) == (first, second)
    assert adapter.sent[1][1][-2:] == [f"O {one} 1", f"O {two} 2"]


@ALL
@pytest.mark.parametrize("raw", ["{broken", "[1]", '"text"', "nan"])
async def test_84_arguments_that_are_no_object_are_kept_and_told_as_a_failure(
    core: Core, ownership: Ownership, raw: str
) -> None:
    box = ScriptedTools({"one": 1})
    adapter = adapter_of(ownership, asks("r1", call("c1", "one", raw)), says("A1", "r2"))
    core.agent(adapter, toolset=box)
    task = await core.send("1", context="c")
    assert (task.status.state, box.ran) == (TaskState.COMPLETED, [])
    assert query(core.path, "SELECT arguments, status FROM tool_call") == [(raw, "failed")]
    assert adapter.sent[1][1][-1] == f"O c1 {tool_call.NO_OBJECT}"
    assert (await core.get(task.id)).status.state is TaskState.COMPLETED


async def test_84_arguments_that_do_not_fit_the_schema_are_told_and_the_tool_never_sees_them(core: Core) -> None:
    box = ScriptedTools({"one": 1})
    adapter = adapter_of(BR, asks("r1", call("c1", "one", '{"bad":1}')), says("A1", "r2"))
    core.agent(adapter, toolset=box)
    await core.send("1", context="c")
    assert (box.ran, adapter.sent[1][1]) == ([], ["O c1 The arguments do not fit: no 'bad' here"])


# --- C and D: what is stored when ---


@ALL
async def test_33_the_canonical_chain_has_a_handle_for_each_service_call(core: Core, ownership: Ownership) -> None:
    adapter = adapter_of(ownership, asks("r1", C1), says("A1", "r2"), says("A2", "r3"))
    core.agent(adapter, toolset=ScriptedTools({"one": "O"}))
    await core.send("1", context="c")
    await core.send("2", context="c")
    handles = [handle for handle, _ in adapter.sent]
    assert handles == {"G": [None] * 3, "BR": [None, "r1", "r2"], "BS": [None, "c", "c"]}[_name(ownership)]
    assert query(core.path, "SELECT handle FROM thread") == [({"G": None, "BR": "r3", "BS": "c"}[_name(ownership)],)]


def _name(ownership: Ownership) -> str:
    return {id(G): "G", id(BR): "BR", id(BS): "BS"}[id(ownership)]


async def test_34_the_clean_handle_is_the_last_one_without_open_calls(core: Core) -> None:
    waits = Pause()
    core.agent(
        adapter_of(BR, says("A1", "r1"), asks("r2", C1), says("A2", "r3")), toolset=ScriptedTools({"one": waits})
    )
    await core.send("1", context="c")
    await core.send("2", context="c", at_once=True)
    await soon(waits.reached.wait())
    assert query(core.path, "SELECT handle, clean_handle FROM thread") == [("r2", "r1")]
    waits.go.set()
    await soon(core.runner.idle())
    assert query(core.path, "SELECT handle, clean_handle FROM thread") == [("r3", "r3")]


async def test_48_no_tool_starts_before_its_service_call_is_stored(core: Core) -> None:
    box = ScriptedTools({"one": 1})
    core.agent(adapter_of(BR, asks("r1", C1), says("A1", "r2")), toolset=box)
    gate = core.ledger.hold(Complete)
    task = await core.send("1", context="c", at_once=True)
    await soon(gate.reached.wait())
    assert box.ran == []
    core.ledger.let_go()
    await soon(core.runner.idle())
    assert (box.ran, (await core.get(task.id)).status.state) == (["one"], TaskState.COMPLETED)


async def test_48_no_tool_runs_before_its_start_is_stored(core: Core) -> None:
    box = ScriptedTools({"one": 1})
    core.agent(adapter_of(BR, asks("r1", C1), says("A1", "r2")), toolset=box)
    gate = core.ledger.hold(ToolStarts)
    await core.send("1", context="c", at_once=True)
    await soon(gate.reached.wait())
    assert box.ran == []
    core.ledger.let_go()
    await soon(core.runner.idle())
    assert box.ran == ["one"]


@ALL
async def test_49_an_outcome_is_stored_at_once_and_outlives_a_crash(tmp_path: Path, ownership: Ownership) -> None:
    path = tmp_path / "ledger.db"
    slow = Pause()
    async with running_core(path, prefix="one") as one:
        one.agent(adapter_of(ownership, asks("r1", C1, C2)), toolset=ScriptedTools({"one": "O", "two": slow}))
        await one.send("1", context="c", at_once=True)
        await soon(slow.reached.wait())
        await _outcomes(one, 1)
    adapter = adapter_of(ownership, says("A2", "r2"))
    async with running_core(path, prefix="two", now=START + 10**7) as two:
        two.agent(adapter)
        await two.send("2", context="c")
    assert query(path, "SELECT status FROM tool_call ORDER BY sequence") == [("completed",), ("interrupted",)]
    unknown = f"O c2 {UNKNOWN}"
    assert adapter.sent == [
        (None, ["U 1", "C c1 one", "C c2 two", "O c1 O", unknown, "U 2"])
        if ownership is G
        else ("r1" if ownership is BR else "c", ["O c1 O", unknown, "U 2"])
    ]


@ALL
async def test_50_a_tool_that_acted_before_a_crash_is_not_run_again_and_the_model_is_told(
    tmp_path: Path, ownership: Ownership
) -> None:
    path = tmp_path / "ledger.db"
    effects: list[Json] = []

    def act(arguments: dict[str, Any]) -> str:
        effects.append(arguments)
        return "O"

    async with running_core(path, prefix="one") as one:
        one.agent(adapter_of(ownership, asks("r1", C1)), toolset=ScriptedTools({"one": act}))
        lost = one.ledger.refuse(ToolEnds)
        task = await one.send("1", context="c", at_once=True)
        await soon(lost.wait())
        await soon(one.runner.idle())
    adapter = adapter_of(ownership, says("A2", "r2"))
    async with running_core(path, prefix="two", now=START + 10**7) as two:
        two.agent(adapter, toolset=ScriptedTools({"one": act}))
        left = await two.get(task.id)
        assert (left.status.state, error_class(left)) == (TaskState.FAILED, TOOL_OUTCOME_UNKNOWN)
        await two.send("2", context="c")
    assert effects == [{}]
    assert query(path, "SELECT status FROM tool_call") == [("interrupted",)]
    assert adapter.sent[0][1][-2:] == [f"O c1 {UNKNOWN}", "U 2"]


@ALL
@pytest.mark.parametrize("how", ["the stream is cut", "cancelled"])
async def test_48_a_call_of_an_answer_that_is_cut_never_ran_and_says_so(
    core: Core, ownership: Ownership, how: str
) -> None:
    pause = Pause()
    end = pause if how == "cancelled" else AdapterError(ErrorClass.INTERRUPTED, "cut")
    adapter = adapter_of(ownership, [*asks("r1", C1)[:-1], end], says("A2", "r2"))
    core.agent(adapter, toolset=(tools := ScriptedTools({"one": "O"})))
    task = await core.send("1", context="c", at_once=True)
    if how == "cancelled":
        await soon(pause.reached.wait())
        await core.cancel(task.id)
    await soon(core.runner.idle())
    parts = [part for message in (await core.get(task.id)).history or () for part in message.parts]
    told: list[Any] = [part.metadata[URI] for part in parts if part.metadata and URI in part.metadata]
    assert ([fact["phase"] for fact in told], tools.ran) == (["requested", "cancelled"], [])
    await core.send("2", context="c")
    assert [item for item in adapter.sent[1][1] if not item.startswith("U ")] == []


@ALL
async def test_52_after_a_failure_inside_the_loop_the_view_is_coherent(core: Core, ownership: Ownership) -> None:
    cut: Script = [CallStarted("r2"), TextDelta("boo"), AdapterError(ErrorClass.INTERRUPTED, "cut")]
    adapter = adapter_of(ownership, asks("r1", C1), cut, says("A2", "r3"))
    core.agent(adapter, toolset=ScriptedTools({"one": "O"}))
    assert (await core.send("1", context="c")).status.state is TaskState.FAILED
    await core.send("2", context="c")
    handle = {"G": None, "BR": "r1", "BS": "c"}[_name(ownership)]
    before = ["U 1", "C c1 one"] if ownership is G else []
    assert adapter.sent[2] == (handle, [*before, "O c1 O", "U 2"])


@ALL
async def test_53_results_of_a_loop_that_stopped_go_first_with_the_next_message(
    core: Core, ownership: Ownership
) -> None:
    pause = Pause()
    adapter = adapter_of(ownership, asks("r1", C1), [pause], says("A2", "r3"))
    core.agent(adapter, toolset=ScriptedTools({"one": "O"}))
    task = await core.send("1", context="c", at_once=True)
    await soon(pause.reached.wait())
    await core.cancel(task.id)
    assert query(core.path, "SELECT kind FROM history_item WHERE sent_in IS NULL AND kind = 'output'") == [("output",)]
    await core.send("2", context="c")
    assert adapter.sent[2][1][-2:] == ["O c1 O", "U 2"]


@pytest.mark.parametrize("ownership", [G, BR], ids=["G", "BR"])
async def test_54_a_turn_with_tools_that_succeeded_looks_the_same_whatever_the_setting(
    tmp_path: Path, ownership: Ownership
) -> None:
    seen = []
    for setting in ("per_service_call", "per_turn"):
        async with running_core(tmp_path / f"{setting}.db") as core:
            adapter = adapter_of(ownership, asks("r1", C1), says("A1", "r2"), says("A2", "r3"))
            core.agent(adapter, toolset=ScriptedTools({"one": "O"}), persistence=setting)
            await core.send("1", context="c")
            await core.send("2", context="c")
            seen.append((adapter.sent, query(core.path, "SELECT kind, payload FROM history_item ORDER BY position")))
    assert seen[0] == seen[1]


async def test_56_no_tool_runs_when_its_service_call_cannot_be_stored(core: Core) -> None:
    box = ScriptedTools({"one": 1})
    core.agent(adapter_of(BR, asks("r1", C1)), toolset=box)
    lost = core.ledger.refuse(Complete)
    await core.send("1", context="c", at_once=True)
    await soon(lost.wait())
    await soon(core.runner.idle())
    assert box.ran == []


# --- F: what the view shows ---


@ALL
async def test_86_a_round_none_of_whose_calls_ran_is_left_out_of_a_history_of_ours(
    core: Core, ownership: Ownership
) -> None:
    box = ScriptedTools({"one": 1, "two": 2})
    adapter = adapter_of(ownership, asks("r1", C1, C2), says("A2", "r2"))
    core.agent(adapter, toolset=box)
    gate = core.ledger.hold(ToolStarts)
    task = await core.send("1", context="c", at_once=True)
    await soon(gate.reached.wait())
    work = core.runner.run_of(task.id)
    assert work is not None
    core.runner.request_cancel(work)
    core.ledger.let_go()
    await soon(core.runner.idle())
    statuses = query(core.path, "SELECT DISTINCT status FROM tool_call")
    await core.send("2", context="c")
    assert set(statuses) <= {("cancelled",), ("interrupted",)}
    assert query(core.path, OPEN) == [(0,)]


@BOTH_WAYS
@pytest.mark.parametrize("window", [{"history_messages": 1}, {"history_messages": 2}, {"history_tokens": 1}])
async def test_124_a_window_never_cuts_a_round_nor_the_turn_that_runs(
    core: Core, window: dict[str, Any], streaming: bool
) -> None:
    scripts = [asks("r1", C1), says("A1"), asks("r2", C1, C2), [TextDelta("so"), *asks("r3", C2)], says("A2")]
    adapter = adapter_of(G, *scripts)
    core.agent(adapter, toolset=ScriptedTools({"one": "O", "two": "P"}), **window)
    await say(core, "1", streaming=streaming)
    await say(core, "2", streaming=streaming)
    second = ["U 2", "C c1 one", "C c2 two", "O c1 O", "O c2 P"]
    assert adapter.sent[3][1][-5:] == second
    assert adapter.sent[4][1] == [*second, "A so", "C c2 two", "O c2 P"]


@pytest.mark.parametrize("empty", ["", [], 0, False, None, {}])
@ALL
async def test_88_an_empty_result_is_an_outcome(core: Core, ownership: Ownership, empty: Json) -> None:
    adapter = adapter_of(ownership, asks("r1", C1), says("A1", "r2"))
    core.agent(adapter, toolset=ScriptedTools({"one": ToolOutput(empty)}))
    assert (await core.send("1", context="c")).status.state is TaskState.COMPLETED
    assert adapter.sent[1][1][-1] == f"O c1 {empty}"
    assert query(core.path, "SELECT status FROM tool_call") == [("completed",)]


# --- G: what callers see ---


@ALL
async def test_101_a_turn_with_tools_leaves_the_same_ledger_both_ways(tmp_path: Path, ownership: Ownership) -> None:
    seen = []
    for streaming in (False, True):
        async with running_core(tmp_path / f"{streaming}.db") as core:
            scripts = [
                asks("r1", C1, call("c2", "nope")),
                [TextDelta("so "), *asks("r2", call("c3", "two"))],
                says("A1", "r3"),
            ]
            core.agent(adapter_of(ownership, *scripts), toolset=ScriptedTools({"one": "O", "two": "P"}))
            task = await say(core, "1", streaming=streaming)
            stored = [
                query(core.path, sql)
                for sql in (
                    "SELECT kind, payload, replayable FROM history_item ORDER BY position",
                    CALLS,
                    "SELECT handle, clean_handle FROM thread",
                    "SELECT round, attempt, status, handle_in, handle_out FROM service_call ORDER BY id",
                )
            ]
            seen.append((stored, told(task), answer(task)))
    assert seen[0] == seen[1]


async def test_103_a_tool_call_is_told_from_request_to_end_under_one_id_live_and_in_the_record(core: Core) -> None:
    core.agent(
        adapter_of(BR, [ToolCallAnnounced("c1", "one"), *asks("r1", C1)], says("A1", "r2")),
        toolset=ScriptedTools({"one": "O"}),
    )
    read = events(await frames(await core.stream("1", context="c")))
    facts: list[Any] = []
    for event in read:
        update = event.status_update
        if update is not None:
            places = [
                update.metadata,
                *(p.metadata for p in (update.status.message.parts if update.status.message else ())),
            ]
            facts += [place[URI] for place in places if place and URI in place]
    assert [fact["phase"] for fact in facts] == ["args-delta", "requested", "executing", "succeeded"]
    assert {(fact["callId"], fact["origin"], fact["server"]) for fact in facts} == {
        (facts[0]["callId"], "gateway", "test:box")
    }
    assert read[0].task is not None
    task = await core.get(read[0].task.id)
    assert told(task) == [("one", "requested"), ("one", "succeeded")]
    assert answer(task) == "A1"


async def test_103_a_call_that_a_crash_cut_short_has_its_end_in_the_record_too(tmp_path: Path) -> None:
    path, running = tmp_path / "ledger.db", Pause()
    async with running_core(path, prefix="one") as one:
        one.agent(
            adapter_of(BR, asks("r1", C1, C2)), toolset=ScriptedTools({"one": running, "two": 2}), parallel_tools=1
        )
        task = await one.send("1", context="c", at_once=True)
        await soon(running.reached.wait())
    async with running_core(path, prefix="two", adapter=ScriptedAdapter(BR), now=START + 10**7) as two:
        shown = await two.get(task.id)
    assert shown.status.state is TaskState.FAILED
    assert [phase for phase in told(shown) if phase[1] != "requested"] == [("one", "interrupted"), ("two", "cancelled")]


async def test_tools_that_cannot_be_reached_fail_the_turn_with_a_safe_text(core: Core) -> None:
    box = ScriptedTools({"one": 1})
    box.unreachable = "https://secret@tools is down"
    core.agent(adapter_of(BR, says("A1", "r1")), toolset=box)
    task = await core.send("1", context="c")
    assert error_class(task) == TOOLS_UNAVAILABLE
    assert "secret" not in str(task)


async def test_a_turn_that_runs_out_of_time_in_a_tool_ends_with_its_outcome_unknown(core: Core) -> None:
    core.agent(adapter_of(BR, asks("r1", C1)), toolset=ScriptedTools({"one": Pause()}), turn_timeout=0.5)
    assert error_class(await core.send("1", context="c")) == TURN_TIMEOUT
    assert query(core.path, "SELECT status FROM tool_call") == [("interrupted",)]
