"""One gateway, killed at random again and again, while callers stream, wait, cancel, approve and reject: nothing acknowledged
is lost, no tool runs twice, every stream is whole, and every task ends once.

The default is a short run. `CRASH_KILLS=100` makes a long one, `CRASH_SEED` repeats one: the draws are the same then, but
where exactly a process is hit depends on the machine.
"""

import asyncio
import json
import os
import random
from collections import Counter
from collections.abc import Iterable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from gateway.core.failures import TOOL_OUTCOME_UNKNOWN
from gateway.ledger.calls import RESTARTED
from tests.a2a_client import A2A, COMPLETED, a2a_http, text_of, why
from tests.faults.crash_clients import FINAL, Client, ClientLog, JoinedStream, Line
from tests.faults.crash_world import (
    AGENTS,
    LEASE_SECONDS,
    SAID,
    World,
    crash_world,
    effect_errors,
    runs,
    tool_calls,
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
            await self.line.kill()
            while self.line.deaths < KILLS and self.chance.random() < 0.2:
                unborn = await self.parent.fork(self.world.file)
                await asyncio.sleep(self.chance.uniform(0, 0.5))
                self.unborn += not unborn.url.done()
                await unborn.kill()
                self.line.died()
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
        async with asyncio.TaskGroup() as group:
            for each in clients:
                group.create_task(_nothing_has_changed(each, line))
        async with asyncio.TaskGroup() as group:
            for each in clients:
                group.create_task(_the_conversation_goes_on(each, line, told))
        assert violations(world.database) == []
        assert effect_errors(world) == []
        assert unpaired_calls(world) == []
        tasks = [task for each in clients for task in each.tasks]
        with capsys.disabled():
            _tell(crash_run, tasks)
    assert {why(task.result().task) for task in waiting} == {COMPLETED}
    assert {task.task["status"]["state"] for task in tasks} <= FINAL
    # Nothing that a service was sent was refused: turns fail with their process, and for no other reason.
    assert set(_failures(tasks)) <= {RESTARTED, TOOL_OUTCOME_UNKNOWN}
    _every_decision_was_heeded(world, told)
    assert _troubles(tmp_path) == []
    assert line.deaths == KILLS
    assert sum(runs(world).values()) > 0
    assert told.decided.total() > 0


async def _nothing_has_changed(client: Client, line: Line) -> None:
    """Every task is what it was when its end was first seen, and its log what its streams have shown."""
    caller = A2A(await line.http(), client.agent)
    for task in client.tasks:
        assert await caller.get(task.id) == task.task
        async with caller.subscribe(task.id, after=0) as stream:
            log = (await stream.rest())[1:]
        assert [frame.number for frame in log] == list(range(1, len(log) + 1))
        assert log[task.first or 0 :] == task.frames


async def _the_conversation_goes_on(client: Client, line: Line, told: ClientLog) -> None:
    """The service's answer repeats its whole conversation: every accepted message, once, in order."""
    caller, text = A2A(await line.http(), client.agent), f"{client.name}.last plain"
    last = await caller.send(text, client.context, messageId=text)
    assert why(last) == COMPLETED, f"{client.agent}: {last}"
    assert text_of(last).partition(SAID)[2].split(" | ") == [*client.said, text]
    listed = {task["id"] for task in await caller.tasks(client.context)} - {last["id"]}
    assert listed == {task.id for task in client.tasks}
    assert told.never.isdisjoint(client.said)


def _every_decision_was_heeded(world: World, told: ClientLog) -> None:
    calls = {call.what: call for call in tool_calls(world)}
    for what, yes in told.allowed.items():
        assert calls[what].decision == ("approved" if yes else "rejected")
        assert yes or calls[what].status == "rejected"


def _failures(tasks: Iterable[JoinedStream]) -> Counter[str]:
    statuses = [task.task["status"] for task in tasks]
    return Counter(
        status["message"]["metadata"]["errorClass"] for status in statuses if status["state"] == "TASK_STATE_FAILED"
    )


def _troubles(folder: Path) -> list[str]:
    """What the gateways' logs say of faults of their own."""
    lines = [line for log in folder.glob("gateway-*.log") for line in log.read_text().splitlines()]
    told = [json.loads(line) if line.startswith("{") else {"level": "error", "event": line} for line in lines]
    return [str(each) for each in told if each["level"] in ("error", "critical")]


def _tell(crash_run: CrashRun, tasks: list[JoinedStream]) -> None:
    told, line, world = crash_run.told, crash_run.line, crash_run.world
    over_deaths = [task for task in tasks if task.resumes > 1]
    ended = Counter(task.task["status"]["state"].removeprefix("TASK_STATE_") for task in tasks)
    tools = dict(Counter(call.status for call in tool_calls(world)))
    pieces, events = sum(task.resumes for task in tasks), sum(len(task.frames) for task in tasks)
    figures = [
        f"seed {SEED}: {line.deaths} kills, {crash_run.unborn} of them before it served",
        f"{len(told.acked)} messages acknowledged, {len(told.never)} never accepted",
        f"{told.cuts} requests cut, {told.repeats} of them repeated, {told.found} found to have arrived",
        f"{len(tasks)} tasks: {dict(ended)}, failures: {dict(_failures(tasks))}, {told.canceled} cancels confirmed",
        f"{len(over_deaths)} streams stitched from {pieces} pieces, {events} events",
        f"{sum(runs(world).values())} runs of tools for {tools}, approvals: {dict(told.decided)}",
        f"{len(world.responses.requests) + len(world.chat.requests)} requests to the services",
    ]
    print("\n" + "\n".join(figures))  # noqa: T201
