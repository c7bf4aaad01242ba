"""What a crash leaves, what waits to be sent, and unreadable rows. Source: docs/state-model.md, more scenarios of groups D, F
and K."""

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from gateway.a2a.errors import Unanswered, UnsupportedOperation
from gateway.a2a.model import Task, TaskState
from gateway.ledger.calls import Complete
from gateway.ledger.errors import CorruptRecord, LedgerUnavailable
from gateway.ports.adapter import CallCompleted, CallStarted, ServiceRequest, ToolCallReady
from gateway.ports.conversation import Ownership
from gateway.scheduling.leases import LeaseTimes
from tests.support.core import START, Core, answer, frames, query, running_core, soon
from tests.support.rows import change
from tests.support.scripted import BR, G, Pause, Script, ScriptedAdapter, says

BOTH = pytest.mark.parametrize("ownership", [G, BR], ids=["G", "BR"])
LATER = START + 6000
WINDOWS: dict[str, dict[str, Any]] = {
    "whole": {},
    "by messages": {"history_messages": 3},
    "by tokens": {"history_tokens": 1000},
}
ANY_WINDOW = pytest.mark.parametrize("window", WINDOWS.values(), ids=WINDOWS.keys())


def echo(request: ServiceRequest) -> Script:
    text = request.message.parts[0].text
    return says(f"re {text}", f"r-{text}")


def failure(task: Task) -> str:
    assert task.status.state is TaskState.FAILED
    assert task.status.message is not None
    return str((task.status.message.metadata or {})["errorClass"])


@BOTH
async def test_51_what_the_backend_completed_and_nobody_recorded_is_unknown_and_the_handle_is_the_old_one(
    tmp_path: Path, ownership: Ownership
) -> None:
    path = tmp_path / "ledger.db"
    async with running_core(path, prefix="one") as one:
        pause = Pause()
        one.agent(ScriptedAdapter(ownership, says("A1", "r1"), [CallStarted("r2"), pause, *says("A2", "r2")]))
        await one.send("1", context="c")
        refused = one.ledger.refuse(Complete)
        lost = await one.send("2", context="c", at_once=True)
        await soon(pause.reached.wait())
        await one.get(lost.id)
        pause.go.set()
        await soon(refused.wait())
    async with running_core(path, prefix="two", now=LATER) as two:
        adapter = ScriptedAdapter(ownership, otherwise=echo)
        two.agent(adapter)
        assert failure(await two.get(lost.id)) == "gateway-restarted"
        pending = "r2" if ownership is BR else None
        sql = "SELECT status, pending_handle, handle_out FROM service_call ORDER BY id DESC LIMIT 1"
        assert query(path, sql) == [("unknown", pending, None)]
        assert query(path, "SELECT handle FROM thread") == [("r1" if ownership is BR else None,)]
        await two.send("3", context="c")
    assert adapter.sent == [("r1", ["U 2", "U 3"]) if ownership is BR else (None, ["U 1", "A A1", "U 2", "U 3"])]


@BOTH
async def test_53_an_output_that_no_call_carried_yet_is_marked_unsent_and_goes_with_the_next(
    core: Core, ownership: Ownership
) -> None:
    called: Script = [ToolCallReady("c1", "add", "{}"), CallCompleted("r1")]
    adapter = ScriptedAdapter(ownership, called, otherwise=echo)
    core.agent(adapter, unknown_tool="fail")
    assert (await core.send("1", context="c")).status.state is TaskState.FAILED
    unsent = "SELECT kind FROM history_item WHERE sent_in IS NULL"
    assert query(core.path, unsent) == ([("output",)] if ownership is BR else [])
    await core.send("2", context="c")
    assert query(core.path, unsent) == []
    output = "O c1 This tool is not available."
    expected = ("r1", [output, "U 2"]) if ownership is BR else (None, ["U 1", "C c1 add", output, "U 2"])
    assert adapter.sent[1] == expected
    await core.send("3", context="c")
    assert [*adapter.sent[2][1]].count(output) == (0 if ownership is BR else 1)


@ANY_WINDOW
async def test_92_a_turn_reads_as_often_as_another_whatever_was_said_before(core: Core, window: dict[str, Any]) -> None:
    core.agent(ScriptedAdapter(G, otherwise=echo), **window)
    reads = []
    for number in range(1, 13):
        core.ledger.reads.clear()
        await core.send(str(number), context="c")
        reads.append([name for name in core.ledger.reads if name in {"history", "recent_history", "measured_calls"}])
    assert reads[0] == []
    assert len(reads[1]) == 1 + ("history_tokens" in window)
    assert reads[1:] == [reads[1]] * 11


@ANY_WINDOW
async def test_93_a_history_that_cannot_be_read_fails_the_turn_and_sends_nothing(
    tmp_path: Path, window: dict[str, Any]
) -> None:
    async with running_core(tmp_path / "ledger.db", lease=LeaseTimes(0.03)) as core:
        adapter = ScriptedAdapter(G, otherwise=echo)
        core.agent(adapter, **window)
        await core.send("1", context="c")
        core.ledger.fail_reads("history", "recent_history", error=CorruptRecord("a row of thread 't' cannot be read"))
        assert failure(await core.send("2", context="c")) == "internal"
        core.ledger.fail_reads("history", "recent_history", error=LedgerUnavailable("the disk is gone"))
        with pytest.raises(Unanswered) as caught:
            await core.send("3", context="c")
        core.ledger.fail_reads()
        assert caught.value.metadata is not None
        lost = caught.value.metadata["taskId"]
        with suppress(UnsupportedOperation):  # recovery has been faster
            await frames(await core.subscribe(lost))
        assert failure(await core.get(lost)) == "gateway-restarted"
        assert len(adapter.requests) == 1
        assert answer(await core.send("4", context="c")) == "re 4"


@ANY_WINDOW
async def test_130_a_row_that_cannot_be_read_closes_its_own_thread_and_no_other(
    core: Core, window: dict[str, Any]
) -> None:
    adapter = ScriptedAdapter(G, otherwise=echo)
    core.agent(adapter, **window)
    await core.send("1", context="spoilt")
    change(core.path, "UPDATE history_item SET payload = '{' WHERE payload IS NOT NULL")
    await core.send("1", context="fine")
    for _ in range(2):
        assert failure(await core.send("2", context="spoilt")) == "internal"
    assert len(adapter.requests) == 2
    assert answer(await core.send("2", context="fine")) == "re 2"
