"""Behind a pooler that gives each transaction another connection: nothing is prepared, and all is as without it."""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import closing
from functools import partial

import pytest
from structlog.testing import capture_logs

from gateway.ledger.errors import LedgerUnavailable
from gateway.testing.ledger_points import ACCEPT, Opener
from gateway.testing.ledger_suite import LedgerSuite
from storage.postgres import sql
from storage.postgres.ledger import open_ledger
from storage.postgres.session import Session
from storage.postgres.settings import PostgresSettings
from storage.postgres.text import bound
from tests.storage.postgres.test_failures import held, outcome, run
from tests.support.pooler import pooled

_SILENT = "ignore_startup_parameters = options"
"""Without it the pooler refuses a connection with settings of its own; with it they are dropped."""


@pytest.fixture
def pooled_url(database_url: str) -> Iterator[str]:
    with pooled(database_url) as url:
        yield url


class TestPooled(LedgerSuite):
    @pytest.fixture
    def opener(self, pooled_url: str) -> Opener:
        return partial(open_ledger, PostgresSettings(url=pooled_url), True)


@pytest.mark.parametrize("more", ["", _SILENT])
async def test_limits_go_with_each_transaction(database_url: str, more: str) -> None:
    with pooled(database_url, more) as url:
        async with open_ledger(PostgresSettings(url=url, lock_timeout="100ms"), True) as ledger:
            await ledger.commit(ACCEPT)
            async with held(database_url, "SELECT 1 FROM context FOR UPDATE"):
                assert await outcome(ledger.commit(ACCEPT)) == "locked"
            await ledger.ready()


async def test_a_pooler_is_noticed_where_its_user_has_the_limits_that_a_gateway_sets(database_url: str) -> None:
    """Statements that are prepared would be missing at the next connection, or be those of another gateway."""
    name = database_url.rpartition("/")[2]
    for limit in ("lock_timeout = '5s'", "statement_timeout = '30s'"):
        await asyncio.to_thread(run, database_url, f"ALTER DATABASE {name} SET {limit}")
    with pooled(database_url, _SILENT) as url, capture_logs() as logs:
        async with open_ledger(PostgresSettings(url=url), True) as ledger:
            await ledger.commit(ACCEPT)
    assert "ledger.pooled" in {line["event"] for line in logs}


def test_notifications_that_a_pooler_delivers_to_a_connection_that_did_not_ask_are_not_kept(database_url: str) -> None:
    """The wish to be told stays with the connection of the server, which is that of the next transaction of anybody."""
    with pooled(database_url, "default_pool_size = 1") as url:
        conninfo = PostgresSettings(url=url).conninfo(options=False)
        listening, other = (Session(conninfo, 5.0, 30.0, prepares=False) for _ in range(2))
        listening.one(bound(sql.LISTEN, {}))
        for _ in range(3):
            other.one(bound(sql.NOTIFY, {"payload": "task"}))
        with closing(other), closing(listening), socket.socket() as silent:
            assert other.heard(0, silent.fileno()) == []


async def test_a_schema_that_the_user_does_not_find_first_is_refused(pooled_url: str) -> None:
    with pytest.raises(LedgerUnavailable, match="ALTER ROLE"):
        async with open_ledger(PostgresSettings(url=pooled_url, database_schema="other"), True):
            pass
