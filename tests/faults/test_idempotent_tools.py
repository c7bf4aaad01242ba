"""The process dies at every point at which a tool that is declared idempotent starts and ends. Then it starts again, and the
turn ends as if nothing had happened: what was under way is run again with the same key, what has ended is not.

Source: reliability, K6 to K8.
"""

import asyncio
import shutil
from collections import Counter
from itertools import count
from pathlib import Path

import pytest

from gateway.ledger.calls import RESTARTED
from tests.a2a_client import A2A, COMPLETED, Json, a2a_http, failed, why
from tests.faults.effects import effects
from tests.faults.kinds import services
from tests.faults.leftovers import time_passes
from tests.faults.test_tool_sweep import Story, _calls, _configure, _live_through, _script
from tests.invariants import violations
from tests.support.fork_server import ForkServer, fork_server

_BOUND_SECONDS = 300


async def _ended(caller: A2A, task: str) -> Json:
    async with asyncio.timeout(60):
        while (found := await caller.get(task))["status"]["state"] == "TASK_STATE_WORKING":  # noqa: ASYNC110  # it may be over before a stream begins
            await asyncio.sleep(0.02)
    return found


async def _sweep(folder: Path, agent: str, parent: ForkServer, pattern: str) -> list[bool]:
    """For each point that killed, in order, whether a tool ran."""
    ran: list[bool] = []
    for number in count(1):
        file = _configure(folder, agent)
        database, story = folder / "gateway.db", Story()
        child = await parent.fork(file, f"{pattern}:{number}", tools=True, idempotent=True)
        assert await child.ready()
        async with a2a_http(child.url.result()) as http:
            await _live_through(http, story)
        if story.whole:
            await child.kill()
            shutil.rmtree(folder)
            return ran
        await child.dead()
        left, done = _calls(database), Counter(effects(folder))
        ran.append("running" in left.values())
        time_passes(database)
        again = await parent.serving(file, tools=True, idempotent=True)
        async with a2a_http(again.url.result()) as http:
            caller = A2A(http, "agent")
            ended = await _ended(caller, story.booked["id"])
            following = await caller.send("next", "c")
        await again.kill()

        now = Counter(effects(folder))
        if ran[-1]:
            assert why(ended) == COMPLETED
            assert set(_calls(database).values()) == {"completed"}
            assert {call: now[call] - done[call] for call in left} == {
                call: int(status != "completed") for call, status in left.items()
            }
        elif "announced" in left.values():
            assert why(ended) == failed(RESTARTED)
            assert now == done
        assert set(now) <= set(_calls(database))
        assert max(now.values(), default=0) <= 2
        assert why(following) == COMPLETED
        assert violations(database) == []
        shutil.rmtree(folder)
    raise AssertionError


@pytest.mark.fault("K7")
@pytest.mark.parametrize("owner", ["backend", "gateway"])
async def test_a_process_that_dies_while_an_idempotent_tool_runs_leaves_a_turn_that_goes_on(
    tmp_path: Path, owner: str, capsys: pytest.CaptureFixture[str]
) -> None:
    async with asyncio.timeout(_BOUND_SECONDS), services(_script) as made, fork_server() as parent:
        ran = [
            one
            for pattern in ("*toolstarts*", "*toolends*")
            for one in await _sweep(tmp_path / "one", made.settings[owner], parent, pattern)
        ]
    with capsys.disabled():
        print(f"\n{len(ran)} points of idempotent tools were tried with the history at the {owner}")  # noqa: T201
    assert any(ran)
    assert not all(ran)
