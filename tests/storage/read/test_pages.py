"""Pages of tasks: nothing is read that they have no room for, or that cannot be read."""

import sqlite3
from contextlib import closing
from functools import partial

import pytest
from msgspec import json
from msgspec.structs import replace

from gateway.a2a.model import Message, Part, Role
from gateway.ledger.errors import CorruptRecord
from gateway.ledger.tasks import PageLimits, TaskFilter, TaskPage
from gateway.testing.ledger_points import ACCEPT, ADA, APPEND, COMPLETE, FINISH, FOLLOW_UP, PREPARE
from storage.ledger import SqliteLedger
from storage.read.pages import task_page
from tests.storage.conversation import Recorded

ALL = TaskFilter()
MANY = 2**30


@pytest.fixture
def ledger(database: Recorded) -> SqliteLedger:
    return database.ledger


def message(text: str) -> Message:
    return Message(message_id="m", role=Role.USER, parts=(Part(text=text),))


async def tasks(ledger: SqliteLedger, *sizes: int) -> None:
    """Tasks a, b, ... with a message of so many bytes each; the latest is the last one."""
    for index, size in enumerate(sizes):
        name, first = "abcdefgh"[index], index == 0
        point = ACCEPT if first else replace(FOLLOW_UP, new_task=True)
        await ledger.commit(
            replace(
                point, task=name, turn=f"t-{name}", message=message("x" * size), now=1000 + index, event=None, key=None
            )
        )


async def page(ledger: SqliteLedger, size: int = MANY, most: int = 100, **limits: object) -> TaskPage:
    return await ledger.tasks(ADA, "echo", ALL, PageLimits(most, size, **limits))  # type: ignore[arg-type]


def names(found: TaskPage) -> str:
    return "".join(each.record.id for each in found.tasks)


@pytest.mark.parametrize("history", [None, 1])
async def test_what_a_page_has_no_room_for_is_not_read(
    database: Recorded, ledger: SqliteLedger, history: int | None
) -> None:
    await tasks(ledger, 60_000, 30_000, 10_000, 900)
    with closing(sqlite3.connect(database.path)) as connection:
        # A longer text than this cannot be read by this connection.
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 40_000)
        values = {"tenant": ADA.tenant, "principal": ADA.principal, "agent": "echo", "limit": 101}
        read = partial(task_page, (False, False, False, False), values, connection=connection)
        assert names(read(limits=PageLimits(100, 20_000, history))) == "dc"
        assert names(read(limits=PageLimits(100, MANY, 0))) == "dcba"
        with pytest.raises(sqlite3.DataError):
            read(limits=PageLimits(100, 100_000, history))


@pytest.mark.parametrize("damage", ["UPDATE input SET payload = ''", "UPDATE turn SET messages = '{}'"])
async def test_no_history_is_read_where_none_is_asked_for(
    database: Recorded, ledger: SqliteLedger, damage: str
) -> None:
    await ledger.commit(ACCEPT, PREPARE, COMPLETE, APPEND, FINISH)
    with closing(sqlite3.connect(database.path, isolation_level=None)) as connection:
        connection.execute(damage)
    for artifacts in (False, True):
        [each] = (await page(ledger, history=0, artifacts=artifacts)).tasks
        assert isinstance(each.turns, tuple)
    found = await ledger.whole_task(ADA, "echo", "task-1", 0)
    assert found is not None
    [turn] = found[1]
    assert (turn.messages, bool(turn.artifacts), turn.ended) == (None, True, True)


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE input SET payload = '' WHERE turn = 't-b'",
        "UPDATE input SET payload = CAST(x'ff' AS TEXT) WHERE turn = 't-b'",
        "UPDATE task SET status_message = '{' WHERE id = 'b'",
        "UPDATE task SET status_message = CAST(x'ff' AS TEXT) WHERE id = 'b'",
    ],
)
@pytest.mark.parametrize("history", [None, 1])
async def test_a_task_that_cannot_be_read_hides_no_other(
    database: Recorded, ledger: SqliteLedger, damage: str, history: int | None
) -> None:
    await tasks(ledger, 10, 10, 10)
    with closing(sqlite3.connect(database.path, isolation_level=None)) as connection:
        connection.execute(damage)
    found = await page(ledger, history=history)
    assert names(found) == "cba"
    assert [isinstance(each.turns, CorruptRecord) for each in found.tasks] == [False, True, False]


@pytest.mark.parametrize("history", [None, 0, 5])
@pytest.mark.parametrize("artifacts", [False, True])
async def test_a_task_is_the_same_on_a_page_with_others_and_alone(
    database: Recorded, ledger: SqliteLedger, history: int | None, artifacts: bool
) -> None:
    await tasks(ledger, 10, 20, 30)
    odd = message("%s \x00 é")
    await ledger.commit(replace(FOLLOW_UP, task="b", turn="t-2", message=odd, event=None, last_event=7, key=None))
    with closing(sqlite3.connect(database.path, isolation_level=None)) as connection:
        said = json.encode(message("é")).decode()
        connection.execute("UPDATE task SET status_message = ?", (said,))
        connection.execute(
            "INSERT INTO input SELECT turn, 1, tenant, principal, agent, message_id, digest, NULL, NULL, received_at,"
            " event + 1, preferences, payload FROM input WHERE turn = 't-b'"
        )
    together = await page(ledger, history=history, artifacts=artifacts)
    alone = [await page(ledger, size=1, history=history, artifacts=artifacts)]
    while alone[-1].more:
        last = alone[-1].tasks[-1].record
        where = TaskFilter(after=(last.status_at, last.id))
        alone.append(await ledger.tasks(ADA, "echo", where, PageLimits(100, 1, history, artifacts)))
    assert [len(found.tasks) for found in alone] == [1, 1, 1]
    assert together.tasks == tuple(found.tasks[0] for found in alone)
    assert [len(each.turns) for each in together.tasks if isinstance(each.turns, tuple)] == [2, 1, 1]
