"""Accepting a message: C1 with what belongs to the same unit, then the turn is queued. Law: one commit, durable before anything
of it is shown; a refusal or a lost race stores nothing."""

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from gateway.a2a.errors import Busy, UnsupportedOperation, echo, invalid
from gateway.a2a.model import INTERRUPTED, TERMINAL, TaskState
from gateway.core.task_record import TurnOutput
from gateway.engine.fanout import Fanout
from gateway.engine.journal import Journal
from gateway.engine.paused_turn import PausedTurn
from gateway.engine.turn_run import LiveTask, TurnRun, status, status_update
from gateway.engine.turn_spans import tell_end
from gateway.foundation.clock import Clock, timestamp
from gateway.ledger.calls import Prepare
from gateway.ledger.errors import Conflict
from gateway.ledger.events import entry
from gateway.ledger.leases import RequestCancel
from gateway.ledger.points import CommitPoint
from gateway.ledger.port import Ledger
from gateway.ledger.tasks import EventRow, OpenTurn, TaskRecord
from gateway.ledger.threads import Displace, ThreadRecord
from gateway.ledger.turns import Accept, Replay
from gateway.operations.call import OperationCall
from gateway.operations.incoming import Incoming
from gateway.operations.paused_turns import OnStored, PausedTurns
from gateway.operations.push_configs import MAX_CONFIGS
from gateway.operations.quotas import ConcurrencyLimit
from gateway.operations.target import (
    KnownContext,
    NewContext,
    Occupied,
    Waiting,
    check_named_handle,
    check_owner,
    check_version,
    new_thread,
    target,
)
from gateway.operations.task_reader import TaskReader
from gateway.scheduling.runner import Runner

_ATTEMPTS = 4
_AT_ONCE = 2
"""Attempts that begin the turn in the commit that accepts it, where nothing is known to run on its thread."""


