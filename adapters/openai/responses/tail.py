"""The newest items of a conversation -> how much of a request they hold; pure. Law: only items after the last one that is
known for certain count, so that a message that was sent twice is not taken for the other.
"""

from collections.abc import Sequence
from typing import NamedTuple

from gateway.a2a.model import Json


class TailMatch(NamedTuple):
    """`held`: the number of wanted items, from the first on; `added`: the backend's items after them."""

    held: int
    added: list[Json]


def match_tail(
    newest_first: Sequence[Json], last_item: str | None, wanted: Sequence[Json], *, whole: bool
) -> TailMatch | None:
    """None when the list does not show where the last completed call ended. `whole`: the list shows the beginning.

    `last_item` is the last item of that call, None when there was no such call.
    """
    known = next((index for index, item in enumerate(newest_first) if item.get("id") == last_item), None)
    if known is None and (last_item is not None or not whole):
        return None
    since = list(reversed(newest_first[:known]))
    signs, looked_for = [_sign(item) for item in since], [_sign(item) for item in wanted]
    held, start = max((_common(signs[start:], looked_for), start) for start in range(len(since) + 1))
    after = since[start + held :] if held else []
    end = next((index for index, item in enumerate(after) if item.get("role") == "user"), len(after))
    return TailMatch(held, after[:end])


def _common(signs: Sequence[Json], looked_for: Sequence[Json]) -> int:
    """Length of the common beginning."""
    pairs = zip(signs, looked_for, strict=False)
    return next((index for index, (one, other) in enumerate(pairs) if one != other), min(len(signs), len(looked_for)))


def _sign(item: Json) -> Json:
    """The part of a sent item that the server does not change: it adds ids, statuses, and fields in contents."""
    content = item.get("content")
    parts = [{"text": content}] if isinstance(content, str) else content or ()
    texts = [part.get("text") for part in parts if isinstance(part, dict)]
    answered = item.get("call_id") or item.get("approval_request_id")
    return item.get("type", "message"), item.get("role"), answered, texts
