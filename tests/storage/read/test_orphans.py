"""Handles queued for deletion, and those from which another process continued."""

from pathlib import Path

from gateway.ledger.threads import DeleteOrphan, KeepHandle
from tests.support.core import START, query, running_core
from tests.support.scripted import BR, ScriptedAdapter, says

JOBS = "SELECT handle FROM delete_job"


async def test_a_handle_that_a_call_of_the_thread_confirmed_is_never_queued_for_deletion(tmp_path: Path) -> None:
    async with running_core(tmp_path / "ledger.db") as core:
        core.agent(ScriptedAdapter(BR, says("A1", "r1")))
        await core.send("1", context="c")
        [(thread,)] = query(core.path, "SELECT id FROM thread")
        await core.ledger.commit(DeleteOrphan(thread, "echo", "r1", START), DeleteOrphan(thread, "echo", "r7", START))
        assert query(core.path, JOBS) == [("r7",)]


async def test_a_handle_that_is_gone_on_from_is_taken_back(tmp_path: Path) -> None:
    async with running_core(tmp_path / "ledger.db") as core:
        core.agent(ScriptedAdapter(BR, says("A1", "r1")))
        await core.send("1", context="c")
        [(thread,)] = query(core.path, "SELECT id FROM thread")
        await core.ledger.commit(DeleteOrphan(thread, "echo", "r7", START), DeleteOrphan(thread, "echo", "r8", START))
        await core.ledger.commit(KeepHandle(thread, "r7"))
        assert query(core.path, JOBS) == [("r8",)]