class MessageIntake(msgspec.Struct, frozen=True):
    """Accepts messages. `runs` limits the turns that a principal may have at the same time."""

    ledger: Ledger
    runner: Runner
    fanout: Fanout
    clock: Clock
    reader: TaskReader
    paused: PausedTurns
    runs: ConcurrencyLimit

    async def _check_push_room(self, incoming: Incoming) -> None:
        """Raises: InvalidParams where the task has no room for the configuration in the message."""
        push, task = incoming.push, incoming.message.task_id
        if push is None or not task:
            return
        put = push.on(task, self.clock.now()).config
        others = [each for each in await self.ledger.push_configs(task) if each.id != put.id]
        if len(others) >= MAX_CONFIGS:
            raise invalid(
                "configuration.taskPushNotificationConfig",
                f"the task has {MAX_CONFIGS} push notification configurations; delete one first, or name one by its id",
            )

    async def accept(self, incoming: Incoming, on_stored: OnStored | None = None) -> TurnRun | Replay:
        """The queued turn; a Replay when the same idempotency key already brought the same message.

        `on_stored` is called with the turn when it is stored and before it can do anything.

        Raises: the errors of A2A 1.0, section 3.1.1; Busy when the context's queue is full; TooManyRequests.
        """
        for attempt in range(_ATTEMPTS):
            try:
                return await self._try(incoming, attempt, on_stored)
            except Conflict:
                continue
        await self._check_push_room(incoming)
        raise Busy("The context is being changed by another request; try again.", retry_after=1)

    async def _try(self, incoming: Incoming, attempt: int, on_stored: OnStored | None) -> TurnRun | Replay:
        """Raises: Conflict when something has changed since it was read."""
        call = incoming.call
        replay = await self._replay(incoming)
        if replay is not None:
            return replay
        if incoming.generation is not None:
            await self._check_generation(incoming)
        try:
            where = await target(self.ledger, call, incoming.message, lambda task: self.reader.runs_here(call, task))
        except UnsupportedOperation:
            if await self.paused.has_answer(incoming):
                return Replay(incoming.message.task_id or "", incoming.digest)
            raise
        if isinstance(where, Waiting | Occupied) and where.context.thread is not None:
            check_owner(call.agent, where.context.thread)
        match where:
            case NewContext() | KnownContext():
                return await self._open_turn(incoming, where, None, attempt, on_stored)
            case Waiting(context=context, task=task):
                answered = await self._answer(incoming, task, on_stored)
                if not isinstance(answered, PausedTurn):
                    return answered
                return await self._open_turn(incoming, KnownContext(context, task), answered, attempt, on_stored)
            case Occupied(waiting=waiting):
                await self._make_room(call, waiting)
                raise Conflict(f"the turn of task {waiting!r} waits no more")

    async def _replay(self, incoming: Incoming) -> Replay | None:
        """What the idempotency key of the message already led to. Raises: InvalidParams where it brought another message."""
        call, key = incoming.call, incoming.key
        if key is None:
            return None
        replay = await self.ledger.replay(call.caller, call.agent.name, key)
        if replay is not None and replay.digest != incoming.digest:
            field = "Idempotency-Key" if key.kind == "header" else "message.messageId"
            raise invalid(field, f"{echo(key.key)} was used for another message")
        return replay

    async def _check_generation(self, incoming: Incoming) -> None:
        """A task that another client has changed is in another state, too: its generation is the better reason to refuse. The
        units compare again with the number behind which they append, so that one of two clients wins.

        Raises: TaskGenerationMismatch.
        """
        call = incoming.call
        task = await self.ledger.task(call.caller, call.agent.name, incoming.message.task_id or "")
        if task is not None and task.visible:
            incoming.check_generation(await self.reader.latest_event(task))

    async def _answer(
        self, incoming: Incoming, task: TaskRecord, on_stored: OnStored | None
    ) -> TurnRun | Replay | PausedTurn:
        """Does what PausedTurns.answer does, and counts a turn that continues as a running turn of the principal."""
        with self.runs.take(incoming.call.caller) as slot:

            def stored(run: TurnRun) -> None:
                slot.release_after(run.done)
                if on_stored is not None:
                    on_stored(run)

            return await self.paused.answer(incoming, task, stored)

    async def _make_room(self, call: OperationCall, task_id: str) -> None:
        """Source: docs/state-model.md, scenario 118b. Raises: UnsupportedOperation where the waiting task is not to be
        cancelled, Busy where it waits for no caller any more."""
        record = await self.ledger.task(call.caller, call.agent.name, task_id)
        if record is None or record.state in TERMINAL:
            return
        policies = call.agent.policies
        if policies.new_task_while_waiting == "reject" and record.state not in INTERRUPTED:
            raise Busy(
                f"Task {echo(task_id)} of this context has its answer and goes on once its tools can be reached; cancel it, or "
                "try again later.",
                retry_after=15,
            )
        if policies.new_task_while_waiting == "reject":
            raise UnsupportedOperation(
                f"Task {echo(task_id)} of this context waits for an answer: send it with its taskId, or cancel that task.",
                metadata={"taskId": task_id},
            )
        displaced = policies.busy_context == "rollback"
        await self.paused.cancel(call.caller, record, call.rendering, displaced=displaced)

    # --- a new turn

    async def _open_turn(
        self,
        incoming: Incoming,
        where: NewContext | KnownContext,
        closed: PausedTurn | None,
        attempt: int,
        on_stored: OnStored | None,
    ) -> TurnRun:
        """`closed` is the turn of the task that waited for an answer and does not get one. Raises: Conflict."""
        agent = incoming.call.agent
        outputs: list[TurnOutput] = []
        others: tuple[OpenTurn, ...] = ()
        if isinstance(where, KnownContext):
            if where.task is not None:
                found = await self.reader.outputs(where.task) if closed is None else closed.outputs
                if found is None:
                    raise Conflict(f"a turn of task {where.task.id!r} has not ended")
                outputs = found
            others = await self._others(where, closed, attempt)
            if where.context.thread is not None:
                self._check_thread(incoming.call, where.context.thread, len(others))
        made = build_plan(incoming, where, outputs, closed, self.clock, self.runner.runtime.holder)
        # Between C1 and C2 there may be something to look up, or to withdraw.
        thread = made.accept.thread
        later = thread.unsynced or thread.withdraws
        if attempt < _AT_ONCE and not (others or later or self.runner.queued(thread.id)):
            made = made.begins(self.runner)
        else:
            made = made.waits(self.runner, others, agent.policies.busy_context)
        return await self._store(incoming, made, on_stored)

    async def _others(self, where: KnownContext, closed: PausedTurn | None, attempt: int) -> tuple[OpenTurn, ...]:
        """The turns of the thread that have not ended, in any process; not read where nothing indicates that there are any."""
        thread = where.context.thread
        if thread is None or not (attempt or self.runner.queued(thread.id)):
            return ()
        over = closed.turn.turn if closed is not None else None
        return tuple(
            open_
            for open_ in await self.ledger.open_turns(where.context.id)
            if open_.thread == thread.id and open_.turn != over
        )

    def _check_thread(self, call: OperationCall, thread: ThreadRecord, others: int) -> None:
        policies = call.agent.policies
        check_owner(call.agent, thread)
        check_version(call.agent, thread)
        queued = max(self.runner.queued(thread.id), others)
        if queued and policies.busy_context == "reject":
            raise Busy("The context is at work on another message; try again when that has ended.", retry_after=1)
        if queued > policies.queued_turns:
            text = f"The context is at work on a message, with {queued - 1} waiting behind it already; try again later."
            raise Busy(text, retry_after=5)

    async def _store(self, incoming: Incoming, made: "Plan", on_stored: OnStored | None) -> TurnRun:
        """Stores the plan. A caller that disconnects during this time changes nothing: a stored turn runs. Raises:
        Conflict."""
        accept = made.accept
        with self.runs.take(accept.caller) as slot:
            run = self._turn_run(incoming, made)
            started = False

            def stored() -> None:
                nonlocal started
                started = True
                slot.release_after(run.done)
                if on_stored is not None:
                    on_stored(run)
                self.runner.start(run, accept.thread)
                if run.agent.policies.busy_context in ("interrupt", "rollback"):
                    self.runner.interrupt(run, accept.thread.id)

            self.runner.reserve(accept.turn, accept.thread.id)
            try:
                await run.live.journal.commit(made.points, made.event, stored=stored)
            finally:
                self.runner.end_reservation(accept.turn)
                if not started:
                    self.fanout.release(accept.task)
        if made.closed is not None:
            await tell_end(self.runner.runtime, made.closed.turn.turn, made.closed.task, run.agent)
        return run

    def _turn_run(self, incoming: Incoming, made: "Plan") -> TurnRun:
        """The run of the turn, with a hold on the channel of its task."""
        call, accept, message = incoming.call, made.accept, made.accept.message
        journal = Journal(self.ledger, self.fanout.hold(accept.task), accept.task, made.number, accept.process)
        for payload in made.closed.events if made.closed is not None else ():
            journal.add(payload)
        queued = accept.new_task and made.prepare is None
        live = LiveTask(
            id=accept.task,
            context_id=message.context_id or "",
            status=status(TaskState.SUBMITTED if queued else TaskState.WORKING, timestamp(accept.now)),
            outputs=[*made.outputs, TurnOutput(message)],
            journal=journal,
        )
        hidden = accept.new_task and not accept.visible
        run = TurnRun(accept.turn, call.agent, call.caller, live, accept.preferences, None, hidden, accept.new_thread)
        run.trace, run.accepted_at = accept.trace, accept.now
        if made.prepare is not None:
            run.begin_call(made.prepare.service_call)
        return run


