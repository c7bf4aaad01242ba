"""Scenario 109d for turns of dead processes that nobody gets to an end: each is tried a few times and put aside, its thread
fails closed as with 130, everything else goes on, and there is a way out."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from gateway.a2a.errors import Busy, UnsupportedOperation
from gateway.a2a.model import TaskState
from gateway.core.failures import CONTEXT_STUCK, TOOL_OUTCOME_UNKNOWN
from gateway.ledger.calls import RESTARTED
from gateway.ledger.errors import Conflict, CorruptRecord, LedgerUnavailable
from gateway.ledger.leases import TRIES, Claim, CountTries, TakeOver
from gateway.ledger.tasks import Finish
from gateway.ledger.threads import Caller
from gateway.ledger.tool_calls import ToolEnds
from gateway.ports.adapter import TextDelta
from gateway.scheduling.leases import LeaseTimes
from tests.invariants import violations
from tests.scenarios.test_background import BEGUN, WHOLE
from tests.scenarios.test_recovery_continues import LATER, left_behind
from tests.scenarios.test_tool_loop import adapter_of, asks, call
from tests.support.core import Core, FragileLedger, answer, error_class, logged, query, running_core, soon
from tests.support.deletions import contexts
from tests.support.resuming_adapter import ResumingAdapter
from tests.support.rows import change
from tests.support.scripted import BR, G, Pause, ScriptedAdapter, says
from tests.support.scripted_tools import ScriptedTools

QUICK = LeaseTimes(0.05)
TOLD = [TextDelta("a")]


class Poisoned:
    """A ledger in which a read fails for some turns, tasks or threads. It gets well when `bad` is cleared."""

    def __init__(self, read: str, *bad: str, error: Exception | None = None) -> None:
        self.read, self.bad, self.tried = read, set(bad), 0
        self.error = error or KeyError("what nobody has thought of")

    async def refuse(self) -> None:
        raise self.error

    def around(self, ledger: FragileLedger) -> None:
        ledger.wrap(lambda real: _Around(self, real))


class Holding(Poisoned):
    """A read that never returns. `reached`: a caller waits for it."""

    def __init__(self, read: str, *bad: str) -> None:
        super().__init__(read, *bad)
        self.reached = asyncio.Event()

    async def refuse(self) -> None:
        self.reached.set()
        await asyncio.Event().wait()


class _Around:
    def __init__(self, poison: Poisoned, real: Any) -> None:
        self._poison, self._real = poison, real

    def __getattr__(self, name: str) -> Any:
        read = getattr(self._real, name)
        return self._failing(read) if name == self._poison.read else read

    def _failing(self, read: Callable[..., Any]) -> Callable[..., Any]:
        async def failing(*asked: Any, **how: Any) -> Any:
            of = asked[0] if isinstance(asked[0], tuple) else asked[:1]
            if self._poison.bad.intersection(of):
                self._poison.tried += 1
                await self._poison.refuse()
            return await read(*asked, **how)

        return failing


def turn_of(path: Path, task: str) -> str:
    [(turn,)] = query(path, "SELECT id FROM turn WHERE task = ?", task)
    return str(turn)


def tries(path: Path, task: str) -> int | None:
    """None: it has ended."""
    [(found, ended)] = query(path, "SELECT tries, ended_at FROM turn WHERE task = ?", task)
    return None if ended is not None else int(found)


def count(path: Path, task: str, number: int) -> None:
    """So many processes have died of it."""
    change(path, "UPDATE turn SET tries = ? WHERE task = ?", number, task)


async def rounds(core: Core, number: int = 3) -> None:
    """What is left has been looked at so often, twice each time, and settled as far as it goes."""
    for _ in range(2 * number):
        again = core.ledger.slow_read("unfinished_turns")
        await soon(again.reached.wait())
        again.go.set()


def survivor(
    path: Path, poison: Poisoned | None, adapter: ScriptedAdapter | None = None, **more: Any
) -> AbstractAsyncContextManager[Core]:
    before = poison.around if poison is not None else lambda _: None
    adapter = adapter or ScriptedAdapter(G, says("new"), says("newer"))
    return running_core(
        path, **{"prefix": "two", "now": LATER, "lease": QUICK, "before": before, "adapter": adapter, **more}
    )


async def put_aside(path: Path, *texts: str) -> tuple[list[str], Poisoned]:
    """The tasks of a context whose first turn no try can end."""
    tasks = await left_behind(path, G, *(texts or ("1",)), script=TOLD)
    return tasks, Poisoned("open_tool_calls", turn_of(path, tasks[0]))


# --- three tries, and no more ---


async def test_109d_a_turn_that_cannot_be_ended_is_put_aside_behind_the_last_try_and_all_others_end(
    tmp_path: Path,
) -> None:
    path = tmp_path / "ledger.db"
    [bad], poison = await put_aside(path)
    with capture_logs() as log:
        async with survivor(path, poison) as core:
            await rounds(core, TRIES + 4)
            assert (poison.tried, tries(path, bad)) == (TRIES, TRIES)
            assert answer(await core.send("2", context="d")) == "new"
    told = [entry for entry in log if entry["event"] == "turn.put-aside"]
    assert told == [
        {"event": "turn.put-aside", "log_level": "error", "task": bad, "turn": turn_of(path, bad), "context": "c"}
    ]


@pytest.mark.parametrize("before", range(TRIES))
async def test_109d_what_killed_its_process_before_is_tried_for_the_rest_of_its_tries(
    tmp_path: Path, before: int
) -> None:
    path = tmp_path / "ledger.db"
    [bad], poison = await put_aside(path)
    count(path, bad, before)
    async with survivor(path, poison) as core:
        await rounds(core, TRIES + 3)
        assert (poison.tried, tries(path, bad)) == (TRIES - before, TRIES)


async def test_109d_who_finds_a_turn_that_was_put_aside_leaves_it_alone_and_says_so(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    [bad], poison = await put_aside(path)
    count(path, bad, TRIES)
    before = logged(path, bad)
    with capture_logs() as log:
        async with survivor(path, poison) as core:
            await rounds(core)
    assert (poison.tried, [entry["event"] for entry in log].count("turn.put-aside")) == (0, 1)
    assert logged(path, bad) == before


async def test_109d_the_last_try_ends_a_turn_of_which_nothing_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    [bad] = await left_behind(path, G, "1", script=TOLD)
    poison = Poisoned("turns", bad, error=CorruptRecord("spoilt"))
    before = logged(path, bad)
    async with survivor(path, poison) as core:
        await rounds(core, TRIES + 2)
        task = await core.get(bad)
        assert (task.status.state, error_class(task), task.artifacts) == (TaskState.FAILED, RESTARTED, None)
        assert logged(path, bad)[:-1] == before
        assert tries(path, bad) is None
        poison.bad.clear()
        assert answer(await core.send("2", context="c")) == "new"
    assert violations(path) == []


async def test_50_the_last_try_tells_the_model_what_became_of_a_tool(tmp_path: Path) -> None:
    path, pause = tmp_path / "ledger.db", Pause()
    async with running_core(path, prefix="one") as one:
        one.agent(adapter_of(G, asks("r1", call("c1", "book"))), toolset=ScriptedTools({"book": pause}))
        bad = (await one.send("1", context="c", at_once=True)).id
        await soon(pause.reached.wait())
    async with survivor(path, Poisoned("turns", bad)) as core:
        await rounds(core, TRIES + 2)
        [(failure,)] = query(path, "SELECT failure_class FROM turn")
        assert (failure, query(path, "SELECT status FROM tool_call")) == (TOOL_OUTCOME_UNKNOWN, [("interrupted",)])
        assert len(core.ledger.stored(ToolEnds)) == 1
    assert violations(path) == []


async def test_109d_a_turn_that_waited_and_cannot_be_taken_up_fails_as_well(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    first, second = await left_behind(path, G, "1", "2", script=TOLD)
    poison = Poisoned("turns", second, error=CorruptRecord("spoilt"))
    async with survivor(path, poison) as core:
        await rounds(core, TRIES + 2)
        poison.bad.clear()
        assert [error_class(await core.get(task)) for task in (first, second)] == [RESTARTED, RESTARTED]


# --- what is nobody's fault ---


async def test_109d_a_database_that_takes_no_writes_puts_nobody_aside(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    [task] = await left_behind(path, G, "1", script=TOLD)
    lost: list[asyncio.Event] = []

    def full(ledger: FragileLedger) -> None:
        lost.extend(ledger.refuse(Finish) for _ in range(TRIES + 2))

    async with survivor(path, None, before=full, lease=LeaseTimes(0.05, start=0.0)) as core:
        await soon(lost[-1].wait())
        await rounds(core)
        assert error_class(await core.get(task)) == RESTARTED
    assert violations(path) == []


@pytest.mark.parametrize("read", ["turns", "open_tool_calls"])
async def test_109d_a_database_that_cannot_be_read_puts_nobody_aside(tmp_path: Path, read: str) -> None:
    path = tmp_path / "ledger.db"
    [task] = await left_behind(path, G, "1", script=TOLD)
    asked = turn_of(path, task) if read == "open_tool_calls" else task
    poison = Poisoned(read, asked, error=LedgerUnavailable("the disk is gone"))
    async with survivor(path, poison, lease=LeaseTimes(0.05, start=0.0)) as core:
        await rounds(core, TRIES + 3)
        assert (poison.tried > TRIES, tries(path, task)) == (True, 0)
        poison.bad.clear()
        await rounds(core)
        assert error_class(await core.get(task)) == RESTARTED


async def test_109d_a_process_that_is_stopped_in_a_try_leaves_none(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    [task] = await left_behind(path, G, "1", script=TOLD)
    for number in range(TRIES + 1):
        lease, poison = LeaseTimes(5.0, start=0.0), Holding("open_tool_calls", turn_of(path, task))
        async with survivor(path, poison, prefix=f"p{number}", lease=lease):
            await soon(poison.reached.wait())
            assert tries(path, task) == 1
        assert tries(path, task) == 0


async def test_109d_who_loses_a_race_for_the_end_counts_nothing(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    [task] = await left_behind(path, G, "1", script=TOLD)
    lost: list[asyncio.Event] = []

    def losing(ledger: FragileLedger) -> None:
        lost.extend(ledger.refuse(Finish, Conflict("another was faster")) for _ in range(TRIES + 2))

    async with survivor(path, None, before=losing) as core:
        await soon(lost[-1].wait())
        await rounds(core)
        assert error_class(await core.get(task)) == RESTARTED


async def test_109d_what_goes_on_counts_no_tries(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    first, second = await left_behind(path, G, "1", "2")
    for task in (first, second):
        count(path, task, TRIES - 2)
    pause = Pause()
    async with survivor(path, None, ScriptedAdapter(G, [pause, *says("a")], says("b"))) as core:
        await soon(pause.reached.wait())
        assert [tries(path, task) for task in (first, second)] == [0, 0]
        assert (len(core.ledger.stored(TakeOver)), len(core.ledger.stored(Claim))) == (1, 1)
        pause.go.set()
        await soon(core.runner.idle())
        assert [answer(await core.get(task)) for task in (first, second)] == ["a", "b"]


# --- an answer that is listened to again ---


async def test_109d_an_answer_that_kills_who_listens_to_it_is_given_up(tmp_path: Path) -> None:
    path, begun = tmp_path / "ledger.db", Pause()
    async with running_core(path, prefix="one") as one:
        one.agent(ResumingAdapter([*BEGUN, begun]))
        task = (await one.send("1", context="c", at_once=True)).id
        await soon(begun.reached.wait())
    for number in range(1, TRIES):
        pause, now = Pause(), LATER + number * 10**5
        async with survivor(path, None, ResumingAdapter(again=[[*BEGUN, pause]]), prefix=f"p{number}", now=now):
            await soon(pause.reached.wait())
            assert tries(path, task) == number
    last = ResumingAdapter(again=[WHOLE])
    async with survivor(path, None, last, prefix="last", now=LATER + TRIES * 10**5) as core:
        await rounds(core)
        assert (error_class(await core.get(task)), last.resumed) == (RESTARTED, [])


# --- what a caller sees ---


async def test_130_the_context_of_a_turn_that_was_put_aside_takes_no_message_and_all_others_do(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    [bad], poison = await put_aside(path)
    count(path, bad, TRIES)
    async with survivor(path, poison) as core:
        with pytest.raises(UnsupportedOperation, match=bad):
            await core.send("2", context="c")
        with pytest.raises(UnsupportedOperation, match=bad):
            await core.send("2", task=bad)
        assert answer(await core.send("2", context="d")) == "new"
        core.agent(ScriptedAdapter(G, says("hers")), "other")
        assert answer(await core.send("2", context="c")) == "hers"
        assert query(
            path, "SELECT count(*) FROM turn WHERE thread = (SELECT thread FROM turn WHERE task = ?)", bad
        ) == [(1,)]


async def test_130_a_task_that_was_put_aside_can_be_read_without_its_log(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    [bad], poison = await put_aside(path)
    count(path, bad, TRIES)
    change(path, "UPDATE event SET payload = 'no JSON' WHERE task = ?", bad)
    async with survivor(path, poison) as core:
        task = await core.get(bad)
        assert (task.status.state, task.metadata, task.artifacts) == (TaskState.WORKING, {"quarantined": True}, None)
        assert [part.text for said in task.history or () for part in said.parts] == ["1"]
        [listed] = (await core.list()).tasks
        assert (listed.id, listed.status) == (bad, task.status)


async def test_130_a_task_that_was_put_aside_and_whose_message_cannot_be_read_still_tells_its_state(
    tmp_path: Path,
) -> None:
    path = tmp_path / "ledger.db"
    [bad], poison = await put_aside(path)
    count(path, bad, TRIES)
    change(path, "UPDATE input SET payload = 'no JSON'")
    async with survivor(path, poison) as core:
        task = await core.get(bad)
        assert (task.status.state, task.metadata, task.history) == (TaskState.WORKING, {"quarantined": True}, None)


async def test_109d_what_waited_behind_a_turn_that_was_put_aside_fails_and_says_why(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    [bad, second, third], poison = await put_aside(path, "1", "2", "3")
    count(path, bad, TRIES)
    adapter = ScriptedAdapter(G)
    async with survivor(path, poison, adapter) as core:
        await rounds(core)
        assert [error_class(await core.get(task)) for task in (second, third)] == [CONTEXT_STUCK] * 2
        assert (tries(path, bad), adapter.requests) == (TRIES, [])


# --- the way out ---


async def test_109d_cancelling_a_task_that_was_put_aside_tries_once_more_and_frees_its_context(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    [bad], poison = await put_aside(path)
    count(path, bad, TRIES)
    before = logged(path, bad)
    async with survivor(path, poison) as core:
        poison.bad.clear()
        await rounds(core)
        assert tries(path, bad) == TRIES
        canceled = await soon(core.cancel(bad))
        assert (canceled.status.state, canceled.metadata) == (TaskState.CANCELED, None)
        assert logged(path, bad)[:-1] == before
        assert answer(await core.send("2", context="c")) == "new"
    assert violations(path) == []


async def test_109d_a_task_that_cannot_even_be_cancelled_stays_where_it_is(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    [bad], poison = await put_aside(path)
    count(path, bad, TRIES)
    async with survivor(path, poison, lease=LeaseTimes(0.3)) as core:
        for number in (1, 2):
            with pytest.raises(Busy):
                await soon(core.cancel(bad))
            assert (poison.tried, tries(path, bad)) == (number, TRIES)


async def test_139_a_context_with_a_turn_that_was_put_aside_can_be_deleted(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    [bad], poison = await put_aside(path)
    count(path, bad, TRIES)
    async with survivor(path, poison) as core:
        await soon(contexts(core).delete(Caller("ada"), "c"))
        await rounds(core)
        assert query(path, "SELECT 1 FROM turn") == query(path, "SELECT 1 FROM task") == []
    assert violations(path) == []


async def test_109d_an_operator_may_have_it_tried_again_from_the_beginning(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    [bad], poison = await put_aside(path)
    count(path, bad, TRIES)
    async with survivor(path, poison) as core:
        await rounds(core)
        poison.bad.clear()
        count(path, bad, 0)
        await rounds(core)
        task = await core.get(bad)
        assert (error_class(task), answer(task)) == (RESTARTED, "a")


async def test_109d_two_processes_that_try_at_once_count_it_once(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    [bad], poison = await put_aside(path)
    async with survivor(path, poison) as core, survivor(path, poison, prefix="three") as other:
        async with asyncio.TaskGroup() as group:
            for one in (core, other):
                group.create_task(rounds(one, TRIES + 4))
        assert (poison.tried, tries(path, bad)) == (TRIES, TRIES)


async def test_130_a_plain_message_asks_for_nothing_more(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    async with survivor(path, None, ScriptedAdapter(BR, says("a", "r1"), says("b", "r2"))) as core:
        await core.send("1", context="c")
        core.ledger.reads.clear()
        await core.send("2", context="c")
        assert core.ledger.reads.count("context") == 1
        assert core.ledger.stored(CountTries) == []
