"""The tool loop is cancelled, timed out, cut off from its disk and deprived of its lease, at every moment: each call has one
outcome, nothing runs twice, and the backend accepts the next request. Source: docs/state-model.md, scenarios of groups E and
F."""

import asyncio
import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from structlog.testing import capture_logs

from gateway.a2a.model import Json, Task, TaskState
from gateway.core.failures import INTERNAL, TOOL_OUTCOME_UNKNOWN, TURN_TIMEOUT
from gateway.core.tools import tool_call
from gateway.ledger.calls import RESTARTED, Complete, Prepare
from gateway.ledger.points import CommitPoint
from gateway.ledger.tasks import Finish
from gateway.ledger.threads import Caller
from gateway.ledger.tool_calls import ToolEnds, ToolStarts
from gateway.ports.adapter import AdapterError, CallCompleted, CallStarted, ErrorClass, TextDelta, ToolCallReady
from gateway.ports.conversation import Ownership
from gateway.ports.tools import ToolOutput, ToolRun
from gateway.scheduling.leases import LeaseTimes
from tests.invariants import violations
from tests.scenarios.test_turns_that_fail import BS, failed
from tests.support.core import BOUND, START, Core, query, running_core, soon, until
from tests.support.deletions import contexts
from tests.support.scripted import BR, G, Pause, Script, ScriptedAdapter, says
from tests.support.scripted_tools import ScriptedTools

ALL = pytest.mark.parametrize("ownership", [G, BR, BS], ids=["G", "BR", "BS"])
QUICK = LeaseTimes(0.15)
STATUSES = "SELECT name, status FROM tool_call ORDER BY id"
UNKNOWN, NOT_RUN = tool_call.OUTCOME_UNKNOWN, tool_call.NOT_RUN


def asks(handle: str, *names: str) -> Script:
    """The model calls these tools; call `cN` is the N-th."""
    return [*(ToolCallReady(f"c{n}", name, "{}") for n, name in enumerate(names, 1)), CallCompleted(handle)]


def adapter_of(ownership: Ownership, *scripts: Script) -> ScriptedAdapter:
    """A static conversation is named `c` by its first call."""
    if ownership is not BS:
        return ScriptedAdapter(ownership, *scripts)
    static = [
        [CallCompleted("c", s.ending) if isinstance(s, CallCompleted) else s for s in script] for script in scripts
    ]
    return ScriptedAdapter(ownership, [CallStarted("c"), *static[0]], *static[1:])


def next_request(
    ownership: Ownership, calls: list[str], outputs: list[str], *, never_ran: list[str] | None = None
) -> Any:
    """What the second message makes of the first one's tools: an owner that is the backend is told of those that never
    ran, too."""
    if ownership is G:
        return (None, ["U 1", *calls, *outputs, "U 2"])
    return ("r1" if ownership is BR else "c", [*outputs, *(never_ran or ()), "U 2"])


async def settled(core: Core, task: Task) -> Task:
    """The task when its turn has ended, by either process."""
    await until(lambda: query(core.path, "SELECT count(*) FROM turn WHERE ended_at IS NULL") == [(0,)])
    await soon(core.runner.idle())
    return await core.get(task.id)


class Effects(ScriptedTools):
    """`done` are the effects: what a tool did, in order."""

    def __init__(self, answers: dict[str, Any], **more: Any) -> None:
        super().__init__(answers, **more)
        self.done: list[str] = []

    async def run(self, run: ToolRun) -> ToolOutput:
        output = await super().run(run)
        self.done.append(run.name)
        return output


# --- cancel ---