# --- the unit that accepts a message


class Plan(msgspec.Struct, frozen=True):
    """The plan for a message to a task. `outputs` are the outputs of the earlier turns of the task; `number` is the
    number of the task's latest event.

    `event` says that the task that waited for its caller works again. `prepare` is C2, if the turn begins in the same
    unit; `besides` are the marks of a turn that has to wait. `closed` is the turn that waited for an answer and does
    not get one.
    """

    accept: Accept
    outputs: Sequence[TurnOutput]
    number: int
    event: bytes | None
    prepare: Prepare | None = None
    besides: tuple[CommitPoint, ...] = ()
    push: CommitPoint | None = None
    closed: PausedTurn | None = None

    def points(self, row: EventRow | None) -> tuple[CommitPoint, ...]:
        accept, closed = replace(self.accept, event=row), self.closed
        before = closed.ending(accept.last_event - 1, None, None, accept.now) if closed is not None else ()
        after = tuple(point for point in (self.prepare, self.push) if point is not None)
        return (*before, accept, *self.besides, *after)

    def begins(self, runner: Runner) -> "Plan":
        """The plan of a turn that begins in the same unit, on a thread on which no turn runs. Another process may be faster."""
        accept = replace(self.accept, working=self.accept.new_task)
        return replace(self, accept=accept, prepare=runner.runtime.prepare(accept.thread, accept.turn, accept.task))

    def waits(self, runner: Runner, others: Sequence[OpenTurn], busy_context: str) -> "Plan":
        """The plan of a turn that has to wait. The policy may cancel the `others`, in whichever process they run."""
        marks: tuple[CommitPoint, ...] = ()
        if busy_context == "rollback":
            marks = (Displace(self.accept.thread.id, self.accept.turn),)
        elif busy_context == "interrupt" and others:
            marks = (RequestCancel(tuple(open_.turn for open_ in others)),)
        return replace(self, besides=(runner.runtime.heartbeat(), *marks))


