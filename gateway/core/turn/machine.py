"""One turn, sans IO: adapter events in, commands out. Law: pure; nobody else writes its fields, and it never waits, stores or
sends."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import msgspec

from gateway.a2a import tool_calls
from gateway.a2a.model import Json, Message, Part, TaskState
from gateway.a2a.tool_calls import Phase
from gateway.core.failures import (
    BACKEND_CANCELLED,
    FINISH,
    GAP,
    HANDLE_MISSING,
    OTHER_FINISH,
    OWNER_CONFLICT,
    REFUSED,
    ROUND_LIMIT,
    STOPPED,
    UNKNOWN_TOOL,
    refused_content,
    safe_text,
    shown_finish,
)
from gateway.core.lifecycles import TURN, advance
from gateway.core.task_record import ShownCall
from gateway.core.tools import prompts, tool_call
from gateway.core.tools.steps import Steps
from gateway.core.tools.tool_call import ConsentLink, Settled, ToolCall, ToolPolicy
from gateway.core.turn import commands
from gateway.core.turn.admission import admitted
from gateway.core.turn.call_tracker import ToolCallTracker, output_item
from gateway.core.turn.commands import Command, Publish
from gateway.core.turn.output import OutputBuilder
from gateway.foundation.clock import Clock, timestamp
from gateway.ledger.calls import CANCELLED, NewItem
from gateway.ledger.states import ToolCallStatus, TurnStatus
from gateway.ports import adapter
from gateway.ports.adapter import AdapterError, ErrorClass, TextDelta
from gateway.ports.conversation import AssistantItem, CallItem, OutputItem, Ownership, StorageOwner
from gateway.ports.tools import ConsentPage

_LACKS = {
    FINISH: "The answer is not whole: {finishReason!r}.",
    GAP: "The agent's backend did not say how to continue from this answer; the next message continues from before it.",
}
_FOR_ANOTHER_REASON = "The answer is not whole, for another reason (correlation id {correlationId})."
_REBUILT = "The agent's backend had lost this conversation; it was told again from the gateway's record."


class TurnFacts(msgspec.Struct, frozen=True):
    """The facts of a turn that its machine uses. `direct_replies` says that the agent may answer with a message without
    a task, `keeps_interrupted` that the model learns the answer of a cancelled call. `rendering` is the form in which
    the caller sees tool calls; the ledger keeps all details of them. `marks_thoughts` is for the output."""

    task_id: str
    context_id: str
    turn: str
    ownership: Ownership
    direct_replies: bool = False
    tolerate_missing_handle: bool = False
    shadow: str = "items"
    keeps_interrupted: bool = True
    on_owner_conflict: str = "fail"
    tools: ToolPolicy = msgspec.field(default_factory=ToolPolicy)
    rendering: tool_calls.Rendering = tool_calls.EVERYTHING
    marks_thoughts: bool = False


@dataclass(slots=True)
class TurnMachine:
    """The state machine of a turn. It takes every event of the adapter. After Continue, the tool calls are started and
    settled, then `next_call` begins the next service call. `fail` or `cancel` may be called at any time, once. The last
    command is an EndTurn.

    `round` is the number of the service call. `calls` are the tool calls of the last completed service call.
    """

    facts: TurnFacts
    clock: Clock
    _output: OutputBuilder = field(init=False)
    _tracker: ToolCallTracker = field(init=False)
    _shown: bool = False
    _consents: dict[str, ConsentLink] = field(default_factory=dict)
    round: int = 0
    calls: dict[str, ToolCall] = field(default_factory=dict)
    between_calls: bool = False
    status: TurnStatus = TurnStatus.RUNNING
    ended: bool = False
    _before_end: list[tuple[ToolCall, ToolCallStatus | None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        facts = self.facts
        self._output = OutputBuilder(facts.task_id, facts.context_id, facts.turn, self.clock, facts.marks_thoughts)
        self._tracker = ToolCallTracker(self._output, facts.rendering)

    def receive(self, event: adapter.AdapterEvent, outcome: Settled | None = None) -> list[Command]:
        """`outcome` is that of a result, with what the caller sees of it, if that is known already.

        Raises: AdapterError (CONTRACT_BROKEN) for an event that cannot follow.
        """
        if self.ended or self.between_calls:
            raise AdapterError(ErrorClass.CONTRACT_BROKEN, f"{type(event).__name__} after the end of the call")
        output = self._output
        out = output.begin_event()
        if type(event) is TextDelta:  # the most frequent event
            output.add_text(event.text)
        else:
            self._receive(admitted(event), outcome)
        if not self._shown:
            self._shown = any(isinstance(command, Publish) for command in out)
        return out

    def grow(self, text: str) -> str:
        """Takes the text of a TextDelta that only continues the text at the end of the answer, as most do: the id of the
        artifact that has to be shown to grow by it. Empty for a text that `receive` has to take."""
        return self._output.answer if self._output.grow(text) else ""

    def _receive(self, event: adapter.AdapterEvent, outcome: Settled | None) -> None:
        match event:
            case adapter.CallStarted(handle=handle, run=run):
                if handle is not None or run is not None:
                    self._output.out.append(commands.RecordPending(handle, run))
            case adapter.CallCompleted():
                self._complete(event)
            case adapter.ConsentAsked():
                self._add_consent(event)
            case adapter.DirectReply():
                self._reply(event)
            case _ if not self._output.receive(event):
                self._tracker.receive(event, self.facts.tools, self.round, outcome)

    @property
    def answer(self) -> str:
        """The id of the artifact with the answer; empty while there is none."""
        return self._output.answer

    # --- the turn

    def restore(self, calls: tuple[ToolCall, ...]) -> None:
        """The turn waits, and these calls of its last service call are still open."""
        self._enter(TurnStatus.WAITING)
        self.calls = {call.facts.id: call for call in calls}
        for call in calls:
            # The backend answers all of its own calls except its questions.
            call.question = call.executor == "backend"
        self.round = calls[0].facts.round
        self.between_calls = True

    def resume(self, facts: TurnFacts, answer: str, told: Sequence[Part]) -> None:
        """The turn continues after it has waited. Its answer so far is the artifact `answer` with the parts `told`."""
        self._enter(TurnStatus.RUNNING)
        self.facts = facts
        self._output.restart(answer, told)

    def owe(self, calls: Iterable[ToolCall]) -> None:
        """Calls of the turn's earlier service calls that the backend runs, and whose outcomes it has not reported: for a turn
        that has waited, or that another process has begun."""
        self._tracker.owe(calls)

    def update_facts(self, facts: TurnFacts) -> None:
        """The thread or the offered tools have changed since the last service call."""
        self.facts = facts

    def fail(
        self,
        failure: str,
        correlation_id: str,
        retry_after: int | None = None,
        usage: Json = None,
        *,
        words: bool = False,
        stopped: bool | None = None,
        hint: str = "",
    ) -> list[Command]:
        """The service call failed (or could not be made): FAILED with a text from the table.

        `retry_after`: seconds for which another message would fail as well. `usage`: the backend's report of tokens.
        `words`: the request of the service call carried a message of the caller. `stopped` as in `cancel`. `hint` as of
        AdapterError.
        """
        if self.ended:
            # The end that was decided before could not be stored.
            self.status = TurnStatus.RUNNING
        out = self._interrupt(TurnStatus.FAILED)
        abort = commands.AbortCall(failure, self._output.uncounted(), usage)
        failed = self._failed(failure, correlation_id, retry_after, words=words, stopped=stopped, hint=hint)
        return [*out, abort, failed]

    def cancel(self, unsaid: Sequence[Part] = (), *, stopped: bool | None = None) -> list[Command]:
        """The caller ends the turn: what it has said until then stays a part of the conversation. `unsaid`: what callers have
        seen of the answer behind that, from an earlier stream of the call. `stopped`: whether a backend that works without a
        listener has confirmed that it has stopped."""
        self._output.recall(unsaid)
        out = self._interrupt(TurnStatus.CANCELLED)
        abort = commands.AbortCall(CANCELLED, self._output.uncounted(keeps_answer=self.facts.keeps_interrupted))
        if stopped is None:
            return [*out, abort, commands.EndTurn(TurnStatus.CANCELLED, TaskState.CANCELED)]
        mark: dict[str, Json] = {BACKEND_CANCELLED: stopped}
        message = self._output.message((self._output.note(STOPPED[stopped]),), mark)
        return [*out, abort, commands.EndTurn(TurnStatus.CANCELLED, TaskState.CANCELED, message, metadata=mark)]

    def end_broken_off(self, calls: Sequence[ShownCall]) -> list[Command]:
        """Ends tool calls that callers still see to be open when the turn ends: a service call broke off behind them, and
        was not repeated up to them, or not with them; or who ended the turn sees no tool calls."""
        out = self._output.begin_event()
        settled = {
            call.facts.id: Settled(call.status, call.outcome)
            for call in self.calls.values()
            if call.status not in (None, ToolCallStatus.EXTERNAL) and not call.is_open
        }
        for shown in calls:
            self._tracker.end_broken_off(shown, settled.get(shown.facts.id))
        return out

    def restart(self, facts: TurnFacts) -> None:
        """The end could not be stored: drops the output, and gives the tool calls the statuses from before the end."""
        for call, status in self._before_end:
            call.status = status
        self.facts, self._shown, self.between_calls = facts, False, False
        self.status, self.ended = TurnStatus.RUNNING, False
        self._consents.clear()
        self.__post_init__()

    def _enter(self, status: TurnStatus) -> None:
        self.status = advance(TURN, self.status, status)
        self.ended = status not in TURN

    def _failed(
        self,
        failure: str,
        correlation_id: str,
        retry_after: int | None = None,
        *,
        words: bool = False,
        stopped: bool | None = None,
        hint: str = "",
    ) -> commands.EndTurn:
        metadata: dict[str, Json] = {"correlationId": correlation_id, "errorClass": str(failure)}
        if retry_after is not None:
            metadata["retryAfter"] = retry_after
        refused = refused_content(failure, self.round, words=words)
        told: dict[str, Json | None] = {REFUSED: refused, BACKEND_CANCELLED: stopped}
        mark: dict[str, Json] = {name: value for name, value in told.items() if value is not None}
        text = safe_text(failure, correlation_id, retry_after, refused, hint)
        message = self._output.message((Part(text=text),), metadata | mark)
        return commands.EndTurn(TurnStatus.FAILED, TaskState.FAILED, message, failure, mark or None)

    def _interrupt(self, status: TurnStatus) -> list[Command]:
        """Ends the turn early: an unanswered tool call of the running service call is shown as interrupted, an open one of a
        completed service call gets its outcome."""
        before, out = self._output.out, self._output.begin_event()
        self._before_end = [(call, call.status) for call in self.calls.values()]
        self._enter(status)
        self._output.flush()
        self._tracker.interrupt()
        for call in self.calls.values():
            if call.is_open:
                self._end_tool(call, tool_call.outcome_at_end(call.status))
        self._output.out = before
        return out

    # --- its service calls

    def next_call(self) -> None:
        self.round += 1
        self.between_calls = False
        self.calls = {}

    def abandon_unrecorded_calls(self) -> None:
        """The service call that asked for them could not be stored: the ledger does not know them."""
        self.calls = {}

    def replay_call(
        self, answer: str, told: Sequence[Part], calls: Sequence[ShownCall] = (), round_: int | None = None
    ) -> None:
        """The service call repeats its events: its answer is this artifact, and its tool calls may be these.

        `told`: the parts of the artifact when the call began. `round_`: the number of the call, for a turn that another
        process has begun.
        """
        self.round = self.round if round_ is None else round_
        self._consents.clear()
        self._output.restart(answer, told)
        self._tracker.restart(calls)
        self._shown = self._shown or bool(answer or calls)

    def announce_rebuild(self, kind: str) -> list[Command]:
        """The backend has lost the conversation and gets it whole once more: the caller sees that."""
        out = self._output.begin_event()
        self._output.add_note(_REBUILT, {"contextRebuilt": kind})
        self._shown = True
        return out

    # --- the tool calls of a completed service call

    def approve(self, call_id: str) -> None:
        """Lets the call run, because the caller allowed the call or gave the consent that it needs."""
        self.calls[call_id].enter(ToolCallStatus.APPROVED)

    def start_tool(self, call: ToolCall) -> list[Command]:
        call.enter(ToolCallStatus.RUNNING)
        again, call.rerun = call.rerun, False
        out = self._output.begin_event()
        out.append(commands.StartTool(call.facts.id))
        if not again:
            self._tracker.show(call, Phase.EXECUTING)
        return out

    def progress(self, call: ToolCall, text: str) -> list[Command]:
        out = self._output.begin_event()
        self._tracker.show(call, Phase.PROGRESS, text)
        return out

    def settle_tool(self, call: ToolCall, settled: Settled) -> list[Command]:
        out = self._output.begin_event()
        self._end_tool(call, settled)
        return out

    def pause_tool(self, call: ToolCall, pages: Sequence[ConsentPage]) -> list[Command]:
        """The tool did nothing yet: the user has to consent first."""
        call.enter(ToolCallStatus.PENDING_CONSENT)
        server, new_id = call.facts.server or "", self.clock.new_id
        call.pages = tuple(ConsentLink(f"consent_{new_id()}", p.url, server, p.text, call.facts.id) for p in pages)
        call.expires_at = self.clock.now() + self.facts.tools.patience
        return [commands.PauseTool(call.facts.id, call.expires_at)]

    @property
    def waiting(self) -> bool:
        """Some calls need the caller: a decision, a consent, or a result."""
        return any(call.waits for call in self.calls.values())

    def wait(self) -> list[Command]:
        """The turn asks the caller about its open calls."""
        out = self._output.begin_event()
        waiting = [call for call in self.calls.values() if call.waits]
        for call in waiting:
            call.shown = True
        expires_at = min((call.expires_at for call in waiting if call.expires_at is not None), default=self.clock.now())
        parts, metadata = prompts.prompt(
            waiting, f"request_{self.clock.new_id()}", timestamp(expires_at), self.facts.rendering.redact
        )
        only_consents = all(call.status is ToolCallStatus.PENDING_CONSENT for call in waiting)
        self._enter(TurnStatus.WAITING)
        state = TaskState.AUTH_REQUIRED if only_consents else TaskState.INPUT_REQUIRED
        out.append(commands.Wait(state, self._output.message(parts, metadata)))
        return out

    def _end_tool(self, call: ToolCall, settled: Settled) -> None:
        # A call that never ran can be left out of the history where the gateway keeps it.
        never_ran = settled.status is ToolCallStatus.CANCELLED and call.status is not ToolCallStatus.RUNNING
        gateway = self.facts.ownership.owner is StorageOwner.GATEWAY
        now = self.clock.now()
        call.settle(settled, now)
        item = output_item(call, replayable=not (never_ran and gateway), unsent=True)
        self._output.out.append(commands.EndTool(call.facts.id, settled.status, settled.output, now, item))
        self._tracker.show_outcome(call, settled)

    # --- the end of a service call

    def _add_consent(self, event: adapter.ConsentAsked) -> None:
        try:
            prompts.check_all([*self._consents, event.url])
        except ValueError as error:
            raise AdapterError(ErrorClass.CONTRACT_BROKEN, f"consent was asked for, but {error}") from error
        link = ConsentLink(f"consent_{self.clock.new_id()}", event.url, event.server, event.text)
        self._consents.setdefault(event.url, link)

    def _complete(self, event: adapter.CallCompleted) -> None:
        facts, output, tracker = self.facts, self._output, self._tracker
        ending = (
            adapter.Ending.AUTH_REQUIRED
            if self._consents and event.ending is adapter.Ending.COMPLETED
            else event.ending
        )
        out = output.out
        backend = facts.ownership.owner is StorageOwner.BACKEND
        output.flush()
        missing = backend and event.handle is None
        if missing and not facts.tolerate_missing_handle:
            out.extend(self.fail(HANDLE_MISSING, self.clock.correlation_id(), usage=event.usage))
            return
        conflict = self._conflict(event)
        adopts = conflict is not None and conflict.adopts
        if conflict is not None and facts.on_owner_conflict != "warn" and not adopts:
            out.extend([conflict, *self.fail(OWNER_CONFLICT, self.clock.correlation_id(), usage=event.usage)])
            return
        unanswered = tracker.unanswered
        on_chain = event.handle is not None and (backend or adopts)
        why_not = tool_call.NOT_RUN if event.finish is None else tool_call.CUT
        continues = ending is adapter.Ending.COMPLETED and event.finish is None and (on_chain or not backend)
        steps = Steps()
        for call in unanswered:
            self._decide(call, steps, None if continues else why_not, on_chain=on_chain)
        asked = [call for call in unanswered if call.executor != "backend" or call.question]
        tracker.owe(call for call in unanswered if call.status is ToolCallStatus.EXTERNAL)
        if not (asked and continues):
            tracker.end_owed()
        tracker.keep_stray_results()
        if event.message and event.ending is not adapter.Ending.COMPLETED:
            output.add_ending(event.message)
        handle = event.handle if backend else None
        items = tuple(self._kept_items())
        out.append(commands.CompleteCall(handle, event.state, event.usage, items, tracker.rows(), event.secret))
        out.extend(tracker.reports())
        if conflict is not None:
            out.append(conflict)
        if asked and continues:
            out.extend(self._continue(asked))
            return
        status = TurnStatus.REJECTED if event.ending is adapter.Ending.REJECTED else TurnStatus.COMPLETED
        self._enter(status)
        gap = HANDLE_MISSING if missing else None
        finish = None if event.finish is None else shown_finish(event.finish)
        lacks = {name: why for name, why in ((FINISH, finish), (GAP, gap)) if why}
        message = self._final_message(event, lacks)
        out.append(commands.EndTurn(status, TaskState[ending.name], message, gap, lacks or None))

    def _final_message(self, event: adapter.CallCompleted, lacks: dict[str, Json]) -> Message | None:
        """The message of the status that ends the turn, with what the answer lacks: all that a caller sees who did not follow
        the turn. A reason that is not known by name goes to the log."""
        texts = _LACKS
        if lacks.get(FINISH) == OTHER_FINISH:
            correlation_id = self.clock.correlation_id()
            self._output.out.append(commands.UnknownFinish(event.finish or "", correlation_id))
            texts, lacks = _LACKS | {FINISH: _FOR_ANOTHER_REASON}, lacks | {"correlationId": correlation_id}
        if event.message:
            return self._output.message(event.message, lacks or None)
        if self._consents:
            links = tuple(self._consents.values())
            parts, metadata = prompts.consent_prompt(links, f"request_{self.clock.new_id()}")
            return self._output.message(parts, {tool_calls.URI: {"consent": metadata}} | lacks)
        if lacks:
            notes = (text.format(**lacks) for name, text in texts.items() if name in lacks)
            return self._output.message(tuple(map(self._output.note, notes)), lacks)
        return None

    def _conflict(self, event: adapter.CallCompleted) -> commands.OwnershipConflict | None:
        """Only a handle can be adopted. Source: docs/state-model.md, scenarios 21 to 23."""
        if self.facts.ownership.owner is StorageOwner.BACKEND or (event.handle is None and not event.stored):
            return None
        adopts = self.facts.on_owner_conflict == "adopt" and event.handle is not None
        return commands.OwnershipConflict(event.handle, adopts)

    def _decide(self, call: ToolCall, steps: Steps, why_not: str | None, *, on_chain: bool) -> None:
        """The only decision on a call that was unanswered when its service call was complete. `why_not` is the reason why
        no call of that service call runs, if there is one."""
        if call.arguments is None:
            call.settle(Settled(ToolCallStatus.CANCELLED, None), self.clock.now())
            return
        if call.handled:
            # Its outcome may still be reported.
            call.settle(Settled(ToolCallStatus.EXTERNAL, None), None)
            return
        settled = tool_call.decide(call, self.facts.tools, steps)
        call.expires_at = self.clock.now() + self.facts.tools.patience if call.waits else None
        never_runs = why_not is not None and (settled is None or why_not == tool_call.CUT)
        if never_runs:
            settled = Settled(ToolCallStatus.CANCELLED, why_not)
        if settled is not None:
            kept = not (never_runs and self.facts.ownership.owner is StorageOwner.GATEWAY)
            self._tracker.settle(call, settled, unsent=on_chain, replayable=kept)

    def _continue(self, asked: list[ToolCall]) -> list[Command]:
        """Continues the turn after a completed service call that made tool calls."""
        policy = self.facts.tools
        self.calls = {call.facts.id: call for call in asked}
        self._output.begin_call()
        self._tracker.restart()
        failure = None
        if policy.exhausted:
            failure = ROUND_LIMIT
        elif policy.unknown_fails and any(call.status is ToolCallStatus.NOT_FOUND for call in asked):
            failure = UNKNOWN_TOOL
        if failure is not None:
            return [*self._interrupt(TurnStatus.FAILED), self._failed(failure, self.clock.correlation_id())]
        self.between_calls = True
        # The turn asks when no tool of the round runs any more; callers see at once that it will.
        for call in asked:
            if call.status is ToolCallStatus.PENDING_APPROVAL:
                self._tracker.show(call, Phase.AWAITING_APPROVAL)
        return [commands.Continue()]

    def _reply(self, event: adapter.DirectReply) -> None:
        if self._shown or self._output.items or not self.facts.direct_replies:
            why = "a direct reply must be the first and only answer, if allowed"
            raise AdapterError(ErrorClass.CONTRACT_BROKEN, why)
        self._enter(TurnStatus.COMPLETED)
        message = self._output.message(event.parts, task=False)
        handle = event.handle if self.facts.ownership.owner is StorageOwner.BACKEND else None
        self._output.out += [
            commands.CompleteCall(handle, event.state, None, (NewItem(AssistantItem(event.parts)),), ()),
            commands.Reply(message),
            commands.EndTurn(TurnStatus.COMPLETED, TaskState.COMPLETED, message),
        ]

    def _kept_items(self) -> list[NewItem]:
        """The items for the ledger: all, unless the backend owns the conversation and the shadow is configured to be smaller.

        An output that the backend waits for is always kept: the next request has to carry it.
        """
        items = self._output.items
        if self.facts.ownership.owner is StorageOwner.GATEWAY or self.facts.shadow == "items":
            return items
        awaited = self._tracker.awaited_ids
        kept = AssistantItem if self.facts.shadow == "text" else ()
        return [
            new
            for new in items
            if isinstance(new.item, kept)
            or (isinstance(new.item, CallItem | OutputItem) and new.item.call_id in awaited)
        ]