@ALL
async def test_87_a_cancel_while_two_of_three_tools_run_closes_all_three(core: Core, ownership: Ownership) -> None:
    one, two = Pause(), Pause()
    box = Effects({"one": one, "two": two, "three": 3})
    adapter = adapter_of(ownership, asks("r1", "one", "two", "three"), says("A", "r2"))
    core.agent(adapter, toolset=box, parallel_tools=2)
    task = await core.send("1", context="c", at_once=True)
    await soon(one.reached.wait())
    await soon(two.reached.wait())
    assert (await soon(core.cancel(task.id))).status.state is TaskState.CANCELED
    assert query(core.path, STATUSES) == [("one", "interrupted"), ("two", "interrupted"), ("three", "cancelled")]
    await core.send("2", context="c")
    assert (box.ran, box.done) == (["one", "two"], [])
    unknown = [f"O c1 {UNKNOWN}", f"O c2 {UNKNOWN}"]
    assert adapter.sent[1] == next_request(ownership, ["C c1 one", "C c2 two"], unknown, never_ran=[f"O c3 {NOT_RUN}"])
    assert violations(core.path) == []


@ALL
@pytest.mark.parametrize("point", [Complete, ToolStarts, ToolEnds], ids=["C3", "C4", "C5"])
async def test_61_a_cancel_while_a_commit_of_the_loop_goes_on_does_not_undo_it(
    core: Core, ownership: Ownership, point: type[CommitPoint]
) -> None:
    box = Effects({"one": 1})
    adapter = adapter_of(ownership, asks("r1", "one"), says("A", "r2"))
    core.agent(adapter, toolset=box)
    gate = core.ledger.hold(point)
    task = await core.send("1", context="c", at_once=True)
    await soon(gate.reached.wait())
    async with asyncio.timeout(BOUND), asyncio.TaskGroup() as group:
        cancelling = group.create_task(core.cancel(task.id))
        await asyncio.sleep(0)
        core.ledger.let_go()
    assert cancelling.result().status.state is TaskState.CANCELED
    await core.send("2", context="c")
    assert box.done == (["one"] if point is ToolEnds else [])
    status = {Complete: "cancelled", ToolStarts: "interrupted", ToolEnds: "completed"}[point]
    assert query(core.path, STATUSES) == [("one", status)]
    output = {Complete: NOT_RUN, ToolStarts: UNKNOWN, ToolEnds: "1"}[point]
    if ownership is G and point is Complete:
        assert adapter.sent[1] == (None, ["U 1", "U 2"])
    else:
        assert adapter.sent[1] == next_request(ownership, ["C c1 one"], [f"O c1 {output}"])
    assert violations(core.path) == []


@ALL
async def test_140_a_context_that_is_deleted_while_its_tool_runs_is_gone_and_nothing_comes_back(
    core: Core, ownership: Ownership
) -> None:
    one = Pause()
    box = Effects({"one": one})
    core.agent(adapter_of(ownership, asks("r1", "one")), toolset=box)
    await core.send("1", context="c", at_once=True)
    await soon(one.reached.wait())
    await soon(contexts(core).delete(Caller("ada"), "c"))
    one.go.set()
    await soon(core.runner.idle())
    assert box.done == []
    assert query(core.path, "SELECT count(*) FROM tool_call") == [(0,)]


@ALL
async def test_133_a_message_that_interrupts_a_tool_goes_on_behind_its_outcome(
    core: Core, ownership: Ownership
) -> None:
    one = Pause()
    adapter = adapter_of(ownership, asks("r1", "one"), says("A", "r2"))
    core.agent(adapter, toolset=Effects({"one": one}), busy_context="interrupt")
    first = await core.send("1", context="c", at_once=True)
    await soon(one.reached.wait())
    await soon(core.send("2", context="c"))
    assert (await core.get(first.id)).status.state is TaskState.CANCELED
    assert adapter.sent[1] == next_request(ownership, ["C c1 one"], [f"O c1 {UNKNOWN}"])
    assert violations(core.path) == []


# --- time ---