def build_plan(
    incoming: Incoming,
    where: NewContext | KnownContext,
    outputs: Sequence[TurnOutput],
    closed: PausedTurn | None,
    clock: Clock,
    process: str,
) -> Plan:
    """The unit that opens a turn. Raises: InvalidParams for a handle that is not the thread's; TaskGenerationMismatch."""
    call = incoming.call
    if isinstance(where, KnownContext):
        row, public, known, task = where.context.id, where.context.public_id, where.context.thread, where.task
    else:
        row, public, known, task = clock.row_id(), where.public_id or clock.new_id(), None, None
    thread = known or new_thread(call.agent, clock.row_id(), row)
    check_named_handle(call.agent, incoming.message, thread)
    if task is None:
        task_id, now, number, event = clock.new_id(), clock.now(), 0, None
    else:
        task_id, now = task.id, max(clock.now(), task.status_at)
        number = task.last_event if closed is None else closed.number
        incoming.check_generation(number)
        event = entry(status_update(task, status(TaskState.WORKING, timestamp(now))))
    accept = Accept(
        caller=call.caller,
        agent=call.agent.name,
        now=now,
        context_row=row,
        context_public=public if isinstance(where, NewContext) else None,
        thread=thread,
        new_thread=known is None,
        task=task_id,
        new_task=task is None,
        visible=not call.agent.policies.direct_replies,
        turn=clock.row_id(),
        message=replace(incoming.message, context_id=public, task_id=task_id),
        digest=incoming.digest,
        key=incoming.key,
        event=None,
        last_event=number + (len(closed.events) if closed is not None else 0) + (event is not None),
        trace=call.trace,
        process=process,
        preferences=incoming.preferences,
    )
    push = None if incoming.push is None else incoming.push.on(task_id, now)
    return Plan(accept, outputs, number, event, push=push, closed=closed)
