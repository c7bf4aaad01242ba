"""Reads return what was written: whole, in order, and the caller's own."""

import sqlite3
from contextlib import closing
from typing import Any

import pytest
from msgspec.structs import replace

from gateway.a2a.model import Artifact, Message, Part, Role, TaskState
from gateway.ledger.calls import RESTARTED, LatestCall, NameCall, NewItem
from gateway.ledger.errors import CorruptRecord
from gateway.ledger.leases import Heartbeat, Release, RequestCancel, UnfinishedTurn
from gateway.ledger.points import CommitPoint
from gateway.ledger.states import ServiceCallStatus
from gateway.ledger.tasks import (
    Append,
    EventRow,
    OpenTurn,
    PageLimits,
    StoredArtifact,
    TaskFilter,
    TaskRecord,
    TurnRecord,
    Usage,
)
from gateway.ledger.threads import Caller, ContextRecord, ThreadRecord
from gateway.ledger.turns import IdempotencyKey, Replay
from gateway.ports.conversation import (
    AssistantItem,
    CallItem,
    HandleKind,
    HistoryRecord,
    Item,
    OpaqueItem,
    OutputItem,
    ReasoningItem,
    StorageOwner,
    UserItem,
)
from storage.ledger import SqliteLedger
from tests.storage.conversation import (
    ACCEPT,
    ADA,
    APPEND,
    COMPLETE,
    FAIL,
    FINISH,
    FOLLOW_UP,
    PREPARE,
    THREAD,
    Recorded,
    rows,
    says,
)

EVE = Caller("eve", "acme")
ALL = TaskFilter()


async def listed(
    ledger: SqliteLedger, where: TaskFilter, most: int = 100, caller: Caller = ADA
) -> tuple[tuple[TaskRecord, ...], int]:
    """A page of tasks without turns, and how many there are in all."""
    page = await ledger.tasks(caller, "echo", where, PageLimits(most, 2**20, history=0))
    return tuple(each.record for each in page.tasks), page.total


HOSTILE = [
    "../../etc/passwd",
    "'; DROP TABLE task; --",
    "a\x00b",
    "\x01\x1f\x7f\u2028\u2029\ufeff",
    "%_*?[]",
    "x" * 10_000,
    "",
    "\U0001f600 e\u0301 \u00e9 \u05d0",
]

VALUES: list[Any] = [
    None,
    "",
    [],
    {},
    0,
    -0.0,
    2**63,
    -(2**200),
    1e308,
    5e-324,
    True,
    "null",
    "\x00\u2028\U0001f600",
    {"": None, "a": [None, {"b": ""}]},
]


@pytest.fixture
def ledger(database: Recorded) -> SqliteLedger:
    return database.ledger


def execute(database: Recorded, sql: str) -> None:
    with closing(sqlite3.connect(database.path, isolation_level=None)) as connection:
        connection.execute(sql)


def task_record(**changes: Any) -> TaskRecord:
    record = TaskRecord("task-1", "context-1", "public-1", "echo", TaskState.SUBMITTED, None, 1000, 1, True)
    return replace(record, **changes)


# --- contexts, threads, tasks -----------------------------------------------------------------------------------------


async def test_a_context_comes_with_its_live_thread_on_the_agent(ledger: SqliteLedger) -> None:
    await ledger.commit(ACCEPT, PREPARE, COMPLETE)
    thread = replace(THREAD, handle="resp-1", generation=2, adapter_state={"seen": 1})
    assert await ledger.context(ADA, "public-1", "echo") == ContextRecord("context-1", "public-1", "open", thread)
    assert await ledger.thread("thread-1") == thread


async def test_a_context_is_there_for_an_agent_that_it_never_met(ledger: SqliteLedger) -> None:
    await ledger.commit(ACCEPT)
    assert await ledger.context(ADA, "public-1", "other") == ContextRecord("context-1", "public-1", "open", None)


