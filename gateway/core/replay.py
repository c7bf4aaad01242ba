"""A service call that is repeated from its beginning, and the plan for a turn after its process died. Law: pure; no caller sees
anything twice, nothing that may have been done is done twice, and a call that kills its process is repeated only a few times.

Source: docs/state-model.md, section 10, scenario 109d and retry table.
"""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from gateway.a2a import tool_calls
from gateway.a2a.model import Artifact, Part, TaskArtifactUpdateEvent, TaskStatusUpdateEvent
from gateway.core import ownership
from gateway.core.agents import Agent
from gateway.core.task_record import ArtifactBuilder, TurnOutput, answer_id, pauses, shown_calls
from gateway.ledger.calls import LatestCall
from gateway.ledger.events import Update
from gateway.ledger.states import UNDER_WAY, ServiceCallStatus
from gateway.ledger.threads import ThreadRecord
from gateway.ports.capabilities import CanFind, CanResume, Ongoing
from gateway.ports.conversation import HandleKind, StorageOwner, is_plain


class ShownOutput:
    """The output that a turn has shown at one moment. `answer` is the id of the artifact with the answer, or empty
    while there is no answer. `messages` is the number of messages that are no parts of tool calls."""

    __slots__ = ("answer", "calls", "messages", "parts")

    def __init__(self, output: TurnOutput, answer: str) -> None:
        self.answer = answer
        artifact = output.artifacts.get(self.answer)
        self.parts = artifact.whole().parts if artifact is not None else ()
        own = [message for message in output.messages if len(message.parts) == 1]
        of_calls = sum(tool_calls.URI in (message.parts[0].metadata or {}) for message in own)
        self.messages = len(output.messages) - of_calls
        self.calls = shown_calls(output)


class Replay:
    """Drops the updates of a repeated call that were shown before, and replaces the complete answer if it differs.

    `before` are the parts of the answer when the call began. `answer` is the id of the artifact with the answer; `calls`
    are the tool calls that were shown, in order.
    """

    __slots__ = ("_call_parts", "_messages", "_place", "_repeating", "_said", "_untold", "answer", "before", "calls")

    def __init__(self, before: ShownOutput, shown: ShownOutput) -> None:
        """`before` is the output of the turn when the call began, `shown` its present output."""
        self.answer = shown.answer
        self.before = before.parts
        earlier = {call.facts.id for call in before.calls}
        self.calls = [call for call in shown.calls if call.facts.id not in earlier]
        self._call_parts = {_CallPart(call.facts.id, ends) for call in self.calls for ends in {False, call.ended}}
        # The outcome of a call of an earlier service call may come with this one.
        begun = {call.facts.id for call in before.calls if not call.ended}
        ended = {call.facts.id for call in shown.calls if call.ended}
        self._call_parts |= {_CallPart(call, ends=True) for call in begun & ended}
        self._untold = set(self._call_parts)
        self._messages = shown.messages - before.messages
        self._said = self._begin(before.parts)
        self._place = _Place(shown.parts, before.parts)
        self._repeating = shown.parts != before.parts

    def filter(self, update: Update) -> Update | None:
        """The part of the update that is new."""
        if (part := _call_part(update)) is not None:
            self._untold.discard(part)
            return None if part in self._call_parts else update
        if isinstance(update, TaskArtifactUpdateEvent):
            return self._artifact(update)
        if update.status.message is not None and self._messages:
            self._messages -= 1
            return None
        if update.status.message is not None:
            return update
        # The progress of a tool call that was shown.
        fact = (update.metadata or {}).get(tool_calls.URI)
        shown = isinstance(fact, dict) and any(call.facts.id == fact.get("callId") for call in self.calls)
        return None if self._messages or self._untold or self._repeating or shown else update

    @property
    def unsaid(self) -> Sequence[Part]:
        """The parts of the answer that were shown, and that the call has not repeated yet."""
        return self._place.rest if self._repeating else ()

    def finish(self) -> Artifact | None:
        """The call is complete. The whole answer, if it is shorter than what was shown."""
        repeating = self._repeating
        self.stop()
        return self._said.whole() if repeating else None

    def stop(self) -> None:
        """Nothing more is repeated. No tool call begins or ends twice all the same."""
        self._repeating, self._messages = False, 0
        self._untold.clear()

    def _artifact(self, update: TaskArtifactUpdateEvent) -> TaskArtifactUpdateEvent | None:
        parts = update.artifact.parts
        if not self._repeating or update.artifact.artifact_id != self.answer:
            return update
        if not update.append:
            # The call corrects its answer: all of it is said again.
            self._said, self._place = self._begin(()), _Place(self._place.shown, ())
        self._said.extend(parts)
        for index, part in enumerate(parts):
            rest = self._place.compare(part, begins=index > 0)
            if rest is None:
                self.stop()
                return replace(update, artifact=self._said.whole(), append=False)
            if rest or self._place.is_last:
                self._repeating = False
                new = (*rest, *parts[index + 1 :])
                if new and not rest and is_plain(new[0]):
                    new = (Part(text=""), *new)
                return replace(update, artifact=replace(update.artifact, parts=new), append=True) if new else None
        return None

    def _begin(self, parts: Sequence[Part]) -> ArtifactBuilder:
        said = ArtifactBuilder(Artifact(artifact_id=self.answer, parts=()), append=False)
        said.extend(parts)
        return said


