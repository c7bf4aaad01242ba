"""The texts in which rules and decisions see a value of a tool call. Law: pure; a number is compared by its value, however
a model has written it; time is linear in the text.

A model chooses between `100`, `100.0` and `1e2`, and an integer parameter makes the same of all of them.
"""

import math
from collections.abc import Callable, Iterator
from decimal import Decimal

import msgspec

from gateway.a2a import nesting
from gateway.a2a.model import Json

_MOST_DIGITS = 1000
"""Of a number in a text before its exponent is cut. JSON has none of so many, because it has no number above 1.8e308."""

_canonical = msgspec.json.Encoder(order="sorted")


def as_written(value: Json) -> str:
    """A text as it is, any other value as the JSON that a tool gets."""
    return value if isinstance(value, str) else _canonical.encode(value).decode()


def plain(value: Json) -> str:
    """The same with all numbers in digits, without an exponent and without zeros at the end of a fraction. A text that is a
    number is one: an argument of Python's `Decimal` takes it."""
    return _spelt(value, _in_digits)


def all_texts(value: Json) -> Iterator[str]:
    """Each text that the value may have: in digits, as the model wrote it, and as a tool gets it that has only floats, or
    that makes an integer of a float."""
    yield as_written(value)
    for spell in (_in_digits, _rounded, _with_point):
        yield _spelt(value, spell)


def of_magnitude(value: Json) -> str:
    """`plain`, for a value whose text as written may hide how large it is; `007` is no number here."""
    return value if isinstance(value, str) and "e" not in value.casefold() else plain(value)


def means(pattern: str, value: Json) -> bool:
    """Whether the pattern, without wildcards, is another spelling of the value."""
    same = plain(value)
    return plain(pattern) == same or _plain_json(pattern) == same


def _plain_json(pattern: str) -> str | None:
    try:
        return plain(nesting.decode(pattern))
    except (msgspec.DecodeError, UnicodeEncodeError):
        return None


def _spelt(value: Json, spell: Callable[[Decimal], str]) -> str:
    if isinstance(value, str):
        number = _number(value)
        return value if number is None else spell(number)
    return _canonical.encode(_with_numbers(value, spell)).decode()


def _with_numbers(value: Json, spell: Callable[[Decimal], str]) -> object:
    match value:
        case bool():
            return value
        case int():
            return msgspec.Raw(spell(Decimal(value)).encode())
        case float():
            return msgspec.Raw(spell(Decimal(repr(value))).encode())
        case list():
            return [_with_numbers(each, spell) for each in value]
        case dict():
            return {name: _with_numbers(each, spell) for name, each in value.items()}
    return value


def _number(text: str) -> Decimal | None:
    """The number that Python's `Decimal` makes of the text, or None."""
    try:
        number = Decimal(text)
    except ArithmeticError:
        return None
    return number if number.is_finite() else None


def _in_digits(number: Decimal) -> str:
    if abs(number.adjusted()) > _MOST_DIGITS:
        sign, digits, exponent = number.as_tuple()
        number = Decimal((sign, digits, max(-_MOST_DIGITS, min(_MOST_DIGITS, int(exponent)))))
    text = format(number, "f")
    text = text.rstrip("0").removesuffix(".") if "." in text else text
    return "0" if number == 0 else text


def _rounded(number: Decimal) -> str:
    """The digits of the integer that Python makes of the float of a whole number."""
    near = float(number)
    return _in_digits(Decimal(near) if near.is_integer() else number)


def _with_point(number: Decimal) -> str:
    near = float(number)
    return msgspec.json.encode(near).decode() if math.isfinite(near) else _in_digits(number)
