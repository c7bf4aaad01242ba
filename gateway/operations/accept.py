"""Accepting a message: C1, then the turn is queued. Law: one commit, durable before anybody is told; a refusal or a lost
race leaves nothing behind."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress

import msgspec
from msgspec.structs import replace

from gateway.a2a.errors import Busy, UnsupportedOperation, echo, invalid
from gateway.a2a.model import TERMINAL, SendMessageRequest, TaskState, TaskStatusUpdateEvent
from gateway.a2a.tool_calls import rendering
from gateway.core.ownership import is_newer, serves
from gateway.core.task_record import TurnOutput, repeats
from gateway.core.tools.client_tools import with_declarations
from gateway.engine.fanout import Fanout
from gateway.engine.journal import Journal
from gateway.engine.paused_turn import PausedTurn
from gateway.engine.turn_run import LiveTask, TurnRun, status
from gateway.foundation.clock import Clock, timestamp
from gateway.ledger.calls import Prepare
from gateway.ledger.errors import Conflict
from gateway.ledger.events import entry
from gateway.ledger.leases import RequestCancel
from gateway.ledger.points import CommitPoint
from gateway.ledger.port import Ledger
from gateway.ledger.tasks import EventRow, OpenTurn, TaskRecord
from gateway.ledger.threads import Displace, ThreadRecord
from gateway.ledger.turns import Accept, IdempotencyKey, Preferences, Replay
from gateway.operations.answer import Accepted, Answering
from gateway.operations.api import OperationCall
from gateway.operations.push_configs import Draft
from gateway.operations.quotas import ConcurrencyLimit
from gateway.operations.target import (
    Target,
    check_content,
    check_named_handle,
    digest,
    idempotency_key,
    new_thread,
    target,
)
from gateway.operations.task_reader import TaskReader
from gateway.ports.conversation import HandleKind
from gateway.ports.tools import ToolError
from gateway.scheduling.close import close_task
from gateway.scheduling.runner import Runner

_MOVES = {HandleKind.NONE: "is none", HandleKind.ROTATING: "moves", HandleKind.STATIC: "stays"}

_ATTEMPTS = 4
_AT_ONCE = 2
"""Attempts that begin the turn in the commit that accepts it, where nothing is known to run on its thread."""


class _Plan(msgspec.Struct, frozen=True):
    """What C1 will say. `event` is the one with which a task that waited for its caller goes on, behind `number`.

    `besides`: what a turn that has to wait brings with it. `push`: where its events are to be sent. `ends`: the turn of the
    task that waited for an answer, and gets none.
    """

    accept: Accept
    number: int
    event: bytes | None
    prepare: Prepare | None = None
    besides: tuple[CommitPoint, ...] = ()
    push: CommitPoint | None = None
    ends: PausedTurn | None = None

    def at_once(self, runner: Runner) -> "_Plan":
        """The same with C2 in the same unit, for a thread on which nothing runs. Another process may be faster."""
        accept = replace(self.accept, working=self.accept.new_task)
        return replace(self, accept=accept, prepare=runner.preparation(accept))

    def points(self, row: EventRow | None) -> tuple[CommitPoint, ...]:
        accept = replace(self.accept, event=row)
        before: tuple[CommitPoint, ...] = ()
        if self.ends is not None:
            last = self.accept.last_event
            before = self.ends.ending(last - 1, None, None, self.accept.now)
        points = (*before, accept, *self.besides) if self.prepare is None else (*before, accept, self.prepare)
        return points if self.push is None else (*points, self.push)

    def waiting(self, runner: Runner, others: Sequence[OpenTurn], policy: str) -> "_Plan":
        """The same for a turn that has to wait, and for the end of those that it cancels, in whatever process."""
        marks: tuple[CommitPoint, ...] = ()
        if policy == "rollback":
            marks = (Displace(self.accept.thread.id, self.accept.turn),)
        elif policy == "interrupt" and others:
            marks = (RequestCancel(tuple(open_.turn for open_ in others)),)
        return replace(self, besides=(runner.heartbeat(), *marks))


class Admission:
    def __init__(
        self, ledger: Ledger, runner: Runner, fanout: Fanout, reader: TaskReader, clock: Clock, runs: ConcurrencyLimit
    ) -> None:
        """`runs` are the turns that a principal may have."""
        self._runs = runs
        self._ledger = ledger
        self._runner = runner
        self._fanout = fanout
        self._reader = reader
        self._clock = clock
        self._answering = Answering(ledger, runner, fanout, clock)

    async def accept(
        self,
        call: OperationCall,
        request: SendMessageRequest,
        accepted: Accepted | None = None,
        draft: Draft | None = None,
    ) -> TurnRun | Replay:
        """The queued turn; a Replay when the same idempotency key already brought the same message.

        `accepted` is called with the turn when it is stored and before it can do anything. `draft` is stored with it.

        Raises: the errors of A2A 1.0, section 3.1.1; Busy when the context's queue is full; TooManyRequests.
        """
        check_content(call.agent, request)
        key, content = idempotency_key(call, request.message), digest(request.message)
        request = await self._with_tools(call, request)
        for attempt in range(_ATTEMPTS):
            try:
                return await self._try(call, request, key, content, accepted, attempt, draft)
            except Conflict:
                continue
        raise Busy("The context is being changed by another request; try again.", retry_after=1)

    async def _try(
        self,
        call: OperationCall,
        request: SendMessageRequest,
        key: IdempotencyKey | None,
        content: str,
        accepted: Accepted | None,
        attempt: int,
        draft: Draft | None,
    ) -> TurnRun | Replay:
        """Raises: Conflict when something has changed since it was read."""
        replay = await self._known(call, key, content)
        if replay is not None:
            return replay
        try:
            found = await target(self._ledger, call, request.message)
        except UnsupportedOperation:
            if await self._answering.was_said(call, request.message):
                return Replay(request.message.task_id or "", content)
            raise
        ends: PausedTurn | None = None
        waits = found.context.waiting if found.context is not None else None
        if waits is not None:
            if found.context is not None and found.context.thread is not None:
                _check_owner(call, found.context.thread)
            if found.task is None or found.task.id != waits:
                await self._make_room(call, waits)
                raise Conflict(f"the turn of task {waits!r} waits no more")
            answered = await self._answer(call, request, found.task, key, content, accepted, draft)
            if not isinstance(answered, PausedTurn):
                return answered
            ends = answered
        outputs = await self._outputs(found, ends)
        others = await self._others(found, attempt, ends)
        plan = self._plan(call, request, found, key, content, len(others), ends)
        if draft is not None:
            plan = replace(plan, push=draft.on(plan.accept.task, plan.accept.now))
        # On an unsynced thread there is something to look up between C1 and C2.
        thread = plan.accept.thread
        if attempt < _AT_ONCE and not (others or thread.unsynced or self._runner.queued(thread.id)):
            plan = plan.at_once(self._runner)
        else:
            plan = plan.waiting(self._runner, others, call.agent.policies.busy_context)
        return await self._admit(call, request, plan, outputs, accepted)

    async def _answer(
        self,
        call: OperationCall,
        request: SendMessageRequest,
        task: TaskRecord,
        key: IdempotencyKey | None,
        content: str,
        accepted: Accepted | None,
        draft: Draft | None,
    ) -> TurnRun | Replay | PausedTurn:
        """As Answering.answer; a turn that goes on by it takes one of the principal's places."""
        leave = self._runs.take(call.caller)
        started = False

        def start(work: TurnRun) -> None:
            nonlocal started
            started = True
            work.done.add_done_callback(lambda _: leave())
            if accepted is not None:
                accepted(work)

        push = () if draft is None else (draft.on(task.id, self._clock.now()),)
        try:
            return await self._answering.answer(call, request, task, key, content, start, push)
        finally:
            if not started:
                leave()

    async def _outputs(self, found: Target, ends: PausedTurn | None) -> list[TurnOutput]:
        if found.task is None:
            return []
        outputs = await self._reader.outputs(found.task) if ends is None else ends.outputs
        if outputs is None:
            raise Conflict(f"a turn of task {found.task.id!r} has not ended")
        return outputs

    async def _with_tools(self, call: OperationCall, request: SendMessageRequest) -> SendMessageRequest:
        """The tools that the message declares, checked. Raises: InvalidParams."""
        message = with_declarations(request.message)
        if message is request.message:
            return request
        if call.agent.toolset is not None:
            # Whose source cannot say what it has fails the turn, with that reason.
            with suppress(ToolError):
                with_declarations(request.message, await call.agent.toolset.offered())
        return replace(request, message=message)

    async def _make_room(self, call: OperationCall, task_id: str) -> None:
        """Source: state-model, scenario 118b. Raises: UnsupportedOperation where the waiting task is not to be cancelled."""
        record = await self._ledger.task(call.caller, call.agent.name, task_id)
        if record is None or record.state in TERMINAL:
            return
        if call.agent.policies.new_task_while_waiting == "reject":
            raise UnsupportedOperation(
                f"Task {echo(task_id)} of this context waits for an answer: send it with its taskId, or cancel that task.",
                metadata={"taskId": task_id},
            )
        shown = rendering(call.agent.policies.tool_calls, call.caller.principal, call.named)
        displaced = call.agent.policies.busy_context == "rollback"
        canceled = TaskState.CANCELED
        await close_task(
            call.caller, record, canceled, self._ledger, self._fanout, self._clock, shown, displaced=displaced
        )

    async def _others(self, found: Target, attempt: int, ends: PausedTurn | None) -> tuple[OpenTurn, ...]:
        """The turns of the thread that have not ended, wherever they are; not asked where nothing speaks for any."""
        thread = found.context.thread if found.context else None
        if found.context is None or thread is None or not (attempt or self._runner.queued(thread.id)):
            return ()
        over = ends.turn.turn if ends is not None else None
        return tuple(
            open_
            for open_ in await self._ledger.open_turns(found.context.id)
            if open_.thread == thread.id and open_.turn != over
        )

    async def _known(self, call: OperationCall, key: IdempotencyKey | None, content: str) -> Replay | None:
        if key is None:
            return None
        replay = await self._ledger.replay(call.caller, call.agent.name, key)
        if replay is not None and replay.digest != content:
            field = "Idempotency-Key" if key.kind == "header" else "message.messageId"
            raise invalid(field, f"{echo(key.key)} was used for another message")
        return replay

    def _plan(
        self,
        call: OperationCall,
        request: SendMessageRequest,
        found: Target,
        key: IdempotencyKey | None,
        content: str,
        others: int,
        ends: PausedTurn | None,
    ) -> _Plan:
        clock, agent = self._clock, call.agent
        context_row = found.context.id if found.context else clock.row_id()
        known = found.context.thread if found.context else None
        thread = known or new_thread(agent, clock.row_id(), context_row)
        self._check_thread(call, thread, others)
        check_named_handle(call.agent, request.message, thread)
        context_id = found.context_public or clock.new_id()
        task_id = found.task.id if found.task else clock.new_id()
        now = clock.now() if found.task is None else max(clock.now(), found.task.status_at)
        number, event, more = 0, None, 0
        if found.task is not None:
            number = found.task.last_event if ends is None else ends.number
            more = len(ends.events) if ends is not None else 0
            working = TaskStatusUpdateEvent(
                task_id=task_id, context_id=context_id, status=status(TaskState.WORKING, timestamp(now))
            )
            event = entry(working)
        accept = Accept(
            caller=call.caller,
            agent=agent.name,
            now=now,
            context_row=context_row,
            context_public=None if found.context else context_id,
            thread=thread,
            new_thread=known is None,
            task=task_id,
            new_task=found.task is None,
            visible=not agent.policies.direct_replies,
            turn=clock.row_id(),
            message=msgspec.structs.replace(request.message, context_id=context_id, task_id=task_id),
            digest=content,
            key=key,
            event=None,
            last_event=number + more + (event is not None),
            process=self._runner.process,
            preferences=Preferences(_modes(request), call.named),
        )
        return _Plan(accept, number, event, ends=ends)

    def _check_thread(self, call: OperationCall, thread: ThreadRecord, others: int) -> None:
        policies = call.agent.policies
        _check_owner(call, thread)
        if is_newer(call.agent.adapter, thread):
            raise UnsupportedOperation(
                f"A newer version of the agent {call.agent.name!r} has worked on this context; it is left untouched."
            )
        queued = max(self._runner.queued(thread.id), others)
        if queued and policies.busy_context == "reject":
            raise Busy("The context is at work on another message; try again when that has ended.", retry_after=1)
        if queued > policies.queued_turns:
            raise Busy(f"{queued} messages wait in this context already; try again later.", retry_after=5)

    async def _admit(
        self,
        call: OperationCall,
        request: SendMessageRequest,
        plan: _Plan,
        outputs: list[TurnOutput],
        accepted: Accepted | None,
    ) -> TurnRun:
        """A caller who goes away meanwhile changes nothing: what is stored runs. Raises: Conflict."""
        accept = plan.accept
        leave = self._runs.take(call.caller)
        channel = self._fanout.hold(accept.task)
        message = accept.message
        queued = accept.new_task and plan.prepare is None
        state = TaskState.SUBMITTED if queued else TaskState.WORKING
        loop = asyncio.get_running_loop()
        work = TurnRun(
            turn=accept.turn,
            agent=call.agent,
            caller=call.caller,
            live=LiveTask(
                id=accept.task,
                context_id=message.context_id or "",
                agent=call.agent.name,
                caller=call.caller,
                status=status(state, timestamp(accept.now)),
                outputs=[*outputs, TurnOutput(message)],
                journal=Journal(self._ledger, channel, accept.task, plan.number),
            ),
            message=message,
            first_message=outputs[0].message if outputs else message,
            accepted_output_modes=accept.preferences.modes,
            fresh_thread=accept.new_thread,
            opened=loop.create_future(),
            done=loop.create_future(),
            rendering=rendering(call.agent.policies.tool_calls, call.caller.principal, call.named),
            repeats_answer=repeats(call.agent.policies.repeat_answer, call.named),
            service_call=plan.prepare.service_call if plan.prepare else "",
            prepared=plan.prepare is not None,
        )
        for payload in plan.ends.events if plan.ends is not None else ():
            work.live.journal.add(payload)
        started = False

        def start() -> None:
            nonlocal started
            started = True
            work.done.add_done_callback(lambda _: leave())
            if accepted is not None:
                accepted(work)
            self._runner.start(work, accept.thread)
            if call.agent.policies.busy_context in ("interrupt", "rollback"):
                self._runner.interrupt(work, accept.thread.id)

        try:
            with self._runner.reserved(accept.turn, accept.thread.id):
                await work.live.journal.commit(plan.points, plan.event, stored=start)
        finally:
            if not started:
                leave()
                self._fanout.release(accept.task)
        return work


def _modes(request: SendMessageRequest) -> tuple[str, ...]:
    return (request.configuration.accepted_output_modes if request.configuration else None) or ()


def _check_owner(call: OperationCall, thread: ThreadRecord) -> None:
    """Source: state-model, scenario 29. Raises: UnsupportedOperation."""
    declared = call.agent.adapter.ownership
    if serves(declared, thread):
        return
    if declared.owner is thread.owner:
        raise UnsupportedOperation(
            f"This context goes on from an id that {_MOVES[thread.handle_kind]}, and the agent {call.agent.name!r} is now "
            f"set to go on from one that {_MOVES[declared.handle]}; start a new context."
        )
    raise UnsupportedOperation(
        f"This context's history is kept by the {thread.owner}, and the agent {call.agent.name!r} is now set to "
        f"have it kept by the {declared.owner}; start a new context."
    )
