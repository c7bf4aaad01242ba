"""The part of the conformance suite on what processes on one database share: its time, and what they hear of each other's
commits. Law: it knows no store."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager

from gateway.ledger.leases import RequestCancel
from gateway.ledger.port import Changed, Ledger
from gateway.testing.checks import bounded, require, same, time_limit
from gateway.testing.ledger_points import ACCEPT, PREPARE, numbered

_APART = 1000
"""Milliseconds by which two processes may differ: less than the shortest lease."""

_MANY = 50


class SharingTests:
    """A part of `LedgerSuite`."""

    # --- time

    async def test_two_processes_have_the_same_time(self, ledger: Ledger, other: Ledger) -> None:
        await ledger.commit(ACCEPT)
        for one, two in ((ledger, other), (other, ledger)):
            before, between, after = one.now(), two.now(), one.now()
            same_time = before - _APART <= between <= after + _APART
            require(same_time, f"the processes have the times {before}, {between} and {after}")

    async def test_the_time_goes_on_between_two_commits(self, ledger: Ledger) -> None:
        began = ledger.now()
        async with time_limit("a later time"):
            while ledger.now() <= began:
                await ledger.thread("thread-1")

    # --- changes

    async def test_what_is_committed_while_nobody_wants_changes_is_heard_of_later(
        self, ledger: Ledger, other: Ledger
    ) -> None:
        wanted = asyncio.Event()
        wanted.set()
        async with _hearing(other, wanted.wait) as changes:
            wanted.clear()
            await ledger.commit(ACCEPT)
            wanted.set()
            await _heard(changes, "task-1", _reader(other, "thread-1"))

    async def test_many_commits_that_nobody_heard_are_joined(self, ledger: Ledger, other: Ledger) -> None:
        async with _hearing(other) as changes:
            for number in range(_MANY):
                await ledger.commit(numbered(number)[0])
            missing, items = {f"task-{number}" for number in range(_MANY)}, 0
            async with time_limit(f"changes of {_MANY} tasks"):
                while missing:
                    changed, items = await anext(changes), items + 1
                    missing = missing - changed if changed is not None else set()
        require(items < _MANY, f"{_MANY} commits that nobody heard made {items} changes")

    async def test_a_cancel_that_one_process_asks_for_is_a_change_of_its_task(
        self, ledger: Ledger, other: Ledger
    ) -> None:
        await ledger.commit(ACCEPT, PREPARE)

        async def is_asked() -> bool:
            return await ledger.cancel_requests("process-1") == ("task-1",)

        async with _hearing(ledger) as changes:
            await other.commit(RequestCancel(("turn-1",)))
            await _heard(changes, "task-1", is_asked)

    async def test_each_commit_is_heard_of_by_every_process_when_it_can_be_read(
        self, ledger: Ledger, other: Ledger
    ) -> None:
        async with _hearing(ledger) as ours, _hearing(other) as theirs:
            for number, committer in enumerate([ledger, other] * 5):
                await committer.commit(numbered(number)[0])
                for hearer, changes in ((ledger, ours), (other, theirs)):
                    await _heard(changes, f"task-{number}", _reader(hearer, f"thread-{number}"))

    async def test_the_changes_can_be_read_by_several_and_again(self, ledger: Ledger, other: Ledger) -> None:
        for number in range(3):
            async with _hearing(other) as one, _hearing(other) as two:
                await ledger.commit(numbered(number)[0])
                for changes in (one, two):
                    await _heard(changes, f"task-{number}", _reader(other, f"thread-{number}"))


async def _always() -> None:
    """Changes are wanted."""


@asynccontextmanager
async def _hearing(
    ledger: Ledger, wanted: Callable[[], Awaitable[object]] = _always
) -> AsyncGenerator[AsyncGenerator[Changed, None]]:
    """The changes from here on."""
    async with aclosing(ledger.changes(wanted)) as changes:
        same(await bounded(anext(changes), "the first change"), None)
        yield changes


async def _heard(changes: AsyncGenerator[Changed, None], task: str, is_there: Callable[[], Awaitable[bool]]) -> None:
    """Returns when a change may concern the task, and what was committed is there."""
    async with time_limit(f"a change of {task}"):
        async for changed in changes:
            if (changed is None or task in changed) and await is_there():
                return


async def _has_thread(ledger: Ledger, thread: str) -> bool:
    return await ledger.thread(thread) is not None


def _reader(ledger: Ledger, thread: str) -> Callable[[], Awaitable[bool]]:
    return lambda: _has_thread(ledger, thread)
