"""What a service call and its end mean to the ledger: the machine's commands as commit points. Law: pure, and the one place
that knows what a handle has to do with what was carried.

Carries out what a turn's machine asks for: shows its updates, stores what closes calls and tools, lets the turn wait, ends
it. Law: what ends or closes something is one unit, and its event is shown when that is stored.
"""

from contextlib import suppress

import structlog

from gateway.a2a.lifecycle import apply
from gateway.a2a.model import Message, TaskArtifactUpdateEvent, TaskStatusUpdateEvent
from gateway.core import ownership
from gateway.core.agents import Agent
from gateway.core.history import View
from gateway.core.lifecycles import SERVICE_CALL, advance
from gateway.core.replay import Replay
from gateway.core.task_record import whole
from gateway.core.turn.commands import (
    AbortCall,
    Command,
    CompleteCall,
    Continue,
    EndTool,
    EndTurn,
    OwnershipConflict,
    PauseTool,
    Publish,
    RecordPending,
    Reply,
    StartTool,
    StrayResult,
    Wait,
)
from gateway.core.turn.reconcile import must_reconcile
from gateway.engine.journal import appended
from gateway.engine.turn_context import TurnContext, weight_to_measure
from gateway.engine.turn_run import TurnRun, status
from gateway.foundation.clock import timestamp
from gateway.ledger.calls import Complete, Fail, SetPendingHandle
from gateway.ledger.errors import Conflict, LedgerUnavailable
from gateway.ledger.events import Update, entry
from gateway.ledger.leases import Release
from gateway.ledger.points import CommitPoint
from gateway.ledger.states import ServiceCallStatus, TurnStatus
from gateway.ledger.tasks import EventRow, Finish
from gateway.ledger.threads import DeleteOrphan, MarkHandleLost, MarkUnsynced, Rewind, ThreadRecord
from gateway.ledger.tool_calls import ToolEnds, ToolStarts, ToolWaits
from gateway.ledger.turns import Suspend
from gateway.ports.adapter import HANDLE_LOST
from gateway.ports.capabilities import Resuming
from gateway.ports.conversation import HandleKind, Ownership, StorageOwner


def complete(work: TurnRun, thread: ThreadRecord, view: View, command: CompleteCall, now: int) -> Complete:
    # Without a new handle the chain goes on from before this request, and does not hold what it carried.
    carried = command.handle is not None or thread.owner is StorageOwner.GATEWAY
    return Complete(
        thread=thread.id,
        generation=thread.generation,
        turn=work.turn,
        service_call=work.service_call,
        handle_in=thread.handle,
        handle_out=command.handle if command.handle is not None else thread.handle,
        state=command.state,
        usage=command.usage,
        items=command.items,
        tool_calls=command.tool_calls,
        sent=view.positions if carried else (),
        now=now,
        weight=weight_to_measure(work.agent, view, command.tool_calls),
        state_version=work.agent.adapter.ownership.state_version,
    )


def drop(
    work: TurnRun, thread: ThreadRecord, command: AbortCall, pending: str | None, now: int, *, loses: bool = True
) -> list[CommitPoint]:
    """`loses`: nothing follows in this turn; a handle that the backend does not know marks the thread as lost."""
    if not work.prepared:
        return []
    agent = work.agent
    unheard = loses and must_reconcile(agent.adapter, agent.policies, thread, command.error_class, pending)
    ended = ServiceCallStatus.UNKNOWN if unheard else ServiceCallStatus.FAILED
    fail = Fail(
        thread=thread.id,
        generation=thread.generation,
        turn=work.turn,
        service_call=work.service_call,
        status=advance(SERVICE_CALL, ServiceCallStatus.PREPARED, ended),
        error_class=command.error_class,
        items=command.items,
        now=now,
    )
    if unheard:
        return [fail, MarkUnsynced(thread.id, work.turn)]
    points: list[CommitPoint] = [fail]
    if loses and command.error_class in HANDLE_LOST and thread.handle is not None and not thread.lost:
        points.append(MarkHandleLost(thread.id, thread.generation))
    left = ownership.orphaned_handle(thread, pending)
    if left is not None:
        points.append(orphan(work.agent, thread, left, now))
    return points


def orphan(agent: Agent, thread: ThreadRecord, handle: str, now: int) -> DeleteOrphan:
    return DeleteOrphan(thread.id, agent.name, handle, now)


