"""The times of tool calls, service calls, turns and epochs, the trace of a turn's caller, and notes on turns."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
only_adds = True


_BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")

_ADDED = (
    ("thread", "began_at", _BIG),
    ("thread", "began_by", _TEXT),
    ("turn", "started_at", _BIG),
    ("turn", "trace", _TEXT),
    ("service_call", "first_at", _BIG),
    ("tool_call", "asked_at", _BIG),
    ("tool_call", "started_at", _BIG),
    ("tool_call", "ended_at", _BIG),
)


def upgrade() -> None:
    for table, column, type_ in _ADDED:
        op.add_column(table, sa.Column(column, type_, nullable=True))
    op.create_table(
        "turn_note",
        sa.Column("turn", _TEXT, nullable=False),
        sa.Column("at", _BIG, nullable=False),
        sa.Column("kind", _TEXT, nullable=False),
        sa.Column("detail", _TEXT, nullable=False),
        sa.CheckConstraint("kind IN ('taken-over')", name="kind"),
        sa.PrimaryKeyConstraint("turn", "at", name="pk_turn_note"),
        sa.ForeignKeyConstraint(["turn"], ["turn.id"], name="fk_turn_note_turn", ondelete="CASCADE"),
        sqlite_strict=True,
    )
    failed = sa.text("status = 'failed'")
    op.create_index("ix_turn_failed", "turn", ["ended_at"], sqlite_where=failed, postgresql_where=failed)
    broken = sa.text("state IN ('lost', 'unsynced')")
    op.create_index("ix_thread_broken", "thread", ["context"], sqlite_where=broken, postgresql_where=broken)
