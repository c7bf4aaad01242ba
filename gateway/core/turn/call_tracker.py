"""The tool calls of one service call, as its backend reports them. Law: pure; a call is announced once, complete once, answered
once, and any other order breaks the contract."""

from collections.abc import Iterable, Iterator, Sequence

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from gateway.a2a import tool_calls
from gateway.a2a.model import Json
from gateway.a2a.tool_calls import CallFacts, Phase
from gateway.core.task_record import ShownCall
from gateway.core.tools import tool_call
from gateway.core.tools.tool_call import Settled, ToolCall, ToolPolicy
from gateway.core.turn.commands import Publish, ReportTool, StrayResult
from gateway.core.turn.output import OutputBuilder
from gateway.foundation.clock import timestamp
from gateway.ledger.calls import NewItem, NewToolCall
from gateway.ledger.states import ToolCallStatus
from gateway.ports import adapter
from gateway.ports.adapter import AdapterError
from gateway.ports.conversation import CallItem, OutputItem


class ToolCallTracker(msgspec.Struct):
    """`rendering`: what callers see of the calls."""

    output: OutputBuilder
    rendering: tool_calls.Rendering
    _calls: dict[str, ToolCall] = {}
    _unnamed: str = ""
    _early_results: dict[str, tuple[adapter.ToolResultReady, Settled | None]] = {}
    _owed: dict[str, ToolCall] = {}
    """The calls of earlier service calls that the backend runs, and whose outcomes it has not reported."""
    _reported: dict[str, Settled] = {}
    """The outcomes of those calls that came with this service call."""
    _told: list[ShownCall] = []
    """The tool calls that callers have seen in an earlier stream of the service call, and that it has not repeated yet."""
    _repeated: dict[str, ShownCall] = {}
    _questions: set[str] = set()
    """The public ids of the questions of all service calls."""
    _size: int = 0
    """Bytes of the arguments of the calls that the backend does not run itself."""

    def receive(
        self, event: adapter.AdapterEvent, policy: ToolPolicy, round_: int, outcome: Settled | None = None
    ) -> None:
        """`outcome` is that of a result, with what callers see of it, if that is known already.

        Raises: AdapterError (CONTRACT_BROKEN) for an event that cannot follow.
        """
        match event:
            case adapter.ToolCallAnnounced():
                self.show(self._add(event, policy, round_), Phase.ARGS_DELTA, "")
            case adapter.ToolCallArguments(call_id=call_id, delta=delta):
                call = self._find(call_id)
                if call is None:
                    raise _broken(f"nobody announced tool call {call_id!r}")
                self.show(call, Phase.ARGS_DELTA, delta)
            case adapter.ToolCallReady():
                self._complete(event, policy, round_)
            case adapter.ToolResultReady():
                self._answer(event, outcome)
            case adapter.ApprovalAsked():
                self._ask(event, policy, round_)
            case _:
                raise _broken(f"{event!r} is not an event of the port")

    def restart(self, told: Sequence[ShownCall] = ()) -> None:
        """Prepares the tracker for the next service call, or for a repetition of the current one. A tool call that repeats
        one of those that were `told` gets the public id that it has."""
        self._calls, self._unnamed, self._early_results, self._size = {}, "", {}, 0
        self._reported = {}
        self._told, self._repeated = list(told), {}

    def owe(self, calls: Iterable[ToolCall]) -> None:
        """The outcomes of these calls, which the backend runs, may come with a later service call of the turn."""
        self._owed.update((call.external_id, call) for call in calls)

    def reports(self) -> Iterator[ReportTool]:
        """The service call counts, and with it the outcomes that it has brought of earlier calls."""
        now = self.output.clock.now()
        for call_id, settled in self._reported.items():
            call = self._owed.pop(call_id)
            call.settle(settled, now)
            yield ReportTool(call.facts.id, settled.status, settled.output, now)
        self._reported = {}

    def end_owed(self) -> None:
        """The turn ends: what has not been reported will not be."""
        for call_id in [call_id for call_id in self._owed if call_id not in self._reported]:
            self.show_outcome(self._owed.pop(call_id), Settled(ToolCallStatus.EXTERNAL, tool_call.OUTCOME_UNKNOWN))

    @property
    def unanswered(self) -> list[ToolCall]:
        return [call for call in self._calls.values() if call.status is None]

    @property
    def awaited_ids(self) -> set[str]:
        """The ids of the calls whose outputs the backend waits for."""
        return {call.external_id for call in self._calls.values() if call.executor != "backend" or call.question}

    def settle(self, call: ToolCall, settled: Settled, *, unsent: bool = False, replayable: bool = True) -> None:
        call.settle(settled, self.output.clock.now())
        self.output.items.append(output_item(call, unsent=unsent, replayable=replayable))
        self.show_outcome(call, settled)

    def interrupt(self) -> None:
        """Ends the calls that will not be answered, because the answer that made them is not whole."""
        for call in self.unanswered:
            if call.arguments is not None:
                settled = tool_call.outcome_when_cut(call.facts, question=call.question)
                call.enter(settled.status)
                self.show_outcome(call, settled)
        self.end_owed()

    def end_broken_off(self, shown: ShownCall, settled: Settled | None) -> None:
        """Shows the end of a call that callers see to be open. `settled` is its outcome, or None where no service call of the
        turn went on with the call."""
        facts = shown.facts
        settled = settled or tool_call.outcome_when_cut(facts, question=facts.id in self._questions)
        self._publish(facts, tool_call.PHASES[settled.status], settled.output, shown.rendering(self.rendering))

    def keep_stray_results(self) -> None:
        """Results of unknown calls are stored, and never sent to the model."""
        for event, _ in self._early_results.values():
            self.output.out.append(StrayResult(event.call_id))
            item = OutputItem(event.call_id, event.output, event.error)
            self.output.items.append(NewItem(item, replayable=False))
        self._early_results.clear()

    def rows(self) -> tuple[NewToolCall, ...]:
        return tuple(
            NewToolCall(
                id=call.facts.id,
                sequence=call.facts.index,
                external_id=call.external_id,
                name=call.facts.name,
                arguments=call.arguments or "",
                executor=call.executor,
                status=call.status or ToolCallStatus.EXTERNAL,
                outcome=call.outcome,
                asked=call.asked,
                digest=call.digest,
                expires_at=call.expires_at,
                server=call.facts.server,
                runs_left=call.runs_left,
                asked_at=call.asked_at,
                started_at=call.started_at,
                ended_at=call.ended_at,
            )
            for call in self._calls.values()
        )

    def show_outcome(self, call: ToolCall, settled: Settled) -> None:
        if not call.shown:
            self._show_arguments(call)
        masked = self.rendering.redact and settled.under_masks is not UNSET
        self.show(call, tool_call.PHASES[settled.status], settled.under_masks if masked else settled.output)

    def show(self, call: ToolCall, phase: Phase, detail: Json | tool_calls.Response = None) -> None:
        self._publish(call.facts, phase, detail, self.rendering)

    def _publish(
        self, facts: CallFacts, phase: Phase, detail: Json | tool_calls.Response, rendering: tool_calls.Rendering
    ) -> None:
        """The only place where a phase of a tool call becomes an update, if the caller may see it."""
        output = self.output
        now = timestamp(output.clock.now())
        place = tool_calls.Place(output.task_id, output.context_id, now, output.clock.new_id)
        update = tool_calls.update(facts, phase, detail, rendering, place)
        if update is not None:
            output.out.append(Publish(update))

    def _show_arguments(self, call: ToolCall) -> None:
        call.shown = True
        self.show(call, Phase.REQUESTED, call.arguments or "")

    def _add(
        self,
        event: adapter.ToolCallAnnounced | adapter.ToolCallReady | adapter.ApprovalAsked,
        policy: ToolPolicy,
        round_: int,
    ) -> ToolCall:
        call_id, name = event.call_id, event.name
        of_backend = isinstance(event, adapter.ApprovalAsked) or event.handled is True
        server = f"mcp:{event.server}" if isinstance(event, adapter.ApprovalAsked) else event.server
        if call_id in self._calls:
            raise _broken(f"tool call {call_id!r} was announced twice")
        now = self.output.clock.now()
        facts = CallFacts(
            id=self._known_id(name) or self._new_id(),
            name=name,
            round=round_,
            index=len(self._calls),
            origin="backend" if of_backend else policy.origin(name),
            server=server if server is not None or of_backend else policy.server(name),
            started_at=timestamp(now),
        )
        # A call without an id of the backend's goes by the gateway's id, towards the backend too.
        external_id = call_id or facts.id
        if not call_id:
            self._unnamed = external_id
        call = self._calls[external_id] = ToolCall(facts, external_id, asked_at=now)
        return call

    def _new_id(self) -> str:
        return f"call_{self.output.clock.new_id()}"

    def _known_id(self, name: str) -> str | None:
        """The public id of the call that this one repeats, if there is any."""
        for call in self._told:
            if call.facts.name == name:
                self._told.remove(call)
                self._repeated[call.facts.id] = call
                return call.facts.id
        return None

    def _check_repetition(self, call: ToolCall) -> None:
        """A call with other arguments than those that were shown is another call."""
        known = self._repeated.get(call.facts.id)
        if known is not None:
            again = tool_calls.requested(call.facts, call.arguments or "", self.rendering)
            if again.data != known.part.data:
                call.facts = replace(call.facts, id=self._new_id())

    def _find(self, call_id: str) -> ToolCall | None:
        return self._calls.get(call_id or self._unnamed)

    def _complete(self, event: adapter.ToolCallReady, policy: ToolPolicy, round_: int) -> None:
        known = self._find(event.call_id)
        if known is not None and not event.call_id and known.arguments is not None:
            known = None
        call = known or self._add(event, policy, round_)
        if call.arguments is not None:
            raise _broken(f"the arguments of tool call {event.call_id!r} came twice")
        if event.handled:
            call.facts = replace(call.facts, name=event.name, origin="backend", server=event.server)
        elif event.server is not None and call.facts.server is None:
            call.facts = replace(call.facts, name=event.name, server=event.server)
        call.handled = event.handled
        self._keep_call(call, event, policy, handled=event.handled)
        # A call that the client runs is shown when the turn asks for its result, once.
        if event.handled or call.facts.origin != "client":
            self._show_arguments(call)
        if event.handled:
            call.started_at = self.output.clock.now()
            self.show(call, Phase.EXECUTING)
        early = self._early_results.pop(event.call_id, None)
        if early is not None:
            self._answer(*early)

    def _ask(self, event: adapter.ApprovalAsked, policy: ToolPolicy, round_: int) -> None:
        call = self._add(event, policy, round_)
        call.question = True
        self._keep_call(call, event, policy, asking=event.server)
        self._questions.add(call.facts.id)
        self._show_arguments(call)

    def _keep_call(
        self,
        call: ToolCall,
        event: adapter.ToolCallReady | adapter.ApprovalAsked,
        policy: ToolPolicy,
        *,
        handled: bool | None = None,
        asking: str | None = None,
    ) -> None:
        self.output.flush()
        size = len(event.arguments.encode(errors="replace"))
        call.oversized = size > policy.largest_arguments - (0 if handled else self._size)
        call.arguments = tool_call.beginning(event.arguments, size) if call.oversized else event.arguments
        if not (handled or call.oversized):
            self._size += size
        self._check_repetition(call)
        opaque = event.opaque if isinstance(event, adapter.ToolCallReady) else None
        item = CallItem(call.external_id, event.name, call.arguments, handled, asking, opaque)
        self.output.items.append(NewItem(item, event.provider_id, call.facts.id))

    def _answer(self, event: adapter.ToolResultReady, outcome: Settled | None) -> None:
        call = self._find(event.call_id)
        if call is None and event.call_id in self._owed:
            self._report(self._owed[event.call_id], outcome or tool_call.answered(event.output, error=event.error))
            return
        if call is None or call.arguments is None:
            # Some backends send the result before the call; a stray result is known when the service call is complete.
            if event.call_id in self._early_results:
                raise _broken(f"tool call {event.call_id!r} was answered twice")
            self._early_results[event.call_id] = event, outcome
            return
        if call.status is not None:
            raise _broken(f"tool call {event.call_id!r} was answered twice")
        if call.facts.origin != "backend":
            # The name is that of another tool; who runs a call is known for certain when it is answered.
            call.facts = replace(call.facts, origin="backend", server=None)
        self.settle(call, outcome or tool_call.answered(event.output, error=event.error))

    def _report(self, call: ToolCall, settled: Settled) -> None:
        """The outcome of a call of an earlier service call, which takes it on when this one is complete."""
        if call.external_id in self._reported:
            raise _broken(f"tool call {call.external_id!r} was answered twice")
        self._reported[call.external_id] = settled
        self.output.flush()
        failed = settled.status is not ToolCallStatus.COMPLETED
        item = OutputItem(call.external_id, settled.output, failed)
        self.output.items.append(NewItem(item, None, call.facts.id))
        self.show_outcome(call, settled)


def output_item(call: ToolCall, *, unsent: bool, replayable: bool = True) -> NewItem:
    """The outcome of the call, for the model."""
    completed = call.status is ToolCallStatus.COMPLETED
    item = OutputItem(call.external_id, call.outcome, not completed, completed if call.question else None)
    return NewItem(item, None, call.facts.id, replayable=replayable, unsent=unsent)


def _broken(detail: str) -> AdapterError:
    return AdapterError(adapter.ErrorClass.CONTRACT_BROKEN, detail)