@ALL
async def test_77_a_turn_that_runs_out_of_time_keeps_what_its_tools_did_and_closes_the_rest(
    core: Core, ownership: Ownership
) -> None:
    hangs = Pause()
    box = Effects({"one": 1, "two": hangs, "three": 3})
    adapter = adapter_of(ownership, asks("r1", "one", "two", "three"), says("A", "r2"))
    core.agent(adapter, toolset=box, parallel_tools=1, turn_timeout=1)
    assert failed(await core.send("1", context="c")) == TURN_TIMEOUT
    assert query(core.path, STATUSES) == [("one", "completed"), ("two", "interrupted"), ("three", "cancelled")]
    await core.send("2", context="c")
    assert box.done == ["one"]
    assert adapter.sent[1] == next_request(
        ownership, ["C c1 one", "C c2 two"], ["O c1 1", f"O c2 {UNKNOWN}"], never_ran=[f"O c3 {NOT_RUN}"]
    )
    assert violations(core.path) == []


@ALL
async def test_77_a_tool_that_hangs_is_given_up_and_its_sibling_and_the_loop_go_on(
    core: Core, ownership: Ownership
) -> None:
    box = Effects({"one": Pause(), "two": 2}, timeout=0.05)
    adapter = adapter_of(ownership, asks("r1", "one", "two"), says("A", "r2"))
    core.agent(adapter, toolset=box)
    assert (await core.send("1", context="c")).status.state is TaskState.COMPLETED
    assert query(core.path, STATUSES) == [("one", "cancelled"), ("two", "completed")]
    assert adapter.sent[1][1][-2:] == [f"O c1 {tool_call.TIMED_OUT}", "O c2 2"]
    assert violations(core.path) == []


# --- what a tool may do to its gateway ---


class Wild(Effects):
    """Its tool `wild` does what a test wants."""

    def __init__(self, what: Callable[[ToolRun], Any]) -> None:
        super().__init__({"wild": 0, "tame": 1})
        self._what = what

    async def run(self, run: ToolRun) -> ToolOutput:
        if run.name == "wild":
            found = self._what(run)
            output: ToolOutput = await found if asyncio.iscoroutine(found) else found
            return output
        return await super().run(run)


def _raises(error: BaseException) -> Callable[[ToolRun], Any]:
    def run(_: ToolRun) -> ToolOutput:
        raise error

    return run


def _nested(depth: int) -> Any:
    value: Any = []
    for _ in range(depth):
        value = [value]
    return value


async def _waits_for_what_is_cancelled() -> ToolOutput:
    waits: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    waits.cancel()
    await waits
    return ToolOutput("never")


WILD: dict[str, Callable[[ToolRun], Any]] = {
    "an error": _raises(ValueError("secret")),
    "a cancellation that nobody asked for": _raises(asyncio.CancelledError("secret")),
    "a task of its own that was cancelled": lambda _: _waits_for_what_is_cancelled(),
    "the end of the process": _raises(SystemExit(3)),
    "an interrupt": _raises(KeyboardInterrupt()),
    "a group of ends": _raises(BaseExceptionGroup("secret", [SystemExit(1)])),
    "the end of a generator": _raises(GeneratorExit()),
    "no output": lambda _: None,
    "an output that is no JSON": lambda _: ToolOutput(cast("Json", object())),
    "an output without a bottom": lambda _: ToolOutput(_nested(100_000)),
    "progress that is no text": lambda run: run.progress("\ud800"),
}
WORDS = {
    "an output that is no JSON": tool_call.NO_USABLE_ANSWER,
    "an output without a bottom": tool_call.RESULT_TOO_DEEP,
}


@ALL
@pytest.mark.parametrize("what", WILD)
async def test_76_whatever_a_tool_raises_or_returns_fails_its_call_and_nothing_else(
    core: Core, ownership: Ownership, what: str
) -> None:
    box = Wild(WILD[what])
    adapter = adapter_of(ownership, asks("r1", "wild", "tame"), says("A", "r2"))
    core.agent(adapter, toolset=box)
    with capture_logs():
        task = await soon(core.send("1", context="c"))
    assert task.status.state is TaskState.COMPLETED
    assert query(core.path, STATUSES) == [("wild", "failed"), ("tame", "completed")]
    why = WORDS.get(what, tool_call.FAILED)
    assert adapter.sent[1][1][-2:] == [f"O c1 {why}", "O c2 1"]
    assert "secret" not in str(task)
    assert violations(core.path) == []


