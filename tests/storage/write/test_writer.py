"""Groups: when and in which order units are confirmed, and what the failure of one means for the others."""

import asyncio
import math
import sqlite3
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from gateway.ledger.errors import Conflict, LedgerUnavailable
from gateway.ledger.tasks import Append, EventRow
from gateway.testing.ledger_points import ACCEPT
from storage import compiled
from storage.schema.open import prepare
from storage.statement import Step
from storage.write.file_store import FileStore
from storage.write.units import unit
from storage.write.writer import Writer
from tests.storage.conversation import rows

ACCEPTED = unit([ACCEPT])


@asynccontextmanager
async def writing(path: Path, busy_timeout_ms: int = 5000) -> AsyncGenerator[Writer, None]:
    """A writer on a fresh file with one accepted message."""
    prepare(path, busy_timeout_ms, auto_migrate=True)
    writer = Writer(FileStore(str(path), busy_timeout_ms))
    await writer.open()
    assert await asyncio.wait_for(Told(writer).of(ACCEPTED), 60) == [("0", None)]
    try:
        yield writer
    finally:
        await writer.close()


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Another connection holds the write lock."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield
        connection.execute("ROLLBACK")


class Told:
    """The outcomes of submitted units, in the order of their callbacks."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._submitted = 0
        self._all = asyncio.Event()
        self.outcomes: list[tuple[str, Exception | None]] = []

    def submit(self, steps: list[Step], patience: float = 0.0, *, urgent: bool = True) -> None:
        name = str(self._submitted)
        self._submitted += 1

        def done(outcome: Exception | None) -> None:
            self.outcomes.append((name, outcome))
            if len(self.outcomes) == self._submitted:
                self._all.set()

        self._writer.submit(steps, done, patience, urgent=urgent)

    async def of(self, *units: list[Step]) -> list[tuple[str, Exception | None]]:
        for steps in units:
            self.submit(steps)
        await asyncio.wait_for(self._all.wait(), 60)
        return self.outcomes


def events(first: int, last: int, task: str = "task-1") -> list[Step]:
    payload = b"\n".join(b"%d" % number for number in range(first, last + 1))
    return unit([Append(EventRow(task, first, last, payload))])


def stored(path: Path) -> list[int]:
    return sorted(int(str(last)) for _, last in rows(path)["event"])


async def test_callbacks_come_in_the_order_of_submission(tmp_path: Path) -> None:
    async with writing(tmp_path / "ledger.db") as writer:
        outcomes = await Told(writer).of(*(events(number, number) for number in range(2, 1002)))
    assert outcomes == [(str(index), None) for index in range(1000)]
    assert stored(tmp_path / "ledger.db") == list(range(1, 1002))


async def test_a_unit_that_conflicts_takes_no_neighbour_of_its_group_along(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    broken = events(4, 4) + events(2, 2)
    async with writing(path) as writer:
        told = Told(writer)
        with locked(path):
            # The first waits for the lock; the others become one group behind it.
            for steps in (events(2, 2), events(3, 3), broken, events(3, 9, task="nowhere"), events(4, 5)):
                told.submit(steps)
        outcomes = await told.of(events(6, 6))
    assert [(name, type(outcome)) for name, outcome in outcomes] == [
        ("0", type(None)),
        ("1", type(None)),
        ("2", Conflict),
        ("3", Conflict),
        ("4", type(None)),
        ("5", type(None)),
    ]
    assert stored(path) == [1, 2, 3, 5, 6]


async def test_a_conflict_names_the_statement_that_failed(tmp_path: Path) -> None:
    elsewhere = [(compiled.USE_CONTEXT, ACCEPTED[0][1] | {"context": "nowhere"})]
    async with writing(tmp_path / "ledger.db") as writer:
        outcomes = await Told(writer).of(elsewhere, events(1, 1), ACCEPTED)
    assert [str(outcome) for _, outcome in outcomes] == [
        "could not use an open context of the caller: 0 rows instead of 1",
        "could not append the events after the last one: the log has gone on, or the turn is not this process's any more",
        "could not make the context: UNIQUE constraint failed: context.tenant, context.principal, context.public_id",
    ]


class Faulty:
    """A value that fails when the module of SQLite inspects it."""

    def __conform__(self, _protocol: object) -> str:
        raise RecursionError


@pytest.mark.parametrize(
    ("value", "failure"),
    [
        (2**63, OverflowError),
        ("\ud800", UnicodeEncodeError),
        (object(), sqlite3.ProgrammingError),
        (Faulty(), RecursionError),
    ],
)
async def test_a_value_that_no_column_holds_fails_its_own_unit_only(
    tmp_path: Path, value: object, failure: type[Exception]
) -> None:
    path = tmp_path / "ledger.db"
    [(statement, values)] = events(2, 2)
    unfit = [(statement, {**values, "last": value})]
    async with writing(path) as writer:
        told = Told(writer)
        with locked(path):
            told.submit(events(2, 2))
            told.submit(unfit)  # type: ignore[arg-type]
        outcomes = await told.of(events(3, 3))
    assert [type(outcome) for _, outcome in outcomes] == [type(None), failure, type(None)]
    assert stored(path) == [1, 2, 3]


async def test_a_locked_database_is_unavailable_after_the_timeout_for_all_that_wait(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    async with writing(path, busy_timeout_ms=50) as writer:
        with locked(path):
            outcomes = await Told(writer).of(*(events(number, number) for number in range(2, 602)))
        assert {type(outcome) for _, outcome in outcomes} == {LedgerUnavailable}
        assert [name for name, _ in outcomes] == [str(index) for index in range(600)]
        assert await Told(writer).of(events(2, 2)) == [("0", None)]
    assert stored(path) == [1, 2]


async def test_patient_units_wait_for_a_long_lock_in_order_while_others_fail(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    async with writing(path, busy_timeout_ms=10) as writer:
        patient = Told(writer)
        with locked(path):
            for number in range(2, 502):
                patient.submit(events(number, number), patience=60)
            for _ in range(3):
                [(_, outcome)] = await Told(writer).of(events(2, 2))
                assert isinstance(outcome, LedgerUnavailable)
            assert patient.outcomes == []
        assert await patient.of() == [(str(index), None) for index in range(500)]
    assert stored(path) == list(range(1, 502))


async def test_what_may_wait_does_not_wait_for_ever(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    async with writing(path, busy_timeout_ms=10) as writer:
        told = Told(writer)
        with locked(path):
            told.submit(events(2, 2), patience=0.02)
            [(_, outcome)] = await told.of()
    assert isinstance(outcome, LedgerUnavailable)
    assert stored(path) == [1]


async def test_a_writer_that_closes_does_not_wait_for_a_lock(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    async with writing(path, busy_timeout_ms=10) as writer:
        told = Told(writer)
        with locked(path):
            told.submit(events(2, 2), patience=60)
            await writer.close()
    assert [type(outcome) for _, outcome in told.outcomes] == [LedgerUnavailable]


async def test_a_database_that_fails_acknowledges_nothing_that_it_does_not_keep(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    new_task = replace(
        ACCEPT, context_public=None, new_thread=False, task="task-2", turn="turn-2", key=None, event=None
    )
    async with writing(path) as writer:
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute("ALTER TABLE history_item RENAME TO gone")
            told = Told(writer)
            with locked(path):
                for steps in (*(events(number, number) for number in range(2, 502)), unit([new_task])):
                    told.submit(steps)
            outcomes = await told.of()
            connection.execute("ALTER TABLE gone RENAME TO history_item")
        assert type(outcomes[-1][1]) is LedgerUnavailable
        assert stored(path) == [1, *(int(name) + 2 for name, outcome in outcomes if outcome is None)]
        following = stored(path)[-1] + 1
        assert await Told(writer).of(unit([new_task]), events(following, following)) == [("0", None), ("1", None)]


_WITHOUT_MEMORY = """
import asyncio, sqlite3, sys
from pathlib import Path
from tests.storage.write.test_writer import Told, events, writing

