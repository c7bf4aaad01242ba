"""What the callers of each process use of their limits."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
only_adds = True


_BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    op.create_table(
        "quota_use",
        sa.Column("process", _TEXT, nullable=False),
        sa.Column("until", _BIG, nullable=False),
        sa.Column("callers", _TEXT, nullable=False),
        sa.PrimaryKeyConstraint("process", name="pk_quota_use"),
        sqlite_strict=True,
    )