async def test_76_progress_behind_the_end_of_its_call_is_told_to_nobody(core: Core) -> None:
    runs: list[ToolRun] = []

    def keep(run: ToolRun) -> ToolOutput:
        runs.append(run)
        run.progress("half")
        return ToolOutput("all")

    core.agent(adapter_of(G, asks("r1", "wild"), says("A", "r2")), toolset=Wild(keep))
    task = await core.send("1", context="c")
    runs[0].progress("late")
    log = "".join(payload for (payload,) in query(core.path, "SELECT payload FROM event"))
    assert ("half" in log, "late" in log) == (True, False)
    assert await core.get(task.id) == task


# --- the disk ---


@ALL
@pytest.mark.parametrize("point", [Complete, ToolStarts, ToolEnds], ids=["C3", "C4", "C5"])
async def test_49_a_commit_of_the_loop_that_is_lost_leaves_a_turn_that_recovery_ends(
    tmp_path: Path, ownership: Ownership, point: type[CommitPoint]
) -> None:
    async with running_core(tmp_path / "ledger.db", lease=QUICK) as core:
        box = Effects({"one": 1})
        adapter = adapter_of(ownership, asks("r1", "one"), says("A", "r2"))
        core.agent(adapter, toolset=box)
        core.ledger.refuse(point)
        task = await settled(core, await core.send("1", context="c", at_once=True))
        assert failed(task) == (TOOL_OUTCOME_UNKNOWN if point is ToolEnds else RESTARTED)
        assert violations(core.path) == []
        await core.send("2", context="c")
        assert box.done == (["one"] if point is ToolEnds else [])
        if point is Complete:
            assert adapter.sent[1][1] == ["U 1", "U 2"]
        else:
            status, output = ("interrupted", UNKNOWN) if point is ToolEnds else ("cancelled", NOT_RUN)
            assert query(core.path, STATUSES) == [("one", status)]
            shown = [] if ownership is G and point is ToolStarts else ["C c1 one"], [f"O c1 {output}"]
            if ownership is G and point is ToolStarts:
                shown = [], []
            assert adapter.sent[1] == next_request(ownership, *shown)
        assert violations(core.path) == []


@ALL
async def test_49_a_lost_outcome_takes_its_running_siblings_with_it_and_keeps_those_that_ended(
    tmp_path: Path, ownership: Ownership
) -> None:
    async with running_core(tmp_path / "ledger.db", lease=QUICK) as core:
        two, three = Pause(), Pause()
        box = Effects({"one": 1, "two": two, "three": three})
        adapter = adapter_of(ownership, asks("r1", "one", "two", "three"), says("A", "r2"))
        core.agent(adapter, toolset=box)
        task = await core.send("1", context="c", at_once=True)
        await soon(three.reached.wait())
        await until(lambda: query(core.path, STATUSES)[0] == ("one", "completed"))
        core.ledger.refuse(ToolEnds)
        two.go.set()
        assert failed(await settled(core, task)) == TOOL_OUTCOME_UNKNOWN
        assert query(core.path, STATUSES) == [("one", "completed"), ("two", "interrupted"), ("three", "interrupted")]
        assert box.done == ["one", "two"]
        await core.send("2", context="c")
        outputs = ["O c1 1", f"O c2 {UNKNOWN}", f"O c3 {UNKNOWN}"]
        assert adapter.sent[1] == next_request(ownership, ["C c1 one", "C c2 two", "C c3 three"], outputs)
        assert violations(core.path) == []


