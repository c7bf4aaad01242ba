"""Text that others have written, for pages of any kind. Law: pure; what comes out is inert wherever it stands, and shows each
character that would not be seen."""

import re
from collections.abc import Collection

import msgspec
from markupsafe import Markup, escape

LIMIT = 2000
"""Characters of a text that are shown where nothing else is said."""

_UNSEEN = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u115f\u1160\u17b4\u17b5\u180b-\u180f"
    r"\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ud800-\udfff\ue000-\uf8ff\ufdd0-\ufdef\ufe00-\ufe0e\ufeff\uffa0\ufff0-\uffff"
    r"\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U0010ffff]"
    r"|[\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f]{4,}"
)
"""Controls, marks of direction, characters without width or meaning, halves of characters, and heaps of accents."""

UNSEEN_IN_SCRIPTS = re.sub(r"\\U([0-9a-f]{8})", r"\\u{\1}", _UNSEEN.pattern)
"""The same as a pattern of JavaScript, with the flag `u`: scripts show text of others as these pages do."""

_JOINERS = frozenset({"\u200c", "\u200d"})
_BREAKS = re.compile(r"[\n\r\t]")

SHOWN = 8
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


def visible(text: str, kept: Collection[str] = ()) -> str:
    """For answers that are plain text: what is not seen is named, except what is `kept`."""
    return _UNSEEN.sub(lambda found: found[0] if found[0] in kept else f"\u27e8{_names(found[0])}\u27e9", text)


def one_line(text: str, limit: int) -> str:
    """The beginning of a text, for a line among others: what is not seen is named, except the characters that join words of
    several scripts, and emoji."""
    shown = visible(_BREAKS.sub(" ", text[:limit]), kept=_JOINERS)
    return shown if len(text) <= limit else f"{shown}…"


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
    names = " ".join(f"U+{ord(character):04X}" for character in characters[:SHOWN])
    return names if len(characters) <= SHOWN else f"{names} and {len(characters) - SHOWN} more"


def _rest(count: int) -> Markup:
    return Markup("") if count <= 0 else Markup(' <span class="cut">… {} more characters</span>').format(f"{count:,}")