async def main(path):
    async with writing(path) as writer:
        sqlite3.connect(path).execute("PRAGMA hard_heap_limit = 3000000")
        large = [(statement, {**values, "payload": "x" * 8_000_000}) for statement, values in events(2, 2)]
        print([type(outcome).__name__ for _, outcome in await Told(writer).of(large)])
        print([outcome for _, outcome in await Told(writer).of(events(2, 2))])

asyncio.run(main(Path(sys.argv[1])))
"""


async def test_a_ledger_without_memory_fails_its_units_and_continues(tmp_path: Path) -> None:
    # In a process of its own: SQLite takes the limit for all of it, and never a higher one again.
    command = [sys.executable, "-c", _WITHOUT_MEMORY, str(tmp_path / "ledger.db")]
    ran = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=60, check=False)
    assert ran.stdout.splitlines() == ["['LedgerUnavailable']", "[None]"], ran.stderr


@pytest.mark.parametrize(
    ("short", "told"),
    [
        (["BEGIN IMMEDIATE"], [LedgerUnavailable, type(None)]),
        (["COMMIT"], [LedgerUnavailable, type(None)]),
        # The transaction that could not even be given up is in the way of the next unit, and of no other.
        (["COMMIT", "ROLLBACK"], [LedgerUnavailable, LedgerUnavailable, type(None)]),
    ],
)
async def test_a_group_without_memory_fails_and_is_not_retried(
    tmp_path: Path, short_of_memory_for: list[str], short: list[str], told: list[type[object]]
) -> None:
    path = tmp_path / "ledger.db"
    async with writing(path) as writer:
        short_of_memory_for.extend(short)
        outcomes = [await Told(writer).of(events(2, 2)) for _ in told]
        assert [type(outcome) for [(_, outcome)] in outcomes] == told
    assert stored(path) == [1, 2]


async def test_without_memory_to_open_the_file_it_is_unavailable(
    tmp_path: Path, short_of_memory_for: list[str]
) -> None:
    prepare(tmp_path / "ledger.db", 50, auto_migrate=True)
    writer = Writer(FileStore(str(tmp_path / "ledger.db"), 50))
    short_of_memory_for.append("PRAGMA synchronous = FULL")
    with pytest.raises(LedgerUnavailable, match="does not open for writing: no memory"):
        await writer.open()
    await writer.close()


async def test_closing_commits_and_confirms_all_submitted_units_first(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    async with writing(path) as writer:
        told = Told(writer)
        for number in range(2, 502):
            told.submit(events(number, number))
        await writer.close()
        assert told.outcomes == [(str(index), None) for index in range(500)]
    assert stored(path) == list(range(1, 502))


async def test_a_closed_writer_takes_nothing_more(tmp_path: Path) -> None:
    async with writing(tmp_path / "ledger.db") as writer:
        await writer.close()
        [(_, outcome)] = await Told(writer).of(events(2, 2))
    assert isinstance(outcome, LedgerUnavailable)


async def test_a_callback_that_raises_silences_no_other(tmp_path: Path) -> None:
    reported: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context["exception"]))
    failure = RuntimeError("a caller's own fault")

    def raises(outcome: Exception | None) -> None:
        raise failure

    async with writing(tmp_path / "ledger.db") as writer:
        writer.submit(events(2, 2), raises)
        assert await Told(writer).of(events(3, 3)) == [("0", None)]
    assert reported == [failure]


async def test_a_file_that_cannot_be_opened_is_unavailable(tmp_path: Path) -> None:
    writer = Writer(FileStore(str(tmp_path / "missing" / "ledger.db"), 50))
    with pytest.raises(LedgerUnavailable, match="does not open for writing"):
        await writer.open()
    await writer.close()


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds that groups would have lingered: no time passes in the test."""
    slept: list[float] = []
    monkeypatch.setattr("storage.write.writer.time.sleep", slept.append)
    return slept


