"""The gateway without HTTP: a real ledger on a file, the runner, the operations, and a clock that tests move."""

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from gateway.a2a.model import (
    AgentCapabilities,
    AgentCard,
    CancelTaskRequest,
    GetTaskRequest,
    ListTasksRequest,
    ListTasksResponse,
    Message,
    Part,
    Role,
    SendMessageConfiguration,
    SendMessageRequest,
    StreamResponse,
    SubscribeToTaskRequest,
    Task,
    TaskState,
)
from gateway.a2a.tool_calls import URI
from gateway.core.agents import Agent, AgentPolicies
from gateway.core.tools.toolset import Toolset
from gateway.engine.adapter_secrets import AdapterSecrets
from gateway.engine.fanout import Fanout, StreamLimits
from gateway.engine.runtime import Pace
from gateway.foundation.clock import Clock
from gateway.foundation.shutdown import Drain
from gateway.ledger.errors import LedgerUnavailable
from gateway.ledger.events import Frame
from gateway.ledger.leases import Heartbeat, Renew
from gateway.ledger.points import CommitPoint
from gateway.ledger.port import Changed, Ledger
from gateway.ledger.threads import Caller
from gateway.maintenance.duties import Duties
from gateway.operations.call import EventStream, OperationCall
from gateway.operations.service import Operations
from gateway.ports.adapter import Adapter
from gateway.ports.capabilities import Backend
from gateway.ports.observer import SILENT, Observer
from gateway.scheduling.leases import LeaseTimes
from gateway.scheduling.runner import Runner
from tests.support import rows
from tests.support.scripted import Pause
from tests.support.stores import open_store
from tests.tool_call_vectors import faults

START = 1_795_168_800_000
CORRELATION_ID = "c0ffee"

CARD = AgentCard(
    name="Echo",
    description="Says it again.",
    supported_interfaces=(),
    version="1",
    capabilities=AgentCapabilities(streaming=True),
    default_input_modes=("text/plain",),
    default_output_modes=("text/plain",),
    skills=(),
)

_event = msgspec.json.Decoder(StreamResponse)


class Time:
    """`now` stands still until a test moves it, or moves by `step` with each look; `monotonic` (seconds) stands still. Ids
    are numbered."""

    def __init__(self, prefix: str = "id") -> None:
        self.now, self.step = START, 0
        self.monotonic = 1000.0
        numbers, rows = count(1), count(1)
        self.clock = Clock(
            now=self._look,
            monotonic=lambda: self.monotonic,
            new_id=lambda: f"{prefix}-{next(numbers):04}",
            row_id=lambda: f"{prefix}-row-{next(rows):04}",
            correlation_id=lambda: CORRELATION_ID,
        )

    def _look(self) -> int:
        self.now += self.step
        return self.now


class Waits(list[float]):
    """The waits before another try, in seconds. They pass at once, unless one is `held`; a `time` that is given moves on."""

    held: Pause | None = None
    time: Time | None = None

    async def pass_by(self, seconds: float) -> None:
        self.append(seconds)
        if self.time is not None:
            self.time.monotonic += seconds
        await asyncio.sleep(0)
        if self.held is not None:
            await self.held.pass_by()


# --- a ledger whose writes can be held and refused -----------------------------------------------------------------

Kinds = type | tuple[type, ...]
Done = Callable[[Exception | None], None]


class Gate:
    """Units wait here, in their order, from the first one that holds a point of `kinds`."""

    def __init__(self, kinds: Kinds) -> None:
        self.kinds = kinds
        self.reached = asyncio.Event()
        self.waiting: list[tuple[tuple[CommitPoint, ...], Done]] = []


@dataclass
class _Refusal:
    kinds: Kinds
    error: Exception
    lost: asyncio.Event


