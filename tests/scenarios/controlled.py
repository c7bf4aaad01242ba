"""A backend and processes that a test controls step by step. Law: nothing here waits for a time, only for events."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gateway.core.tools.approval_rules import ApprovalRule
from gateway.core.tools.toolset import OfferedTool
from gateway.ledger.errors import LedgerUnavailable
from gateway.ledger.events import Frame
from gateway.ledger.points import CommitPoint
from gateway.ledger.port import Changed, Ledger
from gateway.operations.call import EventStream
from gateway.ports.adapter import (
    AdapterError,
    AdapterEvent,
    CallCompleted,
    CallStarted,
    Ending,
    ErrorClass,
    ServiceRequest,
    TextDelta,
    ToolCallReady,
    ToolResultReady,
)
from gateway.ports.conversation import Ownership
from gateway.ports.tools import SourceTool, ToolDeclaration, ToolOutput, ToolRun
from gateway.scheduling.leases import LeaseTimes
from tests.support.core import BOUND, Core, FragileLedger, running_core, soon


class SteeredCall:
    """A running service call that emits what the test orders. `over`: its reader is gone."""

    def __init__(self, request: ServiceRequest) -> None:
        self.request = request
        self.over = False
        self._steps: deque[AdapterEvent | Exception] = deque()
        self._told = asyncio.Event()

    def say(self, *steps: AdapterEvent | Exception) -> None:
        self._steps.extend(steps)
        self._told.set()

    async def next(self) -> AdapterEvent | Exception:
        while not self._steps:
            self._told.clear()
            await self._told.wait()
        return self._steps.popleft()


@dataclass
class Answer:
    """What the test ordered a service call to emit. `ending`: how it ends its turn, None while it runs.

    `asked` are the ids of the calls of the gateway's tools with which it is complete; then its turn goes on. `refused`: the
    content of the request was not accepted.
    """

    call: SteeredCall
    items: list[str] = field(default_factory=list)
    text: str = ""
    handle: str | None = None
    ending: Ending | None = None
    failed: bool = False
    refused: bool = False
    turn: str | None = None
    asked: tuple[str, ...] = ()

    def say(self, text: str) -> None:
        self.call.say(TextDelta(text))
        self.text += text
        if self.items and self.items[-1].startswith("A "):
            self.items[-1] += text
        else:
            self.items.append(f"A {text}")

    def use_tool(self, name: str) -> None:
        self.call.say(ToolCallReady(name, "add", "{}", handled=True), ToolResultReady(name, "3"))
        self.items += [f"C {name} add", f"O {name} 3"]

    def start(self, handle: str) -> None:
        """A handle that must lead to nothing."""
        self.call.say(CallStarted(handle))

    def complete(self, handle: str | None, ending: Ending) -> None:
        self.handle, self.ending = handle, ending
        self.call.say(CallCompleted(handle, ending))

    def ask(self, handle: str | None, calls: Sequence[str]) -> None:
        """Ids that end with "x" are of a tool that there is not."""
        for name in calls:
            self.call.say(ToolCallReady(name, _tool_of(name), "{}"))
        self.handle, self.asked = handle, tuple(calls)
        self.call.say(CallCompleted(handle))

    def fail(self, error: Exception) -> None:
        self.failed, self.refused = True, error is NOT_TAKEN
        self.call.say(error)

    @property
    def goes_on(self) -> bool:
        return not self.call.over and self.ending is None and not self.failed and not self.asked


def _tool_of(call: str) -> str:
    return "none" if call.endswith("x") else "work"


class Run:
    """A running tool that ends as the test orders. `over`: it has its order, or nothing waits for it."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.over = False
        self.told: asyncio.Future[ToolOutput] = asyncio.get_running_loop().create_future()
        self.answer: ToolOutput | BaseException | None = None

    def end(self, answer: ToolOutput | BaseException) -> None:
        self.answer, self.over = answer, True
        if self.told.done():
            return
        if isinstance(answer, BaseException):
            self.told.set_exception(answer)
        else:
            self.told.set_result(answer)


class SteeredTools:
    """Source and toolset of every process. `runs` are all that were begun, in order."""

    def __init__(self) -> None:
        self.runs: list[Run] = []

    def rules_in_force(self, rules: Sequence[ApprovalRule]) -> Sequence[ApprovalRule]:
        return rules

    async def offered(self) -> dict[str, OfferedTool]:
        declaration = ToolDeclaration("work", "Works.", {"type": "object"})
        return {"work": OfferedTool(declaration, "box.work", "test:box", "work", self, 600.0, lambda *_: None)}

    async def tools(self) -> tuple[SourceTool, ...]:
        return ()

    async def run(self, run: ToolRun) -> ToolOutput:
        mine = Run(run.key)
        self.runs.append(mine)
        try:
            return await mine.told
        finally:
            mine.over = True

    async def aclose(self) -> None:
        pass


CUT = AdapterError(ErrorClass.INTERRUPTED, "cut")
REFUSED = AdapterError(ErrorClass.UNAUTHORISED, "no such key")
NOT_TAKEN = AdapterError(ErrorClass.REJECTED, "not with this content")
BUG = RuntimeError("a bug of the adapter's")


class ControlledBackend:
    """`calls` are all that arrived, in order."""

    def __init__(self, ownership: Ownership) -> None:
        self._ownership = ownership
        self.calls: list[SteeredCall] = []
        self.tools = SteeredTools()

    @property
    def ownership(self) -> Ownership:
        return self._ownership

    async def call(self, request: ServiceRequest) -> AsyncGenerator[AdapterEvent, None]:
        call = SteeredCall(request)
        self.calls.append(call)
        try:
            while True:
                step = await call.next()
                if isinstance(step, Exception):
                    raise step
                yield step
                if isinstance(step, CallCompleted):
                    return
        finally:
            call.over = True

    async def aclose(self) -> None:
        pass


