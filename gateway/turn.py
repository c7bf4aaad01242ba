"""One turn, sans IO: adapter events in, commands out. Law: nothing here waits, stores or sends; the runner does."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from gateway import tool_calls, tools
from gateway.clock import Clock, timestamp
from gateway.commits import NewItem, NewToolCall
from gateway.failures import HANDLE_MISSING, OWNER_CONFLICT, ROUND_LIMIT, UNKNOWN_TOOL, safe_text
from gateway.items import AssistantItem, CallItem, OutputItem, Ownership, ReasoningItem, StorageOwner
from gateway.model import (
    Artifact,
    Json,
    Message,
    Part,
    Role,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
)
from gateway.ports import (
    AdapterError,
    AdapterEvent,
    ApprovalAsked,
    ArtifactReady,
    CallCompleted,
    CallStarted,
    DirectReply,
    Ending,
    ErrorClass,
    ItemReady,
    PartReady,
    Progress,
    ReasoningDelta,
    TextDelta,
    ToolCallAnnounced,
    ToolCallArguments,
    ToolCallReady,
    ToolResultReady,
)
from gateway.question import question
from gateway.tool_calls import Phase
from gateway.tools import Settled, ToolCall, ToolPolicy
from gateway.turn_commands import (
    CloseCall,
    Command,
    Conflicting,
    DropCall,
    EndTool,
    EndTurn,
    GoOn,
    NotePending,
    Publish,
    Reply,
    StartTool,
    StrayResult,
    Wait,
)

REASONING_URI = "https://a2a-gateway.dev/extensions/reasoning/v1"
_THOUGHT = {"adk_thought": True}
_REBUILT = "The agent's backend had lost this conversation; it was told again from the gateway's record."

_ENDINGS = {
    Ending.COMPLETED: TaskState.COMPLETED,
    Ending.INPUT_REQUIRED: TaskState.INPUT_REQUIRED,
    Ending.AUTH_REQUIRED: TaskState.AUTH_REQUIRED,
    Ending.REJECTED: TaskState.REJECTED,
}


@dataclass(frozen=True, slots=True)
class TurnFacts:
    """What a turn knows of itself. `direct_replies`: the agent may answer with a bare message.

    `rendering`: what the caller sees of tool calls; the ledger keeps all of them.
    """

    task_id: str
    context_id: str
    ownership: Ownership
    direct_replies: bool = False
    tolerate_missing_handle: bool = False
    shadow: str = "items"
    on_owner_conflict: str = "fail"
    tools: ToolPolicy = field(default_factory=ToolPolicy)
    rendering: tool_calls.Rendering = field(default_factory=tool_calls.Rendering)


@dataclass(slots=True)
class Turn:
    """Feed it every event of the adapter. Behind GoOn its tool calls are started and settled, then `next_call` begins the
    next service call. `fail` or `cancel` may come at any time, once. It ends with an EndTurn.

    `round` is the number of the service call. `calls` are the tool calls of the last one that was complete.
    """

    facts: TurnFacts
    clock: Clock
    _answer: str = ""
    _text: list[str] = field(default_factory=list)
    _said: list[Part] = field(default_factory=list)
    _thought: list[str] = field(default_factory=list)
    _items: list[NewItem] = field(default_factory=list)
    _calls: dict[str, ToolCall] = field(default_factory=dict)
    _unnamed: str = ""
    _early: dict[str, ToolResultReady] = field(default_factory=dict)
    _shown: bool = False
    _named: deque[str] = field(default_factory=deque)
    _out: list[Command] = field(default_factory=list)
    round: int = 0
    calls: dict[str, ToolCall] = field(default_factory=dict)
    between_calls: bool = False
    ended: bool = False

    def receive(self, event: AdapterEvent) -> list[Command]:
        """Raises: AdapterError (CONTRACT_BROKEN) for an event that cannot follow."""
        if self.ended or self.between_calls:
            raise AdapterError(ErrorClass.CONTRACT_BROKEN, f"{type(event).__name__} after the end of the call")
        out = self._out = []
        match event:
            case TextDelta(text=text):
                self._say_text(text)
            case ReasoningDelta(text=text):
                self._flush_said()
                self._thought.append(text)
                self._status(metadata={REASONING_URI: {"delta": text}})
            case CallStarted(handle=handle):
                if handle is not None:
                    out.append(NotePending(handle))
            case PartReady(part=part):
                self._say_part(part)
            case ArtifactReady():
                self._artifact(event)
            case Progress(text=text):
                self._status(self._message((Part(text=text, metadata=_THOUGHT),)))
            case ItemReady():
                self._remember(event)
            case CallCompleted():
                self._complete(event)
            case DirectReply(parts=parts, state=state):
                self._reply(parts, state)
            case _:
                self._tool(event)
        self._shown = self._shown or any(isinstance(command, Publish) for command in out)
        return out

    def fail(self, failure: str, correlation_id: str) -> list[Command]:
        """The service call failed (or could not be made): FAILED with a text from the table."""
        out = self._interrupt()
        drop = DropCall("failed", failure, self._unreplayable())
        return [*out, drop, self._failed(failure, correlation_id)]

    def rebuilt(self, kind: str) -> list[Command]:
        """The backend has lost the conversation and gets it whole once more: its caller is told."""
        out = self._out = []
        self._status(self._message((Part(text=_REBUILT, metadata=_THOUGHT),)), {"contextRebuilt": kind})
        self._shown = True
        return out

    def cancel(self) -> list[Command]:
        out = self._interrupt()
        drop = DropCall("failed", "cancelled", self._unreplayable())
        return [*out, drop, EndTurn("cancelled", TaskState.CANCELED)]

    def _failed(self, failure: str, correlation_id: str) -> EndTurn:
        message = self._message(
            (Part(text=safe_text(failure, correlation_id)),),
            {"correlationId": correlation_id, "errorClass": str(failure)},
        )
        return EndTurn("failed", TaskState.FAILED, message, failure)

    def _interrupt(self) -> list[Command]:
        """Ends the turn before its end: a tool call that nobody answered is shown as interrupted, and one of a completed
        service call gets its outcome."""
        before, self._out = self._out, []
        self.ended = True
        self._flush()
        for call in self._calls.values():
            if call.arguments is not None and call.status is None:
                call.status = "interrupted"
                self._show_answer(call, tools.OUTCOME_UNKNOWN)
        for call in self.calls.values():
            if call.is_open:
                self._end_tool(call, tools.unfinished(call.status))
        out, self._out = self._out, before
        return out

    # --- the tool calls of a service call that is complete

    def start_tool(self, call: ToolCall) -> list[Command]:
        again, call.cut, call.status = call.cut, False, "running"
        self._out = [StartTool(call.facts.id)]
        if not again:
            self._show(call, Phase.EXECUTING)
        return self._out

    def progress(self, call: ToolCall, text: str) -> list[Command]:
        self._out = []
        self._show(call, Phase.PROGRESS, text)
        return self._out

    def settle_tool(self, call: ToolCall, settled: Settled) -> list[Command]:
        self._out = []
        self._end_tool(call, settled)
        return self._out

    @property
    def answer(self) -> str:
        """The id of the artifact with the answer; empty while there is none."""
        return self._answer

    @property
    def waiting(self) -> bool:
        """Some of the calls need their caller: a decision, or a result."""
        return any(call.waits for call in self.calls.values())

    def wait(self, *, again: bool = False) -> list[Command]:
        """The turn has to be told something about its open calls before it can go on. `again`: about the rest of them."""
        self._out = []
        waiting = [call for call in self.calls.values() if call.waits]
        for call in waiting:
            call.shown = True
            if call.asked and not again:
                self._show(call, Phase.AWAITING_APPROVAL)
        expires_at = min((call.expires_at for call in waiting if call.expires_at is not None), default=self.clock.now())
        parts, metadata = question(
            waiting, f"request_{self.clock.new_id()}", timestamp(expires_at), self.facts.rendering.redact
        )
        self._out.append(Wait(TaskState.INPUT_REQUIRED, self._message(parts, metadata)))
        return self._out

    def go_on(self, calls: tuple[ToolCall, ...]) -> None:
        """The turn waited, and these calls of its last service call are still open."""
        self.calls = {call.facts.id: call for call in calls}
        for call in calls:
            # Of the backend's own calls only its questions are ever left open.
            call.question = call.executor == "backend"
        self.round = calls[0].facts.round
        self.between_calls = True

    def begin_again(self, answer: str, calls: Sequence[str]) -> None:
        """The service call is told once more: its answer is this artifact, its first tool calls have these public ids."""
        self._answer = answer
        self._named = deque(calls)
        self._text, self._said, self._thought, self._items = [], [], [], []
        self._calls, self._unnamed, self._early = {}, "", {}
        self._shown = self._shown or bool(answer or calls)

    def next_call(self) -> None:
        self.round += 1
        self.between_calls = False
        self.calls = {}

    def _end_tool(self, call: ToolCall, settled: Settled) -> None:
        # What never ran need not be told where the model can be shown a conversation without the call.
        never_ran = settled.status == "cancelled" and call.status != "running"
        gateway = self.facts.ownership.owner is StorageOwner.GATEWAY
        call.status, call.outcome = settled.status, settled.output
        item = self._output_item(call, replayable=not (never_ran and gateway), unsent=True)
        self._out.append(EndTool(call.facts.id, settled.status, settled.output, item))
        self._show_answer(call, settled.output)

    # --- text, parts, artifacts

    def _say_text(self, text: str) -> None:
        if not text:
            return
        self._flush_thought()
        self._text.append(text)
        self._publish_answer(Part(text=text))

    def _say_part(self, part: Part) -> None:
        self._flush_thought()
        self._flush_text()
        self._said.append(part)
        self._publish_answer(part)

    def _publish_answer(self, part: Part) -> None:
        append = bool(self._answer)
        if not append:
            self._answer = self.clock.new_id()
        facts = self.facts
        self._out.append(
            Publish(
                TaskArtifactUpdateEvent(
                    task_id=facts.task_id,
                    context_id=facts.context_id,
                    artifact=Artifact(artifact_id=self._answer, parts=(part,)),
                    append=append,
                )
            )
        )

    def _artifact(self, event: ArtifactReady) -> None:
        self._flush_thought()
        self._flush_text()
        self._said.extend(event.artifact.parts)
        self._out.append(
            Publish(
                TaskArtifactUpdateEvent(
                    task_id=self.facts.task_id,
                    context_id=self.facts.context_id,
                    artifact=event.artifact,
                    append=event.append,
                    last_chunk=event.last_chunk,
                )
            )
        )

    # --- reasoning and other items

    def _remember(self, event: ItemReady) -> None:
        self._flush_said()
        if isinstance(event.item, ReasoningItem):
            self._show_thought(event.item.text or "".join(self._thought))
            self._thought.clear()
        self._flush_thought()
        self._items.append(NewItem(event.item, event.provider_id))

    def _show_thought(self, text: str) -> None:
        if text:
            self._status(self._message((Part(text=text, metadata=_THOUGHT),)))

    def _flush_thought(self) -> None:
        if self._thought:
            text = "".join(self._thought)
            self._thought.clear()
            self._show_thought(text)
            self._items.append(NewItem(ReasoningItem(text)))

    # --- tool calls as the backend tells them

    def _tool(self, event: AdapterEvent) -> None:
        match event:
            case ToolCallAnnounced(call_id=call_id, name=name):
                self._args_delta(self._open_call(call_id, name, None), "")
            case ToolCallArguments(call_id=call_id, delta=delta):
                self._args_delta(self._known(call_id), delta)
            case ToolCallReady():
                self._call_ready(event)
            case ToolResultReady():
                self._call_answered(event)
            case ApprovalAsked():
                self._question(event)
            case _:
                raise AdapterError(ErrorClass.CONTRACT_BROKEN, f"{event!r} is not an event of the port")

    def _open_call(self, call_id: str, name: str, server: str | None) -> ToolCall:
        if call_id in self._calls:
            raise AdapterError(ErrorClass.CONTRACT_BROKEN, f"tool call {call_id!r} was announced twice")
        policy = self.facts.tools
        facts = tool_calls.CallFacts(
            id=self._named.popleft() if self._named else f"call_{self.clock.new_id()}",
            name=name,
            round=self.round,
            index=len(self._calls),
            origin=policy.origin(name),
            server=server or policy.server(name),
            started_at=timestamp(self.clock.now()),
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

    def _args_delta(self, call: ToolCall, delta: str) -> None:
        self._show(call, Phase.ARGS_DELTA, delta)

    def _call_ready(self, event: ToolCallReady) -> None:
        known = self._find(event.call_id)
        if known is not None and not event.call_id and known.arguments is not None:
            known = None
        call = known or self._open_call(event.call_id, event.name, event.server)
        if call.arguments is not None:
            raise AdapterError(ErrorClass.CONTRACT_BROKEN, f"the arguments of tool call {event.call_id!r} came twice")
        if event.handled:
            call.facts = replace(call.facts, name=event.name, origin="backend", server=event.server)
        elif event.server is not None and call.facts.server is None:
            call.facts = replace(call.facts, name=event.name, server=event.server)
        self._flush_said()
        self._flush_thought()
        call.arguments, call.handled = event.arguments, event.handled
        item = CallItem(call.external_id, event.name, event.arguments, event.handled)
        self._items.append(NewItem(item, event.provider_id, call.facts.id))
        # A call that its caller has to run is shown when it is asked to, once.
        if event.handled or call.facts.origin != "client":
            self._show_call(call)
        if event.handled:
            self._show(call, Phase.EXECUTING)
        early = self._early.pop(event.call_id, None)
        if early is not None:
            self._call_answered(early)

    def _question(self, event: ApprovalAsked) -> None:
        call = self._open_call(event.call_id, event.name, f"mcp:{event.server}")
        call.facts = replace(call.facts, origin="backend", server=f"mcp:{event.server}")
        self._flush_said()
        self._flush_thought()
        call.arguments, call.question = event.arguments, True
        item = CallItem(call.external_id, event.name, event.arguments, asking=event.server)
        self._items.append(NewItem(item, event.provider_id, call.facts.id))
        self._show_call(call)

    def _call_answered(self, event: ToolResultReady) -> None:
        call = self._find(event.call_id)
        if call is None or call.arguments is None:
            # Some say the result before the call; whether this one does is known when the service call is complete.
            if event.call_id in self._early:
                raise AdapterError(ErrorClass.CONTRACT_BROKEN, f"tool call {event.call_id!r} was answered twice")
            self._early[event.call_id] = event
            return
        if call.status is not None:
            raise AdapterError(ErrorClass.CONTRACT_BROKEN, f"tool call {event.call_id!r} was answered twice")
        self._answer_call(call, Settled("failed" if event.error else "completed", event.output))

    def _answer_call(self, call: ToolCall, settled: Settled, *, unsent: bool = False) -> None:
        call.status, call.outcome = settled.status, settled.output
        self._items.append(self._output_item(call, unsent=unsent))
        self._show_answer(call, settled.output)

    def _output_item(self, call: ToolCall, *, unsent: bool, replayable: bool = True) -> NewItem:
        approved = call.status == "completed" if call.question else None
        item = OutputItem(call.external_id, call.outcome, call.status != "completed", approved)
        return NewItem(item, None, call.facts.id, replayable=replayable, unsent=unsent)

    # --- how callers see tool calls

    def _show_call(self, call: ToolCall) -> None:
        call.shown = True
        self._show(call, Phase.REQUESTED, call.arguments or "")

    def _show_answer(self, call: ToolCall, output: Json) -> None:
        if not call.shown:
            self._show_call(call)
        self._show(call, tools.PHASES[call.status or "interrupted"], output)

    def _show(self, call: ToolCall, phase: Phase, detail: Json = None) -> None:
        """The one place where a moment of a tool call becomes an update, if the caller is to see it."""
        now = timestamp(self.clock.now())
        place = tool_calls.Place(self.facts.task_id, self.facts.context_id, now, self.clock.new_id)
        update = tool_calls.update(call.facts, phase, detail, self.facts.rendering, place)
        if update is not None:
            self._out.append(Publish(update))

    # --- the end

    def _complete(self, event: CallCompleted) -> None:
        facts = self.facts
        backend = facts.ownership.owner is StorageOwner.BACKEND
        self._flush()
        missing = backend and event.handle is None
        if missing and not facts.tolerate_missing_handle:
            self._out.extend(self.fail(HANDLE_MISSING, self.clock.correlation_id()))
            return
        conflict = self._conflict(event)
        if conflict is not None and facts.on_owner_conflict != "warn" and not conflict.adopts:
            self._out.extend([conflict, *self.fail(OWNER_CONFLICT, self.clock.correlation_id())])
            return
        unanswered = [call for call in self._calls.values() if call.status is None]
        on_chain = event.handle is not None and (backend or (conflict is not None and conflict.adopts))
        goes_on = event.ending is Ending.COMPLETED and (on_chain or not backend)
        for call in unanswered:
            self._decide(call, goes_on=goes_on, on_chain=on_chain)
        self._keep_strays()
        handle = event.handle if backend else None
        self._out.append(CloseCall(handle, event.state, event.usage, tuple(self._shadowed()), tuple(self._tool_rows())))
        if conflict is not None:
            self._out.append(conflict)
        asked = [call for call in unanswered if call.executor != "backend" or call.question]
        if asked and goes_on:
            self._out.extend(self._behind(asked))
            return
        self.ended = True
        said = self._message(event.message) if event.message else None
        metadata: dict[str, Json] = {"finishReason": event.finish} if event.finish else {}
        if missing:
            metadata["contextGap"] = HANDLE_MISSING
        status = "rejected" if event.ending is Ending.REJECTED else "completed"
        gap = HANDLE_MISSING if missing else None
        self._out.append(EndTurn(status, _ENDINGS[event.ending], said, gap, metadata or None))

    def _conflict(self, event: CallCompleted) -> Conflicting | None:
        """Source: state-model, scenarios 21 to 23. Only a handle can be adopted."""
        if self.facts.ownership.owner is StorageOwner.BACKEND or (event.handle is None and not event.stored):
            return None
        return Conflicting(event.handle, self.facts.on_owner_conflict == "adopt" and event.handle is not None)

    def _decide(self, call: ToolCall, *, goes_on: bool, on_chain: bool) -> None:
        """A call that nobody answered when its service call was complete: what becomes of it is decided here, once."""
        if call.arguments is None:
            call.status, call.outcome = "cancelled", None
            return
        if call.handled:
            call.status, call.outcome = "external", None
            self._show_answer(call, tools.OUTCOME_UNKNOWN)
            return
        settled = tools.decide(call, self.facts.tools)
        call.expires_at = self.clock.now() + self.facts.tools.patience if call.waits else None
        if settled is None and not goes_on:
            settled = Settled("cancelled", tools.NOT_RUN)
        if settled is not None:
            self._answer_call(call, settled, unsent=on_chain)

    def _keep_strays(self) -> None:
        """Results of calls that nobody made: kept, and never shown to the model."""
        for event in self._early.values():
            self._out.append(StrayResult(event.call_id))
            self._items.append(NewItem(OutputItem(event.call_id, event.output, event.error), replayable=False))
        self._early.clear()

    def _behind(self, asked: list[ToolCall]) -> list[Command]:
        """What follows a complete service call that asked for tools."""
        policy = self.facts.tools
        self.calls = {call.facts.id: call for call in asked}
        if policy.exhausted:
            return self._broken_off(ROUND_LIMIT)
        if policy.unknown_fails and any(call.status == "not_found" for call in asked):
            return self._broken_off(UNKNOWN_TOOL)
        self.between_calls = True
        self._items, self._calls, self._unnamed = [], {}, ""
        return [GoOn()]

    def _broken_off(self, failure: str) -> list[Command]:
        """The service call counts, and the turn fails behind it: calls that were to run are closed."""
        self._items, self._calls = [], {}
        return [*self._interrupt(), self._failed(failure, self.clock.correlation_id())]

    def _reply(self, parts: tuple[Part, ...], state: Json) -> None:
        if self._shown or self._items or not self.facts.direct_replies:
            raise AdapterError(
                ErrorClass.CONTRACT_BROKEN, "a direct reply must be the first and only answer, if allowed"
            )
        self.ended = True
        message = self._message(parts, task=False)
        self._out.append(CloseCall(None, state, None, (NewItem(AssistantItem(parts)),), ()))
        self._out.append(Reply(message))
        self._out.append(EndTurn("completed", TaskState.COMPLETED, message))

    def _tool_rows(self) -> list[NewToolCall]:
        return [
            NewToolCall(
                id=call.facts.id,
                sequence=call.facts.index,
                external_id=call.external_id,
                name=call.facts.name,
                arguments=call.arguments or "",
                executor=call.executor,
                status=call.status or "external",
                outcome=call.outcome,
                asked=call.asked,
                digest=call.digest,
                expires_at=call.expires_at,
                server=call.facts.server,
                runs_left=call.runs_left,
            )
            for call in self._calls.values()
        ]

    def _shadowed(self) -> list[NewItem]:
        """What the ledger keeps of it: all of it, unless the backend owns the conversation and less was asked for.

        An output that the backend waits for is kept whatever the setting: the next request has to carry it.
        """
        if self.facts.ownership.owner is StorageOwner.GATEWAY or self.facts.shadow == "items":
            return self._items
        due = {call.external_id for call in self._calls.values() if call.executor != "backend" or call.question}
        kept = AssistantItem if self.facts.shadow == "text" else ()
        return [
            new
            for new in self._items
            if isinstance(new.item, kept) or (isinstance(new.item, CallItem | OutputItem) and new.item.call_id in due)
        ]

    def _unreplayable(self) -> tuple[NewItem, ...]:
        return tuple(NewItem(new.item, new.provider_id, None, replayable=False) for new in self._items)

    def _flush(self) -> None:
        self._flush_thought()
        self._flush_said()

    def _flush_text(self) -> None:
        if self._text:
            self._said.append(Part(text="".join(self._text)))
            self._text.clear()

    def _flush_said(self) -> None:
        self._flush_text()
        if self._said:
            self._items.append(NewItem(AssistantItem(tuple(self._said))))
            self._said.clear()

    def _status(self, message: Message | None = None, metadata: dict[str, Json] | None = None) -> None:
        self._out.append(
            Publish(
                TaskStatusUpdateEvent(
                    task_id=self.facts.task_id,
                    context_id=self.facts.context_id,
                    status=TaskStatus(state=TaskState.WORKING, message=message, timestamp=timestamp(self.clock.now())),
                    metadata=metadata,
                )
            )
        )

    def _message(
        self, parts: tuple[Part, ...], metadata: dict[str, Json] | None = None, *, task: bool = True
    ) -> Message:
        return Message(
            message_id=self.clock.new_id(),
            context_id=self.facts.context_id,
            task_id=self.facts.task_id if task else None,
            role=Role.AGENT,
            parts=parts,
            metadata=metadata,
        )