async def test_a_closed_thread_is_not_the_contexts_thread(database: Recorded, ledger: SqliteLedger) -> None:
    await ledger.commit(ACCEPT)
    execute(database, "UPDATE thread SET state = 'expired'")
    execute(database, "UPDATE context SET state = 'deleted'")
    assert await ledger.context(ADA, "public-1", "echo") == ContextRecord("context-1", "public-1", "deleted", None)


@pytest.mark.parametrize("stranger", [EVE, Caller("ada"), Caller("acme", "ada")])
async def test_what_belongs_to_another_is_not_there(ledger: SqliteLedger, stranger: Caller) -> None:
    await ledger.commit(ACCEPT)
    assert await ledger.context(stranger, "public-1", "echo") is None
    assert await ledger.task(stranger, "echo", "task-1") is None
    assert await ledger.replay(stranger, "echo", IdempotencyKey("header", "key-1")) is None
    assert await listed(ledger, ALL, caller=stranger) == ((), 0)


async def test_two_principals_may_use_the_same_context_id_and_key(ledger: SqliteLedger) -> None:
    await ledger.commit(ACCEPT)
    accept = replace(
        ACCEPT,
        caller=EVE,
        context_row="context-2",
        thread=replace(THREAD, id="thread-2"),
        task="task-2",
        turn="turn-2",
        event=None,
    )
    await ledger.commit(accept)
    mine = await ledger.context(ADA, "public-1", "echo")
    assert mine == ContextRecord("context-1", "public-1", "open", THREAD)
    theirs_found = await ledger.context(EVE, "public-1", "echo")
    assert theirs_found == ContextRecord("context-2", "public-1", "open", replace(accept.thread, context="context-2"))


async def test_a_task_is_that_of_its_agent(ledger: SqliteLedger) -> None:
    await ledger.commit(ACCEPT)
    assert await ledger.task(ADA, "echo", "task-1") == task_record()
    assert await ledger.task(ADA, "other", "task-1") is None
    assert await ledger.task(ADA, "echo", "task-9") is None


async def test_a_hidden_task_can_be_read_but_is_in_no_list(ledger: SqliteLedger) -> None:
    await ledger.commit(replace(ACCEPT, visible=False))
    assert await ledger.task(ADA, "echo", "task-1") == task_record(visible=False)
    assert await listed(ledger, ALL) == ((), 0)
    await ledger.commit(PREPARE, COMPLETE, APPEND, FINISH)
    assert (await listed(ledger, ALL))[1] == 1


async def test_a_task_that_waits_keeps_its_status_message(ledger: SqliteLedger) -> None:
    asks = says("where to?", Role.AGENT)
    await ledger.commit(ACCEPT, PREPARE, COMPLETE, APPEND)
    await ledger.commit(replace(FINISH, state=TaskState.INPUT_REQUIRED, message=asks))
    assert await ledger.task(ADA, "echo", "task-1") == task_record(
        state=TaskState.INPUT_REQUIRED, status_message=asks, status_at=1300, last_event=6
    )


async def test_a_key_leads_to_the_task_that_it_made(ledger: SqliteLedger) -> None:
    await ledger.commit(ACCEPT)
    assert await ledger.replay(ADA, "echo", IdempotencyKey("header", "key-1")) == Replay("task-1", "digest-1")
    assert await ledger.replay(ADA, "echo", IdempotencyKey("message_id", "key-1")) is None
    assert await ledger.replay(ADA, "other", IdempotencyKey("header", "key-1")) is None


async def test_nothing_is_found_in_an_empty_ledger(ledger: SqliteLedger) -> None:
    assert await ledger.context(ADA, "public-1", "echo") is None
    assert await ledger.thread("thread-1") is None
    assert await ledger.first_message("task-1") is None
    assert await ledger.turns(("task-1",), artifacts=True) == {"task-1": ()}
    assert await ledger.turns((), artifacts=True) == {}
    assert await ledger.events("task-1", 0) == ()
    assert await ledger.history("thread-1", unsent_only=False) == ()
    assert await ledger.unfinished_turns(0) == ()


