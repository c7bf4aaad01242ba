"""The disk is full, and then has room again: everything acknowledged stays, reads continue, new work gets a plain error, and
the gateway recovers by itself."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.a2a_client import A2A, a2a_http, text_of, user_message
from tests.running import _PROJECT, Child, _environment

MOUNT = 'mount -t tmpfs -o size=3m tmpfs "$1" && shift && exec "$@"'


def can_mount(folder: Path) -> bool:
    try:
        done = subprocess.run(
            ["unshare", "-rm", "sh", "-c", MOUNT, "sh", str(folder), "true"], capture_output=True, timeout=20
        )
    except OSError:
        return False
    return done.returncode == 0


class OnSmallDisk(Child):
    """A gateway whose database has a disk of its own, which only its process sees."""

    disk = Path()

    def seen_from_here(self) -> Path:
        return Path(f"/proc/{self.pid}/root") / self.disk.relative_to("/")

    def fill(self) -> None:
        with suppress(OSError), (self.seen_from_here() / "filler").open("wb", buffering=0) as filler:
            while True:
                filler.write(bytes(4096))

    def make_room(self) -> None:
        (self.seen_from_here() / "filler").unlink()


@asynccontextmanager
async def on_small_disk(folder: Path) -> AsyncIterator[OnSmallDisk]:
    disk = folder / "disk"
    disk.mkdir()
    if not can_mount(disk):
        pytest.skip("nothing can be mounted here")
    file = folder / "gateway.yaml"
    file.write_text(
        f"version: 1\nserver: {{port: 0}}\nstorage: {{url: 'sqlite:///{disk}/gateway.db', lease_timeout: 1s}}\n"
        'agents: {echo: {type: python, ref: "gateway.cli.demo.agent:reply"}}\n'
    )
    command = ["unshare", "-rm", "sh", "-c", MOUNT, "sh", str(disk), sys.executable, "-m", "gateway", "serve"]
    _, child = await asyncio.get_running_loop().subprocess_exec(
        OnSmallDisk,
        *command,
        "-c",
        str(file),
        cwd=_PROJECT,
        env=_environment(),
        stdin=None,
        stderr=asyncio.subprocess.STDOUT,
    )
    child.disk = disk
    try:
        await child.ready()
        yield child
    finally:
        await child.aclose()


async def refused(http: httpx2.AsyncClient, acknowledged: list[str]) -> httpx2.Response:
    """Sends messages until one is refused: the log has some room of its own left."""
    async with asyncio.timeout(60):
        while True:
            answer = await http.post("/a2a/echo/message:send", json={"message": user_message("x" * 20_000)})
            if answer.status_code != 200:
                return answer
            acknowledged.append(answer.json()["task"]["id"])


async def checks(http: httpx2.AsyncClient) -> tuple[int, Any]:
    answer = await http.get("/readyz?verbose")
    return answer.status_code, answer.json()["checks"]["database"]


@pytest.mark.fault("D2")
async def test_a_full_disk_loses_nothing_and_is_over_when_there_is_room(tmp_path: Path) -> None:
    async with on_small_disk(tmp_path) as child, a2a_http(child.url) as http:
        agent = A2A(http, "echo")
        first = await agent.send("Hello", "c-1")
        assert await checks(http) == (200, "ok")
        child.fill()
        acknowledged: list[str] = []

        answer = await refused(http, acknowledged)

        error = answer.json()["error"]
        assert (answer.status_code, error["status"]) == (503, "UNAVAILABLE")
        assert error["message"] == "The gateway's storage is full: nothing new is taken."
        assert error["details"][0]["metadata"] == {"storage": "full"}
        assert "retry-after" in answer.headers
        assert await checks(http) == (503, "full")
        assert await agent.get(first["id"]) == first
        assert (await agent.call("ListTasks"))["totalSize"] == 1 + len(acknowledged)
        async with asyncio.timeout(30):
            assert (await http.get("/livez")).status_code == 200

        child.make_room()

        assert await checks(http) == (200, "ok")
        more = await agent.send("more", "c-1")
        assert more["status"]["state"] == "TASK_STATE_COMPLETED"
        assert text_of(more)
        for task in acknowledged:
            # A turn whose end could not be stored is ended by whoever looks next, within seconds.
            async with asyncio.timeout(30):
                while (await agent.get(task))["status"]["state"] not in {"TASK_STATE_COMPLETED", "TASK_STATE_FAILED"}:
                    pass
