"""The end of `serve`: it comes, whatever code of the operator has left running, and only after that code had time to end."""

import asyncio
import json
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.a2a_client import A2A, COMPLETED, a2a_http, text_of, why
from tests.support.polling import until
from tests.support.processes import alive

pytestmark = pytest.mark.xdist_group("serve-end")

_AGENT = """
import atexit, concurrent.futures, multiprocessing, os, sys, threading, time

KEPT = []


def executor():
    KEPT.append(concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="mine"))
    KEPT[-1].submit(time.sleep, 3600)


def thread():
    threading.Thread(target=time.sleep, args=(3600,), name="mine_0", daemon=False).start()


def at_exit():
    atexit.register(time.sleep, 3600)


def process(method):
    child = multiprocessing.get_context(method).Process(target=time.sleep, args=(3600,))
    child.start()
    return child.pid


def pool(method):
    KEPT.append(concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context(method)))
    pid = KEPT[-1].submit(os.getpid).result()
    KEPT[-1].submit(time.sleep, 3600)
    return pid


def slow_at_exit():
    def end():
        print("at exit", file=sys.stderr, flush=True)
        time.sleep(3600)

    atexit.register(end)


def quick_at_exit():
    atexit.register(lambda: open("at_exit", "w").close())


async def agent(text):
    name, _, argument = text.partition(" ")
    return str(globals()[name](*argument.split()))
"""
_WITHIN_SECONDS = 30


class _Served:
    def __init__(self, process: Process) -> None:
        self.process = process
        self.lines: list[str] = []
        self._reading = asyncio.get_running_loop().create_task(self._read())

    async def _read(self) -> None:
        assert self.process.stderr is not None
        async for line in self.process.stderr:
            self.lines.append(line.decode())

    def events(self, name: str) -> list[dict[str, Any]]:
        lines = (json.loads(line) for line in self.lines if line.startswith("{"))
        return [line for line in lines if line["event"] == name]

    async def until(self, condition: Callable[[], object]) -> None:
        await until(lambda: bool(condition()))

    async def ended(self) -> int:
        async with asyncio.timeout(_WITHIN_SECONDS):
            code = await self.process.wait()
            # A copy of the process may have its standard error.
            await self._reading
        return code


@asynccontextmanager
async def _serving(folder: Path, agent: str = _AGENT) -> AsyncIterator[_Served]:
    (folder / "mine.py").write_text(agent)
    agents = 'agents: {mine: {type: python, ref: "./mine.py:agent"}}'
    (folder / "gateway.yaml").write_text(f"version: 1\nserver: {{port: 0, shutdown_grace: 1s}}\n{agents}\n")
    command = (sys.executable, "-m", "gateway", "serve", "--log-format", "json")
    process = await asyncio.create_subprocess_exec(*command, stderr=PIPE, cwd=folder)
    served = _Served(process)
    try:
        yield served
    finally:
        if process.returncode is None:
            process.kill()
        await served.ended()


async def _ask(served: _Served, text: str) -> str:
    await served.until(lambda: served.events("start.ready") or served.process.returncode is not None)
    async with a2a_http(served.events("start.ready")[0]["url"]) as http:
        task = await A2A(http, "mine").send(text)
    assert why(task) == COMPLETED
    return text_of(task)


@pytest.mark.parametrize("what", ["executor", "thread", "at_exit"])
async def test_it_ends_although_code_of_an_agent_goes_on_in_this_process_and_the_log_names_it(
    tmp_path: Path, what: str
) -> None:
    async with _serving(tmp_path) as served:
        await _ask(served, what)
        served.process.send_signal(signal.SIGTERM)
        assert await served.ended() == 0
        (told,) = served.events("end.forced")
        assert told["level"] == "warning"
        assert told["threads"] == ([] if what == "at_exit" else ["mine_0"])


@pytest.mark.parametrize("what", ["process fork", "process spawn", "pool fork", "pool spawn"])
async def test_it_ends_with_the_processes_that_code_of_an_agent_has_begun_and_the_log_names_them(
    tmp_path: Path, what: str
) -> None:
    async with _serving(tmp_path) as served:
        pid = int(await _ask(served, what))
        served.process.send_signal(signal.SIGTERM)
        assert await served.ended() == 0
        (told,) = served.events("end.forced")
        assert told["processes"] == [pid]
        await until(lambda: not alive(pid))


async def test_code_of_an_agent_has_time_to_end(tmp_path: Path) -> None:
    async with _serving(tmp_path) as served:
        await _ask(served, "quick_at_exit")
        served.process.send_signal(signal.SIGTERM)
        assert await served.ended() == 0
        assert (tmp_path / "at_exit").exists()
        assert served.events("end.forced") == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_at_the_end_means_now(tmp_path: Path, number: signal.Signals) -> None:
    async with _serving(tmp_path) as served:
        await _ask(served, "slow_at_exit")
        served.process.send_signal(signal.SIGTERM)
        await served.until(lambda: "at exit\n" in served.lines)
        served.process.send_signal(number)
        assert await served.ended() == 0
        assert served.events("end.forced") == []


async def test_it_ends_where_it_cannot_start_although_the_module_of_an_agent_has_begun_a_thread(tmp_path: Path) -> None:
    async with _serving(tmp_path, f"{_AGENT.replace('async def agent', 'async def other')}\nthread()\n") as served:
        assert await served.ended() == 78
        assert "has no 'agent'" in "".join(served.lines)
