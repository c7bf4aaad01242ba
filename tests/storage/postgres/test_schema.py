"""The schema on PostgreSQL: made once, migrated once beside gateways that use it, never taken back."""

import asyncio
import secrets
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

from gateway.ledger.errors import LedgerUnavailable
from storage.compiled import OLDEST, VERSION
from storage.postgres import schema
from storage.postgres.compiled import SCHEMA
from storage.postgres.ledger import absence
from storage.postgres.session import Session
from storage.postgres.settings import PostgresSettings
from storage.schema.migrate_postgres import migrate
from tests.storage.postgres.catalog import catalog
from tests.support.polling import until
from tests.support.pooler import pooled

FIRST = "0008"
"""The version that PostgreSQL began with. Its schema stays as a database of then has it."""

FIRST_SCHEMA = Path(__file__).with_name(f"version_{FIRST}.sql")


@pytest.fixture
def old_url(empty_database_url: str) -> str:
    """A database that a gateway of the first version has made."""
    make_first(empty_database_url)
    return empty_database_url


def make_first(url: str) -> None:
    with psycopg.connect(url) as connection:
        for statement in FIRST_SCHEMA.read_text().removesuffix(";\n").split(";\n"):
            connection.execute(statement.encode())
        connection.execute("INSERT INTO alembic_version VALUES (%s)", (FIRST,))
        connection.execute("INSERT INTO ledger_format VALUES (1)")


def prepared(
    url: str, *, auto_migrate: bool = True, behind: bool = False, silence: float = 30.0, **settings: Any
) -> str:
    """The version afterwards. `behind` a pooler. `silence`: seconds for which the server may say nothing."""
    made = PostgresSettings(url=url, **settings)
    session = Session(made.conninfo(options=not behind), 5.0, silence, prepares=False)
    try:
        return schema.prepare(session, made, pooled=behind, auto_migrate=auto_migrate)
    finally:
        session.close()


def said(url: str) -> list[tuple[Any, ...]]:
    """The version, and the oldest code that may use it."""
    with psycopg.connect(url) as connection:
        return connection.execute("SELECT version_num, oldest FROM alembic_version, ledger_format").fetchall()


def changed(url: str, statement: str, *values: object) -> None:
    with psycopg.connect(url) as connection:
        connection.execute(statement.encode(), values)


# --- refused ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("oldest", [0, int(VERSION) + 1, 9999])
def test_a_newer_schema_is_refused_and_not_changed(database_url: str, oldest: int) -> None:
    changed(database_url, "UPDATE alembic_version SET version_num = '9999'")
    changed(database_url, "UPDATE ledger_format SET oldest = %s", oldest)
    before = catalog(database_url)
    with pytest.raises(LedgerUnavailable, match="version 9999, newer than ours"):
        prepared(database_url)
    assert said(database_url) == [("9999", oldest)]
    assert catalog(database_url) == before


def test_an_older_schema_is_refused_when_it_may_not_be_migrated(old_url: str) -> None:
    with pytest.raises(
        LedgerUnavailable, match=f"version {FIRST}, older than ours, {VERSION}, and auto_migrate is off"
    ):
        prepared(old_url, auto_migrate=False)
    assert said(old_url) == [(FIRST, 1)]


def test_an_empty_schema_is_refused_when_it_may_not_be_made(empty_database_url: str) -> None:
    with pytest.raises(LedgerUnavailable, match="has no tables, and auto_migrate is off"):
        prepared(empty_database_url, auto_migrate=False)


def test_tables_of_somebody_else_are_not_taken_for_ours(empty_database_url: str) -> None:
    changed(empty_database_url, "CREATE TABLE task (id text)")
    before = catalog(empty_database_url)
    with pytest.raises(LedgerUnavailable, match="tables of something else"):
        prepared(empty_database_url)
    assert catalog(empty_database_url) == before


def test_a_migration_that_fails_leaves_all_as_it_was_and_quotes_nothing(old_url: str) -> None:
    changed(old_url, "CREATE TABLE duty (id text)")
    before = catalog(old_url)
    with pytest.raises(LedgerUnavailable, match=r'cannot be migrated: relation "duty" already exists$'):
        prepared(old_url)
    assert said(old_url) == [(FIRST, 1)]
    assert catalog(old_url) == before


@pytest.fixture
def guest_url(empty_database_url: str) -> Iterator[str]:
    """A role that may make tables in the schema `public`, and nothing else."""
    name = f"guest_{secrets.token_hex(4)}"
    changed(empty_database_url, f"CREATE ROLE {name} LOGIN PASSWORD 'word'")
    changed(empty_database_url, f"GRANT USAGE, CREATE ON SCHEMA public TO {name}")
    parts = urlsplit(empty_database_url)
    yield parts._replace(netloc=f"{name}:word@{parts.hostname}:{parts.port}").geturl()
    changed(empty_database_url, f"DROP OWNED BY {name}")
    changed(empty_database_url, f"DROP ROLE {name}")


def test_the_right_to_create_in_the_schema_is_enough(guest_url: str) -> None:
    assert prepared(guest_url) == prepared(guest_url) == VERSION


def test_of_several_that_start_at_once_one_makes_the_schema(empty_database_url: str) -> None:
    for number in range(5):
        with ThreadPoolExecutor(8) as pool:
            made = pool.map(partial(prepared, database_schema=f"own_{number}"), [empty_database_url] * 8)
            assert set(made) == {VERSION}


# --- migrated ---------------------------------------------------------------------------------------------------------


