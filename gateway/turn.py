"""One turn, sans IO: adapter events in, commands out. Law: nothing here waits, stores or sends; the runner does."""

from dataclasses import dataclass, field

import msgspec

from gateway import tool_calls
from gateway.clock import Clock, timestamp
from gateway.commits import NewItem, NewToolCall
from gateway.failures import HANDLE_MISSING, OWNER_CONFLICT, UNKNOWN_TOOL, safe_text
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
from gateway.tool_calls import Phase

REASONING_URI = "https://a2a-gateway.dev/extensions/reasoning/v1"
_THOUGHT = {"adk_thought": True}
_NO_SUCH_TOOL = "This tool is not available."
_OUTCOME_UNKNOWN = "The outcome of this call is unknown."
_REBUILT = "The agent's backend had lost this conversation; it was told again from the gateway's record."

_ENDINGS = {
    Ending.COMPLETED: TaskState.COMPLETED,
    Ending.INPUT_REQUIRED: TaskState.INPUT_REQUIRED,
    Ending.AUTH_REQUIRED: TaskState.AUTH_REQUIRED,
    Ending.REJECTED: TaskState.REJECTED,
}


class Publish(msgspec.Struct, frozen=True):
    """An update for the task's log and its streams."""

    update: TaskStatusUpdateEvent | TaskArtifactUpdateEvent


class NotePending(msgspec.Struct, frozen=True):
    """The handle that the running call may lead to; to be stored before anything later is shown."""

    handle: str


class CloseCall(msgspec.Struct, frozen=True):
    """The service call counts: items and handle belong to one commit. `handle` None leaves the thread's as it is."""

    handle: str | None
    state: Json
    usage: Json
    items: tuple[NewItem, ...]
    tool_calls: tuple[NewToolCall, ...]


class DropCall(msgspec.Struct, frozen=True):
    """The service call does not count; what was said is kept but never shown to the model again."""

    status: str
    error_class: str
    items: tuple[NewItem, ...]


class Conflicting(msgspec.Struct, frozen=True):
    """The backend kept a call of a conversation that the gateway keeps. `adopts`: the thread goes on from its handle."""

    handle: str | None
    adopts: bool


class EndTurn(msgspec.Struct, frozen=True):
    """`state` is the task's; `message` goes with it. `metadata` is the final event's.

    `failure` with a turn that did not fail is its gap: why the backend does not know what was said in it.
    """

    status: str
    state: TaskState
    message: Message | None = None
    failure: str | None = None
    metadata: dict[str, Json] | None = None


class Reply(msgspec.Struct, frozen=True):
    """The answer is this message, without a task."""

    message: Message


Command = Publish | NotePending | CloseCall | DropCall | Conflicting | EndTurn | Reply


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
    rendering: tool_calls.Rendering = field(default_factory=tool_calls.Rendering)


@dataclass(slots=True)
class _Call:
    """One tool call of the running service call."""

    facts: tool_calls.CallFacts
    external_id: str
    arguments: str | None = None
    handled: bool | None = None
    item: int | None = None
    outcome: Json = None
    status: str | None = None


