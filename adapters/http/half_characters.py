"""Characters that come in halves -> whole characters. Law: a text that was cut between the two UTF-16 units of a character is
the same text when its pieces are joined; no half is left where a decoder of JSON would refuse it.

Servers in JavaScript cut a text into events by its UTF-16 units. JSON shows half a character as `\\ud83d` or `\\ude00`. Source:
RFC 8259, section 8.2.
"""

import re

_MOST_HELD = 64
"""Names under which a half waits. A stream has a few."""

_HIGH = rb"\\u[dD][89abAB][0-9a-fA-F]{2}"
_LOW = rb"\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_ESCAPE = re.compile(rb"%b%b|(?P<half>%b|%b)|\\." % (_HIGH, _LOW, _HIGH, _LOW), re.DOTALL)
_STRING = re.compile(rb'"((?:[^"\\]++|\\.)*+)"(\s*+:)?', re.DOTALL)
"""A string; with its colon, where it is the name of a member."""
_HALF = rb"\\u[dD][89a-fA-F]"
_find_half = re.compile(_HALF).search
_is_free_of_halves = re.compile(rb"(?:[^\\]++|%b%b|(?!%b)\\.)*+" % (_HIGH, _LOW, _HALF), re.DOTALL).fullmatch
_is_high = re.compile(_HIGH).fullmatch
_begins_low = re.compile(_LOW).match
_REPLACEMENT = rb"\ufffd"


def with_whole_characters(document: bytes) -> bytes:
    """The JSON with U+FFFD in the place of each half that stands alone."""
    return _ESCAPE.sub(_whole, document) if _has_half(document) else document


class HalfCharacters:
    """Joins the halves of the characters of one stream of JSON texts.

    The first half at the end of a string waits for the second half at the beginning of a string of the same name in a later
    event. One whose second half never comes is left out; any other half becomes U+FFFD.
    """

    __slots__ = ("_found", "_held", "_name")

    def __init__(self) -> None:
        self._held: dict[bytes, list[bytes]] = {}
        """By the name of their strings, those of the latest event with any."""
        self._found: dict[bytes, list[bytes]] = {}
        """The same of the event that is read."""
        self._name = b""

    def join(self, data: bytes) -> bytes:
        """The data of the next event."""
        if not _has_half(data):
            return data
        self._name, self._found = b"", {}
        joined = _STRING.sub(self._joined, data)
        for name, halves in self._found.items():
            self._held.pop(name, None)
            self._held[name] = halves
        while len(self._held) > _MOST_HELD:
            del self._held[next(iter(self._held))]
        return joined

    def _joined(self, string: re.Match[bytes]) -> bytes:
        content, colon = string.groups(b"")
        if colon:
            self._name = content
        else:
            content = self._with_held(content)
        return b'"%b"%b' % (_ESCAPE.sub(_whole, content), colon)

    def _with_held(self, content: bytes) -> bytes:
        """The content behind the half that waits for it, and without a half that has to wait."""
        if _begins_low(content) and (waiting := self._held.get(self._name)):
            content = waiting.pop(0) + content
        last = content[-len(_REPLACEMENT) :]
        if _is_high(last) and _ESCAPE.findall(content)[-1] == last:
            content = content[: -len(last)]
            self._found.setdefault(self._name, []).append(last)
        return content


def _has_half(data: bytes) -> bool:
    """Whether any half stands alone."""
    return _find_half(data) is not None and _is_free_of_halves(data) is None


def _whole(escape: re.Match[bytes]) -> bytes:
    return _REPLACEMENT if escape["half"] else escape[0]