# --- turns and events -------------------------------------------------------------------------------------------------


async def test_turns_are_in_order_with_their_output(ledger: SqliteLedger) -> None:
    said = says("where to?", Role.AGENT)
    await ledger.commit(ACCEPT, PREPARE, COMPLETE, APPEND)
    await ledger.commit(
        replace(
            FINISH,
            state=TaskState.INPUT_REQUIRED,
            messages=b'[{"messageId":"m","role":"ROLE_AGENT","parts":[{"text":"where to?"}]}]',
        )
    )
    await ledger.commit(replace(FOLLOW_UP, event=None, last_event=7))
    first = TurnRecord(says("hi"), 1, (said,), None, ended=True, reports=({"tokens": 7},))
    second = TurnRecord(says("more"), 7, None, None, ended=False)
    assert await ledger.turns(("task-1",), artifacts=False) == {"task-1": (first, second)}
    assert await ledger.turns(("task-2", "task-1"), artifacts=True) == {
        "task-1": (replace(first, artifacts=(StoredArtifact(Artifact(artifact_id="a", parts=())),)), second),
        "task-2": (),
    }
    assert await ledger.first_message("task-1") == says("hi")


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


@pytest.mark.parametrize("after", range(7))
async def test_events_after_a_number_begin_in_the_middle_of_a_group(ledger: SqliteLedger, after: int) -> None:
    await ledger.commit(ACCEPT, PREPARE, COMPLETE, APPEND, FINISH)
    assert await ledger.events("task-1", after) == tuple((n, b'{"n":%d}' % n) for n in range(after + 1, 7))


async def test_events_of_other_tasks_are_not_among_them(ledger: SqliteLedger) -> None:
    await ledger.commit(ACCEPT)
    second = replace(FOLLOW_UP, new_task=True, task="task-2", event=EventRow("task-2", 1, 1, b'"second"'))
    await ledger.commit(second)
    assert await ledger.events("task-2", 0) == ((1, b'"second"'),)


# --- lists ------------------------------------------------------------------------------------------------------------


async def many(ledger: SqliteLedger) -> None:
    """Tasks a to f in two contexts, two of the same time each; c has ended; g is of another agent."""
    await ledger.commit(replace(ACCEPT, task="a", event=None, key=None))
    other = replace(THREAD, id="thread-2", context="context-2")
    for name, now, row in (("b", 1000, 1), ("c", 2000, 1), ("d", 2000, 2), ("e", 3000, 2), ("f", 3000, 1)):
        new = row == 2 and name == "d"
        await ledger.commit(
            replace(
                ACCEPT,
                context_row=f"context-{row}",
                context_public="public-2" if new else None,
                thread=THREAD if row == 1 else other,
                new_thread=new,
                task=name,
                turn=f"turn-{name}",
                now=now,
                event=None,
                key=None,
            )
        )
    elsewhere = replace(THREAD, id="thread-3", agent="other")
    await ledger.commit(
        replace(
            ACCEPT, context_public=None, agent="other", thread=elsewhere, task="g", turn="turn-g", event=None, key=None
        )
    )
    ended = replace(FINISH, task="c", turn="turn-c", now=2000, events=None)
    await ledger.commit(ended)


@pytest.mark.parametrize(
    ("where", "found"),
    [
        (ALL, "fedcba"),
        (TaskFilter(context_id="public-2"), "ed"),
        (TaskFilter(context_id="public-9"), ""),
        (TaskFilter(state=TaskState.COMPLETED), "c"),
        (TaskFilter(state=TaskState.SUBMITTED), "fedba"),
        (TaskFilter(status_since=2000), "fedc"),
        (TaskFilter(status_since=2001), "fe"),
        (TaskFilter("public-1", TaskState.SUBMITTED, 2000), "f"),
    ],
)
async def test_a_list_holds_what_matches_latest_first(ledger: SqliteLedger, where: TaskFilter, found: str) -> None:
    await many(ledger)
    tasks, total = await listed(ledger, where)
    assert "".join(task.id for task in tasks) == found
    assert total == len(found)


