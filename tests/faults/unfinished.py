"""The tasks that a dead process did not finish: those that the next process has to complete, and the end of all of them."""

import asyncio
from pathlib import Path

from tests.invariants import unsettled
from tests.support.polling import until
from tests.support.rows import query, writing

_NOTHING_SHOWN = (
    "NOT EXISTS (SELECT 1 FROM event WHERE event.task = turn.task"
    " AND (payload LIKE '%artifactUpdate%' OR payload LIKE '%tool-calls%'))"
)

_UNHEARD = (
    "(storage_owner = 'gateway' OR (handle_kind = 'rotating' AND NOT EXISTS (SELECT 1 FROM service_call"
    " WHERE service_call.turn = turn.id AND service_call.status = 'started')))"
)


def tasks_to_complete(database: Path, *, repeats: bool = True) -> list[str]:
    """Tasks whose turn had not begun, or of which nothing was shown and whose request can be made again. With `repeats` False
    no request is made again."""
    again = f" OR (turn.status = 'running' AND {_UNHEARD} AND {_NOTHING_SHOWN})" if repeats else ""
    tasks = "SELECT turn.task FROM turn JOIN thread ON thread.id = turn.thread WHERE turn.status = 'accepted'"
    return [task for (task,) in query(database, tasks + again)]


async def all_ended(database: Path, gone: asyncio.Future[int] | None = None) -> bool:
    """False: the process that should end them is `gone`."""
    await until(lambda: not unsettled(database) or (gone is not None and gone.done()), seconds=300)
    return not unsettled(database)


def expire_leases(database: Path) -> None:
    """Every lease has run out."""
    with writing(database) as rows:
        rows.change("UPDATE thread SET lease_until = 0 WHERE lease_holder IS NOT NULL")
        rows.change("UPDATE process SET alive_until = 0")
