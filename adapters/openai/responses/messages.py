"""The messages of one response -> adapter events. Law: one message is told at a time; all output that comes meanwhile waits
for its end, so that every text is in one piece, and is told in the order of the output. The whole item decides the text of a
message.
"""

from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from itertools import count

import msgspec

from adapters.openai.responses import wire
from gateway.ports import adapter as port
from gateway.ports.conversation import OpaqueItem


class _Message(msgspec.Struct):
    """`index` is that of its item. `announced`: the item came before its text. `pieces` are the deltas so far. `text` is
    that of the whole item, if it has any. `told` says that the end of the message is an event already."""

    key: str
    index: int | None = None
    announced: bool = False
    commentary: bool = False
    pieces: list[str] = []
    text: str | None = None
    ended: bool = False
    told: bool = False


class ResponseMessages:
    def __init__(self) -> None:
        self._front: _Message | None = None
        """The message that is being told. Without one, nothing waits."""
        self._waiting: list[tuple[int, int, _Message | Sequence[port.AdapterEvent]]] = []
        """A heap: each with its place in the output, and with its number."""
        self._number = count()
        self._place = 0
        self._open: dict[str, _Message] = {}
        """The messages that have not ended, by the id of their item."""
        self._ended: dict[str, _Message] = {}

    def __contains__(self, key: str) -> bool:
        """Whether the message of this item has begun."""
        return key in self._open or key in self._ended

    @property
    def begun(self) -> bool:
        """Whether any text came."""
        return bool(self._ended) or any(message.pieces for message in self._open.values())

    def announce(self, item: wire.ResponseItem, index: int | None) -> None:
        if item.key not in self:
            self._open[item.key] = _Message(item.key, index, announced=True, commentary=item.is_commentary)

    def add_delta(self, event: wire.Event) -> Sequence[port.AdapterEvent]:
        delta, front = event.delta, self._front
        if not isinstance(delta, str) or not delta:
            return ()
        if front is None or event.item_id != front.key:
            message = self._message_of(event)
            if message is None or message.commentary:
                return ()
            front = self._front = front or self._before(message) or message
            if message is not front:
                if not message.pieces:
                    self._wait(message, message.index)
                message.pieces.append(delta)
                return ()
        front.pieces.append(delta)
        return (port.TextDelta(delta),)

    def add_text(self, event: wire.Event) -> Sequence[port.AdapterEvent]:
        """The whole text of a content part. It is new only where no delta of the message came."""
        message, text = self._open.get(event.item_id or ""), event.text or event.refusal
        if message is None or message.pieces:
            return ()
        event.delta = text
        return self.add_delta(event)

    def end(self, item: wire.ResponseItem, raw: msgspec.Raw, index: int | None) -> Sequence[port.AdapterEvent]:
        """The whole item of a message."""
        message, text = self._ending(item, index), item.text
        message.commentary = item.is_commentary and not message.pieces
        message.text, message.ended = None if message.commentary else text or None, True
        if item.key:
            self._ended[item.key] = self._ended[message.key] = message
        if message.commentary:
            name, payload = wire.replay(raw)
            if now := self.hold((port.Progress(text), port.ItemReady(OpaqueItem(item.type, payload), name)), index):
                return now
        elif message is not self._front and not message.pieces:
            self._wait(message, message.index)
        return self._advance() if self._front is None or self._front.ended else ()

    def repeat(self, key: str, text: str) -> Sequence[port.AdapterEvent]:
        """The whole item of a message that has ended comes again."""
        message = self._ended.get(key)
        if message is None or message.commentary or not text or text == message.text:
            return ()
        message.text = text
        return self.hold((port.MessageReady(text, message.key),)) if message.told else ()

    def hold(self, events: Sequence[port.AdapterEvent], index: int | None = None) -> Sequence[port.AdapterEvent]:
        """The events, of the item with this index, that can be told now; others are told when the message before them has
        ended."""
        if self._front is None:
            return events
        if events:
            self._wait(events, index)
        return ()

    def rest(self) -> Sequence[port.AdapterEvent]:
        """What waits in a response that was cut off."""
        return self.close() if self._waiting else ()

    def close(self) -> Sequence[port.AdapterEvent]:
        """The response has ended, and with it all its messages."""
        for message in self._open.values():
            message.ended = True
        return self._advance()

    def _advance(self) -> list[port.AdapterEvent]:
        """Tells what the message that was told has kept waiting, up to a message that has not ended."""
        events: list[port.AdapterEvent] = []
        while True:
            front = self._front
            if front is not None:
                if not front.ended:
                    return events
                events += _end(front)
                self._front = None
            if not self._waiting:
                return events
            following = self._waiting[0][-1]
            if isinstance(following, _Message):
                before = self._before(following)
                self._front = before or following
                if before is not None:
                    continue
                if following.pieces:
                    events.append(port.TextDelta("".join(following.pieces)))
            else:
                events += following
            heappop(self._waiting)

    def _wait(self, what: _Message | Sequence[port.AdapterEvent], index: int | None) -> None:
        """An output whose index is not known follows the output that came before it."""
        self._place = self._place if index is None else index
        heappush(self._waiting, (self._place, next(self._number), what))

    def _before(self, message: _Message) -> _Message | None:
        """The first message that was announced for a place before this message, and has not begun."""
        idle = (m for m in self._open.values() if m.announced and not (m.commentary or m.pieces or m.ended))
        known = {m.index: m for m in idle if m.index is not None}
        first = min(known, default=None)
        return None if first is None or message.index is None or first >= message.index else known[first]

    def _message_of(self, event: wire.Event) -> _Message | None:
        """The message of a delta; None for a message that has ended.

        Some servers give every event another id: then the index tells, or that a message was announced and is open.
        """
        key, index = event.item_id or "", event.index
        message = self._open.get(key)
        if message is None and key not in self._ended:
            message = self._at(index) or self._latest(index, announced=bool(key))
            if message is None:
                message = self._open[key] = _Message(key, index)
        return message

    def _at(self, index: int | None) -> _Message | None:
        return next((m for m in self._open.values() if index is not None and m.index == index), None)

    def _latest(self, index: int | None, *, announced: bool) -> _Message | None:
        """The last open message whose index is not known to be another."""
        found = (m for m in reversed(self._open.values()) if m.announced or not announced)
        return next((m for m in found if None in (m.index, index)), None)

    def _ending(self, item: wire.ResponseItem, index: int | None) -> _Message:
        """The message that ends with this item. It may have begun under another id; then its deltas begin the text."""
        message = self._open.pop(item.key, None)
        if message is None:
            fits = (m for m in self._open.values() if m.pieces and item.text.startswith("".join(m.pieces)))
            message = self._at(index) or next(fits, None)
            if message is None:
                return _Message(item.key, index)
            del self._open[message.key]
        return message


def _end(message: _Message) -> Iterator[port.AdapterEvent]:
    """The end of a message whose deltas were told."""
    message.told = True
    shown = "".join(message.pieces)
    whole = message.text or shown
    if whole.startswith(shown) and whole != shown:
        yield port.TextDelta(whole[len(shown) :])
    if whole:
        yield port.MessageReady(whole, message.key)
