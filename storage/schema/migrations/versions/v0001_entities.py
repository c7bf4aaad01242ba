"""The first version: every entity of the ledger."""

# ruff: noqa: E501  (each condition on one line, as Alembic writes it)

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

_TEXT, _BYTES = sa.Text(), sa.LargeBinary()
_INTEGER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    for tables in (
        _api_keys,
        _contexts,
        _processes_and_jobs,
        _tasks,
        _push_configs,
        _threads,
        _events,
        _turns,
        _inputs,
        _service_calls,
        _tool_calls,
        _history_items,
    ):
        tables()


def _columns(kind: sa.types.TypeEngine[Any], *names: str, nullable: bool = False) -> list[sa.Column[Any]]:
    return [sa.Column(name, kind, nullable=nullable) for name in names]


def _api_keys() -> None:
    op.create_table(
        "api_key",
        *_columns(_BYTES, "digest"),
        *_columns(_TEXT, "name", "prefix", "principal", "tenant"),
        *_columns(_INTEGER, "admin", "created_at"),
        *_columns(_INTEGER, "expires_at", "revoked_at", nullable=True),
        sa.CheckConstraint("admin IN (0, 1)", name=op.f("ck_api_key_admin")),
        sa.PrimaryKeyConstraint("digest", name=op.f("pk_api_key")),
        sqlite_strict=True,
    )
    op.create_index("uq_api_key_name", "api_key", ["name"], unique=True, sqlite_where=sa.text("revoked_at IS NULL"))


