"""The rows of a ledger and their copy, over every pair of the two stores."""

import asyncio
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, closing
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, cast

import pytest

from gateway.config.plugins import Registry
from gateway.ledger import copying
from gateway.ledger.copying import Copied, CopyFailed, InUse, copy
from gateway.ledger.errors import Conflict, LedgerUnavailable
from gateway.ledger.port import Ledger
from gateway.ledger.rows import LedgerRows, Progress, Row, RowTable
from storage.compiled import TABLES
from storage.row_tables import LAYOUT, ROW_TABLES
from storage.schema.open import prepare
from storage.schema.tables import Row as Tables
from storage.statement import Value
from tests.ledgers.fixture import sql_file

NAMES = ("the source", "the target")
ODD = "a\0b\ufdd0c"
"""PostgreSQL keeps no NUL, and the second character is the escape in its place."""

KINDS = ("sqlite", "postgres")
PAIRS = [(source, target) for source in KINDS for target in KINDS]


class Store(NamedTuple):
    """A ledger in a store. `change` runs SQL of both dialects in it, as somebody else."""

    url: str

    def rows(self, make: bool) -> AbstractContextManager[LedgerRows]:
        factory = Registry().ledger(self.url)
        assert factory.rows is not None
        return factory.rows(factory.settings(url=self.url), make)

    def change(self, sql: str, *values: Value) -> None:
        if self.url.startswith("sqlite"):
            with closing(sqlite3.connect(self.url.removeprefix("sqlite:///"))) as file, file:
                file.execute(sql, values)
        else:
            import psycopg

            with psycopg.connect(self.url) as database:
                database.execute(sql.replace("?", "%s").encode(), values)

    def write(self) -> None:
        """As a gateway that does not heed the claim of a copy: one of an earlier version."""
        if self.url.startswith("sqlite"):
            self.change("INSERT INTO delete_job VALUES ('new', 'echo', 'handle', NULL, 0)")
        else:
            self.change("INSERT INTO ledger_writer VALUES ('earlier', 1, 0)")

    def ids(self, table: str) -> set[str]:
        """As the store has them for itself."""
        sql = f"SELECT id FROM {table}"
        if self.url.startswith("sqlite"):
            with closing(sqlite3.connect(self.url.removeprefix("sqlite:///"))) as file:
                return {row[0] for row in file.execute(sql)}
        import psycopg

        with psycopg.connect(self.url) as database:
            return {row[0] for row in database.execute(sql.encode())}

    def content(self) -> dict[str, set[Row]]:
        with self.rows(make=False) as rows:
            return {table.name: set(rows.read(table)) for table in rows.tables}

    def opened(self) -> AbstractAsyncContextManager[Ledger]:
        factory = Registry().ledger(self.url)
        return factory.open(factory.settings(url=self.url), True)

    async def open(self) -> None:
        async with self.opened() as ledger:
            await ledger.ready()


@pytest.fixture
def make(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Callable[[str], Store]]:
    """Makes a store that is empty, of this kind."""
    from tests.support.databases import databases, name_of

    made: list[str] = []

    def store(kind: str) -> Store:
        made.append(kind)
        if kind == "sqlite":
            return Store(f"sqlite:///{tmp_path}/{len(made)}.db")
        return Store(databases().make(name_of(f"{request.node.nodeid} {len(made)}"), migrated=False))

    yield store
    for number, kind in enumerate(made, 1):
        if kind == "postgres":
            databases().drop(name_of(f"{request.node.nodeid} {number}"))


@pytest.fixture(params=PAIRS, ids=["-to-".join(pair) for pair in PAIRS])
def stores(request: pytest.FixtureRequest, make: Callable[[str], Store], filled: "Filled") -> tuple[Store, Store]:
    """A ledger with rows of a release in every table, and an empty one."""
    source, target = request.param
    return filled(source), make(target)


Filled = Callable[[str], Store]


@pytest.fixture
def filled(make: Callable[[str], Store], tmp_path: Path) -> Filled:
    def fill(kind: str) -> Store:
        file = tmp_path / "release.db"
        with closing(sqlite3.connect(file)) as connection:
            connection.executescript(sql_file("0.1.0").read_text())
        prepare(file, 5000, auto_migrate=True)
        with closing(sqlite3.connect(file)) as connection:
            connection.execute("INSERT INTO duty VALUES ('retention', 'gone', 7)")
            connection.execute("INSERT INTO delete_job VALUES ('job', 'echo', ?, NULL, 3)", (ODD,))
            connection.execute(
                "INSERT INTO withdrawal VALUES ('w', 'echo', 'thread', ?, 'run', 7, 0)", (f"\ufdd0{ODD}",)
            )
            connection.execute("INSERT INTO turn_note SELECT id, 7, 'taken-over', ? FROM turn LIMIT 1", (ODD,))
            connection.execute("UPDATE thread SET adapter_secret = ?, adapter_state = ''", ('"sealed\\u0000"',))
            connection.execute("UPDATE push_config SET id = ? || id", (ODD,))
            connection.commit()
            connection.execute("PRAGMA journal_mode = WAL")
        if kind == "sqlite":
            return Store(f"sqlite:///{file}")
        store = make(kind)
        copy_all(Store(f"sqlite:///{file}"), store)
        return store

    return fill


