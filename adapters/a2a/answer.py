"""What an agent says of one task, as events of the port. Law: pure; whether a word comes in a piece, in a whole artifact or in
a whole task, it is given out once.

A status with which a task works is a line on the work. Source: A2A 1.0, sections 3.1.2, 4.1 and 7.6.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import structlog
from msgspec.structs import replace

from adapters.a2a.artifact_reader import ArtifactReader
from adapters.a2a.state import Waiting, mark
from adapters.a2a.tool_calls import ToolCallReader
from gateway.a2a.model import (
    INTERRUPTED,
    TERMINAL,
    Artifact,
    Json,
    Message,
    Part,
    Role,
    StreamResponse,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
)
from gateway.a2a.tool_calls import URI
from gateway.core.turn.output import REASONING_URI
from gateway.ports.adapter import (
    AdapterEvent,
    ArtifactReady,
    CallStarted,
    Progress,
    ReasoningDelta,
    TextDelta,
    ToolCallReady,
)
from gateway.ports.conversation import is_plain

log = structlog.get_logger("adapters.a2a")

_LAST = TERMINAL | INTERRUPTED
_THOUGHT = "adk_thought"
_USAGES = ("adk_usage_metadata", "usage_metadata", "usageMetadata")
_OF_GATEWAY = {
    "inputTokens": "input_tokens",
    "cachedTokens": "cached_tokens",
    "outputTokens": "output_tokens",
    "reasoningTokens": "reasoning_tokens",
    "totalTokens": "total_tokens",
}


def ends(found: StreamResponse) -> bool:
    """Whether a stream of this task has nothing behind it."""
    update = found.status_update
    return found.message is not None or (update is not None and update.status.state in _LAST)


@dataclass(slots=True)
class AnswerReader:
    """Reads one call. `context` is the conversation, `fallback` its name where the agent gives none. `waiting` is the task that
    the call continues, if it does. `langgraph` as in Endpoint. `direct`: a bare message may be the whole answer. `public` is
    the id under which callers get the answer, `shown` as in ServiceRequest. `replies` says that what is read is what the agent
    sends back for a message.

    `task` is the agent's task, empty for an answer without one. `last` is the status with which the call ends, None before;
    a bare message ends it as COMPLETED; `bare` are its parts where it is the whole answer. `doubtful` is a status that may be
    from before the message: the last one if nothing follows it. `usage` is the report of tokens, if there is one.
    """

    context: str | None
    fallback: str
    waiting: Waiting | None = None
    langgraph: bool = False
    direct: bool = False
    public: str = ""
    shown: frozenset[str] = frozenset()
    replies: bool = False
    task: str = ""
    bare: tuple[Part, ...] = ()
    last: TaskStatus | None = None
    doubtful: TaskStatus | None = None
    usage: Json = None
    artifacts: ArtifactReader = field(init=False)
    tools: ToolCallReader = field(init=False)
    _started: bool = False
    _strange: bool = False
    _thoughts: list[str] = field(default_factory=list)
    _grown: str = ""
    _noted: str = ""

    def __post_init__(self) -> None:
        known = self.waiting or Waiting(task="", ours="")
        self.tools = ToolCallReader({each.id: each for each in known.asked}, frozenset(known.calls), dict(known.given))
        earlier = {each.id: each for each in known.artifacts}
        self.artifacts = ArtifactReader(self.public, earlier, self.shown, self.langgraph)

    def receive(self, found: StreamResponse) -> list[AdapterEvent]:
        """The events of what the agent sent. Nothing that follows `last` counts, and nothing of another task."""
        update = found.artifact_update
        if update is not None:
            parts, artifacts = update.artifact.parts, self.artifacts
            if self._is_strange(update.task_id):
                return []
            if update.append and update.artifact.artifact_id == artifacts.answer and len(parts) == 1:
                # The most frequent event.
                text = parts[0].text
                if text and artifacts.goes_on and is_plain(parts[0]):
                    artifacts.say(text)
                    return [TextDelta(text)]
            return [*self._begin(update.task_id, update.context_id), *self._piece(update)]
        if found.status_update is not None:
            changed = found.status_update
            if self._is_strange(changed.task_id):
                return []
            return [*self._begin(changed.task_id, changed.context_id), *self._changed(changed)]
        if found.task is not None:
            whole = found.task
            if self._is_strange(whole.id):
                return []
            first = not self._started
            return [*self._begin(whole.id, whole.context_id), *self._whole(whole, first=first)]
        if found.message is not None and not self._is_strange(found.message.task_id):
            return [*self._begin("", found.message.context_id or ""), *self._reply(found.message)]
        return []

    @property
    def said(self) -> str:
        """The text of the answer so far."""
        return self.artifacts.text

    @property
    def silent(self) -> bool:
        """Whether nothing was given out yet that belongs to the answer."""
        return self.artifacts.silent

    # --- the four kinds

    def _is_strange(self, task: str | None) -> bool:
        """Whether the agent speaks of another task: no word of that is one of this call."""
        if not (task and self.task) or task == self.task:
            return False
        if not self._strange:
            log.warning("call.of-another-task", task=self.task)
        self._strange = True
        return True

    def _begin(self, task: str, context: str) -> Iterator[AdapterEvent]:
        self.doubtful = None
        if self._started:
            return
        self._started = True
        self.task = task
        self.context = context or self.context or self.fallback
        yield CallStarted(self.context, run=task or None)

    def _whole(self, task: Task, *, first: bool) -> Iterator[AdapterEvent]:
        self._count(task.metadata)
        for message in task.history or ():
            # Of what was said on the way only calls are looked for: the rest is no part of the answer.
            for part in message.parts if message.role is Role.AGENT else ():
                yield from self._call(part) or ()
        for artifact in task.artifacts or ():
            calls = self._calls(artifact)
            if calls is None:
                yield from self.artifacts.stored(artifact, last=task.status.state in TERMINAL)
            else:
                yield from calls
        if self.waiting is not None and self.waiting.since and mark(task.status) == self.waiting.since:
            # The task as it was before the message.
            return
        if first and self.replies and self.waiting is not None and task.status.state in INTERRUPTED:
            self.doubtful = task.status
            return
        if self.langgraph and task.status.state is TaskState.COMPLETED:
            yield from self._from_history(task)
            self.last = replace(task.status, message=None)
            return
        yield from self._enter(task.status)

    def _from_history(self, task: Task) -> Iterator[AdapterEvent]:
        """The answer of a stored task of LangGraph, whose history is that of the conversation."""
        answer: tuple[Part, ...] = ()
        for message in task.history or ():
            answer = message.parts if message.role is Role.AGENT else ()
        if answer and not task.artifacts:
            yield from self.artifacts.settle(answer)

    def _changed(self, update: TaskStatusUpdateEvent) -> Iterator[AdapterEvent]:
        self._count(update.metadata)
        metadata = update.metadata or {}
        yield from self._told(self.tools.phase(metadata.get(URI)))
        match metadata.get(REASONING_URI):
            case {"delta": str(text)} if text:
                self._thoughts.append(text)
                yield ReasoningDelta(text)
        yield from self._enter(update.status)

    def _piece(self, update: TaskArtifactUpdateEvent) -> Iterator[AdapterEvent]:
        calls = self._calls(update.artifact)
        if calls is None:
            yield from self.artifacts.piece(update.artifact, append=update.append, last=update.last_chunk)
        else:
            yield from calls

    def _reply(self, message: Message) -> Iterator[AdapterEvent]:
        if self.direct and self.silent and not self.task:
            self.bare = message.parts
        else:
            yield from self.artifacts.continue_answer(message.parts)
        self.last = TaskStatus(state=TaskState.COMPLETED)

    # --- statuses

    def _enter(self, status: TaskStatus) -> Iterator[AdapterEvent]:
        if status.state in _LAST:
            self.last = status
        elif status.message is not None:
            yield from self._note(status.message)

    def _note(self, message: Message) -> Iterator[AdapterEvent]:
        """A message with which the task works, once: a task that is looked at again has the same one."""
        if message.message_id and message.message_id == self._noted:
            return
        self._noted = message.message_id
        words: list[str] = []
        for part in message.parts:
            about_call = self._call(part)
            if about_call is not None:
                yield from about_call
            elif part.text is None:
                beside = Artifact(artifact_id=message.message_id or "note", parts=(part,))
                yield ArtifactReady(beside, last_chunk=True, within_text=self.artifacts.goes_on)
            elif (part.metadata or {}).get(_THOUGHT) is True:
                yield ReasoningDelta(part.text)
            else:
                words.append(part.text)
        text = "\n".join(words)
        if self._thoughts and text == "".join(self._thoughts):
            # The thoughts as a whole, behind their pieces.
            self._thoughts.clear()
        elif self.langgraph and text:
            yield from self._grow(text)
        elif text:
            yield Progress(text)

    def _grow(self, text: str) -> Iterator[AdapterEvent]:
        if text.startswith(self._grown):
            yield from self.artifacts.said(text[len(self._grown) :])
        else:
            # Another message of the agent begins.
            yield from self.artifacts.end_message()
            yield from self.artifacts.said(text)
        self._grown = text

    # --- tool calls

    def _calls(self, artifact: Artifact) -> list[AdapterEvent] | None:
        """The events of an artifact that is about calls and nothing else; None for any other."""
        found = [self._call(part) for part in artifact.parts]
        if not found or any(events is None for events in found):
            return None
        return [event for events in found for event in events or ()]

    def _call(self, part: Part) -> list[AdapterEvent] | None:
        events = self.tools.part(part)
        return None if events is None else self._told(events)

    def _told(self, events: list[AdapterEvent]) -> list[AdapterEvent]:
        if any(isinstance(event, ToolCallReady) for event in events):
            self.artifacts.interrupt()
        return events

    # --- tokens

    def _count(self, metadata: dict[str, Json] | None) -> None:
        """Keeps the report of tokens of a gateway, or of Google ADK."""
        match metadata:
            case {"usage": {"turn": dict(turn)}}:
                self.usage = _report(turn)
            case {**found}:
                self.usage = next((found[name] for name in _USAGES if isinstance(found.get(name), dict)), self.usage)


def _report(turn: dict[str, Json]) -> Json:
    """The tokens of a gateway in the names of Responses."""
    found: dict[str, Json] = {name: turn[theirs] for theirs, name in _OF_GATEWAY.items() if theirs in turn}
    cached, reasoning = found.pop("cached_tokens", None), found.pop("reasoning_tokens", None)
    if cached is not None:
        found["input_tokens_details"] = {"cached_tokens": cached}
    if reasoning is not None:
        found["output_tokens_details"] = {"reasoning_tokens": reasoning}
    return found
