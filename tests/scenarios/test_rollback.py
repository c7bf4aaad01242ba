"""`busy_context: rollback`: a second message cancels the running turn, and the conversation continues without it. The ledger
and the task keep the turn; effects of tools stay. Source: docs/state-model.md, scenario 133."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway.a2a.errors import UnsupportedOperation
from gateway.a2a.model import Task, TaskState
from gateway.core.tools import tool_call
from gateway.core.tools.approval_rules import ApprovalRule
from gateway.ledger.calls import Complete, Fail, Prepare
from gateway.ledger.documents import Import
from gateway.ledger.points import CommitPoint
from gateway.ledger.tasks import Finish
from gateway.ledger.threads import Caller, Displace, RevertIfDisplaced
from gateway.ledger.tool_calls import ToolEnds, ToolStarts
from gateway.ledger.turns import Accept
from gateway.ports.adapter import (
    AdapterError,
    CallCompleted,
    CallStarted,
    ErrorClass,
    ItemReady,
    ServiceRequest,
    TextDelta,
    ToolCallReady,
)
from gateway.ports.capabilities import Fate, Fetched
from gateway.ports.conversation import OpaqueItem, Ownership
from gateway.scheduling.leases import LeaseTimes
from tests.invariants import violations
from tests.support.core import (
    START,
    Core,
    FragileLedger,
    answer,
    deaf,
    frames,
    logged,
    query,
    running_core,
    said,
    soon,
    streamed,
    until,
)
from tests.support.resuming_adapter import ResumingAdapter
from tests.support.rows import first_text
from tests.support.scripted import BR, G, Pause, Script, ScriptedAdapter, says
from tests.support.scripted_tools import ScriptedTools
from tests.support.unknown_calls import FetchingAdapter

BOTH = pytest.mark.parametrize("ownership", [G, BR], ids=["G", "BR"])
ROLLBACK: dict[str, Any] = {"busy_context": "rollback"}
LATER = START + 6000
JOBS = "SELECT handle FROM delete_job ORDER BY handle"
TURNS = "SELECT status, displaced FROM turn ORDER BY number"


def echo(request: ServiceRequest) -> Script:
    text = request.message.parts[0].text
    return [None, *says(f"re {text}", f"r-{text}")]


def asks(handle: str, *names: str) -> Script:
    """The model calls these tools; call `c-NAME` each."""
    return [*(ToolCallReady(f"c-{name}", name, "{}") for name in names), CallCompleted(handle)]


async def under_way(core: Core, adapter: ScriptedAdapter, text: str = "1") -> Task:
    """A turn that its backend lets wait."""
    task = await core.send(text, context="c", at_once=True)
    await soon(adapter.paused.wait())
    return task


def handle(core: Core) -> str | None:
    [(stands,)] = query(core.path, "SELECT handle FROM thread WHERE state NOT IN ('closed')")
    return stands  # type: ignore[no-any-return]


# --- a plain turn -----------------------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("streaming", [False, True], ids=["blocking", "streaming"])
async def test_133_rollback_cancels_what_runs_and_the_next_call_knows_nothing_of_it(
    core: Core, ownership: Ownership, streaming: bool
) -> None:
    cut: Script = [CallStarted("r1"), TextDelta("par"), Pause()]
    adapter = ScriptedAdapter(ownership, says("A0", "r0"), cut, says("A2", "r2"), says("A3", "r3"))
    core.agent(adapter, **ROLLBACK)
    await core.send("0", context="c")
    first = await under_way(core, adapter)
    if streaming:
        assert streamed(await frames(await core.stream("2", context="c"))) == "A2"
    else:
        assert answer(await soon(core.send("2", context="c"))) == "A2"
    await core.send("3", context="c")
    assert adapter.sent[2:] == (
        [("r0", ["U 2"]), ("r2", ["U 3"])]
        if ownership is BR
        else [(None, ["U 0", "A A0", "U 2"]), (None, ["U 0", "A A0", "U 2", "A A2", "U 3"])]
    )
    cut_off = await core.get(first.id)
    assert (cut_off.status.state, answer(cut_off), said(cut_off)) == (TaskState.CANCELED, "par", ["U 1"])
    assert query(core.path, TURNS) == [("completed", 0), ("cancelled", 1), ("completed", 0), ("completed", 0)]
    assert query(core.path, JOBS) == ([("r1",)] if ownership is BR else [])
    assert violations(core.path) == []


@BOTH
async def test_133_rollback_leaves_its_stream_and_its_log_to_the_turn_that_it_takes_back(
    core: Core, ownership: Ownership
) -> None:
    adapter = ScriptedAdapter(ownership, [TextDelta("par"), Pause()], says("A2", "r2"))
    core.agent(adapter, **ROLLBACK)
    stream = await core.stream("1", context="c")
    await soon(adapter.paused.wait())
    await soon(core.send("2", context="c"))
    read = await frames(stream)
    [(task,)] = query(core.path, "SELECT task FROM turn WHERE number = 1")
    assert streamed(read) == "par"
    assert read[1:] == logged(core.path, task)[read[0][0] or 0 :]
    assert (await core.get(task)).status.state is TaskState.CANCELED
    assert {found.id for found in (await core.list(context_id="c")).tasks} >= {task}


@BOTH
async def test_133_rollback_of_a_first_turn_leaves_an_empty_conversation(core: Core, ownership: Ownership) -> None:
    adapter = ScriptedAdapter(ownership, [CallStarted("r1"), Pause()], says("A2", "r2"))
    core.agent(adapter, **ROLLBACK)
    await under_way(core, adapter)
    await soon(core.send("2", context="c"))
    assert adapter.sent[1] == (None, ["U 2"])
    assert violations(core.path) == []


@BOTH
async def test_133_rollback_takes_back_what_waited_as_well(core: Core, ownership: Ownership) -> None:
    adapter = ScriptedAdapter(ownership, [Pause()], otherwise=echo)
    core.agent(adapter)
    tasks = [(await core.send(text, context="c", at_once=True)).id for text in "12"]
    await soon(adapter.paused.wait())
    core.agent(adapter, **ROLLBACK)
    assert answer(await soon(core.send("3", context="c"))) == "re 3"
    assert [(await core.get(task)).status.state for task in tasks] == [TaskState.CANCELED] * 2
    assert adapter.sent[1:] == [(None, ["U 3"])]
    assert violations(core.path) == []


@BOTH
async def test_133_rollback_of_many_that_come_at_once_leaves_those_that_were_completed(
    core: Core, ownership: Ownership
) -> None:
    adapter = ScriptedAdapter(ownership, otherwise=echo)
    core.agent(adapter, **ROLLBACK)
    async with asyncio.TaskGroup() as group:
        sending = [group.create_task(core.send(str(n), context="c")) for n in range(8)]
    done = [str(n) for n, task in enumerate(sending) if task.result().status.state is TaskState.COMPLETED]
    numbered = query(core.path, "SELECT status, displaced FROM turn ORDER BY number")
    assert set(numbered) <= {("completed", 0), ("cancelled", 1)}
    assert numbered[-1] == ("completed", 0)
    await core.send("last", context="c")
    if ownership is G:
        told = adapter.sent[-1][1]
        assert sorted(told) == sorted([*(f"U {n}" for n in done), *(f"A re {n}" for n in done), "U last"])
    assert adapter.sent[-1][1][-1] == "U last"
    assert violations(core.path) == []


async def test_133_rollback_disturbs_nobody_when_it_is_refused(core: Core) -> None:
    pause = Pause()
    core.agent(ScriptedAdapter(G, [pause, *says("a")]), queued_turns=0, **ROLLBACK)
    first = await core.send("1", context="c", at_once=True)
    with pytest.raises(UnsupportedOperation):
        await core.send("2", context="c", task=first.id)
    pause.go.set()
    await soon(core.runner.idle())
    assert answer(await core.get(first.id)) == "a"
    assert query(core.path, TURNS) == [("completed", 0)]


@BOTH
async def test_133_rollback_of_a_turn_that_fails_while_it_is_cancelled_takes_it_back_all_the_same(
    core: Core, ownership: Ownership
) -> None:
    cut = Pause()
    refused = AdapterError(ErrorClass.BACKEND_FAILED, "")
    adapter = ScriptedAdapter(ownership, [TextDelta("par"), cut, refused], says("A2", "r2"))
    core.agent(adapter, **ROLLBACK)
    first = await under_way(core, adapter)
    gate = core.ledger.hold(Accept)
    second = asyncio.ensure_future(core.send("2", context="c"))  # noqa: TID251
    await soon(gate.reached.wait())
    cut.go.set()  # Its end is behind the message that displaces it, and nobody has told it to end.
    await until(lambda: len(gate.waiting) > 1)
    core.ledger.let_go()
    assert answer(await soon(second)) == "A2"
    assert (await core.get(first.id)).status.state is TaskState.FAILED
    assert adapter.sent[1] == (None, ["U 2"])
    assert query(core.path, TURNS) == [("failed", 1), ("completed", 0)]
    assert violations(core.path) == []


@BOTH
async def test_133_rollback_comes_too_late_for_a_turn_that_is_complete(core: Core, ownership: Ownership) -> None:
    pause = Pause()
    adapter = ScriptedAdapter(ownership, [pause, *says("A1", "r1")], says("A2", "r2"))
    core.agent(adapter, **ROLLBACK)
    first = await under_way(core, adapter)
    gate = core.ledger.hold(Accept)
    second = asyncio.ensure_future(core.send("2", context="c"))  # noqa: TID251
    await soon(gate.reached.wait())
    pause.go.set()
    await until(lambda: len(gate.waiting) > 1)
    core.ledger.let_go()
    assert answer(await soon(second)) == "A2"
    assert answer(await core.get(first.id)) == "A1"
    assert adapter.sent[1] == (("r1", ["U 2"]) if ownership is BR else (None, ["U 1", "A A1", "U 2"]))
    assert query(core.path, TURNS) == [("completed", 0)] * 2
    assert violations(core.path) == []


# --- with tools -------------------------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("streaming", [False, True], ids=["blocking", "streaming"])
async def test_133_rollback_of_several_rounds_goes_back_to_where_the_turn_began(
    core: Core, ownership: Ownership, streaming: bool
) -> None:
    box = ScriptedTools({"one": 1, "two": 2})
    scripts: list[Script] = [
        says("A0", "r0"),
        asks("r1", "one"),
        asks("r2", "two"),
        [TextDelta("par"), Pause()],
        says("A2", "r4"),
    ]
    adapter = ScriptedAdapter(ownership, *scripts)
    core.agent(adapter, toolset=box, **ROLLBACK)
    await core.send("0", context="c")
    first = await under_way(core, adapter)
    if streaming:
        assert streamed(await frames(await core.stream("2", context="c"))) == "A2"
    else:
        await soon(core.send("2", context="c"))
    assert adapter.sent[4] == (("r0", ["U 2"]) if ownership is BR else (None, ["U 0", "A A0", "U 2"]))
    assert query(core.path, JOBS) == ([("r1",), ("r2",)] if ownership is BR else [])
    assert (handle(core), box.ran) == ("r4" if ownership is BR else None, ["one", "two"])
    assert query(core.path, "SELECT name, status FROM tool_call ORDER BY sequence") == [
        ("one", "completed"),
        ("two", "completed"),
    ]
    assert (await core.get(first.id)).status.state is TaskState.CANCELED
    assert violations(core.path) == []


@BOTH
async def test_133_rollback_closes_a_tool_that_runs_once_and_runs_nothing_again(
    core: Core, ownership: Ownership
) -> None:
    works = Pause()
    box = ScriptedTools({"one": 1, "two": works, "three": 3})
    adapter = ScriptedAdapter(ownership, asks("r1", "one"), asks("r2", "two", "three"), says("A2", "r3"))
    core.agent(adapter, toolset=box, parallel_tools=1, **ROLLBACK)
    await core.send("1", context="c", at_once=True)
    await soon(works.reached.wait())
    await soon(core.send("2", context="c"))
    assert adapter.sent[2] == (None, ["U 2"])
    assert box.ran == ["one", "two"]
    assert query(core.path, "SELECT name, status FROM tool_call ORDER BY id") == [
        ("one", "completed"),
        ("two", "interrupted"),
        ("three", "cancelled"),
    ]
    assert violations(core.path) == []


MOMENTS: list[tuple[type[CommitPoint], int]] = [
    *((point, n) for point in (Prepare, Complete) for n in (1, 2, 3)),
    *((point, n) for point in (ToolStarts, ToolEnds) for n in (1, 2)),
    (Fail, 1),
    (Finish, 1),
]


@BOTH
@pytest.mark.parametrize(("point", "nth"), MOMENTS, ids=[f"{point.__name__}-{n}" for point, n in MOMENTS])
async def test_133_rollback_while_any_commit_of_the_loop_goes_on(
    core: Core, ownership: Ownership, point: type[CommitPoint], nth: int
) -> None:
    """The second message arrives during the n-th commit of this kind, and is stored after it."""
    broken = AdapterError(ErrorClass.BACKEND_FAILED, "") if point is Fail else None
    rounds = [asks("r1", "one"), asks("r2", "two"), [broken, *says("A1", "r3")]]

    def script(request: ServiceRequest) -> Script:
        return rounds.pop(0) if request.message.parts[0].text == "1" else echo(request)

    box = ScriptedTools({"one": 1, "two": 2})
    adapter = ScriptedAdapter(ownership, otherwise=script)
    core.agent(adapter, toolset=box, **ROLLBACK)
    await core.send("0", context="c")
    gate = core.ledger.hold(point)
    async with asyncio.TaskGroup() as group:
        sending = group.create_task(core.send("1", context="c", at_once=True))
        for _ in range(nth - 1):
            await soon(gate.reached.wait())
            core.ledger.let_go()
            gate = core.ledger.hold(point)
        await soon(gate.reached.wait())
        second = group.create_task(soon(core.send("2", context="c")))
        for _ in range(20):
            await asyncio.sleep(0)
        core.ledger.let_go()
    assert answer(second.result()) == "re 2"
    first = await core.get(sending.result().id)
    [ended] = query(core.path, "SELECT status, displaced FROM turn WHERE number = 2")
    carried = adapter.sent[-1]
    if ended == ("completed", 0):
        assert first.status.state is TaskState.COMPLETED
        assert carried[0] == "r3" if ownership is BR else "A A1" in carried[1]
    elif ended == ("failed", 0):
        assert point is Fail  # It had ended before the message was there.
    else:
        assert ended in [("cancelled", 1), ("failed", 1)]
        assert carried == (("r-0", ["U 2"]) if ownership is BR else (None, ["U 0", "A re 0", "U 2"]))
    assert len(box.ran) == len(set(box.ran))
    assert violations(core.path) == []


async def test_133_rollback_gives_back_what_its_calls_carried_of_earlier_turns(core: Core) -> None:
    """The open calls of an earlier turn were answered on the branch that is left: they are answered again on the other."""
    works = Pause()
    box = ScriptedTools({"one": works, "two": 2})
    again: Script = [TextDelta("par"), Pause()]
    adapter = ScriptedAdapter(BR, says("A0", "r0"), asks("r1", "one"), asks("r2", "two"), again, says("A3", "r4"))
    core.agent(adapter, toolset=box, **ROLLBACK)
    await core.send("0", context="c")
    first = await core.send("1", context="c", at_once=True)
    await soon(works.reached.wait())
    await soon(core.cancel(first.id))
    await under_way(core, adapter, "2")
    await soon(core.send("3", context="c"))
    unknown = f"O c-one {tool_call.OUTCOME_UNKNOWN}"
    assert adapter.sent[2] == ("r1", [unknown, "U 2"])
    assert adapter.sent[4] == ("r1", [unknown, "U 3"])
    assert violations(core.path) == []


async def test_59_a_turn_that_is_left_out_gives_back_what_its_calls_carried_of_earlier_turns(core: Core) -> None:
    works = Pause()
    box = ScriptedTools({"one": works, "two": 2})
    fails: Script = [AdapterError(ErrorClass.BACKEND_FAILED, "")]
    adapter = ScriptedAdapter(BR, asks("r1", "one"), asks("r2", "two"), fails, says("A3", "r4"))
    core.agent(adapter, toolset=box, persistence="per_turn")
    first = await core.send("1", context="c", at_once=True)
    await soon(works.reached.wait())
    await soon(core.cancel(first.id))
    for text in "23":
        await core.send(text, context="c")
    unknown = f"O c-one {tool_call.OUTCOME_UNKNOWN}"
    assert adapter.sent[1] == ("r1", [unknown, "U 2"])
    assert adapter.sent[3] == ("r1", [unknown, "U 3"])
    assert violations(core.path) == []


async def test_133_rollback_voids_the_ids_of_calls_where_they_hold_for_the_thread(core: Core) -> None:
    box = ScriptedTools({"one": 1})
    other: Script = [ToolCallReady("c-one", "one", '{"other": 1}'), CallCompleted()]
    for_ever = Ownership(G.owner, G.handle, call_ids="thread")
    adapter = ScriptedAdapter(for_ever, asks("", "one"), [Pause()], other, says("A2"))
    core.agent(adapter, toolset=box, **ROLLBACK)
    await under_way(core, adapter)
    assert answer(await soon(core.send("2", context="c"))) == "A2"
    assert box.ran == ["one", "one"]


# --- a turn that waits for its caller ---------------------------------------------------------------------------------


GATED: dict[str, Any] = {"approvals": (ApprovalRule("box.pay"),)}


@BOTH
async def test_133_rollback_takes_back_no_task_that_waits_unless_it_is_to_be_superseded(
    core: Core, ownership: Ownership
) -> None:
    adapter = ScriptedAdapter(ownership, says("A0", "r0"), asks("r1", "pay"), says("A2", "r2"))
    core.agent(adapter, toolset=ScriptedTools({"pay": 1}), **ROLLBACK, **GATED)
    await core.send("0", context="c")
    first = await core.send("1", context="c")
    assert first.status.state is TaskState.INPUT_REQUIRED
    with pytest.raises(UnsupportedOperation, match="waits for an answer"):
        await core.send("2", context="c")
    core.agent(adapter, toolset=ScriptedTools({"pay": 1}), new_task_while_waiting="supersede", **ROLLBACK, **GATED)
    assert answer(await core.send("2", context="c")) == "A2"
    assert (await core.get(first.id)).status.state is TaskState.CANCELED
    assert adapter.sent[2] == (("r0", ["U 2"]) if ownership is BR else (None, ["U 0", "A A0", "U 2"]))
    assert query(core.path, "SELECT status FROM tool_call") == [("cancelled",)]
    assert query(core.path, TURNS) == [("completed", 0), ("cancelled", 1), ("completed", 0)]
    assert violations(core.path) == []


@BOTH
async def test_133_rollback_leaves_a_turn_that_its_own_caller_gives_up_in_the_conversation(
    core: Core, ownership: Ownership
) -> None:
    adapter = ScriptedAdapter(ownership, asks("r1", "pay"), says("A2", "r2"))
    core.agent(adapter, toolset=ScriptedTools({"pay": 1}), **ROLLBACK, **GATED)
    first = await core.send("1", context="c")
    await core.send("2", context="c", task=first.id)
    assert "U 1" in adapter.sent[1][1] if ownership is G else adapter.sent[1][0] == "r1"
    assert query(core.path, TURNS) == [("cancelled", 0), ("completed", 0)]


@BOTH
async def test_133_rollback_of_a_turn_that_comes_to_wait_just_then(core: Core, ownership: Ownership) -> None:
    pause = Pause()
    adapter = ScriptedAdapter(ownership, says("A0", "r0"), [pause, *asks("r1", "pay")], otherwise=echo)
    core.agent(adapter, toolset=ScriptedTools({"pay": 1}), **ROLLBACK, **GATED)
    await core.send("0", context="c")
    first = await under_way(core, adapter)
    gate = core.ledger.hold(Accept)
    second = asyncio.ensure_future(core.send("2", context="c"))  # noqa: TID251
    await soon(gate.reached.wait())
    pause.go.set()
    await until(lambda: len(gate.waiting) > 1)
    core.ledger.let_go()
    assert answer(await soon(second)) == "re 2"
    assert (await core.get(first.id)).status.state is TaskState.CANCELED
    assert adapter.sent[2] == (("r0", ["U 2"]) if ownership is BR else (None, ["U 0", "A A0", "U 2"]))
    assert violations(core.path) == []


# --- what the conversation is told from otherwise ---------------------------------------------------------------------


async def test_133_rollback_keeps_a_turn_out_of_a_conversation_that_is_rebuilt(core: Core) -> None:
    lost: Script = [AdapterError(ErrorClass.HANDLE_EXPIRED, "")]
    first: Script = [TextDelta("par"), Pause()]
    box = ScriptedTools({"one": 1})
    scripts = [says("A0", "r0"), asks("r1", "one"), first, lost, says("A2", "q1")]
    adapter = ScriptedAdapter(BR, *scripts)
    core.agent(adapter, toolset=box, on_lost_handle="rebuild", **ROLLBACK)
    await core.send("0", context="c")
    await under_way(core, adapter)
    assert answer(await soon(core.send("2", context="c"))) == "A2"
    assert adapter.sent[3:] == [("r0", ["U 2"]), (None, ["U 0", "A A0", "U 2"])]
    assert violations(core.path) == []


async def test_133_rollback_of_the_turn_that_rebuilt_a_conversation_has_it_told_again(core: Core) -> None:
    lost: Script = [AdapterError(ErrorClass.HANDLE_EXPIRED, "")]
    box = ScriptedTools({"one": 1})
    scripts = [says("A0", "r0"), lost, asks("q1", "one"), [Pause()], says("A2", "p1")]
    adapter = ScriptedAdapter(BR, *scripts)
    core.agent(adapter, toolset=box, on_lost_handle="rebuild", **ROLLBACK)
    await core.send("0", context="c")
    await under_way(core, adapter)
    assert answer(await soon(core.send("2", context="c"))) == "A2"
    assert adapter.sent[4] == (None, ["U 0", "A A0", "U 2"])
    assert (handle(core), query(core.path, JOBS)) == ("p1", [("q1",)])
    assert violations(core.path) == []


@pytest.mark.parametrize("shadow", ["items", "text", "none"])
async def test_133_rollback_needs_no_shadow(core: Core, shadow: str) -> None:
    box = ScriptedTools({"one": 1})
    adapter = ScriptedAdapter(BR, says("A0", "r0"), asks("r1", "one"), [Pause()], says("A2", "r2"))
    core.agent(adapter, toolset=box, shadow_history=shadow, **ROLLBACK)
    await core.send("0", context="c")
    await under_way(core, adapter)
    await soon(core.send("2", context="c"))
    assert adapter.sent[3] == ("r0", ["U 2"])


async def test_133_rollback_takes_no_room_in_a_window(core: Core) -> None:
    box = ScriptedTools({"one": 1})
    adapter = ScriptedAdapter(G, says("A0"), asks("", "one"), [Pause()], [Pause()], says("A3"), otherwise=echo)
    core.agent(adapter, toolset=box, history_messages=3, **ROLLBACK)
    await core.send("0", context="c")
    await under_way(core, adapter)
    adapter.paused.clear()
    second = await core.send("2", context="c", at_once=True)
    await soon(adapter.paused.wait())
    await soon(core.send("3", context="c"))
    assert (await core.get(second.id)).status.state is TaskState.CANCELED
    assert adapter.sent[-1][1] == ["U 0", "A A0", "U 3"]


async def test_133_rollback_forgets_what_a_backend_folded_up_in_the_turn(core: Core) -> None:
    folded = ItemReady(OpaqueItem("compaction", {"all": "of it"}, boundary=True))
    replays = Ownership(G.owner, G.handle, opaque_replay=True)
    box = ScriptedTools({"one": 1})
    adapter = ScriptedAdapter(replays, says("A0"), [folded, *asks("", "one")], [Pause()], says("A2"))
    core.agent(adapter, toolset=box, **ROLLBACK)
    await core.send("0", context="c")
    await under_way(core, adapter)
    await soon(core.send("2", context="c"))
    assert adapter.sent[3][1] == ["U 0", "A A0", "U 2"]


async def test_133_rollback_travels_with_a_context(tmp_path: Path) -> None:
    async with running_core(tmp_path / "one.db", prefix="one") as one:
        adapter = ScriptedAdapter(BR, says("A0", "r0"), [Pause()], says("A2", "r2"))
        one.agent(adapter, **ROLLBACK)
        await one.send("0", context="c")
        await under_way(one, adapter)
        await soon(one.send("2", context="c"))
        document = await one.ledger.export(Caller("ada"), "c")
    assert document is not None
    async with running_core(tmp_path / "two.db", prefix="two") as two:
        await two.ledger.commit(Import(Caller("ada"), document, START))
        lost: Script = [AdapterError(ErrorClass.HANDLE_EXPIRED, "")]
        adapter = ScriptedAdapter(BR, lost, says("A3", "q1"))
        two.agent(adapter, on_lost_handle="rebuild")
        assert answer(await two.send("3", context="c")) == "A3"
        assert adapter.sent[1] == (None, ["U 0", "A A0", "U 2", "A A2", "U 3"])
        assert query(two.path, TURNS)[:3] == [("completed", 0), ("cancelled", 1), ("completed", 0)]


async def test_133_rollback_of_a_call_that_its_backend_does_not_confirm_to_have_ended(core: Core) -> None:
    adapter = ResumingAdapter(says("A0", "r0"), [CallStarted("r1"), Pause()], says("A2", "r2"), confirms=False)
    core.agent(adapter, **ROLLBACK)
    await core.send("0", context="c")
    first = await under_way(core, adapter)
    await soon(core.send("2", context="c"))
    assert adapter.cancelled == ["r1"]
    assert adapter.sent[2] == ("r0", ["U 2"])
    assert query(core.path, JOBS) == [("r1",)]
    assert (await core.get(first.id)).status.state is TaskState.CANCELED


# --- several processes, and those that die ----------------------------------------------------------------------------


@asynccontextmanager
async def two(
    path: Path, lease: LeaseTimes | None = None, before: Callable[[FragileLedger], object] = lambda _: None
) -> AsyncIterator[tuple[Core, Core]]:
    """`before` gets the ledger of the first."""
    lease = lease or LeaseTimes(5.0, 500)
    async with (
        running_core(path / "ledger.db", prefix="one", lease=lease, before=before) as one,
        running_core(path / "ledger.db", prefix="two", lease=lease) as other,
    ):
        yield one, other


@BOTH
async def test_133_rollback_reaches_the_process_that_runs_the_turn(tmp_path: Path, ownership: Ownership) -> None:
    async with two(tmp_path) as (one, other):
        box = ScriptedTools({"one": 1})
        adapter = ScriptedAdapter(ownership, says("A0", "r0"), asks("r1", "one"), [TextDelta("a"), Pause()])
        one.agent(adapter, toolset=box, **ROLLBACK)
        second = ScriptedAdapter(ownership, otherwise=echo)
        other.agent(second, **ROLLBACK)
        await one.send("0", context="c")
        first = await under_way(one, adapter)
        assert answer(await soon(other.send("2", context="c"))) == "re 2"
        assert (await other.get(first.id)).status.state is TaskState.CANCELED
        assert second.sent == [("r0", ["U 2"]) if ownership is BR else (None, ["U 0", "A A0", "U 2"])]
        assert violations(one.path) == []


@BOTH
@pytest.mark.parametrize("theirs", ["queue", "interrupt"])
async def test_133_rollback_reaches_a_process_with_other_settings(
    tmp_path: Path, ownership: Ownership, theirs: str
) -> None:
    async with two(tmp_path) as (one, other):
        box = ScriptedTools({"one": 1})
        adapter = ScriptedAdapter(ownership, says("A0", "r0"), asks("r1", "one"), [TextDelta("a"), Pause()])
        one.agent(adapter, toolset=box, busy_context=theirs)
        second = ScriptedAdapter(ownership, otherwise=echo)
        other.agent(second, **ROLLBACK)
        await one.send("0", context="c")
        await under_way(one, adapter)
        await soon(other.send("2", context="c"))
        assert second.sent == [("r0", ["U 2"]) if ownership is BR else (None, ["U 0", "A A0", "U 2"])]
        assert violations(one.path) == []


@BOTH
async def test_133_rollback_counts_a_turn_that_is_complete_before_its_process_looks(
    tmp_path: Path, ownership: Ownership
) -> None:
    async with two(tmp_path, LeaseTimes(2.0, 1), deaf) as (one, other):
        pause = Pause()
        box = ScriptedTools({"one": 1})
        adapter = ScriptedAdapter(ownership, asks("r1", "one"), [pause, *says("A1", "r2")])
        one.agent(adapter, toolset=box, **ROLLBACK)
        second = ScriptedAdapter(ownership, otherwise=echo)
        other.agent(second, **ROLLBACK)
        first = await under_way(one, adapter)
        waiting = await other.send("2", context="c", at_once=True)
        assert query(one.path, TURNS) == [("running", 1), ("accepted", 0)]
        pause.go.set()
        await soon(one.runner.idle())
        await soon(other.runner.idle())
        assert (answer(await one.get(first.id)), answer(await one.get(waiting.id))) == ("A1", "re 2")
        told = ["U 1", "C c-one one", "O c-one 1", "A A1", "U 2"]
        assert second.sent == [("r2", ["U 2"]) if ownership is BR else (None, told)]
        assert violations(one.path) == []


@BOTH
async def test_133_rollback_holds_although_the_turn_goes_on_for_a_while_with_its_own_words(
    tmp_path: Path, ownership: Ownership
) -> None:
    """Until its process looks, the turn that was displaced still knows what it is about."""
    async with two(tmp_path, LeaseTimes(2.0, 1), deaf) as (one, other):
        works = Pause()
        box = ScriptedTools({"one": works})
        adapter = ScriptedAdapter(ownership, asks("r1", "one"), says("A1", "r2"))
        one.agent(adapter, toolset=box, **ROLLBACK)
        other.agent(ScriptedAdapter(ownership, otherwise=echo), **ROLLBACK)
        await one.send("1", context="c", at_once=True)
        await soon(works.reached.wait())
        await other.send("2", context="c", at_once=True)
        works.go.set()
        await soon(one.runner.idle())
        assert adapter.sent[1] == (
            ("r1", ["O c-one done"]) if ownership is BR else (None, ["U 1", "C c-one one", "O c-one done"])
        )
        await soon(other.runner.idle())
        assert violations(one.path) == []


@BOTH
@pytest.mark.parametrize("rounds", [0, 1, 2])
async def test_133_rollback_is_remembered_by_whoever_ends_the_turn_of_a_dead_process(
    tmp_path: Path, ownership: Ownership, rounds: int
) -> None:
    path = tmp_path / "ledger.db"
    names = ["one", "two"][:rounds]
    async with running_core(path, prefix="one") as one:
        box = ScriptedTools({"one": 1, "two": 2})
        called = [asks(f"r{n}", name) for n, name in enumerate(names, 1)]
        adapter = ScriptedAdapter(ownership, says("A0", "r0"), *called, [TextDelta("par"), Pause()])
        one.agent(adapter, toolset=box, **ROLLBACK)
        await one.send("0", context="c")
        first = await under_way(one, adapter)
        lost = one.ledger.refuse(Finish)
        second = await one.send("2", context="c", at_once=True)
        await soon(lost.wait())
    assert query(path, TURNS) == [("completed", 0), ("running", 1), ("accepted", 0)]
    survivor = ScriptedAdapter(ownership, otherwise=echo)
    async with running_core(path, prefix="two", now=LATER, adapter=survivor) as two_:
        await soon(two_.runner.idle())
        await until(lambda: query(path, "SELECT count(*) FROM turn WHERE ended_at IS NULL") == [(0,)])
        assert (await two_.get(first.id)).status.state in (TaskState.FAILED, TaskState.CANCELED)
        assert answer(await two_.get(second.id)) == "re 2"
        assert survivor.sent == [("r0", ["U 2"]) if ownership is BR else (None, ["U 0", "A A0", "U 2"])]
        assert violations(path) == []
    if ownership is BR:
        assert {f"r{n}" for n, _ in enumerate(names, 1)} <= {handle for (handle,) in query(path, JOBS)}


async def test_133_rollback_of_a_dead_turn_whose_tool_ran_tells_nobody_of_it(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    works = Pause()
    async with running_core(path, prefix="one") as one:
        adapter = ScriptedAdapter(BR, says("A0", "r0"), asks("r1", "one"))
        one.agent(adapter, toolset=ScriptedTools({"one": works}), **ROLLBACK)
        await one.send("0", context="c")
        await one.send("1", context="c", at_once=True)
        await soon(works.reached.wait())
        lost = one.ledger.refuse(Finish)
        await one.send("2", context="c", at_once=True)
        await soon(lost.wait())
    survivor = ScriptedAdapter(BR, otherwise=echo)
    async with running_core(path, prefix="two", now=LATER, adapter=survivor) as two_:
        await soon(two_.runner.idle())
        await until(lambda: query(path, "SELECT count(*) FROM turn WHERE ended_at IS NULL") == [(0,)])
        assert survivor.sent == [("r0", ["U 2"])]
        assert query(path, "SELECT status FROM tool_call") == [("interrupted",)]
        assert violations(path) == []


@pytest.mark.parametrize("fate", [Fate.COMPLETED, Fate.RUNNING])
async def test_133_rollback_adopts_nothing_of_a_call_whose_end_nobody_heard(tmp_path: Path, fate: Fate) -> None:
    path = tmp_path / "ledger.db"
    async with running_core(path, prefix="one") as one:
        adapter = ScriptedAdapter(BR, says("A0", "r0"), [CallStarted("r1"), TextDelta("par"), Pause()])
        one.agent(adapter, **ROLLBACK)
        await one.send("0", context="c")
        await under_way(one, adapter)
        lost = one.ledger.refuse(Finish)
        await one.send("2", context="c", at_once=True)
        await soon(lost.wait())
    found = Fetched(fate, (CallStarted("r1"), *says("A1", "r1")) if fate is Fate.COMPLETED else ())  # type: ignore[arg-type]
    survivor = FetchingAdapter(says("A2", "r2"), found=[found])
    async with running_core(path, prefix="two", now=LATER, adapter=survivor) as two_:
        await soon(two_.runner.idle())
        await until(lambda: query(path, "SELECT count(*) FROM turn WHERE ended_at IS NULL") == [(0,)])
        assert survivor.sent == [("r0", ["U 2"])]
        assert (survivor.fetched, query(path, JOBS)) == ([], [("r1",)])
        assert violations(path) == []


async def test_133_rollback_ends_a_call_that_goes_on_when_its_process_is_dead(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    begun: Script = [CallStarted("r1"), TextDelta("par")]
    async with running_core(path, prefix="one") as one:
        adapter = ResumingAdapter(says("A0", "r0"), [*begun, Pause()], confirms=asyncio.CancelledError())
        one.agent(adapter, **ROLLBACK)
        await one.send("0", context="c")
        await under_way(one, adapter)
        lost = one.ledger.refuse(Finish)
        await one.send("2", context="c", at_once=True)
        await soon(lost.wait())
    survivor = ResumingAdapter(says("A2", "r2"), again=[[*begun, Pause()]])
    lease = LeaseTimes(5.0, 500)
    async with running_core(path, prefix="two", now=LATER, adapter=survivor, lease=lease) as two_:
        await until(lambda: query(path, "SELECT count(*) FROM turn WHERE ended_at IS NULL") == [(0,)])
        await soon(two_.runner.idle())
        assert (survivor.cancelled, survivor.sent) == (["r1"], [("r0", ["U 2"])])
        assert query(path, TURNS) == [("completed", 0), ("cancelled", 1), ("completed", 0)]
        assert violations(path) == []


# --- what it is to the ledger -----------------------------------------------------------------------------------------


async def test_133_rollback_costs_nothing_where_nothing_is_displaced(core: Core) -> None:
    core.agent(ScriptedAdapter(BR, otherwise=echo), **ROLLBACK)
    for text in "12":
        await core.send(text, context="c")
    assert core.ledger.stored(Displace) == core.ledger.stored(RevertIfDisplaced) == []


async def test_133_rollback_is_one_unit_with_the_message_and_one_with_the_end(core: Core) -> None:
    adapter = ScriptedAdapter(BR, [CallStarted("r1"), Pause()], says("A2", "r2"))
    core.agent(adapter, **ROLLBACK)
    await under_way(core, adapter)
    await soon(core.send("2", context="c"))
    together = [{type(point) for point in unit} for unit in core.ledger.units]
    assert next(unit for unit in together if Displace in unit) >= {Accept, Displace}
    assert next(unit for unit in together if RevertIfDisplaced in unit) >= {Finish, RevertIfDisplaced}


@BOTH
async def test_133_rollback_of_many_that_come_at_once_to_two_processes(tmp_path: Path, ownership: Ownership) -> None:
    async with two(tmp_path) as cores:
        adapters = [ScriptedAdapter(ownership, otherwise=echo) for _ in cores]
        for core, adapter in zip(cores, adapters, strict=True):
            core.agent(adapter, queued_turns=20, **ROLLBACK)
        await cores[0].send("first", context="c")
        async with asyncio.TaskGroup() as group:
            for n in range(10):
                group.create_task(soon(cores[n % 2].send(str(n), context="c")))
        turns = query(cores[0].path, TURNS)
        assert set(turns) <= {("completed", 0), ("cancelled", 1)}
        assert turns[-1] == ("completed", 0)
        assert violations(cores[0].path) == []
        await cores[0].send("last", context="c")
        counting = "SELECT payload FROM turn JOIN input ON turn = turn.id WHERE displaced = 0 ORDER BY number"
        texts = [first_text(payload) for (payload,) in query(cores[0].path, counting)]
        if ownership is G:
            told = [line for text in texts[:-1] for line in (f"U {text}", f"A re {text}")]
            assert adapters[0].sent[-1] == (None, [*told, "U last"])
        else:
            assert adapters[0].sent[-1] == (f"r-{texts[-2]}", ["U last"])
