"""A supervisor and its workers: processes that do what a test says."""

import asyncio
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, MutableMapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import structlog

from gateway.app.workers.deaths import Deaths
from gateway.app.workers.messages import Begin
from gateway.app.workers.process import WorkerProcess, start_worker
from gateway.app.workers.supervisor import Supervisor, WorkersFailed
from tests.support.polling import until
from tests.support.processes import alive

pytestmark = pytest.mark.xdist_group("supervisor")

_WITHIN = 30
_COMMAND = (sys.executable, "-S", "-E", str(Path(__file__).with_name("scripted_worker.py")))


class World:
    """A supervisor in this process. `announced` has the URL each time that the gateway is ready."""

    def __init__(self, folder: Path, acts: tuple[str, ...], grace: float, closing: float) -> None:
        self.folder = folder
        self.announced: list[str] = []
        self._outcome = asyncio.get_running_loop().create_future()
        for number, lines in enumerate(acts, 1):
            (folder / f"acts-{number}").write_text(lines)
        deaths = Deaths(len(acts), first_wait=0.0)
        self._supervisor = Supervisor(self._start, len(acts), grace, self.announced.append, deaths, closing)

    async def run(self) -> None:
        try:
            async with asyncio.timeout(_WITHIN):
                self._outcome.set_result(await self._supervisor.run())
        except WorkersFailed as failed:
            self._outcome.set_result(failed)

    async def _start(self, number: int) -> WorkerProcess:
        return await start_worker((*_COMMAND, str(self.folder)), Begin(number, os.getpid(), 8080, None, [], {}, {}))

    def pids(self, number: int) -> list[int]:
        file = self.folder / f"starts-{number}"
        return [int(line) for line in file.read_text().split("\n")[:-1]] if file.exists() else []

    def heard(self) -> list[str]:
        file = self.folder / "heard"
        return sorted(file.read_text().splitlines()) if file.exists() else []

    async def ready(self) -> None:
        await until(lambda: bool(self.announced) or self._outcome.done())
        assert self.announced, self._outcome

    async def ended(self) -> bool:
        """Whether all had served."""
        outcome = await self._outcome
        assert isinstance(outcome, bool), outcome
        return outcome

    async def failed(self) -> tuple[int, str]:
        outcome = await self._outcome
        assert isinstance(outcome, WorkersFailed), outcome
        return outcome.code, outcome.text


@asynccontextmanager
async def world(folder: Path, *acts: str, grace: float = 20.0, closing: float = 20.0) -> AsyncIterator[World]:
    """For each worker, what it does at each start, a line each."""
    made = World(folder, acts, grace, closing)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(made.run())
        try:
            yield made
        finally:
            running.cancel()
            for pid in [pid for number in range(1, len(acts) + 1) for pid in made.pids(number) if alive(pid)]:
                os.kill(pid, signal.SIGKILL)


def stop() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


async def test_a_worker_that_cannot_start_ends_the_start_with_its_code_and_its_text(tmp_path: Path) -> None:
    async with world(tmp_path, "serves", "fails 69 no-database") as gateway:
        assert await gateway.failed() == (69, "no-database")
        assert gateway.announced == []
        assert not any(map(alive, gateway.pids(1) + gateway.pids(2)))


@pytest.mark.parametrize(
    ("act", "code", "how"),
    [("dies 3", 3, "ended with exit code 3"), ("dies 0", 1, "ended with exit code 0")],
)
async def test_one_that_dies_without_a_word_is_named(tmp_path: Path, act: str, code: int, how: str) -> None:
    async with world(tmp_path, "serves", act) as gateway:
        assert await gateway.failed() == (code, f"worker 2 of the gateway {how} before it served")


async def test_a_failed_start_does_not_wait_for_workers_that_are_starting(tmp_path: Path) -> None:
    async with world(tmp_path, "waits", "dies 3") as gateway:
        assert (await gateway.failed())[0] == 3
        assert not any(map(alive, gateway.pids(1)))


async def test_a_command_that_is_not_there_fails_the_start(tmp_path: Path) -> None:
    async def start(number: int) -> WorkerProcess:
        return await start_worker([str(tmp_path / "none")], Begin(number, os.getpid(), 0, None, [], {}, {}))

    with pytest.raises(WorkersFailed, match="worker 1 of the gateway cannot be started: No such file or directory"):
        await Supervisor(start, 1, 1.0, lambda _: None).run()