class _Place:
    """A place in the parts that were shown, up to which they were said again. `said` are the parts with which they begin;
    the last text of these may have grown since."""

    __slots__ = ("_index", "_offset", "_open", "shown")

    def __init__(self, shown: Sequence[Part], said: Sequence[Part]) -> None:
        self.shown = shown
        self._index = len(said) - 1
        self._open = bool(said) and is_plain(said[-1])
        self._offset = len(said[-1].text or "") if self._open else 0

    @property
    def is_last(self) -> bool:
        """Whether everything that was shown was said again."""
        if self._index < len(self.shown) - 1:
            return False
        return not self._open or self._offset == len(self.shown[self._index].text or "")

    @property
    def rest(self) -> Sequence[Part]:
        """What was shown behind this place, from the rest of an open text on."""
        left = (self.shown[self._index].text or "")[self._offset :] if self._open else ""
        return (*((Part(text=left),) if left.strip() else ()), *self.shown[self._index + 1 :])

    def compare(self, part: Part, *, begins: bool) -> tuple[Part, ...] | None:
        """What follows the parts that were shown, or None when the part differs from them. With `begins`, it continues no
        text before it."""
        plain, text = is_plain(part), part.text or ""
        if not (plain and self._open and not begins):
            if self._open and self._offset != len(self.shown[self._index].text or ""):
                return None
            self._index, self._offset, self._open = self._index + 1, 0, plain
        if self._index == len(self.shown):
            # An empty text ends the text before it, which the part does not continue.
            return (Part(text=""), part) if plain else (part,)
        known = self.shown[self._index]
        if not (plain and is_plain(known)):
            return () if known == part else None
        left = (known.text or "")[self._offset : self._offset + len(text)]
        if not text.startswith(left) or (len(left) < len(text) and self._index < len(self.shown) - 1):
            return None
        self._offset += len(left)
        return (Part(text=text[len(left) :]),) if len(left) < len(text) else ()


def shown_answer(output: TurnOutput, turn: str) -> ShownOutput:
    """The output of a turn between two of its service calls, in the process that takes the turn up."""
    answer = answer_id(turn)
    return ShownOutput(output, answer if answer in output.artifacts else "")


def shown_before(output: TurnOutput, updates: Sequence[Update], turn: str, round_: int) -> ShownOutput:
    """The output of a turn before its service call with the given number. `output` is the complete output of the turn,
    `updates` its log."""
    earlier = TurnOutput(output.message)
    for update in updates[: call_start(updates, round_)]:
        earlier.apply(update)
    answer = answer_id(turn)
    return ShownOutput(earlier, answer if answer in output.artifacts else "")


def call_start(updates: Sequence[Update], round_: int) -> int:
    """The index of the first update of the service call with this number, as far as the log tells.

    A round ends with its tool calls: everything after their last update, or after a wait for the caller, belongs to the next
    round.
    """
    return max((index + 1 for index, update in enumerate(updates) if _is_of_earlier(update, round_)), default=0)


