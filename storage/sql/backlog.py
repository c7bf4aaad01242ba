"""The query of what is still owed. Law: it is asked four times a minute, and reads indexes of what is due."""

from sqlalchemy import func, literal_column, select

from gateway.ledger.leases import TRIES
from storage.schema.tables import delete_job, push_config, turn
from storage.sql.fragments import ZERO

_OWED = push_config.c.due_at.is_not(None)

# In the order of Backlog.
BACKLOG = select(
    select(func.count()).select_from(delete_job).where(delete_job.c.due_at > ZERO).scalar_subquery(),
    select(func.count()).select_from(delete_job).where(delete_job.c.due_at.is_(None)).scalar_subquery(),
    select(func.count()).select_from(push_config).where(_OWED).scalar_subquery(),
    select(func.count(push_config.c.host.distinct())).where(_OWED, push_config.c.attempts > ZERO).scalar_subquery(),
    select(func.count())
    .select_from(turn)
    .where(turn.c.ended_at.is_(None), turn.c.tries >= literal_column(str(TRIES)))
    .scalar_subquery(),
)