def _contexts() -> None:
    op.create_table(
        "context",
        *_columns(_TEXT, "id", "tenant", "principal", "public_id", "state"),
        *_columns(_INTEGER, "created_at", "last_used_at"),
        *_columns(_INTEGER, "expires_at", nullable=True),
        sa.CheckConstraint("state IN ('open', 'closed', 'expired', 'deleted')", name=op.f("ck_context_state")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_context")),
        sa.UniqueConstraint("tenant", "principal", "public_id", name=op.f("uq_context_tenant_principal_public_id")),
        sqlite_strict=True,
    )


def _processes_and_jobs() -> None:
    op.create_table(
        "delete_job",
        *_columns(_TEXT, "id", "adapter", "handle"),
        *_columns(_INTEGER, "due_at", nullable=True),
        *_columns(_INTEGER, "attempts"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_delete_job")),
        sqlite_strict=True,
    )
    op.create_index("ix_delete_job_due_at", "delete_job", ["due_at"], unique=False)
    op.create_table(
        "process",
        *_columns(_TEXT, "id"),
        *_columns(_INTEGER, "alive_until"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_process")),
        sqlite_strict=True,
    )
    op.create_index("ix_process_alive_until", "process", ["alive_until"], unique=False)
    op.create_table(
        "secret",
        *_columns(_TEXT, "name"),
        *_columns(_BYTES, "value"),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_secret")),
        sqlite_strict=True,
    )


def _tasks() -> None:
    op.create_table(
        "task",
        *_columns(_TEXT, "id", "context", "tenant", "principal", "agent"),
        *_columns(_INTEGER, "visible", "created_at", "last_event"),
        *_columns(_TEXT, "state"),
        *_columns(_INTEGER, "status_at"),
        *_columns(_TEXT, "status_message", nullable=True),
        sa.CheckConstraint(
            "state IN ('TASK_STATE_SUBMITTED', 'TASK_STATE_WORKING', 'TASK_STATE_COMPLETED', 'TASK_STATE_FAILED', 'TASK_STATE_CANCELED', 'TASK_STATE_INPUT_REQUIRED', 'TASK_STATE_REJECTED', 'TASK_STATE_AUTH_REQUIRED')",
            name=op.f("ck_task_state"),
        ),
        sa.CheckConstraint("visible IN (0, 1)", name=op.f("ck_task_visible")),
        sa.ForeignKeyConstraint(["context"], ["context.id"], name=op.f("fk_task_context")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_task")),
        sqlite_strict=True,
    )
    op.create_index(
        "ix_task_listed",
        "task",
        ["tenant", "principal", "agent", "status_at", "id"],
        unique=False,
        sqlite_where=sa.text("visible = 1"),
    )
    op.create_index(
        "ix_task_listed_in_context",
        "task",
        ["context", "agent", "status_at", "id"],
        unique=False,
        sqlite_where=sa.text("visible = 1"),
    )


def _push_configs() -> None:
    op.create_table(
        "push_config",
        *_columns(_TEXT, "task", "id", "version", "url", "host"),
        *_columns(_TEXT, "scheme", nullable=True),
        *_columns(_BYTES, "sealed", nullable=True),
        *_columns(_TEXT, "state"),
        *_columns(_INTEGER, "next_event"),
        *_columns(_INTEGER, "due_at", nullable=True),
        *_columns(_INTEGER, "attempts"),
        *_columns(_TEXT, "last_error", nullable=True),
        *_columns(_INTEGER, "created_at"),
        sa.CheckConstraint("due_at IS NULL OR state = 'active'", name=op.f("ck_push_config_due")),
        sa.CheckConstraint("state IN ('active', 'stopped', 'gone', 'done')", name=op.f("ck_push_config_state")),
        sa.ForeignKeyConstraint(["task"], ["task.id"], name=op.f("fk_push_config_task"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("task", "id", name=op.f("pk_push_config")),
        sqlite_strict=True,
    )
    op.create_index(
        "ix_push_config_due",
        "push_config",
        ["due_at", "host"],
        unique=False,
        sqlite_where=sa.text("due_at IS NOT NULL"),
    )
    op.create_index("ix_push_config_state", "push_config", ["state"], unique=False)


def _threads() -> None:
    op.create_table(
        "thread",
        *_columns(_TEXT, "id", "context", "agent"),
        *_columns(_INTEGER, "epoch"),
        *_columns(_TEXT, "storage_owner", "handle_kind"),
        *_columns(_TEXT, "handle", "clean_handle", nullable=True),
        *_columns(_INTEGER, "generation"),
        *_columns(_TEXT, "lease_holder", nullable=True),
        *_columns(_INTEGER, "lease_until", nullable=True),
        *_columns(_TEXT, "state"),
        *_columns(_INTEGER, "state_version", nullable=True),
        *_columns(_TEXT, "adapter_state", nullable=True),
        sa.CheckConstraint("(storage_owner = 'gateway') = (handle_kind = 'none')", name=op.f("ck_thread_owner")),
        sa.CheckConstraint("handle_kind IN ('none', 'rotating', 'static')", name=op.f("ck_thread_handle_kind")),
        sa.CheckConstraint(
            "state IN ('open', 'busy', 'interrupted', 'unsynced', 'lost', 'closed', 'expired', 'deleted')",
            name=op.f("ck_thread_state"),
        ),
        sa.CheckConstraint(
            "storage_owner = 'backend' OR (handle IS NULL AND clean_handle IS NULL)", name=op.f("ck_thread_handle")
        ),
        sa.CheckConstraint("storage_owner IN ('backend', 'gateway')", name=op.f("ck_thread_storage_owner")),
        sa.CheckConstraint("(lease_holder IS NULL) = (lease_until IS NULL)", name=op.f("ck_thread_lease")),
        sa.ForeignKeyConstraint(["context"], ["context.id"], name=op.f("fk_thread_context")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_thread")),
        sa.UniqueConstraint("context", "agent", "epoch", name=op.f("uq_thread_context_agent_epoch")),
        sqlite_strict=True,
    )
    op.create_index(
        "uq_thread_live",
        "thread",
        ["context", "agent"],
        unique=True,
        sqlite_where=sa.text("state NOT IN ('closed', 'expired', 'deleted')"),
    )


def _events() -> None:
    op.create_table(
        "event",
        *_columns(_TEXT, "task"),
        *_columns(_INTEGER, "last", "first"),
        *_columns(_TEXT, "payload"),
        sa.CheckConstraint("1 <= first AND first <= last", name=op.f("ck_event_numbers")),
        sa.ForeignKeyConstraint(["task"], ["task.id"], name=op.f("fk_event_task")),
        sa.PrimaryKeyConstraint("task", "last", name=op.f("pk_event")),
        sqlite_strict=True,
    )
    op.execute(
        "CREATE TRIGGER push_due AFTER INSERT ON event "
        "WHEN EXISTS (SELECT 1 FROM push_config WHERE task = NEW.task) "
        "BEGIN UPDATE push_config SET due_at = 0 WHERE task = NEW.task AND state = 'active' AND due_at IS NULL; END"
    )


def _turns() -> None:
    op.create_table(
        "turn",
        *_columns(_TEXT, "id", "task", "thread"),
        *_columns(_INTEGER, "number"),
        *_columns(_INTEGER, "base_generation", nullable=True),
        *_columns(_TEXT, "status"),
        *_columns(_TEXT, "failure_class", nullable=True),
        sa.Column("process", sa.Text(), server_default="", nullable=False),
        sa.Column("cancel_asked", _INTEGER, server_default="0", nullable=False),
        sa.Column("displaced", _INTEGER, server_default="0", nullable=False),
        sa.Column("tries", _INTEGER, server_default="0", nullable=False),
        *_columns(_INTEGER, "accepted_at"),
        *_columns(_INTEGER, "ended_at", "last_event", nullable=True),
        *_columns(_TEXT, "messages", "artifacts", nullable=True),
        sa.CheckConstraint(
            "(ended_at IS NULL) = (status IN ('accepted', 'running', 'waiting'))", name=op.f("ck_turn_ended")
        ),
        sa.CheckConstraint(
            "status IN ('accepted', 'running', 'waiting', 'completed', 'failed', 'cancelled', 'rejected')",
            name=op.f("ck_turn_status"),
        ),
        sa.CheckConstraint(
            "(ended_at IS NULL) = (messages IS NULL AND artifacts IS NULL)", name=op.f("ck_turn_record")
        ),
        sa.CheckConstraint("cancel_asked IN (0, 1)", name=op.f("ck_turn_cancel_asked")),
        sa.CheckConstraint("displaced IN (0, 1)", name=op.f("ck_turn_displaced")),
        sa.CheckConstraint("displaced = 0 OR status NOT IN ('completed', 'rejected')", name=op.f("ck_turn_counts")),
        sa.CheckConstraint("tries >= 0", name=op.f("ck_turn_tries")),
        sa.ForeignKeyConstraint(["task"], ["task.id"], name=op.f("fk_turn_task")),
        sa.ForeignKeyConstraint(["thread"], ["thread.id"], name=op.f("fk_turn_thread")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_turn")),
        sa.UniqueConstraint("thread", "number", name=op.f("uq_turn_thread_number")),
        sqlite_strict=True,
    )
    op.create_index(
        "ix_turn_open", "turn", ["thread", "number"], unique=False, sqlite_where=sa.text("ended_at IS NULL")
    )
    op.create_index("ix_turn_task", "turn", ["task"], unique=False)
    op.create_index("ix_turn_waiting", "turn", ["task"], unique=False, sqlite_where=sa.text("status = 'waiting'"))


def _inputs() -> None:
    op.create_table(
        "input",
        *_columns(_TEXT, "turn"),
        *_columns(_INTEGER, "ordinal"),
        *_columns(_TEXT, "tenant", "principal", "agent", "message_id", "digest"),
        *_columns(_TEXT, "key_kind", "key", nullable=True),
        *_columns(_INTEGER, "received_at", "event"),
        *_columns(_TEXT, "preferences", nullable=True),
        *_columns(_TEXT, "payload"),
        sa.CheckConstraint("key_kind IN ('header', 'message_id')", name=op.f("ck_input_key_kind")),
        sa.CheckConstraint("(key IS NULL) = (key_kind IS NULL)", name=op.f("ck_input_key")),
        sa.ForeignKeyConstraint(["turn"], ["turn.id"], name=op.f("fk_input_turn")),
        sa.PrimaryKeyConstraint("turn", "ordinal", name=op.f("pk_input")),
        sqlite_strict=True,
    )
    op.create_index("ix_input_message_id", "input", ["message_id"], unique=False)
    op.create_index(
        "uq_input_key",
        "input",
        ["tenant", "principal", "agent", "key_kind", "key"],
        unique=True,
        sqlite_where=sa.text("key IS NOT NULL"),
    )


def _service_calls() -> None:
    op.create_table(
        "service_call",
        *_columns(_TEXT, "id", "turn"),
        *_columns(_INTEGER, "round", "attempt"),
        *_columns(_TEXT, "status"),
        *_columns(_TEXT, "error_class", "handle_in", "pending_handle", "handle_out", nullable=True),
        *_columns(_INTEGER, "prepared_at"),
        *_columns(_INTEGER, "ended_at", nullable=True),
        *_columns(_TEXT, "usage", nullable=True),
        *_columns(_INTEGER, "weight", nullable=True),
        sa.CheckConstraint("status = 'completed' OR handle_out IS NULL", name=op.f("ck_service_call_handle_out")),
        sa.CheckConstraint(
            "status IN ('prepared', 'sent', 'started', 'emitting', 'completed', 'failed', 'incomplete', 'unknown')",
            name=op.f("ck_service_call_status"),
        ),
        sa.ForeignKeyConstraint(["turn"], ["turn.id"], name=op.f("fk_service_call_turn")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_service_call")),
        sa.UniqueConstraint("turn", "round", "attempt", name=op.f("uq_service_call_turn_round_attempt")),
        sqlite_strict=True,
    )


def _tool_calls() -> None:
    op.create_table(
        "tool_call",
        *_columns(_TEXT, "id", "service_call"),
        *_columns(_INTEGER, "sequence"),
        *_columns(_TEXT, "external_id", "name", "executor"),
        *_columns(_TEXT, "server", nullable=True),
        *_columns(_TEXT, "status"),
        *_columns(_INTEGER, "runs_left"),
        *_columns(_TEXT, "digest", nullable=True),
        *_columns(_INTEGER, "approval_required"),
        *_columns(_TEXT, "approval_decision", "approval_by", nullable=True),
        *_columns(_INTEGER, "approval_at", "approval_expires_at", "approval_consumed_at", nullable=True),
        *_columns(_TEXT, "standing", nullable=True),
        *_columns(_TEXT, "arguments"),
        *_columns(_TEXT, "outcome", nullable=True),
        sa.CheckConstraint(
            "(outcome IS NOT NULL) = (status IN ('completed', 'failed', 'not_found', 'rejected', 'cancelled', 'interrupted', 'external'))",
            name=op.f("ck_tool_call_outcome"),
        ),
        sa.CheckConstraint("executor IN ('gateway', 'backend', 'client')", name=op.f("ck_tool_call_executor")),
        sa.CheckConstraint(
            "status IN ('completed', 'failed', 'not_found', 'rejected', 'cancelled', 'interrupted', 'external') OR status IN ('announced', 'pending_approval', 'approved', 'running', 'pending_consent')",
            name=op.f("ck_tool_call_status"),
        ),
        sa.CheckConstraint(
            "approval_consumed_at IS NULL OR approval_decision IS NOT NULL", name=op.f("ck_tool_call_approval")
        ),
        sa.CheckConstraint("approval_required IN (0, 1)", name=op.f("ck_tool_call_approval_required")),
        sa.CheckConstraint("runs_left >= 0", name=op.f("ck_tool_call_runs_left")),
        sa.ForeignKeyConstraint(["service_call"], ["service_call.id"], name=op.f("fk_tool_call_service_call")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tool_call")),
        sa.UniqueConstraint("service_call", "sequence", name=op.f("uq_tool_call_service_call_sequence")),
        sqlite_strict=True,
    )
    op.create_index(
        "ix_tool_call_standing", "tool_call", ["standing"], unique=False, sqlite_where=sa.text("standing IS NOT NULL")
    )


def _history_items() -> None:
    op.create_table(
        "history_item",
        *_columns(_TEXT, "thread"),
        *_columns(_INTEGER, "position"),
        *_columns(_TEXT, "turn"),
        *_columns(_INTEGER, "input", nullable=True),
        *_columns(_TEXT, "service_call", "tool_call", nullable=True),
        *_columns(_TEXT, "kind"),
        *_columns(_TEXT, "provider_id", "item_group", nullable=True),
        *_columns(_INTEGER, "replayable"),
        *_columns(_TEXT, "sent_in", nullable=True),
        *_columns(_INTEGER, "weight"),
        *_columns(_TEXT, "payload", nullable=True),
        sa.CheckConstraint("(payload IS NULL) = (input IS NOT NULL)", name=op.f("ck_history_item_payload")),
        sa.CheckConstraint("replayable IN (0, 1)", name=op.f("ck_history_item_replayable")),
        sa.ForeignKeyConstraint(["thread"], ["thread.id"], name=op.f("fk_history_item_thread")),
        sa.ForeignKeyConstraint(["tool_call"], ["tool_call.id"], name=op.f("fk_history_item_tool_call")),
        sa.PrimaryKeyConstraint("thread", "position", name=op.f("pk_history_item")),
        sqlite_strict=True,
    )
    op.create_index(
        "ix_history_item_unsent",
        "history_item",
        ["thread", "position"],
        unique=False,
        sqlite_where=sa.text("sent_in IS NULL AND replayable = 1"),
    )
    op.create_index(
        "uq_history_item_tool_call",
        "history_item",
        ["tool_call", "kind"],
        unique=True,
        sqlite_where=sa.text("tool_call IS NOT NULL"),
    )