def copy_all(source: Store, target: Store, report: copying.Report = lambda *_: None) -> Copied:
    with source.rows(make=False) as rows:
        return copy(rows, target.rows(make=True), NAMES, report)


class Cut(Exception):
    """The process is killed here."""


def cut_after(calls: int) -> copying.Report:
    """Raises after this many reports of progress."""
    left = iter(range(calls))

    def report(*_: object) -> None:
        if next(left, None) is None:
            raise Cut

    return report


def in_a_gateway(store: Store) -> None:
    asyncio.run(store.open())


def test_a_table_comes_behind_those_that_it_refers_to_and_deliveries_behind_events() -> None:
    place = {name: number for number, name in enumerate(TABLES)}
    assert TABLES.keys() == Tables.metadata.tables.keys()
    for table in Tables.metadata.sorted_tables:
        for key in table.foreign_keys:
            assert place[key.column.table.name] < place[table.name]
    assert place["event"] < place["push_config"]


def test_a_ledger_that_is_not_there_is_not_made_by_being_copied(tmp_path: Path, make: Callable[[str], Store]) -> None:
    with pytest.raises(LedgerUnavailable, match="there is no such file"):
        copy_all(make("sqlite"), make("sqlite"))
    assert list(tmp_path.iterdir()) == []


def test_a_database_of_something_else_is_no_ledger(make: Callable[[str], Store], filled: Filled) -> None:
    other = make("sqlite")
    other.change("CREATE TABLE mine (id TEXT)")
    with pytest.raises(LedgerUnavailable, match="it is not a database of this gateway"):
        copy_all(other, make("sqlite"))
    with pytest.raises(LedgerUnavailable, match="it is not a database of this gateway"):
        copy_all(filled("sqlite"), other)


def test_a_database_of_postgresql_without_a_ledger_is_no_source(make: Callable[[str], Store]) -> None:
    with pytest.raises(LedgerUnavailable, match="its schema is not one of this gateway"):
        copy_all(make("postgres"), make("sqlite"))


def test_a_schema_of_another_version_is_refused_with_what_to_do(stores: tuple[Store, Store]) -> None:
    source, target = stores
    source.change("UPDATE alembic_version SET version_num = '0001'")
    with pytest.raises(
        LedgerUnavailable, match=r"version 0001, and rows are copied in version .*: start its gateway once"
    ):
        copy_all(source, target)
    source.change("UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(
        LedgerUnavailable, match=r"newer than ours.*: copy with the version of a2a-gateway that made it"
    ):
        copy_all(source, target)


def test_a_source_with_a_living_process_is_refused(stores: tuple[Store, Store]) -> None:
    source, target = stores
    source.change("INSERT INTO process VALUES ('living', ?)", int(time.time() * 1000) + 60_000)
    with pytest.raises(CopyFailed, match=r"the source is in use: the process living works on it.*for \d+\.\d s more"):
        copy_all(source, target)
    assert not any(target.content().values())


def test_a_source_with_a_lease_is_refused_and_one_from_before_the_clock_was_set_back_is_none(
    stores: tuple[Store, Store],
) -> None:
    source, target = stores
    now = int(time.time() * 1000)
    source.change("UPDATE thread SET lease_holder = 'holder', lease_until = ?", now + 60_000)
    with pytest.raises(CopyFailed, match="the source is in use: the process holder works on it"):
        copy_all(source, target)
    source.change("UPDATE thread SET lease_until = ?", now + 24 * 3_600_000)
    copy_all(source, target)


def test_a_target_with_a_living_process_is_refused(stores: tuple[Store, Store]) -> None:
    source, target = stores
    in_a_gateway(target)
    target.change("INSERT INTO process VALUES ('living', ?)", int(time.time() * 1000) + 60_000)
    with pytest.raises(CopyFailed, match="the target is in use"):
        copy_all(source, target)


def test_a_target_with_rows_of_its_own_is_left_as_it_is(stores: tuple[Store, Store]) -> None:
    source, target = stores
    in_a_gateway(target)
    target.change("INSERT INTO delete_job VALUES ('mine', 'echo', 'handle', NULL, 0)")
    before = target.content()
    with pytest.raises(CopyFailed, match="the target has rows of its own, in delete_job: nothing is added to them"):
        copy_all(source, target)
    assert target.content() == before
    in_a_gateway(target)


