"""A service call that is told once more, from its beginning. Law: pure; who follows the task sees nothing twice: what was
shown is passed over, and where the call now says something else its answer is replaced as a whole.

How a turn that a dead process left can go on, if it can. Law: pure; what may have been done is not done again, what was
shown is not said again, and what makes its process die is taken up a few times and no more.

Source: state-model, section 10 and scenario 109d; reliability, K3 to K12.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from gateway.a2a import tool_calls
from gateway.a2a.model import Artifact, Message, Part, TaskArtifactUpdateEvent, TaskStatusUpdateEvent
from gateway.core import ownership
from gateway.core.agents import Agent
from gateway.core.task_record import TurnOutput
from gateway.ledger.calls import LatestCall
from gateway.ledger.events import Update
from gateway.ledger.states import UNDER_WAY, ServiceCallStatus
from gateway.ledger.threads import ThreadRecord
from gateway.ports.capabilities import Resuming
from gateway.ports.conversation import StorageOwner


class Replay:
    """`before` is what the turn had shown when the call began, `shown` what it has shown by now.

    `answer` is the id of the artifact with the answer; `calls` are the public ids of the tool calls that were shown, in order.
    """

    __slots__ = ("_at", "_before", "_behind", "_messages", "_offset", "_said", "_shown", "answer", "calls")

    def __init__(self, before: "ShownOutput", shown: "ShownOutput") -> None:
        self.answer = shown.answer
        self.calls = shown.calls[len(before.calls) :]
        self._before = before.parts
        self._shown = _since(before.parts, shown.parts)
        self._messages = shown.messages - before.messages
        self._said: list[Part] = []
        self._at, self._offset = 0, 0
        self._behind = bool(self._shown)

    def pass_on(self, update: Update) -> Update | None:
        """What is to be shown of it."""
        if isinstance(update, TaskArtifactUpdateEvent):
            return self._artifact(update)
        if update.status.message is not None and self._messages:
            self._messages -= 1
            return None
        if update.status.message is None and (self._messages or self._behind or self._is_of_shown(update)):
            return None
        return update

    def _is_of_shown(self, update: TaskStatusUpdateEvent) -> bool:
        """How a call went on that was shown: what matters of it, its end, comes in a message."""
        fact = (update.metadata or {}).get(tool_calls.URI)
        return isinstance(fact, dict) and fact.get("callId") in self.calls

    def end(self) -> Artifact | None:
        """The call is complete. The answer, if it is not what was shown."""
        behind, self._behind = self._behind, False
        return self._whole() if behind else None

    def _artifact(self, update: TaskArtifactUpdateEvent) -> TaskArtifactUpdateEvent | None:
        if not self._behind or update.artifact.artifact_id != self.answer:
            return update
        for index, part in enumerate(update.artifact.parts):
            self._said.append(part)
            rest = self._compare(part)
            if rest is None:
                self._said += update.artifact.parts[index + 1 :]
                self._behind, self._messages = False, 0
                return replace(update, artifact=self._whole(), append=False)
            if self._at == len(self._shown):
                self._behind = False
                parts = (*rest, *update.artifact.parts[index + 1 :])
                return replace(update, artifact=replace(update.artifact, parts=parts), append=True) if parts else None
        return None

    def _compare(self, part: Part) -> tuple[Part, ...] | None:
        """What of it goes on behind what was shown; None: it is another answer."""
        known = self._shown[self._at]
        if not (_is_plain(part) and _is_plain(known)):
            if known != part or self._offset:
                return None
            self._at += 1
            return ()
        text, told = known.text or "", part.text or ""
        left = len(text) - self._offset
        if not text.startswith(told[:left], self._offset):
            return None
        if len(told) < left:
            self._offset += len(told)
            return ()
        self._at, self._offset = self._at + 1, 0
        if len(told) == left:
            return ()
        return (Part(text=told[left:]),) if self._at == len(self._shown) else None

    def _whole(self) -> Artifact:
        return Artifact(artifact_id=self.answer, parts=tuple(_merged((*self._before, *self._said))))


class ShownOutput:
    """What a turn has shown at one moment."""

    __slots__ = ("answer", "calls", "messages", "parts")

    def __init__(self, output: TurnOutput, answer: str) -> None:
        """`answer`: the id of the artifact with the answer; empty while there is none."""
        self.answer = answer
        growing = output.artifacts.get(self.answer)
        self.parts = growing.whole().parts if growing is not None else ()
        self.messages = len(output.messages)
        self.calls = _requested(output.messages)


def shown_before(output: TurnOutput, updates: Sequence[Update], round_: int) -> ShownOutput:
    """What the log of a turn shows of what came before the service call with this number. `output`: what it shows in all."""
    earlier = TurnOutput(output.message)
    for update in updates[: call_start(updates, round_)]:
        earlier.apply(update)
    # A turn that waited for its caller goes on in an artifact of its own.
    return ShownOutput(earlier, next(reversed(output.artifacts), ""))


def call_start(updates: Sequence[Update], round_: int) -> int:
    """Where the service call with this number begins in a turn's log, if that can be told.

    A round ends with its tool calls: behind the last that is told of them everything is of the next one.
    """
    return max((index + 1 for index, update in enumerate(updates) if _is_of_earlier(update, round_)), default=0)


def _is_of_earlier(update: Update, round_: int) -> bool:
    if not isinstance(update, TaskStatusUpdateEvent):
        return False
    parts = update.status.message.parts if update.status.message is not None else ()
    told = [update.metadata or {}, *(part.metadata or {} for part in parts)]
    facts = [metadata[tool_calls.URI] for metadata in told if tool_calls.URI in metadata]
    return any(isinstance(fact, dict) and int(fact.get("round", round_)) < round_ for fact in facts)


def _requested(messages: Iterable[Message]) -> tuple[str, ...]:
    found: list[str] = []
    for message in messages:
        for part in message.parts:
            facts = (part.metadata or {}).get(tool_calls.URI)
            if isinstance(facts, dict) and facts.get("phase") == "requested":
                found.append(str(facts["callId"]))
    return tuple(found)


def _since(before: Sequence[Part], shown: Sequence[Part]) -> list[Part]:
    """`shown` without what it begins with. Where the last text of `before` grew, its growth comes first."""
    if not before:
        return list(shown)
    last, grown = before[-1], shown[len(before) - 1]
    rest = list(shown[len(before) :])
    if last == grown:
        return rest
    return [Part(text=(grown.text or "")[len(last.text or "") :]), *rest]


def _merged(parts: Iterable[Part]) -> list[Part]:
    """Neighbouring plain texts as one part."""
    merged: list[Part] = []
    texts: list[str] = []
    for part in parts:
        if _is_plain(part):
            texts.append(part.text or "")
            continue
        if texts:
            merged.append(Part(text="".join(texts)))
            texts.clear()
        merged.append(part)
    return [*merged, Part(text="".join(texts))] if texts else merged


def _is_plain(part: Part) -> bool:
    return part.text is not None and part == Part(text=part.text)


RESTARTS = 2
"""So often is a service call of one turn made again because its process died."""


@dataclass(frozen=True, slots=True)
class ResumeCall:
    """The call under way is listened to again, by this handle."""

    call: LatestCall
    pending: str


@dataclass(frozen=True, slots=True)
class MakeCall:
    """The call of this round is made, as this attempt. `instead_of`: one under way, which does not count then."""

    round: int
    attempt: int
    instead_of: str | None = None


def resume_plan(
    agent: Agent, thread: ThreadRecord, call: LatestCall | None, updates: Sequence[Update], *, open_tools: bool
) -> ResumeCall | MakeCall | None:
    """Of a turn that had begun. `updates` are what the log shows of it; `open_tools`: calls of tools have no outcome."""
    if call is None or thread.lost:
        return None
    if call.status in UNDER_WAY and call.pending is not None and isinstance(agent.adapter, Resuming):
        return ResumeCall(call, call.pending)
    if open_tools or call.restarts >= RESTARTS:
        return None
    if call.status is ServiceCallStatus.COMPLETED:
        # What came of its tools is stored, and the next call has not been made. Without any it was the last one of its
        # turn, and somebody else has found its end.
        return MakeCall(call.round + 1, 0) if call.asked else None
    if shows_output(updates, call.round):
        return None
    again = MakeCall(call.round, call.attempt + 1, call.id)
    if call.status in UNDER_WAY:
        owned = ownership.of_thread(thread, agent.adapter.ownership)
        return again if owned.owner is StorageOwner.GATEWAY and owned.may_repeat else None
    # It was known to be refused, and its process died while it waited to ask again.
    return MakeCall(again.round, again.attempt) if call.status is ServiceCallStatus.FAILED else None


def shows_output(updates: Sequence[Update], round_: int) -> bool:
    """Does the log show anything of the service call with this number? Where it cannot be told, it does."""
    return any(
        isinstance(update, TaskArtifactUpdateEvent) or update.status.message is not None or update.metadata is not None
        for update in updates[call_start(updates, round_) :]
    )
