"""The public record of a task, folded from its updates. Law: the record of a running task, the stored record and the
record that is rebuilt from the event log are made by the same fold, so that all three agree."""

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from hashlib import sha256
from typing import Literal, NamedTuple

import msgspec

from gateway.a2a import model, tool_calls
from gateway.a2a.model import Artifact, Message, Task
from gateway.a2a.tool_calls import ENDS, URI, CallFacts, Channel, Exposure, Rendering
from gateway.core import usage
from gateway.core.failures import BACKEND_CANCELLED, FINISH, GAP, REFUSED
from gateway.ledger.events import Update, logged
from gateway.ledger.tasks import Refused, StoredArtifact, TurnRecord

_encoder = msgspec.json.Encoder()
_ANSWERS = b"the answer of the turn "


@lru_cache(maxsize=1024)
def answer_id(turn: str) -> str:
    """The id of the artifact with the answer of this turn. It follows from the turn, so that the answer is one artifact also
    where the turn continues after a wait or in another process. Callers cannot read the turn from it."""
    return sha256(_ANSWERS + turn.encode()).hexdigest()[:32]


class ArtifactBuilder:
    """An artifact that grows. A plain text at the beginning of an update continues a plain text at the end of the artifact;
    every other part of an update is a part of its own. Source: docs/adr/0022-messages-of-an-answer.md.
    """

    __slots__ = ("append", "finished", "head", "parts", "texts")

    def __init__(self, head: Artifact, append: bool) -> None:
        self.head = head
        self.append = append
        self.finished = False
        self.parts: list[model.Part] = []
        self.texts: list[str] = []

    def extend(self, parts: Iterable[model.Part]) -> None:
        """The parts of one update."""
        begins = False
        for part in parts:
            text = part.text
            # `is_plain`, without a call for every delta.
            if text is not None and part.metadata is None and part.filename is None and part.media_type is None:
                if begins:
                    self._end_text()
                self.texts.append(text)
            else:
                self._end_text()
                self.parts.append(part)
            begins = True

    def _end_text(self) -> None:
        if self.texts:
            self.parts.append(model.Part(text="".join(self.texts)))
            self.texts.clear()

    def whole(self) -> Artifact:
        text = (model.Part(text="".join(self.texts)),) if self.texts else ()
        return msgspec.structs.replace(self.head, parts=(*self.parts, *text))


class TurnOutput:
    """The public output of one turn: the message that opened it, the later messages of both sides, the artifacts, and
    the tokens of its service calls that have ended."""

    __slots__ = ("artifacts", "message", "messages", "refused", "usage")

    def __init__(self, message: Message) -> None:
        self.message = message
        self.messages: list[Message] = []
        self.artifacts: dict[str, ArtifactBuilder] = {}
        self.usage = usage.NONE
        self.refused: Refused | None = None

    @classmethod
    def stored(cls, record: TurnRecord) -> "TurnOutput":
        output = cls(record.message)
        if record.messages:
            output.messages.extend(record.messages)
        output.usage = record.usage or usage.total(map(usage.read, record.reports))
        output.refused = record.refused
        for entry in record.artifacts or ():
            builder = ArtifactBuilder(entry.artifact, entry.append)
            builder.extend(entry.artifact.parts)
            output.artifacts[entry.artifact.artifact_id] = builder
        return output

    def apply(self, update: Update) -> None:
        if isinstance(update, model.TaskArtifactUpdateEvent):
            artifact = update.artifact
            builder = self.artifacts.get(artifact.artifact_id)
            if builder is None or not update.append:
                builder = self.artifacts[artifact.artifact_id] = ArtifactBuilder(artifact, update.append)
            builder.extend(artifact.parts)
            builder.finished = update.last_chunk
        elif update.status.message is not None:
            self.messages.append(update.status.message)

    def grow(self, artifact_id: str, text: str) -> None:
        """Applies an update that adds this text to an artifact which ends with a text."""
        self.artifacts[artifact_id].texts.append(text)

    def artifacts_json(self) -> bytes:
        return _encoder.encode([StoredArtifact(g.whole(), g.append) for g in self.artifacts.values()])

    def messages_json(self, last: Message | None) -> bytes:
        """`last`: the message of the status that will end the turn."""
        return _encoder.encode(self.messages if last is None else [*self.messages, last])


def replay_events(
    output: TurnOutput, turn: TurnRecord, events: Iterable[tuple[int, bytes]]
) -> Iterator[tuple[int, Update]]:
    """Applies the log of an open turn to its output, event by event, with the caller's later messages in their places.

    Raises: CorruptRecord.
    """
    answers = list(turn.answers)
    for number, payload in events:
        while answers and answers[0][0] <= number:
            output.messages.append(answers.pop(0)[1])
        update = logged(payload)
        output.apply(update)
        yield number, update
    for _, message in answers:
        output.messages.append(message)


class ShownCall(NamedTuple):
    """A tool call as callers see it. `part` is the part with its arguments, `channel` the one on which that part went out, or
    None where only a question showed the call. `active`: the part names the extension. `ended`: its outcome was shown.
    """

    facts: CallFacts
    part: model.Part
    channel: Channel | None
    active: bool = False
    ended: bool = False

    def rendering(self, other: Rendering) -> Rendering:
        """The rendering of this call's end, on the channel of its beginning. Where `other` shows no calls, its masks are not
        known, and the end is shown without details."""
        if self.channel is None:
            return other
        exposure: Exposure = "names" if other.exposure == "none" else other.exposure
        return msgspec.structs.replace(other, channel=self.channel, exposure=exposure, active=self.active)


