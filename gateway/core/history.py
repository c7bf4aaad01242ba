"""The view of a service call: the items that it sends, out of those of the ledger. Law: pure; never a call without its output
or the reverse, and a window drops whole turns, the oldest first, but never the running one.

A weight is bytes that a model reads. Tokens are not counted but estimated from the weight: the usage that the backend
reported for its last requests gives the bytes of a token.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

import msgspec

from gateway.core import usage
from gateway.core.citations import NO_SOURCE
from gateway.ledger.calls import MeasuredCall
from gateway.ports import conversation
from gateway.ports.conversation import HistoryRecord, OutputItem, Ownership, UserItem, weigh

_BYTES_PER_TOKEN = 3.0
"""The number of bytes per token while no backend has reported tokens. English text has 4 or more, code and other
languages have fewer: the estimate sends too little rather than too much."""

_LEAST, _MOST = 1.0, 8.0
"""Bounds, since instructions, tools and pictures distort the figure while the conversation is short."""


@dataclass(frozen=True, slots=True)
class Window:
    """The largest part of a conversation that a service call sends. None is no limit. The messages of the caller and of
    the agent count."""

    messages: int | None
    weight: int | None


def newest(records: Sequence[HistoryRecord], window: Window) -> Sequence[HistoryRecord]:
    """The latest turns that fit together, and the last one in any case. `records` are ordered by turn."""
    turns = [tuple(turn) for _, turn in groupby(records, lambda record: record.turn)]
    messages = size = kept = 0
    for turn in reversed(turns):
        messages += sum(isinstance(record.item, UserItem | conversation.AssistantItem) for record in turn)
        size += weigh(record.item for record in turn)
        if kept and (_over(messages, window.messages) or _over(size, window.weight)):
            break
        kept += len(turn)
    return records[len(records) - kept :]


def _over(value: int, limit: int | None) -> bool:
    return limit is not None and value > limit


def weight_of_tokens(tokens: int, measured: Iterable[MeasuredCall]) -> int:
    """The weight of `tokens` on this thread. `measured` are the completed calls of the thread, the last one first."""
    for call in measured:
        used = usage.read(call.usage).input_tokens
        if call.weight and used:
            return int(tokens * min(max(call.weight / used, _LEAST), _MOST))
    return int(tokens * _BYTES_PER_TOKEN)


class View(msgspec.Struct, frozen=True):
    """The items that a service call sends. `positions` are the positions of the items that the backend's chain does not
    hold yet; with owner BACKEND they are the positions of all items, in order. `last_source` is the highest source
    number in the records, if the agent numbers sources."""

    items: tuple[conversation.Item, ...]
    positions: tuple[int, ...]
    last_source: int = NO_SOURCE


def project(
    ownership: Ownership,
    records: Sequence[HistoryRecord],
    turn_id: str,
    window: Window | None = None,
    *,
    new_chain: bool = False,
    whole_turns: bool = False,
) -> View:
    """The items to send. `turn_id` is the running turn; items of later turns wait for those.

    Owner BACKEND: the items that are not on the handle's chain, outputs first. Owner GATEWAY, and a chain that replaces a
    lost one (`new_chain`): the conversation, as much of it as the window takes. A displaced turn is left out with all its
    items; with `whole_turns` a failed one too.
    """
    number = max(r.turn for r in records if r.turn_id == turn_id)
    due = [r for r in records if r.replayable and r.turn <= number and not (r.displaced or (whole_turns and r.failed))]
    if new_chain or ownership.owner is conversation.StorageOwner.GATEWAY:
        records = _whole(ownership, _from_boundary(due) if ownership.opaque_replay else due)
        sent = records if window is None else newest(records, window)
        positions = tuple(r.position for r in due if r.sent_in is None and r.turn >= sent[0].turn)
        return View(tuple(r.item for r in sent), positions)
    unsent = [r for r in due if r.sent_in is None]
    answers = [r for r in unsent if isinstance(r.item, OutputItem)]
    outputs = sorted(answers, key=lambda r: (r.turn, r.sequence or 0))
    sent = [*outputs, *(r for r in unsent if isinstance(r.item, UserItem))]
    return View(tuple(r.item for r in sent), tuple(r.position for r in sent))


def _from_boundary(records: Sequence[HistoryRecord]) -> Sequence[HistoryRecord]:
    """The records from the latest item on that contains, for its backend, all earlier items."""
    items = enumerate(record.item for record in records)
    boundaries = [index for index, item in items if isinstance(item, conversation.OpaqueItem) and item.boundary]
    return records[boundaries[-1] :] if boundaries else records


def _whole(ownership: Ownership, records: Sequence[HistoryRecord]) -> tuple[HistoryRecord, ...]:
    """Built from the end: reasoning stays or goes with the item after it."""
    answered = _answered_calls(records)
    kept: list[HistoryRecord] = []
    leads = False
    in_calls = False
    for index in reversed(range(len(records))):
        item = records[index].item
        match item:
            case conversation.CallItem():
                stays = index in answered
                leads = stays or (in_calls and leads)
            case OutputItem():
                stays, leads = index in answered, False
            case conversation.ReasoningItem():
                stays = ownership.opaque_replay and leads
            case conversation.OpaqueItem():
                stays = leads = ownership.opaque_replay
            case conversation.AssistantItem(parts=parts):
                stays = leads = any(part.text != "" for part in parts)
            case _:
                stays, leads = True, False
        in_calls = isinstance(item, conversation.CallItem)
        if stays:
            kept.append(records[index])
    return tuple(_outputs_in_order(kept[::-1]))


def _outputs_in_order(records: list[HistoryRecord]) -> list[HistoryRecord]:
    """Sorts the outputs, which are stored in the order of their arrival. The model gets the outputs of a round in the
    order of their calls, followed by the messages that the caller sent while the round waited.

    Source: docs/state-model.md, scenarios 90 and 120.
    """
    ordered: list[HistoryRecord] = []
    for (_, answer_calls), run in groupby(records, lambda r: (r.turn, isinstance(r.item, OutputItem | UserItem))):
        together = list(run)
        if answer_calls:
            together.sort(key=lambda r: (isinstance(r.item, UserItem), r.sequence or 0))
        ordered += together
    return ordered


def _answered_calls(records: Sequence[HistoryRecord]) -> frozenset[int]:
    """Indices of paired calls and outputs: an output belongs to the latest open call of its id in its turn."""
    open_calls: dict[tuple[int, str], int] = {}
    paired: set[int] = set()
    for index, record in enumerate(records):
        match record.item:
            case conversation.CallItem(call_id=call_id):
                open_calls[record.turn, call_id] = index
            case OutputItem(call_id=call_id) if (record.turn, call_id) in open_calls:
                paired |= {open_calls.pop((record.turn, call_id)), index}
    return frozenset(paired)
