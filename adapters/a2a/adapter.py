"""The adapter of type `a2a`: another agent that speaks A2A. Its context is the handle, its task the run of a call.

Law: what the agent holds is not said to it twice; what it has forgotten is found out before anything is said.
"""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from adapters.a2a import ending, hops, messages, state
from adapters.a2a.agent import Agent
from adapters.a2a.answer import AnswerReader
from adapters.a2a.binding import Events
from adapters.a2a.description import described
from adapters.a2a.discovery import Discovery
from adapters.a2a.failures import A2AFailures
from adapters.a2a.settings import A2ASettings
from adapters.a2a.state import ThreadState, Waiting
from adapters.http.client import HttpClient
from adapters.http.credentials.signing import signing_of
from adapters.http.failures import nothing_sent
from gateway.a2a.model import INTERRUPTED, Message, StreamResponse, Task, TaskState
from gateway.foundation.tracebacks import drop_tracebacks
from gateway.ports.adapter import AdapterError, AdapterEvent, AdapterFactory, ErrorClass, ServiceRequest, StateKind
from gateway.ports.capabilities import Backend, Description, Fate, Fetched, Ongoing, ProbeReport, Tail
from gateway.ports.conversation import HandleKind, OutputItem, Ownership, StorageOwner

_ELSEWHERE = frozenset({ErrorClass.NOT_SERVED, ErrorClass.UNREACHABLE})
"""The failures of a message behind which the card may lead elsewhere by now. In none of them was the message processed."""

_NO_TASK = "a2a-gateway-probe"
"""A task that no agent has: the answer shows whether requests arrive, and with which rights."""

_FAILED = frozenset({TaskState.FAILED, TaskState.CANCELED})


