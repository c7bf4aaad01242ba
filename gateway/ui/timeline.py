"""A task as rows: what happened when, below its turns. Law: pure; over FOLD like siblings are one row, a problem never is."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import median
from typing import Literal

import msgspec

from gateway.core import usage
from gateway.ledger.admin.timelines import BodyKey, CallHead, ItemHead, MessageHead, Note, Timeline, ToolHead, TurnHead
from gateway.ledger.calls import CANCELLED
from gateway.ledger.leases import TRIES
from gateway.ledger.states import OPEN, UNDER_WAY, ServiceCallStatus, ToolCallStatus, TurnStatus
from gateway.ui.scale import WIDTH, Scale, Span, covered, scale
from gateway.ui.words import many, took

FOLD = 20
CORRELATION_ID = "correlation id"

Show = Literal["all", "problems", "tools", "calls"]
RowKind = Literal["turn", "message", "call", "tool", "item", "note", "fold"]

_ENDED = frozenset({TurnStatus.COMPLETED, TurnStatus.FAILED, TurnStatus.CANCELLED, TurnStatus.REJECTED})
_BAD_CALLS = frozenset({ServiceCallStatus.FAILED, ServiceCallStatus.UNKNOWN})
_BAD_TOOLS = frozenset({ToolCallStatus.FAILED, ToolCallStatus.NOT_FOUND, ToolCallStatus.INTERRUPTED})
_ITEMS = {"reasoning": "Reasoning", "assistant": "Answer", "opaque": "Item of the backend"}
_DECIDED = {"approved": "allowed", "rejected": "refused"}


class Bar(msgspec.Struct, frozen=True):
    """A part of a row's bar, in units of the scale."""

    kind: Literal["waited", "ran", "bad", "cut"]
    at: int
    width: int


class Row(msgspec.Struct, frozen=True):
    """`title` is the gateway's own, `name` what others have called it. `facts` are pairs of a word and a text of others,
    `bodies` long texts that are read when they are wanted. `since` is the beginning of what has not ended. `page` leads to
    more."""

    id: str
    kind: RowKind
    depth: int
    at: int
    title: str
    name: str = ""
    state: str = ""
    took: int | None = None
    since: int | None = None
    bad: bool = False
    words: str = ""
    facts: tuple[tuple[str, str], ...] = ()
    bodies: tuple[tuple[str, BodyKey], ...] = ()
    preview: BodyKey | None = None
    page: str = ""
    call: str = ""
    bars: tuple[Bar, ...] = ()


class Totals(msgspec.Struct, frozen=True):
    """Milliseconds in which any call of the model or any tool ran, or any tool call waited for its caller; numbers of calls;
    and tokens."""

    model: int
    calls: int
    tools: int
    tool_calls: int
    waited: int
    tokens_in: int | None
    tokens_out: int | None


def rows(found: Timeline, now: int) -> tuple[Row, ...]:
    """All rows of these turns, in order, without bars."""
    of_turn: dict[str, list[Row]] = defaultdict(list)
    of_call: dict[str, list[Row]] = defaultdict(list)
    for tool in found.tools:
        of_call[tool.call].append(_tool(tool, now))
    for item in found.items:
        of_call[item.call or ""].append(_item(item))
    for message in found.messages:
        of_turn[message.turn].append(_message(message))
    for number, note in enumerate(found.notes):
        of_turn[note.turn].append(_note(note, number))
    for call in found.calls:
        of_turn[call.turn].append(_call(call))
    turns = [_turn(turn, found.task.correlation_id) for turn in found.turns]
    return tuple(_ordered(zip(found.turns, turns, strict=True), of_turn, of_call))


def _ordered(
    turns: Iterable[tuple[TurnHead, Row]], of_turn: Mapping[str, list[Row]], of_call: Mapping[str, list[Row]]
) -> Iterator[Row]:
    for turn, itself in turns:
        yield itself
        for row in sorted(of_turn.get(turn.id, ()), key=lambda each: each.at):
            yield row
            if row.kind == "call":
                below = of_call.get(row.call, ())
                # The ledger has no time of its own for an item; it stands before the tool calls of its answer.
                yield from (_placed(each, row) for each in below if each.kind == "item")
                yield from (each if each.at else _placed(each, row) for each in below if each.kind == "tool")


