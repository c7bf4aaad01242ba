"""Turns that are rolled back, turns that wait for their caller, and turns of a dead process, all at once. Source:
docs/state-model.md, scenarios 50, 120 and 133 combined."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from gateway.a2a.model import TaskState
from gateway.core.failures import CONTEXT_STUCK
from gateway.foundation.retry import COOLDOWN
from gateway.ledger.documents import Import
from gateway.ledger.errors import LedgerUnavailable
from gateway.ledger.leases import TRIES
from gateway.ledger.points import CommitPoint
from gateway.ledger.tasks import Finish
from gateway.ledger.threads import Caller
from gateway.ledger.tool_calls import ToolWaits
from gateway.ledger.turns import Resume
from gateway.ports.adapter import ErrorClass, TextDelta
from gateway.ports.conversation import Ownership
from gateway.scheduling.leases import LeaseTimes
from tests.invariants import violations
from tests.scenarios.test_approvals import PAY, SAFE, expiry, one, outcomes, reply, start, yes
from tests.scenarios.test_breaker import agent, falls
from tests.scenarios.test_consent_of_tools import MAIL, setup
from tests.scenarios.test_quarantine import Poisoned, count, rounds, survivor, tries
from tests.scenarios.test_rollback import BOTH, two, under_way
from tests.scenarios.test_tool_loop import adapter_of, asks, call
from tests.support.core import START, Core, Done, answer, deaf, error_class, query, running_core, soon, until
from tests.support.scripted import BR, Pause, says
from tests.support.scripted_tools import ScriptedTools

QUICK = LeaseTimes(0.2)
ENDED = "SELECT ended_at IS NOT NULL FROM turn ORDER BY number"


class DiesBehind:
    """The ledger of a process of which nothing arrives any more behind the first unit with such a point. `lost`: it has
    tried."""

    def __init__(self, core: Core, kind: type) -> None:
        self.kind, self.dead, self.lost = kind, False, asyncio.Event()
        core.ledger.wrap(self._around)

    def _around(self, ledger: Any) -> "DiesBehind":
        self.behind = ledger
        return self

    def __getattr__(self, name: str) -> Any:
        return getattr(self.behind, name)

    def submit(self, points: tuple[CommitPoint, ...], done: Done) -> None:
        if self.dead:
            self.lost.set()
            self.behind.submit((), lambda _: done(LedgerUnavailable("it is dead")))
            return
        self.dead = any(isinstance(point, self.kind) for point in points)
        self.behind.submit(points, done)


@BOTH
async def test_120_a_process_that_dies_between_a_consent_and_an_allowed_call_leaves_no_task_that_asks_nothing(
    tmp_path: Path, ownership: Ownership
) -> None:
    """The page died with the process: nobody could open it, and the task would be at work until the consent expires."""
    path, policies = tmp_path / "gateway.db", {"mixed_batch": "hold", "parallel_tools": 1}
    async with running_core(path, prefix="a", lease=QUICK) as first:
        setup(first, ownership, asks("r1", MAIL, PAY), **policies)
        task = await start(first)
        dies = DiesBehind(first, ToolWaits)
        await reply(first, task.id, yes(one(task)), at_once=True)
        await soon(dies.lost.wait())
        await first.die()
    assert query(path, "SELECT status FROM tool_call ORDER BY sequence") == [("pending_consent",), ("approved",)]
    adapter = adapter_of(ownership, says("done", "r2"))
    async with running_core(path, prefix="b", now=START + 60_000, lease=QUICK, adapter=adapter) as second:
        await until(lambda: query(path, ENDED) == [(1,)])
        assert (await second.get(task.id)).status.state is TaskState.FAILED
        assert outcomes(second) == [("mail", "cancelled"), ("pay", "cancelled")]
        assert answer(await start(second, "2")) == "done"
        assert violations(path) == []


@BOTH
@pytest.mark.parametrize("policy", ["rollback", "interrupt"])
async def test_50_what_was_allowed_is_not_done_behind_a_restart_when_its_turn_is_to_be_cancelled(
    tmp_path: Path, ownership: Ownership, policy: str
) -> None:
    path, lease = tmp_path / "gateway.db", LeaseTimes(30.0, 3000)
    async with running_core(path, prefix="a", lease=lease) as first:
        setup(first, ownership, asks("r1", PAY), busy_context=policy)
        task = await start(first)
        dies = DiesBehind(first, Resume)
        await reply(first, task.id, yes(one(task)), at_once=True)
        await soon(dies.lost.wait())
        await first.die()
    async with running_core(path, prefix="b", lease=lease) as second:
        setup(second, ownership, busy_context=policy)
        later = await second.send("2", context="c", at_once=True)
        assert query(path, "SELECT status, cancel_asked FROM turn ORDER BY number") == [("running", 1), ("accepted", 0)]
        await second.die()
    adapter = adapter_of(ownership, says("done", "r2"))
    async with running_core(path, prefix="c", now=START + 60_000, lease=QUICK, adapter=adapter) as third:
        await until(lambda: query(path, ENDED)[0] == (1,))
        await until(lambda: query(path, ENDED)[1] == (1,))
        assert outcomes(third) == [("pay", "cancelled")]
        assert (await third.get(task.id)).status.state is TaskState.CANCELED
        assert answer(await third.get(later.id)) == "done"
        assert violations(path) == []


@BOTH
@pytest.mark.parametrize("tool", [PAY, MAIL], ids=["for a yes", "for a consent"])
@pytest.mark.parametrize("policy", ["rollback", "interrupt"])
async def test_133_a_turn_that_comes_to_wait_before_its_process_hears_that_it_is_to_end(
    tmp_path: Path, ownership: Ownership, policy: str, tool: Any
) -> None:
    async with two(tmp_path, LeaseTimes(2.0, 1), deaf) as (here, there):
        pause = Pause()
        setup(here, ownership, [pause, *asks("r1", tool)], busy_context=policy)
        first = await start(here, at_once=True)
        await soon(pause.reached.wait())
        adapter, tools = setup(there, ownership, says("A2", "r2"), busy_context=policy)
        later = await there.send("2", context="c", at_once=True)
        pause.go.set()
        await until(lambda: query(here.path, "SELECT status FROM turn ORDER BY number")[0] == ("waiting",))
        await expiry(there).sweep()
        assert (await there.get(first.id)).status.state is TaskState.CANCELED
        await soon(there.runner.idle())
        assert answer(await there.get(later.id)) == "A2"
        assert (tools.ran, [status for _, status in outcomes(there)]) == ([], ["cancelled"])
        if policy == "rollback":
            assert adapter.sent == [(None, ["U 2"])]
        assert violations(here.path) == []


@pytest.mark.parametrize("number", [TRIES - 1, TRIES], ids=["the last try", "put aside"])
@BOTH
async def test_133_a_turn_that_was_taken_back_and_can_only_be_ended_bare_takes_its_chain_along(
    tmp_path: Path, ownership: Ownership, number: int
) -> None:
    path = tmp_path / "gateway.db"
    async with running_core(path, prefix="a") as first:
        adapter = adapter_of(ownership, says("A0", "r0"), asks("r1", call("c1", "look")), [TextDelta("par"), Pause()])
        first.agent(adapter, toolset=ScriptedTools({"look": "seen"}), busy_context="rollback")
        await first.send("0", context="c")
        bad = await under_way(first, adapter)
        lost = first.ledger.refuse(Finish)
        later = await first.send("2", context="c", at_once=True)
        await soon(lost.wait())
    count(path, bad.id, number)
    adapter = adapter_of(ownership, says("A2", "r2"), says("A3", "r3"))
    async with survivor(path, Poisoned("turns", bad.id), adapter) as second:
        await rounds(second)
        if number == TRIES:
            assert (tries(path, bad.id), error_class(await second.get(later.id))) == (TRIES, CONTEXT_STUCK)
            await soon(second.cancel(bad.id))
        else:
            assert answer(await second.get(later.id)) == "A2"
        assert query(path, "SELECT status, displaced FROM turn WHERE number = 2") == [("cancelled", 1)]
        await second.send("3", context="c")
        if ownership is BR:
            assert adapter.sent[0] == ("r0", ["U 2"] if number < TRIES else ["U 2", "U 3"])
        assert "U 1" not in [line for _, lines in adapter.sent for line in lines]
        assert violations(path) == []


@BOTH
async def test_133_the_trial_of_a_backend_that_was_down_is_its_successors_when_it_is_taken_back(
    core: Core, ownership: Ownership
) -> None:
    pause = Pause()
    adapter = adapter_of(ownership, says("A0", "r0"), [pause], says("A2", "r2"))
    agent(core, adapter, busy_context="rollback")
    await core.send("0", context="c")
    await falls(core)
    core.time.monotonic += COOLDOWN
    trial = await core.send("1", context="c", at_once=True)
    await soon(pause.reached.wait())
    assert answer(await soon(core.send("2", context="c"))) == "A2"
    assert (await core.get(trial.id)).status.state is TaskState.CANCELED
    assert adapter.sent[2] == (("r0", ["U 2"]) if ownership is BR else (None, ["U 0", "A A0", "U 2"]))
    assert violations(core.path) == []


@BOTH
async def test_133_what_is_taken_back_stays_so_when_nobody_asks_the_backend_for_its_successor(
    core: Core, ownership: Ownership
) -> None:
    pause = Pause()
    adapter = adapter_of(ownership, says("A0", "r0"), asks("r1", call("c1", "look")), [pause], says("A3", "r3"))
    agent(core, adapter, toolset=ScriptedTools({"look": "seen"}), busy_context="rollback")
    await core.send("0", context="c")
    await core.send("1", context="c", at_once=True)
    await soon(pause.reached.wait())
    await falls(core)
    assert error_class(await soon(core.send("2", context="c"))) == ErrorClass.UNREACHABLE
    core.time.monotonic += COOLDOWN
    assert answer(await soon(core.send("3", context="c"))) == "A3"
    told = ["U 2", "U 3"]
    assert adapter.sent[3] == (("r0", told) if ownership is BR else (None, ["U 0", "A A0", *told]))
    assert violations(core.path) == []


@BOTH
async def test_133_a_turn_that_waits_for_a_consent_and_is_taken_back_is_no_part_of_the_conversation(
    tmp_path: Path, ownership: Ownership
) -> None:
    async with running_core(tmp_path / "one.db", prefix="one") as one_:
        policies = {"busy_context": "rollback", "new_task_while_waiting": "supersede"}
        scripts = says("A0", "r0"), asks("r1", SAFE, call("c2", "mail")), says("A2", "r2")
        adapter, _ = setup(one_, ownership, *scripts, **policies)
        await start(one_, "0")
        waiting = await start(one_)
        assert waiting.status.state is TaskState.AUTH_REQUIRED
        assert answer(await start(one_, "2")) == "A2"
        told = [] if ownership is BR else ["U 0", "A A0"]
        assert adapter.sent[2] == ("r0" if ownership is BR else None, [*told, "U 2"])
        canceled = await one_.get(waiting.id)
        assert (canceled.status.state, canceled.status.message) == (TaskState.CANCELED, None)
        assert violations(one_.path) == []
        document = await one_.ledger.export(Caller("ada"), "c")
    assert document is not None
    async with running_core(tmp_path / "two.db", prefix="two") as two_:
        await two_.ledger.commit(Import(Caller("ada"), document, START))
        adapter, _ = setup(two_, ownership, says("A3", "r3"))
        assert answer(await start(two_, "3")) == "A3"
        told = [] if ownership is BR else ["U 0", "A A0", "U 2", "A A2"]
        assert adapter.sent == [("r2" if ownership is BR else None, [*told, "U 3"])]
        assert violations(two_.path) == []
