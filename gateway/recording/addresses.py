"""Passwords and parameters with the name of a secret, in addresses and forms. Law: pure; only the values are masked, and
what is encoded in a value is read as a text of its own."""

import re
from collections.abc import Callable
from urllib.parse import quote, unquote

MOST_ENCODINGS = 4
"""How often a value may be encoded, and how many addresses may stand in one another."""

_USER = re.compile(r"(:(?:\\{0,15}/){2}[^\s/?#:\"'\\<>]*:)[^\s/?#\"'\\<>]+(?=@)")
"""What stands before a password, which reaches to the last `@` of the authority."""
_SIGNS = r"\w.\-+%\[\]"
"""Those of names."""
_NAME = re.compile(rf"[?&;#]([{_SIGNS}]{{1,200}})=")
_FIRST = re.compile(rf"(?=\S+\Z)([{_SIGNS}]{{1,200}})=")
"""The first name of a text that is a form as a whole."""
_REST = rf";(?![{_SIGNS}]{{1,200}}=)"
"""A sign that is a part of a value, as no other parameter begins behind it."""
_VALUE_IN_TEXT = re.compile(rf"[^\s&#;\"'<>\\]*(?:{_REST}[^\s&#;\"'<>\\]*)*")
_VALUE = re.compile(rf"[^&#;]*(?:{_REST}[^&#;]*)*")
_LEFT = "[]!$'()*,:@/?"


def masked(
    text: str,
    is_secret: Callable[[str], bool],
    mask: Callable[[], str],
    inner: Callable[[str], str],
    *,
    whole: bool = False,
) -> str:
    """`is_secret` is asked for each parameter, whose name may be encoded. `inner` masks what a value has encoded. `whole`: the
    text is an address, and not one with addresses in it."""
    text = _USER.sub(lambda found: found[1] + mask(), text)
    values = _VALUE if whole else _VALUE_IN_TEXT
    pieces, begin, end = list[str](), 0, 0
    found = _first(text)
    while found is not None:
        at = found.end()
        following = _NAME.search(text, at)
        # A parameter inside the value of another ends with it, and was read with it once.
        is_inside = at < end
        if not is_inside:
            end = _end(values, text, at)
        if at < end and is_secret(found[1]):
            last, value = end, mask()
        else:
            last = min(end, following.start()) if is_inside and following is not None else end
            value = _encoded(text[at:last], inner)
        if value != text[at:last]:
            pieces += [text[begin:at], value]
            begin, following = last, _NAME.search(text, last)
        found = following
    return "".join([*pieces, text[begin:]])


def _encoded(value: str, inner: Callable[[str], str], times: int = MOST_ENCODINGS) -> str:
    read = unquote(value) if "%" in value else value
    if read == value or not times:
        return value
    covered = inner(read)
    if covered == read:
        # What a parameter of it has encoded was read with it.
        parameter = _first(read)
        rest = len(read) if parameter is None else parameter.start()
        covered = _encoded(read[:rest], inner, times - 1) + read[rest:]
    return value if covered == read else quote(covered, safe=_LEFT)


def _first(text: str) -> re.Match[str] | None:
    return _FIRST.match(text) or _NAME.search(text)


def _end(pattern: re.Pattern[str], text: str, at: int) -> int:
    found = pattern.match(text, at)
    return at if found is None else found.end()