class A2AAdapter:
    ownership = Ownership(StorageOwner.BACKEND, HandleKind.STATIC)

    def __init__(self, settings: A2ASettings) -> None:
        self.backend = Backend(settings.url, settings.account)
        self._failures = A2AFailures(settings.secrets())
        route, timeouts = settings.route, settings.timeouts
        signing = signing_of(settings.auth, self._failures, timeouts, route)
        self._http = HttpClient(timeouts, self._failures, settings.own_headers, route, signing)
        self._discovery = Discovery(settings, self._http, self._failures, signing)
        self._verifies = settings.verify_context
        self._direct = settings.direct_replies
        self._own = hops.hop(settings.endpoint or settings.url)

    async def call(self, request: ServiceRequest) -> AsyncGenerator[AdapterEvent, None]:
        with nothing_sent():
            agent = await self._discovery.agent()
        begun = False
        try:
            async with aclosing(self._say(agent, request)) as events:
                async for event in events:
                    begun = True
                    yield event
        except AdapterError as error:
            moved = None if begun or error.kind not in _ELSEWHERE else await self._discovery.moved(agent)
            if moved is None:
                raise
            drop_tracebacks(error)
        else:
            return
        async with aclosing(self._say(moved, request)) as events:
            async for event in events:
                yield event

    async def _say(self, agent: Agent, request: ServiceRequest) -> AsyncGenerator[AdapterEvent, None]:
        thread = state.read(request.state)
        waiting = _continued(request, thread)
        with nothing_sent():
            before = await self._latest(agent, request.handle, thread, waiting)
        replies, gone_on = False, None
        if waiting is not None and before is not None and before.status.state not in INTERRUPTED:
            gone_on = before
        if gone_on is not None and waiting is not None and waiting.consent and gone_on.status.state not in _FAILED:
            # It went on behind the consent: what it has to say since is the answer.
            incoming = agent.listen(gone_on.id)
        else:
            waiting, replies = waiting if gone_on is None else None, agent.endpoint.streaming
            message = self._message(request, thread, waiting)
            incoming = agent.say(message, request.accepted_output_modes, handle=request.handle)
        async with aclosing(self._events(agent, request, thread, waiting, incoming, replies=replies)) as events:
            async for event in events:
                yield event

    async def resume(self, request: ServiceRequest, call: Ongoing) -> AsyncGenerator[AdapterEvent, None]:
        agent, run = await self._discovery.agent(), call.run or ""
        thread = state.read(request.state)
        waiting = thread.waiting if thread.waiting is not None and thread.waiting.task == run else None
        async with aclosing(self._events(agent, request, thread, waiting, agent.listen(run))) as events:
            async for event in events:
                yield event

    async def fetch(self, call: Ongoing) -> Fetched:
        """A task that has failed or was cancelled counts as completed: its message is in the agent's conversation, and must
        not be said again with the next one."""
        agent = await self._discovery.agent()
        task = await agent.task(call.run or "")
        if task is None:
            return Fetched(Fate.GONE)
        events = self._stored(agent, task, call.handle)
        return Fetched(Fate.RUNNING) if events is None else Fetched(Fate.COMPLETED, events)

    async def find(self, request: ServiceRequest) -> Ongoing | None:
        agent = await self._discovery.agent()
        lengths = _lengths(request)
        for task in await agent.tasks(request.handle) or ():
            if task.context_id and any(each.message_id in lengths for each in task.history or ()):
                return Ongoing(task.context_id, task.id)
        return None

    async def tail(self, request: ServiceRequest) -> Tail | None:
        """A message that was sent by a process which died before it heard of a task is found by its id."""
        agent = await self._discovery.agent()
        if request.handle is None:
            return Tail(0)
        tasks = await agent.tasks(request.handle)
        if tasks is None:
            return None
        thread = state.read(request.state)
        known = {thread.task, *thread.tasks.values()} - {thread.waiting.task if thread.waiting is not None else ""}
        lengths = _lengths(request)
        for task in tasks:
            held = [lengths[each.message_id] for each in task.history or () if each.message_id in lengths]
            if held and task.id not in known:
                whole = await agent.task(task.id)
                waiting = thread.waiting if thread.waiting is not None and thread.waiting.task == task.id else None
                events = None if whole is None else self._stored(agent, whole, request.handle, waiting)
                if events is None:
                    raise self._failures.error(ErrorClass.LOCKED, "an earlier task is at work")
                return Tail(max(held), events)
        return Tail(0)

    def _stored(
        self, agent: Agent, task: Task, handle: str | None, waiting: Waiting | None = None
    ) -> tuple[AdapterEvent, ...] | None:
        """The events of a task that nobody has listened to, since it waited if it did; None while it works."""
        reader = AnswerReader(handle, task.id, waiting, langgraph=agent.endpoint.langgraph)
        said = reader.receive(StreamResponse(task=task))
        if reader.last is None:
            return None
        if reader.last.state in ending.SETTLED:
            return (*said, *ending.completed(reader, reader.last, ThreadState(), ""))
        return (*said, *ending.broken_off(reader, reader.last))

    async def cancel(self, call: Ongoing) -> bool:
        agent = await self._discovery.agent()
        return await agent.cancel(call.run or "")

    async def withdraw(self, call: Ongoing, outcomes: Sequence[OutputItem]) -> None:
        """The gateway's task has ended, and no other one continues a task of the agent."""
        await self.cancel(call)

    async def probe(self) -> ProbeReport:
        agent = await self._discovery.agent()
        await agent.task(_NO_TASK, brief=True)
        spoken = agent.endpoint.interface
        note = f"it speaks A2A {agent.endpoint.version} by {spoken.transport} at {spoken.url}"
        return ProbeReport(streams=agent.endpoint.streaming, notes=(note,))

    async def describe(self) -> Description:
        found = await self._discovery.card()
        self._discovery.renew(found)
        return described(found)

    async def aclose(self) -> None:
        await self._discovery.aclose()
        await self._http.aclose()

    async def _latest(
        self, agent: Agent, handle: str | None, thread: ThreadState, waiting: Waiting | None
    ) -> Task | None:
        """The latest task of the conversation as the agent has it now; None where it is not asked for. Raises: AdapterError
        (HANDLE_NOT_FOUND) where the agent has forgotten it."""
        known = waiting.task if waiting is not None else thread.task
        if handle is None or not known or not (self._verifies or waiting is not None):
            return None
        task = await agent.task(known, handle=handle, brief=True)
        if task is None:
            raise self._failures.error(ErrorClass.HANDLE_NOT_FOUND, "the agent does not know its latest task any more")
        return task

    def _message(self, request: ServiceRequest, thread: ThreadState, waiting: Waiting | None) -> Message:
        references = state.references(thread, request.message.reference_task_ids)
        task = None if waiting is None else waiting.task
        try:
            return messages.encode(request, task=task, references=references, own=self._own)
        except hops.Loop as error:
            raise self._failures.error(ErrorClass.NOT_SERVED, str(error)) from error

    async def _events(
        self,
        agent: Agent,
        request: ServiceRequest,
        thread: ThreadState,
        waiting: Waiting | None,
        incoming: Events,
        *,
        replies: bool = False,
    ) -> AsyncGenerator[AdapterEvent, None]:
        """The events of a call, from what the agent sends; `replies` as in AnswerReader. Raises: AdapterError."""
        direct = self._direct and waiting is None and _begins_task(request)
        name, langgraph = messages.message_id(request), agent.endpoint.langgraph
        reader = AnswerReader(request.handle, name, waiting, langgraph, direct, request.answer, request.shown, replies)
        async with aclosing(incoming) as batches:
            async for batch in batches:
                for found in batch:
                    for event in reader.receive(found):
                        yield event
                    if reader.last is not None:
                        break
                if reader.last is not None:
                    break
        last = reader.last or reader.doubtful
        if last is None:
            raise self._failures.error(ErrorClass.INTERRUPTED, "the stream ended before its task")
        if last.state not in ending.SETTLED:
            failed = self._failures.error(ErrorClass.BACKEND_FAILED, ending.words(last), retry_after=ending.wait(last))
            failed.usage = reader.usage
            raise failed
        for event in ending.completed(reader, last, thread, request.task_id):
            yield event


def _lengths(request: ServiceRequest) -> dict[str, int]:
    """The ids of the messages that can have carried the request's items, or the first of them, with their numbers."""
    items = request.items
    return {messages.message_id(request, items[:count]): count for count in range(1, len(items) + 1)}


def _continued(request: ServiceRequest, thread: ThreadState) -> Waiting | None:
    """The task of the agent that the request continues: the one that asked in the same task of the gateway."""
    waiting = thread.waiting
    if waiting is None or request.handle is None:
        return None
    return waiting if waiting.ours == request.task_id else None


def _begins_task(request: ServiceRequest) -> bool:
    """Whether the caller cannot know of a task yet: it continues none, and was not told in one that the conversation is
    told again."""
    told_again = request.handle is None and len(request.items) > 1
    return request.message == request.first_message and not told_again


ANYTHING = ("text/plain", "application/json", "*/*")
factory = AdapterFactory(
    settings=A2ASettings,
    build=A2AAdapter,
    summary="Another agent that speaks A2A 1.0 or 0.3: of an SDK, of LangGraph, of another gateway",
    states=(StateKind(StorageOwner.BACKEND, HandleKind.STATIC, A2AAdapter),),
    input_modes=ANYTHING,
    output_modes=ANYTHING,
    approvals=lambda _settings: True,
    direct_replies=lambda settings: settings.direct_replies,
    tools=False,
)
