"""The tables of the ledger. Law: what must always hold for their rows is a constraint here; only storage uses them.

Times are milliseconds since 1970, JSON is text, no text has a length.
"""

import re
from typing import Any

from sqlalchemy import (
    DDL,
    BigInteger,
    CheckConstraint,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.event import listen
from sqlalchemy.orm import declared_attr
from sqlmodel import Field, SQLModel

from storage.schema.conditions import (
    ITEM_REFUSED,
    ITEM_UNSENT,
    TASK_WAITING,
    THREAD_BROKEN,
    THREAD_LIVE,
    TOOL_CALL_SETTLED,
    TURN_CANCEL_ASKED,
    one_of,
)

_BIG = BigInteger().with_variant(Integer(), "sqlite")
"""64 bits in every dialect; a STRICT table of SQLite has only INTEGER for them."""


_TEXT = Text().with_variant(Text(collation="C"), "postgresql")
"""Compared by its bytes in every dialect."""


def _text(**more: Any) -> Any:
    return Field(sa_type=_TEXT, **more)


def _integer(**more: Any) -> Any:
    return Field(sa_type=_BIG, **more)


def _one_of(column: str, *words: str) -> CheckConstraint:
    return CheckConstraint(one_of(column, *words), name=column)


def _flag(column: str) -> CheckConstraint:
    return CheckConstraint(f"{column} IN (0, 1)", name=column)


def _partial(name: str, *columns: str, where: str, unique: bool = False) -> Index:
    """An index of the rows that meet a condition, which each dialect takes under its own name."""
    condition = text(where)
    return Index(name, *columns, unique=unique, sqlite_where=condition, postgresql_where=condition)


class Row(SQLModel):
    """Base of all tables, with metadata of its own, the naming of tables after their classes, and that of constraints."""

    metadata = MetaData(
        naming_convention={
            "pk": "pk_%(table_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "ck": "ck_%(table_name)s_%(constraint_name)s",
        }
    )

    @declared_attr.directive
    def __tablename__(cls) -> str:  # noqa: N805
        return re.sub(r"\B(?=[A-Z])", "_", cls.__name__).lower()


class Context(Row, table=True):
    """A deleted or expired one stays as a tombstone, so that its public id is never used again."""

    __table_args__ = (
        UniqueConstraint("tenant", "principal", "public_id"),
        _one_of("state", "open", "closed", "expired", "deleted"),
    )

    id: str = _text(primary_key=True)
    tenant: str = _text()
    principal: str = _text()
    public_id: str = _text()
    state: str = _text()
    created_at: int = _integer()
    last_used_at: int = _integer()
    expires_at: int | None = _integer()


class Thread(Row, table=True):
    """`clean_handle`: the last handle at which no tool call was open. `state_version` NULL: 1. `began_by`: why the epoch began;
    NULL where it began before that was noted."""

    __table_args__ = (
        UniqueConstraint("context", "agent", "epoch"),
        _partial("uq_thread_live", "context", "agent", where=THREAD_LIVE, unique=True),
        _partial("ix_thread_broken", "context", where=THREAD_BROKEN),
        _one_of("state", "open", "busy", "interrupted", "unsynced", "lost", "closed", "expired", "deleted"),
        _one_of("storage_owner", "backend", "gateway"),
        _one_of("handle_kind", "none", "rotating", "static"),
        CheckConstraint("(storage_owner = 'gateway') = (handle_kind = 'none')", name="owner"),
        CheckConstraint("storage_owner = 'backend' OR (handle IS NULL AND clean_handle IS NULL)", name="handle"),
        CheckConstraint("(lease_holder IS NULL) = (lease_until IS NULL)", name="lease"),
    )

    id: str = _text(primary_key=True)
    context: str = _text(foreign_key="context.id")
    agent: str = _text()
    epoch: int = _integer()
    storage_owner: str = _text()
    handle_kind: str = _text()
    handle: str | None = _text()
    clean_handle: str | None = _text()
    generation: int = _integer()
    lease_holder: str | None = _text()
    lease_until: int | None = _integer()
    state: str = _text()
    state_version: int | None = _integer()
    adapter_state: str | None = _text()
    adapter_secret: str | None = _text()
    began_at: int | None = _integer()
    began_by: str | None = _text()


class Task(Row, table=True):
    """The tenant and the principal are copies of the values of the context, for the indexes of lists."""

    __table_args__ = (
        _partial("ix_task_listed", "tenant", "principal", "agent", "status_at", "id", where="visible = 1"),
        _partial("ix_task_listed_in_context", "context", "agent", "status_at", "id", where="visible = 1"),
        _partial("ix_task_waiting", "context", where=TASK_WAITING),
        _one_of(
            "state",
            "TASK_STATE_SUBMITTED",
            "TASK_STATE_WORKING",
            "TASK_STATE_COMPLETED",
            "TASK_STATE_FAILED",
            "TASK_STATE_CANCELED",
            "TASK_STATE_INPUT_REQUIRED",
            "TASK_STATE_REJECTED",
            "TASK_STATE_AUTH_REQUIRED",
        ),
        _flag("visible"),
    )

    id: str = _text(primary_key=True)
    context: str = _text(foreign_key="context.id")
    tenant: str = _text()
    principal: str = _text()
    agent: str = _text()
    visible: int = _integer()
    created_at: int = _integer()
    last_event: int = _integer()
    state: str = _text()
    status_at: int = _integer()
    status_message: str | None = _text()


class Process(Row, table=True):
    """A process with queued turns. Without a row, or after `alive_until`, it counts as dead."""

    __table_args__ = (Index("ix_process_alive_until", "alive_until"),)

    id: str = _text(primary_key=True)
    alive_until: int = _integer()


class Duty(Row, table=True):
    """Work that one process at a time does for all on the ledger: `holder`, until `until`. Without a row nobody does it."""

    name: str = _text(primary_key=True)
    holder: str = _text()
    until: int = _integer()


class QuotaUse(Row, table=True):
    """What the callers of a process use of their limits (JSON, `CallerUse`). Without a row, or after `until`, it is nothing."""

    process: str = _text(primary_key=True)
    until: int = _integer()
    callers: str = _text()


class Turn(Row, table=True):
    """A turn. `number` grows within the thread. Long columns come last: a query without them does not read them.

    `process` has accepted the turn and alone runs it; `cancel_asked` says that another process requests its end.
    `displaced` says that a later message has displaced the turn; if the turn has ended, it is then not part of the
    conversation. `tries` is the number of times that its continuation or end was tried without success after its
    process had died. `started_at` is the time of its first service call. `trace` is the caller's `traceparent`, with its
    `tracestate` behind a blank.
    """

    __table_args__ = (
        UniqueConstraint("thread", "number"),
        Index("ix_turn_task", "task"),
        _partial("ix_turn_open", "thread", "number", where="ended_at IS NULL"),
        _partial("ix_turn_waiting", "task", where="status = 'waiting'"),
        _partial("ix_turn_failed", "ended_at", where="status = 'failed'"),
        _partial("ix_turn_cancel_asked", "process", where=TURN_CANCEL_ASKED),
        _one_of("status", "accepted", "running", "waiting", "completed", "failed", "cancelled", "rejected"),
        CheckConstraint(f"(ended_at IS NULL) = {one_of('status', 'accepted', 'running', 'waiting')}", name="ended"),
        CheckConstraint("(ended_at IS NULL) = (messages IS NULL AND artifacts IS NULL)", name="record"),
        _flag("cancel_asked"),
        _flag("displaced"),
        CheckConstraint("displaced = 0 OR status NOT IN ('completed', 'rejected')", name="counts"),
        CheckConstraint("tries >= 0", name="tries"),
    )

    id: str = _text(primary_key=True)
    task: str = _text(foreign_key="task.id")
    thread: str = _text(foreign_key="thread.id")
    number: int = _integer()
    base_generation: int | None = _integer()
    status: str = _text()
    failure_class: str | None = _text()
    process: str = _text(sa_column_kwargs={"server_default": ""})
    cancel_asked: int = _integer(sa_column_kwargs={"server_default": "0"})
    displaced: int = _integer(sa_column_kwargs={"server_default": "0"})
    tries: int = _integer(sa_column_kwargs={"server_default": "0"})
    accepted_at: int = _integer()
    ended_at: int | None = _integer()
    last_event: int | None = _integer()
    messages: str | None = _text()
    artifacts: str | None = _text()
    usage: str | None = _text()
    started_at: int | None = _integer()
    trace: str | None = _text()


class TurnNote(Row, table=True):
    """What happened to a turn besides its service calls and tool calls. `taken-over`: the process `detail` has continued it."""

    __table_args__ = (_one_of("kind", "taken-over"),)

    turn: str = _text(primary_key=True, foreign_key="turn.id", ondelete="CASCADE")
    at: int = _integer(primary_key=True)
    kind: str = _text()
    detail: str = _text()


class Input(Row, table=True):
    """One accepted message; ordinal 0 opened the turn. `message_id` is a label, never unique; `key` is. `preferences` NULL:
    none."""

    __table_args__ = (
        _partial(
            "uq_input_key", "tenant", "principal", "agent", "key_kind", "key", where="key IS NOT NULL", unique=True
        ),
        Index("ix_input_message_id", "message_id"),
        CheckConstraint("(key IS NULL) = (key_kind IS NULL)", name="key"),
        _one_of("key_kind", "header", "message_id"),
    )

    turn: str = _text(primary_key=True, foreign_key="turn.id")
    ordinal: int = _integer(primary_key=True)
    tenant: str = _text()
    principal: str = _text()
    agent: str = _text()
    message_id: str = _text()
    digest: str = _text()
    key_kind: str | None = _text()
    key: str | None = _text()
    received_at: int = _integer()
    event: int = _integer()
    preferences: str | None = _text()
    payload: str = _text()


class ServiceCall(Row, table=True):
    """`first_at` is the time of the first that came of the answer."""

    __table_args__ = (
        UniqueConstraint("turn", "round", "attempt"),
        _one_of("status", "prepared", "sent", "started", "emitting", "completed", "failed", "incomplete", "unknown"),
        CheckConstraint("status = 'completed' OR handle_out IS NULL", name="handle_out"),
    )

    id: str = _text(primary_key=True)
    turn: str = _text(foreign_key="turn.id")
    round: int = _integer()
    attempt: int = _integer()
    status: str = _text()
    error_class: str | None = _text()
    handle_in: str | None = _text()
    pending_handle: str | None = _text()
    handle_out: str | None = _text()
    prepared_at: int = _integer()
    ended_at: int | None = _integer()
    usage: str | None = _text()
    weight: int | None = _integer()
    run: str | None = _text()
    first_at: int | None = _integer()


class ToolCall(Row, table=True):
    """`id` is the public one, `external_id` the backend's; only the first is a key.

    `standing`: the context in which its approval holds for every call of this tool. `asked_at` is the time at which the model
    had asked for it, `started_at` that of its latest start, `ended_at` that of its outcome; NULL where that was not noted.
    """

    __table_args__ = (
        UniqueConstraint("service_call", "sequence"),
        _one_of("executor", "gateway", "backend", "client"),
        CheckConstraint(
            f"{TOOL_CALL_SETTLED} OR "
            + one_of("status", "announced", "pending_approval", "approved", "running", "pending_consent"),
            "status",
        ),
        CheckConstraint(f"(outcome IS NOT NULL) = {TOOL_CALL_SETTLED}", name="outcome"),
        CheckConstraint("runs_left >= 0", name="runs_left"),
        _partial("ix_tool_call_standing", "standing", where="standing IS NOT NULL"),
        _flag("approval_required"),
        CheckConstraint("approval_consumed_at IS NULL OR approval_decision IS NOT NULL", name="approval"),
    )

    id: str = _text(primary_key=True)
    service_call: str = _text(foreign_key="service_call.id")
    sequence: int = _integer()
    external_id: str = _text()
    name: str = _text()
    executor: str = _text()
    server: str | None = _text()
    status: str = _text()
    runs_left: int = _integer()
    digest: str | None = _text()
    approval_required: int = _integer()
    approval_decision: str | None = _text()
    approval_by: str | None = _text()
    approval_at: int | None = _integer()
    approval_expires_at: int | None = _integer()
    approval_consumed_at: int | None = _integer()
    standing: str | None = _text()
    arguments: str = _text()
    outcome: str | None = _text()
    asked_at: int | None = _integer()
    started_at: int | None = _integer()
    ended_at: int | None = _integer()


class HistoryItem(Row, table=True):
    """An accepted message is stored with its input: its item has `input` and no payload of its own.

    `weight` is the share of the item that a model reads, in bytes. `refused_in` is the service call whose request was
    refused because of its content, this item included. The columns for turn, input and service call are not foreign
    keys: with them, deleting one row would read all items, or each item would write more indexes.
    """

    __table_args__ = (
        _partial("uq_history_item_tool_call", "tool_call", "kind", where="tool_call IS NOT NULL", unique=True),
        _partial("ix_history_item_unsent", "thread", "position", where=ITEM_UNSENT),
        _partial("ix_history_item_refused", "turn", where=ITEM_REFUSED),
        CheckConstraint("(payload IS NULL) = (input IS NOT NULL)", name="payload"),
        _flag("replayable"),
    )

    thread: str = _text(primary_key=True, foreign_key="thread.id")
    position: int = _integer(primary_key=True)
    turn: str = _text()
    input: int | None = _integer()
    service_call: str | None = _text()
    tool_call: str | None = _text(foreign_key="tool_call.id")
    kind: str = _text()
    provider_id: str | None = _text()
    item_group: str | None = _text()
    replayable: int = _integer()
    sent_in: str | None = _text()
    weight: int = _integer()
    payload: str | None = _text()
    refused_in: str | None = _text()


class Event(Row, table=True):
    """Events `first` to `last` of a task, a line of JSON each. Keyed by the last: the events after a number are one seek."""

    __table_args__ = (CheckConstraint("1 <= first AND first <= last", name="numbers"),)

    task: str = _text(primary_key=True, foreign_key="task.id")
    last: int = _integer(primary_key=True)
    first: int = _integer()
    payload: str = _text()


class DeleteJob(Row, table=True):
    """A handle to delete at its backend. `adapter` is the agent whose adapter deletes it.

    When `due_at` is NULL, the last attempt has failed; the row stays for the operator.
    """

    __table_args__ = (Index("ix_delete_job_due_at", "due_at"),)

    id: str = _text(primary_key=True)
    adapter: str = _text()
    handle: str = _text()
    due_at: int | None = _integer()
    attempts: int = _integer()


class Withdrawal(Row, table=True):
    """What the call `run` of the thread has left waiting at its backend, and is to be withdrawn there."""

    __table_args__ = (Index("ix_withdrawal_due_at", "due_at"), Index("ix_withdrawal_thread", "thread"))

    id: str = _text(primary_key=True)
    agent: str = _text()
    thread: str = _text()
    handle: str = _text()
    run: str = _text()
    due_at: int = _integer()
    attempts: int = _integer()


class ApiKey(Row, table=True):
    """`digest` is the SHA-256 of the key, `prefix` its shown part. A revoked one stays for the record."""

    __table_args__ = (_partial("uq_api_key_name", "name", where="revoked_at IS NULL", unique=True), _flag("admin"))

    digest: bytes = Field(sa_type=LargeBinary, primary_key=True)
    name: str = _text()
    prefix: str = _text()
    principal: str = _text()
    tenant: str = _text()
    admin: int = _integer()
    created_at: int = _integer()
    expires_at: int | None = _integer()
    revoked_at: int | None = _integer()
    sessions_ended_at: int | None = _integer()


class PushConfig(Row, table=True):
    """A receiver of a task's events, and its progress: the event log is the outbox, `next_event` the cursor in it.

    When `due_at` is NULL, there is nothing to deliver until a trigger sets it with the next event; 0 stands for an
    immediate delivery. A delivery first moves it. `state` is 'stopped' after the last attempt, 'gone' when the receiver
    has refused permanently, 'done' when the task has ended and all events are delivered. `sealed` holds the token and
    the credentials in encrypted form.
    """

    __table_args__ = (
        _partial("ix_push_config_due", "due_at", "host", where="due_at IS NOT NULL"),
        Index("ix_push_config_state", "state"),
        _one_of("state", "active", "stopped", "gone", "done"),
        CheckConstraint("due_at IS NULL OR state = 'active'", name="due"),
    )

    task: str = _text(primary_key=True, foreign_key="task.id", ondelete="CASCADE")
    id: str = _text(primary_key=True)
    version: str = _text()
    url: str = _text()
    host: str = _text()
    scheme: str | None = _text()
    sealed: bytes | None = Field(sa_type=LargeBinary)
    state: str = _text()
    next_event: int = _integer()
    due_at: int | None = _integer()
    attempts: int = _integer()
    last_error: str | None = _text()
    created_at: int = _integer()


class Secret(Row, table=True):
    name: str = _text(primary_key=True)
    value: bytes = Field(sa_type=LargeBinary)


# The Core tables, for statements.
_table = Row.metadata.tables
for _each in _table.values():
    _each.dialect_options["sqlite"]["strict"] = True

context, thread, task, turn = _table["context"], _table["thread"], _table["task"], _table["turn"]
input_, service_call, tool_call = _table["input"], _table["service_call"], _table["tool_call"]
history_item, event, process = _table["history_item"], _table["event"], _table["process"]
turn_note = _table["turn_note"]
duty, quota_use, secret, api_key = _table["duty"], _table["quota_use"], _table["secret"], _table["api_key"]
delete_job, withdrawal, push_config = _table["delete_job"], _table["withdrawal"], _table["push_config"]

PUSH_DUE = (
    "CREATE TRIGGER push_due AFTER INSERT ON event "
    "WHEN EXISTS (SELECT 1 FROM push_config WHERE task = NEW.task) "
    "BEGIN UPDATE push_config SET due_at = 0 WHERE task = NEW.task AND state = 'active' AND due_at IS NULL; END"
)
"""Each appended event makes its delivery due, in the same unit."""

listen(Row.metadata, "after_create", DDL(PUSH_DUE))  # type: ignore[no-untyped-call]
