"""The first version: every entity of the ledger."""

# ruff: noqa: E501  (each condition on one line, as Alembic writes it)

from functools import partial
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

_BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def _columns(kind: sa.types.TypeEngine[Any], *names: str, nullable: bool = False, **more: Any) -> list[sa.Column[Any]]:
    return [sa.Column(name, kind, nullable=nullable, **more) for name in names]


_text, _bytes, _integer = (partial(_columns, kind) for kind in (sa.Text(), sa.LargeBinary(), _BIG))


def _table(
    name: str,
    *columns: list[sa.Column[Any]],
    primary: tuple[str, ...] = ("id",),
    unique: tuple[str, ...] = (),
    references: tuple[str, ...] = (),
    ondelete: str | None = None,
    **checks: str,
) -> None:
    """Creates a table. Each column in `references` holds the id of a row of the table with the name of the column.
    `checks` are conditions by name."""
    op.create_table(
        name,
        *(column for group in columns for column in group),
        *(sa.CheckConstraint(condition, op.f(f"ck_{name}_{check}")) for check, condition in checks.items()),
        *(
            sa.ForeignKeyConstraint([column], [f"{column}.id"], op.f(f"fk_{name}_{column}"), ondelete=ondelete)
            for column in references
        ),
        sa.PrimaryKeyConstraint(*primary, name=op.f(f"pk_{name}")),
        *([sa.UniqueConstraint(*unique, name=op.f("_".join(("uq", name, *unique))))] if unique else []),
        sqlite_strict=True,
    )


def _index(name: str, table: str, *columns: str, where: str | None = None, unique: bool = False) -> None:
    op.create_index(name, table, [*columns], unique=unique, sqlite_where=None if where is None else sa.text(where))


def upgrade() -> None:
    _callers_and_processes()
    _tasks()
    _threads()
    _turns()
    _calls()
    _history_items()


def _callers_and_processes() -> None:
    _table(
        "api_key",
        _bytes("digest"),
        _text("name", "prefix", "principal", "tenant"),
        _integer("admin", "created_at"),
        _integer("expires_at", "revoked_at", nullable=True),
        primary=("digest",),
        admin="admin IN (0, 1)",
    )
    _index("uq_api_key_name", "api_key", "name", where="revoked_at IS NULL", unique=True)
    _table(
        "context",
        _text("id", "tenant", "principal", "public_id", "state"),
        _integer("created_at", "last_used_at"),
        _integer("expires_at", nullable=True),
        unique=("tenant", "principal", "public_id"),
        state="state IN ('open', 'closed', 'expired', 'deleted')",
    )
    _table("delete_job", _text("id", "adapter", "handle"), _integer("due_at", nullable=True), _integer("attempts"))
    _index("ix_delete_job_due_at", "delete_job", "due_at")
    _table("process", _text("id"), _integer("alive_until"))
    _index("ix_process_alive_until", "process", "alive_until")
    _table("secret", _text("name"), _bytes("value"), primary=("name",))


def _tasks() -> None:
    _table(
        "task",
        _text("id", "context", "tenant", "principal", "agent"),
        _integer("visible", "created_at", "last_event"),
        _text("state"),
        _integer("status_at"),
        _text("status_message", nullable=True),
        references=("context",),
        state="state IN ('TASK_STATE_SUBMITTED', 'TASK_STATE_WORKING', 'TASK_STATE_COMPLETED', 'TASK_STATE_FAILED', 'TASK_STATE_CANCELED', 'TASK_STATE_INPUT_REQUIRED', 'TASK_STATE_REJECTED', 'TASK_STATE_AUTH_REQUIRED')",
        visible="visible IN (0, 1)",
    )
    _index("ix_task_listed", "task", "tenant", "principal", "agent", "status_at", "id", where="visible = 1")
    _index("ix_task_listed_in_context", "task", "context", "agent", "status_at", "id", where="visible = 1")
    _table(
        "push_config",
        _text("task", "id", "version", "url", "host"),
        _text("scheme", nullable=True),
        _bytes("sealed", nullable=True),
        _text("state"),
        _integer("next_event"),
        _integer("due_at", nullable=True),
        _integer("attempts"),
        _text("last_error", nullable=True),
        _integer("created_at"),
        primary=("task", "id"),
        references=("task",),
        ondelete="CASCADE",
        due="due_at IS NULL OR state = 'active'",
        state="state IN ('active', 'stopped', 'gone', 'done')",
    )
    _index("ix_push_config_due", "push_config", "due_at", "host", where="due_at IS NOT NULL")
    _index("ix_push_config_state", "push_config", "state")


def _threads() -> None:
    _table(
        "thread",
        _text("id", "context", "agent"),
        _integer("epoch"),
        _text("storage_owner", "handle_kind"),
        _text("handle", "clean_handle", nullable=True),
        _integer("generation"),
        _text("lease_holder", nullable=True),
        _integer("lease_until", nullable=True),
        _text("state"),
        _integer("state_version", nullable=True),
        _text("adapter_state", nullable=True),
        unique=("context", "agent", "epoch"),
        references=("context",),
        owner="(storage_owner = 'gateway') = (handle_kind = 'none')",
        handle_kind="handle_kind IN ('none', 'rotating', 'static')",
        state="state IN ('open', 'busy', 'interrupted', 'unsynced', 'lost', 'closed', 'expired', 'deleted')",
        handle="storage_owner = 'backend' OR (handle IS NULL AND clean_handle IS NULL)",
        storage_owner="storage_owner IN ('backend', 'gateway')",
        lease="(lease_holder IS NULL) = (lease_until IS NULL)",
    )
    live = "state NOT IN ('closed', 'expired', 'deleted')"
    _index("uq_thread_live", "thread", "context", "agent", where=live, unique=True)
    _table(
        "event",
        _text("task"),
        _integer("last", "first"),
        _text("payload"),
        primary=("task", "last"),
        references=("task",),
        numbers="1 <= first AND first <= last",
    )
    op.execute(
        "CREATE TRIGGER push_due AFTER INSERT ON event "
        "WHEN EXISTS (SELECT 1 FROM push_config WHERE task = NEW.task) "
        "BEGIN UPDATE push_config SET due_at = 0 WHERE task = NEW.task AND state = 'active' AND due_at IS NULL; END"
    )


