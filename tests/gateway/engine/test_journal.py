"""The log of a running task: numbers when events happen, shown when they are stored."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any, cast

import pytest

from gateway.engine.fanout import Fanout, StreamLimits, Subscription
from gateway.engine.journal import Journal
from gateway.ledger.calls import NameCall
from gateway.ledger.errors import Conflict, LedgerUnavailable
from gateway.ledger.events import Frame
from gateway.ledger.leases import Release
from gateway.ledger.points import CommitPoint
from gateway.ledger.port import Ledger
from gateway.ledger.tasks import Append, EventRow
from tests.support.core import soon

GONE = LedgerUnavailable("the disk is full")
LOST = Conflict("somebody was faster")


class Desk:
    """A ledger that stores on command."""

    def __init__(self) -> None:
        self.units: list[tuple[tuple[CommitPoint, ...], Callable[[Exception | None], None]]] = []

    def submit(self, points: tuple[CommitPoint, ...], done: Callable[[Exception | None], None]) -> None:
        self.units.append((points, done))

    def answer(self, error: Exception | None = None) -> tuple[CommitPoint, ...]:
        points, done = self.units.pop(0)
        done(error)
        return points

    def close(self) -> None:
        while self.units:
            self.answer(GONE)


desks: list[Desk] = []


@pytest.fixture(autouse=True)
async def _answered() -> AsyncGenerator[None, None]:
    """No commit is left waiting, whatever the result of the test."""
    yield
    for desk in desks:
        desk.close()
    desks.clear()


def journal(number: int = 0) -> tuple[Journal, Desk, Subscription]:
    desk = Desk()
    desks.append(desk)
    channel = Fanout(StreamLimits()).open("t")
    return Journal(cast("Ledger", desk), channel, "t", number), desk, channel.subscribe()


def row(first: int, *payloads: bytes) -> EventRow:
    return EventRow("t", first, first + len(payloads) - 1, b"\n".join(payloads))


async def tick() -> None:
    await asyncio.sleep(0)


async def shown(subscription: Subscription) -> list[Frame]:
    """What was published so far."""
    subscription.end()
    return [frame for batch in [b async for b in subscription] for frame in batch]


def with_row(*points: CommitPoint) -> Callable[[EventRow | None], tuple[CommitPoint, ...]]:
    return lambda found: (Append(found), *points) if found is not None else points


# --- events in groups ---


async def test_events_of_one_moment_go_together_and_are_shown_when_they_are_stored() -> None:
    log, desk, subscription = journal()
    log.add(b"a")
    log.add(b"b")
    assert log.number == 2
    assert desk.units == []
    await tick()
    assert len(desk.units) == 1
    assert not subscription._frames
    assert desk.answer() == (Append(row(1, b"a", b"b")),)
    assert await shown(subscription) == [(1, b"a"), (2, b"b")]


async def test_events_that_come_while_a_group_is_stored_wait_and_go_together() -> None:
    log, desk, subscription = journal(4)
    log.add(b"a")
    await tick()
    log.add(b"b")
    log.add(b"c")
    await tick()
    assert len(desk.units) == 1
    desk.answer()
    assert desk.answer() == (Append(row(6, b"b", b"c")),)
    log.add(b"d")
    await tick()
    assert desk.answer() == (Append(row(8, b"d")),)
    assert [number for number, _ in await shown(subscription)] == [5, 6, 7, 8]


async def test_a_noted_point_goes_before_the_events_after_it() -> None:
    log, desk, _ = journal()
    log.note(NameCall("call", "r1"))
    log.add(b"a")
    await tick()
    assert desk.answer() == (NameCall("call", "r1"), Append(row(1, b"a")))


async def test_a_noted_point_goes_alone_when_nothing_follows() -> None:
    log, desk, subscription = journal()
    log.note(NameCall("call", "r1"))
    await tick()
    assert desk.answer() == (NameCall("call", "r1"),)
    assert await shown(subscription) == []


@pytest.mark.parametrize("by", ["a group", "a state change"])
async def test_who_noted_a_point_hears_once_when_it_is_stored(by: str) -> None:
    log, desk, _ = journal()
    heard: list[str] = []

    async def happens() -> None:
        log.note(NameCall("call", "r1"), lambda: heard.append("stored"))
        log.add(b"a")
        if by == "a state change":
            await log.commit(with_row())

    happening = asyncio.get_running_loop().create_task(happens())
    await tick()
    await tick()
    assert heard == []
    desk.answer()
    assert heard == ["stored"]
    await soon(happening)
    log.add(b"b")
    await tick()
    desk.answer()
    assert heard == ["stored"]


async def test_who_noted_a_point_hears_nothing_when_it_is_lost() -> None:
    log, desk, _ = journal()
    heard: list[str] = []
    log.note(NameCall("call", "r1"), lambda: heard.append("stored"))
    await tick()
    desk.answer(LOST)
    with pytest.raises(Conflict):
        await log.commit(with_row())
    assert heard == []


async def test_a_group_that_is_lost_is_never_shown_and_nothing_can_follow_it() -> None:
    log, desk, subscription = journal()
    log.add(b"a")
    await tick()
    log.add(b"b")
    desk.answer(GONE)
    assert desk.units == []
    with pytest.raises(LedgerUnavailable):
        log.add(b"c")
    with pytest.raises(LedgerUnavailable):
        await log.commit(with_row())
    with pytest.raises(LedgerUnavailable):
        await log.durable()
    assert await shown(subscription) == []


# --- state changes ---


async def commit(log: Journal, *args: Any, behind: bytes | None = None) -> asyncio.Task[None]:
    """A commit under way. `behind`: an event of the same moment."""

    async def run() -> None:
        if behind is not None:
            log.note(NameCall("call", "r1"))
            log.add(behind)
        await log.commit(*args)

    task = asyncio.get_running_loop().create_task(run())
    await tick()
    return task


async def test_a_state_change_takes_waiting_events_along_and_is_the_last_of_its_row() -> None:
    log, desk, subscription = journal()
    order: list[str] = []

    def stored() -> None:
        order.append(f"stored {log.number}")

    done = await commit(log, with_row(Release("th", "us")), b"end", stored, behind=b"a")
    assert log.number == 1
    assert desk.answer() == (NameCall("call", "r1"), Append(row(1, b"a", b"end")), Release("th", "us"))
    assert order == ["stored 2"]
    await soon(done)
    await tick()
    assert desk.units == []
    assert await shown(subscription) == [(1, b"a"), (2, b"end")]


async def test_a_state_change_without_an_event() -> None:
    log, desk, subscription = journal(3)
    done = await commit(log, with_row(Release("th", "us")))
    assert desk.answer() == (Release("th", "us"),)
    await soon(done)
    assert log.number == 3
    assert await shown(subscription) == []


async def test_a_conflict_has_changed_nothing_and_the_unit_may_be_tried_again() -> None:
    log, desk, subscription = journal()
    first = await commit(log, with_row(), b"end", lambda: pytest.fail("it was not stored"))
    desk.answer(LOST)
    with pytest.raises(Conflict):
        await soon(first)
    assert log.number == 0
    await log.durable()
    second = await commit(log, with_row(), b"end")
    assert desk.answer() == (Append(row(1, b"end")),)
    await soon(second)
    assert await shown(subscription) == [(1, b"end")]


@pytest.mark.parametrize("error", [GONE, LOST])
async def test_events_that_were_lost_with_a_state_change_end_the_log(error: Exception) -> None:
    log, desk, subscription = journal()
    done = await commit(log, with_row(), b"end", behind=b"a")
    desk.answer(error)
    with pytest.raises(type(error)):
        await soon(done)
    with pytest.raises(type(error)):
        await log.durable()
    assert await shown(subscription) == []


async def test_a_state_change_that_was_refused_for_want_of_room_is_not_tried_again() -> None:
    log, desk, _ = journal()
    done = await commit(log, with_row(), b"end")
    desk.answer(GONE)
    with pytest.raises(LedgerUnavailable):
        await soon(done)
    with pytest.raises(LedgerUnavailable):
        log.add(b"a")


# --- waiting for what happened ---


async def test_everything_is_durable_when_nothing_waits() -> None:
    log, desk, _ = journal(7)
    await log.durable()
    assert desk.units == []


async def test_events_under_way_are_waited_for_as_well() -> None:
    log, desk, subscription = journal()
    log.add(b"a")
    await tick()
    waiting = asyncio.get_running_loop().create_task(log.durable())
    await tick()
    desk.answer()
    assert not waiting.done()
    assert desk.answer() == ()
    await soon(waiting)
    assert await shown(subscription) == [(1, b"a")]


async def test_waiting_events_are_stored_at_once_for_a_waiter() -> None:
    log, desk, subscription = journal()

    async def add_and_wait() -> None:
        log.add(b"a")
        await log.durable()

    waiting = asyncio.get_running_loop().create_task(add_and_wait())
    await tick()
    assert desk.answer() == (Append(row(1, b"a")),)
    await soon(waiting)
    assert await shown(subscription) == [(1, b"a")]


async def test_a_waiter_learns_that_an_earlier_group_was_lost() -> None:
    log, desk, _ = journal()
    log.add(b"a")
    await tick()
    waiting = asyncio.get_running_loop().create_task(log.durable())
    await tick()
    desk.answer(GONE)
    desk.answer()
    with pytest.raises(LedgerUnavailable):
        await soon(waiting)


# --- a commit is never interrupted ---


async def test_a_commit_goes_on_when_its_waiter_is_cancelled() -> None:
    log, desk, subscription = journal()
    order: list[str] = []
    done = await commit(log, with_row(), b"end", lambda: order.append("stored"))
    for _ in range(2):
        done.cancel()
        await tick()
        assert not done.done()
    desk.answer()
    with pytest.raises(asyncio.CancelledError):
        await soon(done)
    assert order == ["stored"]
    assert await shown(subscription) == [(1, b"end")]


async def test_a_failed_commit_raises_even_for_a_cancelled_waiter() -> None:
    log, desk, _ = journal()
    done = await commit(log, with_row(), b"end")
    done.cancel()
    await tick()
    desk.answer(GONE)
    with pytest.raises(LedgerUnavailable):
        await soon(done)


async def test_the_waiter_of_a_commit_goes_on_before_all_that_the_commit_starts() -> None:
    log, desk, _ = journal()
    loop = asyncio.get_running_loop()
    order: list[str] = []

    def sets_going() -> None:
        loop.call_soon(order.append, "set going")

    async def commits() -> None:
        await log.commit(with_row(), b"end", sets_going)
        order.append("went on")

    waiting = loop.create_task(commits())
    await tick()
    desk.answer()
    await soon(waiting)
    await tick()
    assert order == ["went on", "set going"]
