"""Text that others have written, as HTML. Law: pure; what comes out is inert wherever it stands, and shows each character that
would not be seen."""

import re

import msgspec
from markupsafe import Markup, escape

LIMIT = 2000
"""Characters of a text that are shown where nothing else is said."""

_UNSEEN = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u0600-\u0605\u061c\u06dd\u070f\u115f\u1160\u17b4\u17b5\u180b-\u180f"
    r"\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ud800-\udfff\ue000-\uf8ff\ufe00-\ufe0e\ufeff\uffa0\ufff0-\uffff"
    r"\U0001d173-\U0001d17a\U000e0000-\U0010ffff]"
    r"|[\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f]{4,}"
)
"""Controls, marks of direction, characters without width or meaning, halves of characters, and heaps of accents."""

_SHOWN = 8
"""Code points of a heap that are named."""


def foreign(value: object, limit: int = LIMIT) -> Markup:
    """The text on its own: it reads in its own direction and moves nothing beside it. A value that is no text is shown as
    JSON. `limit` is a number of characters; behind them stands how many are left out."""
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return Markup("<bdi>{}</bdi>{}").format(_visible(text[:limit]), _rest(len(text) - limit))


def short(value: str, limit: int) -> Markup:
    """A text whose whole stands elsewhere: its beginning, and an ellipsis where more is left out."""
    return foreign(value if len(value) <= limit else f"{value[:limit]}…", limit + 1)


def plain(value: str, limit: int = 200) -> str:
    """For places that hold no HTML, such as a title: without what is not seen."""
    return _UNSEEN.sub("\N{REPLACEMENT CHARACTER}", value[:limit])


def visible(text: str) -> str:
    """For answers that are plain text: what is not seen is named."""
    return _UNSEEN.sub(lambda found: f"\u27e8{_names(found[0])}\u27e9", text)


def _visible(text: str) -> Markup:
    pieces: list[Markup] = []
    position = 0
    for found in _UNSEEN.finditer(text):
        pieces += [escape(text[position : found.start()]), _named(found[0])]
        position = found.end()
    return Markup("").join([*pieces, escape(text[position:])])


def _named(characters: str) -> Markup:
    return Markup('<span class="unseen">{}</span>').format(_names(characters))


def _names(characters: str) -> str:
    names = " ".join(f"U+{ord(character):04X}" for character in characters[:_SHOWN])
    return names if len(characters) <= _SHOWN else f"{names} and {len(characters) - _SHOWN} more"


def _rest(count: int) -> Markup:
    return Markup("") if count <= 0 else Markup(' <span class="cut">… {} more characters</span>').format(f"{count:,}")
