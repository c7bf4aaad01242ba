"""Words for people out of pieces of stored JSON. Law: a piece may begin and end anywhere, and may be damaged; it is never
decoded as a whole."""

import json
import re

_TEXT = re.compile(r'"text":"((?:[^"\\]|\\.)*)')
_STRING = re.compile(r'"((?:[^"\\]|\\.)*)("?)(:?)')


def first_text(piece: str | None, most: int) -> str:
    """The beginning of the first text of a message, at most so many characters; empty where there is none."""
    found = _TEXT.search(piece or "")
    return "" if found is None else _told(found[1])[:most]


def needle(text: str) -> str:
    """How a text stands in JSON, with small letters of ASCII."""
    return _small(json.dumps(text, ensure_ascii=False)[1:-1])


def text_around(piece: str | None, wanted: str, most: int) -> str | None:
    """At most so many characters around the first place of `wanted`, a `needle`, in a value; None where only names of fields
    have it. A piece that begins within a value begins with its rest."""
    whole = piece or ""
    # A quote in front makes a string of what the piece begins with; then of what it really is.
    for candidate in (whole, f'"{whole}'):
        for found in _STRING.finditer(candidate):
            place = _small(found[1]).find(wanted)
            if place >= 0 and not found[3]:
                begin = max(0, place - (most - len(wanted)) // 2)
                return _told(found[1][begin : begin + most])
    return None


def _small(text: str) -> str:
    return "".join([letter.lower() if letter.isascii() else letter for letter in text])


def _told(inner: str) -> str:
    """The inside of a string of JSON; as it stands there where an escape was cut."""
    try:
        text = str(json.loads(f'"{inner}"', strict=False))
    except ValueError:
        return inner
    return text.encode(errors="replace").decode()


def correlation_id(piece: str | None) -> str | None:
    """The id with which the piece begins; None for one that goes on behind the piece."""
    found, quote, _ = (piece or "").partition('"')
    return found if quote else None
