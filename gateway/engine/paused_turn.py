"""A turn that waits for its caller: answered, expired, or closed. Law: its state is read from the ledger alone; every change is
one unit that finds the turn still waiting.

Source: docs/state-model.md, scenarios 110 to 120.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from msgspec.structs import replace

from gateway.a2a.model import TaskState, TaskStatus
from gateway.a2a.tool_calls import CallFacts, Rendering
from gateway.core import commit_points, ownership
from gateway.core.task_record import TurnOutput, calls_without_end, shown_calls, usage_metadata
from gateway.core.tools import prompts, tool_call
from gateway.core.tools.answers import Resolution
from gateway.core.tools.tool_call import ConsentLink, Settled, ToolCall
from gateway.core.turn.commands import Command, EndTool, EndTurn, Publish, Wait
from gateway.core.turn.machine import TurnFacts, TurnMachine
from gateway.engine.journal import Journal, appended
from gateway.engine.masking import masked
from gateway.engine.turn_run import StoredTask, status, status_update
from gateway.foundation.clock import Clock, non_decreasing, timestamp
from gateway.ledger.events import entry
from gateway.ledger.points import CommitPoint
from gateway.ledger.port import Ledger
from gateway.ledger.states import ToolCallStatus, TurnStatus
from gateway.ledger.tasks import EventRow, TaskRecord
from gateway.ledger.threads import Caller, Displace, ThreadRecord
from gateway.ledger.tool_calls import AskedCall, ToolCallRecord
from gateway.ledger.turns import Decide, GivenAnswer, Verdict, WaitingTurn
from gateway.ports.conversation import Ownership

REJECTED = "The user rejected this call."
EXPIRED = "Nobody allowed this call in time."
NO_CONSENT = "The user did not consent to what this call needs in time; it was not run."
NO_RESULT = "The client gave no result in time."

_EXPIRED: dict[ToolCallStatus | None, Settled] = {
    ToolCallStatus.PENDING_APPROVAL: Settled(ToolCallStatus.REJECTED, EXPIRED),
    ToolCallStatus.PENDING_CONSENT: Settled(ToolCallStatus.REJECTED, NO_CONSENT),
}


@dataclass(slots=True)
class PausedTurn:
    """A turn that waits for its caller. `outputs` are the outputs of the task's turns, this turn's output last; `number` is the
    number of the task's latest event. `events` and `points` collect the changes."""

    caller: Caller
    task: TaskRecord
    turn: WaitingTurn
    thread: ThreadRecord
    outputs: list[TurnOutput]
    number: int
    machine: TurnMachine
    events: list[bytes] = field(default_factory=list)
    _points: list[CommitPoint] = field(default_factory=list)
    _verdicts: list[Verdict] = field(default_factory=list)
    _retries: list[str] = field(default_factory=list)

    @property
    def goes_on(self) -> bool:
        """The turn has all its answers already, and only has to be taken up."""
        changed = self._verdicts or self._points or self._retries
        return self.task.state is TaskState.WORKING and not (changed or self.machine.waiting)

    @property
    def takes_words(self) -> bool:
        """Whether the turn waits only for consents, which users give on other pages. In this case any message continues
        the turn."""
        waiting = [call.status for call in self.machine.calls.values() if call.waits]
        return bool(waiting) and set(waiting) == {ToolCallStatus.PENDING_CONSENT}

    # --- changes

    def answer(self, resolution: Resolution, outcomes: Mapping[str, Settled], principal: str) -> None:
        """The caller's decisions, and the outcomes of the calls that it ran. Calls that wait for a consent run again,
        whatever the caller says."""
        for call in self.machine.calls.values():
            if call.status is ToolCallStatus.PENDING_CONSENT:
                self._retries.append(call.facts.id)
                self.machine.approve(call.facts.id)
        for call_id, decision in resolution.decisions.items():
            call = self.machine.calls[call_id]
            decided = "approved" if decision.approved else "rejected"
            self._verdicts.append(Verdict(call_id, call.digest, decided, principal, decision.always))
            if decision.approved:
                self.machine.approve(call_id)
            else:
                why = f"{REJECTED} Reason: {decision.reason}" if decision.reason else REJECTED
                self._collect(self.machine.settle_tool(call, Settled(ToolCallStatus.REJECTED, why)))
        for call_id, settled in outcomes.items():
            self._collect(self.machine.settle_tool(self.machine.calls[call_id], settled))

    def expire(self, now: int) -> None:
        """Settles the calls that were not answered in time."""
        for call in self.machine.calls.values():
            if not call.waits or call.expires_at is None or call.expires_at > now:
                continue
            if call.status is ToolCallStatus.PENDING_APPROVAL:
                self._verdicts.append(Verdict(call.facts.id, call.digest, "expired", None))
            settled = _EXPIRED.get(call.status) or Settled(ToolCallStatus.CANCELLED, NO_RESULT)
            self._collect(self.machine.settle_tool(call, settled))

    def close(self) -> None:
        """No answer will come: every open call is cancelled."""
        self._collect(self.machine.cancel())
        self._collect(self.machine.end_broken_off(calls_without_end(self.outputs[-1])))

    def _collect(self, commands: Iterable[Command]) -> None:
        for command in commands:
            if isinstance(command, Publish):
                self.outputs[-1].apply(command.update)
                self.events.append(entry(command.update))
            elif isinstance(command, EndTool):
                at = (self.thread.id, self.thread.generation, self.turn.turn, self.turn.calls[0].call.service_call)
                self._points.append(commit_points.tool_ends(*at, command))

    # --- the changes as commit points

    def ending(
        self, last_event: int, state: TaskState | None, events: EventRow | None, now: int, *, displaced: bool = False
    ) -> tuple[CommitPoint, ...]:
        """The commit points that end the turn, with the collected changes. When `state` is None, the task continues
        with its next turn. `displaced` says that a message that does not answer the turn has ended it."""
        end, turn, thread = EndTurn(TurnStatus.CANCELLED, state or TaskState.CANCELED), self.turn.turn, self.thread
        finish = commit_points.finish(
            self.outputs[-1], end, self.task.id, turn, thread.id, events, last_event, now, ends_task=state is not None
        )
        mark = (Displace(thread.id, turn, itself=True),) if displaced else ()
        back = ownership.revert_displaced(thread, turn, finish.status, now)
        # A task that continues with its next turn answers its agent with that.
        over = ownership.withdraw(thread.handle_kind, self.task.id, finish.status, now) if state is not None else ()
        return (self._decide(None, None, now, goes_on=False), *self._points, *mark, finish, *back, *over)

    async def store(
        self,
        journal: Journal,
        answer: GivenAnswer | None,
        stored: Callable[[TaskStatus], None],
        extra: tuple[CommitPoint, ...],
    ) -> None:
        """Keeps the turn waiting for the open calls, or continues it if no call is open; `stored` gets the status of
        its task.

        Raises: Conflict, LedgerUnavailable; in both cases nothing has changed.
        """
        goes_on, now = not self.machine.waiting, self.machine.clock.now()
        following = status(TaskState.WORKING, timestamp(now))
        for command in () if goes_on else self.machine.wait():
            if isinstance(command, Wait):
                following = status(command.state, timestamp(now), command.message)
        shown = None if goes_on else usage_metadata(self.outputs)
        update = status_update(self.task, following, shown)
        decide = self._decide(answer, following, now, goes_on=goes_on)

        def points(row: EventRow | None) -> tuple[CommitPoint, ...]:
            return (decide, *self._points, *extra, *appended(row))

        def done() -> None:
            self.outputs[-1].apply(update)
            stored(following)

        for payload in self.events:
            journal.add(payload)
        await journal.commit(points, entry(update), done)

    def _decide(self, answer: GivenAnswer | None, asks: TaskStatus | None, now: int, *, goes_on: bool) -> Decide:
        task, thread, turn = self.task, self.thread, self.turn.turn
        at = (self.caller, task.agent, task.context, thread.id, thread.generation, task.id, turn)
        verdicts, retries = tuple(self._verdicts), tuple(self._retries)
        question, state = (None, TaskState.INPUT_REQUIRED) if asks is None else (asks.message, asks.state)
        return Decide(*at, answer, verdicts, question, goes_on, now, retries, state)