def _turns() -> None:
    _table(
        "turn",
        _text("id", "task", "thread"),
        _integer("number"),
        _integer("base_generation", nullable=True),
        _text("status"),
        _text("failure_class", nullable=True),
        _text("process", server_default=""),
        _integer("cancel_asked", "displaced", "tries", server_default="0"),
        _integer("accepted_at"),
        _integer("ended_at", "last_event", nullable=True),
        _text("messages", "artifacts", nullable=True),
        unique=("thread", "number"),
        references=("task", "thread"),
        ended="(ended_at IS NULL) = (status IN ('accepted', 'running', 'waiting'))",
        status="status IN ('accepted', 'running', 'waiting', 'completed', 'failed', 'cancelled', 'rejected')",
        record="(ended_at IS NULL) = (messages IS NULL AND artifacts IS NULL)",
        cancel_asked="cancel_asked IN (0, 1)",
        displaced="displaced IN (0, 1)",
        counts="displaced = 0 OR status NOT IN ('completed', 'rejected')",
        tries="tries >= 0",
    )
    _index("ix_turn_open", "turn", "thread", "number", where="ended_at IS NULL")
    _index("ix_turn_task", "turn", "task")
    _index("ix_turn_waiting", "turn", "task", where="status = 'waiting'")
    _table(
        "input",
        _text("turn"),
        _integer("ordinal"),
        _text("tenant", "principal", "agent", "message_id", "digest"),
        _text("key_kind", "key", nullable=True),
        _integer("received_at", "event"),
        _text("preferences", nullable=True),
        _text("payload"),
        primary=("turn", "ordinal"),
        references=("turn",),
        key_kind="key_kind IN ('header', 'message_id')",
        key="(key IS NULL) = (key_kind IS NULL)",
    )
    _index("ix_input_message_id", "input", "message_id")
    keyed = "key IS NOT NULL"
    _index("uq_input_key", "input", "tenant", "principal", "agent", "key_kind", "key", where=keyed, unique=True)


def _calls() -> None:
    _table(
        "service_call",
        _text("id", "turn"),
        _integer("round", "attempt"),
        _text("status"),
        _text("error_class", "handle_in", "pending_handle", "handle_out", nullable=True),
        _integer("prepared_at"),
        _integer("ended_at", nullable=True),
        _text("usage", nullable=True),
        _integer("weight", nullable=True),
        unique=("turn", "round", "attempt"),
        references=("turn",),
        handle_out="status = 'completed' OR handle_out IS NULL",
        status="status IN ('prepared', 'sent', 'started', 'emitting', 'completed', 'failed', 'incomplete', 'unknown')",
    )
    _table(
        "tool_call",
        _text("id", "service_call"),
        _integer("sequence"),
        _text("external_id", "name", "executor"),
        _text("server", nullable=True),
        _text("status"),
        _integer("runs_left"),
        _text("digest", nullable=True),
        _integer("approval_required"),
        _text("approval_decision", "approval_by", nullable=True),
        _integer("approval_at", "approval_expires_at", "approval_consumed_at", nullable=True),
        _text("standing", nullable=True),
        _text("arguments"),
        _text("outcome", nullable=True),
        unique=("service_call", "sequence"),
        references=("service_call",),
        outcome="(outcome IS NOT NULL) = (status IN ('completed', 'failed', 'not_found', 'rejected', 'cancelled', 'interrupted', 'external'))",
        executor="executor IN ('gateway', 'backend', 'client')",
        status="status IN ('completed', 'failed', 'not_found', 'rejected', 'cancelled', 'interrupted', 'external') OR status IN ('announced', 'pending_approval', 'approved', 'running', 'pending_consent')",
        approval="approval_consumed_at IS NULL OR approval_decision IS NOT NULL",
        approval_required="approval_required IN (0, 1)",
        runs_left="runs_left >= 0",
    )
    _index("ix_tool_call_standing", "tool_call", "standing", where="standing IS NOT NULL")


def _history_items() -> None:
    _table(
        "history_item",
        _text("thread"),
        _integer("position"),
        _text("turn"),
        _integer("input", nullable=True),
        _text("service_call", "tool_call", nullable=True),
        _text("kind"),
        _text("provider_id", "item_group", nullable=True),
        _integer("replayable"),
        _text("sent_in", nullable=True),
        _integer("weight"),
        _text("payload", nullable=True),
        primary=("thread", "position"),
        references=("thread", "tool_call"),
        payload="(payload IS NULL) = (input IS NOT NULL)",
        replayable="replayable IN (0, 1)",
    )
    _index("ix_history_item_unsent", "history_item", "thread", "position", where="sent_in IS NULL AND replayable = 1")
    made = "tool_call IS NOT NULL"
    _index("uq_history_item_tool_call", "history_item", "tool_call", "kind", where=made, unique=True)
