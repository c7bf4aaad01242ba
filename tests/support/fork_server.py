"""Gateways forked from a process that has imported everything: each is a process of its own that can be killed, and starts in a
twentieth of the time of a fresh interpreter.

Each test process keeps one template, which imports the gateway once. Each `fork_server()` is forked from the template, with a
process group of its own, and forks gateways on request.
"""

import asyncio
import atexit
import gc
import importlib
import json
import os
import pkgutil
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NoReturn, Self

from tests.support.failpoints import Failpoints

_PROJECT = Path(__file__).parents[2]
_WITHIN_SECONDS = 60
_PACKAGES = ("adapters", "gateway", "storage")
_MOST = 65536
"""Bytes of an order."""
_NOT_KEPT = ("A2A_GATEWAY__", "COVERAGE_")
"""Prefixes of variables that override a configuration, or start a measurement of coverage that a kill would lose."""


@dataclass(slots=True)
class Forked:
    """A gateway in a process of its own. `ended` has its exit code, or minus the number of the signal that killed it."""

    log: Path
    born: asyncio.Future[int]
    url: asyncio.Future[str]
    ended: asyncio.Future[int]

    @property
    def pid(self) -> int:
        return self.born.result()

    async def ready(self) -> bool:
        """False when it died before it served."""
        async with asyncio.timeout(_WITHIN_SECONDS):
            both: tuple[asyncio.Future[Any], ...] = (self.url, self.ended)
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        return self.url.done()

    async def dead(self) -> int:
        async with asyncio.timeout(_WITHIN_SECONDS):
            return await asyncio.shield(self.ended)

    async def kill(self) -> None:
        self.signal(signal.SIGKILL)
        await self.dead()

    def signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def point(self) -> str:
        """The name of the failpoint that killed it."""
        lines = [json.loads(line) for line in self.log.read_text().splitlines() if line.startswith("{")]
        return next((line["point"] for line in lines if line["event"] == "failpoint"), "")


@dataclass(slots=True)
class ForkServer:
    _orders: socket.socket
    _children: list[Forked] = field(default_factory=list)

    async def fork(self, file: Path, fail: str = "", *, tools: bool = False, idempotent: bool = False) -> Forked:
        """A gateway on this configuration, which may not serve yet.

        `fail` is the setting of its failpoints. `tools`: its agents have a tool of the gateway, with effects in the folder of
        the configuration, which may be `idempotent`.
        """
        log = file.parent / f"gateway-{len(self._children)}.log"
        order = {"file": str(file), "fail": fail, "tools": tools, "idempotent": idempotent}
        with log.open("ab") as output:
            return await self._fork(order, output.fileno(), log)

    async def serving(self, file: Path, fail: str = "", *, tools: bool = False, idempotent: bool = False) -> Forked:
        child = await self.fork(file, fail, tools=tools, idempotent=idempotent)
        assert await child.ready(), child.log.read_text()
        return child

    async def command(self, arguments: list[str], environment: Mapping[str, str], output: int) -> Forked:
        """`a2a-gateway ARGUMENTS...`, which writes to this descriptor."""
        return await self._fork({"arguments": arguments, "environment": dict(environment)}, output, Path(os.devnull))

    async def _fork(self, order: dict[str, Any], output: int, log: Path) -> Forked:
        loop = asyncio.get_running_loop()
        child = Forked(log, loop.create_future(), loop.create_future(), loop.create_future())
        self._children.append(child)
        line = json.dumps(order | {"number": len(self._children) - 1}).encode()
        assert len(line) < _MOST
        socket.send_fds(self._orders, [line], [output])
        await child.born
        return child

    async def listen(self, reports: asyncio.StreamReader) -> None:
        """Until the server and all its children have ended."""
        async for line in reports:
            match json.loads(line):
                case {"number": number, "pid": pid}:
                    self._children[number].born.set_result(pid)
                case {"number": number, "url": url}:
                    self._children[number].url.set_result(url)
                case {"number": number, "ended": code}:
                    self._children[number].ended.set_result(code)


@asynccontextmanager
async def fork_server(**environment: str) -> AsyncIterator[ForkServer]:
    """Gateways that are forked in the block end with it. With an `environment` the server has a template of its own."""
    with _Template(environment) if environment else nullcontext(_template()) as template:
        async with _forked_from(template) as server:
            yield server


