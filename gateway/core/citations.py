"""Numbered sources in what tools found: a JSON list of objects that each have a `source_number`, which answers cite as
`[source3]`. Law: pure; only what has exactly this shape is touched, and the record keeps all of it.

Source: state-model, scenarios 97 and 98.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec
from msgspec.structs import replace

from gateway.a2a.model import Json
from gateway.ports.conversation import AssistantItem, HistoryRecord, OutputItem

NONE_CITED = "None of the sources that this call found was cited."
"""What is left of a result of which no source was cited."""

NO_SOURCE = -1
"""The last number where there is none: the first source is number 0."""

_NUMBER = "source_number"
_CITED = re.compile(r"\[source(\d{1,9})\]", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class _Sources:
    """`key`: the only member of the object in which the list stood; `text`: it was JSON in a text."""

    entries: tuple[dict[str, Json], ...]
    key: str | None
    text: bool

    def of(self, entries: Iterable[dict[str, Json]]) -> Json:
        """The same result with these sources."""
        listed: Json = list(entries)
        value: Json = listed if self.key is None else {self.key: listed}
        return msgspec.json.encode(value).decode() if self.text else value


def number_sources(output: Json, last: int) -> tuple[Json, int]:
    """The result with its sources numbered from behind `last` on, and the number of its last one."""
    found = _sources(output)
    if found is None:
        return output, last
    entries = [{**entry, _NUMBER: number} for number, entry in enumerate(found.entries, last + 1)]
    return found.of(entries), last + len(entries)


def last_source_number(records: Iterable[HistoryRecord]) -> int:
    """The highest number of a source in them."""
    found = [_sources(record.item.output) for record in records if isinstance(record.item, OutputItem)]
    return max((_number(entry) for sources in found if sources for entry in sources.entries), default=NO_SOURCE)


def drop_uncited(records: Sequence[HistoryRecord], turn_id: str) -> list[HistoryRecord]:
    """The records, in the turns before this one without the sources that no answer cited, neither the turn's own nor a
    later one. A turn without an answer is left as it is."""
    running = max((record.turn for record in records if record.turn_id == turn_id), default=0)
    kept: list[HistoryRecord] = []
    cited: set[int] = set()
    answered: set[int] = set()
    for record in reversed(records):
        item, left = record.item, record
        if isinstance(item, AssistantItem) and record.replayable:
            text = "".join(part.text or "" for part in item.parts)
            cited |= {int(number) for number in _CITED.findall(text)}
            if text:
                answered.add(record.turn)
        elif isinstance(item, OutputItem) and record.turn < running and record.turn in answered and not item.error:
            left = replace(record, item=replace(item, output=_only(item.output, cited)))
        kept.append(left)
    return kept[::-1]


def _only(output: Json, cited: set[int]) -> Json:
    found = _sources(output)
    if found is None:
        return output
    left = [entry for entry in found.entries if _number(entry) in cited]
    return found.of(left) if left else NONE_CITED


def _sources(output: Json) -> _Sources | None:
    value, key, text = output, None, isinstance(output, str)
    if isinstance(value, str):
        if _NUMBER not in value:
            return None
        try:
            value = msgspec.json.decode(value)
        except (msgspec.DecodeError, RecursionError):
            return None
    if isinstance(value, dict) and len(value) == 1:
        [(key, value)] = value.items()
    if not isinstance(value, list) or not value or any(_number(entry) < 0 for entry in value):
        return None
    return _Sources(tuple(value), key, text)


def _number(entry: Json) -> int:
    """That of a source; NO_SOURCE of what is none."""
    number = entry.get(_NUMBER) if isinstance(entry, dict) else None
    return number if isinstance(number, int) and not isinstance(number, bool) else NO_SOURCE
