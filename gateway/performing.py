"""Carries out what a turn's machine asks for: shows its updates, stores what closes calls and tools, lets the turn wait, ends
it. Law: what ends or closes something is one unit, and its event is shown when that is stored.
"""

from contextlib import suppress

import structlog

from gateway import call_points, handles, ownership
from gateway.abilities import Resuming
from gateway.clock import timestamp
from gateway.commits.calls import Complete, Pending
from gateway.commits.failures import Conflict, LedgerUnavailable
from gateway.commits.leases import Release
from gateway.commits.points import CommitPoint
from gateway.commits.tasks import EventRow, Finish
from gateway.commits.threads import Rewind
from gateway.commits.waiting import Suspend
from gateway.course import Course
from gateway.items import HandleKind, Ownership, StorageOwner
from gateway.journal import appended
from gateway.lifecycle import apply
from gateway.live import status
from gateway.model import Message, TaskArtifactUpdateEvent, TaskStatusUpdateEvent
from gateway.record import Update, entry
from gateway.replaying import Replay
from gateway.turn_commands import (
    CloseCall,
    Command,
    Conflicting,
    DropCall,
    EndTool,
    EndTurn,
    GoOn,
    NotePending,
    PauseTool,
    Publish,
    Reply,
    StartTool,
    StrayResult,
    Wait,
)
from gateway.whole_answers import whole

log = structlog.get_logger("gateway.performing")


class Performer:
    """The commands of one turn, carried out. `replay` passes over what was shown while a call is told once more."""

    __slots__ = ("_course", "_lane", "_means", "_work", "replay")

    def __init__(self, course: Course) -> None:
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
                case NotePending(handle=handle):
                    await self._note_pending(handle)
                case Reply():
                    reply = command
                case StrayResult(call_id=call_id):
                    log.warning("tool.stray-result", agent=self._work.agent.name, task=self._work.live.id, call=call_id)
                case GoOn():
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
        self, command: CloseCall | DropCall | Conflicting | StartTool | PauseTool | EndTool, before: list[CommitPoint]
    ) -> list[CommitPoint]:
        course, work, thread, now = self._course, self._work, self._lane.thread, self._means.clock.now()
        match command:
            case CloseCall():
                return [call_points.complete(work, thread, course.view, command, now)]
            case DropCall():
                return call_points.drop(work, thread, command, course.pending, now)
            case Conflicting():
                return self._conflict(command, before)
            case StartTool():
                return [call_points.tool_starts(thread, command, now)]
            case PauseTool():
                return [call_points.tool_waits(thread, command)]
            case EndTool():
                behind = ownership.behind_all(thread, before)
                return [call_points.tool_ends(behind, work.turn, work.service_call, command)]

    def _conflict(self, command: Conflicting, before: list[CommitPoint]) -> list[CommitPoint]:
        agent, means = self._work.agent, self._means
        thread = ownership.behind_all(self._lane.thread, before)
        if command.adopts:
            log.warning("thread.adopted", agent=agent.name, thread=thread.id)
            backend = Ownership(StorageOwner.BACKEND, HandleKind.ROTATING)
            return [ownership.epoch(thread, means.clock.row_id(), backend, command.handle)]
        if means.first_warning(thread.id):
            log.warning("thread.owner-conflict", agent=agent.name, thread=thread.id)
        if command.handle is None:
            return []
        return [call_points.orphan(agent, thread, command.handle, means.clock.now())]

    async def _note_pending(self, handle: str) -> None:
        """A static one was made for this call: the adapter goes on to use it when it cannot be lost any more."""
        self._course.pending = handle
        journal, pending = self._work.live.journal, Pending(self._work.service_call, handle)
        if handles.is_static(self._lane.thread):
            await journal.commit(lambda row: (pending, *appended(row)))
        else:
            journal.note(pending)

    async def _store(self, points: list[CommitPoint]) -> None:
        """What ends no turn: a call that is complete while the turn goes on, the start or the end of a tool."""
        work, lane = self._work, self._lane

        def stored() -> None:
            lane.thread = ownership.behind_all(lane.thread, points)
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
        if work.repeats_answer and end.status == "completed":
            for again in whole(output, live.id, live.context_id):
                self.publish(again)
        goes = lane.running is work and not lane.waiting and lane.may_release
        if ownership.goes_back(lane.thread, end.status, work.agent.policies) and work.service_call:
            points = (*points, Rewind(lane.thread.id, work.turn, self._course.base, now))
        back = ownership.taken_back(lane.thread, work.turn, end.status, now)

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
            lane.thread = ownership.behind_all(lane.thread, points)
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
        left = [handle for handle in ownership.led_to(thread, points) if handle != taken]
        orphans = [call_points.orphan(agent, thread, handle, now) for handle in left]
        if orphans:
            with suppress(Conflict, LedgerUnavailable):
                await self._means.ledger.commit(*orphans)
