"""What a process hears of the commits of others: by notifications, and by polls where nothing is told."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from itertools import count

import pytest

from gateway.ledger.errors import LedgerUnavailable
from gateway.ledger.leases import Heartbeat, RequestCancel
from gateway.ledger.port import Changed, Ledger
from gateway.testing.ledger_points import ACCEPT
from tests.storage.postgres.cutting_proxy import cutting_proxy
from tests.storage.postgres.test_failures import context, event, opened
from tests.support.polling import until
from tests.support.pooler import pooled


async def always() -> None:
    """Somebody wants to hear."""


async def never() -> None:
    """Nobody wants to hear."""
    await asyncio.Event().wait()


@asynccontextmanager
async def listening(
    ledger: Ledger, hears: str = "notifications"
) -> AsyncGenerator[AsyncGenerator[Changed, None], None]:
    """What the ledger hears from now on."""
    async with asyncio.timeout(30), aclosing(ledger.changes(never if hears == "notifications" else always)) as changes:
        assert await anext(changes) is None
        await until(lambda: ledger.hears() == hears)
        yield changes


async def heard_of(changes: AsyncGenerator[Changed, None], task: str) -> None:
    """That it may have changed."""
    while True:
        changed = await anext(changes)
        if changed is None or task in changed:
            return


async def test_the_tasks_of_a_commit_are_told_to_every_process(database_url: str) -> None:
    async with (
        opened(database_url) as one,
        opened(database_url) as two,
        listening(one) as first,
        listening(two) as second,
    ):
        await one.commit(ACCEPT)
        await heard_of(first, "task-1")
        await heard_of(second, "task-1")
        await two.commit(context(2))
        await heard_of(first, "task-2")


async def named(ledger: Ledger, changes: AsyncGenerator[Changed, None]) -> Changed:
    """The first change that names tasks: what is heard at the beginning tells to look."""
    await ledger.commit(ACCEPT)
    for number in count(2):
        await ledger.commit(event(number))
        found = await anext(changes)
        if found is not None:
            return found
    return None


async def test_a_notification_names_the_tasks_of_its_group(database_url: str) -> None:
    async with opened(database_url) as one, opened(database_url) as two, listening(two) as changes:
        assert await named(one, changes) == frozenset({"task-1"})


async def test_a_commit_that_names_no_task_tells_to_look_where_it_changes_some(database_url: str) -> None:
    async with opened(database_url) as one, opened(database_url) as two, listening(two) as changes:
        await named(one, changes)
        await one.commit(Heartbeat("process-1", 1000, 0))
        await one.commit(RequestCancel(("turn-1",)))
        assert await anext(changes) is None


async def test_a_group_of_more_tasks_than_a_notification_names_tells_to_look(database_url: str) -> None:
    async with opened(database_url) as one, opened(database_url) as two, listening(two) as changes:
        await named(one, changes)
        await one.commit(*(context(number) for number in range(1000, 2000)))
        while await anext(changes) is not None:
            pass


async def test_behind_a_pooler_that_swallows_notifications_it_polls_and_says_so(database_url: str) -> None:
    with pooled(database_url) as url:
        async with opened(url) as one, opened(database_url) as two, listening(one, "polling") as changes:
            await two.commit(ACCEPT)
            assert await anext(changes) is None
            assert one.hears() == "polling"


async def test_it_is_heard_again_after_the_connection_was_lost(database_url: str) -> None:
    async with cutting_proxy(database_url) as (proxy, url), opened(url) as ledger:
        async with listening(ledger) as changes:
            proxy.closed = True
            proxy.cut_all()
            with pytest.raises(LedgerUnavailable, match="not heard"):
                [_ async for _ in changes]
            assert ledger.hears() == "polling"
        proxy.closed = False
        async with listening(ledger) as changes:
            await ledger.commit(ACCEPT)
            await heard_of(changes, "task-1")


async def test_events_come_behind_their_commit(database_url: str) -> None:
    async with opened(database_url) as one, opened(database_url) as two, listening(two) as changes:
        await one.commit(ACCEPT)
        for number in range(2, 12):
            one.submit((event(number),), lambda _: None)
            seen = 0
            while seen < number:
                await heard_of(changes, "task-1")
                seen = [number for number, _ in await two.events("task-1", 0)][-1]
