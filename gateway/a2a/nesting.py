"""How deep JSON may be nested, whoever made it. Law: nothing deeper is stored, so that everything that is stored can be read.

Decoders recurse, and each has a limit of its own: a value of about a thousand levels can be written and never be read again.
"""

import msgspec

from gateway.a2a.model import Json

DEEPEST = 100
"""The most lists and objects, each in the other, of a value that is stored. The events, items and documents that hold such
a value add a few levels."""

TOO_DEEP = f"nested more than {DEEPEST} deep"


class TooDeep(msgspec.DecodeError):
    """The text is JSON, or begins like JSON, and is nested more than `DEEPEST` deep."""


_LISTS = (list, tuple)
_NESTED = (dict, *_LISTS)


def fits(value: object) -> bool:
    """Whether the value is nested at most `DEEPEST` deep."""
    if not isinstance(value, _NESTED):  # as most are
        return True
    layer: list[object] = [value]
    for _ in range(DEEPEST):
        below: list[object] = []
        for each in layer:
            if isinstance(each, dict):
                below += each.values()
            elif isinstance(each, _LISTS):
                below += each
        if not below:
            return True
        layer = below
    return not any(isinstance(each, _NESTED) for each in layer)


def decode(text: str) -> Json:
    """The JSON value of the text. Raises: msgspec.DecodeError; TooDeep, which is one."""
    try:
        value: Json = msgspec.json.decode(text)
    except RecursionError:
        raise TooDeep(TOO_DEEP) from None
    # The number of brackets bounds the depth: counting is cheap and spares nearly every text the exact measure.
    if text.count("[") + text.count("{") > DEEPEST and not fits(value):
        raise TooDeep(TOO_DEEP)
    return value
