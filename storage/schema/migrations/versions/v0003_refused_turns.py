"""An index of the items that a backend refused, by their turns."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
only_adds = True


def upgrade() -> None:
    op.create_index("ix_history_item_refused", "history_item", ["turn"], sqlite_where=sa.text("refused_in IS NOT NULL"))
