"""Unreadable rows of a turn of a dead process: the next process starts, ends the turns of all other tasks, and keeps looking
for more."""

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from gateway.ports.adapter import CallCompleted, TextDelta, ToolCallReady
from gateway.scheduling.leases import LeaseTimes
from tests.gateway.scheduling.test_settle import LATER, failed
from tests.support.core import answer, running_core, soon
from tests.support.scripted import BR, G, Pause, ScriptedAdapter, says

TABLES = ("thread", "task", "turn", "input", "service_call", "history_item", "tool_call", "event")
NONSENSE: dict[str, object] = {"TEXT": "\x00 no JSON {", "INTEGER": 2**62, "BLOB": b"\xff"}
KEYS = frozenset({"id", *TABLES, "context"})


async def _left(path: Path) -> str:
    """Two running turns, the first after a round of tools; the id of the second's task."""
    pause = Pause()
    async with running_core(path, prefix="one") as core:
        tool = ToolCallReady("c1", "add", "{}", handled=True)
        core.agent(ScriptedAdapter(BR, says("first", "r1"), [TextDelta("a"), tool, pause], [TextDelta("b"), pause]))
        await core.send("0", context="poisoned")
        await core.send("1", context="poisoned", at_once=True)
        await soon(pause.reached.wait())
        fine = await core.send("2", context="fine", at_once=True)
        await core.get(fine.id)
    return fine.id


def _spoilt(path: Path) -> Iterator[tuple[str, str, object]]:
    """Every column of every table but those that say what belongs to what."""
    with closing(sqlite3.connect(path)) as database:
        for table in TABLES:
            for _, column, kind, *_ in database.execute(f"PRAGMA table_info({table})").fetchall():
                if column not in KEYS:
                    yield table, column, NONSENSE[kind]


def _spoil(path: Path, table: str, column: str, value: object) -> None:
    """In every row but the last, which is that of the other turn. What the table refuses stays as it is."""
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("PRAGMA foreign_keys = OFF")
        rows = f"WHERE rowid < (SELECT max(rowid) FROM {table})"
        database.execute(f"UPDATE OR IGNORE {table} SET {column} = ? {rows}", (value,))


async def test_nothing_that_was_left_stops_the_next_process(tmp_path: Path) -> None:
    whole = tmp_path / "whole.db"
    fine = await _left(whole)
    for table, column, value in _spoilt(whole):
        path = tmp_path / f"{table}-{column}.db"
        shutil.copy(whole, path)
        _spoil(path, table, column, value)
        async with running_core(path, prefix="two", now=LATER, lease=LeaseTimes(0.03)) as core:
            core.agent(ScriptedAdapter(G, [TextDelta("new"), CallCompleted()]))
            again = core.ledger.slow_read("unfinished_turns")
            await soon(again.reached.wait())
            again.go.set()
            assert failed(await core.get(fine)), (table, column)
            assert answer(await core.send("3", context="new")) == "new"
