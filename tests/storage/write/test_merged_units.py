"""A merged unit stores the same rows as the whole one."""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import get_args

import pytest
from msgspec.structs import replace

from gateway.a2a.model import TaskState
from gateway.ledger.calls import NameCall
from gateway.ledger.leases import Release
from gateway.ledger.points import CommitPoint
from gateway.testing.ledger_points import ACCEPT, COMPLETE, FAIL, FINISH, FOLLOW_UP, PREPARE
from storage import compiled
from storage.ledger import SqliteLedger, open_ledger
from storage.settings import SqliteSettings
from storage.statement import Step
from storage.write import units
from storage.write.units import merged
from tests.storage.conversation import Rows, rows

BEGIN = (replace(ACCEPT, working=True), replace(PREPARE, event=None))
AGAIN = (
    FOLLOW_UP,
    replace(PREPARE, turn="turn-2", service_call="call-2", generation=2, handle_in="resp-1", now=2100, event=None),
)
ASKS = replace(FINISH, state=TaskState.INPUT_REQUIRED, events=None)
STARTED = NameCall("call-1", "resp-1")
RUNNING = NameCall("call-1", None, "run-1")
ENDS = (COMPLETE, replace(FINISH, events=None))
FAILS = (FAIL, replace(FINISH, status="failed", events=None))

UNITS: dict[str, tuple[list[tuple[CommitPoint, ...]], list[int]]] = {
    "a first turn begins at once": ([BEGIN], [2]),
    "a later turn begins at once": ([BEGIN, (*ENDS[:1], ASKS), AGAIN], [2, 1, 0]),
    "a call is named and completed": ([BEGIN, (STARTED, *ENDS)], [2, 2]),
    "a call is named and fails": ([BEGIN, (STARTED, *FAILS)], [2, 2]),
    "a run is named and completed": ([BEGIN, (STARTED,), (RUNNING, *ENDS)], [2, 0, 2]),
    "a run is named and fails": ([BEGIN, (STARTED,), (RUNNING, *FAILS)], [2, 0, 2]),
    "a handle and a run are named and completed": ([BEGIN, (STARTED, RUNNING, *ENDS)], [2, 1]),
    "a call that was named completes": ([BEGIN, (STARTED,), ENDS], [2, 0, 1]),
    "a turn ends without its call": ([BEGIN, FAILS[1:]], [2, 0]),
    "a turn ends with its lease": ([BEGIN, (*ENDS, Release("thread-1", "process-1"))], [2, 2]),
    "a lease that another process has stays": ([BEGIN, (*ENDS, Release("thread-1", "process-2"))], [2, 2]),
    "a lease of another thread ends": ([BEGIN, (*ENDS, Release("thread-9", "process-1"))], [2, 1]),
    "a lease is released alone": ([BEGIN, ENDS, (Release("thread-1", "process-1"),)], [2, 1, 0]),
}


def whole(points: Iterable[CommitPoint]) -> list[Step]:
    return [step for point in points for step in units.steps_of(point)]


async def rows_after(path: Path, steps: list[list[Step]]) -> Rows:
    async with open_ledger(SqliteSettings(url=f"sqlite:///{path}"), True) as ledger:
        assert isinstance(ledger, SqliteLedger)
        for unit in steps:
            await ledger._store(unit)
    return rows(path)


@pytest.mark.parametrize("which", UNITS)
async def test_the_rows_are_those_of_the_whole_unit(tmp_path: Path, which: str) -> None:
    points, saved = UNITS[which]
    long = [whole(unit) for unit in points]
    short = [units.unit(unit) for unit in points]
    assert [len(one) - len(other) for one, other in zip(long, short, strict=True)] == saved
    assert await rows_after(tmp_path / "short.db", short) == await rows_after(tmp_path / "long.db", long)


def test_a_turn_that_only_waits_is_not_begun() -> None:
    steps = whole([ACCEPT])
    assert merged(steps) == whole([ACCEPT])


def test_a_call_of_another_turn_does_not_settle_this_one() -> None:
    steps = whole([replace(COMPLETE, turn="turn-9"), FINISH])
    assert compiled.ABANDON_CALLS in [statement for statement, _ in merged(steps)]


def test_several_turns_in_one_unit_are_not_merged() -> None:
    one = (*BEGIN, STARTED, *ENDS)
    other = tuple(replace(point, turn="turn-2") if hasattr(point, "turn") else point for point in one)
    assert merged(whole([*one, *other])) == whole([*one, *other])


def test_every_commit_point_has_its_statements_in_one_table() -> None:
    tables = (units._DIRECT, units._CONVERTED)
    assert Counter(point for table in tables for point in table) == Counter(get_args(CommitPoint))
