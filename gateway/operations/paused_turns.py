"""Paused turns: answers of the caller, the end of their time, cancellation. Law: one commit, which finds the calls as they
were asked about; text is no answer.

Source: docs/state-model.md, scenarios 110 to 120.
"""

from collections.abc import Callable

import msgspec
from msgspec.structs import replace

from gateway.a2a.errors import InvalidParams
from gateway.a2a.model import TaskState, TaskStatus
from gateway.a2a.tool_calls import HIDDEN, Rendering
from gateway.core.agents import Agent
from gateway.core.task_record import usage_metadata
from gateway.core.tools.answers import Answers, is_repetition, refuse_standing, resolve
from gateway.engine import paused_turn
from gateway.engine.fanout import Fanout
from gateway.engine.journal import Journal
from gateway.engine.paused_turn import PausedTurn
from gateway.engine.turn_run import LiveTask, TurnRun, status, status_update
from gateway.engine.turn_spans import tell_end
from gateway.foundation.clock import Clock, non_decreasing, timestamp
from gateway.ledger.errors import Conflict
from gateway.ledger.events import entry
from gateway.ledger.points import CommitPoint
from gateway.ledger.port import Ledger
from gateway.ledger.tasks import Close, EventRow, TaskRecord
from gateway.ledger.threads import Caller, Withdraw
from gateway.ledger.tool_calls import AskedCall
from gateway.ledger.traces import RecordedTurn
from gateway.ledger.turns import GivenAnswer, Preferences, Replay
from gateway.operations.incoming import Incoming
from gateway.ports.conversation import UserItem
from gateway.scheduling.runner import Runner
from gateway.scheduling.settle import store_end

OnStored = Callable[[TurnRun], None]


