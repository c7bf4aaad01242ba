"""C7: the rows that remain of a deleted context."""

from msgspec.structs import replace

from gateway.ledger.calls import NameCall, Prepare
from gateway.ledger.retention import DeleteContext
from gateway.ledger.tasks import EventRow
from gateway.testing.ledger_points import ACCEPT, ADA, APPEND, COMPLETE, FINISH, FOLLOW_UP, PREPARE, THREAD
from tests.storage.conversation import Recorded, rows

DELETE = DeleteContext(ADA, "context-1", 5000)
FIRST_TURN = (ACCEPT, PREPARE, NameCall("call-1", "resp-1"), COMPLETE, APPEND, FINISH)
HIDDEN = replace(
    FOLLOW_UP, task="task-2", new_task=True, visible=False, event=EventRow("task-2", 1, 1, b'{"n":1}'), last_event=1
)
SECOND_CALL = Prepare(
    thread="thread-1",
    generation=2,
    holder="process-1",
    lease_until=9000,
    turn="turn-2",
    task="task-2",
    service_call="call-2",
    round=0,
    attempt=0,
    handle_in="resp-1",
    now=2100,
    event=None,
)
ELSEWHERE = replace(
    ACCEPT,
    context_row="context-2",
    context_public="public-2",
    thread=replace(THREAD, id="thread-2", context="context-2"),
    task="task-9",
    turn="turn-9",
    key=None,
    event=EventRow("task-9", 1, 1, b'{"n":1}'),
)
PURGED = ("task", "turn", "input", "service_call", "tool_call", "history_item", "event")


async def test_the_whole_conversation_is_purged_and_another_context_stays(database: Recorded) -> None:
    await database.ledger.commit(*FIRST_TURN)
    await database.ledger.commit(HIDDEN, SECOND_CALL)
    mine = rows(database.path)
    assert all(mine[table] for table in PURGED)
    await database.ledger.commit(ELSEWHERE)
    others = {table: found.keys() - mine[table].keys() for table, found in rows(database.path).items()}

    await database.ledger.commit(DELETE)

    left = rows(database.path)
    assert {table: left[table].keys() for table in PURGED} == {table: others[table] for table in PURGED}


async def test_a_tombstone_stays_and_the_threads_generation_moves_on(database: Recorded) -> None:
    await database.ledger.commit(*FIRST_TURN)
    before = rows(database.path)

    await database.ledger.commit(DELETE)

    after = rows(database.path)
    assert after["context"]["context-1",] == before["context"]["context-1",] | {
        "state": "deleted",
        "last_used_at": 5000,
    }
    assert after["thread"]["thread-1",] == before["thread"]["thread-1",] | {
        "state": "deleted",
        "generation": 3,
        "handle": None,
        "clean_handle": None,
        "adapter_state": None,
        "lease_holder": None,
        "lease_until": None,
    }
