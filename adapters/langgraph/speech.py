"""The messages of a run -> text events. Law: one message is told at a time, whatever branches of the graph speak at once; all
else waits for its end, so that every text is in one piece.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from gateway.ports.adapter import AdapterEvent, MessageReady, TextDelta


@dataclass(slots=True)
class _Spoken:
    """`place` is the task of the graph that speaks. `text` is the whole text, where it differs from the pieces."""

    key: str
    place: str
    pieces: list[str] = field(default_factory=list)
    text: str | None = None
    ended: bool = False

    @property
    def whole(self) -> str:
        return "".join(self.pieces) if self.text is None else self.text


class Speech:
    def __init__(self) -> None:
        self._front: _Spoken | None = None
        """The message that is being told. Without one, nothing waits."""
        self._waiting: list[_Spoken | Sequence[AdapterEvent]] = []
        self._known: dict[str, _Spoken] = {}

    def __contains__(self, key: str) -> bool:
        return key in self._known

    def add(self, key: str, place: str, piece: str) -> Sequence[AdapterEvent]:
        """A piece of a message."""
        front = self._front
        if front is not None and front.key == key:
            front.pieces.append(piece)
            return (TextDelta(piece),)
        known = self._known.get(key)
        if known is not None:
            known.pieces.append(piece)
            return self._tell(known) if known.ended else ()
        before: Sequence[AdapterEvent] = ()
        if front is not None and front.place == place:
            # A task calls one model after the other.
            before = self.end(front.key)
        message = self._known[key] = _Spoken(key, place, [piece])
        if self._front is not None:
            self._waiting.append(message)
            return before
        self._front = message
        return (*before, TextDelta(piece))

    def end(self, key: str, text: str | None = None) -> Sequence[AdapterEvent]:
        """The end of a message, with its whole text where that is known. It may be told again, with another text."""
        message = self._known.get(key)
        if message is None or (message.ended and text in (None, message.whole)):
            return ()
        again = message.ended
        message.text, message.ended = text, True
        if message is self._front:
            self._front = None
            return (MessageReady(message.whole, key), *self._advance())
        return self._tell(message) if again else ()

    def hold(self, events: Sequence[AdapterEvent]) -> Sequence[AdapterEvent]:
        """Those of the other events that can be told now."""
        if self._front is None or not events:
            return events
        self._waiting.append(events)
        return ()

    def void(self) -> Sequence[AdapterEvent]:
        """The messages that have not ended will not be."""
        return [
            event for message in list(self._known.values()) if not message.ended for event in self.end(message.key, "")
        ]

    def close(self) -> Sequence[AdapterEvent]:
        """The run has ended, and with it every message."""
        return [event for message in list(self._known.values()) if not message.ended for event in self.end(message.key)]

    def _tell(self, ended: _Spoken) -> Sequence[AdapterEvent]:
        """The new text of a message that has ended. One that is not told yet is told with it."""
        waits = any(waiting is ended for waiting in self._waiting)
        return () if waits else self.hold((MessageReady(ended.whole, ended.key),))

    def _advance(self) -> Sequence[AdapterEvent]:
        events: list[AdapterEvent] = []
        while self._waiting and self._front is None:
            following = self._waiting.pop(0)
            if not isinstance(following, _Spoken):
                events += following
                continue
            events += map(TextDelta, following.pieces)
            if following.ended:
                events.append(MessageReady(following.whole, following.key))
            else:
                self._front = following
        return events