class PausedTurns(msgspec.Struct, frozen=True):
    """Changes turns that wait for their callers. One instance serves every agent of the gateway."""

    ledger: Ledger
    runner: Runner
    fanout: Fanout
    clock: Clock

    async def has_answer(self, incoming: Incoming) -> bool:
        """Whether the message only repeats what the caller has answered to its task before.

        Source: docs/state-model.md, scenario 113.
        """
        task_id = incoming.message.task_id
        try:
            given = incoming.answers
        except InvalidParams:
            return False
        if not given or not task_id:
            return False
        asked = await self.ledger.asked_calls(task_id)
        return is_repetition(given, asked, self.clock.now(), incoming.call.rendering.redact)

    async def answer(self, incoming: Incoming, task: TaskRecord, on_stored: OnStored) -> TurnRun | Replay | PausedTurn:
        """The turn that continues; a Replay where it still waits; the paused turn, closed, where the message answers nothing.

        Raises: InvalidParams; TaskGenerationMismatch; Conflict when the turn waits no more.
        """
        call, shown = incoming.call, incoming.call.rendering
        paused = await paused_turn.load(self.ledger, self.clock, call.caller, task, shown)
        if paused is None:
            raise Conflict(f"the turn of task {task.id!r} waits no more")
        incoming.check_generation(paused.number)
        given = incoming.answers
        if not given and not paused.takes_words:
            paused.close()
            return paused
        if call.agent.policies.standing_approvals == "refuse":
            refuse_standing(given)
        resolution = resolve(given, await self._asked(given, paused), self.clock.now(), shown.redact)
        if given and not resolution:
            return Replay(task.id, incoming.digest)
        outcomes = await paused_turn.outcomes(resolution, shown)
        message = replace(incoming.message, context_id=task.context_id, task_id=task.id)
        rest = (UserItem(replace(message, parts=given.rest)),) if given.rest else ()
        said = GivenAnswer(message, paused.turn.inputs, incoming.digest, incoming.key, paused.number + 1, rest)
        paused.outputs[-1].messages.append(message)
        paused.answer(resolution, outcomes, call.caller.principal)
        return await self._store(call.agent, paused, said, incoming, on_stored) or Replay(task.id, incoming.digest)

    async def resume(self, agent: Agent, paused: PausedTurn) -> None:
        """Stores what has changed of a turn that waits, and runs it if it waits for nothing more. Raises: Conflict."""
        if paused.goes_on:
            task, recorded = paused.task, await self._recorded(paused)
            journal = Journal(self.ledger, self.fanout.hold(task.id), task.id, paused.number)
            self.runner.resume(_turn_run(agent, paused, journal, Preferences(), recorded), paused.thread)
        else:
            await self._store(agent, paused)

    async def cancel(
        self, caller: Caller, task: TaskRecord, shown: Rendering = HIDDEN, *, displaced: bool = False
    ) -> bool:
        """Cancels a task that waits for its caller. Returns False when a message to the task, or another end of the
        task, was faster.

        `shown` is the form in which the caller sees tool calls. `displaced` excludes the paused turn from the
        conversation.
        """
        clock = non_decreasing(self.clock, task.status_at)
        now = clock.now()
        paused = await paused_turn.load(self.ledger, clock, caller, task, shown)
        tokens = None if paused is None else usage_metadata(paused.outputs)
        event = entry(status_update(task, status(TaskState.CANCELED, timestamp(now)), tokens))
        number, events = (task.last_event, []) if paused is None else (paused.number, paused.events)
        if paused is not None:
            paused.close()

        def unit(row: EventRow | None, last: int) -> tuple[CommitPoint, ...]:
            if paused is None:
                return (Close(task.id, TaskState.CANCELED, row, last, now), Withdraw(task.id, now))
            return paused.ending(last, TaskState.CANCELED, row, now, displaced=displaced)

        if not await store_end(task.id, number, events, unit, event, self.ledger, self.fanout):
            return False
        if paused is not None:
            await tell_end(self.runner.runtime, paused.turn.turn, task, self.runner.find_agent(task.agent))
        return True

    async def _store(
        self,
        agent: Agent,
        paused: PausedTurn,
        said: GivenAnswer | None = None,
        incoming: Incoming | None = None,
        on_stored: OnStored | None = None,
    ) -> TurnRun | None:
        """The turn, if it continues. Raises: Conflict."""
        task = paused.task
        push, preferences = (None, Preferences()) if incoming is None else (incoming.push, incoming.preferences)
        besides = () if push is None else (push.on(task.id, self.clock.now()),)
        recorded = await self._recorded(paused)
        journal = Journal(self.ledger, self.fanout.hold(task.id), task.id, paused.number)
        run = _turn_run(agent, paused, journal, preferences, recorded)
        continues = False

        def stored(following: TaskStatus) -> None:
            nonlocal continues
            continues = not paused.machine.waiting
            if continues:
                run.live.status = following
                if on_stored is not None:
                    on_stored(run)
                self.runner.resume(run, paused.thread)

        try:
            await paused.store(journal, said, stored, besides)
        finally:
            if not continues:
                self.fanout.release(task.id)
        if incoming is not None and incoming.push is not None and not continues:
            incoming.push.stored(task.id, task.context_id)
        return run if continues else None

    async def _recorded(self, paused: PausedTurn) -> RecordedTurn | None:
        """What the ledger knows of a turn that goes on, where spans are wanted."""
        return await self.ledger.recorded_turn(paused.turn.turn) if self.runner.runtime.observer.traces else None

    async def _asked(self, given: Answers, paused: PausedTurn) -> tuple[AskedCall, ...]:
        """The calls of the round. Where the message names other calls, also the calls of the task that were answered before."""
        calls = paused.turn.calls
        known = {asked.call.id for asked in calls}
        named = {decision.call for decision in given.decisions if decision.call is not None}
        named |= {result.call for result in given.results}
        if named <= known:
            return calls
        earlier = await self.ledger.asked_calls(paused.task.id)
        return (*calls, *(asked for asked in earlier if asked.call.id not in known))


def _turn_run(
    agent: Agent, paused: PausedTurn, journal: Journal, preferences: Preferences, recorded: RecordedTurn | None
) -> TurnRun:
    live, machine = LiveTask.stored(paused.task, paused.outputs, journal), paused.machine
    run = TurnRun(paused.turn.turn, agent, paused.caller, live, preferences, machine.facts.rendering, False)
    run.occasion.call, run.base = paused.turn.calls[0].call.service_call, paused.turn.base
    run.open_calls = tuple(machine.calls.values())
    run.go_on_from(recorded)
    return run