def test_a_byte_that_changes_on_the_way_is_found_and_no_gateway_opens_the_target(stores: tuple[Store, Store]) -> None:
    source, target = stores

    def spoil(doing: str, table: RowTable, rows: int) -> None:
        if (doing, table.name, rows) == ("copying", "push_config", 5):
            target.change("UPDATE delete_job SET handle = 'other'")

    with pytest.raises(CopyFailed, match=r"not equal to the source in delete_job: 1 rows .* instead of 1 rows"):
        copy_all(source, target, spoil)
    with pytest.raises(LedgerUnavailable, match="a copy into it has begun and not ended"):
        in_a_gateway(target)
    with pytest.raises(CopyFailed, match="not equal to the source in delete_job"):
        copy_all(source, target)


def test_a_row_that_is_lost_on_the_way_is_found(stores: tuple[Store, Store]) -> None:
    source, target = stores

    def lose(doing: str, table: RowTable, rows: int) -> None:
        if (doing, table.name, rows) == ("copying", "push_config", 5):
            target.change("DELETE FROM delete_job")

    with pytest.raises(CopyFailed, match="not equal to the source in delete_job: 0 rows"):
        copy_all(source, target, lose)


@pytest.mark.parametrize("target", KINDS)
def test_jobs_for_long_handles_have_the_ids_that_each_store_gives_them(
    target: str, make: Callable[[str], Store], filled: Filled
) -> None:
    source, there, back = filled("sqlite"), make(target), make("sqlite")
    handle = "".join(chr(0x4E00 + number * 7919 % 20_000) for number in range(2000))  # nothing that compresses
    source.change("INSERT INTO delete_job VALUES (?, 'echo', ?, NULL, 0)", f"thread {handle}", handle)
    source.change("INSERT INTO withdrawal VALUES (?, 'echo', 'thread', ?, 'run', 7, 0)", f"thread {handle} run", handle)
    copy_all(source, there)
    copy_all(there, back)
    for table, whole in ("delete_job", handle), ("withdrawal", f"{handle} run"):
        own = whole if target == "sqlite" else sha256(whole.encode()).hexdigest()
        assert f"thread {own}" in there.ids(table)
        assert back.ids(table) == source.ids(table)


def test_a_source_that_is_written_to_meanwhile_is_found(stores: tuple[Store, Store]) -> None:
    source, target = stores

    def report(doing: str, table: RowTable, rows: int) -> None:
        if (doing, table.name, rows) == ("copying", "push_config", 5):
            source.write()

    with pytest.raises(CopyFailed, match="the source was written to while it was copied"):
        copy_all(source, target, report)


@pytest.mark.parametrize("which", [0, 1])
async def test_a_gateway_that_has_nothing_to_do_is_noticed_at_either_end(
    stores: tuple[Store, Store], which: int
) -> None:
    source, target = stores
    name = NAMES[which]
    async with stores[which].opened():
        with pytest.raises(CopyFailed, match=f"{name} is in use: .*open.*Stop its gateways"):
            await asyncio.to_thread(copy_all, source, target)
    copied = await asyncio.to_thread(copy_all, source, target)
    assert not copied.resumed


def test_a_process_that_begins_to_work_on_the_source_meanwhile_is_found(stores: tuple[Store, Store]) -> None:
    source, target = stores

    def begin(doing: str, table: RowTable, rows: int) -> None:
        if (doing, table.name, rows) == ("copying", "push_config", 5):
            source.change("INSERT INTO process VALUES ('living', ?)", int(time.time() * 1000) + 60_000)

    with pytest.raises(CopyFailed, match="the source is in use"):
        copy_all(source, target, begin)


def test_a_damaged_row_is_named_by_the_row_before_it(filled: Filled, make: Callable[[str], Store]) -> None:
    source = filled("sqlite")
    source.change("INSERT INTO delete_job VALUES ('next', 'echo', CAST(x'ff' AS TEXT), NULL, 0)")
    with pytest.raises(CopyFailed, match="the source: the row behind job in delete_job is damaged"):
        copy_all(source, make("sqlite"))


