"""The end of a thread that fits a window is read without what comes before it."""

import sqlite3
from contextlib import closing

from gateway.testing.ledger_talk import Talk, answer
from storage import compiled
from tests.storage.conversation import Recorded


def instructions(database: Recorded, sql: str, turn: int) -> int:
    """The number of instructions that the database executes for it."""
    values = {"thread": "thread-1", "turn": f"turn-{turn}", "messages": 10, "weight": 2**62, "opaque": 0}
    counted = 0

    def count() -> None:
        nonlocal counted
        counted += 1

    with closing(sqlite3.connect(database.path)) as connection:
        connection.set_progress_handler(count, 1)
        connection.execute(sql, values).fetchall()
    return counted


async def test_the_work_does_not_grow_with_the_thread(database: Recorded) -> None:
    talk, work = Talk(), []
    for number in range(1, 801):
        talk.turn(f"q{number}", answer(f"a{number}"))
        if number in {20, 800}:
            await database.ledger.commit(*talk.points)
            talk.points.clear()
            work.append(
                [
                    instructions(database, query.sql, number)
                    for query in (compiled.RECENT_HISTORY, compiled.MEASURED_CALLS)
                ]
            )
    short, long = work
    assert short == long