@pytest.mark.parametrize("where", [ALL, TaskFilter(context_id="public-1"), TaskFilter(state=TaskState.SUBMITTED)])
@pytest.mark.parametrize("size", [1, 2, 3])
async def test_pages_join_to_the_whole_list(ledger: SqliteLedger, where: TaskFilter, size: int) -> None:
    await many(ledger)
    whole, total = await listed(ledger, where)
    pages: list[TaskRecord] = []
    while page := await listed(ledger, where, size):
        pages += page[0]
        assert page[1] == total
        if len(page[0]) < size:
            break
        where = replace(where, after=(page[0][-1].status_at, page[0][-1].id))
    assert tuple(pages) == whole


async def test_a_page_does_not_move_when_tasks_are_added_before_it(ledger: SqliteLedger) -> None:
    await many(ledger)
    await ledger.commit(replace(FOLLOW_UP, new_task=True, task="z", turn="turn-z", now=9000, event=None))
    tasks, total = await listed(ledger, TaskFilter(after=(3000, "e")), 2)
    assert [task.id for task in tasks] == ["d", "c"]
    assert total == 7


# --- history ----------------------------------------------------------------------------------------------------------


async def test_history_is_in_order_of_turns_whatever_was_stored_first(ledger: SqliteLedger) -> None:
    await ledger.commit(ACCEPT, FOLLOW_UP, replace(PREPARE, event=None), COMPLETE)
    assert await ledger.history("thread-1", unsent_only=False) == (
        HistoryRecord(1, 1, UserItem(says("hi")), sent_in="call-1", turn_id="turn-1"),
        HistoryRecord(
            3,
            1,
            CallItem("fc-1", "add", "{}"),
            provider_id="item-1",
            sent_in="call-1",
            turn_id="turn-1",
            service_call="call-1",
            sequence=0,
        ),
        HistoryRecord(
            4, 1, OutputItem("fc-1", ""), sent_in="call-1", turn_id="turn-1", service_call="call-1", sequence=0
        ),
        HistoryRecord(
            5, 1, AssistantItem((Part(text="hello"),)), sent_in="call-1", turn_id="turn-1", service_call="call-1"
        ),
        HistoryRecord(2, 2, UserItem(says("more")), turn_id="turn-2"),
    )


async def test_unsent_are_messages_and_outputs_that_no_completed_call_carried(ledger: SqliteLedger) -> None:
    said = NewItem(AssistantItem((Part(text="hel"),)), replayable=False)
    kept = (NewItem(CallItem("c", "f", "{}")), NewItem(OutputItem("c", 1)), said)
    await ledger.commit(ACCEPT, PREPARE, replace(FAIL, items=kept))
    assert await ledger.history("thread-1", unsent_only=True) == (
        HistoryRecord(1, 1, UserItem(says("hi")), turn_id="turn-1"),
        HistoryRecord(3, 1, OutputItem("c", 1), turn_id="turn-1", service_call="call-1"),
    )
    again = replace(PREPARE, generation=1, attempt=1, service_call="call-2", event=None)
    await ledger.commit(again, replace(COMPLETE, service_call="call-2", sent=(1, 3)))
    assert await ledger.history("thread-1", unsent_only=True) == ()


@pytest.mark.parametrize("value", VALUES, ids=repr)
async def test_json_comes_back_as_it_was(ledger: SqliteLedger, value: Any) -> None:
    items: tuple[Item, ...] = (
        OutputItem("", value),
        ReasoningItem("", opaque=value),
        OpaqueItem("kind", {"value": value}),
        AssistantItem((Part(data=value), Part(text=""), Part(text="x", metadata={"": value}))),
    )
    message = Message(message_id="", role=Role.USER, parts=(Part(data=value),), metadata={"k": value})
    await ledger.commit(replace(ACCEPT, message=message), PREPARE)
    await ledger.commit(replace(COMPLETE, items=tuple(map(NewItem, items)), tool_calls=(), state=[value]))
    history = await ledger.history("thread-1", unsent_only=False)
    assert repr([record.item for record in history]) == repr([UserItem(message), *items])
    thread = await ledger.thread("thread-1")
    assert thread is not None
    assert repr(thread.adapter_state) == repr([value])


