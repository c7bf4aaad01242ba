"""The places of lists in the addresses of their pages."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import TypeVar
from urllib.parse import urlencode

import msgspec

from gateway.a2a.errors import invalid
from gateway.ui.visit import Visit

K = TypeVar("K")


def given(text: str | None, kind: type[K]) -> K | None:
    """The place that a page has named, None for none. Raises: InvalidParams."""
    if not text:
        return None
    try:
        return msgspec.json.decode(urlsafe_b64decode(text + "=" * (-len(text) % 4)), type=kind)
    except (ValueError, msgspec.DecodeError):
        raise invalid("page", "is no place of this list: go back to its beginning") from None


def named(visit: Visit, name: str, key: object | None) -> str | None:
    """The address of this page at another place of its list, with the same filters; None without a place."""
    if key is None:
        return None
    text = urlsafe_b64encode(msgspec.json.encode(key)).decode().rstrip("=")
    return f"?{urlencode({**visit.query, name: text})}"
