"""What a process hears of the commits of others: by notifications, and by polls where nothing is told."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from functools import partial
from itertools import count

import pytest

from gateway.ledger.errors import LedgerUnavailable
from gateway.ledger.leases import Heartbeat, RequestCancel
from gateway.ledger.port import Changed, Ledger
from gateway.ledger.threads import Displace
from gateway.testing.ledger_points import ACCEPT
from storage.postgres.listening import Listener
from storage.postgres.session import Session
from storage.postgres.settings import PostgresSettings
from tests.storage.postgres.cutting_proxy import cutting_proxy
from tests.storage.postgres.test_failures import context, event, opened, run
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


async def until_told_to_look(changes: AsyncGenerator[Changed, None]) -> None:
    """Earlier changes that name their tasks may come first."""
    while await anext(changes) is not None:
        pass


async def test_a_notification_names_the_tasks_of_its_group(database_url: str) -> None:
    async with opened(database_url) as one, opened(database_url) as two, listening(two) as changes:
        assert await named(one, changes) == frozenset({"task-1"})


async def test_a_commit_that_names_no_task_tells_to_look_where_it_changes_some(database_url: str) -> None:
    async with opened(database_url) as one, opened(database_url) as two, listening(two) as changes:
        await named(one, changes)
        await one.commit(Heartbeat("process-1", 1000, 0))
        await one.commit(RequestCancel(("turn-1",)))
        await until_told_to_look(changes)


async def test_a_commit_that_displaces_turns_of_other_tasks_tells_to_look(database_url: str) -> None:
    async with opened(database_url) as one, opened(database_url) as two, listening(two) as changes:
        await named(one, changes)
        await one.commit(Displace("thread-1", "turn-1"))
        await until_told_to_look(changes)


async def test_a_group_of_more_tasks_than_a_notification_names_tells_to_look(database_url: str) -> None:
    async with opened(database_url) as one, opened(database_url) as two, listening(two) as changes:
        await named(one, changes)
        await one.commit(*(context(number) for number in range(1000, 2000)))
        await until_told_to_look(changes)


@pytest.mark.parametrize("word", ["nonsense", "1", '{"task": 1}', "[[1]]", "[1]", "null"])
async def test_a_notification_of_somebody_else_tells_to_look(database_url: str, word: str) -> None:
    """Whoever reaches the database may send one, and a later version may word its own in another way."""
    async with opened(database_url) as ledger, listening(ledger) as changes:
        await named(ledger, changes)
        await asyncio.to_thread(run, database_url, "SELECT pg_notify('a2a_gateway_ledger', %s)", word)
        await until_told_to_look(changes)


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


# --- a listener with nothing else


def connecting(url: str) -> Callable[[], Session]:
    return partial(Session, PostgresSettings(url=url).conninfo(options=True), 5.0, 30.0, prepares=True)


def listener_at(
    connect: Callable[[], Session], direct: str, version: Callable[[], Awaitable[int]], ping: float = 5.0
) -> Listener:
    """It listens on a connection of its own; its own notifications go to the database by another way."""

    async def notify(word: str) -> None:
        await asyncio.to_thread(run, direct, "SELECT pg_notify('a2a_gateway_ledger', %s)", word)

    return Listener(connect, version, notify, ping)


async def until_it_hears(listener: Listener, changes: AsyncGenerator[Changed, None]) -> None:
    """Nothing need be told for that."""
    assert await anext(changes) is None
    await until(lambda: listener.hears)


async def test_while_notifications_arrive_the_database_is_not_asked_what_was_committed(database_url: str) -> None:
    asked = count()

    async def version() -> int:
        return next(asked)

    listener = listener_at(connecting(database_url), database_url, version)
    async with asyncio.timeout(30), opened(database_url) as ledger, aclosing(listener.changes(always)) as changes:
        await ledger.commit(ACCEPT)
        await until_it_hears(listener, changes)
        before = next(asked)
        for number in range(2, 30):
            await ledger.commit(event(number))
            await heard_of(changes, "task-1")
        assert next(asked) == before + 1


async def test_a_connection_that_has_fallen_silent_is_replaced(database_url: str) -> None:
    async def version() -> int:
        return 0

    async with asyncio.timeout(30), cutting_proxy(database_url) as (proxy, url):
        listener = listener_at(connecting(url), database_url, version, ping=2.0)
        async with aclosing(listener.changes(always)) as changes:
            await until_it_hears(listener, changes)
            proxy.mute()
            with pytest.raises(LedgerUnavailable, match="silent"):
                [_ async for _ in changes]
        async with aclosing(listener.changes(always)) as changes:
            await until_it_hears(listener, changes)


async def test_what_was_committed_between_the_look_and_the_listening_is_heard_of(database_url: str) -> None:
    """The look began before, and is answered when notifications arrive already."""
    listens = threading.Event()
    looks = count()

    async def version() -> int:
        if next(looks) == 1:
            listens.set()
            await until(lambda: listener.hears)
        return 0

    def connect() -> Session:
        listens.wait(30)
        return connecting(database_url)()

    listener = listener_at(connect, database_url, version)
    async with asyncio.timeout(30), aclosing(listener.changes(always)) as changes:
        assert [await anext(changes), await anext(changes)] == [None, None]
