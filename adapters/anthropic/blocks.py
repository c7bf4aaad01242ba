"""The content blocks of one message in the making. Law: an index tells the block of an event, since a block may begin before
the one before it has ended; a whole block is what the service would have sent without a stream.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec

from adapters.anthropic import wire
from adapters.anthropic.content import Block, json_text
from gateway.a2a.model import Json

_STREAMED = {"text_delta": "text", "thinking_delta": "thinking"}

_decode_object = msgspec.json.Decoder(dict[str, Json]).decode


@dataclass(slots=True)
class GrowingBlock:
    """`start` is the block at its beginning. `call_id` is the id of the events of a call, empty while nothing is told of it.
    `repeated` says that the block has nothing new."""

    start: Block
    pieces: list[str] = field(default_factory=list)
    arguments: list[str] = field(default_factory=list)
    citations: list[Json] = field(default_factory=list)
    more: Block = field(default_factory=dict)
    call_id: str = ""
    ended: bool = False
    repeated: bool = False

    @property
    def kind(self) -> str:
        return str(self.start.get("type"))

    @property
    def text(self) -> str:
        """All text, or all thinking."""
        begun = self.start.get(self._grows)
        return (begun if isinstance(begun, str) else "") + "".join(self.pieces)

    @property
    def _grows(self) -> str:
        """The field to which the pieces belong."""
        return "thinking" if self.kind == "thinking" else "text"

    @property
    def arguments_text(self) -> str:
        """The arguments of a call. Some services give them at its beginning."""
        streamed = "".join(self.arguments)
        return streamed or json_text(self.start.get("input") or {})

    def add(self, delta: wire.Delta) -> None:
        if delta.citation is not None:
            self.citations.append(delta.citation)
        for name in ("signature", "content", "encrypted_content"):
            if (value := getattr(delta, name)) is not None:
                self.more[name] = value

    @property
    def whole(self) -> Block:
        block = {**self.start, **self.more}
        if self.pieces:
            block[self._grows] = self.text
        if self.call_id:
            block["id"] = self.call_id
        if self.citations:
            block["citations"] = self.citations
        if self.arguments:
            block["input"] = _object(self.arguments_text)
        return block


class Blocks:
    """In the order of their beginning."""

    def __init__(self) -> None:
        self._in_order: list[GrowingBlock] = []
        self._by_index: dict[int | None, GrowingBlock] = {}
        self._untaken: deque[GrowingBlock] = deque()

    def __iter__(self) -> Iterator[GrowingBlock]:
        return iter(self._in_order)

    def begin(self, index: int | None, start: Block) -> GrowingBlock:
        block = GrowingBlock(start)
        self._in_order.append(block)
        self._untaken.append(block)
        self._by_index[index] = block
        return block

    def find(self, index: int | None) -> GrowingBlock | None:
        """The block of an event; without an index it is the latest one."""
        if index is None and self._in_order:
            return self._in_order[-1]
        return self._by_index.get(index)

    def take_ended(self) -> Iterator[GrowingBlock]:
        """The blocks that have ended, each once: a block comes when all blocks before it have ended. No block waits for a text,
        which not every service ends."""
        texts: list[GrowingBlock] = []
        while self._untaken and (self._untaken[0].ended or self._untaken[0].kind == "text"):
            block = self._untaken.popleft()
            if block.ended:
                yield block
            else:
                texts.append(block)
        self._untaken.extendleft(reversed(texts))

    def of_delta(self, index: int | None, delta: wire.Delta) -> GrowingBlock | None:
        """The block that grows by the delta. A text needs no beginning."""
        block = self.find(index)
        if block is None and delta.type in _STREAMED:
            block = self.begin(index, {"type": _STREAMED[delta.type]})
        return block


def _object(text: str) -> Json:
    """Of an answer that was cut, the arguments may be no JSON."""
    try:
        return _decode_object(text)
    except (msgspec.DecodeError, RecursionError):
        return {}