@dataclass(slots=True)
class Turn:
    """Feed it every event of the adapter, then at most one of `fail` and `cancel`. It ends with an EndTurn."""

    facts: TurnFacts
    clock: Clock
    _answer: str = ""
    _text: list[str] = field(default_factory=list)
    _said: list[Part] = field(default_factory=list)
    _thought: list[str] = field(default_factory=list)
    _items: list[NewItem] = field(default_factory=list)
    _calls: dict[str, _Call] = field(default_factory=dict)
    _shown: bool = False
    _out: list[Command] = field(default_factory=list)
    ended: bool = False

    def receive(self, event: AdapterEvent) -> list[Command]:
        """Raises: AdapterError (CONTRACT_BROKEN) for an event that cannot follow."""
        if self.ended:
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
        message = self._message(
            (Part(text=safe_text(failure, correlation_id)),),
            {"correlationId": correlation_id, "errorClass": str(failure)},
        )
        drop = DropCall("failed", failure, self._unreplayable())
        return [*out, drop, EndTurn("failed", TaskState.FAILED, message, failure)]

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

    def _interrupt(self) -> list[Command]:
        """Ends the call before its end: a tool call that nobody answered is shown as interrupted."""
        before, self._out = self._out, []
        self.ended = True
        self._flush()
        for call in self._calls.values():
            if call.arguments is not None and call.status is None:
                call.status = "interrupted"
                self._show_interrupted(call)
        out, self._out = self._out, before
        return out

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

    # --- tool calls of the backend

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
            case _:
                raise AdapterError(ErrorClass.CONTRACT_BROKEN, f"{event!r} is not an event of the port")

    def _open_call(self, call_id: str, name: str, server: str | None) -> _Call:
        if call_id in self._calls:
            raise AdapterError(ErrorClass.CONTRACT_BROKEN, f"tool call {call_id!r} was announced twice")
        facts = tool_calls.CallFacts(
            id=f"call_{self.clock.new_id()}",
            name=name,
            round=0,
            index=len(self._calls),
            origin="backend",
            server=server,
            started_at=timestamp(self.clock.now()),
        )
        call = self._calls[call_id] = _Call(facts, call_id)
        return call

    def _known(self, call_id: str) -> _Call:
        call = self._calls.get(call_id)
        if call is None:
            raise AdapterError(ErrorClass.CONTRACT_BROKEN, f"nobody announced tool call {call_id!r}")
        return call

    def _args_delta(self, call: _Call, delta: str) -> None:
        self._show_call(call.facts, Phase.ARGS_DELTA, delta)

    def _call_ready(self, event: ToolCallReady) -> None:
        call = self._calls.get(event.call_id) or self._open_call(event.call_id, event.name, event.server)
        if call.arguments is not None:
            raise AdapterError(ErrorClass.CONTRACT_BROKEN, f"the arguments of tool call {event.call_id!r} came twice")
        if event.server is not None and call.facts.server is None:
            call.facts = tool_calls.CallFacts(
                call.facts.id, event.name, 0, call.facts.index, "backend", event.server, call.facts.started_at
            )
        self._flush_said()
        self._flush_thought()
        call.arguments, call.handled, call.item = event.arguments, event.handled, len(self._items)
        self._items.append(
            NewItem(CallItem(event.call_id, event.name, event.arguments), event.provider_id, call.facts.id)
        )
        self._show_call(call.facts, Phase.REQUESTED, event.arguments)
        if event.handled:
            self._show_call(call.facts, Phase.EXECUTING)

    def _call_answered(self, event: ToolResultReady) -> None:
        call = self._known(event.call_id)
        if call.arguments is None:
            raise AdapterError(
                ErrorClass.CONTRACT_BROKEN, f"tool call {event.call_id!r} was answered before it was made"
            )
        if call.status is not None:
            raise AdapterError(ErrorClass.CONTRACT_BROKEN, f"tool call {event.call_id!r} was answered twice")
        self._answer_call(call, event.output, "failed" if event.error else "completed")

    def _answer_call(self, call: _Call, output: Json, status: str, *, unsent: bool = False) -> None:
        call.status, call.outcome = status, output
        phase = Phase.SUCCEEDED if status == "completed" else Phase.FAILED
        item = OutputItem(call.external_id, output, phase is Phase.FAILED)
        self._items.append(NewItem(item, None, call.facts.id, unsent=unsent))
        self._show_call(call.facts, phase, output)

    def _show_interrupted(self, call: _Call) -> None:
        self._show_call(call.facts, Phase.INTERRUPTED, _OUTCOME_UNKNOWN)

    def _show_call(self, call: tool_calls.CallFacts, phase: Phase, detail: Json = None) -> None:
        """The one place where a moment of a tool call becomes an update, if the caller is to see it."""
        place = tool_calls.Place(
            self.facts.task_id, self.facts.context_id, timestamp(self.clock.now()), self.clock.new_id
        )
        update = tool_calls.update(call, phase, detail, self.facts.rendering, place)
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
        for call in unanswered:
            self._close_open_call(call, on_chain=on_chain)
        self.ended = True
        handle = event.handle if backend else None
        self._out.append(CloseCall(handle, event.state, event.usage, tuple(self._shadowed()), tuple(self._tool_rows())))
        if conflict is not None:
            self._out.append(conflict)
        refused = [call for call in unanswered if call.status == "not_found"]
        if refused and event.ending is Ending.COMPLETED:
            correlation_id = self.clock.correlation_id()
            message = self._message(
                (Part(text=safe_text(UNKNOWN_TOOL, correlation_id)),),
                {"correlationId": correlation_id, "errorClass": UNKNOWN_TOOL},
            )
            self._out.append(EndTurn("failed", TaskState.FAILED, message, UNKNOWN_TOOL))
            return
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

    def _close_open_call(self, call: _Call, *, on_chain: bool) -> None:
        """A call that nobody answered when its service call was complete: what it is told is decided here, once."""
        if call.arguments is None:
            call.status, call.outcome = "cancelled", None
        elif call.handled:
            call.status, call.outcome = "external", None
            self._show_interrupted(call)
        else:
            self._answer_call(call, _NO_SUCH_TOOL, "not_found", unsent=on_chain)

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
                executor="backend" if call.status != "not_found" else "gateway",
                status=call.status or "external",
                outcome=call.outcome,
            )
            for call in self._calls.values()
        ]

    def _shadowed(self) -> list[NewItem]:
        """What the ledger keeps of it: all of it, unless the backend owns the conversation and less was asked for.

        An output that the backend waits for is kept whatever the setting: the next request has to carry it.
        """
        if self.facts.ownership.owner is StorageOwner.GATEWAY or self.facts.shadow == "items":
            return self._items
        due = {call.external_id for call in self._calls.values() if call.status == "not_found"}
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