def _is_of_earlier(update: Update, round_: int) -> bool:
    if pauses(update):
        return True
    if isinstance(update, TaskStatusUpdateEvent):
        parts = update.status.message.parts if update.status.message is not None else ()
    else:
        parts = update.artifact.parts if tool_calls.is_of_call(update.artifact) else ()
    metadata = (update.metadata, *(part.metadata for part in parts))
    facts = [(each or {}).get(tool_calls.URI) for each in metadata]
    return any(isinstance(fact, dict) and int(fact.get("round", round_)) < round_ for fact in facts)


class _CallPart(NamedTuple):
    """The part of a tool call with its arguments, or with its outcome (`ends`)."""

    call: str
    ends: bool


def _call_part(update: Update) -> _CallPart | None:
    """None for an update that is no such part. A part of a tool call is alone in its update, on either channel."""
    if isinstance(update, TaskArtifactUpdateEvent):
        parts = update.artifact.parts if tool_calls.is_of_call(update.artifact) else ()
    else:
        parts = update.status.message.parts if update.status.message is not None else ()
    match [(part.metadata or {}).get(tool_calls.URI) for part in parts]:
        case [{"callId": str(call), "phase": str(phase)}]:
            return _CallPart(call, phase in tool_calls.ENDS)
    return None


# --- after a process died ---------------------------------------------------------------------------------------------

RESTARTS = 2
"""How often a service call of one turn is made again because its process died."""


class ResumeCall(msgspec.Struct, frozen=True):
    """The gateway listens to the call under way again, by these names. Without names it has to be found first."""

    call: LatestCall
    names: Ongoing | None


class MakeCall(msgspec.Struct, frozen=True):
    """The call of this round is made, as attempt number `attempt`. `instead_of` is the call under way that no longer
    counts."""

    round: int
    attempt: int
    instead_of: str | None = None


def resume_plan(
    agent: Agent, thread: ThreadRecord, call: LatestCall | None, updates: Sequence[Update], *, open_tools: bool
) -> ResumeCall | MakeCall | None:
    """The service call in which a turn that had begun continues, or None when it cannot continue. `updates` is the log
    of the turn. `open_tools` says that some of its tool calls have no outcome."""
    if call is None or thread.lost:
        return None
    names = ownership.addressed(thread, Ongoing(call.pending, call.run)) if call.status in UNDER_WAY else None
    if names is not None and isinstance(agent.adapter, CanResume):
        return ResumeCall(call, names)
    if open_tools or call.restarts >= RESTARTS:
        return None
    if call.status in UNDER_WAY and ownership.is_static(thread) and isinstance(agent.adapter, CanFind):
        return ResumeCall(call, None)
    if call.status is ServiceCallStatus.COMPLETED:
        # The outcomes of its tools are stored, and the next call was not made. A call without tools was the last one of its
        # turn, and another process has found its end.
        return MakeCall(call.round + 1, 0) if call.asked else None
    if shows_output(updates, call.round):
        return None
    again = MakeCall(call.round, call.attempt + 1, call.id)
    if call.status in UNDER_WAY:
        # A chain goes on from the handle from which the call went out, unless its backend had named a response, which the next
        # message looks up; a static conversation has to be read first.
        owned = ownership.of_thread(thread, agent.adapter.ownership)
        unheard = owned.handle is HandleKind.ROTATING and call.pending is None
        return again if owned.may_repeat and (unheard or owned.owner is StorageOwner.GATEWAY) else None
    # The backend had refused it, and the process died in the wait before the next try.
    return MakeCall(again.round, again.attempt) if call.status is ServiceCallStatus.FAILED else None


def shows_output(updates: Sequence[Update], round_: int) -> bool:
    """Whether the log shows, or may show, any output of the service call with this number."""
    return any(
        isinstance(update, TaskArtifactUpdateEvent) or update.status.message is not None or update.metadata is not None
        for update in updates[call_start(updates, round_) :]
    )
