"""The adapter of types `assistants` and `foundry-classic`: a thread for each conversation, a run for each message.

Law: the messages of a call go with its run, in one request, so that a run that was refused leaves nothing in the thread.
"""

import logging
import secrets
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, suppress
from itertools import takewhile

from adapters.assistants import wire
from adapters.assistants.failures import ThreadFailures
from adapters.assistants.late_answers import announced_when_late
from adapters.assistants.lookup import BROUGHT, brought, digests, is_waiting_for, steps_since
from adapters.assistants.position import LastCall, Position, check_thread_id, is_thread_id
from adapters.assistants.request import File, Upload, encode_messages, encode_outcomes, split, with_own
from adapters.assistants.settings import AssistantsSettings, FoundryClassicSettings, ThreadSettings
from adapters.assistants.stream import Cited, FileMade, RunParser, Told, citations
from adapters.assistants.threads import Threads
from adapters.http.client import HttpClient
from adapters.http.credentials.signing import headers_of, signing_of
from adapters.http.failures import nothing_sent
from adapters.http.named_events import ServerEvent
from adapters.http.streams import AnswerStream
from gateway.a2a.model import Json, Message, Part
from gateway.ports.adapter import (
    NOT_PROCESSED,
    AdapterError,
    AdapterEvent,
    AdapterFactory,
    CallCompleted,
    CallStarted,
    ErrorClass,
    PartReady,
    ServiceRequest,
    StateKind,
)
from gateway.ports.capabilities import Backend, Description, Fate, Fetched, Ongoing, ProbeReport, Tail
from gateway.ports.conversation import HandleKind, Item, OutputItem, Ownership, StorageOwner

_log = logging.getLogger(__name__)

INPUT_MODES = ("text/plain", "text/*", "application/json", "application/*", "image/*")
OUTPUT_MODES = ("text/plain", "application/json", "application/*", "image/*", "text/*")


