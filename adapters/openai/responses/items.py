"""The output items that a stream has brought. Law: an id that comes again names the same item; an item that comes only in the
finished response is new, unless it stands for a streamed item whose id the server has changed.
"""

from collections import deque
from collections.abc import Iterator, Sequence

from adapters.openai.responses import wire


class StreamedItems:
    def __init__(self) -> None:
        self._begun: set[str] = set()
        self._count = 0
        self._indexes: set[int] = set()
        self._ended: dict[str, list[str]] = {}
        """The keys of the items that have ended, in their order, by type."""

    def __contains__(self, key: str) -> bool:
        """Whether the item of this key has begun."""
        return key in self._begun

    @property
    def any_ended(self) -> bool:
        return bool(self._ended)

    def begins_again(self, item: wire.ResponseItem, index: int | None) -> bool:
        """Whether the output is sent anew from here: a known item, or the place of a known item. OGX gives every item the
        same place."""
        one_place = self._count > 1 and len(self._indexes) == 1
        return item.key in self._begun or (index in self._indexes and not one_place)

    def begin(self, item: wire.ResponseItem, index: int | None) -> None:
        if item.key in self._begun:
            return
        self._count += 1
        if item.key:
            self._begun.add(item.key)
        if index is not None:
            self._indexes.add(index)

    def has_ended(self, item: wire.ResponseItem) -> bool:
        return item.id is not None and item.id in self._ended.get(item.type, ())

    def is_open(self, item: wire.ResponseItem) -> bool:
        return item.key in self._begun and not self.has_ended(item)

    def end(self, item: wire.ResponseItem) -> None:
        self._ended.setdefault(item.type, []).append(item.key)

    def streamed_keys(self, output: Sequence[wire.ResponseItem]) -> Iterator[str | None]:
        """For each item of the finished response the key of the same item in the stream; None for a new item."""
        named = {item.key for item in output if item.key}
        renamed = {kind: deque(key for key in keys if key not in named) for kind, keys in self._ended.items()}
        for item in output:
            if item.key and item.key in self._ended.get(item.type, ()):
                yield item.key
            else:
                others = renamed.get(item.type)
                yield others.popleft() if others else None