async def outcomes(resolution: Resolution, rendering: Rendering) -> dict[str, Settled]:
    """The results that the caller has sent, with what it sees of them, by the id of the call."""
    return {
        call_id: await masked(tool_call.answered(result.output, error=result.error), rendering)
        for call_id, result in resolution.results.items()
    }


async def load(
    ledger: Ledger, clock: Clock, caller: Caller, task: TaskRecord, rendering: Rendering
) -> PausedTurn | None:
    """The waiting turn of this task, or None when no turn of the task waits. `rendering` is the form in which the
    caller sees tool calls.

    Raises: LedgerUnavailable, CorruptRecord.
    """
    turn = await ledger.waiting_turn(task.id)
    thread = await ledger.thread(turn.thread) if turn is not None else None
    if turn is None or thread is None:
        return None
    stored = await StoredTask.read(ledger, task)
    if stored.ended:
        return None
    owned = Ownership(thread.owner, thread.handle_kind)
    # A task uses one channel.
    used = next(
        (call.channel for call in shown_calls(stored.outputs[-1]) if call.channel is not None), rendering.channel
    )
    form = replace(rendering, channel=used)
    facts = TurnFacts(task.id, task.context_id, turn.turn, owned, rendering=form)
    machine = TurnMachine(facts, non_decreasing(clock, task.status_at))
    links = tuple(prompts.links_of(task.status_message))
    identities = prompts.identities_of(task.status_message)
    machine.restore(tuple(_call(asked, links, identities) for asked in turn.calls))
    return PausedTurn(caller, task, turn, thread, stored.outputs, stored.number, machine)


def call_facts(call: ToolCallRecord) -> CallFacts:
    return CallFacts(call.id, call.name, call.round, call.sequence, call.executor, call.server, timestamp(call.at))


def unreported_call(call: ToolCallRecord) -> ToolCall:
    """A call that the backend runs, and of which it has not reported the outcome."""
    facts, status = call_facts(call), ToolCallStatus.EXTERNAL
    return ToolCall(facts, call.external_id, call.arguments, handled=True, status=status, shown=True)


def _call(asked: AskedCall, links: tuple[ConsentLink, ...], identities: Mapping[str, str]) -> ToolCall:
    call = asked.call
    return ToolCall(
        call_facts(call),
        call.external_id,
        arguments=call.arguments,
        status=call.status,
        outcome=asked.outcome,
        executor=call.executor,
        inputs=tool_call.parse_arguments(call.arguments) or {},
        asked=asked.digest is not None,
        digest=asked.digest,
        expires_at=asked.expires_at,
        shown=True,
        rerun=call.status is ToolCallStatus.RUNNING,
        pages=tuple(link for link in links if link.call == call.id),
        identity=identities.get(call.id),
    )
