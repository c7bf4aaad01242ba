"""A turn that waits for its caller, as it is taken up again: answered, closed, or given up. Law: what it was is read from the
ledger alone; every change is one unit that finds it still waiting.

Source: state-model, scenarios 110 to 120.
"""

from collections.abc import Callable, Iterable

from gateway import tools
from gateway.clock import Clock, onwards, timestamp
from gateway.commits.points import CommitPoint
from gateway.commits.tasks import EventRow, Finish, TaskRecord
from gateway.commits.threads import Caller, ThreadRecord
from gateway.commits.tools import AskedCall, ToolEnds
from gateway.commits.waiting import Decide, GivenAnswer, Verdict, WaitingTurn
from gateway.deciding import Resolution
from gateway.items import Ownership
from gateway.journal import Journal, appended
from gateway.ledger_port import Ledger
from gateway.live import status
from gateway.model import (
    Message,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
)
from gateway.record import TurnOutput, entry, replay
from gateway.tool_calls import CallFacts, Rendering
from gateway.tools import Settled, ToolCall
from gateway.turn import Turn, TurnFacts
from gateway.turn_commands import Command, EndTool, Publish, Wait

REJECTED = "The user rejected this call."
EXPIRED = "Nobody allowed this call in time."
NO_RESULT = "The client gave no result in time."


class Suspended:
    """`outputs` are what the turns of the task have shown, the last of them is that of this one; `number` is that of the
    task's latest event. `events` and `points` collect what a change brings about."""

    def __init__(
        self,
        caller: Caller,
        task: TaskRecord,
        turn: WaitingTurn,
        thread: ThreadRecord,
        outputs: list[TurnOutput],
        number: int,
        clock: Clock,
        rendering: Rendering,
    ) -> None:
        self.caller = caller
        self.task = task
        self.turn = turn
        self.thread = thread
        self.outputs = outputs
        self.number = number
        self.events: list[bytes] = []
        self._clock = clock = onwards(clock, task.status_at)
        self._points: list[CommitPoint] = []
        self._verdicts: list[Verdict] = []
        owned = Ownership(thread.owner, thread.handle_kind)
        facts = TurnFacts(task.id, task.context_id, owned, rendering=rendering)
        self.machine = Turn(facts, clock)
        self.machine.go_on(tuple(_call(asked) for asked in turn.calls))
        self._services = {asked.call.id: asked.call.service_call for asked in turn.calls}

    @property
    def message(self) -> Message:
        """The one that opened the turn."""
        return self.outputs[-1].message

    @property
    def goes_on(self) -> bool:
        """It was told all that it waited for before, and only has to be taken up."""
        return self.task.state is TaskState.WORKING and not (self._verdicts or self._points or self.machine.waiting)

    # --- changes

    def answer(self, resolution: Resolution, principal: str) -> None:
        """The caller's decisions and results."""
        for call_id, decision in resolution.decisions.items():
            call = self.machine.calls[call_id]
            decided = "approved" if decision.approved else "rejected"
            self._verdicts.append(Verdict(call_id, call.digest, decided, principal, decision.always))
            if decision.approved:
                call.status = "approved"
            else:
                why = f"{REJECTED} Reason: {decision.reason}" if decision.reason else REJECTED
                self._collect(self.machine.settle_tool(call, Settled("rejected", why)))
        for call_id, result in resolution.results.items():
            settled = Settled("failed" if result.error else "completed", result.output)
            self._collect(self.machine.settle_tool(self.machine.calls[call_id], settled))

    def expire(self, now: int) -> None:
        """What nobody answered in time."""
        for call in self.machine.calls.values():
            if not call.waits or call.expires_at is None or call.expires_at > now:
                continue
            if call.status == "pending_approval":
                self._verdicts.append(Verdict(call.facts.id, call.digest, "expired", None))
                settled = Settled("rejected", EXPIRED)
            else:
                settled = Settled("cancelled", NO_RESULT)
            self._collect(self.machine.settle_tool(call, settled))

    def close(self) -> None:
        """Nobody is going to answer: every open call is cancelled."""
        self._collect(self.machine.cancel())

    def _collect(self, commands: Iterable[Command]) -> None:
        for command in commands:
            match command:
                case Publish(update=update):
                    self.outputs[-1].apply(update)
                    self.events.append(entry(update))
                case EndTool():
                    self._points.append(
                        ToolEnds(
                            thread=self.thread.id,
                            generation=self.thread.generation,
                            turn=self.turn.turn,
                            service_call=self._services[command.id],
                            tool_call=command.id,
                            status=command.status,
                            outcome=command.outcome,
                            item=command.item,
                        )
                    )
                case _:
                    pass

    # --- what they are to the ledger

    def ending(
        self, last_event: int, state: TaskState | None, events: EventRow | None, now: int
    ) -> tuple[CommitPoint, ...]:
        """The turn is over with all that was collected. `state` None: the task goes on with its next turn."""
        output = self.outputs[-1]
        finish = Finish(
            task=self.task.id,
            turn=self.turn.turn,
            thread=self.thread.id,
            status="cancelled",
            failure_class=None,
            state=state,
            message=None,
            events=events,
            last_event=last_event,
            artifacts=output.artifacts_json(),
            messages=output.messages_json(None),
            visible=True,
            now=now,
        )
        return (self._decide(None, None, now, goes_on=False), *self._points, finish)

    async def store(
        self,
        journal: Journal,
        answer: GivenAnswer | None,
        stored: Callable[[TaskStatus], None] = lambda _: None,
        besides: tuple[CommitPoint, ...] = (),
    ) -> None:
        """The turn waits on, for the rest, or has nothing left to wait for; `stored` gets the status of its task.

        Raises: Conflict, LedgerUnavailable; then nothing has changed.
        """
        goes_on, now = not self.machine.waiting, self._clock.now()
        following = status(TaskState.WORKING, timestamp(now))
        for command in () if goes_on else self.machine.wait():
            if isinstance(command, Wait):
                following = status(command.state, timestamp(now), command.message)
        update = TaskStatusUpdateEvent(task_id=self.task.id, context_id=self.task.context_id, status=following)
        decide = self._decide(answer, following.message, now, goes_on=goes_on)

        def points(row: EventRow | None) -> tuple[CommitPoint, ...]:
            return (decide, *self._points, *besides, *appended(row))

        def done() -> None:
            self.outputs[-1].apply(update)
            stored(following)

        for payload in self.events:
            journal.add(payload)
        await journal.commit(points, entry(update), done)

    def _decide(self, answer: GivenAnswer | None, question: Message | None, now: int, *, goes_on: bool) -> Decide:
        return Decide(
            caller=self.caller,
            agent=self.task.agent,
            context=self.task.context,
            thread=self.thread.id,
            generation=self.thread.generation,
            task=self.task.id,
            turn=self.turn.turn,
            answer=answer,
            verdicts=tuple(self._verdicts),
            question=question,
            goes_on=goes_on,
            now=now,
        )


