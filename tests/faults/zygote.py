"""Gateways forked from a process that has imported everything: each is a process that can be killed, and starts in a
tenth of the time.

Run as a module it reads a line of JSON for each gateway that is wanted, and writes one when a gateway serves or ended.
"""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from gateway.app.application import serve
from gateway.app.failpoints import VARIABLE
from gateway.config.loader import load
from gateway.config.plugins import Registry
from gateway.foundation.logs import configure_logging
from tests.faults.effects import attach

_PROJECT = Path(__file__).parents[2]
_WITHIN_SECONDS = 60


@dataclass(slots=True)
class Forked:
    """A gateway of its own process. `ended` has the signal that killed it."""

    pid: int
    log: Path
    url: asyncio.Future[str]
    ended: asyncio.Future[int]

    async def ready(self) -> bool:
        """False when it died on the way."""
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
class Zygote:
    process: asyncio.subprocess.Process
    children: dict[int, Forked] = field(default_factory=dict)
    _forked: asyncio.Queue[Forked] = field(default_factory=asyncio.Queue)
    _count: int = 0

    async def fork(self, file: Path, fail: str = "", *, tools: bool = False, idempotent: bool = False) -> Forked:
        """A gateway on this configuration, which may not serve yet. One that is wanted while another is waits for it.

        `tools`: its agents have a tool of the gateway, with effects in the folder of the configuration; which may be
        `idempotent`.
        """
        self._count += 1
        order = {
            "file": str(file),
            "fail": fail,
            "tools": tools,
            "idempotent": idempotent,
            "log": str(file.parent / f"gateway-{self._count}.log"),
        }
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(order).encode() + b"\n")
        return await self._forked.get()

    async def serving(self, file: Path, fail: str = "", *, tools: bool = False, idempotent: bool = False) -> Forked:
        child = await self.fork(file, fail, tools=tools, idempotent=idempotent)
        assert await child.ready(), child.log.read_text()
        return child

    async def listen(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            match json.loads(line):
                case {"forked": pid, "log": log}:
                    loop = asyncio.get_running_loop()
                    child = Forked(pid, Path(log), loop.create_future(), loop.create_future())
                    self.children[pid] = child
                    self._forked.put_nowait(child)
                case {"pid": pid, "url": url}:
                    self.children[pid].url.set_result(url)
                case {"pid": pid, "ended": code}:
                    self.children[pid].ended.set_result(code)


@asynccontextmanager
async def zygote() -> AsyncIterator[Zygote]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        __name__,
        cwd=_PROJECT,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        start_new_session=True,
        env={name: value for name, value in os.environ.items() if not name.startswith("A2A_GATEWAY__")},
    )
    made = Zygote(process)
    async with asyncio.TaskGroup() as group:
        listening = group.create_task(made.listen())
        try:
            yield made
        finally:
            # With all of its children, also those that it has not told of: they hold its pipes open.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
            listening.cancel()


# --- in the process of its own ---


def _tell(**what: object) -> None:
    """In one write, which the pipe does not mix with those of others."""
    os.write(1, json.dumps(what).encode() + b"\n")


def _reap(*_: object) -> None:
    with suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            _tell(pid=pid, ended=os.waitstatus_to_exitcode(status))


def _gateway(order: dict[str, Any]) -> None:
    os.dup2(os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
    os.environ.pop(VARIABLE, None)
    if order["fail"]:
        os.environ[VARIABLE] = order["fail"]
    file = Path(order["file"])
    if order["tools"]:
        attach(file.parent, idempotent=order["idempotent"])
    config = load(file.read_text(), source=file.name, env={}, resolver=Registry(), base_dir=file.parent)
    configure_logging()
    asyncio.run(serve(config, lambda url: _tell(pid=os.getpid(), url=url)))


def main() -> None:
    signal.signal(signal.SIGCHLD, _reap)
    for line in sys.stdin:
        order = json.loads(line)
        # Nothing is told of it before its beginning.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
        begin, told = os.pipe()
        pid = os.fork()
        if pid == 0:
            _child(order, begin, told)
        os.close(begin)
        _tell(forked=pid, log=order["log"])
        os.close(told)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})


def _child(order: dict[str, Any], begin: int, told: int) -> NoReturn:
    code = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
        os.close(told)
        os.read(begin, 1)
        os.close(begin)
        _gateway(order)
        code = 0
    finally:
        os._exit(code)


if __name__ == "__main__":
    main()