def _placed(row: Row, call: Row) -> Row:
    return msgspec.structs.replace(row, at=call.at + (call.took or 0) if row.kind == "tool" else call.at)


def _turn(turn: TurnHead, correlation_id: str | None) -> Row:
    """`correlation_id` is that of the turn of the task that failed."""
    facts = []
    if turn.failure_class:
        facts.append(("failed because", turn.failure_class))
        facts += [(CORRELATION_ID, correlation_id)] if correlation_id and turn.status is TurnStatus.FAILED else []
    words = [f"tried {many(turn.tries, 'time')} after its process had died"] if turn.tries else []
    words += ["put aside"] if turn.tries >= TRIES and turn.status not in _ENDED else []
    words += ["displaced: it is no part of the conversation"] if turn.displaced else []
    words += ["its end was asked for"] if turn.cancel_asked and turn.status not in _ENDED else []
    facts += [("turn", turn.id)] + ([("process", turn.process)] if turn.process else [])
    if turn.trace:
        facts.append(("trace", turn.trace))
    ended = turn.ended_at
    return Row(
        f"turn-{turn.id}", "turn", 0, turn.accepted_at, f"Turn {turn.number}",
        state=turn.status,
        took=None if ended is None else ended - turn.accepted_at,
        since=turn.accepted_at if ended is None else None,
        bad=turn.status in (TurnStatus.FAILED, TurnStatus.REJECTED) or turn.tries > 0,
        words="; ".join(words),
        facts=tuple(facts),
        bodies=(("said", BodyKey("said", turn.id)), ("artifacts", BodyKey("artifacts", turn.id))) if ended else (),
    )  # fmt: skip


def _message(message: MessageHead) -> Row:
    key = BodyKey("message", message.turn, message.ordinal)
    return Row(
        f"message-{message.turn}-{message.ordinal}", "message", 1, message.received_at,
        "Message" if not message.ordinal else "Answer to a question",
        facts=(("message id", message.message_id),),
        bodies=(("message", key),),
        preview=key,
    )  # fmt: skip


def _call(call: CallHead) -> Row:
    was_cancelled = call.status is ServiceCallStatus.FAILED and call.error_class == CANCELLED
    bad = call.status in _BAD_CALLS and not was_cancelled
    facts = [("failed because", call.error_class)] if call.error_class and not was_cancelled else []
    handles = (call.handle_in, call.handle_out or call.pending_handle)
    if any(handles):
        facts.append(("handle", f"{handles[0] or 'none'} → {handles[1] or 'none'}"))
    if call.run:
        facts.append(("run", call.run))
    facts.append(("call", call.id))
    open_ = call.status in UNDER_WAY and call.ended_at is None
    first = "" if call.first_at is None else f"first event after {took(call.first_at - call.prepared_at)}"
    return Row(
        f"call-{call.id}", "call", 1, call.prepared_at,
        f"Call {call.round + 1}" + (f", try {call.attempt + 1}" if call.attempt or bad else ""),
        state=CANCELLED if was_cancelled else call.status,
        took=None if call.ended_at is None else call.ended_at - call.prepared_at,
        since=call.prepared_at if open_ else None,
        bad=bad,
        words=first,
        facts=tuple(facts),
        bodies=(("usage", BodyKey("usage", call.id)),) if call.usage else (),
        call=call.id,
    )  # fmt: skip


