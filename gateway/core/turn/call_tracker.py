"""The tool calls of one service call, as its backend tells them. Law: pure; a call is announced once, complete once, answered
once, and whatever is told in another order breaks the contract.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from gateway.a2a import tool_calls
from gateway.a2a.model import Json
from gateway.a2a.tool_calls import Phase
from gateway.core.tools import tool_call
from gateway.core.tools.tool_call import Settled, ToolCall, ToolPolicy
from gateway.core.turn.commands import Publish, StrayResult
from gateway.core.turn.output import OutputBuilder
from gateway.foundation.clock import timestamp
from gateway.ledger.calls import NewItem, NewToolCall
from gateway.ledger.states import ToolCallStatus
from gateway.ports.adapter import (
    AdapterError,
    AdapterEvent,
    ApprovalAsked,
    ErrorClass,
    ToolCallAnnounced,
    ToolCallArguments,
    ToolCallReady,
    ToolResultReady,
)
from gateway.ports.conversation import CallItem, OutputItem


@dataclass(slots=True)
class ToolCallTracker:
    """`rendering` is what callers see of them."""

    telling: OutputBuilder
    rendering: tool_calls.Rendering
    _calls: dict[str, ToolCall] = field(default_factory=dict)
    _unnamed: str = ""
    _early: dict[str, ToolResultReady] = field(default_factory=dict)
    _named: deque[str] = field(default_factory=deque)

    def receive(self, event: AdapterEvent, policy: ToolPolicy, round_: int) -> None:
        """Raises: AdapterError (CONTRACT_BROKEN) for an event that cannot follow."""
        match event:
            case ToolCallAnnounced(call_id=call_id, name=name):
                self.show(self._open(call_id, name, None, policy, round_), Phase.ARGS_DELTA, "")
            case ToolCallArguments(call_id=call_id, delta=delta):
                self.show(self._known(call_id), Phase.ARGS_DELTA, delta)
            case ToolCallReady():
                self._ready(event, policy, round_)
            case ToolResultReady():
                self._answered(event)
            case ApprovalAsked():
                self._question(event, policy, round_)
            case _:
                raise AdapterError(ErrorClass.CONTRACT_BROKEN, f"{event!r} is not an event of the port")

    def begin_again(self, named: Sequence[str] = ()) -> None:
        """Another service call, or the same once more: its first tool calls have these public ids."""
        self._calls, self._unnamed, self._early = {}, "", {}
        self._named = deque(named)

    @property
    def unanswered(self) -> list[ToolCall]:
        return [call for call in self._calls.values() if call.status is None]

    @property
    def due(self) -> set[str]:
        """The ids of those whose outputs the backend waits for."""
        return {call.external_id for call in self._calls.values() if call.executor != "backend" or call.question}

    def answer(self, call: ToolCall, settled: Settled, *, unsent: bool = False) -> None:
        call.settle(settled.status, settled.output)
        self.telling.items.append(output_item(call, unsent=unsent))
        self.show_outcome(call, settled.output)

    def interrupt(self) -> None:
        """Nobody is going to answer what was asked."""
        for call in self.unanswered:
            if call.arguments is not None:
                call.enter(ToolCallStatus.INTERRUPTED)
                self.show_outcome(call, tool_call.OUTCOME_UNKNOWN)

    def keep_stray_results(self) -> None:
        """Results of calls that nobody made: kept, and never shown to the model."""
        for event in self._early.values():
            self.telling.out.append(StrayResult(event.call_id))
            item = OutputItem(event.call_id, event.output, event.error)
            self.telling.items.append(NewItem(item, replayable=False))
        self._early.clear()

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
            )
            for call in self._calls.values()
        )

    # --- how callers see them

    def show_outcome(self, call: ToolCall, output: Json) -> None:
        if not call.shown:
            self._show_whole(call)
        self.show(call, tool_call.PHASES[call.status or ToolCallStatus.INTERRUPTED], output)

    def show(self, call: ToolCall, phase: Phase, detail: Json = None) -> None:
        """The one place where a moment of a tool call becomes an update, if the caller is to see it."""
        telling = self.telling
        now = timestamp(telling.clock.now())
        place = tool_calls.Place(telling.task_id, telling.context_id, now, telling.clock.new_id)
        update = tool_calls.update(call.facts, phase, detail, self.rendering, place)
        if update is not None:
            telling.out.append(Publish(update))

    def _show_whole(self, call: ToolCall) -> None:
        call.shown = True
        self.show(call, Phase.REQUESTED, call.arguments or "")

    # --- how they are told

    def _open(self, call_id: str, name: str, server: str | None, policy: ToolPolicy, round_: int) -> ToolCall:
        if call_id in self._calls:
            raise AdapterError(ErrorClass.CONTRACT_BROKEN, f"tool call {call_id!r} was announced twice")
        clock = self.telling.clock
        facts = tool_calls.CallFacts(
            id=self._named.popleft() if self._named else f"call_{clock.new_id()}",
            name=name,
            round=round_,
            index=len(self._calls),
            origin=policy.origin(name),
            server=server or policy.server(name),
            started_at=timestamp(clock.now()),
        )
        # A call that its backend did not name is known by our own name for it, there too.
        external_id = call_id or facts.id
        if not call_id:
            self._unnamed = external_id
        call = self._calls[external_id] = ToolCall(facts, external_id)
        return call

    def _find(self, call_id: str) -> ToolCall | None:
        return self._calls.get(call_id or self._unnamed)

    def _known(self, call_id: str) -> ToolCall:
        call = self._find(call_id)
        if call is None:
            raise AdapterError(ErrorClass.CONTRACT_BROKEN, f"nobody announced tool call {call_id!r}")
        return call

    def _ready(self, event: ToolCallReady, policy: ToolPolicy, round_: int) -> None:
        known = self._find(event.call_id)
        if known is not None and not event.call_id and known.arguments is not None:
            known = None
        call = known or self._open(event.call_id, event.name, event.server, policy, round_)
        if call.arguments is not None:
            raise AdapterError(ErrorClass.CONTRACT_BROKEN, f"the arguments of tool call {event.call_id!r} came twice")
        if event.handled:
            call.facts = replace(call.facts, name=event.name, origin="backend", server=event.server)
        elif event.server is not None and call.facts.server is None:
            call.facts = replace(call.facts, name=event.name, server=event.server)
        self.telling.flush()
        call.arguments, call.handled = event.arguments, event.handled
        item = CallItem(call.external_id, event.name, event.arguments, event.handled)
        self.telling.items.append(NewItem(item, event.provider_id, call.facts.id))
        # A call that its caller has to run is shown when it is asked to, once.
        if event.handled or call.facts.origin != "client":
            self._show_whole(call)
        if event.handled:
            self.show(call, Phase.EXECUTING)
        early = self._early.pop(event.call_id, None)
        if early is not None:
            self._answered(early)

    def _question(self, event: ApprovalAsked, policy: ToolPolicy, round_: int) -> None:
        server = f"mcp:{event.server}"
        call = self._open(event.call_id, event.name, server, policy, round_)
        call.facts = replace(call.facts, origin="backend", server=server)
        self.telling.flush()
        call.arguments, call.question = event.arguments, True
        item = CallItem(call.external_id, event.name, event.arguments, asking=event.server)
        self.telling.items.append(NewItem(item, event.provider_id, call.facts.id))
        self._show_whole(call)

    def _answered(self, event: ToolResultReady) -> None:
        call = self._find(event.call_id)
        if call is None or call.arguments is None:
            # Some say the result before the call; whether this one does is known when the service call is complete.
            if event.call_id in self._early:
                raise AdapterError(ErrorClass.CONTRACT_BROKEN, f"tool call {event.call_id!r} was answered twice")
            self._early[event.call_id] = event
            return
        if call.status is not None:
            raise AdapterError(ErrorClass.CONTRACT_BROKEN, f"tool call {event.call_id!r} was answered twice")
        self.answer(call, Settled(ToolCallStatus.FAILED if event.error else ToolCallStatus.COMPLETED, event.output))


def output_item(call: ToolCall, *, unsent: bool, replayable: bool = True) -> NewItem:
    """What tells the model the outcome."""
    approved = call.status is ToolCallStatus.COMPLETED if call.question else None
    item = OutputItem(call.external_id, call.outcome, call.status is not ToolCallStatus.COMPLETED, approved)
    return NewItem(item, None, call.facts.id, replayable=replayable, unsent=unsent)
