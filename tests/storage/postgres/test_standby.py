"""A standby that has to confirm: nothing is acknowledged before it has, whatever becomes of the server meanwhile."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import psycopg
import pytest

from gateway.ledger.errors import LedgerUnavailable
from gateway.ledger.port import Ledger
from gateway.testing.ledger_points import ACCEPT, ADA
from tests.storage.postgres.test_failures import context, event, opened, outcome, run
from tests.support.polling import until
from tests.support.postgres import Server, postgres_server, standby_of, url_of_all


@contextmanager
def pair() -> Iterator[tuple[Server, Server]]:
    """A server, and the standby that has to confirm what it commits."""
    with postgres_server() as primary, standby_of(primary) as standby:
        primary.configure({"synchronous_standby_names": "standby"})
        primary.reload()
        yield primary, standby


def is_synchronous(primary: Server) -> bool:
    return run(primary.url(), "SELECT sync_state FROM pg_stat_replication") == [("sync",)]


def waits_for_the_standby(primary: Server) -> bool:
    return run(primary.url(), "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'") != [(0,)]


def has_task(server: Server, task: str) -> bool:
    return run(server.url(), "SELECT count(*) FROM task WHERE id = %s", task) == [(1,)]


def _restart(primary: Server) -> None:
    primary.stop("immediate")
    primary.start()


def _end_the_wait(primary: Server) -> None:
    """The commit counts at the server then, and its connection is closed without an answer."""
    run(primary.url(), "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'")


@pytest.mark.parametrize("lose", [_restart, _end_the_wait])
async def test_what_the_standby_has_not_is_not_acknowledged_even_where_the_server_has_it(
    lose: Callable[[Server], None],
) -> None:
    with pair() as (primary, standby):
        await until(partial(asyncio.to_thread, is_synchronous, primary))
        async with opened(primary.url()) as ledger:
            await ledger.commit(ACCEPT)
            await asyncio.to_thread(standby.stop, "fast")
            doubted = asyncio.ensure_future(outcome(ledger.commit(context(2))))  # noqa: TID251
            await until(partial(asyncio.to_thread, waits_for_the_standby, primary))
            await asyncio.to_thread(lose, primary)
            await until(partial(asyncio.to_thread, has_task, primary, "task-2"))
            await until(partial(asyncio.to_thread, waits_for_the_standby, primary))
            assert not doubted.done()
            await asyncio.to_thread(standby.start)
            assert await doubted == "stored"
            await until(partial(asyncio.to_thread, has_task, standby, "task-2"))
            await ledger.commit(context(3))


async def test_each_acknowledged_group_is_there_when_the_standby_takes_over() -> None:
    with pair() as (primary, standby):
        await until(partial(asyncio.to_thread, is_synchronous, primary))
        told: dict[int, str] = {}
        async with opened(url_of_all(primary, standby)) as ledger:
            await ledger.commit(ACCEPT)
            stopping = asyncio.ensure_future(asyncio.to_thread(_fail_over, primary, standby))  # noqa: TID251
            number = 10
            while not stopping.done() or told[number] != "stored":
                some = range(number + 1, number + 9)
                number = some[-1]
                told |= zip(
                    some, await asyncio.gather(*(outcome(ledger.commit(context(each))) for each in some)), strict=True
                )
            await stopping
        found = await asyncio.to_thread(run, standby.url(), "SELECT CAST(substr(id, 6) AS integer) FROM task")
        assert {number for (number,) in found} == {1} | {each for each, became in told.items() if became == "stored"}


def _fail_over(primary: Server, standby: Server) -> None:
    with psycopg.connect(primary.url()) as connection:
        while connection.execute("SELECT count(*) > 50 FROM task").fetchall() != [(True,)]:
            connection.rollback()
    primary.stop("immediate")
    standby.promote()


async def test_what_the_standby_has_not_is_not_read_from_a_server_that_was_restarted() -> None:
    """It would be gone again when the standby takes over."""
    with pair() as (primary, standby):
        await until(partial(asyncio.to_thread, is_synchronous, primary))
        async with opened(primary.url()) as writing, opened(primary.url()) as reading:
            await writing.commit(ACCEPT)
            assert await reading.task(ADA, "echo", "task-1") is not None
            await asyncio.to_thread(standby.stop, "fast")
            doubted = asyncio.ensure_future(outcome(writing.commit(context(2))))  # noqa: TID251
            await until(partial(asyncio.to_thread, waits_for_the_standby, primary))
            await asyncio.to_thread(_restart, primary)
            await until(partial(asyncio.to_thread, has_task, primary, "task-2"))
            for _ in range(2):
                with pytest.raises(LedgerUnavailable, match="standby") as refused:
                    await reading.task(ADA, "echo", "task-2")
                assert refused.value.trouble == "unconfirmed"
            await asyncio.to_thread(standby.start)
            assert await doubted == "stored"
            await until(partial(_reads, reading, "task-2"))


async def test_a_message_that_waits_for_the_standby_is_refused_in_these_words() -> None:
    """Its rows are locked by what waits as well."""
    with pair() as (primary, standby):
        await until(partial(asyncio.to_thread, is_synchronous, primary))
        async with opened(primary.url()) as one, opened(primary.url(), lock_timeout="100ms") as other:
            await one.commit(ACCEPT)
            await asyncio.to_thread(standby.stop, "fast")
            doubted = asyncio.ensure_future(outcome(one.commit(event(2))))  # noqa: TID251
            await until(partial(asyncio.to_thread, waits_for_the_standby, primary))
            await until(partial(_is_refused_as, "unconfirmed", other))
            await asyncio.to_thread(standby.start)
            assert await doubted == "stored"


async def _is_refused_as(trouble: str, ledger: Ledger) -> bool:
    return await outcome(ledger.commit(event(3))) == trouble


def _has_all(standby: Server, written: str) -> bool:
    return run(standby.url(), "SELECT pg_last_wal_replay_lsn() >= CAST(%s AS pg_lsn)", written) == [(True,)]


async def test_nothing_is_read_from_a_standby() -> None:
    """A URL of both servers need not say which of them is wanted. What connected to the standby while the server was away would
    read behind all that is confirmed afterwards."""
    with postgres_server() as primary, standby_of(primary) as standby:
        url = url_of_all(primary, standby).partition("?")[0]
        async with opened(url) as ledger:
            await ledger.commit(ACCEPT)
            [(written,)] = await asyncio.to_thread(run, primary.url(), "SELECT CAST(pg_current_wal_lsn() AS text)")
            await until(partial(asyncio.to_thread, _has_all, standby, written))
            await asyncio.to_thread(primary.stop, "immediate")
            with pytest.raises(LedgerUnavailable, match="standby"):
                await ledger.task(ADA, "echo", "task-1")
            await asyncio.to_thread(primary.start)
            await asyncio.to_thread(run, standby.url(), "SELECT pg_wal_replay_pause()")
            await ledger.commit(context(2))
            assert await ledger.task(ADA, "echo", "task-2") is not None


async def _reads(ledger: Ledger, task: str) -> bool:
    try:
        return await ledger.task(ADA, "echo", task) is not None
    except LedgerUnavailable:
        return False