@pytest.mark.parametrize("name", HOSTILE, ids=lambda name: ascii(name[:20]))
async def test_a_hostile_id_is_data(ledger: SqliteLedger, name: str) -> None:
    caller = Caller(name, name)
    thread = ThreadRecord(name, name, name, 1, StorageOwner.BACKEND, HandleKind.STATIC, name, 0, None)
    accept = replace(
        ACCEPT,
        caller=caller,
        agent=name,
        context_row=name,
        context_public=name,
        thread=thread,
        task=name,
        turn=name,
        digest=name,
        key=IdempotencyKey("header", name),
        event=EventRow(name, 1, 1, b"{}"),
    )
    await ledger.commit(ACCEPT)
    await ledger.commit(accept)
    assert await ledger.context(caller, name, name) == ContextRecord(name, name, "open", thread)
    assert await ledger.replay(caller, name, IdempotencyKey("header", name)) == Replay(name, name)
    assert await ledger.events(name, 0) == ((1, b"{}"),)
    assert await ledger.turns((name,), artifacts=True) == {name: (TurnRecord(says("hi"), 1, None, None, ended=False),)}
    page = await ledger.tasks(
        caller, name, TaskFilter(context_id=name, after=(1001, name)), PageLimits(10, 2**20, history=1)
    )
    assert ([each.record.id for each in page.tasks], page.total) == ([name], 1)
    assert page.tasks[0].turns == (TurnRecord(says("hi"), 1, None, None, ended=False),)


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


async def test_events_that_are_fewer_than_their_numbers_are_not_given_out(
    database: Recorded, ledger: SqliteLedger
) -> None:
    await ledger.commit(ACCEPT, PREPARE, APPEND)
    execute(database, "UPDATE event SET payload = '{}'")
    with pytest.raises(CorruptRecord, match="'task-1' holds 1 events instead of 3"):
        await ledger.events("task-1", 0)


# --- recovery ---------------------------------------------------------------------------------------------------------


ALIVE = Heartbeat("process-1", 9000, 0)

LEASED: list[tuple[str, tuple[CommitPoint, ...], int, list[str]]] = [
    ("nobody has prepared", (), 0, ["turn-1", "turn-2"]),
    ("nobody has prepared, of a process that lives", (ALIVE,), 9000, []),
    ("nobody has prepared, of a process that died", (ALIVE,), 9001, ["turn-1", "turn-2"]),
    ("a holder lives", (PREPARE, ALIVE), 9000, []),
    ("a holder has died", (PREPARE, ALIVE), 9001, ["turn-1", "turn-2"]),
    ("a holder has died where others wait", (PREPARE, replace(ALIVE, alive_until=9999)), 9001, ["turn-1"]),
    ("a holder has given up", (PREPARE, ALIVE, Release("thread-1", "process-1")), 0, ["turn-1"]),
    ("the first has ended", (PREPARE, COMPLETE, APPEND, replace(FINISH, state=None)), 9001, ["turn-2"]),
]


@pytest.mark.parametrize(("after", "now", "found"), [case[1:] for case in LEASED], ids=[case[0] for case in LEASED])
async def test_a_turn_that_no_process_runs_is_found(
    ledger: SqliteLedger, after: tuple[CommitPoint, ...], now: int, found: list[str]
) -> None:
    await ledger.commit(ACCEPT, replace(FOLLOW_UP, event=None), *after)
    assert [left.turn for left in await ledger.unfinished_turns(now)] == found


