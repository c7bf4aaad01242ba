"""The ledger as one file: who may read it, locks, readiness, and what keeps it from being opened."""

import asyncio
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from gateway.ledger.errors import LedgerUnavailable
from gateway.ledger.port import LedgerFactory
from gateway.ledger.tasks import Append, EventRow
from gateway.testing.ledger_points import ACCEPT, ADA
from storage.ledger import factory, open_ledger
from storage.settings import SqliteSettings
from tests.storage.conversation import Recorded, recorded

READ = "import sqlite3, sys; print(sqlite3.connect(sys.argv[1]).execute('SELECT status FROM turn').fetchall())"


async def test_what_was_committed_is_there_for_another_process(database: Recorded) -> None:
    await database.ledger.commit(ACCEPT)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", READ, str(database.path), stdout=subprocess.PIPE
    )
    output, _ = await process.communicate()
    assert output.strip() == b"[('accepted',)]"


async def test_only_the_owner_can_read_a_new_database_its_log_and_its_folder(tmp_path: Path) -> None:
    async with recorded(tmp_path / "data" / "ledger.db"):
        files = [tmp_path / "data", *(tmp_path / "data").iterdir()]
        rights = {file.name: oct(file.stat().st_mode & 0o777) for file in files}
    assert rights == {"data": "0o700", "ledger.db": "0o600", "ledger.db-wal": "0o600", "ledger.db-shm": "0o600"}


async def test_a_locked_database_can_be_read_and_is_written_again_later(tmp_path: Path) -> None:
    async with recorded(tmp_path / "ledger.db", busy_timeout_ms=20) as database:
        with closing(sqlite3.connect(database.path, isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            with pytest.raises(LedgerUnavailable, match="locked") as refused:
                await database.ledger.commit(ACCEPT)
            assert refused.value.trouble == "locked"
            assert await database.ledger.task(ADA, "echo", "task-1") is None
            with pytest.raises(LedgerUnavailable, match="locked"):
                await database.ledger.ready()
            connection.execute("ROLLBACK")
        await database.ledger.ready()
        await database.ledger.commit(ACCEPT)


async def test_events_of_a_running_turn_wait_for_a_lock_that_makes_a_new_message_fail(tmp_path: Path) -> None:
    async with recorded(tmp_path / "ledger.db", busy_timeout_ms=20) as database:
        await database.ledger.commit(ACCEPT)
        said: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
        refused: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
        with closing(sqlite3.connect(database.path, isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            database.ledger.submit((Append(EventRow("task-1", 2, 2, b"{}")),), said.set_result)
            database.ledger.submit((ACCEPT,), refused.set_result)
            assert isinstance(await refused, LedgerUnavailable)
            assert not said.done()
            connection.execute("ROLLBACK")
        assert await said is None


async def test_a_ledger_is_not_ready_when_its_schema_was_changed(database: Recorded) -> None:
    await database.ledger.ready()
    with closing(sqlite3.connect(database.path, isolation_level=None)) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
        connection.execute("PRAGMA user_version = 9999")
    with pytest.raises(LedgerUnavailable, match="9999"):
        await database.ledger.ready()


async def test_a_ledger_stays_ready_when_a_newer_process_has_only_added_to_its_schema(database: Recorded) -> None:
    with closing(sqlite3.connect(database.path, isolation_level=None)) as connection:
        connection.execute("ALTER TABLE turn ADD COLUMN note TEXT")
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    await database.ledger.ready()
    await database.ledger.commit(ACCEPT)


@pytest.mark.parametrize("replaced", [False, True], ids=["removed", "replaced"])
async def test_a_ledger_whose_file_is_taken_away_is_not_ready_and_takes_nothing_until_it_is_back(
    tmp_path: Path, *, replaced: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("storage.write.open_file._PERIOD", 0.0)
    path, aside = tmp_path / "ledger.db", tmp_path / "aside.db"
    async with open_ledger(SqliteSettings(url=f"sqlite:///{path}"), True) as ledger:
        await ledger.ready()
        path.rename(aside)
        if replaced:
            path.write_bytes(aside.read_bytes())
        for attempt in (ledger.ready(), ledger.commit(ACCEPT)):
            with pytest.raises(LedgerUnavailable, match="removed or replaced while it was in use") as refused:
                await attempt
            assert refused.value.trouble == "removed"
        path.unlink(missing_ok=True)
        aside.rename(path)
        await ledger.ready()
        await ledger.commit(ACCEPT)


async def test_the_factory_makes_the_folder_of_a_relative_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert isinstance(factory, LedgerFactory)
    async with factory.open(SqliteSettings(url="sqlite:///./data/deep/gateway.db"), True) as ledger:
        await ledger.commit(ACCEPT)
    assert (tmp_path / "data" / "deep" / "gateway.db").is_file()


async def test_a_folder_that_cannot_be_made_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(LedgerUnavailable, match="folder"):
        async with open_ledger(SqliteSettings(url=f"sqlite:///{tmp_path}/file/ledger.db"), True):
            pass


async def test_a_schema_that_may_not_be_migrated_is_unavailable(tmp_path: Path) -> None:
    with pytest.raises(LedgerUnavailable, match="auto_migrate"):
        async with open_ledger(SqliteSettings(url=f"sqlite:///{tmp_path}/ledger.db"), False):
            pass
