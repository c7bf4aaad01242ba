"""The one commit that accepts a message: C1, with what belongs to the same unit. Law: a plan is a value; nothing is stored
before all of it is known."""

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from gateway.a2a.model import TaskState
from gateway.core.task_record import TurnOutput
from gateway.engine.paused_turn import PausedTurn
from gateway.engine.turn_run import status, status_update
from gateway.foundation.clock import Clock, timestamp
from gateway.ledger.calls import Prepare
from gateway.ledger.events import entry
from gateway.ledger.leases import RequestCancel
from gateway.ledger.points import CommitPoint
from gateway.ledger.tasks import EventRow, OpenTurn
from gateway.ledger.threads import Displace
from gateway.ledger.turns import Accept
from gateway.operations.incoming import Incoming
from gateway.operations.target import KnownContext, NewContext, check_named_handle, new_thread
from gateway.scheduling.runner import Runner


class Plan(msgspec.Struct, frozen=True):
    """`outputs`: what the earlier turns of the task have shown; `number`: that of the task's latest event.

    `event`: the task that waited for its caller works again. `prepare`: C2, where the turn begins in the same unit;
    `besides`: the marks of a turn that has to wait. `closed`: the turn that waited for an answer and gets none.
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


def plan(
    incoming: Incoming,
    where: NewContext | KnownContext,
    outputs: Sequence[TurnOutput],
    closed: PausedTurn | None,
    clock: Clock,
    process: str,
) -> Plan:
    """The unit that opens a turn. Raises: InvalidParams for a handle that is not the thread's."""
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
        process=process,
        preferences=incoming.preferences,
    )
    push = None if incoming.push is None else incoming.push.on(task_id, now)
    return Plan(accept, outputs, number, event, push=push, closed=closed)
