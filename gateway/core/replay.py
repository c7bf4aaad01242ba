"""A service call that is repeated from its beginning, and the plan for a turn after its process died. Law: pure; no caller sees
anything twice, nothing that may have been done is done twice, and a call that kills its process is repeated only a few times.

Source: docs/state-model.md, section 10, scenario 109d and retry table.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from gateway.a2a import tool_calls
from gateway.a2a.model import Artifact, Message, Part, TaskArtifactUpdateEvent, TaskStatusUpdateEvent
from gateway.core import ownership
from gateway.core.agents import Agent
from gateway.core.task_record import ArtifactBuilder, TurnOutput
from gateway.ledger.calls import LatestCall
from gateway.ledger.events import Update
from gateway.ledger.states import UNDER_WAY, ServiceCallStatus
from gateway.ledger.threads import ThreadRecord
from gateway.ports.capabilities import CanResume
from gateway.ports.conversation import StorageOwner


class ShownOutput:
    """The output that a turn has shown at one moment. `answer` is the id of the artifact with the answer, or empty
    while there is no answer."""

    __slots__ = ("answer", "calls", "messages", "parts")

    def __init__(self, output: TurnOutput, answer: str) -> None:
        self.answer = answer
        artifact = output.artifacts.get(self.answer)
        self.parts = artifact.whole().parts if artifact is not None else ()
        self.messages = len(output.messages)
        self.calls = _requested(output.messages)


class Replay:
    """Drops the updates of a repeated call that were shown before, and replaces the complete answer if it differs.

    `before` is the output of the turn when the call began, `shown` its present output. `answer` is the id of the
    artifact with the answer; `calls` are the public ids of the tool calls that were shown, in order.
    """

    __slots__ = ("_at", "_before", "_messages", "_offset", "_repeating", "_said", "_shown", "answer", "calls")

    def __init__(self, before: ShownOutput, shown: ShownOutput) -> None:
        self.answer = shown.answer
        self.calls = shown.calls[len(before.calls) :]
        self._before = before.parts
        self._shown = _since(before.parts, shown.parts)
        self._messages = shown.messages - before.messages
        self._said: list[Part] = []
        self._at, self._offset = 0, 0
        self._repeating = bool(self._shown)

    def filter(self, update: Update) -> Update | None:
        """The part of the update that is new."""
        if isinstance(update, TaskArtifactUpdateEvent):
            return self._artifact(update)
        if update.status.message is not None and self._messages:
            self._messages -= 1
            return None
        if update.status.message is not None:
            return update
        # The progress of a tool call that was shown; its outcome comes in a message.
        fact = (update.metadata or {}).get(tool_calls.URI)
        shown = isinstance(fact, dict) and fact.get("callId") in self.calls
        return None if self._messages or self._repeating or shown else update

    def finish(self) -> Artifact | None:
        """The call is complete. The whole answer, if it is shorter than what was shown."""
        repeating, self._repeating = self._repeating, False
        return self._whole() if repeating else None

    def _artifact(self, update: TaskArtifactUpdateEvent) -> TaskArtifactUpdateEvent | None:
        if not self._repeating or update.artifact.artifact_id != self.answer:
            return update
        for index, part in enumerate(update.artifact.parts):
            self._said.append(part)
            rest = self._compare(part)
            if rest is None:
                self._said += update.artifact.parts[index + 1 :]
                self._repeating, self._messages = False, 0
                return replace(update, artifact=self._whole(), append=False)
            if self._at == len(self._shown):
                self._repeating = False
                parts = (*rest, *update.artifact.parts[index + 1 :])
                return replace(update, artifact=replace(update.artifact, parts=parts), append=True) if parts else None
        return None

    def _compare(self, part: Part) -> tuple[Part, ...] | None:
        """The part of the answer that follows the parts that were shown, or None when the answer differs."""
        known = self._shown[self._at]
        if not (_is_plain(part) and _is_plain(known)):
            if known != part or self._offset:
                return None
            self._at += 1
            return ()
        shown, text = known.text or "", part.text or ""
        left = len(shown) - self._offset
        if not shown.startswith(text[:left], self._offset):
            return None
        if len(text) < left:
            self._offset += len(text)
            return ()
        self._at, self._offset = self._at + 1, 0
        if len(text) == left:
            return ()
        return (Part(text=text[left:]),) if self._at == len(self._shown) else None

    def _whole(self) -> Artifact:
        artifact = ArtifactBuilder(Artifact(artifact_id=self.answer, parts=()), append=False)
        artifact.extend((*self._before, *self._said))
        return artifact.whole()


def shown_before(output: TurnOutput, updates: Sequence[Update], round_: int) -> ShownOutput:
    """The output of a turn before its service call with the given number. `output` is the complete output of the turn,
    `updates` its log."""
    earlier = TurnOutput(output.message)
    for update in updates[: call_start(updates, round_)]:
        earlier.apply(update)
    # A turn that waited for its caller continues in another artifact.
    return ShownOutput(earlier, next(reversed(output.artifacts), ""))


def call_start(updates: Sequence[Update], round_: int) -> int:
    """The index of the first update of the service call with this number, as far as the log tells.

    A round ends with its tool calls: everything after their last update belongs to the next round.
    """
    return max((index + 1 for index, update in enumerate(updates) if _is_of_earlier(update, round_)), default=0)


def _is_of_earlier(update: Update, round_: int) -> bool:
    if not isinstance(update, TaskStatusUpdateEvent):
        return False
    parts = update.status.message.parts if update.status.message is not None else ()
    metadata = (update.metadata, *(part.metadata for part in parts))
    facts = [(each or {}).get(tool_calls.URI) for each in metadata]
    return any(isinstance(fact, dict) and int(fact.get("round", round_)) < round_ for fact in facts)


def _requested(messages: Iterable[Message]) -> tuple[str, ...]:
    facts = [(part.metadata or {}).get(tool_calls.URI) for message in messages for part in message.parts]
    return tuple(str(fact["callId"]) for fact in facts if isinstance(fact, dict) and fact.get("phase") == "requested")


def _since(before: Sequence[Part], shown: Sequence[Part]) -> list[Part]:
    """`shown` without `before`, with which it begins. Where the last text of `before` grew, its growth comes first."""
    if not before:
        return list(shown)
    last, grown = before[-1], shown[len(before) - 1]
    rest = list(shown[len(before) :])
    if last == grown:
        return rest
    return [Part(text=(grown.text or "")[len(last.text or "") :]), *rest]


def _is_plain(part: Part) -> bool:
    return part.text is not None and part == Part(text=part.text)


# --- after a process died ---------------------------------------------------------------------------------------------

RESTARTS = 2
"""How often a service call of one turn is made again because its process died."""


@dataclass(frozen=True, slots=True)
class ResumeCall:
    """The gateway listens to the call under way again, by this handle."""

    call: LatestCall
    pending: str


@dataclass(frozen=True, slots=True)
class MakeCall:
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
    if call.status in UNDER_WAY and call.pending is not None and isinstance(agent.adapter, CanResume):
        return ResumeCall(call, call.pending)
    if open_tools or call.restarts >= RESTARTS:
        return None
    if call.status is ServiceCallStatus.COMPLETED:
        # The outcomes of its tools are stored, and the next call was not made. A call without tools was the last one of its
        # turn, and another process has found its end.
        return MakeCall(call.round + 1, 0) if call.asked else None
    if shows_output(updates, call.round):
        return None
    again = MakeCall(call.round, call.attempt + 1, call.id)
    if call.status in UNDER_WAY:
        owned = ownership.of_thread(thread, agent.adapter.ownership)
        return again if owned.owner is StorageOwner.GATEWAY and owned.may_repeat else None
    # The backend had refused it, and the process died in the wait before the next try.
    return MakeCall(again.round, again.attempt) if call.status is ServiceCallStatus.FAILED else None


def shows_output(updates: Sequence[Update], round_: int) -> bool:
    """Whether the log shows, or may show, any output of the service call with this number."""
    return any(
        isinstance(update, TaskArtifactUpdateEvent) or update.status.message is not None or update.metadata is not None
        for update in updates[call_start(updates, round_) :]
    )
