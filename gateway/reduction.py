"""How much of a conversation goes out where the gateway keeps it. Law: pure; turns go whole, the oldest first, and the one
that runs never; the ledger keeps them all.

A weight is bytes that a model reads. Tokens are not counted but estimated from it: what the backend says that its last
requests used tells how many bytes make one.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

import msgspec
from msgspec import UNSET

from gateway.commits.calls import MeasuredCall
from gateway.items import AssistantItem, CallItem, HistoryRecord, Item, OpaqueItem, OutputItem, ReasoningItem, UserItem
from gateway.model import Json, Part

_FRAME = 16
"""Of every item: role, ids, punctuation."""

_FILE = 4000
"""A picture or a sound: what a model makes of it does not follow from its bytes."""

_DOCUMENT_SHARE = 10
"""Of a document's bytes one in so many is text."""

_BYTES_PER_TOKEN = 3.0
"""Where nothing is known. English has 4 or more, code and other languages fewer: rather too little is sent."""

_LEAST, _MOST = 1.0, 8.0
"""What instructions, tools and pictures make of the figure while little was said is no property of the text."""

_INPUT_TOKENS = ("input_tokens", "prompt_tokens")


@dataclass(frozen=True, slots=True)
class Window:
    """The most of a conversation to send; None: no limit. Messages are the caller's and the agent's."""

    messages: int | None
    weight: int | None


def newest(records: Sequence[HistoryRecord], window: Window) -> Sequence[HistoryRecord]:
    """The latest turns that fit together, and the last one in any case. `records` are in order of turns."""
    turns = [tuple(turn) for _, turn in groupby(records, lambda record: record.turn)]
    messages = size = kept = 0
    for turn in reversed(turns):
        messages += sum(isinstance(record.item, UserItem | AssistantItem) for record in turn)
        size += weigh(record.item for record in turn)
        if kept and (_over(messages, window.messages) or _over(size, window.weight)):
            break
        kept += len(turn)
    return records[len(records) - kept :]


def _over(value: int, limit: int | None) -> bool:
    return limit is not None and value > limit


# --- weights


def weigh(items: Iterable[Item]) -> int:
    return sum(map(weight, items))


def weight(item: Item) -> int:
    """0 for an answer of nothing, which is never sent."""
    match item:
        case UserItem(message=message):
            return _FRAME + sum(map(_part, message.parts))
        case AssistantItem(parts=parts) if all(part.text == "" for part in parts):
            return 0
        case AssistantItem(parts=parts):
            return _FRAME + sum(_FRAME if _is_file(part) else _part(part) for part in parts)
        case CallItem(name=name, arguments=arguments):
            return _FRAME + _text(name) + _text(arguments)
        case OutputItem(output=output):
            return _FRAME + (_text(output) if isinstance(output, str) else _json(output))
        case ReasoningItem(text=text, opaque=opaque):
            return _FRAME + (_text(text) if opaque is None else _json(opaque))
        case OpaqueItem(payload=payload):
            return _FRAME + _json(payload)


def _is_file(part: Part) -> bool:
    return part.raw is not None or part.url is not None


def _part(part: Part) -> int:
    if part.text is not None:
        return _text(part.text)
    if not _is_file(part):
        return 0 if part.data is UNSET else _json(part.data)
    kind = (part.media_type or "").partition("/")[0]
    size = len(part.raw or "") * 3 // 4
    if kind == "text":
        return size or _FILE
    return _FILE if kind in {"image", "audio", "video"} else max(_FILE, size // _DOCUMENT_SHARE)


def _text(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


def _json(value: Json) -> int:
    return len(msgspec.json.encode(value))


# --- tokens


def weight_of_tokens(tokens: int, measured: Iterable[MeasuredCall]) -> int:
    """The weight that so many tokens have on this thread. `measured`: its completed calls, the last one first."""
    for call in measured:
        used = _input_tokens(call.usage)
        if call.weight and used:
            return int(tokens * min(max(call.weight / used, _LEAST), _MOST))
    return int(tokens * _BYTES_PER_TOKEN)


def _input_tokens(usage: Json) -> int | None:
    """As the OpenAI wires name them, which most others copy."""
    values = [usage.get(name) for name in _INPUT_TOKENS] if isinstance(usage, dict) else []
    return next((value for value in values if isinstance(value, int) and value > 0), None)
