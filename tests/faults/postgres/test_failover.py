"""The server's machine is lost and a standby takes its place: with a synchronous one nothing acknowledged is missing, and the
gateways go on by themselves; one that lacks something is not used until somebody has decided."""

import asyncio
from functools import partial
from pathlib import Path

import psycopg

from tests.a2a_client import COMPLETED, user_message, why
from tests.faults.postgres.replicas import Replica, replicas
from tests.storage.postgres.test_standby import is_synchronous, pair
from tests.support.polling import until
from tests.support.postgres import Server, postgres_server, standby_of, url_of_all

_ENDED = {"TASK_STATE_COMPLETED", "TASK_STATE_FAILED"}
_WELL = {"database": "ok", "draining": "no", "changes": "notifications"}


async def _talk(replica: Replica, context: str, acknowledged: list[str], over: asyncio.Event) -> None:
    """One message after another; some are refused meanwhile."""
    while not over.is_set():
        answer = await replica.http.post(
            "/a2a/echo/message:send",
            json={"message": user_message("hi", context), "configuration": {"returnImmediately": True}},
        )
        if answer.status_code == 200:
            acknowledged.append(answer.json()["task"]["id"])


async def _is_well(replica: Replica) -> bool:
    return await replica.checks() == (200, _WELL)


async def _has_ended(replica: Replica, task: str) -> bool:
    """Raises: Refused where the task is not known."""
    return (await replica.agent().get(task))["status"]["state"] in _ENDED


async def test_with_a_synchronous_standby_nothing_acknowledged_is_lost_and_the_gateways_go_on_by_themselves(
    tmp_path: Path,
) -> None:
    with pair() as (primary, standby):
        await until(partial(asyncio.to_thread, is_synchronous, primary))
        async with replicas(tmp_path, f"url: '{url_of_all(primary, standby)}'") as start:
            both = await start(), await start()
            acknowledged: list[str] = []
            over = asyncio.Event()
            async with asyncio.TaskGroup() as group:
                for number in range(4):
                    group.create_task(_talk(both[number % 2], f"c-{number}", acknowledged, over))
                await until(lambda: len(acknowledged) > 40)
                await asyncio.to_thread(primary.stop, "immediate")
                before = len(acknowledged)
                await asyncio.to_thread(standby.promote)
                await until(lambda: len(acknowledged) > before + 40)
                over.set()
            for replica in both:
                await until(partial(_is_well, replica))
                assert why(await replica.agent().send("after", "c-0")) == COMPLETED
            for task in acknowledged:
                await until(partial(_has_ended, both[0], task))


def _has_all(primary: Server, standby: Server) -> bool:
    with psycopg.connect(primary.url()) as one, psycopg.connect(standby.url()) as other:
        [(written,)] = one.execute("SELECT pg_current_wal_lsn()").fetchall()
        return other.execute("SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn", (written,)).fetchall() == [(True,)]


async def test_a_standby_that_lacks_what_was_acknowledged_is_neither_written_to_nor_read(tmp_path: Path) -> None:
    with postgres_server() as primary, standby_of(primary) as standby:
        async with replicas(tmp_path, f"url: '{url_of_all(primary, standby)}'") as start:
            replica = await start()
            await until(partial(asyncio.to_thread, _has_all, primary, standby))
            await asyncio.to_thread(standby.stop, "fast")
            lost = await replica.agent().send("one", "c")
            await asyncio.to_thread(primary.stop, "immediate")
            await asyncio.to_thread(standby.start)
            await asyncio.to_thread(standby.promote)

            # To say that there is no such task would be a wrong answer.
            text = "The gateway's storage lacks what it has confirmed: nothing is taken until an operator has looked."
            assert await replica.refused_read(lost["id"]) == (503, "behind", text)
            assert await replica.refusal() == (503, "behind", text)
            status, checks = await replica.checks()
            assert (status, checks["database"]) == (503, "behind")
            with psycopg.connect(standby.url()) as connection:
                assert connection.execute("SELECT count(*) FROM task").fetchall() == [(0,)]

            await replica.process.kill()
            again = await start()
            await until(partial(_is_well, again))
            assert why(await again.agent().send("two", "c")) == COMPLETED
