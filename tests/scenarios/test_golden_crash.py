"""The golden trace in which a process dies: what the next process sends upstream. Source: docs/state-model.md."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from gateway.core.tools import tool_call
from tests.scenarios.test_golden_traces import OWNERS, Sent
from tests.scenarios.test_tool_loop import C1, adapter_of, asks
from tests.support.core import START, running_core, soon
from tests.support.scripted import Pause, says
from tests.support.scripted_tools import ScriptedTools

UNKNOWN = f"O c1 {tool_call.OUTCOME_UNKNOWN}"


@dataclass(frozen=True)
class Row:
    """`upstream`: what the process that came after it sent, by owner."""

    name: str
    upstream: dict[str, Sent]


ROWS = [
    Row(
        "crash while C1 runs, then U2",
        {
            "G": [(None, ["U 1", "C c1 one", UNKNOWN, "U 2"])],
            "BR": [("r1", [UNKNOWN, "U 2"])],
            "BS": [("c", [UNKNOWN, "U 2"])],
        },
    )
]
CELLS = [(row, owner) for row in ROWS for owner in row.upstream]


@pytest.mark.parametrize(("row", "owner"), CELLS, ids=[f"{row.name} - {owner}" for row, owner in CELLS])
async def test_what_a_process_sends_upstream_follows_from_where_another_died(
    tmp_path: Path, row: Row, owner: str
) -> None:
    path, running = tmp_path / "ledger.db", Pause()
    async with running_core(path, prefix="one") as one:
        one.agent(adapter_of(OWNERS[owner], asks("r1", C1)), toolset=ScriptedTools({"one": running}))
        await one.send("1", context="c", at_once=True)
        await soon(running.reached.wait())
    adapter, box = adapter_of(OWNERS[owner], says("A2", "r2")), ScriptedTools({"one": "O"})
    async with running_core(path, prefix="two", now=START + 10**7) as two:
        two.agent(adapter, toolset=box)
        await two.send("2", context="c")
    assert adapter.sent == row.upstream[owner]
    assert box.ran == []
