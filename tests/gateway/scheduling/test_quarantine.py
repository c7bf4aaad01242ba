"""Which turns are tried, in which order, and when one is acquitted. What that means to callers is in tests/scenarios."""

import asyncio
import dataclasses
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import msgspec
import pytest

from gateway.a2a.model import TaskState
from gateway.core.replay import ShownOutput
from gateway.core.task_record import TurnOutput
from gateway.engine.turn_run import ResumePoint
from gateway.foundation.clock import Clock
from gateway.ledger.errors import Conflict, LedgerUnavailable
from gateway.ledger.leases import TRIES, CountTries, TakeTriesBack, UnfinishedTurn
from gateway.ledger.port import Ledger
from gateway.ledger.tasks import TaskRecord
from gateway.ledger.threads import Caller
from gateway.ports.capabilities import Ongoing
from gateway.scheduling.orphans import Quarantine, is_last, settle_all
from tests.support.core import message, soon


class Counting:
    """A ledger that collects its points, and refuses the first one on demand."""

    def __init__(self, refusal: Exception | None = None) -> None:
        self.points: list[CountTries | TakeTriesBack] = []
        self._refusal = refusal

    async def commit(self, point: CountTries) -> None:
        if self._refusal is not None:
            raise self._refusal
        self.points.append(point)

    def submit(self, points: Iterable[CountTries | TakeTriesBack], _: object) -> None:
        self.points.extend(points)


def left(turn: str, tries: int = 0) -> UnfinishedTurn:
    """`turn` is THREAD.NUMBER."""
    task = TaskRecord(f"task-{turn}", "row", "c", "echo", TaskState.WORKING, None, 0, 0, True, 0)
    return UnfinishedTurn(turn, turn.partition(".")[0], 1, task, Caller("ada", ""), tries=tries)


def quarantine(ledger: Counting | None = None, clock: Clock | None = None) -> Quarantine:
    port: Any = ledger or Counting()
    found: Ledger = port
    return Quarantine(found, clock or Clock(), probation=5.0)


def test_the_last_try_is_the_fourth() -> None:
    assert [is_last(left("1.1", tries)) for tries in range(TRIES)] == [False, False, False, True]


def test_a_turn_that_is_put_aside_is_not_tried_and_later_turns_of_its_thread_are_known() -> None:
    kept = quarantine()
    found = [
        left("1.1"),
        left("1.2", TRIES),
        left("1.3"),
        left("1.4", 1),
        left("2.1", TRIES - 1),
        left("3.1", TRIES + 9),
    ]
    assert [unfinished.turn for unfinished in kept.sift(found)] == ["1.1", "1.3", "1.4", "2.1"]
    assert kept.blocked == {"1.3", "1.4"}
    assert kept.sift([left("1.3")]) == [left("1.3")]
    assert kept.blocked == frozenset()


async def test_a_turn_that_may_have_killed_its_process_is_tried_last_and_alone() -> None:
    begun: list[str] = []
    at_work = 0

    async def settle(unfinished: UnfinishedTurn) -> None:
        nonlocal at_work
        at_work += 1
        begun.append(unfinished.turn)
        await asyncio.sleep(0)
        assert at_work == 1 or not unfinished.tries
        at_work -= 1

    found = [left("1.1", 2), left("2.1", 1), left("2.2"), left("3.1"), left("4.1"), left("5.1", 1)]
    await soon(settle_all(found, settle))
    assert begun == ["3.1", "4.1", "2.1", "2.2", "5.1", "1.1"]


async def test_a_try_is_counted_before_it_is_made() -> None:
    ledger = Counting()

    async def settle() -> bool:
        assert ledger.points == [CountTries("1.1", 1, 2)]
        return True

    await quarantine(ledger).attempt(left("1.1", 1), settle)
    assert ledger.points == [CountTries("1.1", 1, 2)]


async def test_a_turn_that_another_process_is_trying_is_left_alone() -> None:
    async def settle() -> bool:
        raise AssertionError

    await quarantine(Counting(Conflict("1 row"))).attempt(left("1.1"), settle)


@pytest.mark.parametrize("error", [KeyError("what nobody has thought of"), None])
async def test_only_a_try_that_failed_stays_counted(error: Exception | None) -> None:
    ledger = Counting()

    async def settle() -> bool:
        if error is not None:
            raise error
        return False

    if error is None:
        await quarantine(ledger).attempt(left("1.1"), settle)
    else:
        with pytest.raises(KeyError):
            await quarantine(ledger).attempt(left("1.1"), settle)
    assert ledger.points[1:] == ([] if error else [TakeTriesBack("1.1", 1)])


@pytest.mark.parametrize("error", [KeyError("what nobody has thought of"), LedgerUnavailable("the disk is full"), None])
async def test_of_a_turn_that_had_not_begun_only_a_failure_is_counted(error: Exception | None) -> None:
    ledger, waits = Counting(), msgspec.structs.replace(left("1.1", 1), waits=True)

    async def settle() -> bool:
        assert ledger.points == []
        if error is not None:
            raise error
        return True

    with suppress(KeyError, LedgerUnavailable):
        await quarantine(ledger).attempt(waits, settle)
    assert ledger.points == ([CountTries("1.1", 1, 2)] if isinstance(error, KeyError) else [])


@pytest.mark.parametrize("error", [LedgerUnavailable("the disk is full"), asyncio.CancelledError()])
async def test_a_try_that_the_ledger_or_a_cancellation_ended_is_not_counted(error: BaseException) -> None:
    ledger = Counting()

    async def settle() -> bool:
        raise error

    with pytest.raises(type(error)):
        await quarantine(ledger).attempt(left("1.1", 1), settle)
    assert ledger.points == [CountTries("1.1", 1, 2), TakeTriesBack("1.1", 1)]


def test_a_turn_that_is_listened_to_again_is_acquitted_when_its_process_has_outlived_it_for_long_enough() -> None:
    ledger, now = Counting(), 100.0
    kept = quarantine(ledger, msgspec.structs.replace(Clock(), monotonic=lambda: now))
    for turn, names in (("1.1", Ongoing("r1")), ("2.1", Ongoing("r2")), ("3.1", None)):
        run: Any = _Run(ResumePoint(0, 0, names, ShownOutput(TurnOutput(message("1")), "")))
        kept.watch(left(turn, 1), run)
    now = 104.9
    kept.acquit({"1.1", "2.1", "3.1"})
    assert ledger.points == []
    now = 105.0
    kept.acquit({"1.1", "3.1"})
    kept.acquit({"1.1", "3.1"})
    assert ledger.points == [TakeTriesBack("1.1", 2)]


@dataclasses.dataclass
class _Run:
    resume_point: ResumePoint | None
