"""The texts of an answer -> adapter events. Law: one message is told at a time; what comes beside it waits for its end, and the
whole message decides its text. A message of a known id is an update if it begins with what was told under the id, and a message
of its own otherwise: nothing is told twice or lost.

Source: Microsoft 365 Agents SDK, streaming of messages; BotFramework-WebChat, docs/LIVESTREAMING.md.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from adapters.copilot.activities import StreamInfo
from gateway.ports.adapter import AdapterEvent, MessageReady, TextDelta


@dataclass(slots=True)
class _Stream:
    """A message that comes in pieces. `shown` is what was told of its `text`. `grows` says whether a piece is what is new
    (True) or all so far (False); None: not known yet."""

    id: str
    grows: bool | None
    text: str = ""
    shown: str = ""
    latest: int = -1

    def add(self, text: str, info: StreamInfo) -> None:
        if info.delta:
            self.grows = True
        elif self.grows is None and self.text:
            self.grows = not text.startswith(self.text)
        self.text = self.text + text if self.grows else text

    def news(self) -> list[AdapterEvent]:
        """The text that was not told. A text that is another than what was told waits for the end of the message."""
        if self.text == self.shown or not self.text.startswith(self.shown):
            return []
        delta, self.shown = self.text[len(self.shown) :], self.text
        return [TextDelta(delta)]


class Texts:
    def __init__(self, *, cumulative: bool) -> None:
        """`cumulative`: each piece of a message is its whole text so far, unless it says otherwise. Else the second piece
        tells which it is."""
        self._grows = False if cumulative else None
        self._open: dict[str, _Stream] = {}
        self._ended: set[str] = set()
        self._told: dict[str, dict[str, str]] = {}
        """By the id of messages: the names of those that were told of it, with their texts."""
        self._front: _Stream | None = None
        """The message that is being told. Without one, nothing waits."""
        self._waiting: list[AdapterEvent] = []

    @property
    def open(self) -> bool:
        """Whether a message has begun and not ended."""
        return bool(self._open)

    def announce(self, info: StreamInfo) -> None:
        """A message will come in pieces."""
        if info.id not in self._ended:
            self._open.setdefault(info.id, _Stream(info.id, self._grows))

    def add(self, info: StreamInfo, text: str) -> Sequence[AdapterEvent]:
        """A piece of a message. One that is older than the latest, or comes behind the end, says nothing new."""
        self.announce(info)
        stream = self._open.get(info.id)
        if stream is None or (info.sequence is not None and info.sequence <= stream.latest):
            return ()
        stream.latest = stream.latest if info.sequence is None else info.sequence
        stream.add(text, info)
        if self._front is None and text:
            self._front = stream
        return stream.news() if stream is self._front else ()

    def end(self, name: str, text: str) -> Sequence[AdapterEvent]:
        """The whole message of the stream `name`; an empty text takes it back."""
        if name in self._ended:
            return self.say(text, name)
        self._ended.add(name)
        stream = self._open.pop(name, None)
        if stream is None or stream is not self._front:
            return self.say(text, name)
        self._front = None
        stream.text = text
        told = [*stream.news(), self._message(text, name), *self._waiting]
        self._waiting = []
        return told

    def say(self, text: str, key: str) -> Sequence[AdapterEvent]:
        """A message that comes whole. Without streams that have begun, no announced one is waited for any more."""
        self._open = {name: stream for name, stream in self._open.items() if stream.text}
        if not text:
            return ()
        for name, earlier in self._told.get(key, {}).items():
            if text.startswith(earlier):
                self._told[key][name] = text
                return () if text == earlier else self.hold((MessageReady(text, name),))
        return self.hold((TextDelta(text), self._message(text, key)))

    def _message(self, text: str, key: str) -> MessageReady:
        """The end of another message of this id."""
        if not key:
            return MessageReady(text)
        told = self._told.setdefault(key, {})
        # No id has a line break.
        name = f"{key}\n{len(told)}" if told else key
        told[name] = text
        return MessageReady(text, name)

    def hold(self, events: Iterable[AdapterEvent]) -> Sequence[AdapterEvent]:
        """The events that can be told now; others are told when the message before them has ended."""
        if self._front is None:
            return tuple(events)
        self._waiting += events
        return ()

    def close(self) -> Sequence[AdapterEvent]:
        """The answer is over, and with it every message that has not ended."""
        told: list[AdapterEvent] = []
        begun = sorted(self._open.values(), key=lambda stream: stream is not self._front)
        for stream in begun:
            told += self.end(stream.id, stream.text)
        return told
