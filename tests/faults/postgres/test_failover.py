"""The server's machine is lost and a standby takes its place: with a synchronous one nothing acknowledged is missing, and the
gateways go on by themselves; one that lacks something is not used until somebody has decided."""

import asyncio
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import psycopg
import pytest

from tests.a2a_client import COMPLETED, user_message, why
from tests.faults.postgres.replicas import Replica, replicas
from tests.storage.postgres.test_failures import cut_off, run
from tests.storage.postgres.test_standby import is_synchronous, pair, waits_for_the_standby
from tests.support.polling import interval, until
from tests.support.postgres import Server, postgres_server, standby_of, url_of_all

_ENDED = {"TASK_STATE_COMPLETED", "TASK_STATE_FAILED"}
_WELL = {"database": "ok", "draining": "no", "changes": "notifications"}
_BEHIND = "The gateway's storage lacks what it has confirmed: nothing is taken until an operator has looked."
_REMEDY = "let the server catch up, or restart the gateway to go on without what is lost"


@dataclass(slots=True)
class _Callers:
    """`tasks` are those that were acknowledged, `refused` counts the messages that were not."""

    tasks: list[str] = field(default_factory=list)
    refused: int = 0
    over: asyncio.Event = field(default_factory=asyncio.Event)

    async def talk(self, replica: Replica) -> None:
        """Each message begins a context."""
        while not self.over.is_set():
            answer = await replica.http.post(
                "/a2a/echo/message:send",
                json={"message": user_message("hi"), "configuration": {"returnImmediately": True}},
            )
            if answer.status_code == 200:
                self.tasks.append(answer.json()["task"]["id"])
            else:
                self.refused += 1
                await interval()


async def _is_well(replica: Replica) -> bool:
    return await replica.checks() == (200, _WELL)


async def _has_ended(replica: Replica, task: str) -> bool:
    """Raises: Refused where the task is not known."""
    return (await replica.agent().get(task))["status"]["state"] in _ENDED


@pytest.mark.fault("D7")
@pytest.mark.parametrize("parted", [False, True], ids=["", "what waited for the standby never reaches it"])
async def test_with_a_synchronous_standby_nothing_acknowledged_is_lost_and_the_gateways_go_on_by_themselves(
    tmp_path: Path, parted: bool
) -> None:
    with pair() as (primary, standby):
        await until(partial(asyncio.to_thread, is_synchronous, primary))
        async with replicas(tmp_path, f"url: '{url_of_all(primary, standby)}'") as start:
            both = await start(), await start()
            callers = _Callers()
            async with asyncio.TaskGroup() as group:
                for number in range(4):
                    group.create_task(callers.talk(both[number % 2]))
                await until(lambda: len(callers.tasks) > 40)
                if parted:
                    await asyncio.to_thread(standby.stop, "fast")
                    await until(partial(asyncio.to_thread, waits_for_the_standby, primary))
                await asyncio.to_thread(primary.kill)
                before = len(callers.tasks)
                if parted:
                    await asyncio.to_thread(standby.start)
                await asyncio.to_thread(standby.promote)
                await until(lambda: len(callers.tasks) > before + 40)
                callers.over.set()
            for task in callers.tasks:
                await until(partial(_has_ended, both[0], task))
            # What was refused is not there: its caller sends it again.
            stored = await asyncio.to_thread(run, standby.url(), "SELECT id FROM task ORDER BY id")
            assert stored == [(task,) for task in sorted(callers.tasks)]
            for replica in both:
                await until(partial(_is_well, replica))
                assert why(await replica.agent().send("after", "c")) == COMPLETED


def _has_all(primary: Server, standby: Server) -> bool:
    with psycopg.connect(primary.url()) as one, psycopg.connect(standby.url()) as other:
        [(written,)] = one.execute("SELECT pg_current_wal_lsn()").fetchall()
        return other.execute("SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn", (written,)).fetchall() == [(True,)]


@pytest.mark.fault("D7")
async def test_a_standby_that_lacks_what_was_acknowledged_is_neither_written_to_nor_read(tmp_path: Path) -> None:
    with postgres_server() as primary, standby_of(primary) as standby:
        async with replicas(tmp_path, f"url: '{url_of_all(primary, standby)}'") as start:
            replica = await start()
            await until(partial(asyncio.to_thread, _has_all, primary, standby))
            await asyncio.to_thread(standby.stop, "fast")
            lost = await replica.agent().send("one", "c")
            await asyncio.to_thread(primary.kill)
            await asyncio.to_thread(standby.start)
            await asyncio.to_thread(standby.promote)

            # To say that there is no such task would be a wrong answer.
            assert await replica.refused_read(lost["id"]) == (503, "behind", _BEHIND)
            assert await replica.refusal() == (503, "behind", _BEHIND)
            status, checks = await replica.checks()
            assert (status, checks["database"]) == (503, "behind")
            assert _REMEDY in replica.process.log.read_text()
            assert await asyncio.to_thread(run, standby.url(), "SELECT count(*) FROM task") == [(0,)]

            await replica.process.kill()
            again = await start()
            await until(partial(_is_well, again))
            assert why(await again.agent().send("two", "c")) == COMPLETED


@pytest.mark.fault("D7")
async def test_a_server_that_was_replaced_and_comes_back_is_not_used_by_those_that_know_better(tmp_path: Path) -> None:
    """It stands first in the URL, takes writes, and lacks what was said to its successor."""
    with pair() as (primary, standby):
        await until(partial(asyncio.to_thread, is_synchronous, primary))
        async with replicas(tmp_path, f"url: '{url_of_all(primary, standby)}'") as start:
            replica = await start()
            await asyncio.to_thread(primary.kill)
            await asyncio.to_thread(standby.promote)
            await until(partial(_is_well, replica))
            task = await replica.agent().send("one", "c")
            primary.configure({"synchronous_standby_names": ""})  # else it could confirm nothing
            await asyncio.to_thread(primary.start)
            await asyncio.to_thread(cut_off, standby.url())

            assert await replica.refused_read(task["id"]) == (503, "behind", _BEHIND)
            assert await replica.refusal() == (503, "behind", _BEHIND)
            assert await asyncio.to_thread(run, primary.url(), "SELECT count(*) FROM task") == [(0,)]
            await asyncio.to_thread(primary.stop, "fast")
            await until(partial(_is_well, replica))
            assert await replica.agent().get(task["id"]) == task
