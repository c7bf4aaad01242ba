"""JSON that passes on what others have written -> values that can be stored. Law: one value that cannot be kept costs that
value, and not what stands beside it.

A service that passes the text of a bot on as it is (Microsoft's do) passes on half of a surrogate pair where the bot has cut a
text in the middle of a character.
"""

import re

import msgspec

from adapters.http.half_characters import with_whole_characters
from gateway.a2a.model import Json
from gateway.a2a.nesting import DEEPEST

_MARK = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)
_AROUND = 10
"""Levels of the envelope around a message, and of the message around what it carries."""


def decode(content: bytes) -> Json:
    """Half a surrogate pair and a byte that is no UTF-8 become U+FFFD, and what is nested too deep becomes null.

    Raises: ValueError for what is no JSON.
    """
    try:
        return msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        text = with_whole_characters(content).decode("utf-8", "replace")
    try:
        return msgspec.json.decode(_shallow(text))
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error


def _shallow(text: str) -> str:
    kept: list[str] = []
    depth = done = 0
    for mark in _MARK.finditer(text):
        if mark[0] in "[{":
            depth += 1
            if depth == DEEPEST + _AROUND:
                kept += text[done : mark.start()], "null"
        elif mark[0] in "]}":
            if depth == DEEPEST + _AROUND:
                done = mark.end()
            depth -= 1
    return "".join((*kept, text[done:]))
