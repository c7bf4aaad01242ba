"""The service call whose request was refused, on the items that it carried for the first time."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
only_adds = True


def upgrade() -> None:
    op.add_column("history_item", sa.Column("refused_in", sa.Text(), nullable=True))
