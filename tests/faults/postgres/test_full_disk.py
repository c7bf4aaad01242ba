"""The disk of the server is full, and then has room again: everything acknowledged stays, reads continue, new work is refused
in plain words, and the gateway recovers by itself.

The tables lie on a small disk of their own, so that the server can go on; without room for its log it stops, as in a crash.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import psycopg
import pytest

from tests.a2a_client import COMPLETED, user_message, why
from tests.faults.postgres.replicas import Replica, replicas
from tests.support.polling import until
from tests.support.postgres import Server, as_user, postgres_server

_SIZE = "32m"

_LONG = "".join(map(str, range(20_000)))
"""What finds no room in pages that are there."""


@contextmanager
def _small_disk(server: Server) -> Iterator[Path]:
    """A folder of the server's user on a disk of its own."""
    folder = server.folder / "disk"
    folder.mkdir()
    if (
        os.geteuid() != 0
        or subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={_SIZE},mode=0700", "tmpfs", str(folder)],
            capture_output=True,
            check=False,
        ).returncode
    ):
        pytest.skip("nothing can be mounted here")
    try:
        user = as_user()
        shutil.chown(folder, user["user"], user["group"])
        yield folder
    finally:
        if server.running:
            server.stop()
        subprocess.run(["umount", str(folder)], check=True)


def _fill(disk: Path) -> None:
    with suppress(OSError), (disk / "filler").open("wb", buffering=0) as filler:
        while True:
            filler.write(bytes(4096))


async def _acknowledged_until_refused(replica: Replica) -> list[str]:
    """Pages that the tables have already still take some."""
    acknowledged: list[str] = []
    caller = replica.agent()
    while True:
        answer = await caller.http.post(
            "/a2a/echo/message:send",
            json={"message": user_message(_LONG), "configuration": {"returnImmediately": True}},
        )
        if answer.status_code != 200:
            return acknowledged
        acknowledged.append(answer.json()["task"]["id"])


async def _has_ended(replica: Replica, task: str) -> bool:
    return (await replica.agent().get(task))["status"]["state"] in {"TASK_STATE_COMPLETED", "TASK_STATE_FAILED"}


async def test_a_full_disk_loses_nothing_and_is_over_when_there_is_room(tmp_path: Path) -> None:
    with postgres_server({"autovacuum": "off"}) as server, _small_disk(server) as disk:
        with psycopg.connect(server.url(), autocommit=True) as connection:
            connection.execute(f"CREATE TABLESPACE small LOCATION '{disk}'".encode())
            connection.execute(b"CREATE DATABASE ledger TABLESPACE small")
        async with replicas(tmp_path, f"url: '{server.url('ledger')}'") as start:
            one, two = await start(), await start()
            first = await one.agent().send("Hello", "c-1")
            _fill(disk)

            acknowledged = await _acknowledged_until_refused(one)

            for replica in (one, two):
                assert await replica.refusal(_LONG) == (
                    503,
                    "full",
                    "The gateway's storage is full: nothing new is taken.",
                )
                assert await replica.agent().get(first["id"]) == first
                # Pages that are there take what is short, which does not make the gateway ready.
                await replica.http.post("/a2a/echo/message:send", json={"message": user_message("hi")})
                status, checks = await replica.checks()
                assert (status, checks["database"]) == (503, "full")
            assert (await one.agent().call("ListTasks"))["totalSize"] >= 1 + len(acknowledged)

            (disk / "filler").unlink()

            for replica in (one, two):
                await until(replica.is_ready)
                assert why(await replica.agent().send("more", "c-1")) == COMPLETED
            for task in acknowledged:
                # A turn whose end could not be stored is ended by whoever looks next.
                await until(partial(_has_ended, two, task))
