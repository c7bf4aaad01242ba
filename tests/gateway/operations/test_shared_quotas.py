"""Limits of one principal over several processes on a ledger."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from gateway.a2a.errors import TooManyRequests
from gateway.ledger.errors import CorruptRecord, LedgerUnavailable
from gateway.ledger.quotas import CallerUse, ReportUse
from gateway.ledger.threads import Caller
from gateway.operations.quotas import QuotaLimits, Quotas, requests_since
from gateway.operations.shared_quotas import PRESENT, SharedQuotas, next_report
from gateway.scheduling.leases import LeaseTimes
from tests.support.core import START, FragileLedger, Time, query
from tests.support.rows import change
from tests.support.stores import open_store

ADA, BOB = Caller("ada"), Caller("bob", "acme")
LENGTH = 5000
"""Milliseconds of a lease."""

STREAMS = QuotaLimits(streams=3)
REQUESTS = QuotaLimits(requests_per_minute=60)


@dataclass
class Process:
    """A process that counts; its name is its id."""

    name: str
    ledger: FragileLedger
    quotas: Quotas
    shared: SharedQuotas

    async def look(self) -> None:
        await self.shared.look()


class Processes:
    """They share a database and one time."""

    def __init__(self, path: Path, stack: AsyncExitStack) -> None:
        self.path = path
        self.time = Time()
        self._stack = stack

    async def start(self, name: str, limits: QuotaLimits) -> Process:
        ledger = FragileLedger(await self._stack.enter_async_context(open_store(self.path)))
        quotas = Quotas(self.time.clock, limits)
        shared = SharedQuotas(ledger, self.time.clock, name, LeaseTimes(LENGTH / 1000), quotas)
        return Process(name, ledger, quotas, shared)

    async def two(self, limits: QuotaLimits) -> tuple[Process, Process]:
        """Both know of each other."""
        one, two = await self.start("one", limits), await self.start("two", limits)
        for each in (one, two, one):
            await each.look()
        return one, two

    def pass_by(self, milliseconds: int) -> None:
        self.time.now += milliseconds
        self.time.monotonic += milliseconds / 1000

    def rows(self) -> list[tuple[str, int, str]]:
        """The id of each process that has a report, milliseconds until it lapses, and whom it names."""
        return [
            (process, until - self.time.now, callers)
            for process, until, callers in query(self.path, "SELECT process, until, callers FROM quota_use ORDER BY 1")
        ]


@pytest.fixture
async def processes(tmp_path: Path) -> AsyncIterator[Processes]:
    async with AsyncExitStack() as stack:
        yield Processes(tmp_path / "gateway.db", stack)


async def exchanged(*processes: Process) -> None:
    """What each has at first is known to all."""
    for each in (*processes, *processes):
        await each.look()


def admitted(process: Process, caller: Caller = ADA, most: int = 1000) -> int:
    """How many requests are admitted now, up to `most`."""
    for number in range(most):
        try:
            process.quotas.request(caller)
        except TooManyRequests:
            return number
    return most


# --- the ledger is gone


async def test_while_the_ledger_does_not_answer_each_process_counts_for_itself(processes: Processes) -> None:
    one, two = await processes.two(STREAMS)
    for _ in range(3):
        one.quotas.streams.take(ADA)
    await exchanged(one, two)
    with pytest.raises(TooManyRequests):
        two.quotas.streams.take(ADA)
    two.ledger.fail_reads("reported_use")
    with pytest.raises(LedgerUnavailable):
        await two.look()
    for _ in range(3):
        two.quotas.streams.take(ADA)
    with pytest.raises(TooManyRequests):
        two.quotas.streams.take(ADA)


async def test_what_could_not_be_written_is_written_with_the_next_look(processes: Processes) -> None:
    one, two = await processes.two(STREAMS)
    one.quotas.streams.take(ADA)
    one.ledger.refuse(ReportUse)
    with pytest.raises(LedgerUnavailable):
        await one.look()
    await exchanged(one, two)
    assert two.quotas.streams.elsewhere == {ADA: 1}


async def test_a_report_that_cannot_be_read_leaves_the_own_count(processes: Processes) -> None:
    one, two = await processes.two(STREAMS)
    one.quotas.streams.take(ADA)
    await exchanged(one, two)
    change(processes.path, "UPDATE quota_use SET callers = ? WHERE process = ?", "[", "one")
    with pytest.raises(CorruptRecord, match="'one'"):
        await two.look()
    assert two.quotas.streams.elsewhere == {}


async def test_a_gateway_starts_and_stops_while_the_ledger_does_not_answer(processes: Processes) -> None:
    one = await processes.start("one", STREAMS)
    one.ledger.fail_reads("reported_use")
    async with one.shared.counting():
        one.quotas.streams.take(ADA)


# --- a process that has died, or was frozen


async def test_a_process_that_has_died_counts_until_its_report_lapses(processes: Processes) -> None:
    one, two = await processes.two(STREAMS)
    for _ in range(3):
        one.quotas.streams.take(ADA)
    await exchanged(one, two)
    processes.pass_by(LENGTH)
    await two.look()
    with pytest.raises(TooManyRequests):
        two.quotas.streams.take(ADA)
    processes.pass_by(1)
    await two.look()
    two.quotas.streams.take(ADA)
    await two.look()
    processes.pass_by(PRESENT // 2)
    await two.look()
    assert [process for process, _, _ in processes.rows()] == ["two"]


async def test_requests_that_a_process_slept_through_are_not_taken_at_once(processes: Processes) -> None:
    one, two = await processes.two(REQUESTS)
    for _ in range(100):
        assert admitted(one, most=1) == 1
        processes.pass_by(1000)
        await one.look()
    await two.look()
    assert admitted(two) == 60


# --- alone


async def test_without_a_limit_nothing_is_asked_or_written(processes: Processes) -> None:
    one = await processes.start("one", QuotaLimits())
    async with one.shared.counting():
        await one.look()
    assert (one.ledger.reads, one.ledger.units) == ([], [])


async def test_alone_a_process_says_that_it_is_there_and_writes_nothing_of_its_callers(processes: Processes) -> None:
    one = await processes.start("one", QuotaLimits(60, 3, 3))
    for _ in range(3):
        one.quotas.request(ADA)
        one.quotas.streams.take(ADA)
        one.quotas.runs.take(BOB)
        await one.look()
        processes.pass_by(1667)
    assert one.ledger.units == [(ReportUse("one", START + PRESENT, (), START),)]
    processes.pass_by(PRESENT // 2)
    await one.look()
    assert len(one.ledger.units) == 2


async def test_a_process_that_stops_leaves_no_report(processes: Processes) -> None:
    one, two = await processes.two(STREAMS)
    async with one.shared.counting():
        one.quotas.streams.take(ADA)
        await exchanged(one, two)
    await two.look()
    assert (two.quotas.streams.elsewhere, [process for process, _, _ in processes.rows()]) == ({}, ["two"])


async def test_limits_that_are_taken_away_take_the_report_along(processes: Processes) -> None:
    one, two = await processes.two(STREAMS)
    for _ in range(3):
        one.quotas.streams.take(ADA)
    await exchanged(one, two)
    two.quotas.limit(QuotaLimits())
    await two.look()
    assert [process for process, _, _ in processes.rows()] == ["one"]
    two.quotas.streams.take(ADA)


# --- streams and turns


async def test_streams_and_turns_count_over_all_processes(processes: Processes) -> None:
    one, two = await processes.two(QuotaLimits(streams=3, runs=2))
    slots = [one.quotas.streams.take(ADA), one.quotas.streams.take(ADA)]
    one.quotas.runs.take(ADA)
    await exchanged(one, two)
    two.quotas.streams.take(ADA)
    with pytest.raises(TooManyRequests, match="3 open streams"):
        two.quotas.streams.take(ADA)
    two.quotas.runs.take(ADA)
    with pytest.raises(TooManyRequests, match="2 messages"):
        two.quotas.runs.take(ADA)
    two.quotas.streams.take(BOB)
    await exchanged(one, two)
    with pytest.raises(TooManyRequests):
        one.quotas.streams.take(ADA)
    slots[0].release()
    one.quotas.streams.take(ADA)


async def test_what_was_released_elsewhere_is_free_after_the_next_look(processes: Processes) -> None:
    one, two = await processes.two(STREAMS)
    slots = [one.quotas.streams.take(ADA) for _ in range(3)]
    await exchanged(one, two)
    for slot in slots:
        slot.release()
    with pytest.raises(TooManyRequests):
        two.quotas.streams.take(ADA)
    await exchanged(one, two)
    two.quotas.streams.take(ADA)
    assert ("one", PRESENT, "[]") in processes.rows()


async def test_a_caller_has_more_at_most_by_what_it_begins_before_the_processes_have_looked(
    processes: Processes,
) -> None:
    one, two = await processes.two(STREAMS)
    for each in (one, two):
        for _ in range(3):
            each.quotas.streams.take(ADA)
    await exchanged(one, two)
    for each in (one, two):
        with pytest.raises(TooManyRequests):
            each.quotas.streams.take(ADA)


async def test_a_report_in_use_is_renewed_with_each_look(processes: Processes) -> None:
    one, _ = await processes.two(STREAMS)
    one.quotas.streams.take(BOB)
    for _ in range(3):
        await one.look()
        assert processes.rows()[0] == ("one", LENGTH, '[["bob","acme",0,1,0]]')
        processes.pass_by(1667)


# --- requests


async def test_requests_at_other_processes_are_taken_from_the_own_bucket(processes: Processes) -> None:
    one, two = await processes.two(REQUESTS)
    assert admitted(one, most=40) == 40
    await exchanged(one, two)
    assert admitted(two, BOB) == 60
    assert admitted(two) == 20
    await exchanged(one, two)
    assert admitted(one) == 0


async def test_in_the_long_run_all_processes_together_admit_no_more_than_the_limit(processes: Processes) -> None:
    one, two = await processes.two(REQUESTS)
    total = 0
    for _ in range(60):
        total += admitted(one) + admitted(two)
        await exchanged(one, two)
        processes.pass_by(2000)
    # A bucket at first in each process, and a token for each of the 120 seconds.
    assert total <= 2 * 60 + 120


async def test_requests_are_told_until_the_bucket_is_full_again(processes: Processes) -> None:
    one, two = await processes.two(REQUESTS)
    assert admitted(one, most=2) == 2
    processes.pass_by(1999)
    await one.look()
    assert processes.rows()[0][2] == '[["ada","",2,0,0]]'
    processes.pass_by(1)
    await one.look()
    assert processes.rows()[0][2] == "[]"
    assert admitted(one, most=1) == 1
    await exchanged(one, two)
    assert admitted(two) == 59


async def test_requests_of_a_time_when_the_process_was_alone_are_not_told_later(processes: Processes) -> None:
    one = await processes.start("one", REQUESTS)
    assert admitted(one, most=30) == 30
    await one.look()
    two = await processes.start("two", REQUESTS)
    await two.look()
    assert admitted(one, most=5) == 5
    await exchanged(one, two)
    assert admitted(two) == 55


# --- the decisions


@pytest.mark.parametrize(("before", "now", "made"), [(0, 3, 3), (3, 3, 0), (3, 5, 2), (5, 2, 2)])
def test_a_smaller_number_of_requests_has_begun_anew(before: int, now: int, made: int) -> None:
    assert requests_since(before, now) == made


def test_the_next_report_says_what_the_last_one_does_not() -> None:
    times, use = LeaseTimes(5.0), (CallerUse("ada", streams=1),)
    present, used = ReportUse("one", 900_000, (), 0), ReportUse("one", 5000, use, 0)
    assert next_report("one", (), None, 0, times) == present
    assert next_report("one", (), present, 449_999, times) is None
    assert next_report("one", (), present, 450_000, times) == ReportUse("one", 1_350_000, (), 450_000)
    assert next_report("one", (), present, 0, times) is None
    assert next_report("one", (), present, -1, times) == ReportUse("one", 899_999, (), -1)  # the clock was set back
    assert next_report("one", use, present, 0, times) == used
    assert next_report("one", use, used, 1, times) == ReportUse("one", 5001, use, 1)
    assert next_report("one", (), used, 1, times) == ReportUse("one", 900_001, (), 1)
