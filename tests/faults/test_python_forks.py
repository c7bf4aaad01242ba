"""Python agents and tools that fork: the copy of the process ends where it comes back from their code, and serves nobody; the
process that they forked goes on as if nothing had been."""

import asyncio
import json
import os
import signal
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from gateway.testing.serving import serve
from tests.a2a_client import A2A, COMPLETED, Json, a2a_http, text_of, why
from tests.emulators.responses_server import ResponsesServer
from tests.emulators.scripts import Call, Conversation, Say, Step
from tests.running import Child, child_gateways
from tests.support.polling import until
from tests.support.processes import alive

pytestmark = [pytest.mark.xdist_group("python-forks"), pytest.mark.fault("P4")]

_SOURCE = '''
import asyncio
import fcntl
import multiprocessing
import os
import re
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

EXECUTOR = ThreadPoolExecutor(1)


def leave_copy(pid, way):
    if not pid and way == "exits":
        sys.exit(0)
    if not pid and way == "fails":
        raise ValueError("in the copy")


async def on_the_loop(turn):
    way, loop = turn.text, asyncio.get_running_loop()
    match way:
        case "forks in to_thread":
            pid = await asyncio.to_thread(os.fork)
        case "forks in an executor of its own":
            pid = await loop.run_in_executor(EXECUTOR, os.fork)
        case "fails in an executor of its own":
            pid = await loop.run_in_executor(EXECUTOR, fork_and_fail)
        case "forks in a callback":
            forked = loop.create_future()
            loop.call_soon(lambda: forked.set_result(os.fork()))
            pid = await forked
        case "forks in a task":
            async def fork():
                return os.fork()
            pid = await loop.create_task(fork())
        case _:
            pid = os.fork()
    leave_copy(pid, way)
    if not pid and way == "returns":
        return
    if not pid and way == "waits":
        await asyncio.sleep(0.001)
    if not pid and way == "exits in a task":
        task = loop.create_task(exits())
        await task
    yield str(pid)
    if not pid:
        open(f"{__file__}.reached", "w").close()


def fork_and_fail():
    pid = os.fork()
    if not pid:
        raise ValueError("in the copy")
    return pid


async def exits():
    sys.exit(0)


def in_a_thread(turn):
    pid = os.fork()
    leave_copy(pid, turn.text)
    if not pid and turn.text == "returns":
        return
    yield str(pid)
    if not pid:
        open(f"{__file__}.reached", "w").close()


def plain(turn):
    pid = os.fork()
    leave_copy(pid, turn.text)
    return str(pid)


def lives_on(turn):
    pid = os.fork()
    if not pid:
        if turn.text == "outlives":
            for number in map(int, os.listdir("/proc/self/fd")):
                with suppress(OSError):
                    fcntl.fcntl(number, fcntl.F_SETFL, fcntl.fcntl(number, fcntl.F_GETFL) & ~os.O_ASYNC)
            open(f"{__file__}.outlives", "w").close()
        time.sleep(3600)
    return str(pid)


def begin_process():
    process = multiprocessing.get_context("fork").Process(target=time.sleep, args=(3600,))
    process.start()
    return process.pid


def copy_of_a_copy():
    reading, writing = os.pipe()
    if not os.fork():
        pid = os.fork()
        if pid:
            os.write(writing, str(pid).encode())
        time.sleep(3600)
    return int(os.read(reading, 20))


def compute():
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        os.write(writing, b"begun")
        re.match("(a+)+$", "a" * 60 + "b")  # it keeps the lock of the interpreter
    os.read(reading, 5)
    return pid


def lives(turn):
    return str({"begins a process": begin_process, "forks a copy": copy_of_a_copy, "computes": compute}[turn.text]())


def square(connection, number):
    connection.send(number * number)


def never_end(connection):
    connection.send("begun")
    time.sleep(3600)


async def computes(turn):
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    worker = context.Process(target=square, args=(theirs, 7))
    worker.start()
    result = await asyncio.to_thread(ours.recv)
    worker.join()
    endless = context.Process(target=never_end, args=(theirs,))
    endless.start()
    await asyncio.to_thread(ours.recv)
    endless.terminate()
    await asyncio.to_thread(endless.join)
    return f"{result} {worker.exitcode} {endless.exitcode}"


def fork_tool() -> int:
    """Forks."""
    return os.fork()


async def async_fork_tool() -> int:
    """Forks on its loop."""
    return os.fork()


async def waits(text):
    yield "begun"
    await asyncio.Event().wait()


def echo(text):
    return text
'''

_ON_THE_LOOP = (
    "goes on",
    "returns",
    "exits",
    "fails",
    "waits",
    "exits in a task",
    "forks in to_thread",
    "forks in an executor of its own",
    "fails in an executor of its own",
    "forks in a callback",
    "forks in a task",
)
_LIVES = ("begins a process", "forks a copy", "computes")
_IN_A_THREAD = ("goes on", "returns", "exits", "fails")


def _script(conversation: Conversation) -> Iterator[Step]:
    if conversation.tool_outputs:
        yield Say(" ".join(conversation.tool_outputs.values()))
    else:
        yield Call(conversation.text, {}, call_id="c1")


