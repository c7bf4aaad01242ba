"""The newest items of a conversation -> what they hold of a request; pure. Law: only what lies behind the last item that is
known for certain counts, so that a message that was said twice is not taken for the other."""

from collections.abc import Sequence
from typing import NamedTuple

from gateway.model import Json


class Found(NamedTuple):
    """`held`: so many of the items that were asked for, from the first on; `added`: what the backend put behind them."""

    held: int
    added: list[Json]


def find(newest_first: Sequence[Json], last_item: str | None, wanted: Sequence[Json], *, whole: bool) -> Found | None:
    """None when the list does not show where the last completed call ended; `whole`: it shows the beginning.

    `last_item` is what that call left last, None when there was no such call.
    """
    known = next((index for index, item in enumerate(newest_first) if item.get("id") == last_item), None)
    if known is None and (last_item is not None or not whole):
        return None
    since = list(reversed(newest_first[:known]))
    signs, looked_for = [_sign(item) for item in since], [_sign(item) for item in wanted]
    held, start = max((_agreeing(signs[start:], looked_for), start) for start in range(len(since) + 1))
    behind = since[start + held :] if held else []
    ends = next((index for index, item in enumerate(behind) if item.get("role") == "user"), len(behind))
    return Found(held, behind[:ends])


def _agreeing(signs: Sequence[Json], looked_for: Sequence[Json]) -> int:
    pairs = zip(signs, looked_for, strict=False)
    return next((index for index, (one, other) in enumerate(pairs) if one != other), min(len(signs), len(looked_for)))


def _sign(item: Json) -> Json:
    """What stays the same of an item that was sent: a server adds ids and statuses, and fields of its own to contents."""
    content = item.get("content")
    parts = [{"text": content}] if isinstance(content, str) else content or ()
    texts = [part.get("text") for part in parts if isinstance(part, dict)]
    answered = item.get("call_id") or item.get("approval_request_id")
    return item.get("type", "message"), item.get("role"), answered, texts