def test_a_copy_that_was_cut_anywhere_goes_on_and_stores_nothing_twice(
    stores: tuple[Store, Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copying, "_BATCH_ROWS", 40)
    source, target = stores
    cuts = 0
    for calls in (3, 9, 14, 10, 5):
        with pytest.raises(Cut):
            copy_all(source, target, cut_after(calls))
        cuts += 1
        with pytest.raises(LedgerUnavailable, match="a copy into it has begun and not ended"):
            in_a_gateway(target)
    copied = copy_all(source, target)
    assert (copied.resumed, cuts) == (True, 5)
    assert target.content() == source.content()


class _CutBeforeItIsRead:
    layout = LAYOUT

    def unfinished(self) -> None:
        return None

    def claim(self) -> None:
        return None

    def holders(self) -> NoReturn:
        raise Cut


def test_a_copy_that_was_cut_before_it_read_anything_goes_on_as_well(stores: tuple[Store, Store]) -> None:
    source, target = stores
    with pytest.raises(Cut):
        copy(cast("LedgerRows", _CutBeforeItIsRead()), target.rows(make=True), NAMES, lambda *_: None)
    with pytest.raises(LedgerUnavailable, match="a copy into it has begun and not ended"):
        in_a_gateway(target)
    copy_all(source, target)
    assert target.content() == source.content()


def test_a_target_is_as_it_was_where_the_source_is_in_use(stores: tuple[Store, Store]) -> None:
    source, target = stores
    source.change("INSERT INTO process VALUES ('living', ?)", int(time.time() * 1000) + 60_000)
    with pytest.raises(InUse):
        copy_all(source, target)
    in_a_gateway(target)


def test_a_copy_that_was_cut_does_not_go_on_with_another_source(stores: tuple[Store, Store]) -> None:
    source, target = stores
    with pytest.raises(Cut):
        copy_all(source, target, cut_after(3))
    another = ("another", "the target")
    with (
        source.rows(make=False) as rows,
        pytest.raises(CopyFailed, match="the target has a copy of the source that was not finished"),
    ):
        copy(rows, target.rows(make=True), another, lambda *_: None)


def test_a_copy_that_was_cut_is_not_copied_itself(
    stores: tuple[Store, Store], make: Callable[[str], Store], tmp_path: Path
) -> None:
    source, half = stores
    with pytest.raises(Cut):
        copy_all(source, half, cut_after(9))
    with pytest.raises(CopyFailed, match="the source is not whole: a copy into it has begun and not ended"):
        copy_all(half, Store(f"sqlite:///{tmp_path}/whole.db"))
    assert not (tmp_path / "whole.db").exists()
    copy_all(source, half)
    copy_all(half, Store(f"sqlite:///{tmp_path}/whole.db"))


async def test_a_target_is_not_made_where_a_gateway_has_the_source_open(
    stores: tuple[Store, Store], tmp_path: Path
) -> None:
    source, _ = stores
    async with source.opened():
        with pytest.raises(InUse):
            await asyncio.to_thread(copy_all, source, Store(f"sqlite:///{tmp_path}/new.db"))
    assert not (tmp_path / "new.db").exists()


def test_of_two_copies_to_one_target_the_second_stores_nothing(stores: tuple[Store, Store]) -> None:
    source, target = stores
    table = next(table for table in ROW_TABLES if table.name == "delete_job")
    row = ("a", "echo", "h", None, 0)
    with source.rows(make=False), target.rows(make=True) as one, target.rows(make=True) as other:
        one.begin("the source")
        with pytest.raises(Conflict):
            other.begin("the source")
        one.write(table, [row], Progress(), Progress(1, ("a",)))
        with pytest.raises(Conflict, match="delete_job has other rows than those that were copied"):
            other.write(table, [("b", "echo", "h", None, 0)], Progress(), Progress(1, ("b",)))
        assert one.unfinished() == other.unfinished()
        assert list(other.read(table)) == [row]


def test_a_copy_has_every_row_as_the_ledger_reads_it_and_leaves_the_source(stores: tuple[Store, Store]) -> None:
    source, target = stores
    before = source.content()
    copied = copy_all(source, target)
    content = target.content()
    assert content == before == source.content()
    assert {each.name: each.rows for each in copied.tables} == {name: len(rows) for name, rows in before.items()}
    assert all(before.values())
    assert (copied.resumed, _column(content, "delete_job", "handle")) == (False, {ODD})
    in_a_gateway(target)


def test_there_and_back_gives_the_same_digests(filled: Filled, make: Callable[[str], Store]) -> None:
    source, middle, back = filled("sqlite"), make("postgres"), make("sqlite")
    assert copy_all(source, middle).tables == copy_all(middle, back).tables


def test_the_file_of_a_backup_is_copied_without_becoming_another_file(
    filled: Filled, make: Callable[[str], Store]
) -> None:
    source = filled("sqlite")
    source.change("PRAGMA journal_mode = DELETE")
    path = Path(source.url.removeprefix("sqlite:///"))
    before = path.read_bytes()
    copy_all(source, make("sqlite"))
    assert path.read_bytes() == before
    assert not path.with_name(f"{path.name}-wal").exists()


def _column(content: dict[str, set[Row]], table: str, column: str) -> set[Any]:
    place: Sequence[str] = TABLES[table][0]
    return {row[place.index(column)] for row in content[table]}
