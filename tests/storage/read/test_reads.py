"""Rows that no commit makes: closed threads, damage, dead processes. What is read of others: `test_suite`."""

import sqlite3
from contextlib import closing

import pytest
from msgspec.structs import replace

from gateway.ledger.errors import CorruptRecord
from gateway.ledger.leases import Heartbeat
from gateway.ledger.tasks import Usage
from gateway.ledger.threads import ContextRecord
from gateway.testing.ledger_points import ACCEPT, ADA, APPEND, COMPLETE, FINISH, FOLLOW_UP, PREPARE, THREAD, says
from storage.ledger import SqliteLedger
from tests.storage.conversation import Recorded, rows


@pytest.fixture
def ledger(database: Recorded) -> SqliteLedger:
    return database.ledger


def execute(database: Recorded, sql: str) -> None:
    with closing(sqlite3.connect(database.path, isolation_level=None)) as connection:
        connection.execute(sql)


async def test_a_closed_thread_is_not_the_contexts_thread(database: Recorded, ledger: SqliteLedger) -> None:
    await ledger.commit(ACCEPT)
    execute(database, "UPDATE thread SET state = 'expired'")
    execute(database, "UPDATE context SET state = 'deleted'")
    assert await ledger.context(ADA, "public-1", "echo") == ContextRecord("context-1", "public-1", "deleted", None)


async def test_a_turn_that_has_ended_has_its_tokens_as_a_sum_that_no_later_report_changes(
    database: Recorded, ledger: SqliteLedger
) -> None:
    used = Usage(input_tokens=5, total_tokens=7)
    await ledger.commit(ACCEPT, PREPARE, COMPLETE, APPEND, replace(FINISH, usage=used))
    execute(database, """UPDATE service_call SET usage = '{"tokens": 9}'""")
    [turn] = (await ledger.turns(("task-1",), artifacts=False))["task-1"]
    assert (turn.usage, turn.reports) == (used, ())


async def test_turns_on_a_later_thread_of_the_context_come_later(database: Recorded, ledger: SqliteLedger) -> None:
    await ledger.commit(ACCEPT, FOLLOW_UP)
    execute(database, "UPDATE thread SET state = 'expired'")
    rebuilt = replace(THREAD, id="thread-2", epoch=2)
    await ledger.commit(
        replace(FOLLOW_UP, thread=rebuilt, new_thread=True, turn="turn-3", message=says("third"), event=None)
    )
    turns = await ledger.turns(("task-1",), artifacts=False)
    assert [turn.message for turn in turns["task-1"]] == [says("hi"), says("more"), says("third")]
    assert await ledger.first_message("task-1") == says("hi")


CORRUPT: list[tuple[str, str]] = [
    ("UPDATE history_item SET payload = '{' WHERE payload IS NOT NULL", "history"),
    ("""UPDATE history_item SET payload = '{"kind":"other"}' WHERE payload IS NOT NULL""", "history"),
    ("UPDATE input SET payload = '[]'", "history"),
    ("UPDATE thread SET adapter_state = 'nan'", "thread"),
]


@pytest.mark.parametrize(("damage", "read"), CORRUPT)
async def test_a_row_that_cannot_be_read_fails_its_own_thread_only(
    database: Recorded, ledger: SqliteLedger, damage: str, read: str
) -> None:
    other = replace(
        ACCEPT, context_row="c", context_public="c", thread=replace(THREAD, id="t"), task="t", turn="t", key=None
    )
    await ledger.commit(ACCEPT, PREPARE, COMPLETE)
    execute(database, damage)
    await ledger.commit(replace(other, event=None))

    async def read_thread(name: str) -> object:
        return await (ledger.thread(name) if read == "thread" else ledger.history(name, unsent_only=False))

    with pytest.raises(CorruptRecord, match="'thread-1'"):
        await read_thread("thread-1")
    assert await read_thread("t")


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE input SET payload = ''",
        "UPDATE turn SET messages = '{}'",
        "UPDATE turn SET artifacts = '['",
    ],
)
async def test_a_turn_that_cannot_be_read_names_its_task(database: Recorded, ledger: SqliteLedger, damage: str) -> None:
    await ledger.commit(ACCEPT, PREPARE, COMPLETE, APPEND, FINISH)
    execute(database, damage)
    with pytest.raises(CorruptRecord, match="'task-1'"):
        await ledger.turns(("task-1",), artifacts=True)


async def test_a_heartbeat_deletes_the_dead_processes(database: Recorded, ledger: SqliteLedger) -> None:
    await ledger.commit(Heartbeat("process-1", 9000, 0), Heartbeat("process-2", 9500, 0))
    await ledger.commit(Heartbeat("process-2", 9900, 9001))
    assert rows(database.path)["process"] == {("process-2",): {"id": "process-2", "alive_until": 9900}}