@ALL
async def test_56_a_call_of_a_tool_in_an_answer_that_cannot_be_stored_is_forgotten_with_it(
    core: Core, ownership: Ownership
) -> None:
    box = Effects({"one": 1})
    asking: Script = [*asks("r1", "one")[:1], CallCompleted("r1", state={"x": "\ud800"})]
    adapter = ScriptedAdapter(ownership, [*([CallStarted("c")] if ownership is BS else []), *asking], says("A", "r1"))
    if ownership is BS:
        adapter = ScriptedAdapter(
            BS, [CallStarted("c"), asking[0], CallCompleted("c", state={"x": "\ud800"})], says("A", "c")
        )
    core.agent(adapter, toolset=box)
    assert failed(await soon(core.send("1", context="c"))) == INTERNAL
    assert (box.ran, query(core.path, STATUSES)) == ([], [])
    await core.send("2", context="c")
    assert adapter.sent[1][1] == ["U 1", "U 2"]
    assert violations(core.path) == []


# --- the lease ---


@ALL
@pytest.mark.parametrize("point", [ToolStarts, ToolEnds, Prepare], ids=["C4", "C5", "C2"])
async def test_135_a_process_that_lost_its_lease_in_the_loop_stores_and_sends_nothing_more(
    tmp_path: Path, ownership: Ownership, point: type[CommitPoint]
) -> None:
    path = tmp_path / "ledger.db"
    box = Effects({"one": 1})
    late = adapter_of(ownership, asks("r1", "one"), says("late", "r2"))
    adapter = ScriptedAdapter(ownership, says("A", "r3" if ownership is BR else "c"))
    async with running_core(path, prefix="one", lease=LeaseTimes(600)) as one:
        one.agent(late, toolset=box)
        gate = one.ledger.hold(ToolEnds if point is Prepare else point)
        task = await one.send("1", context="c", at_once=True)
        await soon(gate.reached.wait())
        if point is Prepare:
            gate = _pass_on(one, point)
            await soon(gate.reached.wait())
        async with running_core(path, prefix="two", now=START + 601_000, lease=LeaseTimes(600)) as two:
            two.agent(adapter, toolset=box)
            assert failed(await two.get(task.id)) == (TOOL_OUTCOME_UNKNOWN if point is ToolEnds else RESTARTED)
            one.ledger.let_go()
            await soon(one.runner.idle())
            await two.send("2", context="c")
    assert len(late.requests) == 1
    assert box.done == ([] if point is ToolStarts else ["one"])
    status, output = {
        ToolStarts: ("cancelled", NOT_RUN),
        ToolEnds: ("interrupted", UNKNOWN),
        Prepare: ("completed", "1"),
    }[point]
    assert query(path, STATUSES) == [("one", status)]
    shown = ([], []) if ownership is G and point is ToolStarts else (["C c1 one"], [f"O c1 {output}"])
    assert adapter.sent[0] == next_request(ownership, *shown)
    assert violations(path) == []


def _pass_on(core: Core, kind: type[CommitPoint]) -> Any:
    """The held commits are stored, up to the next one of this kind."""
    waiting = core.ledger._gate
    assert waiting is not None
    units = list(waiting.waiting)
    gate = core.ledger.hold(kind)
    for points, done in units:
        core.ledger.submit(points, done)
    return gate


@ALL
async def test_136_a_process_that_ends_while_a_tool_runs_leaves_it_to_the_next_one(
    tmp_path: Path, ownership: Ownership
) -> None:
    path = tmp_path / "ledger.db"
    one = Pause()
    async with running_core(path, prefix="one") as first:
        first.agent(adapter_of(ownership, asks("r1", "one", "two")), toolset=Effects({"one": one, "two": 2}))
        task = await first.send("1", context="c", at_once=True)
        await soon(one.reached.wait())
        await until(lambda: query(path, STATUSES)[1] == ("two", "completed"))
    adapter = ScriptedAdapter(ownership, says("A", "r3" if ownership is BR else "c"))
    async with running_core(path, prefix="two", now=START + 6000) as second:
        second.agent(adapter)
        assert failed(await second.get(task.id)) == TOOL_OUTCOME_UNKNOWN
        await second.send("2", context="c")
    assert adapter.sent[0] == next_request(ownership, ["C c1 one", "C c2 two"], [f"O c1 {UNKNOWN}", "O c2 2"])
    assert violations(path) == []


