"""The adapter's secret of a thread, sealed, beside its state."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
only_adds = True


def upgrade() -> None:
    op.add_column("thread", sa.Column("adapter_secret", sa.Text(), nullable=True))
