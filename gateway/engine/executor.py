"""Carries out the commands of a turn's machine: shows updates, stores the ends of calls and tools, pauses and ends the turn.

Law: an end is one unit, and its event is shown when that is stored.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress

import structlog

from gateway.a2a.errors import echo
from gateway.a2a.model import Part, TaskArtifactUpdateEvent
from gateway.core import commit_points, ownership, usage
from gateway.core.history import refused_positions
from gateway.core.lifecycles import TASK, advance
from gateway.core.replay import Replay
from gateway.core.task_record import calls_without_end, usage_metadata, whole_artifacts
from gateway.core.turn import commands
from gateway.core.turn.reconcile import must_reconcile
from gateway.engine.journal import appended
from gateway.engine.turn_context import TurnContext, weight_to_measure
from gateway.engine.turn_run import status, status_update
from gateway.foundation.clock import timestamp
from gateway.ledger.calls import Complete, GiveBack, MarkRefused, NameCall, SetAside
from gateway.ledger.errors import Conflict, LedgerUnavailable
from gateway.ledger.events import Update, entry, text_entries
from gateway.ledger.leases import Release
from gateway.ledger.points import CommitPoint
from gateway.ledger.states import ServiceCallStatus, TurnStatus
from gateway.ledger.tasks import EventRow, Reveal
from gateway.ledger.threads import DeleteOrphan, LeaveOut, MarkHandleLost, MarkUnsynced, Rewind, ThreadRecord
from gateway.ledger.tool_calls import ToolReported, ToolStarts, ToolWaits
from gateway.ledger.turns import Suspend
from gateway.ports.adapter import HANDLE_LOST, MEANINGS
from gateway.ports.capabilities import CanResume, Ongoing
from gateway.ports.conversation import HandleKind, Ownership, StorageOwner

log = structlog.get_logger("gateway.engine.executor")


def aborted(context: TurnContext, command: commands.AbortCall, *, ends_turn: bool = True) -> list[CommitPoint]:
    """The commit points that end a service call that does not count. With `ends_turn`, a handle that the backend does
    not know marks the thread as lost."""
    run, thread = context.run, context.thread
    if not run.prepared:
        return []
    agent, kind, ended = run.agent, command.error_class, context.clock.now()
    unknown = ends_turn and must_reconcile(agent.adapter, agent.policies, thread, kind, context.call)
    end = ServiceCallStatus.UNKNOWN if unknown else ServiceCallStatus.FAILED
    failed = commit_points.fail(
        thread, run.turn, run.service_call, kind, ended,
        following=end, items=command.items, usage=command.usage, first_at=context.first_at,
    )  # fmt: skip
    if unknown:
        return [failed, MarkUnsynced(thread.id, run.turn)]
    points: list[CommitPoint] = [failed]
    if ends_turn and kind in HANDLE_LOST and thread.handle is not None and not thread.lost:
        points.append(MarkHandleLost(thread.id, thread.generation))
    orphan = ownership.orphaned_handle(thread, context.call.handle)
    if orphan is not None:
        points.append(DeleteOrphan(thread.id, agent.name, orphan, context.runtime.clock.now()))
    return points


class CommandExecutor:
    """The commands of one turn. `replay` filters out what was shown before, while a call is repeated from its beginning."""

    __slots__ = ("_context", "_growing", "_revealed", "_run", "_text_entry", "replay")

    def __init__(self, context: TurnContext) -> None:
        self._context = context
        self._run = context.run
        self._revealed = False
        self._growing = ""
        self._text_entry: Callable[[str], bytes]
        """Writes the events of the artifact that grows."""
        self.replay: Replay | None = None

    def publish(self, update: Update) -> None:
        shown = update if self.replay is None else self.replay.filter(update)
        if shown is None:
            return
        if not self._revealed:
            self._reveal()
        live = self._run.live
        live.journal.add(entry(shown))
        live.outputs[-1].apply(shown)

    def grow(self, artifact_id: str, text: str) -> None:
        """As `publish`, of an update that adds this text to an artifact which ends with a text, while nothing is replayed."""
        live = self._run.live
        if artifact_id != self._growing:
            self._growing, self._text_entry = artifact_id, text_entries(live.id, live.context_id, artifact_id)
        live.journal.add(self._text_entry(text))
        live.outputs[-1].grow(artifact_id, text)

    def _reveal(self) -> None:
        """Whoever is shown an update knows of the task."""
        self._revealed, run, runtime = True, self._run, self._context.runtime
        runtime.observer.turn_showed(run.agent.name, runtime.clock.monotonic() - run.began)
        if not run.response.done():
            run.live.journal.note(Reveal(run.live.id), stored=lambda: run.respond(None))

    def end_replay(self) -> None:
        """The call is complete: its answer may be less than what was shown."""
        answer = self.replay.finish() if self.replay is not None else None
        if answer is not None:
            live = self._run.live
            self.publish(TaskArtifactUpdateEvent(task_id=live.id, context_id=live.context_id, artifact=answer))

    def break_off_replay(self) -> Sequence[Part]:
        """The call breaks off. The parts of the answer that were shown, and that it has not repeated."""
        if self.replay is None:
            return ()
        unsaid = self.replay.unsaid
        self.replay.stop()
        return unsaid

    async def perform(self, batch: list[commands.Command]) -> None:
        """Raises: Conflict, LedgerUnavailable."""
        points: list[CommitPoint] = []
        reply: commands.Reply | None = None
        ends = False
        for command in batch:
            match command:
                case commands.Publish(update=update):
                    self.publish(update)
                case commands.EndTurn():
                    ends = True
                    await self._end(command, points, reply)
                case commands.RecordPending(handle=handle, run=name):
                    await self.note_names(handle, name)
                case commands.Reply():
                    reply = command
                case commands.StrayResult(call_id=call_id):
                    log.warning("tool.stray-result", agent=self._run.agent.name, task=self._run.live.id, call=call_id)
                case commands.UnknownFinish(reason=reason, correlation_id=correlation_id):
                    found = {"reason": echo(reason), "correlation_id": correlation_id}
                    log.warning("call.unknown-finish", agent=self._run.agent.name, task=self._run.live.id, **found)
                case commands.Wait():
                    await self._pause(command)
                case _:
                    points += self._points(command, points)
        if points and not ends:
            await self._store(points)

    def _points(self, command: commands.Command, before: list[CommitPoint]) -> list[CommitPoint]:
        context, run, thread, now = self._context, self._run, self._context.thread, self._context.runtime.clock.now()
        match command:
            case commands.CompleteCall():
                doubted = self._doubted(thread, now)
                return [*doubted, self._complete(command, ownership.apply_points(thread, doubted))]
            case commands.AbortCall():
                kind = command.error_class
                return [*aborted(context, command), *self._unsure(kind), *self._refused(kind)]
            case commands.OwnershipConflict():
                return self._conflict(command, ownership.apply_points(thread, before), now)
            case commands.StartTool():
                return [ToolStarts(thread.id, thread.generation, command.id, now)]
            case commands.PauseTool():
                return [ToolWaits(thread.id, thread.generation, command.id, command.expires_at)]
            case commands.ReportTool(id=id_, status=ended, outcome=outcome, at=at):
                generation = ownership.apply_points(thread, before).generation
                return [ToolReported(thread.id, generation, id_, ended, outcome, at)]
            case commands.EndTool():
                generation = ownership.apply_points(thread, before).generation
                return [commit_points.tool_ends(thread.id, generation, run.turn, run.service_call, command)]
            case _:
                return []

    def _complete(self, command: commands.CompleteCall, thread: ThreadRecord) -> Complete:
        run, view, now = self._run, self._context.view, self._context.clock.now()
        # Without a new handle the chain continues from the state before this request, and does not hold the items of
        # the request.
        carried = command.handle is not None or thread.owner is StorageOwner.GATEWAY
        sent, version = view.positions if carried else (), run.agent.adapter.ownership.state_version
        weight = weight_to_measure(run.agent, view, command.tool_calls)
        secret = self._context.runtime.secrets.seal(command.secret, thread.id)
        call = run.turn, run.service_call
        first_at = self._context.first_at
        return commit_points.complete(
            thread, *call, command, sent, version, now, weight, secret=secret, first_at=first_at
        )

    def _doubted(self, thread: ThreadRecord, now: int) -> list[CommitPoint]:
        """The backend has accepted the request: what was left out of it last was the reason of the refusal before.
        What was refused together with something else, and is not at fault, is given back."""
        doubt, view = self._context.doubt, self._context.view
        innocent = view.back or (() if doubt is None else doubt.cleared)
        points: list[CommitPoint] = [GiveBack(thread.id, innocent)] if innocent else []
        if doubt is None:
            return points
        proven = doubt.proven(view.positions)
        if proven:
            points.append(MarkRefused(thread.id, doubt.refused_in, proven))
        if doubt.aside:
            points.append(SetAside(thread.id, doubt.refused_in, tuple(sorted(doubt.aside))))
        elif doubt.turn is not None:
            points.append(LeaveOut(doubt.turn))
            if thread.handle_kind is HandleKind.ROTATING:
                points.append(Rewind(thread.id, doubt.turn, doubt.handle, now))
        return points

    def _unsure(self, error_class: str) -> list[CommitPoint]:
        """The call does not count: what an earlier turn left running at the backend may land before the next request."""
        doubtful = self._context.doubtful
        if doubtful is None or not self._run.prepared or error_class in HANDLE_LOST:
            return []
        return [MarkUnsynced(self._context.thread.id, doubtful)]

    def _refused(self, error_class: str) -> list[CommitPoint]:
        """The mark on the items that were new in a refused request. Source: docs/state-model.md, scenario 46b."""
        context, run, meaning = self._context, self._run, MEANINGS.get(error_class)
        if meaning is None or not (meaning.refuses_content and run.prepared):
            return []
        positions = refused_positions(context.view, context.doubt)
        return [MarkRefused(context.thread.id, run.service_call, positions)] if positions else []

    def _conflict(self, command: commands.OwnershipConflict, thread: ThreadRecord, now: int) -> list[CommitPoint]:
        agent, runtime = self._run.agent, self._context.runtime
        if command.adopts:
            log.warning("thread.adopted", agent=agent.name, thread=thread.id)
            backend = Ownership(StorageOwner.BACKEND, HandleKind.ROTATING)
            return [ownership.epoch(thread, runtime.clock.row_id(), backend, command.handle, why="adopted", now=now)]
        if runtime.first_warning(thread.id):
            log.warning("thread.owner-conflict", agent=agent.name, thread=thread.id)
        return [] if command.handle is None else [DeleteOrphan(thread.id, agent.name, command.handle, now)]

    async def note_names(self, handle: str | None, run: str | None) -> None:
        """A static handle was made for this call: the adapter uses it once it cannot be lost any more."""
        before = self._context.call
        self._context.call = Ongoing(handle or before.handle, run or before.run)
        journal, names = self._run.live.journal, NameCall(self._run.service_call, handle, run)
        if handle is not None and ownership.is_static(self._context.thread):
            await journal.commit(lambda row: (names, *journal.appended(row)))
        else:
            journal.note(names)

    async def _store(self, points: list[CommitPoint]) -> None:
        """Handles a command that does not end the turn: a completed call while the turn continues, the start or the end
        of a tool."""

        def stored() -> None:
            self._context.held.apply(points)
            self._run.live.count(points)
            self._tell_of_loss(points)
            if any(isinstance(point, Complete) for point in points):
                self._run.end_call(completed=True)

        await self._commit(lambda row: (*appended(row), *points), None, stored, points)

    def _tell_of_loss(self, points: list[CommitPoint]) -> None:
        """A thread is marked as lost once, however many messages it gets afterwards."""
        if any(isinstance(point, MarkHandleLost) for point in points):
            self._context.runtime.observer.handle_lost(self._run.agent.name, rebuilt=False)

    async def _pause(self, wait: commands.Wait) -> None:
        live, turn, held, holder = self._run.live, self._run.turn, self._context.held, self._context.runtime.holder
        now = self._context.clock.now()
        asking = status(advance(TASK, live.status.state, wait.state), timestamp(now), wait.message)
        update = status_update(live, asking, usage_metadata(live.outputs))

        def unit(row: EventRow | None) -> tuple[CommitPoint, ...]:
            thread = held.thread.id
            return (Suspend(live.id, turn, thread, wait.state, wait.message, row, now), Release(thread, holder))

        def stored() -> None:
            live.apply(update)
            held.leased = False
            self._run.respond(None)

        await live.journal.commit(unit, entry(update), stored)

    async def _end(self, end: commands.EndTurn, points: list[CommitPoint], reply: commands.Reply | None) -> None:
        """C6, with the points that close the service call, in one unit; then the final event is shown."""
        run, held, holder = self._run, self._context.held, self._context.runtime.holder
        self._end_broken_off()
        live, thread, output, now = run.live, held.thread, run.live.outputs[-1], self._context.clock.now()
        final = status(advance(TASK, live.status.state, end.state), timestamp(now), end.message)
        spent = usage.total((output.usage, usage.reported(points)))
        whole = usage.total((*(earlier.usage for earlier in live.outputs[:-1]), spent))
        update = status_update(live, final, (end.metadata or {}) | usage.in_metadata(spent, whole))
        if run.repeats_answer and end.status is TurnStatus.COMPLETED:
            for again in whole_artifacts(output, live.id, live.context_id):
                self.publish(again)
        if ownership.rewinds(thread, end.status, run.agent.policies) and run.service_call:
            points = [*points, Rewind(thread.id, run.turn, self._context.base, now)]
        back = ownership.revert_displaced(thread, run.turn, end.status, now)
        withdraws = ownership.withdraw(thread.handle_kind, live.id, end.status, now)
        releases = held.is_last(run)

        def unit(row: EventRow | None) -> tuple[CommitPoint, ...]:
            # A paused turn belongs to no process until it continues.
            process, last = None if run.open_calls else holder, live.journal.number + 1
            finish = commit_points.finish(
                output, end, live.id, run.turn, thread.id, row, last, now,
                spent=spent, visible=reply is None, process=process,
            )  # fmt: skip
            return (*points, finish, *back, *withdraws, *((Release(thread.id, holder),) if releases else ()))

        def stored() -> None:
            live.apply(update)
            output.usage = spent
            held.apply(points)
            self._tell_of_loss(points)
            if releases:
                held.leased = False
            if back or withdraws:
                held.current = False
            run.respond(reply.message if reply is not None else None)

        await self._commit(unit, entry(update), stored, points)

    def _end_broken_off(self) -> None:
        """Whoever ends the turn, and however: callers see the end of every call that they see to begin."""
        for command in self._context.machine.end_broken_off(calls_without_end(self._run.live.outputs[-1])):
            if isinstance(command, commands.Publish):
                self.publish(command.update)

    async def _commit(
        self,
        unit: Callable[[EventRow | None], tuple[CommitPoint, ...]],
        final: bytes | None,
        stored: Callable[[], None],
        points: list[CommitPoint],
    ) -> None:
        """Commits like `Journal.commit`. After a conflict another process has the thread, and the handles in `points`
        are orphans. The exception is the handle of a call whose stream can be read again: the other process continues
        with that call.

        Source: docs/state-model.md, scenario 39.
        """
        try:
            await self._run.live.journal.commit(unit, final, stored)
        except Conflict:
            agent, thread, now = self._run.agent, self._context.thread, self._context.runtime.clock.now()
            taken = self._context.call.handle if isinstance(agent.adapter, CanResume) else None
            handles = [handle for handle in ownership.abandoned_handles(thread, points) if handle != taken]
            if handles:
                with suppress(Conflict, LedgerUnavailable):
                    await self._context.runtime.ledger.commit(
                        *(DeleteOrphan(thread.id, agent.name, handle, now) for handle in handles)
                    )
            raise
