"""What a process that died left behind: which of it has to be finished by the next one, and when all of it has ended."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

from tests.invariants import unsettled

_NOTHING_SHOWN = (
    "NOT EXISTS (SELECT 1 FROM event WHERE event.task = turn.task"
    " AND (payload LIKE '%artifactUpdate%' OR payload LIKE '%tool-calls%'))"
)


def tasks_to_complete(database: Path) -> list[str]:
    """The tasks that have to be COMPLETED: their turns had not begun, or nothing was shown of a history of the gateway's."""
    with closing(sqlite3.connect(database)) as connection:
        rows = connection.execute(
            "SELECT turn.task FROM turn JOIN thread ON thread.id = turn.thread WHERE turn.status = 'accepted'"
            f" OR (turn.status = 'running' AND storage_owner = 'gateway' AND {_NOTHING_SHOWN})"
        ).fetchall()
    return [task for (task,) in rows]


async def all_ended(database: Path, gone: asyncio.Future[int] | None = None) -> bool:
    """Within the time that the test has. False: the process that should end them is `gone`."""
    while unsettled(database):
        if gone is not None and gone.done():
            return False
        await asyncio.sleep(0.02)
    return True


def expire_leases(database: Path) -> None:
    """Every lease has run out."""
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("UPDATE thread SET lease_until = 0 WHERE lease_holder IS NOT NULL")
        connection.execute("UPDATE process SET alive_until = 0")
        connection.commit()
