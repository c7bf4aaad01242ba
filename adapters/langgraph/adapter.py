"""The adapter of type `langgraph`: a thread of a LangGraph Agent Server for each context, a run for each call.

Law: a call has ended when the server says so of its run; of a call with two runs, the second begins when the first has ended.
"""

from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass

from adapters.http.failures import nothing_sent
from adapters.http.named_events import ServerEvent
from adapters.http.streams import AnswerStream
from adapters.langgraph import state as stored
from adapters.langgraph import turn as turns
from adapters.langgraph import wire
from adapters.langgraph.content import message_id
from adapters.langgraph.failures import LangGraphFailures
from adapters.langgraph.held import held_items
from adapters.langgraph.service import LangGraphService, is_uuid, run_of
from adapters.langgraph.settings import LangGraphSettings
from adapters.langgraph.stream import RunParser
from adapters.langgraph.turn import Turn
from gateway.a2a.model import Json
from gateway.ports.adapter import (
    NOT_PROCESSED,
    AdapterError,
    AdapterEvent,
    AdapterFactory,
    CallStarted,
    ErrorClass,
    ServiceRequest,
    StateKind,
)
from gateway.ports.capabilities import Backend, Description, Fate, Fetched, Ongoing, ProbeReport, Tail
from gateway.ports.conversation import HandleKind, OutputItem, Ownership, StorageOwner, UserItem

_MODES = ("text/plain", "application/json", "image/*", "audio/*", "video/*", "application/pdf")
_NO_TURN = Turn(None)
_READ_FIRST = frozenset({"metadata", "error"})
"""The other events behind a beginning that is gone are not the whole answer."""


