"""Who has the ledger open: `storage copy` and `restore` find every gateway of the schema, and keep others from coming."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from gateway.ledger.copying import InUse, Report, copy
from gateway.ledger.errors import LedgerUnavailable
from gateway.ledger.rows import RowTable
from gateway.testing.ledger_points import ACCEPT, ADA
from storage.postgres.backup import back_up, restore
from storage.postgres.ledger import open_ledger
from storage.postgres.rows import open_rows
from storage.postgres.settings import PostgresSettings
from storage.rows import open_rows as open_file
from tests.storage.postgres.test_failures import outcome, run
from tests.support.pooler import pooled

NAMES = ("the source", "the target")


@pytest.fixture
def settings(database_url: str) -> PostgresSettings:
    return PostgresSettings(url=database_url)


@pytest.fixture
def monday(settings: PostgresSettings, tmp_path: Path) -> Path:
    """A backup of the ledger, which is empty."""
    path = tmp_path / "monday.db"
    back_up(settings, path)
    return path


def named(settings: PostgresSettings, name: str, schema: str = "public") -> PostgresSettings:
    return settings.model_copy(update={"application_name": name, "database_schema": schema})


def copy_to_file(settings: PostgresSettings, folder: Path, report: Report = lambda *_: None) -> None:
    with open_rows(settings, False) as rows:
        copy(rows, open_file(folder / "copy.db", True), NAMES, report)


def once(doing: Callable[[], Any]) -> Report:
    """Does it when the copy has begun."""
    left = [doing]

    def report(what: str, _: RowTable, __: int) -> None:
        if what == "copying" and left:
            left.pop()()

    return report


async def opened(settings: PostgresSettings) -> None:
    async with open_ledger(settings, True) as ledger:
        await ledger.ready()


def cut_off(url: str, name: str) -> None:
    """All connections of this name to this database."""
    of_name = "FROM pg_stat_activity WHERE datname = current_database() AND application_name = %s"
    run(url, f"SELECT pg_terminate_backend(pid) {of_name}", name)


async def test_a_gateway_that_is_idle_is_found_whatever_its_connections_are_called(
    settings: PostgresSettings, monday: Path, tmp_path: Path
) -> None:
    async with open_ledger(named(settings, "one of many"), True) as ledger:
        await ledger.commit(ACCEPT)
        with pytest.raises(LedgerUnavailable, match=r"open: pid \d+ 'one of many' from 127.0.0.1") as refused:
            await asyncio.to_thread(restore, monday, settings, True)
        assert refused.value.trouble == "locked"
        with pytest.raises(InUse, match=r"the source is in use: .*'one of many'.*Stop its gateways"):
            await asyncio.to_thread(copy_to_file, settings, tmp_path)
        assert await ledger.task(ADA, "echo", "task-1") is not None
    await asyncio.to_thread(restore, monday, settings, True)


async def test_a_gateway_that_has_connected_again_is_found(settings: PostgresSettings, monday: Path) -> None:
    async with open_ledger(named(settings, "one of many"), True) as ledger:
        await asyncio.to_thread(cut_off, settings.url, "one of many")
        await ledger.commit(ACCEPT)
        with pytest.raises(LedgerUnavailable, match="'one of many'"):
            await asyncio.to_thread(restore, monday, settings, True)


async def test_a_gateway_of_another_schema_is_left_alone(settings: PostgresSettings, monday: Path) -> None:
    other = named(settings, settings.application_name, "other")
    async with open_ledger(other, True) as ledger:
        await ledger.commit(ACCEPT)
        assert await ledger.task(ADA, "echo", "task-1") is not None
        await asyncio.to_thread(restore, monday, settings, True)
        with pytest.raises(LedgerUnavailable, match="is in use"):
            await asyncio.to_thread(restore, monday, other, True)


async def test_a_connection_without_the_lock_counts_by_its_name(settings: PostgresSettings, monday: Path) -> None:
    """As those of gateways of an earlier version."""
    url = psycopg.conninfo.make_conninfo(settings.url, application_name="a2a-gateway")
    with (
        psycopg.connect(url, autocommit=True) as connection,
        pytest.raises(LedgerUnavailable, match=rf"pid {connection.info.backend_pid} 'a2a-gateway' .*idle for \d+ s"),
    ):
        await asyncio.to_thread(restore, monday, settings, True)
    await asyncio.to_thread(restore, monday, settings, True)


def test_what_a_pooler_keeps_open_is_said_to_be_of_one(settings: PostgresSettings, monday: Path) -> None:
    with pooled(settings.url) as url:
        asyncio.run(opened(PostgresSettings(url=url)))
        with pytest.raises(LedgerUnavailable, match=r"pid \d+ 'a2a-gateway' .*idle for .*pooler.*RECONNECT"):
            restore(monday, settings, True)
    restore(monday, settings, True)


def test_a_gateway_that_starts_while_its_ledger_is_copied_is_refused(
    settings: PostgresSettings, tmp_path: Path
) -> None:
    def start() -> None:
        with pytest.raises(LedgerUnavailable, match="copied or restored") as refused:
            asyncio.run(opened(named(settings, "one of many")))
        assert refused.value.trouble == "locked"

    copy_to_file(settings, tmp_path, once(start))
    asyncio.run(opened(settings))


def test_a_second_copy_waits_for_its_turn(settings: PostgresSettings, tmp_path: Path) -> None:
    def second() -> None:
        with pytest.raises(InUse, match=r"another copy or restore works on it \(pid \d+"):
            copy_to_file(settings, tmp_path / "second")

    copy_to_file(settings, tmp_path, once(second))


async def test_a_gateway_that_lost_its_connections_to_a_copy_waits_for_its_end(
    settings: PostgresSettings, tmp_path: Path
) -> None:
    async with open_ledger(named(settings, "one of many"), True) as ledger:
        await ledger.commit(ACCEPT)
        loop = asyncio.get_running_loop()

        async def refused() -> None:
            assert await outcome(ledger.commit(ACCEPT)) == "locked"
            with pytest.raises(LedgerUnavailable, match="copied or restored"):
                await ledger.task(ADA, "echo", "task-1")

        def work() -> None:
            asyncio.run_coroutine_threadsafe(refused(), loop).result()

        await asyncio.to_thread(cut_off, settings.url, "one of many")
        await asyncio.to_thread(copy_to_file, settings, tmp_path, once(work))
        await ledger.ready()
        assert await ledger.task(ADA, "echo", "task-1") is not None


def test_a_restore_that_lost_its_lock_changes_nothing(
    settings: PostgresSettings, monday: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from storage.postgres import backup

    fill = backup._fill
    run(settings.url, "INSERT INTO delete_job VALUES ('mine', 'echo', 'handle', NULL, 0)")

    def lose(*given: Any) -> None:
        fill(*given)
        cut_off(settings.url, "a2a-gateway copy")

    monkeypatch.setattr(backup, "_fill", lose)
    with pytest.raises(LedgerUnavailable):
        restore(monday, settings, True)
    monkeypatch.setattr(backup, "_fill", fill)
    assert restore(monday, settings, True) is not None
