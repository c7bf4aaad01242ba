"""One gateway, killed at random again and again, while callers stream, wait, cancel, approve and reject: nothing acknowledged
is lost, no tool runs twice, every stream is whole, and every task ends once.

The default is a short run. `CRASH_KILLS=100` makes a long one, `CRASH_SEED` repeats one: the draws are the same then, but
where exactly a process is hit depends on the machine.
"""

import asyncio
import os
import random
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.a2a_client import COMPLETED, a2a_http, why
from tests.faults.crash_checks import (
    decisions_not_heeded,
    figures,
    for_each,
    nothing_has_changed,
    odd_failures,
    the_conversation_goes_on,
    troubles,
)
from tests.faults.crash_clients import FINAL, Client, ClientLog, Line
from tests.faults.crash_world import (
    AGENTS,
    LEASE_SECONDS,
    World,
    crash_world,
    effect_errors,
    runs,
    unpaired_calls,
)
from tests.faults.unfinished import all_ended
from tests.invariants import violations
from tests.support.fork_server import ForkServer, fork_server

pytestmark = [pytest.mark.xdist_group("torture"), pytest.mark.fault("K3", "K5", "K7", "K8", "K12")]

KILLS = int(os.environ.get("CRASH_KILLS", "16"))
SEED = int(os.environ.get("CRASH_SEED", "0")) or random.SystemRandom().randrange(1, 10**9)

_CLIENTS_OF_EACH = 2
_ENDS_WITHIN_SECONDS = 60 * LEASE_SECONDS


@dataclass(slots=True)
class CrashRun:
    parent: ForkServer
    world: World
    line: Line
    told: ClientLog
    chance: random.Random
    stack: AsyncExitStack
    unborn: int = 0
    """Deaths before the process served."""

    async def start(self) -> None:
        child = await self.parent.serving(self.world.file)
        self.line.open(child, await self.stack.enter_async_context(a2a_http(child.url.result())))

    async def kill_again_and_again(self) -> None:
        """Mostly under load; now and then as soon as it serves, when it recovers, or before that."""
        while self.line.deaths < KILLS:
            soon = self.chance.random() < 0.3
            await asyncio.sleep(self.chance.uniform(0, 0.3) if soon else self.chance.uniform(0.3, 2.5))
            [gateway] = self.line.gateways
            await self.line.kill(gateway)
            while self.line.deaths < KILLS and self.chance.random() < 0.2:
                unborn = await self.parent.fork(self.world.file)
                await asyncio.sleep(self.chance.uniform(0, 0.5))
                self.unborn += not unborn.url.done()
                await self.line.kill(unborn)
            await self.start()


async def test_a_gateway_that_is_killed_again_and_again_loses_doubles_and_tears_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    print(f"CRASH_SEED={SEED} CRASH_KILLS={KILLS}")  # noqa: T201
    async with (
        asyncio.timeout(120 + 6 * KILLS),
        crash_world(tmp_path) as world,
        fork_server() as parent,
        AsyncExitStack() as stack,
    ):
        line, told, over = Line(), ClientLog(), asyncio.Event()
        crash_run = CrashRun(parent, world, line, told, random.Random(SEED), stack)
        await crash_run.start()
        async with asyncio.TaskGroup() as group:

            def client(agent: str, number: int) -> Client:
                name = f"{agent}-{number}"
                return Client(line, told, group, over, agent, name, random.Random(f"{SEED} {name}"))

            talking = [client(agent, number) for agent in AGENTS for number in range(_CLIENTS_OF_EACH)]
            away = [client(agent, _CLIENTS_OF_EACH) for agent in AGENTS]
            for each in talking:
                group.create_task(each.talk())
            waiting = [group.create_task(each.wait_for_the_last_kill()) for each in away]
            await crash_run.kill_again_and_again()
            over.set()
        clients = [*talking, *away]
        async with asyncio.timeout(_ENDS_WITHIN_SECONDS):
            await all_ended(world.database)

        assert violations(world.database) == []
        await for_each(clients, nothing_has_changed)
        await for_each(clients, the_conversation_goes_on)
        assert violations(world.database) == []
        assert effect_errors(world) == []
        assert unpaired_calls(world) == []
        tasks = [task for each in clients for task in each.tasks]
        kills = f"seed {SEED}: {line.deaths} kills, {crash_run.unborn} of them before it served"
        with capsys.disabled():
            print("", kills, *figures(world, told, tasks), sep="\n")  # noqa: T201
    assert {why(task.result().task) for task in waiting} == {COMPLETED}
    assert {task.task["status"]["state"] for task in tasks} <= FINAL
    assert odd_failures(tasks, told) == []
    assert decisions_not_heeded(world, told) == []
    assert troubles(tmp_path) == []
    assert line.deaths == KILLS
    assert sum(runs(world).values()) > 0
    assert told.decided.total() > 0
