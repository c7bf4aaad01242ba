"""Three gateways on one server of PostgreSQL: one of them is killed again and again, the server crashes and comes back, one
gateway stands still for longer than its lease. Clients go to any of them: nothing acknowledged is lost, no tool runs twice,
streams that are resumed at another one have no gap and no repeat, every event is posted, every task ends once.

The default is a short run. `CRASH_SECONDS=300 CRASH_CONTEXTS=300` makes a long one, `CRASH_SEED` repeats its draws.
"""

import asyncio
import os
import random
import signal
from dataclasses import dataclass
from pathlib import Path

import pytest

from gateway.ledger.errors import LedgerUnavailable
from tests.a2a_client import COMPLETED, Json, why
from tests.faults.crash_checks import (
    decisions_not_heeded,
    figures,
    first_posts,
    for_each,
    nothing_has_changed,
    odd_failures,
    post_errors,
    posted,
    the_conversation_goes_on,
    troubles,
)
from tests.faults.crash_clients import FINAL, Client, ClientLog, JoinedStream, Line
from tests.faults.crash_world import AGENTS, crash_world, effect_errors, runs, unpaired_calls
from tests.faults.postgres.crashing_replicas import LEASE_SECONDS, CrashingReplicas, Schedule, crashing_replicas
from tests.faults.unfinished import all_ended
from tests.invariants import violations
from tests.receiver import LOOPBACK, receiving
from tests.support.polling import until
from tests.support.postgres import postgres_server
from tests.support.stores import lying_at

pytestmark = [pytest.mark.xdist_group("torture"), pytest.mark.fault("D4", "K14", "R1")]

SECONDS = float(os.environ.get("CRASH_SECONDS", "10"))
CONTEXTS = int(os.environ.get("CRASH_CONTEXTS", "30"))
SEED = int(os.environ.get("CRASH_SEED", "0")) or random.SystemRandom().randrange(1, 10**9)

_SCHEDULE = Schedule(kill=2.0, restart=min(20.0, SECONDS / 2), stop=min(30.0, SECONDS / 3))

_AT_WORK = 40
"""Contexts that may be at work on a message at the same time: the others wait for their turn."""

_ENDS_WITHIN_SECONDS = 40 * LEASE_SECONDS


@dataclass(frozen=True, slots=True)
class Callers:
    """All of them, and what those saw who wait for an approval until all is over."""

    clients: list[Client]
    waited: list[JoinedStream]

    @property
    def tasks(self) -> list[JoinedStream]:
        return [task for client in self.clients for task in client.tasks]


async def _call_in_trouble(replicas: CrashingReplicas, told: ClientLog, hook: str) -> Callers:
    """Returns when every client has seen the end of all that it began."""
    over, room = asyncio.Event(), asyncio.Semaphore(_AT_WORK)
    async with asyncio.TaskGroup() as group:

        def client(number: int) -> Client:
            agent = tuple(AGENTS)[number % len(AGENTS)]
            name = f"{agent}-{number}"
            chance = random.Random(f"{SEED} {name}")
            return Client(replicas.line, told, group, over, agent, name, chance, hook, room)

        clients = [client(number) for number in range(CONTEXTS)]
        away, talking = clients[: len(AGENTS)], clients[len(AGENTS) :]
        waiting = [group.create_task(each.wait_for_the_last_kill()) for each in away]
        for each in talking:
            group.create_task(each.talk())
        await replicas.trouble(SECONDS, _SCHEDULE)
        over.set()
    return Callers(clients, [task.result() for task in waiting])


def _could_not_read(trouble: Json) -> bool:
    """Of a turn that goes on as after a crash: what it has to read is not waited for."""
    return trouble["event"] == "turn.not-recorded" and "exception" not in trouble


async def test_replicas_that_are_killed_and_stopped_on_a_server_that_crashes_lose_double_and_tear_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    print(f"CRASH_SEED={SEED} CRASH_SECONDS={SECONDS:g} CRASH_CONTEXTS={CONTEXTS}")  # noqa: T201
    line, told = Line(replicas=True), ClientLog()
    with postgres_server() as server, lying_at(tmp_path / "gateway.db", server.url()):
        async with (
            asyncio.timeout(180 + 3 * SECONDS),
            receiving() as receiver,
            crash_world(tmp_path, lease=LEASE_SECONDS, settings=f"push: {{timeout: 2s, {LOOPBACK}}}") as world,
            crashing_replicas(world, server, line, random.Random(SEED)) as replicas,
        ):
            callers = await _call_in_trouble(replicas, told, receiver.url)
            async with asyncio.timeout(_ENDS_WITHIN_SECONDS):
                await all_ended(world.database)
            await replicas.be_patient()

            assert violations(world.database) == []
            await for_each(callers.clients, nothing_has_changed)
            await for_each(callers.clients, the_conversation_goes_on)
            await until(lambda: posted(world))
        assert violations(world.database) == []
        assert effect_errors(world) == []
        assert unpaired_calls(world) == []
        assert post_errors(world, receiver, told) == []
        assert decisions_not_heeded(world, told) == []
        posts = f"{len(receiver.letters)} posts of {len(first_posts(receiver))} events for {len(told.pushed)} tasks"
        told_of = [f"seed {SEED}: {SECONDS:g} s, {CONTEXTS} contexts, {replicas}", *figures(world, told, callers.tasks)]
        with capsys.disabled():
            print("", *told_of, posts, f"refused for the time being: {dict(told.refusals)}", sep="\n")  # noqa: T201
    assert {why(task.task) for task in callers.waited} == {COMPLETED}
    assert {task.task["status"]["state"] for task in callers.tasks} <= FINAL
    assert odd_failures(callers.tasks, told) == []
    found_no_server = [gateway.log for gateway in replicas.serverless]
    assert [log for log in found_no_server if f"{LedgerUnavailable.__name__}: " not in log.read_text()] == []
    assert [each for each in troubles(tmp_path, but=found_no_server) if not _could_not_read(each)] == []
    # None of those that served has ended by itself.
    assert set(replicas.ends) == {-signal.SIGKILL}
    assert min(line.deaths, replicas.restarts, replicas.stops, told.decided.total(), len(told.pushed)) > 0
    assert sum(runs(world).values()) > 0
