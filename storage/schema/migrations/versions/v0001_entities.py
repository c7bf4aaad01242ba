"""The first version: every entity of the ledger."""

# ruff: noqa: E501  (each condition on one line, as Alembic writes it)

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

_INTEGER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "api_key",
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("prefix", sa.Text(), nullable=False),
        sa.Column("principal", sa.Text(), nullable=False),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("admin", _INTEGER, nullable=False),
        sa.Column("created_at", _INTEGER, nullable=False),
        sa.Column("expires_at", _INTEGER, nullable=True),
        sa.Column("revoked_at", _INTEGER, nullable=True),
        sa.CheckConstraint("admin IN (0, 1)", name=op.f("ck_api_key_admin")),
        sa.PrimaryKeyConstraint("digest", name=op.f("pk_api_key")),
        sqlite_strict=True,
    )
    op.create_index("uq_api_key_name", "api_key", ["name"], unique=True, sqlite_where=sa.text("revoked_at IS NULL"))
    op.create_table(
        "context",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("principal", sa.Text(), nullable=False),
        sa.Column("public_id", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("created_at", _INTEGER, nullable=False),
        sa.Column("last_used_at", _INTEGER, nullable=False),
        sa.Column("expires_at", _INTEGER, nullable=True),
        sa.CheckConstraint("state IN ('open', 'closed', 'expired', 'deleted')", name=op.f("ck_context_state")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_context")),
        sa.UniqueConstraint("tenant", "principal", "public_id", name=op.f("uq_context_tenant_principal_public_id")),
        sqlite_strict=True,
    )
    op.create_table(
        "delete_job",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("adapter", sa.Text(), nullable=False),
        sa.Column("handle", sa.Text(), nullable=False),
        sa.Column("due_at", _INTEGER, nullable=True),
        sa.Column("attempts", _INTEGER, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_delete_job")),
        sqlite_strict=True,
    )
    op.create_index("ix_delete_job_due_at", "delete_job", ["due_at"], unique=False)
    op.create_table(
        "process",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("alive_until", _INTEGER, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_process")),
        sqlite_strict=True,
    )
    op.create_index("ix_process_alive_until", "process", ["alive_until"], unique=False)
    op.create_table(
        "secret",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("value", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_secret")),
        sqlite_strict=True,
    )
    op.create_table(
        "task",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("context", sa.Text(), nullable=False),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("principal", sa.Text(), nullable=False),
        sa.Column("agent", sa.Text(), nullable=False),
        sa.Column("visible", _INTEGER, nullable=False),
        sa.Column("created_at", _INTEGER, nullable=False),
        sa.Column("last_event", _INTEGER, nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("status_at", _INTEGER, nullable=False),
        sa.Column("status_message", sa.Text(), nullable=True),
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
    op.create_table(
        "push_config",
        sa.Column("task", sa.Text(), nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("version", sa.Text(), nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("scheme", sa.Text(), nullable=True),
        sa.Column("sealed", sa.LargeBinary(), nullable=True),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("next_event", _INTEGER, nullable=False),
        sa.Column("due_at", _INTEGER, nullable=True),
        sa.Column("attempts", _INTEGER, nullable=False),
        sa.Column("last_error", sa.Text(), nullable=True),
        sa.Column("created_at", _INTEGER, nullable=False),
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
    op.create_table(
        "thread",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("context", sa.Text(), nullable=False),
        sa.Column("agent", sa.Text(), nullable=False),
        sa.Column("epoch", _INTEGER, nullable=False),
        sa.Column("storage_owner", sa.Text(), nullable=False),
        sa.Column("handle_kind", sa.Text(), nullable=False),
        sa.Column("handle", sa.Text(), nullable=True),
        sa.Column("clean_handle", sa.Text(), nullable=True),
        sa.Column("generation", _INTEGER, nullable=False),
        sa.Column("lease_holder", sa.Text(), nullable=True),
        sa.Column("lease_until", _INTEGER, nullable=True),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("state_version", _INTEGER, nullable=True),
        sa.Column("adapter_state", sa.Text(), nullable=True),
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
    op.create_table(
        "event",
        sa.Column("task", sa.Text(), nullable=False),
        sa.Column("last", _INTEGER, nullable=False),
        sa.Column("first", _INTEGER, nullable=False),
        sa.Column("payload", sa.Text(), nullable=False),
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
    op.create_table(
        "turn",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("task", sa.Text(), nullable=False),
        sa.Column("thread", sa.Text(), nullable=False),
        sa.Column("number", _INTEGER, nullable=False),
        sa.Column("base_generation", _INTEGER, nullable=True),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("failure_class", sa.Text(), nullable=True),
        sa.Column("process", sa.Text(), server_default="", nullable=False),
        sa.Column("cancel_asked", _INTEGER, server_default="0", nullable=False),
        sa.Column("displaced", _INTEGER, server_default="0", nullable=False),
        sa.Column("tries", _INTEGER, server_default="0", nullable=False),
        sa.Column("accepted_at", _INTEGER, nullable=False),
        sa.Column("ended_at", _INTEGER, nullable=True),
        sa.Column("last_event", _INTEGER, nullable=True),
        sa.Column("messages", sa.Text(), nullable=True),
        sa.Column("artifacts", sa.Text(), nullable=True),
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
    op.create_table(
        "input",
        sa.Column("turn", sa.Text(), nullable=False),
        sa.Column("ordinal", _INTEGER, nullable=False),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("principal", sa.Text(), nullable=False),
        sa.Column("agent", sa.Text(), nullable=False),
        sa.Column("message_id", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("key_kind", sa.Text(), nullable=True),
        sa.Column("key", sa.Text(), nullable=True),
        sa.Column("received_at", _INTEGER, nullable=False),
        sa.Column("event", _INTEGER, nullable=False),
        sa.Column("preferences", sa.Text(), nullable=True),
        sa.Column("payload", sa.Text(), nullable=False),
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
    op.create_table(
        "service_call",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("turn", sa.Text(), nullable=False),
        sa.Column("round", _INTEGER, nullable=False),
        sa.Column("attempt", _INTEGER, nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("error_class", sa.Text(), nullable=True),
        sa.Column("handle_in", sa.Text(), nullable=True),
        sa.Column("pending_handle", sa.Text(), nullable=True),
        sa.Column("handle_out", sa.Text(), nullable=True),
        sa.Column("prepared_at", _INTEGER, nullable=False),
        sa.Column("ended_at", _INTEGER, nullable=True),
        sa.Column("usage", sa.Text(), nullable=True),
        sa.Column("weight", _INTEGER, nullable=True),
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
    op.create_table(
        "tool_call",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("service_call", sa.Text(), nullable=False),
        sa.Column("sequence", _INTEGER, nullable=False),
        sa.Column("external_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("executor", sa.Text(), nullable=False),
        sa.Column("server", sa.Text(), nullable=True),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("runs_left", _INTEGER, nullable=False),
        sa.Column("digest", sa.Text(), nullable=True),
        sa.Column("approval_required", _INTEGER, nullable=False),
        sa.Column("approval_decision", sa.Text(), nullable=True),
        sa.Column("approval_by", sa.Text(), nullable=True),
        sa.Column("approval_at", _INTEGER, nullable=True),
        sa.Column("approval_expires_at", _INTEGER, nullable=True),
        sa.Column("approval_consumed_at", _INTEGER, nullable=True),
        sa.Column("standing", sa.Text(), nullable=True),
        sa.Column("arguments", sa.Text(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=True),
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
    op.create_table(
        "history_item",
        sa.Column("thread", sa.Text(), nullable=False),
        sa.Column("position", _INTEGER, nullable=False),
        sa.Column("turn", sa.Text(), nullable=False),
        sa.Column("input", _INTEGER, nullable=True),
        sa.Column("service_call", sa.Text(), nullable=True),
        sa.Column("tool_call", sa.Text(), nullable=True),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("provider_id", sa.Text(), nullable=True),
        sa.Column("item_group", sa.Text(), nullable=True),
        sa.Column("replayable", _INTEGER, nullable=False),
        sa.Column("sent_in", sa.Text(), nullable=True),
        sa.Column("weight", _INTEGER, nullable=False),
        sa.Column("payload", sa.Text(), nullable=True),
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
