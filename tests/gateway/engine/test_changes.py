"""What a process hears of commits: told to each user, asked for while somebody wants it, and heard again after a fault."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

from structlog.testing import capture_logs

from gateway.engine.changes import Changes
from gateway.ledger.errors import LedgerUnavailable
from gateway.ledger.port import Changed
from tests.support.core import soon, until
from tests.support.hints import Hints


@asynccontextmanager
async def running(ledger: object) -> AsyncGenerator[Changes]:
    changes = Changes(ledger)  # type: ignore[arg-type]  # no more of it is asked
    async with asyncio.TaskGroup() as group:
        task = group.create_task(changes.run())
        yield changes
        task.cancel()


class Asked:
    """A ledger that has to ask its database."""

    def __init__(self) -> None:
        self.looks = 0
        self.waits = asyncio.Event()

    async def changes(self, wanted: Callable[[], Awaitable[object]]) -> AsyncGenerator[Changed, None]:
        while True:
            self.waits.set()
            await wanted()
            self.looks += 1
            yield None


async def test_a_ledger_that_cannot_be_heard_is_heard_again() -> None:
    hints, told = Hints(), list[Changed]()
    with capture_logs() as logs:
        async with running(hints) as changes:
            with changes.told(told.append):
                hints.fail(LedgerUnavailable("the server is gone"))
                hints.say("task-1")
                await until(lambda: told)
    assert told == [frozenset({"task-1"})]
    assert [(line["event"], line["error"]) for line in logs] == [("changes.not-heard", "the server is gone")]


async def test_who_has_left_is_told_nothing() -> None:
    hints, told = Hints(), list[Changed]()
    async with running(hints) as changes:
        with changes.told(told.append):
            pass
        with changes.heard({"task-1"}, wanted=False) as heard:
            hints.say("task-1")
            await soon(heard.wait())
    assert told == []


async def test_a_ledger_is_asked_only_while_somebody_wants_changes() -> None:
    ledger, one, two = Asked(), object(), object()
    async with running(ledger) as changes:
        with changes.heard({"task-1"}, wanted=False):
            await soon(ledger.waits.wait())
            assert await looks_now(ledger) == 0
        changes.want(one, True)
        changes.want(two, True)
        changes.want(one, False)
        for _ in range(2):
            with changes.heard((), wanted=True) as heard:
                await soon(heard.wait())
        assert ledger.looks == 2
        changes.want(two, False)
        ledger.waits.clear()
        await soon(ledger.waits.wait())
        assert await looks_now(ledger) == 2


async def looks_now(ledger: Asked) -> int:
    """After those that nothing keeps from it."""
    for _ in range(3):
        await asyncio.sleep(0)
    return ledger.looks


async def test_a_change_that_names_no_task_is_for_those_who_want_changes() -> None:
    hints = Hints()
    async with running(hints) as changes:
        with (
            changes.heard({"task-1"}, wanted=False) as named,
            changes.heard({"task-1"}, wanted=True) as anything,
            changes.heard({"task-2"}, wanted=True) as other,
        ):
            hints.say_look()
            await soon(anything.wait())
            assert (named.is_set(), other.is_set()) == (False, True)
            other.clear()
            hints.say("task-1", "task-3")
            await soon(named.wait())
            assert not other.is_set()


async def test_what_was_heard_is_waited_for_once() -> None:
    hints = Hints()
    async with running(hints) as changes:
        with changes.heard({"task-1"}, wanted=False) as heard:
            hints.say("task-1")
            await soon(heard.within(None))
            assert not heard.is_set()
            await heard.within(0)


async def test_a_user_who_rests_behind_a_change_is_not_told_the_next_one_at_once() -> None:
    hints, told = Hints(), list[Changed]()
    async with running(hints) as changes:
        with changes.told(told.append, rest=3600), changes.heard({"task-1", "task-2"}, wanted=False) as heard:
            for task in ("task-1", "task-2"):
                hints.say(task)
                await soon(heard.within(None))
    assert told == [frozenset({"task-1"})]


async def test_what_came_while_a_user_rested_is_told_behind_it() -> None:
    hints, told = Hints(), list[Changed]()
    async with running(hints) as changes:
        with changes.told(told.append, rest=0.01):
            hints.say("task-1")
            hints.say("task-2", "task-3")
            hints.say_look()
            await until(lambda: None in told)
    assert told[0] == frozenset({"task-1"})
