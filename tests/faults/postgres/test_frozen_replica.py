"""A gateway stands still for longer than its lease: another one takes its turns, and when it wakes it writes nothing behind the
new holder; what it shows is what is stored."""

import asyncio
import signal
from functools import partial
from pathlib import Path

import psycopg
import pytest

from tests.a2a_client import COMPLETED, Frame, streamed_text, why
from tests.faults.paused_agents import AGENTS, paused_agents
from tests.faults.postgres.replicas import Replica, replicas
from tests.support.polling import until

_FINAL = {"TASK_STATE_COMPLETED", "TASK_STATE_FAILED"}


async def _has_ended(replica: Replica, agent: str, task: str) -> bool:
    return (await replica.agent(agent).get(task))["status"]["state"] in _FINAL


def _numbered(frames: list[Frame]) -> dict[int, object]:
    """Without the task, with which a stream may begin."""
    return {frame.number: frame.event for frame in frames if frame.number is not None and "task" not in frame.event}


def _log(url: str, task: str) -> list[tuple[object, ...]]:
    with psycopg.connect(url) as connection:
        return connection.execute("SELECT last, payload FROM event WHERE task = %s ORDER BY last", (task,)).fetchall()


@pytest.mark.parametrize("agent", AGENTS)
async def test_a_replica_that_was_frozen_for_longer_than_its_lease_writes_nothing_behind_the_one_that_took_over(
    tmp_path: Path, database_url: str, agent: str
) -> None:
    async with (
        asyncio.timeout(60),
        paused_agents(tmp_path) as held,
        replicas(tmp_path, f"url: '{database_url}'", held.agents, lease="2s") as start,
    ):
        frozen, other = await start(), await start()
        text = f"talking {agent}"
        async with frozen.agent(agent).stream(text, "c") as own:
            await own.read_until(lambda frames: streamed_text(frames) == "one two ")
            task = own.frames[0].event["task"]["id"]
            async with other.agent(agent).subscribe(task) as watched:
                await watched.read(1)
                frozen.process.signal(signal.SIGSTOP)
                await until(partial(_has_ended, other, agent, task))
                ended = await other.agent(agent).get(task)
                stored = await asyncio.to_thread(_log, database_url, task)
                await watched.rest()
                held.go_on[text].set()
                frozen.process.signal(signal.SIGCONT)
                await own.rest()
        # Its own stream ends without a last event: whoever resumes it gets what is stored.
        seen = _numbered(own.frames)
        assert not own.cut
        async with frozen.agent(agent).subscribe(task, after=max(seen)) as rest:
            await rest.rest()
        seen |= _numbered(rest.frames)
        after = await frozen.agent(agent).send("after", "c")
        assert why(after) == COMPLETED
        assert await frozen.agent(agent).get(task) == await other.agent(agent).get(task) == ended
        assert await asyncio.to_thread(_log, database_url, task) == stored
        assert sorted(seen) == list(range(1, max(seen) + 1))
        others = _numbered(watched.frames)
        assert {number: event for number, event in seen.items() if number in others} == others
        assert seen[max(seen)] == others[max(others)]
        assert (await frozen.checks())[0] == 200
