"""Migrations make the tables, once, and never go back."""

import sqlite3
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Engine, NullPool, create_engine, inspect

from gateway.ledger.errors import LedgerUnavailable
from storage.compiled import OLDEST, VERSION
from storage.schema.migrate import migrate
from storage.schema.open import prepare
from storage.schema.tables import Row


def migrated(path: Path) -> str:
    return prepare(path, 5000, auto_migrate=True)


def engine(path: Path) -> Engine:
    return create_engine(f"sqlite:///{path}", poolclass=NullPool)


def described(path: Path) -> dict[str, list[str]]:
    """Every column, constraint and index, the conditions of CHECKs and partial indexes among them."""
    with engine(path).connect() as connection:
        inspector = inspect(connection)
        return {
            table: sorted(
                str({key: str(value) for key, value in part.items() if key != "dialect_options"} | _conditions(part))
                for part in (
                    *inspector.get_columns(table),
                    *inspector.get_foreign_keys(table),
                    *inspector.get_unique_constraints(table),
                    *inspector.get_check_constraints(table),
                    *inspector.get_indexes(table),
                    inspector.get_pk_constraint(table),
                    inspector.get_table_options(table),
                )
            )
            for table in inspector.get_table_names()
            if table != "alembic_version"
        }


def _conditions(part: Mapping[str, Any]) -> dict[str, str]:
    return {key: str(value) for key, value in part.get("dialect_options", {}).items()}


def test_migrating_an_empty_file_makes_exactly_the_tables(tmp_path: Path) -> None:
    migrated(tmp_path / "migrated.db")
    Row.metadata.create_all(engine(tmp_path / "created.db"))
    tables = described(tmp_path / "created.db")
    assert described(tmp_path / "migrated.db") == tables
    assert tables.keys() == Row.metadata.tables.keys()
    assert any("sent_in IS NULL AND replayable = 1" in part for part in tables["history_item"])


_LOADS = """
import sys
from pathlib import Path

from sqlalchemy import Engine, event

from storage.schema.migrate import migrate

event.listen(Engine, "begin", lambda _: known.update(sys.modules))
known = set()
migrate(Path(sys.argv[1]), 5000, auto_migrate=True)
assert "storage.schema.tables" in known
print(*sorted(sys.modules.keys() - known))
"""


def test_while_a_migration_keeps_everybody_waiting_nothing_is_loaded(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _LOADS, str(tmp_path / "ledger.db")]
    done = subprocess.run(command, cwd=Path(__file__).parents[3], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_alembic_finds_nothing_to_migrate(tmp_path: Path) -> None:
    migrated(tmp_path / "ledger.db")
    with engine(tmp_path / "ledger.db").connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), Row.metadata) == []


def test_migrating_twice_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    assert migrated(path) == migrated(path) == prepare(path, 5000, auto_migrate=False)


def test_of_several_that_start_at_once_one_migrates(tmp_path: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        assert len(set(pool.map(migrated, [tmp_path / "ledger.db"] * 4))) == 1


def test_a_process_that_sets_the_mode_of_a_new_file_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as other, ThreadPoolExecutor(1) as pool:
        other.execute("BEGIN IMMEDIATE")
        starting = pool.submit(migrated, path)
        assert not wait([starting], timeout=0.3).done
        other.execute("COMMIT")
        assert starting.result() == VERSION


@pytest.mark.parametrize("oldest", [0, int(VERSION) + 1, 9999])
def test_a_newer_schema_is_refused_and_not_changed(tmp_path: Path, oldest: int) -> None:
    path = tmp_path / "ledger.db"
    migrated(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
        connection.execute(f"PRAGMA user_version = {oldest}")
    with pytest.raises(LedgerUnavailable, match="version 9999, newer than ours"):
        migrated(path)
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT version_num FROM alembic_version").fetchall() == [("9999",)]


def test_a_newer_schema_that_only_adds_is_used_and_not_changed(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    migrated(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("UPDATE alembic_version SET version_num = ?", (f"{int(VERSION) + 1:04}",))
    before = path.read_bytes()
    assert prepare(path, 5000, auto_migrate=True) == VERSION
    assert path.read_bytes() == before


def test_a_migrated_file_and_a_new_one_have_the_same_oldest_user(tmp_path: Path) -> None:
    prepare(tmp_path / "new.db", 5000, auto_migrate=True)
    migrate(tmp_path / "migrated.db", 5000, auto_migrate=True)
    for name in ("new.db", "migrated.db"):
        with closing(sqlite3.connect(tmp_path / name)) as connection:
            assert connection.execute("PRAGMA user_version").fetchone() == (OLDEST,)


def test_an_older_schema_is_refused_when_it_may_not_be_migrated(tmp_path: Path) -> None:
    with pytest.raises(LedgerUnavailable, match="and auto_migrate is off"):
        prepare(tmp_path / "ledger.db", 5000, auto_migrate=False)


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    path.write_text("no database, but long enough to be taken for one " * 30)
    with pytest.raises(LedgerUnavailable, match="cannot be read or made"):
        migrated(path)


def test_tables_of_somebody_else_are_not_taken_for_ours(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE task (id TEXT)")
    with pytest.raises(LedgerUnavailable, match="table task already exists"):
        migrated(path)
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT name FROM sqlite_master").fetchall() == [("task",)]


def test_no_condition_of_a_table_fills_a_temporary_table_for_each_row(tmp_path: Path) -> None:
    """SQLite does so for a list of more than two words, at every INSERT."""
    migrated(tmp_path / "ledger.db")
    with closing(sqlite3.connect(tmp_path / "ledger.db")) as connection:
        tables = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
        for (table,) in tables:
            steps = connection.execute(f"EXPLAIN INSERT INTO {table} DEFAULT VALUES").fetchall()
            assert "OpenEphemeral" not in {step[1] for step in steps}, table


def test_a_condition_in_other_words_refuses_what_it_refused_before(tmp_path: Path) -> None:
    migrated(tmp_path / "ledger.db")
    with closing(sqlite3.connect(tmp_path / "ledger.db")) as connection:
        of_context = "INSERT INTO context VALUES (?, '', 'ada', ?, ?, 1, 1, NULL)"
        for number, state in enumerate(("open", "closed", "expired", "deleted")):
            connection.execute(of_context, (str(number), str(number), state))
        with pytest.raises(sqlite3.IntegrityError, match="ck_context_state"):
            connection.execute(of_context, ("5", "5", "gone"))
