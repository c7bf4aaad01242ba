"""A server that has no connection or no room left: what it refuses is refused in plain words, and all comes back by itself."""

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial

import psycopg
import pytest

from gateway.ledger.errors import LedgerUnavailable
from gateway.testing.ledger_points import ACCEPT, ADA
from tests.storage.postgres.test_failures import context, cut_off, event, numbers, opened, outcome, run, submitted
from tests.support.polling import until
from tests.support.postgres import Server, postgres_server

_FEW = {"max_connections": "8", "superuser_reserved_connections": "0", "max_wal_senders": "0"}


@contextmanager
def _exhausted(server: Server) -> Iterator[None]:
    """Others have all connections that are left."""
    with ExitStack() as stack:
        for _ in range(int(_FEW["max_connections"])):
            try:
                stack.enter_context(psycopg.connect(server.url()))
            except psycopg.OperationalError:
                break
        yield


async def test_a_gateway_that_gets_no_connection_does_not_start_and_says_why() -> None:
    with postgres_server(_FEW) as server:
        with _exhausted(server), pytest.raises(LedgerUnavailable, match="too many clients") as caught:
            async with opened(server.url()):
                pass
        assert server.password not in str(caught.value)
        async with opened(server.url()) as ledger:
            await ledger.commit(ACCEPT)


async def test_connections_that_are_there_are_enough_to_write_and_to_read() -> None:
    with postgres_server(_FEW) as server:
        async with opened(server.url()) as ledger:
            await ledger.commit(ACCEPT)
            await numbers(ledger)
            await ledger.ready()
            with _exhausted(server):
                await ledger.commit(event(2))
                assert await numbers(ledger) == [1, 2]
                await ledger.ready()
                with pytest.raises(LedgerUnavailable, match="too many clients"):
                    await asyncio.gather(numbers(ledger), numbers(ledger))


async def test_a_gateway_whose_connections_others_have_taken_refuses_and_comes_back_by_itself() -> None:
    with postgres_server(_FEW) as server:
        async with opened(server.url()) as ledger:
            await ledger.commit(ACCEPT)
            await asyncio.to_thread(cut_off, server.url())
            await until(partial(asyncio.to_thread, _is_alone, server))
            with _exhausted(server):
                assert await outcome(ledger.commit(context(2))) == "unavailable"
                with pytest.raises(LedgerUnavailable, match="too many clients"):
                    await ledger.task(ADA, "echo", "task-1")
                with pytest.raises(LedgerUnavailable):
                    await ledger.ready()
                waiting = submitted(ledger, event(2))
            assert await waiting == "stored"
            await ledger.ready()
            await ledger.commit(context(2))
            assert await numbers(ledger) == [1, 2]


def _is_alone(server: Server) -> bool:
    others = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'a2a-gateway'"
    return run(server.url(), others) == [(0,)]