async def test_it_is_ready_once_when_all_serve(tmp_path: Path) -> None:
    with structlog.testing.capture_logs() as lines:
        gateway = await _ended_after_a_death(tmp_path, lines)
    assert gateway.announced == ["http://127.0.0.1:8080"]
    assert gateway.heard() == ["1 d", "2 d", "3 d"]


async def _ended_after_a_death(folder: Path, lines: Sequence[MutableMapping[str, Any]]) -> World:
    async with world(folder, "serves", "serves", "serves") as gateway:
        await gateway.ready()
        os.kill(gateway.pids(2)[0], signal.SIGKILL)
        await until(lambda: sum(line["event"] == "worker.serves" for line in lines) == 4)
        stop()
        assert await gateway.ended() is True
    return gateway


async def test_a_worker_that_dies_is_started_again_whatever_its_next_starts_are_like(tmp_path: Path) -> None:
    acts = "serves\ndies 3\nfails 78 mistake\nserves"
    with structlog.testing.capture_logs() as lines:
        async with world(tmp_path, "serves", acts) as gateway:
            await gateway.ready()
            os.kill(gateway.pids(2)[0], signal.SIGKILL)
            await until(lambda: sum(line["event"] == "worker.serves" for line in lines) == 3)
            stop()
            assert await gateway.ended() is True
    told = [
        re.sub(r"after \d+ s", "after a while", line["detail"]) for line in lines if line["event"] == "worker.ended"
    ]
    assert told == [
        "worker 2 of the gateway was killed by SIGKILL after a while of serving",
        "worker 2 of the gateway ended with exit code 3 before it served",
        "mistake",
    ]


async def test_it_gives_up_when_all_die_again_and_again(tmp_path: Path) -> None:
    async with world(tmp_path, "serves\ndies-serving", "serves\ndies 7") as gateway:
        await gateway.ready()
        os.kill(gateway.pids(1)[0], signal.SIGKILL)
        os.kill(gateway.pids(2)[0], signal.SIGKILL)
        code, text = await gateway.failed()
        assert (code, text.partition(" of ")[2][:11]) in [(1, "the gateway"), (7, "the gateway")]
        assert len(gateway.pids(1)) + len(gateway.pids(2)) >= 10


async def test_a_signal_during_the_start_ends_it_and_what_has_started(tmp_path: Path) -> None:
    async with world(tmp_path, "serves", "waits") as gateway:
        await until(lambda: "2 waits" in gateway.heard())
        stop()
        assert await gateway.ended() is False
        assert gateway.announced == []
        assert not any(map(alive, gateway.pids(1) + gateway.pids(2)))


async def test_a_worker_that_dies_during_the_drain_is_not_started_again(tmp_path: Path) -> None:
    async with world(tmp_path, "serves", "dies-draining") as gateway:
        await gateway.ready()
        stop()
        assert await gateway.ended() is True
        assert [len(gateway.pids(number)) for number in (1, 2)] == [1, 1]


async def test_a_second_signal_tells_workers_not_to_wait_for_their_turns(tmp_path: Path) -> None:
    async with world(tmp_path, "slow", "slow") as gateway:
        await gateway.ready()
        stop()
        await until(lambda: gateway.heard() == ["1 d", "2 d"])
        stop()
        assert await gateway.ended() is True
        assert gateway.heard() == ["1 d", "1 e", "2 d", "2 e"]


async def test_the_end_of_the_grace_tells_it_too(tmp_path: Path) -> None:
    async with world(tmp_path, "slow", "serves", grace=0.0) as gateway:
        await gateway.ready()
        stop()
        assert await gateway.ended() is True
        assert "1 e" in gateway.heard()


@pytest.mark.parametrize("act", ["deaf", "waits deaf"])
async def test_a_worker_that_does_not_end_is_killed(tmp_path: Path, act: str) -> None:
    async with world(tmp_path, "serves", act, grace=0.0, closing=0.2) as gateway:
        await until(lambda: bool(gateway.announced) or "2 waits" in gateway.heard())
        stop()
        assert await gateway.ended() is (act == "deaf")
        assert not any(map(alive, gateway.pids(1) + gateway.pids(2)))


async def test_sighup_reaches_every_worker(tmp_path: Path) -> None:
    async with world(tmp_path, "serves", "serves") as gateway:
        await gateway.ready()
        os.kill(os.getpid(), signal.SIGHUP)
        await until(lambda: gateway.heard() == ["1 r", "2 r"])
        stop()
        assert await gateway.ended() is True