async def load(
    ledger: Ledger, clock: Clock, caller: Caller, task: TaskRecord, rendering: Rendering
) -> Suspended | None:
    """The waiting turn of this task; None where there is none (any more). `rendering`: what of tool calls is shown.

    Raises: LedgerUnavailable, CorruptRecord.
    """
    turn = await ledger.waiting_turn(task.id)
    thread = await ledger.thread(turn.thread) if turn is not None else None
    if turn is None or thread is None:
        return None
    turns = (await ledger.turns((task.id,), artifacts=True))[task.id]
    outputs, number = [TurnOutput.stored(one) for one in turns], task.last_event
    if turns[-1].ended:
        return None
    for number, _ in replay(outputs[-1], turns[-1], await ledger.events(task.id, task.last_event)):  # noqa: B007
        pass
    return Suspended(caller, task, turn, thread, outputs, number, clock, rendering)


def _call(asked: AskedCall) -> ToolCall:
    call = asked.call
    facts = CallFacts(call.id, call.name, call.round, call.sequence, call.executor, call.server, timestamp(call.at))
    return ToolCall(
        facts,
        call.external_id,
        arguments=call.arguments,
        status=call.status,
        outcome=asked.outcome,
        executor=call.executor,
        inputs=tools.parsed(call.arguments) or {},
        asked=asked.digest is not None,
        digest=asked.digest,
        expires_at=asked.expires_at,
        shown=True,
        cut=call.status == "running",
    )