@pytest.mark.parametrize("ownership", [G, BR], ids=["G", "BR"])
async def test_59_a_turn_that_died_in_a_tool_has_not_been_for_the_model_with_per_turn(
    tmp_path: Path, ownership: Ownership
) -> None:
    path = tmp_path / "ledger.db"
    one = Pause()
    async with running_core(path, prefix="one") as first:
        adapter = adapter_of(ownership, says("A0", "r0"), asks("r1", "one"))
        first.agent(adapter, toolset=Effects({"one": one}), persistence="per_turn")
        await first.send("0", context="c")
        task = await first.send("1", context="c", at_once=True)
        await soon(one.reached.wait())
    adapter = adapter_of(ownership, says("A", "r3"), says("A4", "r4"))
    async with running_core(path, prefix="two", lease=QUICK) as second:
        second.agent(adapter, persistence="per_turn")
        second.time.now = START + 6000
        assert failed(await settled(second, task)) == TOOL_OUTCOME_UNKNOWN
        await second.send("2", context="c")
    assert adapter.sent[0] == (("r0", ["U 2"]) if ownership is BR else (None, ["U 0", "A A0", "U 2"]))
    assert query(path, "SELECT handle FROM delete_job") == ([("r1",)] if ownership is BR else [])
    assert violations(path) == []


# --- the call behind the tools ---


@ALL
async def test_109b_a_call_behind_tools_that_is_made_again_carries_the_same_outputs_and_runs_nothing_again(
    core: Core, ownership: Ownership
) -> None:
    box = Effects({"one": 1})
    busy: Script = [AdapterError(ErrorClass.RATE_LIMITED, "429")]
    adapter = adapter_of(ownership, asks("r1", "one"), busy, says("A", "r2"), says("B", "r3"))
    core.agent(adapter, toolset=box)
    assert (await core.send("1", context="c")).status.state is TaskState.COMPLETED
    assert adapter.sent[1] == adapter.sent[2]
    assert adapter.sent[2][1][-1] == "O c1 1"
    assert box.ran == ["one"]
    await core.send("2", context="c")
    assert query(core.path, "SELECT round, attempt, status FROM service_call ORDER BY id")[:3] == [
        (0, 0, "completed"),
        (1, 0, "failed"),
        (1, 1, "completed"),
    ]
    assert violations(core.path) == []


async def test_41_a_handle_that_is_lost_behind_tools_is_rebuilt_with_their_outcomes(core: Core) -> None:
    lost: Script = [AdapterError(ErrorClass.HANDLE_EXPIRED, "404")]
    box = Effects({"one": 1})
    adapter = adapter_of(BR, asks("r1", "one"), lost, says("A", "q1"), says("B", "q2"))
    core.agent(adapter, toolset=box, on_lost_handle="rebuild")
    assert (await core.send("1", context="c")).status.state is TaskState.COMPLETED
    assert adapter.sent[2] == (None, ["U 1", "C c1 one", "O c1 1"])
    await core.send("2", context="c")
    assert adapter.sent[3] == ("q1", ["U 2"])
    assert box.ran == ["one"]


async def test_99_a_window_never_cuts_through_the_round_that_runs(core: Core) -> None:
    adapter = adapter_of(G, says("A0"), asks("r1", "one"), asks("r2", "one"), says("A"), says("B"))
    core.agent(adapter, toolset=Effects({"one": "x" * 1000}), history_messages=1)
    await core.send("0", context="c")
    await core.send("1", context="c")
    await core.send("2", context="c")
    big = "x" * 1000
    round_ = ["C c1 one", f"O c1 {big}"]
    assert [items for _, items in adapter.sent[1:]] == [
        ["U 1"],
        ["U 1", *round_],
        ["U 1", *round_, *round_],
        ["U 2"],
    ]


