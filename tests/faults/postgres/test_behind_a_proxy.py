"""Replicas behind the nginx of deploy/compose-replicas: requests go to all of them, and one that is gone is passed over."""

from pathlib import Path

import psycopg

from tests.a2a_client import A2A, COMPLETED, a2a_http, why
from tests.faults.postgres.replicas import replicas
from tests.interop.proxies import proxy_of_replicas


def _processes(url: str) -> int:
    """How many have run turns."""
    with psycopg.connect(url) as connection:
        [(number,)] = connection.execute("SELECT count(DISTINCT process) FROM turn").fetchall()
        return int(number)


async def test_a_replica_that_is_killed_is_passed_over(tmp_path: Path, database_url: str) -> None:
    async with replicas(tmp_path, f"url: '{database_url}'") as start:
        one, two = await start(), await start()
        urls = [replica.process.url.result() for replica in (one, two)]
        async with proxy_of_replicas(tmp_path, urls) as url, a2a_http(url) as http:
            caller = A2A(http, "echo")
            tasks = [await caller.send(f"message {number}", "c") for number in range(4)]
            assert _processes(database_url) == 2
            await one.process.kill()
            for _ in range(4):
                assert (await http.get("/readyz")).status_code == 200
            for number in range(4):
                assert why(await caller.send(f"another {number}", "c")) == COMPLETED
            assert [await caller.get(task["id"]) for task in tasks] == tasks
            assert (await http.get("/admin/api/v1/keys")).status_code == 403
