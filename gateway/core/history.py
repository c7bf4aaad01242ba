"""The view of a service call: the items that it sends, out of those of the ledger. Law: pure; never a call without its output
or the reverse, and a window drops whole turns, the oldest first, but never the running one.

A weight is bytes that a model reads. Tokens are not counted but estimated from the weight: the usage that the backend
reported for its last requests gives the bytes of a token.
"""

from collections.abc import Iterable, Sequence
from itertools import groupby

import msgspec
from msgspec.structs import replace

from gateway.a2a.model import Message, Part, Role
from gateway.core import usage
from gateway.core.citations import NO_SOURCE
from gateway.ledger.calls import MeasuredCall
from gateway.ports import conversation
from gateway.ports.conversation import (
    AssistantItem,
    HistoryRecord,
    OutputItem,
    Ownership,
    UserItem,
    refused_output,
    weigh,
)

_BYTES_PER_TOKEN = 3.0
"""The number of bytes per token while no backend has reported tokens. English text has 4 or more, code and other
languages have fewer: the estimate sends too little rather than too much."""

_LEAST, _MOST = 1.0, 8.0
"""Bounds, since instructions, tools and pictures distort the figure while the conversation is short."""

INTERRUPTED = "(The answer to this message was interrupted. The user has seen this part of it:)\n\n"
"""The beginning of a note to a backend that keeps the conversation."""


