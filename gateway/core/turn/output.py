"""The output of a service call, as updates for callers and as items for the ledger. Law: pure; both hold the same words in the
same order, and a text that is an item of its own is a part of its own."""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from gateway.a2a import model
from gateway.a2a.model import Artifact, Json, Message, Part, TaskArtifactUpdateEvent
from gateway.core.task_record import answer_id
from gateway.core.turn.commands import Command, Publish
from gateway.foundation.clock import Clock, timestamp
from gateway.ledger.calls import NewItem
from gateway.ports import adapter
from gateway.ports.conversation import AssistantItem, ReasoningItem, gap, is_plain

REASONING_URI = "https://a2a-gateway.dev/extensions/reasoning/v1"
_THOUGHT: dict[str, Json] = {"adk_thought": True}
"""The mark of a part that does not belong to the answer. Source: google-adk, convert_a2a_part_to_genai_part."""


class _Place(NamedTuple):
    """Where the text of a message is: its index among the parts that were shown, and that of its item. `said` is the item;
    its last part is the text."""

    part: int
    item: int
    said: AssistantItem


class OutputBuilder(msgspec.Struct):
    """Builds the output of a service call. `out` holds the commands of the current event, `items` the output of the
    call so far. `answer` is the id of the artifact with the answer, or empty while there is no answer. `marks_thoughts` says
    that notes carry the mark of Google ADK."""

    task_id: str
    context_id: str
    turn: str
    clock: Clock
    marks_thoughts: bool = False
    out: list[Command] = []
    items: list[NewItem] = []
    answer: str = ""
    _text: list[str] = []
    _parts: list[Part] = []
    _reasoning: list[str] = []
    _told: list[Part] = []
    """The parts of the answer that were shown, in all calls of the turn, without the text that still grows."""
    _before: int = 0
    """How many of `_told` earlier calls have told."""
    _beside: dict[int, tuple[str, Part]] = {}
    """The parts of the call that belong to other artifacts, by identity, each with the id of its artifact."""
    _continuing: set[int] = set()
    """The texts among them that continue the part before."""
    _messages: dict[str, _Place] = {}

    def begin_event(self) -> list[Command]:
        """The list for the commands of the next event."""
        self.out = []
        return self.out

    def receive(self, event: adapter.AdapterEvent) -> bool:
        """Whether the event is output. The most frequent one, TextDelta, goes to `add_text` directly."""
        match event:
            case adapter.MessageReady(text=whole, key=key):
                self.end_message(whole, key)
            case adapter.ReasoningDelta(text=text):
                self.add_reasoning(text)
            case adapter.PartReady(part=part):
                self.add_part(part)
            case adapter.AnswerReplaced(parts=parts, of_turn=of_turn):
                self.replace_answer(parts, of_turn=of_turn)
            case adapter.ArtifactReady():
                self.add_artifact(event)
            case adapter.Progress(text=text):
                self.add_note(text)
            case adapter.ItemReady():
                self.add_item(event)
            case _:
                return False
        return True

    def begin_call(self) -> None:
        """The next service call of the turn begins."""
        self.items, self._messages, self._beside, self._continuing = [], {}, {}, set()
        self._before = len(self._told)

    def restart(self, answer: str, told: Sequence[Part]) -> None:
        """A service call begins, or repeats its output, with its answer in this artifact. `told`: the parts that the artifact
        had when the call began."""
        self.answer, self._told = answer, list(told)
        self.begin_call()
        self._text, self._parts, self._reasoning = [], [], []

    def add_text(self, text: str) -> None:
        if not text:
            return
        if self._reasoning:
            self._flush_reasoning()
        if self._text:
            self._publish_answer((Part(text=text),), append=True)
        else:
            self._begin(Part(text=text))
        self._text.append(text)

    def grow(self, text: str) -> bool:
        """Takes a text that only continues the one which grows, for the caller to show; False for any other."""
        if not (self._text and text) or self._reasoning:
            return False
        self._text.append(text)
        return True

    def end_message(self, text: str, key: str) -> None:
        """A message is complete, and has this text; the next text belongs to another."""
        place = self._messages.get(key)
        if place is not None:
            self._replace(key, place, text)
            return
        self._complete_text(text)
        ended = bool(self._text)
        self._flush_parts()
        if key and ended and isinstance(said := self.items[-1].item, AssistantItem):
            self._messages[key] = _Place(len(self._told) - 1, len(self.items) - 1, said)

    def add_part(self, part: Part) -> None:
        self._end_text()
        self._begin(part)
        self._parts.append(part)
        self._told.append(part)

    def replace_answer(self, parts: Sequence[Part], *, of_turn: bool) -> None:
        """What was said of the answer, in this call or in the whole turn, becomes these parts; a text at their end grows on."""
        self._end_text()
        self._withdraw("")
        self._messages.clear()
        self._before = 0 if of_turn else self._before
        del self._told[self._before :]
        for part in parts:
            self._flush_text()
            if not is_plain(part):
                self._parts.append(part)
                self._told.append(part)
            elif part.text:
                self._keep_apart(part.text)
                self._text.append(part.text)
        self.answer = self.answer or answer_id(self.turn)
        self._publish_whole()

    def add_artifact(self, event: adapter.ArtifactReady) -> None:
        if not event.within_text:
            self._end_text()
        # Copies, because an adapter may give one value twice.
        name, parts = event.artifact.artifact_id, list(map(replace, event.artifact.parts))
        if not event.append:
            self._withdraw(name)
        elif parts and is_plain(parts[0]) and self._ends_with_text_of(name):
            self._continuing.add(id(parts[0]))
        self._parts.extend(parts)
        self._beside.update((id(part), (name, part)) for part in parts)
        self._publish(event.artifact, append=event.append, last_chunk=event.last_chunk)

    def add_reasoning(self, text: str) -> None:
        """Reasoning in the middle of a message does not divide it."""
        if not self._text:
            self._flush_parts()
        self._reasoning.append(text)
        self.publish_status(metadata={REASONING_URI: {"delta": text}})

    def add_note(self, text: str, metadata: dict[str, Json] | None = None) -> None:
        """Text for followers of the task that does not belong to the answer. Its metadata is that of its message as well, which
        the task keeps."""
        self.publish_status(self.message((self.note(text),), metadata), metadata)

    def note(self, text: str) -> Part:
        return Part(text=text, metadata=_THOUGHT if self.marks_thoughts else None)

    def add_item(self, event: adapter.ItemReady) -> None:
        """An item that may go back to the backend keeps its place among the texts."""
        item = event.item
        if not isinstance(item, ReasoningItem):
            self.flush()
        else:
            if item.opaque is not None:
                self._flush_parts()
            text = item.text or "".join(self._reasoning)
            if text:
                self.add_note(text)
            self._reasoning.clear()
        self.items.append(NewItem(item, event.provider_id))

    def add_ending(self, parts: tuple[Part, ...]) -> None:
        """The words of an ending are the last of the answer's, unless it ends with them already. Callers see them in the
        status."""
        last = self.items[-1].item if self.items else None
        if not (isinstance(last, AssistantItem) and _ends_with(last.parts, parts)):
            self.items.append(NewItem(AssistantItem(parts)))

    def flush(self) -> None:
        """Turns pending text into items, before an item of another kind follows."""
        self._flush_parts()
        self._flush_reasoning()

    def recall(self, parts: Sequence[Part]) -> None:
        """Takes parts into the items that callers have seen already. The first continues the text that grows."""
        for index, part in enumerate(parts):
            if index == 0 and is_plain(part):
                self._text.append(part.text or "")
            else:
                self._flush_text()
                self._parts.append(part)

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

    def _begin(self, part: Part) -> None:
        """Shows the beginning of a part. A text behind a text is kept apart also where a reader joins the two."""
        between = None if part.text is None else self._keep_apart(part.text)
        # What comes first in an update continues the last text of the artifact, so it may be empty.
        self._begin_answer((part,) if between is None else (Part(text=between), part))

    def _keep_apart(self, text: str) -> str | None:
        """What comes between the text before and this one, and now belongs to the text before; None where there is none."""
        last = self._told[-1] if self._told else None
        if last is None or not is_plain(last):
            return None
        between = gap(last.text or "", text)
        self._told[-1] = Part(text=f"{last.text}{between}")
        return between

    def _begin_answer(self, parts: tuple[Part, ...]) -> None:
        append = bool(self.answer)
        if not append:
            self.answer = answer_id(self.turn)
        self._publish_answer(parts, append=append)

    def _publish_answer(self, parts: tuple[Part, ...], *, append: bool) -> None:
        self._publish(Artifact(artifact_id=self.answer, parts=parts), append=append)

    def _publish(self, artifact: Artifact, *, append: bool, last_chunk: bool = False) -> None:
        update = TaskArtifactUpdateEvent(
            task_id=self.task_id,
            context_id=self.context_id,
            artifact=artifact,
            append=append,
            last_chunk=last_chunk,
        )
        self.out.append(Publish(update))

    def _publish_whole(self) -> None:
        growing = (Part(text="".join(self._text)),) if self._text else ()
        self._publish_answer((*self._told, *growing), append=False)

    def _owner(self, part: Part) -> str:
        """The id of the artifact beside the answer that the part belongs to; empty for a part of the answer."""
        name, _ = self._beside.get(id(part), ("", part))
        return name

    def _ends_with_text_of(self, artifact: str) -> bool:
        return bool(self._parts) and self._owner(self._parts[-1]) == artifact and is_plain(self._parts[-1])

    def _withdraw(self, owner: str) -> None:
        """Takes the parts of one artifact out of the items of the call: they are void."""
        if owner and all(name != owner for name, _ in self._beside.values()):
            return
        self._parts = [part for part in self._parts if self._owner(part) != owner]
        places, self._messages = {place.item: (key, place) for key, place in self._messages.items()}, {}
        items, self.items = self.items, []
        for index, new in enumerate(items):
            said = new.item
            if isinstance(said, AssistantItem):
                said = AssistantItem(tuple(part for part in said.parts if self._owner(part) != owner))
                if not said.parts:
                    continue
                if index in places:
                    key, place = places[index]
                    self._messages[key] = place._replace(item=len(self.items), said=said)
            self.items.append(replace(new, item=said))

    def _complete_text(self, text: str) -> None:
        """The text of the message that grows is this one."""
        shown = "".join(self._text)
        if text.startswith(shown):
            self.add_text(text[len(shown) :])
            return
        self._text = [text] if text else []
        self._publish_whole()

    def _replace(self, key: str, place: _Place, text: str) -> None:
        """The text of an earlier message of the call is another."""
        before, told = place.said.parts[-1].text or "", self._told[place.part].text or ""
        if text == before:
            return
        said = AssistantItem((*place.said.parts[:-1], Part(text=text)))
        self._messages[key] = place._replace(said=said)
        self._told[place.part] = Part(text=text + told[len(before) :])
        self.items[place.item] = replace(self.items[place.item], item=said)
        self._publish_whole()

    def _end_text(self) -> None:
        """Another part of the same answer follows."""
        if self._reasoning:
            self.flush()
        self._flush_text()

    def _flush_reasoning(self) -> None:
        if self._reasoning:
            text = "".join(self._reasoning)
            self._reasoning.clear()
            if text:
                self.add_note(text)
            self.items.append(NewItem(ReasoningItem(text)))

    def _flush_text(self) -> None:
        if self._text:
            part = Part(text="".join(self._text))
            self._parts.append(part)
            self._told.append(part)
            self._text.clear()

    def _flush_parts(self) -> None:
        self._flush_text()
        if self._parts:
            self.items.append(NewItem(AssistantItem(self._whole_parts())))
            self._parts.clear()

    def _whole_parts(self) -> tuple[Part, ...]:
        """The pending parts, with the pieces of a text of an artifact as one."""
        found: list[list[Part]] = []
        for part in self._parts:
            if id(part) in self._continuing:
                found[-1].append(part)
            else:
                found.append([part])
        return tuple(map(self._whole_part, found))

    def _whole_part(self, pieces: Sequence[Part]) -> Part:
        if len(pieces) == 1:
            return pieces[0]
        whole = Part(text="".join(piece.text or "" for piece in pieces))
        self._beside[id(whole)] = self._owner(pieces[0]), whole
        return whole


def _ends_with(said: tuple[Part, ...], parts: tuple[Part, ...]) -> bool:
    """Whether what was said ends with these parts; a text may also be the last words of a longer one."""
    if said[-len(parts) :] == parts:
        return True
    text, words = said[-1].text, parts[0].text
    if len(parts) > 1 or not (text and words and text.endswith(words)):
        return False
    return text.removesuffix(words)[-1:].isspace()