def _tool(tool: ToolHead, now: int) -> Row:
    open_ = tool.status in OPEN
    began = tool.started_at or tool.asked_at
    facts = [("run by", tool.executor + (f", {tool.server}" if tool.server else ""))]
    words = ""
    if tool.decision is not None:
        words = _DECIDED.get(tool.decision, tool.decision)
        facts.append(("decided by", tool.answered_by or "nobody"))
    elif tool.approval_required and open_ and tool.expires_at is not None:
        words = f"its question ends in {took(tool.expires_at - now)}" if tool.expires_at > now else ""
    facts += [("id", tool.id), ("backend's id", tool.external_id)]
    waited = None if tool.asked_at is None or tool.started_at is None else tool.started_at - tool.asked_at
    if waited is not None and waited > _NOTICED:
        words = f"{words} after {took(waited)}".strip()
    return Row(
        f"tool-{tool.id}", "tool", 2, tool.asked_at or tool.started_at or 0, "Tool", name=tool.name,
        state=tool.status,
        took=None if began is None or tool.ended_at is None else tool.ended_at - began,
        since=began if open_ else None,
        bad=tool.status in _BAD_TOOLS,
        words=words,
        facts=tuple(facts),
        bodies=(
            ("arguments", BodyKey("arguments", tool.id)),
            *(() if open_ else (("outcome", BodyKey("outcome", tool.id)),)),
        ),
        preview=BodyKey("arguments", tool.id),
        call=tool.call,
    )  # fmt: skip


_NOTICED = 1_000
"""Milliseconds of waiting that are worth a word."""


def _item(item: ItemHead) -> Row:
    words = [] if item.replayable else ["not sent again"]
    words += ["the backend has refused a request with it"] if item.refused_in else []
    key = BodyKey("item", item.thread, item.position)
    return Row(
        f"item-{item.thread}-{item.position}", "item", 2, 0, _ITEMS.get(item.kind, item.kind),
        bad=item.refused_in is not None,
        words="; ".join(words),
        facts=(("position", str(item.position)), ("weight", f"{item.weight} bytes")),
        bodies=(("content", key),),
        preview=key,
    )  # fmt: skip


def _note(note: Note, number: int) -> Row:
    facts = (("", note.detail),) if note.detail else ()
    return Row(f"note-{note.turn}-{number}", "note", 1, note.at, note.kind.replace("-", " ").capitalize(), facts=facts)


# --- what is shown of them


def chosen(found: Sequence[Row], show: Show, words: str) -> tuple[Row, ...]:
    """The rows that a filter leaves, with the turns that they belong to. `words` are looked for in names, facts and states."""
    kept: list[Row] = []
    turn: Row | None = None
    for row in found:
        if row.kind == "turn":
            turn = row
        if not (_fits(row, show) and _has(row, words)):
            continue
        if turn is not None and row is not turn:
            kept.append(turn)
        kept.append(row)
        turn = None
    return tuple(kept)


def _fits(row: Row, show: Show) -> bool:
    match show:
        case "problems":
            return row.bad
        case "tools":
            return row.kind == "tool"
        case "calls":
            return row.kind == "call"
        case _:
            return True


def _has(row: Row, words: str) -> bool:
    if not words:
        return True
    wanted = words.casefold()
    return any(wanted in text.casefold() for text in (row.title, row.name, row.state, *(text for _, text in row.facts)))


def folded(found: Sequence[Row]) -> tuple[Row, ...]:
    """Like siblings without a problem as one row, where there are over FOLD of them."""
    groups: dict[tuple[str, str, str], list[Row]] = defaultdict(list)
    turn = ""
    keys: list[tuple[str, str, str] | None] = []
    for row in found:
        turn = row.id if row.kind == "turn" else turn
        key = _likeness(row, turn)
        keys.append(key)
        if key is not None:
            groups[key].append(row)
    kept: list[Row] = []
    for row, key in zip(found, keys, strict=True):
        if key is None or len(groups[key]) <= FOLD:
            kept.append(row)
        elif groups[key][0] is row:
            kept.append(_fold(groups[key], key))
    return tuple(kept)


def _likeness(row: Row, turn: str) -> tuple[str, str, str] | None:
    """Rows of the same one are alike; None: this one stands for itself."""
    if row.bad or row.since is not None or row.kind not in ("tool", "item", "call"):
        return None
    return turn, row.kind, row.name or row.title.partition(" ")[0]


