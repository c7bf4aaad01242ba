"""Arguments of tool calls that come in fragments: no path finds a value in a fragment, so the masked whole takes the place
of the first.

Law: what a reader of the stream puts together is the masked arguments.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from gateway.a2a.model import Json
from gateway.recording.lines import Event


class _Fragment(msgspec.Struct):
    """A member of an event that is a part of the arguments of the call with this key."""

    key: tuple[Json, ...]
    holder: dict[str, Any]
    member: str


def joined(blocks: Sequence[bytes], masked: Callable[[str], str]) -> list[bytes]:
    """The events of a whole answer. `masked` masks the complete arguments, as JSON."""
    events = [Event.of(block) for block in blocks]
    values: dict[int, Json] = {}
    calls: dict[tuple[Json, ...], list[_Fragment]] = {}
    for number, event in enumerate(events):
        value = None if event is None else _read(event.data)
        for fragment in _fragments("" if event is None else event.name, value):
            values[number] = value
            calls.setdefault(fragment.key, []).append(fragment)
    for fragments in calls.values():
        whole = masked("".join(each.holder[each.member] for each in fragments))
        for position, each in enumerate(fragments):
            each.holder[each.member] = "" if position else whole
    return [_with(event, values[number]) if event and number in values else block
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
