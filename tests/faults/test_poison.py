"""Unreadable rows of a turn of a dead process: the next process starts, ends the turns of all other tasks, and keeps looking
for more."""

from contextlib import suppress
from pathlib import Path

import sqlalchemy

from gateway.ports.adapter import CallCompleted, TextDelta, ToolCallReady
from gateway.scheduling.leases import LeaseTimes
from storage.schema import tables
from tests.gateway.scheduling.test_settle import LATER, failed
from tests.support import stores
from tests.support.core import answer, query, running_core, soon
from tests.support.rows import change, refusals
from tests.support.scripted import BR, G, Pause, ScriptedAdapter, says

TABLES = (
    tables.thread,
    tables.task,
    tables.turn,
    tables.input_,
    tables.service_call,
    tables.history_item,
    tables.tool_call,
    tables.event,
)
NONSENSE: dict[type, object] = {str: "\x00 no JSON {", int: 2**62, bytes: b"\xff"}
KEYS = frozenset({"id", "context", *(table.name for table in TABLES)})
"""The columns that say what belongs to what."""


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


def _spoil(path: Path, column: sqlalchemy.Column[object]) -> None:
    """In every row but the last, which is that of the other turn. What the table refuses stays as it is."""
    table, value = column.table, NONSENSE[column.type.python_type]
    names = [key.name for key in table.primary_key]
    if isinstance(value, str) and stores.chosen() != stores.SQLITE:
        value = value.replace("\x00", "\x01")
    keys = query(path, f"SELECT {', '.join(names)} FROM {table.name} ORDER BY {', '.join(names)}")
    this = " AND ".join(f"{name} = ?" for name in names)
    for key in keys[:-1]:
        with suppress(*refusals()):
            change(path, f"UPDATE {table.name} SET {column.name} = ? WHERE {this}", value, *key)


async def test_nothing_that_was_left_stops_the_next_process(tmp_path: Path) -> None:
    whole = tmp_path / "whole.db"
    fine = await _left(whole)
    for column in (column for table in TABLES for column in table.columns if column.name not in KEYS):
        path = tmp_path / f"{column.table.name}-{column.name}.db"
        stores.copy(whole, path)
        _spoil(path, column)
        async with running_core(path, prefix="two", now=LATER, lease=LeaseTimes(0.03)) as core:
            core.agent(ScriptedAdapter(G, [TextDelta("new"), CallCompleted()]))
            again = core.ledger.slow_read("unfinished_turns")
            await soon(again.reached.wait())
            again.go.set()
            assert failed(await core.get(fine)), column
            assert answer(await core.send("3", context="new")) == "new"
        stores.remove(path)