@asynccontextmanager
async def _gateway(folder: Path, run_in: str = "thread") -> AsyncIterator[Child]:
    (folder / "forking.py").write_text(_SOURCE)
    common = f"type: python, run_in: {run_in}, ref: './forking.py"
    names = ("on_the_loop", "in_a_thread", "plain", "lives_on", "lives", "waits", "computes", "echo")
    agents = [f"{name.replace('_', '-')}: {{{common}:{name}'}}" for name in names]
    tools = "\n".join(f"  {name.replace('_', '-')}: {{{common}:{name}'}}" for name in ("fork_tool", "async_fork_tool"))
    async with serve(ResponsesServer(_script).app) as url:
        agents.append(
            f"tools: {{type: openai-responses, model: m, base_url: '{url}/v1', tools: [fork-tool, async-fork-tool]}}"
        )
        settings = f"server: {{port: 0, shutdown_grace: 10s}}\nlimits: {{turn_timeout: 20s}}\ntools:\n{tools}"
        async with child_gateways("\n".join(agents), folder, settings=settings) as start:
            yield await start()


def _events(child: Child, event: str) -> list[Json]:
    lines = (json.loads(line) for line in bytes(child.output).split(b"\n") if line.startswith(b"{"))
    return [line for line in lines if line["event"] == event]


@pytest.mark.parametrize("run_in", ["thread", "process"])
@pytest.mark.parametrize(
    ("agent", "ways"), [("on-the-loop", _ON_THE_LOOP), ("in-a-thread", _IN_A_THREAD), ("plain", _IN_A_THREAD)]
)
async def test_the_copy_of_a_process_ends_behind_the_code_that_forked_it_and_its_turn_goes_on(
    tmp_path: Path, run_in: str, agent: str, ways: tuple[str, ...]
) -> None:
    async with _gateway(tmp_path, run_in) as child, a2a_http(child.url) as http:
        for way in ways:
            task = await A2A(http, agent).send(way)
            assert why(task) == COMPLETED, way
            pid = int(text_of(task))
            assert pid > 0
            await until(lambda: not alive(pid))  # noqa: B023
            assert why(await A2A(http, "echo").send("Hi")) == COMPLETED
        assert not (tmp_path / "forking.py.reached").exists()
        child.signal(signal.SIGTERM)
        assert await child.ended() == 0


@pytest.mark.parametrize("run_in", ["thread", "process"])
@pytest.mark.parametrize("tool", ["fork_tool", "async_fork_tool"])
async def test_a_copy_that_comes_back_from_a_tool_ends_and_the_tool_has_answered(
    tmp_path: Path, run_in: str, tool: str
) -> None:
    async with _gateway(tmp_path, run_in) as child, a2a_http(child.url) as http:
        for _ in range(2):
            task = await A2A(http, "tools").send(tool)
            assert why(task) == COMPLETED
            pid = int(text_of(task))
            await until(lambda: not alive(pid))  # noqa: B023


@pytest.mark.parametrize("run_in", ["thread", "process"])
async def test_code_that_runs_in_a_copy_on_purpose_is_left_alone(tmp_path: Path, run_in: str) -> None:
    async with _gateway(tmp_path, run_in) as child, a2a_http(child.url) as http:
        assert text_of(await A2A(http, "computes").send("Hi")) == "49 0 -15"
        assert _events(child, "python.copy-ended") == []


async def test_the_log_says_that_a_copy_came_back_and_of_which_agent_unless_it_exited(tmp_path: Path) -> None:
    async with _gateway(tmp_path) as child, a2a_http(child.url) as http:
        await A2A(http, "plain").send("exits")
        pid = int(text_of(await A2A(http, "plain").send("goes on")))
        await until(lambda: bool(_events(child, "python.copy-ended")))
        (told,) = _events(child, "python.copy-ended")
        assert (told["agent"], told["pid"], told["level"]) == ("plain", pid, "error")


def _is_free(host: str, port: int) -> bool:
    try:
        socket.create_server((host, port)).close()
    except OSError:
        return False
    return True


@pytest.mark.parametrize("run_in", ["thread", "process"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_a_copy_that_lives_on_ends_with_the_gateway_and_no_sooner(
    tmp_path: Path, run_in: str, number: signal.Signals
) -> None:
    async with _gateway(tmp_path, run_in) as child, a2a_http(child.url) as http:
        pids = [int(text_of(await A2A(http, "lives").send(way))) for way in _LIVES]
        assert why(await A2A(http, "echo").send("Hi")) == COMPLETED
        assert [way for way, pid in zip(_LIVES, pids, strict=True) if not alive(pid)] == []
        child.signal(number)
        for pid in pids:
            await until(lambda: not alive(pid))  # noqa: B023


async def test_a_copy_that_outlives_the_gateway_keeps_neither_its_address_nor_a_connection(tmp_path: Path) -> None:
    """As copies do where the kernel cannot end them."""
    async with _gateway(tmp_path) as child, a2a_http(child.url) as http, A2A(http, "waits").stream("Hi") as stream:
        await stream.read_until(lambda frames: "begun" in str(frames))
        pid = int(text_of(await A2A(http, "lives-on").send("outlives")))
        try:
            await until((tmp_path / "forking.py.outlives").exists)
            child.signal(signal.SIGKILL)
            await until(lambda: not alive(child.pid))
            assert alive(pid)
            async with asyncio.timeout(60):
                await stream.rest()
            at = urlsplit(child.url)
            # The sockets of a process end a little later than its first thread.
            await until(lambda: _is_free(str(at.hostname), at.port or 0))
        finally:
            os.kill(pid, signal.SIGKILL)


async def test_a_copy_that_lives_on_can_be_terminated(tmp_path: Path) -> None:
    async with _gateway(tmp_path) as child, a2a_http(child.url) as http:
        pid = int(text_of(await A2A(http, "lives-on").send("Hi")))
        os.kill(pid, signal.SIGTERM)
        await until(lambda: not alive(pid))
        assert why(await A2A(http, "echo").send("Hi")) == COMPLETED
        assert _events(child, "drain.begun") == []
