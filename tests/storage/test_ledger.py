"""The ledger as a whole: opened by URL, durable, ready, and fenced between processes."""

import asyncio
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from gateway.ledger.errors import Conflict, LedgerUnavailable
from gateway.ledger.leases import Fence, Renew
from gateway.ledger.port import LedgerFactory
from gateway.ledger.tasks import Append, EventRow
from storage.ledger import factory, open_ledger
from storage.settings import SqliteSettings
from tests.storage.conversation import ACCEPT, ADA, APPEND, COMPLETE, FINISH, FOLLOW_UP, PREPARE, Recorded, recorded

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


async def test_what_was_committed_is_there_after_opening_again(tmp_path: Path) -> None:
    async with recorded(tmp_path / "ledger.db") as database:
        await database.ledger.commit(ACCEPT, PREPARE, COMPLETE, APPEND, FINISH)
        history = await database.ledger.history("thread-1", unsent_only=False)
        secret = await database.ledger.secret("cursor")
    async with recorded(tmp_path / "ledger.db") as database:
        assert await database.ledger.history("thread-1", unsent_only=False) == history
        assert await database.ledger.secret("cursor") == secret


async def test_a_commit_is_not_taken_back_when_its_caller_is_cancelled(database: Recorded) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await database.ledger.commit(ACCEPT)
    await database.ledger.commit(PREPARE, APPEND)
    assert await database.ledger.task(ADA, "echo", "task-1") is not None


async def test_submitted_points_are_confirmed_in_order_and_are_then_readable(database: Recorded) -> None:
    told: list[Exception | None] = []
    for number in range(2, 50):
        database.ledger.submit((Append(EventRow("task-1", number, number, b"%d" % number)),), told.append)
    await database.ledger.commit(ACCEPT)
    assert [type(outcome) for outcome in told] == [Conflict] * 48
    for number in range(2, 50):
        database.ledger.submit((Append(EventRow("task-1", number, number, b"%d" % number)),), told.append)
    await database.ledger.commit(PREPARE_WITHOUT_EVENT)
    assert told[48:] == [None] * 48
    assert [number for number, _ in await database.ledger.events("task-1", 1)] == [*range(2, 50)]


PREPARE_WITHOUT_EVENT = replace(PREPARE, event=None)


async def test_of_many_that_accept_at_once_exactly_one_makes_the_context(database: Recorded) -> None:
    racing = [
        replace(ACCEPT, context_row=f"c{n}", thread=replace(ACCEPT.thread, id=f"t{n}"), task=f"t{n}", turn=f"t{n}")
        for n in range(20)
    ]
    racing = [replace(accept, event=None, key=None) for accept in racing]
    outcomes = await asyncio.gather(*(database.ledger.commit(accept) for accept in racing), return_exceptions=True)
    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["Conflict"] * 19 + ["NoneType"]


async def test_turns_of_one_thread_are_numbered_in_the_order_of_their_commits(database: Recorded) -> None:
    await database.ledger.commit(ACCEPT)
    follow_ups = [replace(FOLLOW_UP, turn=f"turn-{n}", event=None, message=ACCEPT.message) for n in range(2, 40)]
    await asyncio.gather(*(database.ledger.commit(follow_up) for follow_up in follow_ups))
    assert [left.turn for left in await database.ledger.unfinished_turns(0)] == [f"turn-{n}" for n in range(1, 40)]


async def test_the_holder_that_lost_its_lease_cannot_complete(tmp_path: Path) -> None:
    async with recorded(tmp_path / "ledger.db") as one, recorded(tmp_path / "ledger.db") as other:
        await one.ledger.commit(ACCEPT, replace(FOLLOW_UP, process="process-2"), PREPARE_WITHOUT_EVENT)
        taken = replace(
            PREPARE_WITHOUT_EVENT, generation=1, holder="process-2", turn="turn-2", service_call="call-2", now=9001
        )
        with pytest.raises(Conflict, match="after all earlier ones"):
            await other.ledger.commit(taken)
        ended = replace(FINISH, status="failed", state=None, events=EventRow("task-1", 3, 3, b"{}"), last_event=3)
        await other.ledger.commit(Fence("thread-1", 1, 9001), ended)
        with pytest.raises(Conflict):
            await one.ledger.commit(COMPLETE)
        taken = replace(taken, generation=2)
        await other.ledger.commit(taken)
        with pytest.raises(Conflict):
            await one.ledger.commit(COMPLETE)
        await other.ledger.commit(replace(COMPLETE, generation=3, turn="turn-2", service_call="call-2"))


async def test_a_lease_that_was_renewed_is_not_taken_from_its_holder(tmp_path: Path) -> None:
    async with recorded(tmp_path / "ledger.db") as database:
        await database.ledger.commit(ACCEPT, PREPARE_WITHOUT_EVENT)
        await database.ledger.commit(Renew(("thread-1",), "process-1", 9999))
        with pytest.raises(Conflict):
            await database.ledger.commit(Fence("thread-1", 1, 9001))


async def test_its_version_changes_with_every_commit_of_any_process_and_with_nothing_else(tmp_path: Path) -> None:
    async with recorded(tmp_path / "ledger.db") as one, recorded(tmp_path / "ledger.db") as other:
        empty = await other.ledger.version()
        await other.ledger.history("thread-1", unsent_only=False)
        assert await other.ledger.version() == empty
        await one.ledger.commit(ACCEPT)
        accepted = await other.ledger.version()
        assert accepted != empty
        await other.ledger.commit(PREPARE_WITHOUT_EVENT)
        assert await other.ledger.version() != accepted


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


async def test_a_secret_is_made_once_for_each_name(database: Recorded) -> None:
    same = await asyncio.gather(*(database.ledger.secret("one") for _ in range(10)))
    assert len(set(same)) == 1
    assert len(same[0]) == 32
    assert await database.ledger.secret("other") != same[0]


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


async def test_a_closed_ledger_is_unavailable(tmp_path: Path) -> None:
    async with recorded(tmp_path / "ledger.db") as database:
        pass
    with pytest.raises(LedgerUnavailable):
        await database.ledger.commit(ACCEPT)
    with pytest.raises(LedgerUnavailable):
        await database.ledger.ready()


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
