"""Work that one process at a time does for all."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
only_adds = True


_BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    op.create_table(
        "duty",
        sa.Column("name", _TEXT, nullable=False),
        sa.Column("holder", _TEXT, nullable=False),
        sa.Column("until", _BIG, nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_duty"),
        sqlite_strict=True,
    )