@pytest.fixture
def busy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A ledger that a single unit makes busy, however long ago."""
    monkeypatch.setattr("storage.write.writer._UNITS", 1)
    monkeypatch.setattr("storage.write.writer._PERIOD", math.inf)


@pytest.mark.usefixtures("busy")
@pytest.mark.parametrize(
    ("urgent", "waited"), [((False, False), [0.003]), ((False, True), [0.001]), ((True, True), [0.001])]
)
async def test_a_busy_ledger_waits_for_company_and_not_for_long_when_any_of_it_hurries(
    tmp_path: Path, waits: list[float], urgent: tuple[bool, ...], waited: list[float]
) -> None:
    async with writing(tmp_path / "ledger.db") as writer:
        waits.clear()
        told = Told(writer)
        for number, one in enumerate(urgent, 2):
            told.submit(events(number, number), urgent=one)
        assert await told.of() == [("0", None), ("1", None)]
    assert waits == waited


@pytest.mark.usefixtures("busy")
async def test_a_group_waits_for_no_more_company_than_the_one_before_it_had(tmp_path: Path, waits: list[float]) -> None:
    async with writing(tmp_path / "ledger.db") as writer:
        first, waited = 2, []
        for size in (7, 8, 20, 12, 12, 8, 7):
            waits.clear()
            await Told(writer).of(*(events(number, number) for number in range(first, first + size)))
            waited.append(len(waits))
            first += size
    assert waited == [1, 0, 0, 1, 0, 1, 1]


async def test_a_ledger_is_busy_from_a_hundred_units_in_the_period_on_and_not_before(
    tmp_path: Path, waits: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("storage.write.writer._PERIOD", math.inf)
    async with writing(tmp_path / "ledger.db") as writer:  # which has written one
        waits.clear()
        await Told(writer).of(*(events(number, number) for number in range(2, 100)))
        await Told(writer).of(events(100, 100))
        assert waits == []
        await Told(writer).of(events(101, 101))
    assert waits == [0.001]


async def test_a_ledger_that_was_busy_is_not_for_long(
    tmp_path: Path, waits: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("storage.write.writer._PERIOD", 0.0)
    async with writing(tmp_path / "ledger.db") as writer:
        await Told(writer).of(*(events(number, number) for number in range(2, 202)))
        waits.clear()
        await Told(writer).of(events(202, 202))
    assert waits == []


async def test_a_unit_that_lacks_a_value_fails_alone(tmp_path: Path) -> None:
    async with writing(tmp_path / "ledger.db") as writer:
        [(statement, values)] = events(3, 3)
        lacking = {name: value for name, value in values.items() if name != "payload"}
        outcomes = await Told(writer).of(events(2, 2), [(statement, lacking)], events(3, 3))
        assert [type(outcome) for _, outcome in outcomes] == [type(None), KeyError, type(None)]
    assert stored(tmp_path / "ledger.db") == [1, 2, 3]


async def test_a_ledger_with_little_to_write_waits_for_no_company(tmp_path: Path, waits: list[float]) -> None:
    async with writing(tmp_path / "ledger.db") as writer:
        for number in range(2, 8):
            await Told(writer).of(events(number, number))
    assert waits == []


class Callback:
    """Notes the thread in which the last reference to it goes."""

    def __init__(self, freed: list[int]) -> None:
        self._freed = freed

    def __call__(self, outcome: Exception | None) -> None:
        pass

    def __del__(self) -> None:
        self._freed.append(threading.get_ident())


async def test_the_event_loop_frees_what_it_submitted(tmp_path: Path) -> None:
    freed: list[int] = []
    async with writing(tmp_path / "ledger.db") as writer:
        for number in range(2, 42, 2):
            writer.submit(events(number, number), Callback(freed))
            await Told(writer).of(events(number + 1, number + 1))
    assert freed == [threading.get_ident()] * 20
