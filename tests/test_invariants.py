"""The invariant checker reports a database that is damaged in each way, and accepts one that is not."""

from pathlib import Path

import pytest

from gateway.ports.adapter import CallCompleted, TextDelta, ToolCallReady, ToolResultReady
from tests.invariants import violations
from tests.support.core import running_core
from tests.support.rows import change
from tests.support.scripted import BR, G, Script, ScriptedAdapter, says
from tests.support.scripted_tools import ScriptedTools

_TOOL: Script = [ToolCallReady("c1", "add", "{}", handled=True), ToolResultReady("c1", 3), TextDelta("3")]

DAMAGE = {
    "a chain that was forked": ("I3", "UPDATE service_call SET handle_in = NULL WHERE handle_in = 'r1'"),
    "a handle that moved alone": ("I3", "UPDATE thread SET handle = 'r9' WHERE storage_owner = 'backend'"),
    "a handle where there is none": ("I1", "UPDATE service_call SET handle_in = 'r1'"),
    "a thread that went on in doubt": ("I16", "UPDATE thread SET state = 'unsynced'"),
    "a tool call without an outcome": (
        "I4",
        "UPDATE tool_call SET status = 'running', outcome = NULL WHERE name = 'one'",
    ),
    "an outcome that its executor cannot give": ("I4", "UPDATE tool_call SET status = 'external' WHERE name = 'one'"),
    "an output that was lost": (
        "I4",
        "DELETE FROM history_item WHERE kind = 'output' AND tool_call IN (SELECT id FROM tool_call WHERE name = 'one')",
    ),
    "an output that nobody carried": (
        "I5",
        (
            "UPDATE history_item SET sent_in = NULL WHERE kind = 'output' AND tool_call IN"
            " (SELECT id FROM tool_call WHERE name = 'one')"
        ),
    ),
    "an output that its own service call carried": (
        "I5",
        (
            "UPDATE history_item SET sent_in = service_call WHERE kind = 'output' AND tool_call IN"
            " (SELECT id FROM tool_call WHERE name = 'one')"
        ),
    ),
    "a round that is missing": ("I8", "UPDATE service_call SET round = 2 WHERE round = 1"),
    "a tool that ran without the approval that it needed": (
        "I13",
        "UPDATE tool_call SET approval_required = 1 WHERE name = 'one'",
    ),
    "a tool that was told to start twice": (
        "I4",
        "UPDATE event SET payload = replace(payload, '\"succeeded\"', '\"executing\"')",
    ),
    "tool calls with a gap": ("I8", "UPDATE tool_call SET sequence = sequence + 1 WHERE name <> 'one'"),
    "an item that went": ("I6", "DELETE FROM history_item WHERE position = 2"),
    "two turns in one generation": ("I10", "UPDATE turn SET base_generation = 1"),
    "a generation that went back": ("I10", "UPDATE thread SET generation = 0"),
    "a message that was lost": ("messages", "DELETE FROM input WHERE turn = (SELECT min(id) FROM turn)"),
    "a message that was doubled": (
        "items",
        (
            "INSERT INTO history_item (thread, position, turn, input, kind, replayable, weight)"
            " SELECT thread, 99, turn, input, kind, 1, weight FROM history_item WHERE kind = 'user' LIMIT 1"
        ),
    ),
    "a task that was doubled": (
        "has no turn",
        (
            "INSERT INTO task SELECT 'other', context, tenant, principal, agent, visible, created_at, 0,"
            " 'TASK_STATE_SUBMITTED', status_at, status_message FROM task LIMIT 1"
        ),
    ),
    "an event that was lost": ("gap", "DELETE FROM event WHERE first = 1"),
    "an end that was not told": ("log ends with", "UPDATE task SET state = 'TASK_STATE_CANCELED'"),
    "a task that never ended": ("still TASK_STATE_WORKING", "UPDATE task SET state = 'TASK_STATE_WORKING'"),
    "a turn that never ended": (
        "still running",
        "UPDATE turn SET status = 'running', ended_at = NULL, messages = NULL, artifacts = NULL",
    ),
    "a call that never ended": ("still started", "UPDATE service_call SET status = 'started', handle_out = NULL"),
}


async def _conversations(path: Path) -> None:
    async with running_core(path) as core:
        for name, ownership in (("chained", BR), ("kept", G)):
            core.agent(
                ScriptedAdapter(
                    ownership,
                    [*_TOOL, CallCompleted("r1")],
                    [TextDelta("a"), None, *says("b", "r2")],
                    [ToolCallReady("c1", "one", "{}"), ToolCallReady("c2", "two", "{}"), CallCompleted("r3")],
                    says("c", "r4"),
                ),
                name,
                toolset=ScriptedTools({"one": 1, "two": 2}),
            )
            for text in "123":
                await core.send(text, context=name)


async def test_a_database_in_order_violates_nothing(tmp_path: Path) -> None:
    await _conversations(tmp_path / "ledger.db")
    assert violations(tmp_path / "ledger.db") == []


@pytest.mark.parametrize("what", DAMAGE)
async def test_a_violation_is_found(tmp_path: Path, what: str) -> None:
    found, sql = DAMAGE[what]
    await _conversations(tmp_path / "ledger.db")
    assert change(tmp_path / "ledger.db", sql) > 0
    assert any(found in violation for violation in violations(tmp_path / "ledger.db"))
