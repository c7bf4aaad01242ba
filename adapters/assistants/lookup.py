"""Which run a request has begun, and how far it came. Law: pure; a run says itself which messages it brought.

The digests of these messages are in the run's metadata, so that a message that was said twice is not taken for the other.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from itertools import dropwhile

from adapters.assistants import wire
from gateway.ports.conversation import Item, OutputItem, encode

BROUGHT = "a2a_gateway_messages"
"""The key of a run's metadata with the number of its messages, and the digests of the first of them."""

_DIGITS = 12
_MOST = 38
"""Digests that have room beside the number in the 512 characters of a value of the metadata."""


def digests(new: Sequence[Item]) -> str:
    return f"{len(new)}:{','.join(map(_digest, new[:_MOST]))}"


def brought(metadata: Mapping[str, str] | None, new: Sequence[Item]) -> int:
    """The number of these items, from the first on, that a run with this metadata brought."""
    total, _, listed = (metadata or {}).get(BROUGHT, "").partition(":")
    known = listed.split(",")
    pairs = zip(known, map(_digest, new), strict=False)
    same = next((index for index, (one, other) in enumerate(pairs) if one != other), min(len(known), len(new)))
    return min(int(total), len(new)) if same == _MOST else same


def is_waiting_for(run: wire.Run, answers: Sequence[OutputItem]) -> bool:
    """Whether the run still waits for these outcomes, so that they have not reached it."""
    calls = run.required_action.calls if run.required_action is not None else ()
    return run.status == wire.WAITING and {call.id for call in calls} <= {answer.call_id for answer in answers}


def steps_since(steps: Sequence[wire.Step], first: str) -> Iterator[wire.Step]:
    """The steps from `first` on; all where it is "", or unknown."""
    if any(step.id == first for step in steps):
        return dropwhile(lambda step: step.id != first, steps)
    return iter(steps)


def _digest(item: Item) -> str:
    return hashlib.sha256(encode(item)).hexdigest()[:_DIGITS]
