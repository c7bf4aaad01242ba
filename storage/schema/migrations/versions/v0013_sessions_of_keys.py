"""When the sessions of a key were ended."""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
only_adds = True

_BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.add_column("api_key", sa.Column("sessions_ended_at", _BIG, nullable=True))
