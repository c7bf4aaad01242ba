"""Backups of a database of PostgreSQL: one moment as a file, which either store restores."""

import asyncio
import signal
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from gateway.ledger.errors import LedgerUnavailable
from gateway.ledger.rows import Row
from gateway.testing.ledger_points import ACCEPT, ADA
from storage import ledger as file_ledger
from storage.postgres.backup import back_up, restore
from storage.postgres.factory import factory
from storage.postgres.ledger import open_ledger
from storage.postgres.rows import open_rows
from storage.postgres.settings import PostgresSettings
from storage.settings import SqliteSettings
from tests.ledgers.fixture import sql_file

OWNER = "SELECT nspowner, nspacl FROM pg_namespace WHERE nspname = 'public'"

_KILLED = """
import os, signal, sys
from pathlib import Path
from storage.postgres import backup
from storage.postgres.settings import PostgresSettings
backup._used = lambda _: os.kill(os.getpid(), signal.SIGKILL)
backup.restore(Path(sys.argv[1]), PostgresSettings(url=sys.argv[2]), True)
"""


@pytest.fixture
def settings(database_url: str) -> PostgresSettings:
    return PostgresSettings(url=database_url)


@pytest.fixture
def empty(empty_database_url: str) -> PostgresSettings:
    return PostgresSettings(url=empty_database_url)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return tmp_path / "monday.db"


def content(settings: PostgresSettings) -> dict[str, set[Row]]:
    with open_rows(settings, False) as rows:
        return {table.name: set(rows.read(table)) for table in rows.tables}