class ThreadsAdapter:
    ownership = Ownership(StorageOwner.BACKEND, HandleKind.STATIC)
    check_handle = staticmethod(check_thread_id)

    def __init__(self, settings: ThreadSettings) -> None:
        place = settings.place
        self.backend = Backend(place.base, settings.account)
        self._assistant = place.assistant
        self._fields = settings.fields
        self._failures = ThreadFailures(settings.secrets())
        headers = place.headers | headers_of(settings.auth)
        signing = signing_of(settings.auth, self._failures, settings.timeouts, settings.route)
        self._http = HttpClient(settings.timeouts, self._failures, headers, settings.route, signing)
        self._threads = Threads(self._http, self._failures, place.base, place.version)

    async def call(self, request: ServiceRequest) -> AsyncGenerator[AdapterEvent, None]:
        thread = request.handle
        if thread is None:
            with nothing_sent():
                thread = await self._threads.make_thread()
            # The gateway stores the handle before it goes on, so that no thread with content is lost.
            yield CallStarted(thread)
        last = LastCall.read(request.state) if request.handle is not None else None
        answers, new = split(request.items, waits=last is not None and last.waits)
        if last is not None and answers and not new:
            events = self._go_on(thread, last.at, answers)
        else:
            if last is not None and answers:
                await self._close(thread, last.at, answers)
            events = self._begin(thread, request, new)
        async with aclosing(events):
            async for event in events:
                yield event

    async def fetch(self, call: Ongoing) -> Fetched:
        thread, at = call.handle or "", Position.named(call.run or "")
        run = await self._threads.find_run(thread, at.run)
        if run is None:
            return Fetched(Fate.GONE)
        if run.status in wire.ACTIVE:
            return Fetched(Fate.RUNNING)
        if not run.is_answered:
            return Fetched(Fate.FAILED)
        events = await self._events_of(thread, run, at)
        match events[-1]:
            case CallCompleted(state=state) if at.step and state == LastCall(at, waits=True).state:
                # The run waits where it waited before: the outcomes have not reached it.
                return Fetched(Fate.GONE)
        return Fetched(Fate.COMPLETED, events)

    async def resume(self, request: ServiceRequest, call: Ongoing) -> AsyncGenerator[AdapterEvent, None]:
        """A run cannot be listened to again: its events are made of what it has left, once it has ended."""
        try:
            found = await self.fetch(call)
        except AdapterError as error:
            raise self._failures.of_look_up(error) from error
        match found.fate:
            case Fate.COMPLETED:
                for event in found.events:
                    yield event
            case Fate.RUNNING:
                what = "the run still works, and cannot be listened to"
                raise self._failures.error(ErrorClass.INTERRUPTED, what)
            case _:
                what = (
                    "the run has failed" if found.fate is Fate.FAILED else "the run, or the submission to it, is gone"
                )
                raise self._failures.error(ErrorClass.BACKEND_FAILED, what)

    async def cancel(self, call: Ongoing) -> bool:
        thread, name = call.handle or "", Position.named(call.run or "").run
        try:
            await self._threads.cancel(thread, name)
        except AdapterError as error:
            if error.kind is not ErrorClass.REJECTED:
                raise
            # The service refuses to cancel a run that has ended.
        return True

    async def withdraw(self, call: Ongoing, outcomes: Sequence[OutputItem]) -> None:
        await self._close(call.handle or "", Position.named(call.run or ""), outcomes)

    async def tail(self, request: ServiceRequest) -> Tail | None:
        """What became of a request that may have begun a run whose name is not known, or that may have reached the run that
        waited for it."""
        thread, last = request.handle, LastCall.read(request.state)
        if thread is None:
            return Tail(0)
        runs = await self._threads.newest_runs(thread)
        newer = list(takewhile(lambda run: last is None or run.id != last.at.run, runs))
        if last is not None and len(newer) == len(runs):
            return None
        answers, new = split(request.items, waits=last is not None and last.waits)
        begun = next((run for run in newer if brought(run.metadata, new)), None)
        waited = runs[len(newer)] if last is not None and answers else None
        if any(run.status in wire.ACTIVE for run in (*newer, *((waited,) if waited else ()))):
            await self._end_unheard(thread, [run for run in (begun, waited) if run is not None])
            raise self._failures.error(ErrorClass.LOCKED, "a run of the thread still works")
        if begun is not None:
            held = len(answers) + brought(begun.metadata, new)
            return Tail(held, await self._answer(thread, begun, Position(begun.id)))
        if last is None or waited is None or is_waiting_for(waited, answers):
            return Tail(0)
        return Tail(len(answers), await self._answer(thread, waited, last.at))

    async def forget(self, handle: str) -> None:
        for name in await self._threads.uploaded_files(handle):
            await self._threads.delete_file(name)
        await self._threads.delete_thread(handle)

    async def probe(self) -> ProbeReport:
        found = await self._threads.assistant(self._assistant)
        called = f"it has the assistant {found.get('name') or self._assistant!r}, on the model {found.get('model')!r}"
        unknown = f"thread_{secrets.token_hex(12)}"
        takes = "takes" if await self._threads.has_thread(unknown) else "refuses"
        return ProbeReport(notes=(called, f"it {takes} a thread that it does not know"))

    async def describe(self) -> Description:
        found = await self._threads.assistant(self._assistant)
        name, told = found.get("name"), found.get("description")
        return Description(name=name or None, description=told or None)

    def named_handle(self, message: Message) -> str | None:
        """A caller who uses the names of this API expects that the agent continues there. Others have threads too: only an
        id of this service counts."""
        named = (message.metadata or {}).get("thread_id")
        return named if isinstance(named, str) and is_thread_id(named) else None

    async def aclose(self) -> None:
        await self._http.aclose()

    # --- calls

    async def _begin(
        self, thread: str, request: ServiceRequest, new: Sequence[Item]
    ) -> AsyncGenerator[AdapterEvent, None]:
        """A new run, with its messages."""
        uploaded: list[str] = []

        async def upload(file: File) -> str:
            uploaded.append(await self._threads.upload(file))
            return uploaded[-1]

        begun = False
        try:
            body = await self._body(request, new, upload)
            parser = RunParser(self._failures, thread)
            async with aclosing(self._events(self._threads.run(thread, body), parser)) as events:
                async for event in events:
                    begun = True
                    yield event
        except AdapterError as error:
            if not begun and error.kind in NOT_PROCESSED:
                await self._take_back(uploaded)
                if error.kind is ErrorClass.LOCKED:
                    await self._end_abandoned(thread)
            raise

    async def _go_on(
        self, thread: str, at: Position, answers: Sequence[OutputItem]
    ) -> AsyncGenerator[AdapterEvent, None]:
        """A run that waited, with the outcomes. Its name comes before an answer that is late, so that the run can be found and
        cancelled; else behind the reply, because a call that has its name is not repeated after a limit."""
        parser = RunParser(self._failures, thread, at)
        try:
            opening = self._threads.submit(thread, at.run, encode_outcomes(answers))
            async with (
                aclosing(self._events(opening, parser)) as answer,
                aclosing(announced_when_late(answer, parser.accepted)) as events,
            ):
                async for event in events:
                    yield event
        except AdapterError as error:
            if error.kind is ErrorClass.REJECTED:
                run = await self._threads.find_run(thread, at.run)
                if run is None or run.status != wire.WAITING:
                    # The outcomes are not at fault: the service lets a run wait for some minutes only.
                    status = "gone" if run is None else run.status
                    what = f"the run waits no more for the outcomes of its calls: it is {status}"
                    raise self._failures.error(ErrorClass.BACKEND_FAILED, what) from error
            raise

    async def _close(self, thread: str, at: Position, answers: Sequence[OutputItem]) -> None:
        """Ends the run that waits, since a thread takes no message before. The outcomes go first, so that the thread has
        them; an answer to these alone is not wanted."""
        with nothing_sent():
            run = await self._threads.find_run(thread, at.run)
        if run is None or run.status not in wire.ACTIVE | {wire.WAITING}:
            return
        if run.status == wire.WAITING and answers:
            try:
                await self._threads.submit_quietly(thread, at.run, encode_outcomes(answers))
            except AdapterError as error:
                if not error.kind.meaning.refuses_content:
                    raise
                # Outcomes that the service does not take shall not hold the message up.
        await self.cancel(Ongoing(thread, at.run))

    async def _end_abandoned(self, thread: str) -> None:
        """Ends a run of the gateway's that waits for what nobody will bring, such as a decision on a question that was lost.
        It would lock the thread until it expires."""
        for run in await self._threads.newest_runs(thread, limit=1):
            if run.status == wire.WAITING and BROUGHT in (run.metadata or {}):
                await self.cancel(Ongoing(thread, run.id))

    async def _end_unheard(self, thread: str, runs: Sequence[wire.Run]) -> None:
        """Ends those of these runs of an earlier call that still work. Nobody listens to them, and they would lock the thread
        for as long as they like."""
        for run in runs:
            if run.status in wire.ACTIVE:
                # Where it cannot be ended, it has to be waited for.
                with suppress(AdapterError):
                    await self.cancel(Ongoing(thread, run.id))

    async def _take_back(self, files: Sequence[str]) -> None:
        """Deletes the files of a request that was refused."""
        for name in files:
            with suppress(AdapterError):
                await self._threads.delete_file(name)

    async def _body(self, request: ServiceRequest, new: Sequence[Item], upload: Upload) -> dict[str, Json]:
        messages = await encode_messages(new, upload)
        fields = self._fields | {"additional_messages": messages, "metadata": {BROUGHT: digests(new)}}
        if not request.tools:
            return fields
        # The tools of a run replace those of its assistant.
        with nothing_sent():
            own = (await self._threads.assistant(self._assistant)).get("tools")
        return fields | {"tools": with_own(own if isinstance(own, list) else (), request.tools)}

    # --- events

    async def _events(
        self, opening: AnswerStream[ServerEvent], parser: RunParser
    ) -> AsyncGenerator[AdapterEvent, None]:
        async with opening as stream:
            for started in parser.accepted():
                yield started
            async for batch in stream:
                for received in batch:
                    events = parser.receive(received)
                    stream.answered = parser.ended
                    for told in events:
                        yield await self._whole(told)
                    if parser.ended:
                        return
        raise parser.cut()

    async def _answer(self, thread: str, run: wire.Run, after: Position) -> tuple[AdapterEvent, ...]:
        """As `_events_of`; empty for a run that failed."""
        return await self._events_of(thread, run, after) if run.is_answered else ()

    async def _events_of(self, thread: str, run: wire.Run, after: Position) -> tuple[AdapterEvent, ...]:
        """The events of a call whose run has ended, or waits again."""
        parser = RunParser(self._failures, thread, after)
        steps = await self._threads.steps(thread, run.id)
        messages = {message.id: message for message in await self._threads.messages(thread, run.id)}
        told: list[Told] = list(parser.accepted())
        for step in steps_since(steps, after.step):
            message = messages.get(step.message) if step.message is not None else None
            told += parser.message(message) if message is not None else parser.step(step)
        told += parser.end(run)
        return tuple([await self._whole(one) for one in told])

    async def _whole(self, told: Told) -> AdapterEvent:
        """The event itself, with what it names at the service."""
        match told:
            case FileMade(id=name):
                return PartReady(await self._file(name))
            case Cited(annotations=annotations):
                cited = {a.file_citation.file_id for a in annotations if a.file_citation is not None}
                known = {name: await self._file_name(name) for name in cited if name is not None}
                return PartReady(citations(annotations, known))
            case _:
                return told

    async def _file(self, name: str) -> Part:
        """An answer does not fail for a file that cannot be had."""
        try:
            return await self._threads.download(name)
        except AdapterError as error:
            _log.warning("a file of an answer could not be read: %s", error.detail)
            return Part(text=f"[{await self._file_name(name)}: this file could not be read]")

    async def _file_name(self, name: str) -> str:
        try:
            return await self._threads.file_name(name)
        except AdapterError:
            return name


_STATES = (StateKind(StorageOwner.BACKEND, HandleKind.STATIC, ThreadsAdapter),)

assistants = AdapterFactory(
    settings=AssistantsSettings,
    build=ThreadsAdapter,
    summary="Assistants: threads and runs of Azure OpenAI and compatible servers",
    states=_STATES,
    input_modes=INPUT_MODES,
    output_modes=OUTPUT_MODES,
)
foundry_classic = AdapterFactory(
    settings=FoundryClassicSettings,
    build=ThreadsAdapter,
    summary="Classic agents of Microsoft Foundry (Azure AI Agents), until they retire in 2027",
    states=_STATES,
    input_modes=INPUT_MODES,
    output_modes=OUTPUT_MODES,
    # The tools of an agent are set at the service, and MCP servers among them ask unless they are told not to.
    approvals=lambda _settings: True,
)
