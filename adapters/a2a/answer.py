"""What an agent says of one task, as events of the port. Law: pure; whether a word comes in a piece, in a whole artifact or in
a whole task, it is given out once.

The first artifact that begins with plain text and has no name is the answer; any other artifact goes on as it is, under its
own id. A status with which a task works is a line on the work. Source: A2A 1.0, sections 3.1.2, 4.1 and 7.6.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

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
    MessageReady,
    PartReady,
    Progress,
    ReasoningDelta,
    TextDelta,
)

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


def is_plain(part: Part) -> bool:
    """Whether the part is a text and says nothing else."""
    return part.text is not None and part.metadata is None and part.filename is None and part.media_type is None


def ends(found: StreamResponse) -> bool:
    """Whether a stream of this task has nothing behind it."""
    update = found.status_update
    return found.message is not None or (update is not None and update.status.state in _LAST)


@dataclass(slots=True)
class AnswerReader:
    """Reads one call. `context` is the conversation, `fallback` its name where the agent gives none. `waiting` is the task that
    the call continues, if it does. `langgraph` as in Endpoint. `direct`: a bare message may be the whole answer.

    `task` is the agent's task, empty for an answer without one. `last` is the status with which the call ends, None before;
    a bare message ends it as COMPLETED; `bare` are its parts where it is the whole answer. `usage` is the report of tokens,
    if there is one. `artifacts` are the ids of those that were given out.
    """

    context: str | None
    fallback: str
    waiting: Waiting | None = None
    langgraph: bool = False
    direct: bool = False
    task: str = ""
    bare: tuple[Part, ...] = ()
    last: TaskStatus | None = None
    usage: Json = None
    artifacts: dict[str, None] = field(default_factory=dict)
    tools: ToolCallReader = field(init=False)
    _started: bool = False
    _answer: str | None = None
    _said: list[str] = field(default_factory=list)
    _message: int = 0
    """How much of `_said` belongs to earlier messages of the answer."""
    _files: int = 0
    """How many parts of the answer that are no plain text were given out."""
    _others: dict[str, list[Part]] = field(default_factory=dict)
    _thoughts: list[str] = field(default_factory=list)
    _grown: str = ""
    _noted: str = ""

    def __post_init__(self) -> None:
        known = self.waiting or Waiting(task="", ours="")
        self.tools = ToolCallReader({each.id: each for each in known.asked}, frozenset(known.calls), dict(known.given))
        self.artifacts = dict.fromkeys(known.artifacts)

    def receive(self, found: StreamResponse) -> list[AdapterEvent]:
        """The events of what the agent sent. Nothing that follows `last` counts."""
        update = found.artifact_update
        if update is not None:
            parts = update.artifact.parts
            if update.append and update.artifact.artifact_id == self._answer and len(parts) == 1 and is_plain(parts[0]):
                # The most frequent event.
                text = parts[0].text or ""
                self._said.append(text)
                return [TextDelta(text)]
            return [*self._begin(update.task_id, update.context_id), *self._piece(update)]
        if found.status_update is not None:
            changed = found.status_update
            return [*self._begin(changed.task_id, changed.context_id), *self._changed(changed)]
        if found.task is not None:
            whole = found.task
            return [*self._begin(whole.id, whole.context_id), *self._whole(whole)]
        if found.message is not None:
            return [*self._begin("", found.message.context_id or ""), *self._reply(found.message)]
        return []

    @property
    def said(self) -> str:
        """The text of the answer so far."""
        return "".join(self._said)

    @property
    def silent(self) -> bool:
        """Whether nothing was given out yet that belongs to the answer."""
        return not (self._said or self._answer or self._others)

    # --- the four kinds

    def _begin(self, task: str, context: str) -> Iterator[AdapterEvent]:
        if self._started:
            return
        self._started = True
        self.task = task
        self.context = context or self.context or self.fallback
        yield CallStarted(self.context, run=task or None)

    def _whole(self, task: Task) -> Iterator[AdapterEvent]:
        self._count(task.metadata)
        for message in task.history or ():
            # Of what was said on the way only calls are looked for: the rest is no part of the answer.
            for part in message.parts if message.role is Role.AGENT else ():
                yield from self.tools.part(part) or ()
        for artifact in task.artifacts or ():
            if artifact.artifact_id in self.artifacts and not self._is_open(artifact.artifact_id):
                continue
            # The pieces of a text that came one by one are parts of a stored artifact.
            parts = tuple(_joined(artifact.parts))
            whole = replace(artifact, parts=parts)
            yield from self._artifact(whole, append=False, last=task.status.state in TERMINAL)
        if self.waiting is not None and self.waiting.since and mark(task.status) == self.waiting.since:
            # The task as it was before the message.
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
            yield from self._answer_is(answer)

    def _changed(self, update: TaskStatusUpdateEvent) -> Iterator[AdapterEvent]:
        self._count(update.metadata)
        metadata = update.metadata or {}
        yield from self.tools.phase(metadata.get(URI))
        match metadata.get(REASONING_URI):
            case {"delta": str(text)} if text:
                self._thoughts.append(text)
                yield ReasoningDelta(text)
        yield from self._enter(update.status)

    def _piece(self, update: TaskArtifactUpdateEvent) -> Iterator[AdapterEvent]:
        yield from self._artifact(update.artifact, append=update.append, last=update.last_chunk)

    def _reply(self, message: Message) -> Iterator[AdapterEvent]:
        if self.direct and self.silent and not self.task:
            self.bare = message.parts
        else:
            yield from self._answer_with(message.parts)
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
            about_call = self.tools.part(part)
            if about_call is not None:
                yield from about_call
            elif part.text is None:
                yield ArtifactReady(Artifact(artifact_id=message.message_id or "note", parts=(part,)), last_chunk=True)
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
            yield from self._say(text[len(self._grown) :])
        else:
            # Another message of the agent begins.
            yield from self._end_message()
            yield from self._say(text)
        self._grown = text

    # --- artifacts

    def _artifact(self, artifact: Artifact, *, append: bool, last: bool) -> Iterator[AdapterEvent]:
        name, parts = artifact.artifact_id, artifact.parts
        calls = [self.tools.part(part) for part in parts]
        if parts and all(found is not None for found in calls):
            for found in calls:
                yield from found or ()
            return
        self.artifacts[name] = None
        if self._answer is None and name not in self._others and self._is_answer(artifact):
            self._answer = name
        if name != self._answer:
            yield from self._other(artifact, append=append, last=last)
        elif append:
            yield from self._answer_with(parts)
        else:
            yield from self._answer_is(parts)

    def _is_answer(self, artifact: Artifact) -> bool:
        if not artifact.parts or not is_plain(artifact.parts[0]):
            return False
        if self.langgraph:
            return True
        return artifact.name is None and not (artifact.description or artifact.metadata or artifact.extensions)

    def _is_open(self, name: str) -> bool:
        return name == self._answer or name in self._others

    def _answer_with(self, parts: Sequence[Part]) -> Iterator[AdapterEvent]:
        """The first text continues what was said; every other part of an update is a part of its own."""
        for index, part in enumerate(parts):
            if not is_plain(part):
                self._files += 1
                yield PartReady(part)
                continue
            if index and self._said and is_plain(parts[index - 1]):
                yield from self._end_message()
            yield from self._say(part.text or "")

    def _answer_is(self, parts: Sequence[Part]) -> Iterator[AdapterEvent]:
        """The answer as a whole, of which some may have been said."""
        if not self._said:
            yield from self._answer_with(parts)
            return
        said, text = self.said, "".join(part.text or "" for part in parts if is_plain(part))
        files = [part for part in parts if not is_plain(part)]
        if text.startswith(said):
            yield from self._say(text[len(said) :])
        elif not self.langgraph or text.strip() != said.strip():
            yield MessageReady(text)
            self._said[self._message :] = [text]
        yield from self._answer_with(files[self._files :])

    def _other(self, artifact: Artifact, *, append: bool, last: bool) -> Iterator[AdapterEvent]:
        name = artifact.artifact_id
        known = self._others.get(name)
        if append and known is not None:
            known.extend(artifact.parts)
        elif known is not None and _joined(known) == _joined(artifact.parts):
            return
        else:
            self._others[name] = list(artifact.parts)
        yield ArtifactReady(artifact, append=append and known is not None, last_chunk=last)

    def _end_message(self) -> Iterator[AdapterEvent]:
        yield MessageReady("".join(self._said[self._message :]))
        self._message = len(self._said)

    def _say(self, text: str) -> Iterator[AdapterEvent]:
        if text:
            self._said.append(text)
            yield TextDelta(text)

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


def _joined(parts: Sequence[Part]) -> list[Part]:
    """The parts with neighbouring plain texts as one."""
    found: list[Part] = []
    for part in parts:
        if found and is_plain(part) and is_plain(found[-1]):
            found[-1] = replace(found[-1], text=f"{found[-1].text}{part.text}")
        else:
            found.append(part)
    return found
