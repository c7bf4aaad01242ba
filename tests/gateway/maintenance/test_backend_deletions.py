"""The outbox of deletions at backends."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.a2a.model import TaskState
from gateway.core.backend_jobs import RETRIES
from gateway.ledger.errors import LedgerUnavailable
from gateway.ledger.retention import Deletion, EndDeletion
from gateway.ledger.threads import Caller
from gateway.ports.adapter import AdapterError, CallCompleted, CallStarted, ErrorClass, TextDelta, ToolCallReady
from tests.support.core import START, Core, query, running_core, soon, until
from tests.support.deletions import DeletingAdapter, contexts, deletions
from tests.support.rows import writing
from tests.support.scripted import BR, Pause, Script, ScriptedAdapter, says
from tests.support.scripted_tools import ScriptedTools

FAILS = AdapterError(ErrorClass.BACKEND_FAILED, "HTTP 500")


def given(path: Path, *handles: str, agent: str = "echo", due_at: int = START) -> None:
    with writing(path) as rows:
        for handle in handles:
            rows.change("INSERT INTO delete_job VALUES (?, ?, ?, ?, 0)", f"t {handle}", agent, handle, due_at)


def jobs(core: Core) -> list[tuple[str, int | None, int]]:
    return query(core.path, "SELECT handle, due_at, attempts FROM delete_job ORDER BY handle")


async def test_all_due_jobs_are_done_and_then_no_wait_is_left(core: Core) -> None:
    adapter = DeletingAdapter(BR)
    core.agent(adapter)
    handles = [f"r-{number:02}" for number in range(20)]
    given(core.path, *handles)
    assert await soon(deletions(core).run_due()) is None
    assert (sorted(adapter.asked), jobs(core)) == (handles, [])


async def test_a_job_that_is_not_due_yet_determines_the_wait(core: Core) -> None:
    adapter = DeletingAdapter(BR)
    core.agent(adapter)
    given(core.path, "r-1", due_at=START + 90_000)
    assert await soon(deletions(core).run_due()) == 90
    assert adapter.asked == []


@pytest.mark.parametrize("kind", [ErrorClass.HANDLE_NOT_FOUND, ErrorClass.HANDLE_EXPIRED])
async def test_a_conversation_that_the_backend_no_longer_knows_counts_as_deleted(core: Core, kind: ErrorClass) -> None:
    core.agent(DeletingAdapter(BR, answers=(AdapterError(kind, "HTTP 404"),)))
    given(core.path, "r-1")
    assert await soon(deletions(core).run_due()) is None
    assert jobs(core) == []


@pytest.mark.parametrize("fault", [FAILS, RuntimeError("broken"), TimeoutError()])
async def test_a_failure_is_tried_again_later_and_holds_up_no_other(core: Core, fault: Exception) -> None:
    adapter = DeletingAdapter(BR, answers=(fault,))
    core.agent(adapter)
    given(core.path, "r-1", "r-2")
    assert await soon(deletions(core).run_due()) == RETRIES[0]
    assert jobs(core) == [("r-1", START + RETRIES[0] * 1000, 1)]
    core.time.now += RETRIES[0] * 1000
    assert await soon(deletions(core).run_due()) is None
    assert (adapter.asked, jobs(core)) == (["r-1", "r-2", "r-1"], [])


async def test_after_the_last_attempt_a_job_is_given_up_and_stays(core: Core) -> None:
    adapter = DeletingAdapter(BR, answers=(FAILS,) * 20)
    core.agent(adapter)
    given(core.path, "r-1")
    outbox = deletions(core)
    pauses = []
    while (pause := await soon(outbox.run_due())) is not None:
        pauses.append(pause)
        core.time.now += int(pause * 1000)
    assert pauses == list(RETRIES)
    assert (len(adapter.asked), jobs(core)) == (len(RETRIES) + 1, [("r-1", None, len(RETRIES) + 1)])


async def test_an_agent_that_cannot_forget_has_its_jobs_dropped(core: Core) -> None:
    core.agent(ScriptedAdapter(BR))
    given(core.path, "r-1")
    assert await soon(deletions(core).run_due()) is None
    assert jobs(core) == []


async def test_the_jobs_of_an_agent_that_is_not_there_wait_for_it(core: Core) -> None:
    core.agent(DeletingAdapter(BR))
    given(core.path, "r-1", agent="removed")
    assert await soon(deletions(core).run_due()) == RETRIES[0]
    assert jobs(core) == [("r-1", START + RETRIES[0] * 1000, 1)]


async def test_two_processes_do_not_do_one_job(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    async with running_core(path, prefix="one") as one, running_core(path, prefix="two") as two:
        slow = Pause()
        adapter, other = DeletingAdapter(BR, answers=(slow,)), DeletingAdapter(BR)
        one.agent(adapter)
        two.agent(other)
        given(path, "r-1")
        async with asyncio.TaskGroup() as group:
            group.create_task(deletions(one).run_due())
            await soon(slow.reached.wait())
            assert await soon(deletions(two).run_due()) == RETRIES[0]
            slow.go.set()
        assert (adapter.asked, other.asked, jobs(one)) == (["r-1"], [], [])


async def test_losing_the_race_for_a_job_is_no_failure(core: Core) -> None:
    adapter = DeletingAdapter(BR)
    core.agent(adapter)
    given(core.path, "r-2")
    core.ledger.answer_read("deletions", (Deletion("t r-1", "echo", "r-1", START, 0),))
    assert await soon(deletions(core).run_due()) is None
    assert adapter.asked == ["r-2"]


async def test_a_process_that_dies_in_between_loses_nothing(core: Core) -> None:
    core.agent(DeletingAdapter(BR))
    given(core.path, "r-1")
    lost = core.ledger.refuse(EndDeletion)
    with pytest.raises(LedgerUnavailable):
        await soon(deletions(core).run_due())
    assert lost.is_set()
    assert jobs(core) == [("r-1", START + RETRIES[0] * 1000, 1)]


async def test_the_deletion_of_a_context_wakes_the_deletions(core: Core) -> None:
    adapter = DeletingAdapter(BR, says("hello", "r-1"))
    core.agent(adapter)
    outbox = deletions(core)
    await core.send("hi", context="c")
    async with asyncio.TaskGroup() as group:
        working = group.create_task(outbox.run())
        await contexts(core).delete(Caller("ada"), "c")
        await until(lambda: adapter.asked == ["r-1"])
        working.cancel()


async def test_a_failing_database_does_not_end_the_deletions(core: Core) -> None:
    core.agent(DeletingAdapter(BR))
    outbox = deletions(core)
    core.ledger.fail_reads("deletions")
    async with asyncio.TaskGroup() as group:
        working = group.create_task(outbox.run())
        await asyncio.sleep(0)
        core.ledger.fail_reads()
        given(core.path, "r-1")
        outbox.wake()
        await until(lambda: core.ledger.stored(EndDeletion))
        working.cancel()


def fails(pause: Pause) -> Script:
    return [CallStarted("r-1"), TextDelta("x"), FAILS]


def waits(pause: Pause) -> Script:
    return [CallStarted("r-1"), TextDelta("x"), pause]


def fails_behind_a_tool(pause: Pause) -> Script:
    return [ToolCallReady("c1", "one", "{}"), CallCompleted("r-1")]


@pytest.mark.parametrize("script", [fails, waits, fails_behind_a_tool])
async def test_what_a_turn_leaves_at_its_backend_is_deleted_at_the_end_of_the_turn(
    core: Core, script: Callable[[Pause], Script]
) -> None:
    pause = Pause()
    adapter = DeletingAdapter(BR, script(pause), [FAILS])
    core.agent(adapter, toolset=ScriptedTools({"one": "O"}), persistence="per_turn")
    async with asyncio.TaskGroup() as group:
        working = group.create_task(deletions(core).run())
        await until(lambda: "deletions" in core.ledger.reads)
        task = await core.send("hi", at_once=True)
        if script is waits:
            await soon(pause.reached.wait())
            await core.cancel(task.id)
        await until(lambda: adapter.asked == ["r-1"])
        working.cancel()
    assert (await core.get(task.id)).status.state in (TaskState.FAILED, TaskState.CANCELED)
