"""The forms in which a secret may stand in a text. Law: one table for all that mask."""

import base64
import html
import json
from collections.abc import Iterator
from urllib.parse import quote, quote_plus

import msgspec

SHORTEST_SECRET = 4
"""Characters. Anybody can guess a shorter one, which is a part of many words."""


def spellings(secret: str) -> Iterator[str]:
    """The secret as it is, and as a service may quote it: in JSON, in HTML, in an address, in Base64."""
    yield secret
    yield msgspec.json.encode(secret).decode()[1:-1]
    yield from (json.dumps(secret)[1:-1], secret.replace("/", "\\/"))
    yield from (html.escape(secret, quote=False), html.escape(secret))
    yield from (quote(secret, safe=""), quote_plus(secret))
    yield base64.b64encode(secret.encode()).decode().rstrip("=")
