"""A call with a name of its own in a static conversation: a run of a thread, a task of a context. It is cancelled, listened to
again and looked up by both names, in the turn that makes the conversation as in a later one."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from gateway.ports.adapter import AdapterError, CallCompleted, CallStarted, ErrorClass, TextDelta
from gateway.ports.capabilities import Fate, Fetched, Ongoing
from tests.invariants import violations
from tests.support.core import START, Core, answer, logged, numbers, query, running_core, soon
from tests.support.resuming_adapter import ResumingAdapter
from tests.support.scripted import BS, Pause, Script, ScriptedAdapter, name_of, says
from tests.support.unknown_calls import FetchingAdapter

LATER = START + 6000
CUT = AdapterError(ErrorClass.INTERRUPTED, "cut")
NAMED: Script = [CallStarted(run="run2")]
BEGUN: Script = [*NAMED, TextDelta("one "), TextDelta("two ")]
REST: Script = [TextDelta("three"), CallCompleted("c")]
WHOLE: Script = [*BEGUN, *REST]
ENDED = Fetched(Fate.COMPLETED, (CallStarted("c", "run2"), TextDelta("one two three"), CallCompleted("c")))
RUNNING, FAILED, GONE = Fetched(Fate.RUNNING), Fetched(Fate.FAILED), Fetched(Fate.GONE)

TURNS = pytest.mark.parametrize("turn", [1, 2])


class RunAdapter(FetchingAdapter):
    """`confirms`: its answer to a cancellation; `cancelled` are the names."""

    def __init__(self, *calls: Script, found: Sequence[Fetched | AdapterError] = (), confirms: bool = True) -> None:
        super().__init__(*calls, found=found, ownership=BS)
        self._confirms = confirms
        self.cancelled: list[str] = []

    async def cancel(self, call: Ongoing) -> bool:
        self.cancelled.append(name_of(call))
        return self._confirms


def up_to(turn: int, script: Script) -> list[Script]:
    """The scripts of the turns up to this one, whose call has this script and is named `run2`."""
    if turn == 1:
        return [[CallStarted("c"), *script]]
    return [[CallStarted("c"), CallStarted(run="run1"), *says("A1", "c")], script]


async def sent_before(core: Core, turn: int) -> None:
    if turn == 2:
        await core.send("1", context="x")


def named(path: Path) -> list[tuple[Any, ...]]:
    return query(path, "SELECT pending_handle, run FROM service_call ORDER BY prepared_at, id")


@TURNS
async def test_a_cancelled_turn_ends_its_run_at_the_backend(core: Core, turn: int) -> None:
    pause = Pause()
    adapter = ResumingAdapter(*up_to(turn, [*BEGUN, pause]), ownership=BS)
    core.agent(adapter)
    await sent_before(core, turn)
    task = await core.send("2", context="x", at_once=True)
    await soon(pause.reached.wait())
    assert (await core.cancel(task.id)).status.state.name == "CANCELED"
    assert adapter.cancelled == ["c/run2"]
    assert query(core.path, "SELECT handle FROM delete_job") == []


@TURNS
async def test_a_turn_out_of_time_ends_its_run_at_the_backend(core: Core, turn: int) -> None:
    adapter = ResumingAdapter(*up_to(turn, [*BEGUN, Pause()]), ownership=BS)
    core.agent(adapter, turn_timeout=0.5)
    await sent_before(core, turn)
    assert (await core.send("2", context="x")).status.state.name == "FAILED"
    assert adapter.cancelled == ["c/run2"]


async def test_a_call_without_a_name_is_not_cancelled_by_that_of_its_conversation(core: Core) -> None:
    pause = Pause()
    adapter = ResumingAdapter([CallStarted("c"), pause], ownership=BS)
    core.agent(adapter)
    task = await core.send("1", context="x", at_once=True)
    await soon(pause.reached.wait())
    await core.cancel(task.id)
    assert adapter.cancelled == []


@TURNS
@pytest.mark.parametrize("shown", [BEGUN, NAMED], ids=["with output", "without output"])
async def test_a_stream_that_breaks_off_is_listened_to_again_by_the_name_of_its_run(
    core: Core, turn: int, shown: Script
) -> None:
    adapter = ResumingAdapter(*up_to(turn, [*shown, CUT]), says("next", "c"), again=[[CUT], WHOLE], ownership=BS)
    core.agent(adapter)
    await sent_before(core, turn)
    task = await core.send("2", context="x")
    assert (task.status.state.name, answer(task)) == ("COMPLETED", "one two three")
    assert adapter.resumed == ["c/run2", "c/run2"]
    await core.send("3", context="x")
    assert adapter.sent[-1] == ("c", ["U 3"])
    assert len(adapter.sent) == turn + 1
    assert violations(core.path) == []


@TURNS
@pytest.mark.parametrize("shown", [BEGUN, NAMED], ids=["with output", "without output"])
async def test_a_run_goes_on_in_another_process_when_its_own_died(tmp_path: Path, turn: int, shown: Script) -> None:
    path = tmp_path / "ledger.db"
    task_id = await left_behind(path, turn, shown)
    before = logged(path, task_id)
    adapter = ResumingAdapter(says("next", "c"), again=[WHOLE], ownership=BS)
    async with running_core(path, prefix="two", now=LATER, adapter=adapter) as two:
        await soon(two.runner.idle())
        task = await two.get(task_id)
        assert (task.status.state.name, answer(task)) == ("COMPLETED", "one two three")
        await two.send("3", context="x")
    after = logged(path, task_id)
    assert after[: len(before)] == before
    assert numbers(after) == list(range(1, len(after) + 1))
    assert (adapter.resumed, adapter.sent) == (["c/run2"], [("c", ["U 3"])])
    assert violations(path) == []


async def left_behind(
    path: Path, turn: int, shown: Script, adapter: type[ResumingAdapter | FetchingAdapter] = ResumingAdapter
) -> str:
    """The task of a turn whose process died when its run had shown so much."""
    pause = Pause()
    async with running_core(path, prefix="one") as one:
        one.agent(adapter(*up_to(turn, [*shown, pause]), ownership=BS))
        await sent_before(one, turn)
        task = await one.send("2", context="x", at_once=True)
        await soon(pause.reached.wait())
        await one.get(task.id)
        return task.id


@TURNS
async def test_a_run_that_was_taken_over_can_be_cancelled(tmp_path: Path, turn: int) -> None:
    path = tmp_path / "ledger.db"
    task_id = await left_behind(path, turn, BEGUN)
    pause = Pause()
    adapter = ResumingAdapter(again=[[*BEGUN, pause]], ownership=BS)
    async with running_core(path, prefix="two", now=LATER, adapter=adapter) as two:
        await soon(pause.reached.wait())
        assert (await two.cancel(task_id)).status.state.name == "CANCELED"
    assert adapter.cancelled == ["c/run2"]


# --- a run that nobody listened to until its end


@TURNS
async def test_a_run_that_has_completed_is_part_of_the_conversation_and_nothing_of_it_is_sent_again(
    core: Core, turn: int
) -> None:
    adapter = RunAdapter(*up_to(turn, [*BEGUN, CUT]), says("next", "c"), found=[ENDED])
    core.agent(adapter)
    await sent_before(core, turn)
    assert (await core.send("2", context="x")).status.state.name == "FAILED"
    await core.send("3", context="x")
    assert adapter.fetched == ["c/run2"]
    assert adapter.sent[-1] == ("c", ["U 3"])
    assert query(core.path, "SELECT handle FROM thread") == [("c",)]
    assert violations(core.path) == []


@TURNS
async def test_a_run_of_a_dead_process_is_looked_up_before_the_next_message(tmp_path: Path, turn: int) -> None:
    path = tmp_path / "ledger.db"
    await left_behind(path, turn, BEGUN, FetchingAdapter)
    adapter = RunAdapter(says("next", "c"), found=[ENDED])
    async with running_core(path, prefix="two", now=LATER, adapter=adapter) as two:
        await two.send("3", context="x")
    assert (adapter.fetched, adapter.sent) == (["c/run2"], [("c", ["U 3"])])
    assert violations(path) == []


@TURNS
async def test_a_run_that_is_still_at_work_is_waited_for(core: Core, turn: int) -> None:
    adapter = RunAdapter(*up_to(turn, [*BEGUN, CUT]), says("next", "c"), found=[RUNNING, RUNNING, ENDED])
    core.agent(adapter)
    await sent_before(core, turn)
    await core.send("2", context="x")
    assert (await core.send("3", context="x")).status.state.name == "COMPLETED"
    assert (adapter.fetched, adapter.cancelled) == (["c/run2"] * 3, [])
    assert adapter.sent[-1] == ("c", ["U 3"])


@TURNS
async def test_a_run_that_does_not_end_is_cancelled_and_blocks_nothing(core: Core, turn: int) -> None:
    adapter = RunAdapter(*up_to(turn, [*BEGUN, CUT]), says("next", "c"), found=[*[RUNNING] * 4, FAILED])
    core.agent(adapter)
    await sent_before(core, turn)
    await core.send("2", context="x")
    assert (await core.send("3", context="x")).status.state.name == "COMPLETED"
    assert (adapter.fetched, adapter.cancelled) == (["c/run2"] * 5, ["c/run2"])


@TURNS
@pytest.mark.parametrize("confirms", [True, False])
async def test_a_run_that_never_ends_is_left_to_the_lock_of_its_backend(core: Core, turn: int, confirms: bool) -> None:
    adapter = RunAdapter(
        *up_to(turn, [*BEGUN, CUT]), says("next", "c"), found=[RUNNING] * (4 + confirms), confirms=confirms
    )
    core.agent(adapter)
    await sent_before(core, turn)
    await core.send("2", context="x")
    assert (await core.send("3", context="x")).status.state.name == "COMPLETED"


@TURNS
@pytest.mark.parametrize("found", [FAILED, GONE, AdapterError(ErrorClass.NOT_SERVED, "404")])
async def test_what_a_run_that_failed_had_to_say_is_said_again(core: Core, turn: int, found: Any) -> None:
    adapter = RunAdapter(*up_to(turn, [*BEGUN, CUT]), says("next", "c"), found=[found])
    core.agent(adapter)
    await sent_before(core, turn)
    await core.send("2", context="x")
    await core.send("3", context="x")
    assert adapter.sent[-1] == ("c" if turn == 2 else None, ["U 2", "U 3"])
    assert violations(core.path) == []


# --- what is stored


@TURNS
async def test_both_names_of_a_call_are_kept(core: Core, turn: int) -> None:
    core.agent(ScriptedAdapter(BS, *up_to(turn, WHOLE)))
    await sent_before(core, turn)
    await core.send("2", context="x")
    assert named(core.path) == [("c", "run2")] if turn == 1 else [("c", "run1"), (None, "run2")]


@TURNS
async def test_the_name_of_a_run_is_stored_before_any_of_its_output_is_shown(core: Core, turn: int) -> None:
    core.agent(ScriptedAdapter(BS, *up_to(turn, WHOLE)))
    await sent_before(core, turn)
    await core.send("2", context="x")
    units = [list(map(str, unit)) for unit in core.ledger.units]
    naming, showing = (
        next(index for index, unit in enumerate(units) if any(word in point for point in unit))
        for word in ("run2", "one ")
    )
    assert naming <= showing


async def test_the_name_of_a_run_costs_no_commit_of_its_own(core: Core) -> None:
    core.agent(ScriptedAdapter(BS, *up_to(2, WHOLE)))
    await sent_before(core, 2)
    before = len(core.ledger.units)
    await core.send("2", context="x")
    units = [[type(point).__name__ for point in unit] for unit in core.ledger.units[before:]]
    assert [unit for unit in units if unit == ["NameCall"]] == []