def tool_starts(thread: ThreadRecord, command: StartTool, now: int) -> ToolStarts:
    return ToolStarts(thread.id, thread.generation, command.id, now)


def tool_waits(thread: ThreadRecord, command: PauseTool) -> ToolWaits:
    return ToolWaits(thread.id, thread.generation, command.id, command.expires_at)


def tool_ends(thread: ThreadRecord, turn: str, service_call: str, command: EndTool) -> ToolEnds:
    return ToolEnds(
        thread=thread.id,
        generation=thread.generation,
        turn=turn,
        service_call=service_call,
        tool_call=command.id,
        status=command.status,
        outcome=command.outcome,
        item=command.item,
    )


log = structlog.get_logger("gateway.engine.executor")


class CommandExecutor:
    """The commands of one turn, carried out. `replay` passes over what was shown while a call is told once more."""

    __slots__ = ("_course", "_lane", "_means", "_work", "replay")

    def __init__(self, course: TurnContext) -> None:
        self._course = course
        self._means, self._work, self._lane = course.means, course.work, course.lane
        self.replay: Replay | None = None

    def publish(self, told: Update) -> None:
        work = self._work
        update = told if self.replay is None else self.replay.pass_on(told)
        if update is None:
            return
        work.live.journal.add(entry(update))
        work.live.outputs[-1].apply(update)
        if not work.opened.done():
            self._open(None)

    def end_replay(self) -> None:
        """The call is complete: its answer may be less than what was shown."""
        replay, self.replay = self.replay, None
        answer = replay.end() if replay is not None else None
        if answer is not None:
            live = self._work.live
            self.publish(TaskArtifactUpdateEvent(task_id=live.id, context_id=live.context_id, artifact=answer))

    async def perform(self, commands: list[Command]) -> None:
        """Raises: Conflict, LedgerUnavailable."""
        points: list[CommitPoint] = []
        reply: Reply | None = None
        ends = False
        for command in commands:
            match command:
                case Publish(update=update):
                    self.publish(update)
                case RecordPending(handle=handle):
                    await self._note_pending(handle)
                case Reply():
                    reply = command
                case StrayResult(call_id=call_id):
                    log.warning("tool.stray-result", agent=self._work.agent.name, task=self._work.live.id, call=call_id)
                case Continue():
                    pass
                case Wait():
                    await self._suspend(command)
                case EndTurn():
                    ends = True
                    await self._end(command, tuple(points), reply)
                case _:
                    points += self._points(command, points)
        if points and not ends:
            await self._store(points)

    def _points(
        self,
        command: CompleteCall | AbortCall | OwnershipConflict | StartTool | PauseTool | EndTool,
        before: list[CommitPoint],
    ) -> list[CommitPoint]:
        course, work, thread, now = self._course, self._work, self._lane.thread, self._means.clock.now()
        match command:
            case CompleteCall():
                return [complete(work, thread, course.view, command, now)]
            case AbortCall():
                return drop(work, thread, command, course.pending, now)
            case OwnershipConflict():
                return self._conflict(command, before)
            case StartTool():
                return [tool_starts(thread, command, now)]
            case PauseTool():
                return [tool_waits(thread, command)]
            case EndTool():
                behind = ownership.apply_points(thread, before)
                return [tool_ends(behind, work.turn, work.service_call, command)]

    def _conflict(self, command: OwnershipConflict, before: list[CommitPoint]) -> list[CommitPoint]:
        agent, means = self._work.agent, self._means
        thread = ownership.apply_points(self._lane.thread, before)
        if command.adopts:
            log.warning("thread.adopted", agent=agent.name, thread=thread.id)
            backend = Ownership(StorageOwner.BACKEND, HandleKind.ROTATING)
            return [ownership.epoch(thread, means.clock.row_id(), backend, command.handle)]
        if means.first_warning(thread.id):
            log.warning("thread.owner-conflict", agent=agent.name, thread=thread.id)
        if command.handle is None:
            return []
        return [orphan(agent, thread, command.handle, means.clock.now())]

    async def _note_pending(self, handle: str) -> None:
        """A static one was made for this call: the adapter goes on to use it when it cannot be lost any more."""
        self._course.pending = handle
        journal, pending = self._work.live.journal, SetPendingHandle(self._work.service_call, handle)
        if ownership.is_static(self._lane.thread):
            await journal.commit(lambda row: (pending, *appended(row)))
        else:
            journal.note(pending)

    async def _store(self, points: list[CommitPoint]) -> None:
        """What ends no turn: a call that is complete while the turn goes on, the start or the end of a tool."""
        work, lane = self._work, self._lane

        def stored() -> None:
            lane.thread = ownership.apply_points(lane.thread, points)
            if any(isinstance(point, Complete) for point in points):
                work.prepared, work.fresh_thread = False, False

        try:
            await work.live.journal.commit(lambda row: (*appended(row), *points), None, stored)
        except Conflict:
            await self._leave_behind(tuple(points))
            raise

    async def _suspend(self, wait: Wait) -> None:
        live, turn, lane, means = self._work.live, self._work.turn, self._lane, self._means
        now = self._course.clock.now()
        asking = status(apply(live.status.state, wait.state), timestamp(now), wait.message)
        update = TaskStatusUpdateEvent(
            task_id=live.id, context_id=live.context_id, status=asking, metadata=wait.metadata
        )

        def unit(row: EventRow | None) -> tuple[CommitPoint, ...]:
            suspend = Suspend(live.id, turn, lane.thread.id, wait.state, wait.message, row, now)
            return (suspend, Release(lane.thread.id, means.holder))

        def stored() -> None:
            live.outputs[-1].apply(update)
            live.status, lane.leased = asking, False
            self._open(None)

        await live.journal.commit(unit, entry(update), stored)

    async def _end(self, end: EndTurn, points: tuple[CommitPoint, ...], reply: Reply | None) -> None:
        """C6, with what closes the service call, in one unit; then the final event is shown."""
        work, lane, means = self._work, self._lane, self._means
        live = work.live
        now = self._course.clock.now()
        final = status(apply(live.status.state, end.state), timestamp(now), end.message)
        update = TaskStatusUpdateEvent(task_id=live.id, context_id=live.context_id, status=final, metadata=end.metadata)
        output = live.outputs[-1]
        if work.repeats_answer and end.status is TurnStatus.COMPLETED:
            for again in whole(output, live.id, live.context_id):
                self.publish(again)
        goes = lane.running is work and not lane.waiting and lane.may_release
        if ownership.rewinds(lane.thread, end.status, work.agent.policies) and work.service_call:
            points = (*points, Rewind(lane.thread.id, work.turn, self._course.base, now))
        back = ownership.revert_displaced(lane.thread, work.turn, end.status, now)

        def unit(row: EventRow | None) -> tuple[CommitPoint, ...]:
            finish = Finish(
                task=live.id,
                turn=work.turn,
                thread=lane.thread.id,
                status=end.status,
                failure_class=end.failure,
                state=end.state,
                message=end.message,
                events=row,
                last_event=live.journal.number + 1,
                artifacts=output.artifacts_json(),
                messages=output.messages_json(end.message),
                visible=reply is None,
                now=now,
                # One that waited is anybody's, until it goes on.
                process=None if work.resumed else means.holder,
            )
            release = (Release(lane.thread.id, means.holder),) if goes else ()
            return (*points, finish, *back, *release)

        def stored() -> None:
            output.apply(update)
            live.status = final
            lane.leased = lane.leased and not goes
            lane.thread = ownership.apply_points(lane.thread, points)
            lane.current = lane.current and not back
            self._open(reply.message if reply is not None else None)

        try:
            await live.journal.commit(unit, entry(update), stored)
        except Conflict:
            await self._leave_behind(points)
            raise

    def _open(self, reply: Message | None) -> None:
        """How the agent answers is known: with this message, or with a task."""
        if not self._work.opened.done():
            self._work.opened.set_result(reply)

    async def _leave_behind(self, points: tuple[CommitPoint, ...]) -> None:
        """Somebody else has moved the thread on: what this call led to is nobody's. Source: state-model, scenario 39.

        But for a call that can be listened to again: whoever took the turn over goes on with that very one.
        """
        agent, thread, now = self._work.agent, self._lane.thread, self._means.clock.now()
        taken = self._course.pending if isinstance(agent.adapter, Resuming) else None
        left = [handle for handle in ownership.abandoned_handles(thread, points) if handle != taken]
        orphans = [orphan(agent, thread, handle, now) for handle in left]
        if orphans:
            with suppress(Conflict, LedgerUnavailable):
                await self._means.ledger.commit(*orphans)