def execute(settings: PostgresSettings, sql: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(settings.url) as connection:
        done = connection.execute(sql.encode())
        return done.fetchall() if done.description else []


def schemas(settings: PostgresSettings) -> set[str]:
    found = execute(settings, "SELECT nspname FROM pg_namespace WHERE nspname !~ '^pg_|^information_schema$'")
    return {name for (name,) in found}


def release(path: Path, version: str) -> Path:
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(sql_file(version).read_text())
    return path


def test_the_factory_offers_both() -> None:
    assert factory.back_up is not None
    assert factory.restore is not None


def test_a_backup_never_overwrites_a_file(settings: PostgresSettings, copy: Path) -> None:
    copy.write_text("mine")
    with pytest.raises(FileExistsError):
        back_up(settings, copy)
    assert copy.read_text() == "mine"


def test_of_a_copy_that_was_cut_no_backup_is_made(settings: PostgresSettings, copy: Path) -> None:
    with open_rows(settings, False) as rows:
        rows.begin("another")
    with pytest.raises(LedgerUnavailable, match="the database is not whole: a copy into it has begun and not ended"):
        back_up(settings, copy)
    assert list(copy.parent.iterdir()) == []


def test_of_a_database_that_does_not_answer_no_backup_is_made(settings: PostgresSettings, copy: Path) -> None:
    away = settings.model_copy(update={"url": "postgresql://ada:secret@127.0.0.1:1/none"})
    with pytest.raises(LedgerUnavailable) as refused:
        back_up(away, copy)
    assert "secret" not in str(refused.value)
    assert list(copy.parent.iterdir()) == []


def test_what_is_no_backup_changes_nothing(settings: PostgresSettings, copy: Path) -> None:
    execute(settings, "INSERT INTO delete_job VALUES ('mine', 'echo', 'handle', NULL, 0)")
    with pytest.raises(LedgerUnavailable, match="there is no file"):
        restore(copy, settings, True)
    copy.write_bytes(b"no database at all, and long enough to be looked at" * 100)
    with pytest.raises(LedgerUnavailable, match="is no backup"):
        restore(copy, settings, True)
    assert schemas(settings) == {"public"}


def test_a_ledger_that_is_there_is_replaced_only_when_asked_and_kept(
    settings: PostgresSettings, copy: Path, tmp_path: Path
) -> None:
    execute(settings, "INSERT INTO delete_job VALUES ('first', 'echo', 'handle', NULL, 0)")
    back_up(settings, copy)
    before, owner = content(settings), execute(settings, OWNER)
    execute(settings, "INSERT INTO delete_job VALUES ('second', 'echo', 'handle', NULL, 0)")
    with pytest.raises(FileExistsError, match="there is a ledger in the schema 'public' already"):
        restore(copy, settings, False)
    kept = restore(copy, settings, True)
    assert content(settings) == before
    assert kept is not None
    [aside] = schemas(settings) - {"public"}
    assert kept == f"the schema {aside}"
    assert execute(settings, f"SELECT count(*) FROM {aside}.delete_job") == [(2,)]
    assert execute(settings, OWNER) == owner
    assert [path.name for path in tmp_path.iterdir()] == ["monday.db"]


async def test_a_ledger_that_a_gateway_uses_is_not_replaced(settings: PostgresSettings, copy: Path) -> None:
    async with open_ledger(settings, True) as ledger:
        await ledger.commit(ACCEPT)
        await asyncio.to_thread(back_up, settings, copy)
        with pytest.raises(LedgerUnavailable, match="the database is in use: connections are open: ") as refused:
            await asyncio.to_thread(restore, copy, settings, True)
        assert refused.value.trouble == "locked"
        assert await ledger.task(ADA, "echo", "task-1") is not None
    assert schemas(settings) == {"public"}


async def test_an_empty_ledger_that_a_gateway_uses_is_not_filled(settings: PostgresSettings, copy: Path) -> None:
    release(copy, "0.1.0")
    async with open_ledger(settings, True):
        with pytest.raises(LedgerUnavailable, match="the database is in use") as refused:
            await asyncio.to_thread(restore, copy, settings, False)
        assert refused.value.trouble == "locked"
    assert await asyncio.to_thread(restore, copy, settings, False) is None


def test_a_restore_that_fails_leaves_the_ledger_as_it_is(
    settings: PostgresSettings, copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    release(copy, "0.1.0")
    with closing(sqlite3.connect(copy)) as connection, connection:
        connection.execute("INSERT INTO delete_job VALUES ('bad', 'echo', CAST(x'ff' AS TEXT), NULL, 0)")
    execute(settings, "INSERT INTO delete_job VALUES ('mine', 'echo', 'handle', NULL, 0)")
    before = content(settings)
    with pytest.raises(LedgerUnavailable, match="damaged"):
        restore(copy, settings, True)
    assert (content(settings), schemas(settings)) == (before, {"public"})


async def test_a_restored_ledger_goes_on(settings: PostgresSettings, empty: PostgresSettings, copy: Path) -> None:
    async with open_ledger(settings, True) as ledger:
        await ledger.commit(ACCEPT)
        await asyncio.to_thread(back_up, settings, copy)
    assert await asyncio.to_thread(restore, copy, empty, False) is None
    async with open_ledger(empty, False) as ledger:
        assert await ledger.task(ADA, "echo", "task-1") is not None


async def test_a_replaced_ledger_goes_on_and_makes_deliveries_due(settings: PostgresSettings, copy: Path) -> None:
    release(copy, "0.1.0")
    execute(settings, "INSERT INTO delete_job VALUES ('mine', 'echo', 'handle', NULL, 0)")
    await asyncio.to_thread(restore, copy, settings, True)
    execute(settings, "UPDATE push_config SET state = 'active', due_at = NULL")
    execute(
        settings,
        "INSERT INTO event (task, last, first, payload) SELECT task, 999, 999, '{}' FROM push_config LIMIT 1",
    )
    assert execute(settings, "SELECT count(*) FROM push_config WHERE due_at = 0") != [(0,)]


@pytest.mark.parametrize("version", ["0.1.0.dev1", "0.1.0"])
def test_the_backup_of_a_file_is_restored_also_from_an_earlier_version(
    version: str, empty: PostgresSettings, copy: Path
) -> None:
    release(copy, version)
    before = copy.read_bytes()
    assert restore(copy, empty, False) is None
    with closing(sqlite3.connect(copy)) as connection:
        [(tasks,)] = connection.execute("SELECT count(*) FROM task").fetchall()
    assert (len(content(empty)["task"]), copy.read_bytes()) == (tasks, before)


def test_the_backup_of_a_database_is_restored_as_a_file(settings: PostgresSettings, copy: Path, tmp_path: Path) -> None:
    restore(release(tmp_path / "release.db", "0.1.0"), settings, False)
    back_up(settings, copy)
    assert copy.stat().st_mode & 0o777 == 0o600
    file = SqliteSettings(url=f"sqlite:///{tmp_path}/gateway.db")
    assert file_ledger.restore(copy, file, False) is None
    with file_ledger.rows(file, False) as rows:
        assert {table.name: set(rows.read(table)) for table in rows.tables} == content(settings)


async def test_the_copy_that_a_killed_restore_has_left_is_its_owners_and_removed_by_the_next_one(
    settings: PostgresSettings, copy: Path
) -> None:
    await asyncio.to_thread(back_up, settings, copy)
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", _KILLED, str(copy), settings.url)
    assert await process.wait() == -signal.SIGKILL
    [left] = [path for path in copy.parent.iterdir() if path.is_dir()]
    assert {path.stat().st_mode & 0o777 for path in left.iterdir()} == {0o600}
    await asyncio.to_thread(restore, copy, settings, True)
    assert [path.name for path in copy.parent.iterdir()] == ["monday.db"]