def shown_calls(output: TurnOutput) -> tuple[ShownCall, ...]:
    """The tool calls that the output of a turn shows, in order, on either channel."""
    shown: dict[str, ShownCall] = {}
    for message in output.messages:
        if message.role is not model.Role.AGENT:
            continue
        channel: Channel | None = None if URI in (message.metadata or {}) else "status"
        for part in message.parts:
            _collect_call(shown, part, channel, message.extensions)
    for builder in output.artifacts.values():
        for part in builder.parts if tool_calls.is_of_call(builder.head) else ():
            _collect_call(shown, part, "artifact", builder.head.extensions)
    return tuple(shown.values())


def _collect_call(
    shown: dict[str, ShownCall], part: model.Part, channel: Channel | None, extensions: Sequence[str] | None
) -> None:
    match (part.metadata or {}).get(URI):
        case {"phase": "requested", "callId": str(call), "name": str(name), "round": int(number), **facts}:
            if call in shown and channel is None:
                return
            index, origin, server = facts.get("index"), facts.get("origin"), facts.get("server")
            began = str(facts.get("startedAt", ""))
            at = index if isinstance(index, int) else 0
            where = server if isinstance(server, str) else None
            told = CallFacts(call, name, number, at, str(origin), where, began)
            shown[call] = ShownCall(told, part, channel, URI in (extensions or ()))
        case {"phase": str(phase), "callId": str(call)} if phase in ENDS and call in shown:
            shown[call] = shown[call]._replace(ended=True)


def calls_without_end(output: TurnOutput) -> tuple[ShownCall, ...]:
    """The tool calls that the output of a turn shows to begin and not to end."""
    return tuple(call for call in shown_calls(output) if not call.ended)


def pauses(update: Update) -> bool:
    """Whether the turn waits after this event, instead of having ended with it."""
    if not isinstance(update, model.TaskStatusUpdateEvent) or update.status.state not in model.INTERRUPTED:
        return False
    message = update.status.message
    return message is not None and URI in (message.metadata or {})


def only_works(update: Update) -> bool:
    """Whether the event says WORKING and nothing else, as the first event of a task that was submitted."""
    if not isinstance(update, model.TaskStatusUpdateEvent) or update.metadata is not None:
        return False
    return update.status.state is model.TaskState.WORKING and update.status.message is None


def _merged(outputs: Sequence[TurnOutput]) -> tuple[Artifact, ...]:
    if len(outputs) == 1:
        return tuple([builder.whole() for builder in outputs[0].artifacts.values()])
    merged: dict[str, ArtifactBuilder] = {}
    for output in outputs:
        for key, builder in output.artifacts.items():
            before = merged.get(key)
            if before is None or not builder.append:
                before = merged[key] = ArtifactBuilder(builder.head, append=False)
            before.extend(builder.whole().parts)
    return tuple(builder.whole() for builder in merged.values())


def usage_metadata(outputs: Sequence[TurnOutput]) -> dict[str, model.Json]:
    """The metadata that shows the tokens of the last turn, and of its task so far; a new dictionary."""
    if not outputs:
        return {}
    last = outputs[-1].usage
    return usage.in_metadata(last, last if len(outputs) == 1 else usage.total(output.usage for output in outputs))


def assemble(
    task_id: str,
    context_id: str,
    status: model.TaskStatus,
    outputs: Sequence[TurnOutput],
    *,
    history_length: int | None = None,
    artifacts: bool = True,
) -> Task:
    """The public task. A status message is not repeated in the history.

    `history_length` as in section 3.2.4 of the specification: None is all, 0 is none, n the n latest.
    """
    current = status.message.message_id if status.message else None
    history: list[Message] = []
    if history_length != 0:
        for output in outputs:
            history.append(output.message)
            if output.messages:
                history += [m for m in output.messages if m.message_id != current]
        if history_length is not None:
            history = history[-history_length:]
    return Task(
        id=task_id,
        context_id=context_id,
        status=status,
        artifacts=(_merged(outputs) or None) if artifacts else None,
        history=tuple(history) or None,
        metadata=_metadata(status, outputs) or None,
    )


def _metadata(status: model.TaskStatus, outputs: Sequence[TurnOutput]) -> dict[str, model.Json]:
    found = usage_metadata(outputs)
    for output in outputs:
        if output.refused is not None:
            # The backend has refused this turn later, with another message.
            found[REFUSED] = output.refused
            break
    # How the last turn ended, after which a task never continues: what the event of its end says in the same place.
    told = status.message.metadata if status.message is not None else None
    if told:
        found.update({name: told[name] for name in (REFUSED, FINISH, GAP, BACKEND_CANCELLED) if name in told})
    return found


# --- what Google ADK needs: answers that are repeated as a whole, which replaces what was streamed of them, and marked notes

ADK = "https://google.github.io/adk-docs/a2a/a2a-extension/"
"""Google ADK takes pieces for a preview: its session remembers only an artifact that comes whole with `lastChunk`. A note in a
task that has ended is its answer, unless the part is marked as a thought."""

ForAdk = Literal["auto", "always", "never"]


def suits_adk(setting: ForAdk, named: frozenset[str]) -> bool:
    """Whether the client that asks for these extensions gets what the setting is about."""
    return setting == "always" or (setting == "auto" and ADK in named)


def whole_artifacts(output: TurnOutput, task_id: str, context_id: str) -> Iterator[model.TaskArtifactUpdateEvent]:
    """The artifacts that this turn began and no update has closed. Continuations of an earlier turn's are left out."""
    for builder in output.artifacts.values():
        if not (builder.finished or builder.append):
            artifact = builder.whole()
            yield model.TaskArtifactUpdateEvent(
                task_id=task_id, context_id=context_id, artifact=artifact, last_chunk=True
            )
