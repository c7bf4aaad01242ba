"""An index of the tasks that wait for their callers."""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
only_adds = True


def upgrade() -> None:
    waiting = sa.text("state IN ('TASK_STATE_INPUT_REQUIRED', 'TASK_STATE_AUTH_REQUIRED')")
    op.create_index("ix_task_waiting", "task", ["context"], sqlite_where=waiting, postgresql_where=waiting)
