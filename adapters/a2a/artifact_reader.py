"""The artifacts of a task, as events of the port. Law: pure; callers get each artifact as its agent has it, whether it was told
in pieces, as a whole, in a stored task, or in an earlier turn.

The first artifact that begins with plain text and has no name is the answer; any other goes on as it is, under its own id. One
that an earlier turn has told goes on under the id that it has there.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from adapters.a2a import artifacts
from adapters.a2a.artifacts import Content, behind, joined, known_of
from adapters.a2a.state import Left
from gateway.a2a.model import Artifact, Part
from gateway.ports.adapter import AdapterEvent, AnswerReplaced, ArtifactReady, MessageReady, PartReady, TextDelta
from gateway.ports.conversation import gap, is_plain

_BLANK_LINE = "\n\n"


@dataclass(slots=True)
class ArtifactReader:
    """`public` is the id under which callers get the answer of this turn. `earlier` is what was left of the artifacts when the
    call began, by their ids. `shown` are the ids of those beside the answer that callers have as this turn has told them
    before. `langgraph` as in Endpoint. `answer` is the agent's id of the answer, if there is one."""

    public: str
    earlier: dict[str, Left]
    shown: frozenset[str] = frozenset()
    langgraph: bool = False
    answer: str | None = None
    _base: tuple[Part, ...] | None = ()
    """The parts of the answer from before this call; None where they are not known."""
    _said: Content = field(default_factory=Content)
    """The parts of the answer that this call has brought."""
    _open: list[str] = field(default_factory=list)
    """The text of the message that a TextDelta continues."""
    _last: str = ""
    """The text of the answer before that message, or the end of it; empty behind any other part."""
    _held: dict[str, Content] = field(default_factory=dict)
    """The parts of all artifacts but the answer, as far as they are known."""
    _others: dict[str, None] = field(default_factory=dict)
    """The artifacts beside the answer that this call has told."""

    @property
    def silent(self) -> bool:
        """Whether nothing was told yet."""
        return not (self._said.parts or self.answer or self._others)

    @property
    def text(self) -> str:
        """The text of the answer so far, or where there is none, that of an earlier turn's which goes on."""
        if self.answer is None and not self._said.parts:
            for name in self._others:
                if self._public(name) != name and name in self._held:
                    return self._held[name].text
        return self._said.text

    @property
    def goes_on(self) -> bool:
        """Whether a text continues a message of the answer."""
        return bool(self._open)

    def piece(self, artifact: Artifact, *, append: bool, last: bool) -> Iterator[AdapterEvent]:
        """What an update says."""
        name, parts = artifact.artifact_id, artifact.parts
        if self.answer is None and name not in self._others and self._is_answer(artifact):
            self.answer = name
            if name in self.earlier:
                self._base = self._held.pop(name).parts if name in self._held else None
                self._last = _last_text(self._base or ())
        if name != self.answer:
            yield from self._other(artifact, append=append, last=last)
        elif append:
            yield from self.continue_answer(parts)
        elif self.langgraph:
            yield from self.settle(parts)
        else:
            yield from self._become(parts)

    def stored(self, artifact: Artifact, *, last: bool) -> Iterator[AdapterEvent]:
        """What a whole task says. The pieces of a text that came one by one are parts of a stored artifact."""
        parts = joined(artifact.parts)
        if not self._is_unchanged(artifact.artifact_id, parts):
            yield from self.piece(replace(artifact, parts=parts), append=False, last=last)

    def left(self) -> tuple[Left, ...]:
        """What callers and the agent have of every artifact now."""
        found = dict(self.earlier)
        for name in self._others:
            shown = self._public(name)
            found[name] = artifacts.left(name, self._held.get(name), shown if shown != name else "")
        if self.answer is not None:
            content = None if self._base is None else Content((*self._base, *self._said.parts))
            found[self.answer] = artifacts.left(self.answer, content, self.public)
        return tuple(found.values())

    # --- the answer

    def say(self, text: str) -> None:
        """A text of the answer was told that continues its message."""
        self._said.grow(text)
        self._open.append(text)

    def said(self, text: str) -> Iterator[AdapterEvent]:
        if text:
            self.say(text)
            yield TextDelta(text)

    def end_message(self) -> Iterator[AdapterEvent]:
        if self._open:
            yield MessageReady("".join(self._open))
            self.interrupt()

    def interrupt(self) -> None:
        """Something was told that ends the message before it: another part, a tool call."""
        if self._open:
            self._last = "".join(self._open)
            self._open.clear()

    def _is_answer(self, artifact: Artifact) -> bool:
        earlier = self.earlier.get(artifact.artifact_id)
        if artifact.artifact_id in self.shown:
            return False
        if earlier is not None and not self.langgraph:
            # It is the answer of this turn that an earlier call has begun, or something else.
            return bool(earlier.shown) and earlier.shown == self.public
        if not artifact.parts or not is_plain(artifact.parts[0]):
            return False
        if self.langgraph:
            return True
        return artifact.name is None and not (artifact.description or artifact.metadata or artifact.extensions)

    def continue_answer(self, parts: Sequence[Part]) -> Iterator[AdapterEvent]:
        """The first text continues what was said; every other part of an update is a part of its own."""
        for index, part in enumerate(parts):
            if not is_plain(part):
                self.interrupt()
                self._last = ""
                self._said.add((part,))
                yield PartReady(part)
                continue
            text, following = part.text or "", parts[index + 1] if index + 1 < len(parts) else None
            if (index and is_plain(parts[index - 1])) or self._is_between(text, following):
                yield from self.end_message()
            told = text if self._open else self._begun(text, following)
            self._said.grow(text)
            if told:
                self._open.append(told)
                yield TextDelta(told)

    def _is_between(self, text: str, following: Part | None) -> bool:
        """Whether the text is what a gateway puts between the text before and the one that follows in the update."""
        if following is None or not is_plain(following):
            return False
        last = self._open[-1] if self._open else self._last
        return bool(last) and text == gap(last, following.text or "")

    def _begun(self, text: str, following: Part | None) -> str:
        """The text with which a message begins behind another, without what the gateway itself puts between the two."""
        if not self._last:
            return text
        if self._is_between(text, following):
            return ""
        rest = text.removeprefix(_BLANK_LINE)
        return rest if gap(self._last, rest) == text[: len(text) - len(rest)] else text

    def _become(self, parts: Sequence[Part]) -> Iterator[AdapterEvent]:
        """The answer as a whole, of which some may have been said."""
        content, base = joined(parts), self._base
        if base is None and self.answer is not None:
            self._base = base = known_of(self.earlier[self.answer], content)
        since = None if base is None else behind(base, content)
        if since is None:
            yield from self._replace(parts, of_turn=True)
            return
        new = since if base else parts
        rest = behind(self._said.parts, since)
        if rest is None:
            yield from self._replace(new, of_turn=False)
        else:
            yield from self.continue_answer(rest if self._said.parts else new)

    def _replace(self, parts: Sequence[Part], *, of_turn: bool) -> Iterator[AdapterEvent]:
        self._base = () if of_turn else self._base
        self._said, self._last = Content(parts), ""
        last = _last_text(parts)
        self._open = [last] if last else []
        yield AnswerReplaced(tuple(parts), of_turn)

    def settle(self, parts: Sequence[Part]) -> Iterator[AdapterEvent]:
        """The answer of LangGraph as a whole, of which some may have been said: its last message, or all of them."""
        whole, said = Content(parts), self._said
        files = [part for part in whole.parts if not is_plain(part)]
        told = [part for part in said.parts if not is_plain(part)]
        if not said.parts:
            yield from self.continue_answer(parts)
            return
        if whole.text.startswith(said.text):
            yield from self.said(whole.text[len(said.text) :])
        elif whole.text.strip() != said.text.strip():
            before = said.text.removesuffix("".join(self._open))
            yield MessageReady(whole.text)
            self._said = Content((Part(text=before + whole.text), *told))
            self._open, self._last = [], whole.text
        yield from self.continue_answer(files[len(told) :])

    # --- the others

    def _other(self, artifact: Artifact, *, append: bool, last: bool) -> Iterator[AdapterEvent]:
        name, parts = artifact.artifact_id, artifact.parts
        told, held = name in self._others, self._held.get(name)
        continues = append and (held is not None or told or name in self.earlier)
        if told and not append and held is not None and held.parts == joined(parts):
            return
        self._others[name] = None
        if not continues:
            self._held[name] = Content(parts)
        elif held is not None:
            held.add(parts)
        shown = replace(artifact, artifact_id=self._public(name))
        yield ArtifactReady(shown, append=continues, last_chunk=last, within_text=self.goes_on)

    def _public(self, name: str) -> str:
        """The id under which callers get an artifact beside the answer."""
        earlier = self.earlier.get(name)
        return earlier.shown if earlier is not None and earlier.shown not in {"", self.public} else name

    def _is_unchanged(self, name: str, parts: tuple[Part, ...]) -> bool:
        """Whether a stored artifact is still as it was when the call began, and callers have it like that."""
        earlier = self.earlier.get(name)
        if earlier is None or name == self.answer or name in self._others:
            return False
        if self.langgraph:
            return True
        if name not in self._held and (base := known_of(earlier, parts)) is not None:
            self._held[name] = Content(base)
        return name in self._held and self._held[name].parts == parts and self._public(name) not in self.shown


def _last_text(parts: Sequence[Part]) -> str:
    """The text with which the parts end; empty where they end with something else."""
    return parts[-1].text or "" if parts and is_plain(parts[-1]) else ""
