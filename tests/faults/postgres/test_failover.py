"""The server's machine is lost and a standby takes its place: with a synchronous one nothing acknowledged is missing, and the
gateway goes on by itself; one that lacks something is not used until somebody has decided."""

import asyncio
from functools import partial
from pathlib import Path

import psycopg

from tests.a2a_client import COMPLETED, why
from tests.faults.postgres.replicas import Replica, replicas
from tests.support.polling import until
from tests.support.postgres import Server, postgres_server, standby_of, url_of_all


def _is_synchronous(primary: Server) -> bool:
    with psycopg.connect(primary.url()) as connection:
        return connection.execute("SELECT sync_state FROM pg_stat_replication").fetchall() == [("sync",)]


async def _talk(replica: Replica, acknowledged: list[str], over: asyncio.Event, name: str) -> None:
    """Messages, of which each that is refused is none."""
    caller = replica.agent()
    while not over.is_set():
        answer = await caller.http.post(
            "/a2a/echo/message:send",
            json={
                "message": {"messageId": "m", "role": "ROLE_USER", "contextId": name, "parts": [{"text": "hi"}]},
                "configuration": {"returnImmediately": True},
            },
        )
        if answer.status_code == 200:
            acknowledged.append(answer.json()["task"]["id"])


async def test_with_a_synchronous_standby_nothing_acknowledged_is_lost_and_the_gateway_goes_on_by_itself(
    tmp_path: Path,
) -> None:
    with postgres_server() as primary, standby_of(primary) as standby:
        primary.configure({"synchronous_standby_names": "standby"})
        primary.reload()
        await until(partial(asyncio.to_thread, _is_synchronous, primary))
        async with replicas(tmp_path, f"url: '{url_of_all(primary, standby)}'") as start:
            one, two = await start(), await start()
            acknowledged: list[str] = []
            over = asyncio.Event()
            async with asyncio.TaskGroup() as group:
                for number in range(4):
                    group.create_task(_talk((one, two)[number % 2], acknowledged, over, f"c-{number}"))
                await until(lambda: len(acknowledged) > 40)
                await asyncio.to_thread(primary.stop, "immediate")
                seen = len(acknowledged)
                await asyncio.to_thread(standby.promote)
                await until(lambda: len(acknowledged) > seen + 40)
                over.set()
            for replica in (one, two):
                assert await replica.checks() == (200, {"database": "ok", "draining": "no", "changes": "notifications"})
            for task in acknowledged:
                await until(partial(_has_ended, two, task))
            assert why(await one.agent().send("after", "c-0")) == COMPLETED


async def _has_ended(replica: Replica, task: str) -> bool:
    state = (await replica.agent().get(task))["status"]["state"]
    assert state != "TASK_STATE_REJECTED"
    return state in {"TASK_STATE_COMPLETED", "TASK_STATE_FAILED"}


async def test_a_standby_that_lacks_what_was_acknowledged_is_neither_written_to_nor_read(tmp_path: Path) -> None:
    with postgres_server() as primary, standby_of(primary) as standby:
        async with replicas(tmp_path, f"url: '{url_of_all(primary, standby)}'") as start:
            replica = await start()
            caller = replica.agent()
            await until(partial(asyncio.to_thread, _has_all, primary, standby))
            await asyncio.to_thread(standby.stop, "fast")
            lost = await caller.send("one", "c")
            await asyncio.to_thread(primary.stop, "immediate")
            await asyncio.to_thread(standby.start)
            await asyncio.to_thread(standby.promote)

            read = await replica.refused_read(lost["id"])
            assert read[:2] == (503, "behind")
            assert (await replica.refusal())[:2] == (503, "behind")
            status, checks = await replica.checks()
            assert (status, checks["database"]) == (503, "behind")
            with psycopg.connect(standby.url()) as connection:
                assert connection.execute("SELECT count(*) FROM task").fetchall() == [(0,)]

            await replica.process.kill()
            again = await start()
            assert (await again.checks())[0] == 200
            assert why(await again.agent().send("two", "c")) == COMPLETED


def _has_all(primary: Server, standby: Server) -> bool:
    with psycopg.connect(primary.url()) as one, psycopg.connect(standby.url()) as other:
        [(at,)] = one.execute("SELECT pg_current_wal_lsn()").fetchall()
        [(there,)] = other.execute("SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn", (at,)).fetchall()
        return bool(there)
