"""The output of a service call, as updates for callers and as items for the ledger. Law: pure; both hold the same words in the
same order."""

from dataclasses import dataclass, field

from msgspec.structs import asdict

from gateway.a2a import model
from gateway.a2a.model import Artifact, Json, Message, Part, TaskArtifactUpdateEvent
from gateway.core.turn.commands import Command, Publish
from gateway.foundation.clock import Clock, timestamp
from gateway.ledger.calls import NewItem
from gateway.ports.adapter import ArtifactReady, ItemReady
from gateway.ports.conversation import AssistantItem, ReasoningItem

REASONING_URI = "https://a2a-gateway.dev/extensions/reasoning/v1"
NOTE: dict[str, Json] = {"adk_thought": True}
"""Metadata of a part that does not belong to the answer. Source: google-adk."""


@dataclass(slots=True)
class OutputBuilder:
    """Builds the output of a service call. `out` holds the commands of the current event, `items` the output of the
    call so far. `answer` is the id of the artifact with the answer, or empty while there is no answer."""

    task_id: str
    context_id: str
    clock: Clock
    out: list[Command] = field(default_factory=list)
    items: list[NewItem] = field(default_factory=list)
    answer: str = ""
    _text: list[str] = field(default_factory=list)
    _parts: list[Part] = field(default_factory=list)
    _reasoning: list[str] = field(default_factory=list)

    def begin_event(self) -> list[Command]:
        """The list for the commands of the next event."""
        self.out = []
        return self.out

    def restart(self, answer: str) -> None:
        """The service call repeats its output, with its answer in this artifact."""
        self.answer = answer
        self.items, self._text, self._parts, self._reasoning = [], [], [], []

    def add_text(self, text: str) -> None:
        if not text:
            return
        if self._reasoning:
            self._flush_reasoning()
        self._text.append(text)
        self._publish_answer(Part(text=text))

    def add_part(self, part: Part) -> None:
        self._flush_reasoning()
        self._flush_text()
        self._parts.append(part)
        self._publish_answer(part)

    def add_artifact(self, event: ArtifactReady) -> None:
        self._flush_reasoning()
        self._flush_text()
        self._parts.extend(event.artifact.parts)
        update = TaskArtifactUpdateEvent(task_id=self.task_id, context_id=self.context_id, **asdict(event))
        self.out.append(Publish(update))

    def add_reasoning(self, text: str) -> None:
        self._flush_parts()
        self._reasoning.append(text)
        self.publish_status(metadata={REASONING_URI: {"delta": text}})

    def add_note(self, text: str, metadata: dict[str, Json] | None = None) -> None:
        """Text for followers of the task that does not belong to the answer."""
        self.publish_status(self.message((Part(text=text, metadata=NOTE),)), metadata)

    def add_item(self, event: ItemReady) -> None:
        self._flush_parts()
        if isinstance(event.item, ReasoningItem):
            text = event.item.text or "".join(self._reasoning)
            if text:
                self.add_note(text)
            self._reasoning.clear()
        self._flush_reasoning()
        self.items.append(NewItem(event.item, event.provider_id))

    def flush(self) -> None:
        """Turns pending text into items, before an item of another kind follows."""
        self._flush_reasoning()
        self._flush_parts()

    def uncounted(self, *, keeps_answer: bool = False) -> tuple[NewItem, ...]:
        """The items of a call that does not count. They are never sent to the model again; with `keeps_answer`, the
        pieces of the answer are."""
        return tuple(
            NewItem(new.item, new.provider_id, None, replayable=keeps_answer and isinstance(new.item, AssistantItem))
            for new in self.items
        )

    def publish_status(self, message: Message | None = None, metadata: dict[str, Json] | None = None) -> None:
        now = timestamp(self.clock.now())
        status = model.TaskStatus(state=model.TaskState.WORKING, message=message, timestamp=now)
        task, context = self.task_id, self.context_id
        update = model.TaskStatusUpdateEvent(task_id=task, context_id=context, status=status, metadata=metadata)
        self.out.append(Publish(update))

    def message(
        self, parts: tuple[Part, ...], metadata: dict[str, Json] | None = None, *, task: bool = True
    ) -> Message:
        return Message(
            message_id=self.clock.new_id(),
            context_id=self.context_id,
            task_id=self.task_id if task else None,
            role=model.Role.AGENT,
            parts=parts,
            metadata=metadata,
        )

    def _publish_answer(self, part: Part) -> None:
        append = bool(self.answer)
        if not append:
            self.answer = self.clock.new_id()
        artifact = Artifact(artifact_id=self.answer, parts=(part,))
        task, context = self.task_id, self.context_id
        update = TaskArtifactUpdateEvent(task_id=task, context_id=context, artifact=artifact, append=append)
        self.out.append(Publish(update))

    def _flush_reasoning(self) -> None:
        if self._reasoning:
            text = "".join(self._reasoning)
            self._reasoning.clear()
            if text:
                self.add_note(text)
            self.items.append(NewItem(ReasoningItem(text)))

    def _flush_text(self) -> None:
        if self._text:
            self._parts.append(Part(text="".join(self._text)))
            self._text.clear()

    def _flush_parts(self) -> None:
        self._flush_text()
        if self._parts:
            self.items.append(NewItem(AssistantItem(tuple(self._parts))))
            self._parts.clear()