class Untidy(ScriptedAdapter):
    """Its first call fails when it is closed."""

    async def call(self, request: Any) -> Any:
        try:
            async for event in super().call(request):
                yield event
        finally:
            if len(self.requests) == 1:
                raise AdapterError(ErrorClass.BACKEND_FAILED, "the connection broke when it was closed")


@pytest.mark.parametrize("ownership", [G, BR], ids=["G", "BR"])
async def test_48_a_fault_behind_the_end_of_a_call_does_not_stop_the_loop(core: Core, ownership: Ownership) -> None:
    adapter = Untidy(ownership, asks("r1", "one"), says("A", "r2"))
    core.agent(adapter, toolset=Effects({"one": 1}))
    assert (await core.send("1", context="c")).status.state is TaskState.COMPLETED
    assert violations(core.path) == []


@ALL
async def test_70_calls_of_earlier_turns_are_not_run_again(core: Core, ownership: Ownership) -> None:
    box = Effects({"one": 1})
    adapter = adapter_of(ownership, asks("r1", "one"), says("A", "r2"), says("B", "r3"), says("C", "r4"))
    core.agent(adapter, toolset=box)
    for text in "123":
        await core.send(text, context="c")
    assert box.ran == ["one"]


@ALL
async def test_137_a_cancel_and_the_end_of_the_loop_have_one_winner(core: Core, ownership: Ownership) -> None:
    core.agent(adapter_of(ownership, asks("r1", "one"), says("A", "r2")), toolset=Effects({"one": 1}))
    gate = core.ledger.hold(Finish)
    task = await core.send("1", context="c", at_once=True)
    await soon(gate.reached.wait())
    work = core.runner.run_of(task.id)
    assert work is not None
    core.runner.request_cancel(work)
    core.ledger.let_go()
    await soon(core.runner.idle())
    assert (await core.get(task.id)).status.state is TaskState.COMPLETED
    assert violations(core.path) == []


async def test_82_a_call_that_never_ran_is_no_result_to_use_again(core: Core) -> None:
    lasting = dataclasses.replace(BR, call_ids="thread")
    first = Pause()
    box = Effects({"one": first, "two": 2})
    again: Script = [ToolCallReady("c2", "two", "{}"), CallCompleted("r2")]
    adapter = ScriptedAdapter(lasting, asks("r1", "one", "two"), again, says("A", "r3"))
    core.agent(adapter, toolset=box, parallel_tools=1)
    task = await core.send("1", context="c", at_once=True)
    await soon(first.reached.wait())
    await core.cancel(task.id)
    await core.send("2", context="c")
    assert box.done == ["two"]
    assert adapter.sent[2] == ("r2", ["O c2 2"])


async def test_82_a_call_of_an_answer_that_was_cut_is_no_result_to_use_again(core: Core) -> None:
    box = Effects({"one": 1})
    cut: Script = [ToolCallReady("c1", "one", "{}"), CallCompleted("r1", finish="max_output_tokens")]
    adapter = ScriptedAdapter(dataclasses.replace(BR, call_ids="thread"), cut, asks("r2", "one"), says("A", "r3"))
    core.agent(adapter, toolset=box)
    await core.send("1", context="c")
    assert box.done == []
    await core.send("2", context="c")
    assert box.done == ["one"]
    assert adapter.sent[2] == ("r2", ["O c1 1"])


async def test_104_an_unknown_reason_for_an_answer_that_is_not_whole_is_told_to_the_log_alone(core: Core) -> None:
    core.agent(ScriptedAdapter(BR, [TextDelta("An"), CallCompleted("r1", finish="error hdrsecret777")]))
    with capture_logs() as logs:
        task = await core.send("1", context="c")
    (line,) = (entry for entry in logs if entry["event"] == "call.unknown-finish")
    assert task.status.message is not None
    why = {"finishReason": "other", "correlationId": line["correlation_id"]}
    assert task.status.message.metadata == why
    assert task.metadata == {"finishReason": "other"}
    assert line["reason"] == "'error hdrsecret777'"
    assert b"hdrsecret777" not in msgspec.json.encode(task)
