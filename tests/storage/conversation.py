"""Commit points of one conversation, to be changed with `replace`, and the rows that a commit has changed."""

import sqlite3
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from gateway.a2a.model import Message, Part, Role, TaskState
from gateway.ledger.calls import Complete, Fail, NewItem, NewToolCall, Prepare
from gateway.ledger.states import ServiceCallStatus, ToolCallStatus, TurnStatus
from gateway.ledger.tasks import Append, EventRow, Finish
from gateway.ledger.threads import Caller, ThreadRecord
from gateway.ledger.turns import Accept, IdempotencyKey
from gateway.ports.conversation import AssistantItem, CallItem, HandleKind, OutputItem, StorageOwner
from storage.ledger import SqliteLedger, open_ledger
from storage.settings import SqliteSettings

ADA = Caller("ada", "acme")

THREAD = ThreadRecord(
    id="thread-1",
    context="context-1",
    agent="echo",
    epoch=1,
    owner=StorageOwner.BACKEND,
    handle_kind=HandleKind.ROTATING,
    handle=None,
    generation=0,
    adapter_state=None,
)


def says(text: str, role: Role = Role.USER) -> Message:
    return Message(message_id="m", role=role, parts=(Part(text=text),))


ACCEPT = Accept(
    caller=ADA,
    agent="echo",
    now=1000,
    context_row="context-1",
    context_public="public-1",
    thread=THREAD,
    new_thread=True,
    task="task-1",
    new_task=True,
    visible=True,
    turn="turn-1",
    message=says("hi"),
    digest="digest-1",
    key=IdempotencyKey("header", "key-1"),
    event=EventRow("task-1", 1, 1, b'{"n":1}'),
    last_event=1,
    process="process-1",
)

FOLLOW_UP = replace(
    ACCEPT,
    now=2000,
    context_public=None,
    new_thread=False,
    new_task=False,
    turn="turn-2",
    message=says("more"),
    digest="digest-2",
    key=None,
    event=EventRow("task-1", 2, 2, b'{"n":2}'),
    last_event=2,
)

PREPARE = Prepare(
    thread="thread-1",
    generation=0,
    holder="process-1",
    lease_until=9000,
    turn="turn-1",
    task="task-1",
    service_call="call-1",
    round=0,
    attempt=0,
    handle_in=None,
    now=1100,
    event=EventRow("task-1", 2, 2, b'{"n":2}'),
)

COMPLETE = Complete(
    thread="thread-1",
    generation=1,
    turn="turn-1",
    service_call="call-1",
    handle_in=None,
    handle_out="resp-1",
    state={"seen": 1},
    usage={"tokens": 7},
    items=(
        NewItem(CallItem("fc-1", "add", "{}"), provider_id="item-1", tool_call="tool-1"),
        NewItem(OutputItem("fc-1", ""), tool_call="tool-1"),
        NewItem(AssistantItem((Part(text="hello"),))),
    ),
    tool_calls=(NewToolCall("tool-1", 0, "fc-1", "add", "{}", "backend", ToolCallStatus.COMPLETED, None),),
    sent=(1,),
    now=1200,
)

FAIL = Fail(
    thread="thread-1",
    generation=1,
    turn="turn-1",
    service_call="call-1",
    status=ServiceCallStatus.FAILED,
    error_class="timed-out",
    items=(NewItem(AssistantItem((Part(text="hel"),)), replayable=False),),
    now=1200,
)

APPEND = Append(EventRow("task-1", 3, 5, b'{"n":3}\n{"n":4}\n{"n":5}'))

FINISH = Finish(
    task="task-1",
    turn="turn-1",
    thread="thread-1",
    status=TurnStatus.COMPLETED,
    failure_class=None,
    state=TaskState.COMPLETED,
    message=None,
    events=EventRow("task-1", 6, 6, b'{"n":6}'),
    last_event=6,
    artifacts=b'[{"artifact":{"artifactId":"a","parts":[]}}]',
    messages=b"[]",
    usage=None,
    visible=True,
    now=1300,
)

Rows = dict[str, dict[tuple[object, ...], dict[str, object]]]


def rows(path: Path) -> Rows:
    """Every row by table and key, through a connection of its own."""
    with closing(sqlite3.connect(path)) as database:
        database.row_factory = sqlite3.Row
        names = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {name: _keyed(database, name) for name in names if name != "alembic_version"}


def _keyed(database: sqlite3.Connection, name: str) -> dict[tuple[object, ...], dict[str, object]]:
    columns = [(row["name"], row["pk"]) for row in database.execute(f"PRAGMA table_info({name})")]
    key = [column for column, place in sorted(columns, key=lambda pair: pair[1]) if place]
    return {tuple(row[column] for column in key): dict(row) for row in database.execute(f"SELECT * FROM {name}")}


def changes(before: Rows, after: Rows) -> dict[str, dict[Any, dict[str, object]]]:
    """By table and key (bare where it is one column): a new row without its NULLs, or the changed columns of an old one."""
    found: dict[str, dict[Any, dict[str, object]]] = {}
    for name, table in after.items():
        assert before[name].keys() <= table.keys()
        for key, row in table.items():
            old = before[name].get(key)
            other = {
                column: value
                for column, value in row.items()
                if (value is not None if old is None else old[column] != value)
            }
            if other:
                found.setdefault(name, {})[key[0] if len(key) == 1 else key] = other
    return found


class Recorded:
    """A ledger and its file: commits, and returns what a commit changed."""

    def __init__(self, ledger: SqliteLedger, path: Path) -> None:
        self.ledger = ledger
        self.path = path

    async def changed_by(self, *points: Any) -> dict[str, dict[Any, dict[str, object]]]:
        before = rows(self.path)
        await self.ledger.commit(*points)
        return changes(before, rows(self.path))


@asynccontextmanager
async def recorded(path: Path, busy_timeout_ms: int = 5000) -> AsyncGenerator[Recorded, None]:
    async with open_ledger(SqliteSettings(url=f"sqlite:///{path}"), True, busy_timeout_ms=busy_timeout_ms) as ledger:
        assert isinstance(ledger, SqliteLedger)
        yield Recorded(ledger, path)
