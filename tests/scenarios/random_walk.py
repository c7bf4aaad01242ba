"""One random walk through a gateway: its world, its processes, and the checks after every step."""

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar, TypeVar

from hypothesis.stateful import RuleBasedStateMachine

from gateway.a2a.errors import UnsupportedOperation
from gateway.ports.adapter import Ending
from gateway.ports.conversation import HandleKind, Ownership
from gateway.ports.tools import ToolError, ToolOutput
from gateway.scheduling.leases import LeaseTimes
from tests.scenarios.controlled import Answer, ControlledBackend, Operation, Process, Run, Watching, quiet
from tests.scenarios.ledger_checks import LedgerFile, check, check_growth
from tests.scenarios.world import WAITING, Said, World
from tests.support import stores
from tests.support.core import START, Core

T = TypeVar("T")

LEASE = LeaseTimes(600)
"""Seconds: nothing is renewed by itself while an example runs."""


class Walk(RuleBasedStateMachine):
    """`steps` counts what was done in all walks. One of the processes is the one that clients speak to now."""

    ownership: ClassVar[Ownership]
    processes_at_once: ClassVar[int] = 1
    steps: ClassVar[int] = 0

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.folder = TemporaryDirectory()
        self.path = Path(self.folder.name) / "ledger.db"
        self.world = World(ControlledBackend(self.ownership))
        self.now = START
        self.names = 0
        self.held = False
        self.calm = True
        self.touched: set[str] | None = set()
        self.processes = [self.run(self.start()) for _ in range(self.processes_at_once)]
        self.file = LedgerFile(self.path)

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(coroutine)

    def teardown(self) -> None:
        for process in list(self.processes):
            self.run(self.kill(process))
        self.file.close()
        self.runner.close()
        stores.remove(self.path)
        self.folder.cleanup()

    async def start(self) -> Process:
        return await Process(self.path, self.name("p"), self.world.backend, LEASE, self.now).started()

    @property
    def process(self) -> Process:
        return self.processes[0]

    @property
    def core(self) -> Core:
        return self.process.core

    def home(self, context: str | None) -> Process:
        """The process to ask: clients that wait or watch in a context are served by the process that runs it."""
        return self.world.busy_in(context) or self.process

    def name(self, kind: str) -> str:
        self.names += 1
        return f"{kind}{self.names}"

    # --- the end of a step

    def touch(self, context: str | None) -> None:
        if context is not None and self.touched is not None:
            self.touched.add(context)

    async def then(self, after: int | None = None) -> None:
        """What every step ends with: all that must hold, and more of it when nothing is under way.

        `after`: so many rounds of the loop; None: until nothing more can happen.
        """
        type(self).steps += 1
        if after is None:
            await quiet(self.processes)
        else:
            for _ in range(after):
                await asyncio.sleep(0)
        settled = after is None and not self.held
        before, now = self.world.snapshot, self.file.read()
        check(now)
        check_growth(before, now, self.touched)
        self.world.learn(now)
        self.world.check_requests()
        self.world.check_tools()
        self.world.check_ends()
        self.world.check_texts(settled=settled)
        self.world.check_reads()
        self.world.check_streams(settled=settled)
        if settled and len(self.processes) > 1:
            # What an idle process still holds goes back with its next upkeep; the other one would wait for that.
            for process in self.processes:
                await process.core.runner._upkeep.renew()
        if settled:
            self.world.check_answers()
            self.world.let_go()
            self.touched = set()
        self.calm = settled
        self.pass_time(1)

    def pass_time(self, milliseconds: int) -> None:
        self.now += milliseconds
        for process in self.processes:
            process.core.time.now = self.now

    # --- what clients and the backend do

    async def send(
        self, text: str, context: str | None, way: str, where: dict[str, Any], key: str | None, after: int | None
    ) -> None:
        """`context` is the one that the message will get, None: not known yet."""
        self.touch(context)
        refusals, welcome = self.world.reception(context, key)
        if "task" in where and self.world.owner_of(key) is None:
            self.world.contend(where["task"])
            waits = any(task.id == where["task"] and task.state in WAITING for task in self.world.tasks)
            if not (self.calm and waits):
                refusals = (*refusals, UnsupportedOperation)
            welcome = welcome and waits
        first = self.world.owner_of(key)
        process = self.home(context if first is None else first.context)
        core, call, message = process.core, process.core.call(key=key), self.name("id-of-a-message-")
        asked: Operation | Watching
        if way == "stream":
            asked = Watching(process, core.stream(text, call, message_id=message, **where))
            self.world.watching.append((None, asked))
        else:
            sending = core.send(text, call, at_once=way == "at once", message_id=message, **where)
            asked = Operation(process, sending)
        said = Said(message, text, context, process, asked, key, where, at_once=way == "at once")
        # What comes next may make room for a message that is still on its way.
        said.refusals, said.welcome = refusals, welcome or not self.calm or after is not None
        self.world.said.append(said)
        await self.then(after)

    def going(self, index: int) -> Answer | None:
        """A service call that waits for its backend."""
        self.world.collect()
        going = [answer for answer in self.world.answers if answer.goes_on]
        if not going:
            return None
        self.touch(going[index % len(going)].call.request.context_id)
        return going[index % len(going)]

    def going_in(self, context: str) -> Answer | None:
        """The answer that the backend owes in this context."""
        self.world.collect()
        found = [a for a in self.world.answers if a.goes_on and a.call.request.context_id == context]
        if found:
            self.touch(context)
        return found[0] if found else None

    def complete(self, going: Answer, ending: Ending = Ending.COMPLETED, *, text: bool = True) -> None:
        if text:
            going.say(self.name("t"))
        rotates = self.ownership.handle is HandleKind.ROTATING
        going.complete(self.name("r") if rotates else None, ending)

    def ask(self, going: Answer, much: int) -> None:
        """For one tool, two or three; now and then for one that there is not."""
        calls = [self.name("t") for _ in range(1 + much % 3)]
        if much % 4 == 3:
            calls[0] += "x"
        rotates = self.ownership.handle is HandleKind.ROTATING
        going.ask(self.name("r") if rotates else None, calls)

    def at_tool(self, index: int) -> Run | None:
        """A tool that is at work."""
        runs = [run for run in self.world.backend.tools.runs if not run.over]
        if not runs:
            return None
        run = runs[index % len(runs)]
        for rows in self.world.snapshot.values():
            if any(tool.id == run.key for tool in rows.tools):
                self.touch(rows.public_id)
                return run
        self.touched = None
        return run

    def end(self, run: Run, how: str = "output") -> None:
        match how:
            case "output":
                run.end(ToolOutput(self.name("o")))
            case "error":
                run.end(ToolOutput(self.name("e"), error=True))
            case "breaks":
                run.end(ToolError("broken"))
            case _:
                run.end(asyncio.CancelledError())

    def speak(self, going: Answer, much: int) -> None:
        if much % 4 == 0:
            going.start(self.name("pending-"))
        for _ in range(much % 4):
            going.say(f"{self.name('t')} ")
            if much % 2:
                going.use_tool(self.name("c"))

    # --- processes and their disk

    def at_work(self) -> bool:
        return any(not turn.ended for rows in self.world.snapshot.values() for turn in rows.turns)

    def go_on(self) -> None:
        self.core.ledger.let_go()
        self.held = False

    async def kill(self, process: Process) -> None:
        process.die()
        self.world.leave(process)
        await process.stop()
        self.processes.remove(process)

    async def expire(self) -> None:
        """Time passes until the leases of the dead have run out; the living renew theirs."""
        for _ in range(2):
            self.pass_time(int(LEASE.length * 500) + 1)
            for process in self.processes:
                await process.core.runner._upkeep.renew()