@dataclass(slots=True)
class _Call:
    """A call under way. `runs` are its runs so far; the messages `then` are sent when they have ended without a question."""

    thread: str
    parser: RunParser
    then: Sequence[dict[str, Json]]
    runs: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The names of its runs; the last is empty where it is still to begin."""
        return ",".join((*self.runs, "") if self.then else self.runs)


class LangGraphAdapter:
    ownership = Ownership(StorageOwner.BACKEND, HandleKind.STATIC)

    def __init__(self, settings: LangGraphSettings) -> None:
        self.backend = Backend(settings.url, settings.account)
        self._failures = LangGraphFailures(settings.secrets())
        self._service = LangGraphService(settings, self._failures)
        self._key = settings.input_key
        self._approvals = settings.approvals
        self._verifies = settings.verify_thread

    async def aclose(self) -> None:
        await self._service.aclose()

    def check_handle(self, handle: str) -> None:
        if not is_uuid(handle):
            raise ValueError("is not the id of a thread, which is a UUID")

    async def call(self, request: ServiceRequest) -> AsyncGenerator[AdapterEvent, None]:
        turn = self._turn(request)
        if turn.run is None:
            raise self._failures.unsendable(
                "Nothing waits for this answer.", "nothing in the thread waits for what is sent"
            )
        thread = request.handle
        if thread is None:
            with nothing_sent():
                thread = await self._service.make_thread()
            # The core resumes this generator when the id of the thread is stored.
            yield CallStarted(thread)
        call = _Call(thread, self._parser(turn), turn.then)
        async with aclosing(self._run(call, self._service.begin_run(thread, request.context_id, turn.run))) as events:
            async for event in events:
                yield event
        async with aclosing(self._go_on(call, request)) as events:
            async for event in events:
                yield event

    async def resume(self, request: ServiceRequest, call: Ongoing) -> AsyncGenerator[AdapterEvent, None]:
        turn = self._turn(request)
        resumed = self._named(call, turn)
        resumed.then = turn.then if len(resumed.runs) == 1 else ()
        yield CallStarted(run=resumed.name)
        async with aclosing(self._again(resumed)) as events:
            async for event in events:
                yield event
        async with aclosing(self._go_on(resumed, request)) as events:
            async for event in events:
                yield event

    async def fetch(self, call: Ongoing) -> Fetched:
        found = self._named(call, _NO_TURN)
        status = await self._service.status(found.thread, found.runs[-1])
        if status in wire.RUNNING:
            return Fetched(Fate.RUNNING)
        if status is None:
            return Fetched(Fate.GONE)
        if status != wire.SUCCESS or (call.run or "").endswith(","):
            return Fetched(Fate.FAILED)
        events = [event async for event in self._again(found)]
        return Fetched(Fate.COMPLETED, (*events, *found.parser.complete(found.thread, "", ())))

    async def cancel(self, call: Ongoing) -> bool:
        if not call.run:
            return False
        found = self._named(call, _NO_TURN)
        ended = await self._service.cancel(found.thread, found.runs[-1])
        return ended or await self._service.status(found.thread, found.runs[-1]) not in wire.RUNNING

    async def withdraw(self, call: Ongoing, outcomes: Sequence[OutputItem]) -> None:
        """The next message closes the tool calls of the thread that are open."""
        found = self._named(call, _NO_TURN)
        thread = await self._service.thread(found.thread)
        latest = await self._service.newest_runs(found.thread, 1) if thread.open else ()
        if [run.run_id for run in latest] == [found.runs[-1]]:
            await self._service.drop_interrupts(found.thread)

    async def tail(self, request: ServiceRequest) -> Tail | None:
        name = request.handle
        if name is None:
            return Tail(0)
        thread = await self._service.thread(name)
        if thread.status == wire.BUSY:
            await self._end_abandoned(name, request.context_id)
            raise self._failures.error(ErrorClass.LOCKED, f"thread {name!r} is at work")
        messages = thread.messages(self._key)
        held, added = held_items(request.items, messages, thread.open, stored.read(request.state))
        complete = thread.status == wire.IDLE or bool(thread.open)
        if not held or not complete:
            return Tail(held)
        parser = self._parser(_NO_TURN)
        return Tail(held, (*parser.add_whole(added, thread.open), *parser.complete(name, request.task_id, ())))

    async def probe(self) -> ProbeReport:
        version = await self._service.version()
        await self._service.assistant()
        return ProbeReport(notes=() if version is None else (f"it is version {version} of langgraph-api",))

    async def describe(self) -> Description:
        assistant = await self._service.assistant()
        version = None if assistant.version is None else str(assistant.version)
        return Description(assistant.name, assistant.description or None, version)

    # --- the runs of a call

    async def _run(self, call: _Call, opening: AnswerStream[ServerEvent]) -> AsyncGenerator[AdapterEvent, None]:
        """The next run of the call, which `opening` begins."""
        parser, before = call.parser, call.runs
        try:
            async with opening as stream:
                named = run_of(stream.headers)
                parser.begin(named)
                if named:
                    call.runs = (*before, named)
                    yield CallStarted(run=call.name)
                async for batch in stream:
                    for received in batch:
                        # The thread is free again when the stream has ended, shortly after the error.
                        stream.answered = received.name == "error"
                        for event in parser.receive(received):
                            yield event
                        if not named and parser.run:
                            named = parser.run
                            call.runs = (*before, named)
                            yield CallStarted(run=call.name)
                stream.answered = True
            await self._check_end(call)
        except AdapterError as error:
            failed = await self._explained(error, call.thread)
            if before and failed.kind in NOT_PROCESSED:
                # The thread has taken what the run before has brought.
                failed = self._failures.error(ErrorClass.INTERRUPTED, failed.detail)
            failed.usage = parser.usage
            for event in parser.rest():
                yield event
            if failed is error:
                raise
            raise failed from error

    async def _go_on(self, call: _Call, request: ServiceRequest) -> AsyncGenerator[AdapterEvent, None]:
        """The rest of a call, behind a run that has ended."""
        then = call.then
        if then and not call.parser.asks:
            call.then = ()
            opening = self._service.begin_run(call.thread, request.context_id, turns.following(then, self._key))
            async with aclosing(self._run(call, opening)) as events:
                async for event in events:
                    yield event
        elif self._verifies and request.handle is None:
            await self._verify(call.thread, request)
        for event in call.parser.complete(call.thread, request.task_id, call.then):
            yield event

    async def _again(self, call: _Call) -> AsyncGenerator[AdapterEvent, None]:
        """The events of the runs from their first on: from the server's stream, or from the thread where that is gone."""
        parser, runs = call.parser, call.runs
        for index, run in enumerate(runs):
            parser.begin(run)
            call.runs = runs[: index + 1]
            async with AsyncExitStack() as stack:
                with self._failures.of_look_up():
                    stream = await stack.enter_async_context(self._service.join_run(call.thread, run))
                async for batch in stream:
                    for received in batch:
                        if parser.began or received.name in _READ_FIRST:
                            for event in parser.receive(received):
                                yield event
                stream.answered = True
            await self._check_end(call)
            if not parser.began:
                with self._failures.of_look_up():
                    thread = await self._service.thread(call.thread)
                    added = await self._service.added(thread, call.thread, run, self._key)
                for event in parser.add_whole(added, thread.open if run == runs[-1] else ()):
                    yield event

    async def _check_end(self, call: _Call) -> None:
        """Raises: AdapterError unless the run has ended, with an answer or a question."""
        run = call.runs[-1] if call.runs else ""
        with self._failures.of_look_up():
            status = await self._service.status(call.thread, run) if run else None
        if status == wire.SUCCESS or (status == wire.INTERRUPTED and call.parser.asks):
            return
        if status in wire.RUNNING or not run:
            raise self._failures.error(ErrorClass.INTERRUPTED, "the stream ended before the run")
        raise self._failures.error(ErrorClass.BACKEND_FAILED, f"the run has ended: {status or 'it is gone'}")

    async def _end_abandoned(self, thread: str, context: str) -> None:
        """Ends runs of the context that have begun without its knowledge. A context makes one call at a time, so that nobody
        listens to them; they would keep the thread for as long as they work."""
        for run in await self._service.newest_runs(thread):
            if run.works_for(context):
                await self._service.interrupt(thread, run.run_id)

    async def _explained(self, error: AdapterError, thread: str) -> AdapterError:
        """The server has one error for a thread and for an assistant that it does not know."""
        if error.kind is not ErrorClass.HANDLE_NOT_FOUND:
            return error
        if await self._service.has_thread(thread):
            return self._failures.error(ErrorClass.NOT_SERVED, "the server does not know the assistant")
        return self._service.lost(thread)

    async def _verify(self, name: str, request: ServiceRequest) -> None:
        """Raises: AdapterError when the thread does not hold what it was sent."""
        with self._failures.of_look_up():
            thread = await self._service.thread(name)
        held = {message.id for message in thread.messages(self._key)}
        sent = [message_id(item.message) for item in request.items if isinstance(item, UserItem)]
        if not held.issuperset(sent):
            what = f"the thread does not hold the message under {self._key!r}: see `input_key` and `verify_thread`"
            raise self._failures.error(ErrorClass.CONTRACT_BROKEN, what)

    def _turn(self, request: ServiceRequest) -> Turn:
        # The state of a thread that is lost is void.
        state = stored.NOTHING if request.handle is None else stored.read(request.state)
        return turns.plan(request.items, state, request.task_id, self._key)

    def _parser(self, turn: Turn) -> RunParser:
        return RunParser(self._failures, self._key, approvals=self._approvals, turn=turn)

    def _named(self, call: Ongoing, turn: Turn) -> _Call:
        runs = tuple(filter(None, (call.run or "").split(",")))
        if call.handle is None or not runs:
            raise self._failures.error(ErrorClass.BACKEND_FAILED, "a call without a run cannot be found again")
        return _Call(call.handle, self._parser(turn), (), runs)


class DeletingLangGraphAdapter(LangGraphAdapter):
    """The adapter of agents whose threads are deleted with their contexts."""

    async def forget(self, handle: str) -> None:
        await self._service.delete_thread(handle)


def _build(settings: LangGraphSettings) -> LangGraphAdapter:
    return DeletingLangGraphAdapter(settings) if settings.delete_threads else LangGraphAdapter(settings)


factory = AdapterFactory(
    settings=LangGraphSettings,
    build=_build,
    summary="Graphs on a LangGraph Agent Server",
    states=(
        StateKind(StorageOwner.BACKEND, HandleKind.STATIC, DeletingLangGraphAdapter),
        StateKind(StorageOwner.BACKEND, HandleKind.STATIC, LangGraphAdapter, "delete_threads: false"),
    ),
    input_modes=_MODES,
    output_modes=_MODES,
    approvals=lambda settings: settings.approvals,
    tools=False,
)