async def test_the_latest_call_of_a_turn_comes_with_where_the_turn_began_and_how_often_it_was_made_again(
    ledger: SqliteLedger,
) -> None:
    await ledger.commit(ACCEPT, PREPARE)
    assert await ledger.latest_call("turn-1") == LatestCall(
        "call-1", 0, 0, ServiceCallStatus.PREPARED, None, None, 0, False
    )
    again = replace(PREPARE, generation=1, attempt=1, service_call="call-2", event=None)
    await ledger.commit(replace(FAIL, error_class=RESTARTED), again, NameCall("call-2", "resp-1", "run-1"))
    assert await ledger.latest_call("turn-1") == LatestCall(
        "call-2", 0, 1, ServiceCallStatus.STARTED, "resp-1", None, 1, False, "run-1"
    )
    assert await ledger.latest_call("turn-2") is None


async def test_the_process_that_has_a_turn_is_known_until_it_has_ended(ledger: SqliteLedger) -> None:
    await ledger.commit(ACCEPT, PREPARE)
    assert await ledger.process_of("turn-1") == "process-1"
    await ledger.commit(COMPLETE, APPEND, FINISH)
    assert await ledger.process_of("turn-1") is None


async def test_a_turn_that_waits_is_found_with_the_process_that_had_it(ledger: SqliteLedger) -> None:
    await ledger.commit(ACCEPT, RequestCancel(("turn-1",)))
    [found] = await ledger.unfinished_turns(0)
    assert (found.waits, found.expired, found.process, found.cancel_asked) == (True, False, "process-1", True)


async def test_a_process_finds_its_own_turns_whichever_processes_live(ledger: SqliteLedger) -> None:
    await ledger.commit(ACCEPT, PREPARE, ALIVE)
    assert [left.turn for left in await ledger.unfinished_turns(0, "process-1")] == ["turn-1"]


async def test_a_heartbeat_deletes_the_dead_processes(database: Recorded, ledger: SqliteLedger) -> None:
    await ledger.commit(Heartbeat("process-1", 9000, 0), Heartbeat("process-2", 9500, 0))
    await ledger.commit(Heartbeat("process-2", 9900, 9001))
    assert rows(database.path)["process"] == {("process-2",): {"id": "process-2", "alive_until": 9900}}


async def test_open_turns_are_those_of_the_context_that_have_not_ended(ledger: SqliteLedger) -> None:
    await ledger.commit(ACCEPT, replace(FOLLOW_UP, event=None), PREPARE, APPEND, replace(FINISH, state=None))
    assert await ledger.open_turns("context-1") == (OpenTurn("turn-2", "task-1", "thread-1"),)
    assert await ledger.open_turns("context-2") == ()


async def test_a_process_reads_the_cancel_requests_of_its_turns(ledger: SqliteLedger) -> None:
    await ledger.commit(ACCEPT, PREPARE)
    assert await ledger.cancel_requests("process-1") == ()
    await ledger.commit(RequestCancel(("turn-1", "turn-9")))
    assert await ledger.cancel_requests("process-1") == ("task-1",)
    assert await ledger.cancel_requests("process-2") == ()


async def test_the_last_events_of_tasks_are_found_without_deleted_tasks(ledger: SqliteLedger) -> None:
    await ledger.commit(replace(ACCEPT, event=None))
    assert await ledger.latest_events(("task-1", "task-2")) == {"task-1": 0}
    await ledger.commit(Append(EventRow("task-1", 1, 3, b"{}\n{}\n{}")))
    assert await ledger.latest_events(("task-1",)) == {"task-1": 3}


async def test_a_turn_that_is_found_comes_with_its_task_and_caller(ledger: SqliteLedger) -> None:
    await ledger.commit(ACCEPT, PREPARE)
    working = task_record(state=TaskState.WORKING, status_at=1100)
    assert await ledger.unfinished_turns(10_000) == (
        UnfinishedTurn("turn-1", "thread-1", 1, working, ADA, process="process-1"),
    )
