"""The backend's name for a service call, beside the handle to which the call leads."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
only_adds = True


def upgrade() -> None:
    op.add_column("service_call", sa.Column("run", sa.Text(), nullable=True))
