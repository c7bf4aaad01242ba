"""The process dies at every point at which a tool that is declared idempotent starts and ends. In the process that follows, the
turn ends as if nothing had happened: a call that was running runs again with the same key, a call that had ended does not.
"""

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from gateway.ledger.calls import RESTARTED
from tests.a2a_client import A2A, COMPLETED, Json, failed, why
from tests.faults.agent_kinds import services
from tests.faults.crash_sweep import Run, Sweep
from tests.faults.effects import effects
from tests.faults.test_tool_sweep import Story, calls, live_through, script
from tests.invariants import violations
from tests.support.fork_server import fork_server
from tests.support.polling import until

_BOUND_SECONDS = 300


async def _ended(caller: A2A, task: str) -> Json:
    """The task may have ended before a stream of it could begin."""

    async def over() -> bool:
        return bool((await caller.get(task))["status"]["state"] != "TASK_STATE_WORKING")

    await until(over)
    return await caller.get(task)


async def _sweep(folder: Path, owner: str, pattern: str) -> list[bool]:
    """For each point that killed, in order, whether a tool ran."""
    ran: list[bool] = []
    async with asyncio.timeout(_BOUND_SECONDS), services(script) as made, fork_server() as server:
        sweep = Sweep(server, folder, made.settings[owner], Story, live_through, tools=True, idempotent=True)
        async for run in sweep.runs(pattern):
            if run.story.whole:
                continue
            left, done = calls(run.database), Counter(effects(folder))
            ran.append("running" in left.values())
            async with run.next_process() as http:
                caller = A2A(http, "agent")
                ended = await _ended(caller, run.story.booked["id"])
                following = await caller.send("next", "c")
            _check(run, left, done, ended)
            assert why(following) == COMPLETED
    return ran


def _check(run: Run[Story], left: dict[str, str], done: Counter[str], ended: Json) -> None:
    """`left` and `done`: the calls of the dead process, and how often each had its effect."""
    now, statuses = Counter(effects(run.folder)), calls(run.database)
    if "running" in left.values():
        assert why(ended) == COMPLETED
        assert set(statuses.values()) == {"completed"}
        assert {call: now[call] - done[call] for call in left} == {
            call: int(status != "completed") for call, status in left.items()
        }
    elif "announced" in left.values():
        assert why(ended) == failed(RESTARTED)
        assert now == done
    assert set(now) <= set(statuses)
    assert max(now.values(), default=0) <= 2
    assert violations(run.database) == []


@pytest.mark.fault("K7")
@pytest.mark.parametrize("owner", ["backend", "gateway"])
async def test_a_process_that_dies_while_an_idempotent_tool_runs_leaves_a_turn_that_goes_on(
    tmp_path: Path, owner: str, capsys: pytest.CaptureFixture[str]
) -> None:
    async with asyncio.TaskGroup() as group:
        sweeps = [
            group.create_task(_sweep(tmp_path / str(number), owner, pattern))
            for number, pattern in enumerate(("*toolstarts*", "*toolends*"))
        ]
    ran = [one for sweep in sweeps for one in sweep.result()]
    with capsys.disabled():
        print(f"\n{len(ran)} points of idempotent tools were tried with the history at the {owner}")  # noqa: T201
    assert any(ran)
    assert not all(ran)
