"""An index of the turns whose process was asked to cancel them."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
only_adds = True

_WHERE = sa.text("ended_at IS NULL AND cancel_asked = 1")


def upgrade() -> None:
    op.create_index(
        "ix_turn_cancel_asked",
        "turn",
        ["process"],
        if_not_exists=True,
        sqlite_where=_WHERE,
        postgresql_where=_WHERE,
    )
