"""What is said in a service call, as its callers are told of it and as the ledger keeps it. Law: pure; both hold the same
words in the same order.
"""

from dataclasses import dataclass, field

from gateway.a2a.model import (
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
from gateway.core.turn.commands import Command, Publish
from gateway.foundation.clock import Clock, timestamp
from gateway.ledger.calls import NewItem
from gateway.ports.adapter import ArtifactReady, ItemReady
from gateway.ports.conversation import AssistantItem, ReasoningItem

REASONING_URI = "https://a2a-gateway.dev/extensions/reasoning/v1"
ASIDE: dict[str, Json] = {"adk_thought": True}
"""Metadata of a part that is no part of the answer. Source: google-adk."""


@dataclass(slots=True)
class OutputBuilder:
    """`out` are the commands that the event at hand leads to, `items` what the call has said so far. `answer` is the id of
    the artifact with the answer; empty while there is none.
    """

    task_id: str
    context_id: str
    clock: Clock
    out: list[Command] = field(default_factory=list)
    items: list[NewItem] = field(default_factory=list)
    answer: str = ""
    _text: list[str] = field(default_factory=list)
    _said: list[Part] = field(default_factory=list)
    _thought: list[str] = field(default_factory=list)

    def begin(self) -> list[Command]:
        """Another event: its commands come into this list."""
        self.out = []
        return self.out

    def begin_again(self, answer: str) -> None:
        """The service call is told once more, with its answer in this artifact."""
        self.answer = answer
        self.items, self._text, self._said, self._thought = [], [], [], []

    # --- what is said

    def text(self, text: str) -> None:
        if not text:
            return
        if self._thought:
            self._flush_thought()
        self._text.append(text)
        self._publish_answer(Part(text=text))

    def part(self, part: Part) -> None:
        self._flush_thought()
        self._flush_text()
        self._said.append(part)
        self._publish_answer(part)

    def artifact(self, event: ArtifactReady) -> None:
        self._flush_thought()
        self._flush_text()
        self._said.extend(event.artifact.parts)
        self.out.append(
            Publish(
                TaskArtifactUpdateEvent(
                    task_id=self.task_id,
                    context_id=self.context_id,
                    artifact=event.artifact,
                    append=event.append,
                    last_chunk=event.last_chunk,
                )
            )
        )

    def thought(self, text: str) -> None:
        self._flush_said()
        self._thought.append(text)
        self.status(metadata={REASONING_URI: {"delta": text}})

    def aside(self, text: str, metadata: dict[str, Json] | None = None) -> None:
        """Words for who follows the task, which are no part of the answer."""
        self.status(self.message((Part(text=text, metadata=ASIDE),)), metadata)

    def item(self, event: ItemReady) -> None:
        self._flush_said()
        if isinstance(event.item, ReasoningItem):
            self._show_thought(event.item.text or "".join(self._thought))
            self._thought.clear()
        self._flush_thought()
        self.items.append(NewItem(event.item, event.provider_id))

    def flush(self) -> None:
        """What was said comes before what follows."""
        self._flush_thought()
        self._flush_said()

    def unreplayable(self) -> tuple[NewItem, ...]:
        """The items of a call that does not count."""
        return tuple(NewItem(new.item, new.provider_id, None, replayable=False) for new in self.items)

    # --- what it is made of

    def status(self, message: Message | None = None, metadata: dict[str, Json] | None = None) -> None:
        now = timestamp(self.clock.now())
        self.out.append(
            Publish(
                TaskStatusUpdateEvent(
                    task_id=self.task_id,
                    context_id=self.context_id,
                    status=TaskStatus(state=TaskState.WORKING, message=message, timestamp=now),
                    metadata=metadata,
                )
            )
        )

    def message(
        self, parts: tuple[Part, ...], metadata: dict[str, Json] | None = None, *, task: bool = True
    ) -> Message:
        return Message(
            message_id=self.clock.new_id(),
            context_id=self.context_id,
            task_id=self.task_id if task else None,
            role=Role.AGENT,
            parts=parts,
            metadata=metadata,
        )

    def _publish_answer(self, part: Part) -> None:
        append = bool(self.answer)
        if not append:
            self.answer = self.clock.new_id()
        self.out.append(
            Publish(
                TaskArtifactUpdateEvent(
                    task_id=self.task_id,
                    context_id=self.context_id,
                    artifact=Artifact(artifact_id=self.answer, parts=(part,)),
                    append=append,
                )
            )
        )

    def _show_thought(self, text: str) -> None:
        if text:
            self.aside(text)

    def _flush_thought(self) -> None:
        if self._thought:
            text = "".join(self._thought)
            self._thought.clear()
            self._show_thought(text)
            self.items.append(NewItem(ReasoningItem(text)))

    def _flush_text(self) -> None:
        if self._text:
            self._said.append(Part(text="".join(self._text)))
            self._text.clear()

    def _flush_said(self) -> None:
        self._flush_text()
        if self._said:
            self.items.append(NewItem(AssistantItem(tuple(self._said))))
            self._said.clear()