def _fold(like: Sequence[Row], key: tuple[str, str, str]) -> Row:
    times = [row.took for row in like if row.took is not None]
    middle = f"median {took(median(times))}" if times else ""
    first, last = like[0], like[-1]
    return Row(
        f"fold-{key[0]}-{key[1]}-{first.id}", "fold", first.depth, first.at,
        f"{first.title.partition(',')[0]} ×{len(like):,}", first.name,
        words=", ".join(filter(None, ("none failed", middle))),
        took=last.at + (last.took or 0) - first.at,
        page={"tool": "tools", "call": "calls"}.get(key[1], "all"),
    )  # fmt: skip


# --- bars

_THINNEST = 13
"""Three pixels of the narrowest picture, in units of the scale."""


def scale_of(found: Timeline, now: int) -> Scale:
    open_ = any(turn.status not in _ENDED for turn in found.turns)
    begin = min((turn.accepted_at for turn in found.turns), default=found.task.created_at)
    spans = [Span(call.prepared_at, call.ended_at or now) for call in found.calls]
    spans += _ran(found.tools, now)
    spans += [Span(turn.ended_at, turn.ended_at) for turn in found.turns if turn.ended_at is not None]
    return scale(spans, begin, now if open_ else None)


def _ran(tools: Iterable[ToolHead], now: int) -> list[Span]:
    """When tools ran, those that still do until `now`."""
    return [
        Span(tool.started_at, tool.ended_at or now)
        for tool in tools
        if tool.started_at is not None and (tool.ended_at is not None or tool.status is ToolCallStatus.RUNNING)
    ]


def with_bars(found: Iterable[Row], on: Scale, tools: Mapping[str, ToolHead]) -> Iterator[Row]:
    """What has not ended reaches to the end of the scale."""
    for row in found:
        yield msgspec.structs.replace(row, bars=tuple(_bars(row, on, tools.get(row.id.removeprefix("tool-")))))


def _bars(row: Row, on: Scale, tool: ToolHead | None) -> Iterator[Bar]:
    if row.kind in ("message", "note", "item"):
        return
    begin, end = row.at, on.end if row.since is not None else row.at + (row.took or 0)
    if row.kind == "turn":
        yield _bar("waited", begin, end, on)
        yield from (_bar("cut", cut.begin, cut.end, on) for cut in on.cuts if begin <= cut.begin and cut.end <= end)
        return
    if tool is not None:
        if tool.asked_at is not None and tool.started_at is not None:
            yield _bar("waited", tool.asked_at, tool.started_at, on)
        if tool.started_at is None:
            yield _bar("waited", begin, end, on)
            return
        begin = tool.started_at
        end = tool.ended_at or (on.end if row.since is not None else begin)
    yield _bar("bad" if row.bad else "ran", begin, end, on)


def _bar(kind: Literal["waited", "ran", "bad", "cut"], begin: int, end: int, on: Scale) -> Bar:
    at = min(on.place(begin), WIDTH - _THINNEST)
    return Bar(kind, at, max(_THINNEST, on.place(end) - at))


# --- sums


def totals(found: Timeline, now: int) -> Totals:
    answered = [
        Span(call.prepared_at, call.ended_at or now)
        for call in found.calls
        if call.ended_at or call.status in UNDER_WAY
    ]
    spent = usage.total(usage.read(_json(call.usage)) for call in found.calls if call.usage)
    return Totals(
        model=covered(answered),
        calls=len(found.calls),
        tools=covered(_ran(found.tools, now)),
        tool_calls=len(found.tools),
        waited=covered(_waited(found.tools, now)),
        tokens_in=spent.input_tokens,
        tokens_out=spent.output_tokens,
    )


def _waited(tools: Iterable[ToolHead], now: int) -> Iterator[Span]:
    """When tool calls waited for their caller, those that still do until `now`."""
    for tool in tools:
        if tool.approval_required and tool.asked_at is not None:
            ended = now if tool.status in OPEN else tool.asked_at
            yield Span(tool.asked_at, tool.answered_at or tool.started_at or tool.ended_at or ended)


def _json(text: str | None) -> object:
    try:
        return msgspec.json.decode(text or "null")
    except msgspec.DecodeError:
        return None