class WatchedLedger:
    """A ledger that knows whether something is asked of it at this moment, and that can be dead for its process."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._dead = False
        self._moved = asyncio.Event()
        self.busy = 0

    def die(self) -> None:
        """Nothing that is submitted from now on reaches the file."""
        self._dead = True

    async def moves(self) -> None:
        self._moved.clear()
        await self._moved.wait()

    def submit(self, points: tuple[CommitPoint, ...], done: Callable[[Exception | None], None]) -> None:
        if self._dead:
            asyncio.get_running_loop().call_soon(done, LedgerUnavailable("the process is dead"))
            return
        self.busy += 1

        def stored(error: Exception | None) -> None:
            self._settled()
            done(error)

        try:
            self._ledger.submit(points, stored)
        except BaseException:
            self._settled()
            raise

    def _settled(self) -> None:
        self.busy -= 1
        self._moved.set()

    def changes(self, wanted: Callable[[], Awaitable[object]]) -> AsyncGenerator[Changed, None]:
        if self._dead:
            raise LedgerUnavailable("the process is dead")
        return self._ledger.changes(wanted)

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        """Every read."""

        async def read(*args: Any, **kwargs: Any) -> Any:
            if self._dead:
                raise LedgerUnavailable("the process is dead")
            self.busy += 1
            try:
                return await getattr(self._ledger, name)(*args, **kwargs)
            finally:
                self._settled()

        return read


class Process:
    """A gateway as a process would be: started on a file, stopped or killed."""

    core: Core
    ledger: WatchedLedger

    def __init__(self, path: Path, name: str, backend: ControlledBackend, lease: LeaseTimes, now: int) -> None:
        self.name = name
        self.alive = True
        self._down = asyncio.Event()
        self._up = asyncio.Event()
        self._host = asyncio.get_running_loop().create_task(self._run(path, backend, lease, now))

    async def started(self) -> "Process":
        waiting = asyncio.get_running_loop().create_task(self._up.wait())
        await asyncio.wait({waiting, self._host}, return_when=asyncio.FIRST_COMPLETED)
        if not waiting.done():
            waiting.cancel()
            await self._host
        return self

    async def _run(self, path: Path, backend: ControlledBackend, lease: LeaseTimes, now: int) -> None:
        async with running_core(path, prefix=self.name, now=now, lease=lease, before=self._watch) as core:
            core.agent(backend, toolset=backend.tools, queued_turns=QUEUED, parallel_tools=PARALLEL)
            self.core = core
            self._up.set()
            await self._down.wait()

    def _watch(self, ledger: FragileLedger) -> None:
        ledger.wrap(self._watched)

    def _watched(self, ledger: Ledger) -> WatchedLedger:
        self.ledger = WatchedLedger(ledger)
        return self.ledger

    async def stop(self) -> None:
        self.alive = False
        self._down.set()
        await soon(asyncio.shield(self._host))

    def die(self) -> None:
        """Nothing that it still tries to do is stored; what waited to be stored is lost."""
        self.ledger.die()
        self.core.ledger.let_go()


PARALLEL = 1
"""How many tools of a turn run at once."""

QUEUED = 3
"""How many turns may wait for the running one."""

_CALM = 30
"""So often does the loop go round without anything being asked of a ledger before nothing more can come."""


async def quiet(processes: Iterable[Process]) -> None:
    """Returns when everything waits for the outside: a client, the backend, a ledger that holds its writes."""
    ledgers = [process.ledger for process in processes]
    async with asyncio.timeout(BOUND):
        calm = 0
        while calm < _CALM:
            busy = next((ledger for ledger in ledgers if ledger.busy), None)
            if busy is not None:
                calm = 0
                await busy.moves()
            else:
                calm += 1
                await asyncio.sleep(0)


class Operation:
    """Something that a client asked of a process and waits for. `lost`: the client went away, or the process did."""

    def __init__(self, process: Process, coroutine: Coroutine[Any, Any, Any]) -> None:
        self.process = process
        self.lost = False
        self._task = asyncio.get_running_loop().create_task(coroutine)
        # Of one that nobody waits for any more, the error is nobody's either.
        self._task.add_done_callback(lambda task: task.cancelled() or task.exception())

    @property
    def done(self) -> bool:
        return self._task.done()

    @property
    def error(self) -> BaseException | None:
        return self._task.exception()

    @property
    def result(self) -> Any:
        return self._task.result()

    def leave(self) -> None:
        """The client does not wait for its answer."""
        if not self.done:
            self.lost = True
            self._task.cancel()


class Watching:
    """A streaming client: it takes what comes. `asked`: the last event's number that it says it knows."""

    def __init__(self, process: Process, opening: Coroutine[Any, Any, EventStream], asked: int | None = None) -> None:
        self.process = process
        self.asked = asked
        self.frames: list[Frame] = []
        self.ended = False
        self.opening = Operation(process, opening)
        self._reading = Operation(process, self._read())

    async def _read(self) -> None:
        await asyncio.wait({self.opening._task})
        if self.opening._task.cancelled() or self.opening.error is not None:
            return
        stream: EventStream = self.opening.result
        try:
            async for batch in stream:
                self.frames += batch
            self.ended = True
        finally:
            await stream.aclose()

    @property
    def over(self) -> bool:
        """Nothing comes any more, for whatever reason."""
        return self._reading.done or self.lost

    @property
    def lost(self) -> bool:
        return self._reading.lost or self.opening.lost

    def leave(self) -> None:
        self.opening.leave()
        self._reading.leave()
