"""A message to a turn that waits: its answers are stored, and the turn goes on when nothing is missing. Law: one commit, which
finds the calls as they were asked about; words are no answer.

Source: state-model, scenarios 110 to 120.
"""

import asyncio
from collections.abc import Callable

from msgspec.structs import replace

from gateway.a2a.errors import InvalidParams
from gateway.a2a.model import Message, SendMessageRequest, TaskState, TaskStatus
from gateway.a2a.tool_calls import Rendering, rendering
from gateway.core.agents import Agent
from gateway.core.tools.answers import Answers, answers, refuse_always, repeats, resolve
from gateway.engine import paused_turn
from gateway.engine.fanout import Fanout
from gateway.engine.journal import Journal
from gateway.engine.paused_turn import PausedTurn
from gateway.engine.turn_run import LiveTask, TurnRun, status
from gateway.foundation.clock import Clock, timestamp
from gateway.ledger.errors import Conflict
from gateway.ledger.points import CommitPoint
from gateway.ledger.port import Ledger
from gateway.ledger.tasks import TaskRecord
from gateway.ledger.threads import Caller
from gateway.ledger.tool_calls import AskedCall
from gateway.ledger.turns import GivenAnswer, IdempotencyKey, Replay
from gateway.operations.api import OperationCall
from gateway.ports.conversation import UserItem
from gateway.scheduling.close import close_task
from gateway.scheduling.runner import Runner

Accepted = Callable[[TurnRun], None]


class Answering:
    def __init__(self, ledger: Ledger, runner: Runner, fanout: Fanout, clock: Clock) -> None:
        self._ledger = ledger
        self._runner = runner
        self._fanout = fanout
        self._clock = clock

    async def was_said(self, call: OperationCall, message: Message) -> bool:
        """Whether the message only repeats what its caller has answered to this task before.

        Source: state-model, scenario 113.
        """
        try:
            given = answers(message)
        except InvalidParams:
            return False
        if not given or not message.task_id:
            return False
        return repeats(given, await self._ledger.asked_calls(message.task_id), self._clock.now(), _shown(call).redact)

    async def answer(
        self,
        call: OperationCall,
        request: SendMessageRequest,
        task: TaskRecord,
        key: IdempotencyKey | None,
        content: str,
        accepted: Accepted | None,
        besides: tuple[CommitPoint, ...] = (),
    ) -> TurnRun | Replay | PausedTurn:
        """The turn that goes on; a Replay where it still waits; the turn itself, closed, where the message answers nothing.

        `besides` is stored with the answers. Raises: InvalidParams; Conflict when it waits no more.
        """
        shown = _shown(call)
        waiting = await paused_turn.load(self._ledger, self._clock, call.caller, task, shown)
        if waiting is None:
            raise Conflict(f"the turn of task {task.id!r} waits no more")
        given = answers(request.message)
        if not given and not waiting.takes_words:
            waiting.close()
            return waiting
        if call.agent.policies.standing_approvals == "refuse":
            refuse_always(given)
        resolution = resolve(given, await self._calls(given, waiting), self._clock.now(), shown.redact)
        if given and not resolution:
            return Replay(task.id, content)
        message = replace(request.message, context_id=task.context_id, task_id=task.id)
        rest = (UserItem(replace(message, parts=given.rest)),) if given.rest else ()
        said = GivenAnswer(message, waiting.turn.inputs, content, key, waiting.number + 1, rest)
        waiting.outputs[-1].say(message)
        waiting.answer(resolution, call.caller.principal)
        modes = request.configuration.accepted_output_modes if request.configuration else None
        work = await self.change(call.agent, call.caller, waiting, said, accepted, modes or (), besides)
        return work or Replay(task.id, content)

    async def change(
        self,
        agent: Agent,
        caller: Caller,
        waiting: PausedTurn,
        said: GivenAnswer | None,
        accepted: Accepted | None = None,
        modes: tuple[str, ...] = (),
        besides: tuple[CommitPoint, ...] = (),
    ) -> TurnRun | None:
        """Stores what has changed of a turn that waits; the turn, if it goes on. Raises: Conflict."""
        task = waiting.task
        journal = Journal(self._ledger, self._fanout.hold(task.id), task.id, waiting.number)
        work = self._work(agent, caller, waiting, journal, modes)
        if waiting.goes_on:
            self._runner.resume(work, waiting.thread)
            return work
        goes_on = False

        def stored(following: TaskStatus) -> None:
            nonlocal goes_on
            goes_on = not waiting.machine.waiting
            if goes_on:
                work.live.status = following
                if accepted is not None:
                    accepted(work)
                self._runner.resume(work, waiting.thread)

        try:
            await waiting.store(journal, said, stored, besides)
        finally:
            if not goes_on:
                self._fanout.release(task.id)
        return work if goes_on else None

    async def give_up(self, caller: Caller, task: TaskRecord, shown: Rendering) -> None:
        """Ends a turn that waits and was to be cancelled. Whoever is faster wins."""
        await close_task(caller, task, TaskState.CANCELED, self._ledger, self._fanout, self._clock, shown)

    def _work(
        self, agent: Agent, caller: Caller, waiting: PausedTurn, journal: Journal, modes: tuple[str, ...]
    ) -> TurnRun:
        task, loop = waiting.task, asyncio.get_running_loop()
        work = TurnRun(
            turn=waiting.turn.turn,
            agent=agent,
            caller=caller,
            live=LiveTask(
                id=task.id,
                context_id=task.context_id,
                agent=agent.name,
                caller=caller,
                status=status(task.state, timestamp(task.status_at), task.status_message),
                outputs=waiting.outputs,
                journal=journal,
            ),
            message=waiting.message,
            first_message=waiting.outputs[0].message,
            accepted_output_modes=modes,
            fresh_thread=False,
            opened=loop.create_future(),
            done=loop.create_future(),
            service_call=waiting.turn.calls[0].call.service_call,
            resumed=tuple(waiting.machine.calls.values()),
            base=waiting.turn.base,
            rendering=waiting.machine.facts.rendering,
        )
        work.opened.set_result(None)
        return work

    async def _calls(self, given: Answers, waiting: PausedTurn) -> tuple[AskedCall, ...]:
        """Those of the round, and where the message names others, those of the task that were answered before."""
        calls = waiting.turn.calls
        known = {asked.call.id for asked in calls}
        named = {decision.call for decision in given.decisions if decision.call is not None}
        named |= {result.call for result in given.results}
        if named <= known:
            return calls
        earlier = await self._ledger.asked_calls(waiting.task.id)
        return (*calls, *(asked for asked in earlier if asked.call.id not in known))


def _shown(call: OperationCall) -> Rendering:
    """What its caller sees of tool calls."""
    return rendering(call.agent.policies.tool_calls, call.caller.principal, call.named)