@asynccontextmanager
async def _forked_from(template: "_Template") -> AsyncIterator[ForkServer]:
    ours, theirs = socket.socketpair()
    reading, writing = os.pipe()
    try:
        socket.send_fds(template.requests, [b"."], [theirs.fileno(), writing])
    finally:
        theirs.close()
        os.close(writing)
    reports = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reports), os.fdopen(reading, "rb", buffering=0)
    )
    first = await reports.readline()
    assert first, "the template has ended: its traceback is in the output of this process"
    group = json.loads(first)["group"]
    server = ForkServer(ours)
    async with asyncio.TaskGroup() as tasks:
        listening = tasks.create_task(server.listen(reports))
        try:
            yield server
        finally:
            # The whole group: also children of which the server has not reported yet.
            with suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)
            await listening
            transport.close()
            ours.close()


class _Template:
    """`requests` takes the descriptors of each server that is wanted: the end of its socket and of its pipe."""

    def __init__(self, environment: dict[str, str]) -> None:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(_NOT_KEPT)}
        self.requests, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(theirs.fileno())],
                cwd=_PROJECT,
                stdin=subprocess.DEVNULL,
                env=kept | environment,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.requests.close()
        self._process.wait()


@cache
def _template() -> _Template:
    """That of this process; they end together."""
    template = _Template({})
    atexit.register(template.__exit__)
    return template


# --- in the processes of its own ---


def _import_everything() -> None:
    for package in map(importlib.import_module, _PACKAGES):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.endswith("__main__") and ".migrations." not in module.name:
                importlib.import_module(module.name)
    importlib.import_module("tests.faults.effects")
    # Nothing of it is looked at by the collectors of the children, and so nothing is copied for them.
    gc.collect()
    gc.freeze()


def _serve_template() -> None:
    _import_everything()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(fileno=int(sys.argv[1])) as requests:
        while True:
            asked, descriptors, _, _ = socket.recv_fds(requests, 1, 2)
            if not asked:
                return
            if os.fork() == 0:
                requests.close()
                _serve(*descriptors)
            for each in descriptors:
                os.close(each)


def _serve(orders: int, reports: int) -> NoReturn:
    """Forks what is asked for until the test closes its end."""
    try:
        os.setsid()
        children: dict[int, int] = {}

        def report(**what: object) -> None:
            """In one write, which the pipe does not mix with those of others."""
            os.write(reports, json.dumps(what).encode() + b"\n")

        def reap(*_: object) -> None:
            with suppress(ChildProcessError):
                while True:
                    pid, status = os.waitpid(-1, os.WNOHANG)
                    if pid == 0:
                        return
                    report(number=children[pid], ended=os.waitstatus_to_exitcode(status))

        signal.signal(signal.SIGCHLD, reap)
        report(group=os.getpid())
        with socket.socket(fileno=orders) as asked:
            while True:
                line, descriptors, _, _ = socket.recv_fds(asked, _MOST, 1)
                if not line:
                    break
                [output], order = descriptors, json.loads(line)
                # The end of a child is not reported before its beginning.
                signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
                pid = os.fork()
                if pid == 0:
                    asked.close()
                    _child(order, output, report)
                children[pid] = order["number"]
                report(number=order["number"], pid=pid)
                os.close(output)
                signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
    finally:
        os._exit(1)


def _child(order: dict[str, Any], output: int, report: Callable[..., None]) -> NoReturn:
    code: Any = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.close(output)
        # Those of the template were made for other files.
        sys.stdout, sys.stderr = (os.fdopen(number, "w", closefd=False) for number in (1, 2))
        if "arguments" in order:
            code = _run(order["arguments"], order["environment"])
        else:
            _gateway(order, report)
            code = 0
    except BaseException:
        traceback.print_exc()
        raise
    finally:
        with suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _run(arguments: list[str], environment: Mapping[str, str]) -> int:
    from gateway.cli.main import run

    os.environ.clear()
    os.environ.update(environment)
    return run(arguments)


def _gateway(order: dict[str, Any], report: Callable[..., None]) -> None:
    from gateway.app.process import serve
    from gateway.config.loader import load
    from gateway.config.plugins import Registry
    from gateway.foundation.logs import configure_logging
    from tests.faults.effects import attach

    if order["fail"]:
        Failpoints(order["fail"]).install()
    file = Path(order["file"])
    if order["tools"]:
        attach(file.parent, idempotent=order["idempotent"])
    config = load(file.read_text(), source=file.name, env={}, plugins=Registry(), base_dir=file.parent)
    configure_logging()
    asyncio.run(serve(config, lambda url: report(number=order["number"], url=url)))


if __name__ == "__main__":
    _serve_template()
