"""Numbered sources in tool results: a JSON list of objects that each have a `source_number`, which answers cite as
`[source3]`. Law: pure; a result of any other shape stays as it is, and the record keeps all sources.

Source: docs/state-model.md, scenarios 97 and 98.
"""

import re
from collections.abc import Iterable, Sequence

import msgspec
from msgspec.structs import replace

from gateway.a2a.model import Json
from gateway.ports.conversation import AssistantItem, HistoryRecord, OutputItem

NONE_CITED = "None of the sources that this call found was cited."
"""Replaces a result of which no source was cited."""

NO_SOURCE = -1
"""The last number before the first source, which is number 0."""

_NUMBER = "source_number"
_CITED = re.compile(r"\[source(\d{1,9})\]", re.IGNORECASE)


class _Sources(msgspec.Struct, frozen=True):
    """The sources in the result of a tool. `key` is the only member of the object that held the list. `text` says that
    the result was a text that contained JSON."""

    entries: tuple[dict[str, Json], ...]
    key: str | None
    text: bool

    def of(self, entries: Iterable[dict[str, Json]]) -> Json:
        """The same result with these sources."""
        value: Json = list(entries) if self.key is None else {self.key: list(entries)}
        return msgspec.json.encode(value).decode() if self.text else value


def number_sources(output: Json, last: int) -> tuple[Json, int]:
    """The result with its sources numbered from `last + 1` on, and the number of its last one."""
    found = _sources(output)
    if found is None:
        return output, last
    entries = [{**entry, _NUMBER: number} for number, entry in enumerate(found.entries, last + 1)]
    return found.of(entries), last + len(entries)


def last_source_number(records: Iterable[HistoryRecord]) -> int:
    """The highest number of a source in the records."""
    found = [_sources(record.item.output) for record in records if isinstance(record.item, OutputItem)]
    return max((_number(entry) for sources in found if sources for entry in sources.entries), default=NO_SOURCE)


def drop_uncited(records: Sequence[HistoryRecord], turn_id: str) -> list[HistoryRecord]:
    """The records without the uncited sources of the earlier turns. A source is uncited if neither the answer of its
    turn nor a later answer cites it. A turn without an answer is not changed."""
    running = max((record.turn for record in records if record.turn_id == turn_id), default=0)
    kept: list[HistoryRecord] = []
    cited: set[int] = set()
    answered: set[int] = set()
    for record in reversed(records):
        item, shortened = record.item, record
        if isinstance(item, AssistantItem) and record.replayable:
            text = "".join(part.text or "" for part in item.parts)
            cited |= {int(number) for number in _CITED.findall(text)}
            if text:
                answered.add(record.turn)
        elif isinstance(item, OutputItem) and record.turn < running and record.turn in answered and not item.error:
            shortened = replace(record, item=replace(item, output=_only(item.output, cited)))
        kept.append(shortened)
    return kept[::-1]


def _only(output: Json, cited: set[int]) -> Json:
    found = _sources(output)
    if found is None:
        return output
    entries = [entry for entry in found.entries if _number(entry) in cited]
    return found.of(entries) if entries else NONE_CITED


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
    """NO_SOURCE for a value that is no source."""
    number = entry.get(_NUMBER) if isinstance(entry, dict) else None
    return number if isinstance(number, int) and not isinstance(number, bool) else NO_SOURCE