def test_migrations_lead_to_the_schema_that_an_empty_database_gets(old_url: str, database_url: str) -> None:
    assert prepared(old_url) == VERSION
    made = catalog(database_url)
    assert catalog(old_url) == made
    assert said(old_url) == said(database_url) == [(VERSION, OLDEST)]
    assert {part for part, *_ in made} == {"column", "constraint", "index", "trigger", "function"}
    assert FIRST == VERSION or tuple(FIRST_SCHEMA.read_text().split(";\n")) != SCHEMA


def test_a_schema_of_another_name_is_migrated_alone(old_url: str) -> None:
    changed(old_url, "CREATE SCHEMA other")
    other_url = f"{old_url}?options=-csearch_path%3Dother"
    make_first(other_url)
    prepared(old_url, database_schema="other")
    assert said(old_url) == [(FIRST, 1)]
    assert said(other_url) == [(VERSION, OLDEST)]


def test_migrating_twice_changes_nothing(old_url: str) -> None:
    assert prepared(old_url) == prepared(old_url) == prepared(old_url, auto_migrate=False) == VERSION


def test_of_several_that_start_at_once_one_migrates(old_url: str) -> None:
    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(prepared, [old_url] * 4)) == {VERSION}
    assert said(old_url) == [(VERSION, OLDEST)]


def test_a_newer_schema_that_only_adds_is_used_and_not_changed(database_url: str) -> None:
    following = f"{int(VERSION) + 1:04}"
    changed(database_url, "UPDATE alembic_version SET version_num = %s", following)
    before = catalog(database_url)
    assert prepared(database_url) == VERSION
    assert said(database_url) == [(following, OLDEST)]
    assert catalog(database_url) == before


def test_a_schema_is_migrated_behind_a_pooler(old_url: str, database_url: str) -> None:
    with pooled(old_url) as url:
        assert prepared(url, behind=True) == VERSION
    assert catalog(old_url) == catalog(database_url)


# --- beside gateways --------------------------------------------------------------------------------------------------


@contextmanager
def held(url: str, statement: str) -> Iterator[psycopg.Connection]:
    """A transaction that has run the statement."""
    with psycopg.connect(url) as connection:
        connection.execute(statement.encode())
        yield connection


def waiting(url: str, kind: str, longer_than: int = 0) -> bool:
    """Whether somebody waits for a lock of this kind, for more milliseconds than these."""
    query = (
        "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event = %s "
        "AND clock_timestamp() - query_start > %s * interval '1 ms'"
    )
    with psycopg.connect(url) as connection:
        return connection.execute(query, (kind, longer_than)).fetchone() is not None


async def test_a_migration_gives_way_to_a_transaction_that_uses_its_table_and_tries_again(old_url: str) -> None:
    async with asyncio.TaskGroup() as group:
        with held(old_url, "SELECT * FROM alembic_version FOR UPDATE"):
            settings = PostgresSettings(url=old_url)
            migrating = group.create_task(asyncio.to_thread(migrate, settings, pooled=False, auto_migrate=True))
            await until(lambda: waiting(old_url, "transactionid"))
            await until(lambda: not waiting(old_url, "transactionid"))
            assert not migrating.done()
    assert migrating.result() == VERSION
    assert said(old_url) == [(VERSION, OLDEST)]


@pytest.mark.parametrize("limit", ["lock_timeout", "statement_timeout", "silence"])
async def test_who_starts_while_another_migrates_waits_longer_than_for_anything_else(old_url: str, limit: str) -> None:
    lock = "SELECT pg_advisory_xact_lock(hashtext('a2a-gateway'), hashtext('public'))"
    async with asyncio.TaskGroup() as group:
        with held(old_url, lock):
            short: Any = {limit: 0.1 if limit == "silence" else "100ms"}
            starting = group.create_task(asyncio.to_thread(prepared, old_url, **short))
            await until(lambda: waiting(old_url, "advisory", 300) or starting.done())
    assert starting.result() == VERSION


_LOADS = """
import sys

from sqlalchemy import Engine, event

from storage.postgres.settings import PostgresSettings
from storage.schema.migrate_postgres import migrate

event.listen(Engine, "begin", lambda _: known.update(sys.modules))
known = set()
migrate(PostgresSettings(url=sys.argv[1]), pooled=False, auto_migrate=True)
assert "storage.schema.tables" in known
print(*sorted(sys.modules.keys() - known))
"""


def run(program: str, url: str) -> str:
    command = [sys.executable, "-c", program, url]
    root = Path(__file__).parents[3]
    return subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout


def test_while_a_migration_keeps_everybody_waiting_nothing_is_loaded(old_url: str) -> None:
    assert run(_LOADS, old_url).split() == []


_OPENS = """
import asyncio, sys

from storage.postgres.ledger import open_ledger
from storage.postgres.settings import PostgresSettings


async def main():
    async with open_ledger(PostgresSettings(url=sys.argv[1]), True) as ledger:
        await ledger.ready()


asyncio.run(main())
print(sorted({"alembic", "sqlalchemy", "sqlmodel"} & set(sys.modules)))
"""


def test_a_ledger_is_opened_without_importing_sqlalchemy(database_url: str) -> None:
    assert run(_OPENS, database_url) == "[]\n"


def test_a_look_for_a_ledger_makes_none(empty_database_url: str) -> None:
    settings = PostgresSettings(url=empty_database_url)
    for _ in range(2):
        assert absence(settings) == f"there are no tables in the schema {settings.database_schema!r}"
    prepared(empty_database_url)
    assert absence(settings) is None