class FragileLedger:
    """The real ledger, with faults. `units` are those that were stored, `failed` those that the
    real one refused, `reads` the names of the reads, each in order. What keeps leases is in `renewals` and not among
    `units`: it comes when its time has come, on a slow machine in the middle of any turn."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._gate: Gate | None = None
        self._refusals: list[_Refusal] = []
        self._failing_reads: dict[str, Exception] = {}
        self._slow_reads: dict[str, Pause] = {}
        self._answers: dict[str, Callable[..., Awaitable[Any]]] = {}
        self.units: list[tuple[CommitPoint, ...]] = []
        self.renewals: list[tuple[CommitPoint, ...]] = []
        self.failed: list[tuple[CommitPoint, ...]] = []
        self.reads: list[str] = []

    def wrap(self, around: Callable[[Ledger], Any]) -> None:
        """Puts another ledger between this one and the real one."""
        self._ledger = around(self._ledger)

    def __getattr__(self, name: str) -> Any:
        """Every read."""
        self.reads.append(name)
        error = self._failing_reads.get(name)
        if error is not None:
            raise error
        read = self._answers.pop(name, None) or getattr(self._ledger, name)
        pause = self._slow_reads.pop(name, None)
        return read if pause is None else _slow(read, pause)

    def answer_read(self, name: str, found: object) -> asyncio.Event:
        """The next read of this name returns `found`; the event is set then."""
        asked = asyncio.Event()

        async def read(*_: Any, **__: Any) -> Any:
            asked.set()
            return found

        self._answers[name] = read
        return asked

    def slow_read(self, name: str) -> Pause:
        """The next read of this name pauses before it returns what it found."""
        return self._slow_reads.setdefault(name, Pause())

    def fail_reads(self, *names: str, error: Exception | None = None) -> None:
        self._failing_reads = dict.fromkeys(names, error or LedgerUnavailable("the disk is gone"))

    def refuse(self, kinds: Kinds, error: Exception | None = None) -> asyncio.Event:
        """The next unit with a point of `kinds` is lost; the event is set then."""
        refusal = _Refusal(kinds, error or LedgerUnavailable("the disk is full"), asyncio.Event())
        self._refusals.append(refusal)
        return refusal.lost

    def hold(self, kinds: Kinds) -> Gate:
        """The next unit with a point of `kinds` waits until `let_go`, and so do all later units."""
        self._gate = Gate(kinds)
        return self._gate

    def let_go(self) -> None:
        gate, self._gate = self._gate, None
        for points, done in gate.waiting if gate is not None else ():
            self.submit(points, done)

    async def commit(self, *points: CommitPoint) -> None:
        stored: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def done(error: Exception | None) -> None:
            if stored.done():
                return
            if error is None:
                stored.set_result(None)
            else:
                stored.set_exception(error)

        self.submit(points, done)
        await stored

    def submit(self, points: tuple[CommitPoint, ...], done: Done) -> None:
        gate = self._gate
        if gate is not None and (gate.waiting or _any(points, gate.kinds)):
            gate.waiting.append((points, done))
            gate.reached.set()
            return
        for refusal in self._refusals:
            if _any(points, refusal.kinds):
                self._refusals.remove(refusal)
                refusal.lost.set()
                self._lose(done, refusal.error)
                return

        def stored(error: Exception | None) -> None:
            renewal = _any(points, Renew) or all(isinstance(point, Heartbeat) for point in points)
            kept = self.renewals if renewal else self.units
            (kept if error is None else self.failed).append(points)
            done(error)

        self._ledger.submit(points, stored)

    def _lose(self, done: Done, error: Exception) -> None:
        """The error comes after the results of earlier units."""
        self._ledger.submit((), lambda _: done(error))

    def stored(self, kind: type) -> list[Any]:
        units = (*self.units, *self.renewals)
        return [point for unit in units for point in unit if isinstance(point, kind)]


def _slow(read: Callable[..., Awaitable[Any]], pause: Pause) -> Callable[..., Awaitable[Any]]:
    async def late(*args: Any, **kwargs: Any) -> Any:
        found = await read(*args, **kwargs)
        await pause.pass_by()
        return found

    return late


class _Deaf:
    """A ledger through which a process hears of no commit."""

    def __init__(self, inside: Ledger) -> None:
        self._inside = inside

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inside, name)

    async def changes(self, _wanted: object) -> AsyncGenerator[Changed, None]:
        yield None
        await asyncio.Event().wait()


def deaf(ledger: FragileLedger) -> None:
    """`before` of a process that learns of others only when it renews its leases, on every store."""
    ledger.wrap(_Deaf)


def _any(points: tuple[CommitPoint, ...], kinds: Kinds) -> bool:
    return any(isinstance(point, kinds) for point in points)


# --- the core ---------------------------------------------------------------------------------------------------------


def message(
    text: str,
    *,
    message_id: str = "m",
    context: str | None = None,
    task: str | None = None,
    references: tuple[str, ...] | None = None,
) -> Message:
    return Message(
        message_id=message_id,
        context_id=context,
        task_id=task,
        role=Role.USER,
        parts=(Part(text=text),),
        reference_task_ids=references,
    )


@dataclass
class Core:
    """`default` is the agent that the short forms below mean."""

    path: Path
    time: Time
    ledger: FragileLedger
    fanout: Fanout
    runner: Runner
    operations: Operations
    drain: Drain
    stack: AsyncExitStack
    waits: Waits
    default: Agent | None = None
    agents: list[Agent] = field(default_factory=list)

    @property
    def duties(self) -> Duties:
        return Duties(self.ledger, self.time.clock, self.runner.runtime.holder)

    def agent(
        self,
        adapter: Adapter,
        name: str = "echo",
        toolset: Toolset | None = None,
        backend: Backend | None = None,
        **policies: Any,
    ) -> Agent:
        rules = AgentPolicies(**policies)
        agent = Agent(name=name, card=CARD, adapter=adapter, policies=rules, toolset=toolset, backend=backend)
        self.agents.append(agent)
        self.default = agent
        return agent

    def call(
        self, principal: str = "ada", *, agent: Agent | None = None, key: str | None = None, last: int | None = None
    ) -> OperationCall:
        meant = agent or self.default
        assert meant is not None
        return OperationCall(agent=meant, caller=Caller(principal), idempotency_key=key, last_event_id=last)

    async def send(self, text: str, call: OperationCall | None = None, *, at_once: bool = False, **where: Any) -> Task:
        """The task that SendMessage answers with."""
        configuration = SendMessageConfiguration(return_immediately=True) if at_once else None
        request = SendMessageRequest(message=message(text, **where), configuration=configuration)
        answer = await self.operations.send_message(call or self.call(), request)
        assert answer.task is not None
        return answer.task

    async def stream(self, text: str, call: OperationCall | None = None, **where: Any) -> EventStream:
        request = SendMessageRequest(message=message(text, **where))
        return await self.operations.send_streaming_message(call or self.call(), request)

    async def subscribe(self, task: str, call: OperationCall | None = None) -> EventStream:
        return await self.operations.subscribe_to_task(call or self.call(), SubscribeToTaskRequest(id=task))

    async def get(self, task: str, call: OperationCall | None = None, history: int | None = None) -> Task:
        return await self.operations.get_task(call or self.call(), GetTaskRequest(id=task, history_length=history))

    async def cancel(self, task: str, call: OperationCall | None = None) -> Task:
        return await self.operations.cancel_task(call or self.call(), CancelTaskRequest(id=task))

    async def list(self, call: OperationCall | None = None, **filters: Any) -> ListTasksResponse:
        return await self.operations.list_tasks(call or self.call(), ListTasksRequest(**filters))

    async def die(self) -> None:
        """Like a process that is killed: no turn is ended, no commit follows."""
        await self.stack.aclose()


@asynccontextmanager
async def running_core(
    path: Path,
    *,
    prefix: str = "id",
    now: int = START,
    lease: LeaseTimes | None = None,
    limits: StreamLimits | None = None,
    before: Callable[[FragileLedger], object] = lambda _: None,
    adapter: Adapter | None = None,
    observer: Observer = SILENT,
    **agent: Any,
) -> AsyncGenerator[Core, None]:
    """`prefix` keeps the ids of two processes on one database apart. `before` gets the ledger first. `adapter` is that of the
    default agent, which is known before recovery; `agent` has the rest of it."""
    time = Time(prefix)
    time.now = now
    async with AsyncExitStack() as stack:
        ledger = FragileLedger(await stack.enter_async_context(open_store(path)))
        before(ledger)
        fanout = Fanout(limits or StreamLimits())
        waits = Waits()
        secrets = AdapterSecrets(await ledger.secret("adapters"))
        runner = Runner(ledger, fanout, time.clock, secrets, lease, Pace(waits.pass_by, lambda: 1.0), observer)
        drain = Drain()
        secret = await ledger.secret("page-token")
        operations = Operations(ledger, runner, fanout, time.clock, page_secret=secret, drain=drain)
        core = Core(path, time, ledger, fanout, runner, operations, drain, stack, waits)
        if adapter is not None:
            core.agent(adapter, **agent)
        runner.find_agent = lambda name: next((agent for agent in core.agents if agent.name == name), None)
        await stack.enter_async_context(runner.running())
        try:
            yield core
        finally:
            ledger.let_go()
        assert unsound_tool_calls(path) == []


# --- the database, through a connection of its own ---------------------------------------------------------------------


def query(path: Path, sql: str, *values: object) -> list[tuple[Any, ...]]:
    return rows.query(path, sql, *values)


def logged(path: Path, task: str) -> list[Frame]:
    """The events of the log, in the order of their numbers."""
    found = query(path, "SELECT first, payload FROM event WHERE task = ? ORDER BY last", task)
    return [
        (number, line.encode()) for first, payload in found for number, line in enumerate(payload.split("\n"), first)
    ]


def unsound_tool_calls(path: Path) -> list[str]:
    """In every test, the events of tool calls fit the schema that we ship."""
    payloads = query(path, "SELECT payload FROM event WHERE payload LIKE ?", f"%{URI}%")
    return [fault for (payload,) in payloads for line in payload.split("\n") for fault in faults(json.loads(line))]


# --- what came out ----------------------------------------------------------------------------------------------------

BOUND = 30.0
"""Seconds after which something that must happen counts as not happening."""

T = TypeVar("T")


async def soon(what: Awaitable[T]) -> T:
    async with asyncio.timeout(BOUND):
        return await what


async def until(holds: Callable[[], object]) -> None:
    """For conditions without an event: looks again whenever other tasks had their turn."""
    async with asyncio.timeout(BOUND):
        while not holds():  # noqa: ASYNC110  # there is no event: that is the case it is for
            await asyncio.sleep(0)


async def frames(stream: EventStream) -> list[Frame]:
    """All of a stream, to its end."""

    async def read() -> list[Frame]:
        try:
            return [frame for batch in [b async for b in stream] for frame in batch]
        finally:
            await stream.aclose()

    return await soon(read())


async def broken_off(stream: EventStream) -> tuple[list[Frame], Exception]:
    """What a stream gives before its error, and the error."""
    read: list[Frame] = []

    async def error() -> Exception:
        try:
            async for batch in stream:
                read.extend(batch)
        except Exception as error:  # noqa: BLE001 - whatever it is
            return error
        finally:
            await stream.aclose()
        raise AssertionError("the stream has ended without an error")

    return read, await soon(error())


def numbers(read: Sequence[Frame]) -> list[int | None]:
    return [number for number, _ in read]


def events(read: Sequence[Frame]) -> list[StreamResponse]:
    return [_event.decode(payload) for _, payload in read]


async def outcome(what: Awaitable[Task]) -> TaskState | str:
    """The state, or the name of the error: for tests in which either of two may lose."""
    try:
        return (await what).status.state
    except Exception as error:  # noqa: BLE001 - whatever it is
        return type(error).__name__


def error_class(task: Task) -> Any:
    """Why the task failed, in the words of the table; None where it did not."""
    metadata = task.status.message.metadata if task.status.message else None
    return (metadata or {}).get("errorClass")


def reason(task: Task) -> str:
    """The text that tells the caller why the task failed."""
    assert task.status.state is TaskState.FAILED
    assert task.status.message is not None
    return task.status.message.parts[0].text or ""


def answer(task: Task) -> str:
    """The text of all artifacts."""
    return "".join(part.text or "" for artifact in task.artifacts or () for part in artifact.parts)


def said(task: Task) -> list[str]:
    """The history in words."""
    return [
        f"{'U' if entry.role is Role.USER else 'A'} {' '.join(part.text or '?' for part in entry.parts)}"
        for entry in task.history or ()
    ]


def streamed(read: Sequence[Frame]) -> str:
    """The text of a stream: of its Task and of the later artifact updates."""
    text = ""
    for event in events(read):
        if event.task is not None:
            text += answer(event.task)
        if event.artifact_update is not None:
            text += "".join(part.text or "" for part in event.artifact_update.artifact.parts)
    return text


def states(read: Sequence[Frame]) -> list[str]:
    """The states of a stream, in order, without repeats."""
    told: list[str] = []
    for event in events(read):
        status = event.task.status if event.task else event.status_update.status if event.status_update else None
        if status is not None and (not told or told[-1] != status.state.name):
            told.append(status.state.name)
    return told