class Window(msgspec.Struct, frozen=True):
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
    number in the records, if the agent numbers sources.

    `earlier` are those of the positions whose items are of earlier turns, and still in their own form: a group for each
    turn, the turns without an outcome first. `replaced` are those whose items are outcomes in the form of the fixed text.
    `unanswered` is the turn whose tool calls are answered here by that text for the first time, if there is one and it failed.
    """

    items: tuple[conversation.Item, ...]
    positions: tuple[int, ...]
    last_source: int = NO_SOURCE
    earlier: tuple[tuple[int, ...], ...] = ()
    replaced: tuple[int, ...] = ()
    unanswered: str | None = None
    back: tuple[int, ...] = ()
    apart: tuple[int, ...] = ()


class Doubt(msgspec.Struct, frozen=True):
    """The part of a refused request that the next request does without, because it may be the reason of the refusal.

    `positions` are items of earlier turns; those of them that were left out last are `latest`, or `aside` if the backend
    had accepted them before. `withheld` are outcomes that are not even replaced, because the backend may not have their calls.
    `turn` is an earlier turn that is left out as a whole, and `handle` the handle at which it
    began; it was left out last if nothing else was. `cleared` are items that are not at fault if those `aside` are.
    `refused_in` is the service call that was refused, `tries` the number of requests that did without something."""

    refused_in: str
    positions: frozenset[int] = frozenset()
    latest: frozenset[int] = frozenset()
    aside: frozenset[int] = frozenset()
    withheld: frozenset[int] = frozenset()
    turn: str | None = None
    handle: str | None = None
    cleared: tuple[int, ...] = ()
    tries: int = 1

    def proven(self, sent: Iterable[int]) -> tuple[int, ...]:
        """The items that count as refused when the backend accepts a request that carries the items `sent`: with the items
        that were left out last it was refused. An outcome that was replaced in the request stays replaced."""
        return tuple(sorted(self.latest | self.positions.intersection(sent)))


Groups = tuple[tuple[int, ...], ...]
"""Positions of items, by turn."""

_ONE_BY_ONE = 4
"""So many earlier turns are left out one by one, and all others together."""

_TRIES = 6
"""So many requests of one message do without something at most."""


def narrower(
    view: View, doubt: Doubt | None, refused_in: str, carried: Groups = (), *, static: bool = False
) -> Doubt | None:
    """What the next request does without when the backend has refused `view`, in which `doubt` was left out already.
    None when only the running turn is left. `carried`: the `suspects`. `static`: no turn can be taken back.

    The parts are left out one after another, so that only what was refused is lost. Source: docs/state-model.md,
    scenario 46b.
    """
    done = Doubt(refused_in, tries=0) if doubt is None else doubt
    if done.tries == _TRIES or (done.turn is not None and not carried):
        return None
    following = Doubt(refused_in, done.positions, turn=done.turn, handle=done.handle, tries=done.tries + 1)
    if view.back:
        aside = frozenset(view.back)
        return replace(following, positions=done.positions | aside, aside=aside, cleared=view.apart)
    if view.earlier:
        latest = _doubted(view.earlier, done.tries)
        return replace(following, positions=done.positions | latest, latest=latest)
    if static and view.replaced and not done.withheld:
        return replace(following, withheld=frozenset(view.replaced))
    if view.unanswered is not None and not (carried and following.tries == _TRIES):
        return replace(following, turn=view.unanswered)
    aside = _doubted(carried, done.tries)
    return replace(following, positions=done.positions | aside, aside=aside) if aside else None


def _doubted(groups: Groups, tries: int) -> frozenset[int]:
    """The first of the groups, or all of them where it came to no end one by one."""
    chosen = groups[:1] if tries < _ONE_BY_ONE else groups
    return frozenset(position for group in chosen for position in group)


def suspects(
    ownership: Ownership,
    records: Sequence[HistoryRecord],
    turn_id: str,
    window: Window | None,
    *,
    whole_turns: bool = False,
    doubt: Doubt | None = None,
) -> Groups:
    """What the gateway's request for the turn carries of turns that the backend has accepted before, by turn: turns with
    files or data first, then the latest. Empty unless the conversation seems to be stuck. The arguments are those of `project`.
    """
    number = max(r.turn for r in records if r.turn_id == turn_id)
    if not _is_stuck(records, number):
        return ()
    sent = _in_window(ownership, _due(records, number, frozenset(), whole_turns=whole_turns, doubt=doubt), window)
    carried = [r for r in sent if r.turn < number and r.sent_in is not None and r.refused_in is None]
    with_more = {r.turn for r in carried if _has_more_than_text(r.item)}
    carried.sort(key=lambda r: (r.turn not in with_more, -r.turn))
    return tuple(tuple(r.position for r in group) for _, group in groupby(carried, lambda r: r.turn))


def _is_stuck(records: Sequence[HistoryRecord], number: int) -> bool:
    """Whether the message before was refused as well, or a turn was refused that the backend had accepted before. A first
    refusal is most likely the fault of the new message, which would be sent several times for nothing."""
    refused = [r for r in records if r.turn < number and r.refused_in is not None]
    accepted = max(((r.turn, r.position) for r in records if r.sent_in is not None), default=(0, 0))
    return any(_is_aside(r) or (r.turn, r.position) > accepted for r in refused)


def _is_aside(record: HistoryRecord) -> bool:
    """Whether the backend refused the item after it had accepted it. An outcome that was accepted in its replaced form is
    still replayable."""
    return record.refused_in is not None and record.sent_in is not None and not record.replayable


def _has_more_than_text(item: conversation.Item) -> bool:
    match item:
        case UserItem(message=message):
            return any(part.text is None for part in message.parts)
        case AssistantItem(parts=parts):
            return any(part.text is None for part in parts)
        case _:
            return False


def _given_back(records: Sequence[HistoryRecord]) -> tuple[frozenset[int], tuple[int, ...]]:
    """Of the turns that were refused together although the backend had accepted them before, the later half, and the
    rest: a request with the later half shows which of both is at fault.

    Source: docs/adr/0021-what-a-refusal-leaves-out.md.
    """
    together: dict[str, dict[int, list[int]]] = {}
    for record in records:
        if record.refused_in is not None and _is_aside(record):
            together.setdefault(record.refused_in, {}).setdefault(record.turn, []).append(record.position)
    most = max(together.values(), key=len, default={})
    if len(most) < 2:
        return frozenset(), ()
    turns = [most[turn] for turn in sorted(most)]
    half = len(turns) // 2
    return frozenset(p for turn in turns[half:] for p in turn), tuple(p for turn in turns[:half] for p in turn)


def refused_positions(view: View, doubt: Doubt | None) -> tuple[int, ...]:
    """The items of a refused request that are left out of later requests: all of its new items, except those that were
    only in doubt."""
    return view.positions if doubt is None else tuple(p for p in view.positions if p not in doubt.positions)


def project(
    ownership: Ownership,
    records: Sequence[HistoryRecord],
    turn_id: str,
    window: Window | None = None,
    *,
    new_chain: bool = False,
    whole_turns: bool = False,
    doubt: Doubt | None = None,
) -> View:
    """The items to send. `turn_id` is the running turn; items of later turns wait for those.

    Owner BACKEND: the items that are not on the handle's chain, outputs first; a part of an answer that was interrupted
    becomes a note of the user's. Owner GATEWAY, and a chain that replaces a
    lost one (`new_chain`): the conversation, as much of it as the window takes. A displaced turn is left out with all its
    items; with `whole_turns` a failed one too. An outcome that was refused is replaced by a fixed text, and what is in
    `doubt` is treated as refused.
    """
    number = max(r.turn for r in records if r.turn_id == turn_id)
    back, apart = _given_back(records)
    due = _due(records, number, back, whole_turns=whole_turns, doubt=doubt)
    if new_chain or ownership.owner is conversation.StorageOwner.GATEWAY:
        sent = _in_window(ownership, due, window)
        # What is in doubt may take with it what cannot be sent alone, and that stays unsent.
        carried = sent if doubt is not None else [r for r in due if r.turn >= sent[0].turn]
        positions = tuple(r.position for r in carried if r.sent_in is None)
        view = _view(sent, positions, number)
        return replace(view, back=tuple(r.position for r in sent if r.position in back), apart=apart) if back else view
    unsent = [r for r in due if r.sent_in is None]
    answers = [r for r in unsent if isinstance(r.item, OutputItem)]
    outputs = sorted(answers, key=lambda r: (r.turn, r.sequence or 0))
    notes = [noted for r in unsent if r.turn < number and (noted := _noted(r)) is not None]
    said = [r for r in unsent if isinstance(r.item, UserItem)]
    sent = [*outputs, *sorted((*said, *notes), key=lambda r: (r.turn, r.position))]
    view = _view(sent, tuple(r.position for r in sent), number)
    if doubt is None or not doubt.withheld:
        return view
    return replace(view, items=tuple(r.item for r in sent if r.position not in doubt.withheld))


def _due(
    records: Sequence[HistoryRecord], number: int, back: frozenset[int], *, whole_turns: bool, doubt: Doubt | None
) -> list[HistoryRecord]:
    """The records that the turn of this number may send, in the form in which it sends them. `back`: see View."""
    due = [
        r
        for r in records
        if (r.replayable or r.position in back) and r.turn <= number and not (r.displaced or (whole_turns and r.failed))
    ]
    if doubt is not None:
        due = _without(due, doubt)
    return [_replaced(r) if r.refused_in is not None and r.position not in back else r for r in due]


def _in_window(ownership: Ownership, due: Sequence[HistoryRecord], window: Window | None) -> Sequence[HistoryRecord]:
    """What is sent of a conversation that is sent as a whole."""
    records = _whole(ownership, _from_boundary(due) if ownership.opaque_replay else due)
    return records if window is None else newest(records, window)


def off_chain(records: Iterable[HistoryRecord], turn: str) -> list[HistoryRecord]:
    """The records as they are for the chain that `turn` began from: it does not hold what the calls of the turn
    carried."""
    every = list(records)
    calls = {call for r in every if r.turn_id == turn for call in (r.service_call, r.sent_in)}
    return [replace(r, sent_in=None) if r.sent_in in calls and r.turn_id != turn else r for r in every]


def _view(sent: Sequence[HistoryRecord], positions: tuple[int, ...], number: int) -> View:
    """`number` is the number of the running turn."""
    items = tuple(r.item for r in sent)
    before = [r for r in sent if r.sent_in is None and r.turn < number]
    if not before:
        return View(items, positions)
    replaced = [r for r in before if r.refused_in is not None]
    unanswered = {r.turn_id: r.failed for r in replaced}
    turn = next(iter(unanswered)) if len(unanswered) == 1 and all(unanswered.values()) else None
    kept = [r for r in before if r.refused_in is None]
    return View(items, positions, earlier=_by_turn(kept), replaced=tuple(r.position for r in replaced), unanswered=turn)


def _by_turn(records: Sequence[HistoryRecord]) -> tuple[tuple[int, ...], ...]:
    """The positions of the records, by turn. Turns without an outcome come first: an outcome is replaced for good."""
    answering = {r.turn for r in records if isinstance(r.item, OutputItem)}
    ordered = sorted(records, key=lambda r: (r.turn in answering, r.turn))
    return tuple(tuple(r.position for r in group) for _, group in groupby(ordered, lambda r: r.turn))


def _without(records: Sequence[HistoryRecord], doubt: Doubt) -> list[HistoryRecord]:
    """The records as they would be if everything in doubt had been refused."""
    left = [r for r in records if r.turn_id != doubt.turn]
    return [
        replace(r, refused_in=doubt.refused_in) if r.position in doubt.positions else r
        for r in left
        if r.position not in doubt.positions or isinstance(r.item, OutputItem)
    ]


def _noted(record: HistoryRecord) -> HistoryRecord | None:
    """A note with the part of an answer that its backend does not know of, because the answer was interrupted."""
    if not isinstance(record.item, AssistantItem):
        return None
    text = conversation.joined(part.text or "" for part in record.item.parts)
    note = Message(message_id="", role=Role.USER, parts=(Part(text=f"{INTERRUPTED}{text}"),))
    return replace(record, item=UserItem(note)) if text else None


def _replaced(record: HistoryRecord) -> HistoryRecord:
    item = record.item
    return replace(record, item=refused_output(item)) if isinstance(item, OutputItem) else record


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
