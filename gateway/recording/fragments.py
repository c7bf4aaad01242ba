"""Arguments of tool calls that come in fragments: no path finds a value in a fragment, so the masked whole takes the place
of the first.

Law: what a reader of the stream puts together is the masked arguments.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from gateway.a2a.model import Json
from gateway.recording.lines import Event

_MARKS = (b"arguments", b"partial_json", b"ToolCallArguments")
"""An event without any of these words has no fragment."""


class _Fragment(msgspec.Struct):
    """A member of an event that is a part of the arguments of the call with this key."""

    key: tuple[Json, ...]
    holder: dict[str, Any]
    member: str


def is_fragment(block: bytes) -> bool:
    """Whether the event has a part of some arguments."""
    event = Event.of(block) if any(mark in block for mark in _MARKS) else None
    return event is not None and any(_fragments(event.name, _read(event.data)))


def joined(blocks: Sequence[bytes], masked: Callable[[str], str]) -> list[bytes]:
    """The events of a whole answer. `masked` masks the complete arguments, as JSON; those that it leaves stay in fragments."""
    events = [Event.of(block) for block in blocks]
    read: dict[int, Json] = {}
    calls: dict[tuple[Json, ...], list[tuple[int, _Fragment]]] = {}
    changed: set[int] = set()
    for number, event in enumerate(events):
        value = None if event is None else _read(event.data)
        for fragment in _fragments("" if event is None else event.name, value):
            calls.setdefault(fragment.key, []).append((number, fragment))
            read[number] = value
    for fragments in calls.values():
        given = "".join(each.holder[each.member] for _, each in fragments)
        whole = masked(given)
        if whole != given:
            for position, (number, each) in enumerate(fragments):
                each.holder[each.member] = "" if position else whole
                changed.add(number)
    return [_with(event, read[number]) if event and number in changed else block
            for number, (event, block) in enumerate(zip(events, blocks, strict=True))]  # fmt: skip


def _read(data: str) -> Json:
    return msgspec.json.decode(data)


def _with(event: Event, value: Json) -> bytes:
    return Event(event.name, msgspec.json.encode(value).decode(), event.frame).block()


def _fragments(name: str, value: Json) -> Iterator[_Fragment]:
    match value:
        case {"type": "content_block_delta", "index": at, "delta": {"partial_json": str()} as delta}:
            yield _Fragment(("block", at), delta, "partial_json")
        case {"type": str(kind), "delta": str()} if kind.endswith("arguments.delta"):
            yield _Fragment((kind, value.get("item_id"), value.get("output_index")), value, "delta")
        case {"call_id": at, "delta": str()} if name == "ToolCallArguments":
            yield _Fragment((name, at), value, "delta")
        case {"choices": [*choices]}:
            for choice in choices:
                yield from _of_choice(choice)
        case {"delta": {"step_details": {"tool_calls": [*calls]}}}:
            for call in calls:
                yield from _of_call(("step", value.get("id")), call)


def _of_choice(choice: Json) -> Iterator[_Fragment]:
    match choice:
        case {"delta": {"tool_calls": [*calls]}}:
            for call in calls:
                yield from _of_call(("choice", choice.get("index")), call)


def _of_call(key: tuple[Json, ...], call: Json) -> Iterator[_Fragment]:
    match call:
        case {"function": {"arguments": str()} as function}:
            yield _Fragment((*key, call.get("index")), function, "arguments")
