"""What calls have left waiting at their backends, to be withdrawn there."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
only_adds = True


_BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    texts = ("agent", "thread", "handle", "run")
    op.create_table(
        "withdrawal",
        sa.Column("id", sa.Text(), nullable=False),
        *(sa.Column(name, sa.Text(), nullable=False) for name in texts),
        sa.Column("due_at", _BIG, nullable=False),
        sa.Column("attempts", _BIG, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_withdrawal"),
        sqlite_strict=True,
    )
    op.create_index("ix_withdrawal_due_at", "withdrawal", ["due_at"])
    op.create_index("ix_withdrawal_thread", "withdrawal", ["thread"])
