"""The tokens of a turn that has ended, beside its public record."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
only_adds = True


def upgrade() -> None:
    op.add_column("turn", sa.Column("usage", sa.Text(), nullable=True))
