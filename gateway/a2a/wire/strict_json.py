"""Untrusted JSON bytes to values. Law: JSON that two parsers could read differently is refused, and never stored.

Refused beyond RFC 8259: a byte order mark, duplicate keys, NaN and infinities (also as 1e999), integers of more than 20
digits, deep nesting; and, by `check_text`, NUL and lone surrogates inside strings.
"""

import json
import math
import re
from itertools import accumulate
from typing import NoReturn

from gateway.a2a.errors import ParseError, echo, invalid
from gateway.a2a.model import Json

MAX_INTEGER_DIGITS = 20
VALUES = 250_000
"""The most values of a request, arrays and objects counted twice. Each takes up to a hundred bytes of memory, and eleven of
protobuf for its two of JSON; protobuf has a limit of the same kind."""

_SPACE = " \t\n\r"

_STRINGS = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\Z)', re.DOTALL)
_STEPS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
_NO_BRACKETS = bytes(set(range(256)) - set(b"[{]}"))
_SUSPECT = re.compile(rb"\\u(?:0000|[dD][89a-fA-F])")
_UNSAFE = re.compile(r"[\x00\ud800-\udfff]")


def _object(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    members = dict(pairs)
    if len(members) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise ParseError(f"Invalid JSON payload: the key {echo(key)} is given twice in one object")
            seen.add(key)
    return members


def _integer(digits: str) -> int:
    if len(digits) > MAX_INTEGER_DIGITS and len(digits.lstrip("-")) > MAX_INTEGER_DIGITS:
        raise ParseError(f"Invalid JSON payload: an integer has more than {MAX_INTEGER_DIGITS} digits: {echo(digits)}")
    return int(digits)


def _number(digits: str) -> float:
    value = float(digits)
    if math.isinf(value):
        raise ParseError(f"Invalid JSON payload: the number {echo(digits)} is out of range")
    return value


def _constant(name: str) -> NoReturn:
    raise ParseError(f"Invalid JSON payload: {name} is not JSON")


_decoder = json.JSONDecoder(
    object_pairs_hook=_object, parse_int=_integer, parse_float=_number, parse_constant=_constant
)


def decode(body: bytes, max_depth: int, values: int | None = None) -> Json:
    """The value. `values` is the most that it may hold, None stands for any number. Raises: ParseError."""
    if values is not None and _marks(body) > values and _marks(_STRINGS.sub(b"", body)) > values:
        raise ParseError(f"Invalid JSON payload: it has more than {values} values")
    # The number of brackets bounds the depth: counting is cheap and spares nearly every body the exact measure.
    if body.count(b"[") + body.count(b"{") > max_depth and _depth(body) > max_depth:
        raise ParseError(f"Invalid JSON payload: it is nested deeper than {max_depth} levels")
    try:
        text = body.decode("utf-8")
        if text.startswith("{"):
            # Without the search for white space in front of it and behind it.
            value, end = _decoder.raw_decode(text)
            if end == len(text) or not text[end:].strip(_SPACE):
                return value
        return _decoder.decode(text)
    except UnicodeDecodeError as error:
        raise ParseError(f"Invalid JSON payload: it is not UTF-8 at byte {error.start}") from None
    except json.JSONDecodeError as error:
        if error.pos == 0 and body.startswith(b"\xef\xbb\xbf"):
            raise ParseError("Invalid JSON payload: it starts with a byte order mark") from None
        where = f"line {error.lineno}, column {error.colno}"
        raise ParseError(f"Invalid JSON payload: it is no JSON from {where} on") from None
    except RecursionError:
        raise ParseError("Invalid JSON payload: it is nested too deeply") from None


def _marks(body: bytes) -> int:
    return body.count(b",") + body.count(b"[") + body.count(b"{")


def _depth(body: bytes) -> int:
    brackets = _STRINGS.sub(b"", body).translate(_STEPS, _NO_BRACKETS)
    return max(accumulate(memoryview(brackets).cast("b")), default=0)


def check_text(body: bytes, value: Json) -> None:
    """Refuses strings with NUL or a lone surrogate. `value` is the value of `body`, or a part of it.

    Raises: InvalidParams, which names the field, for example `message.parts[0].text`.
    """
    if _SUSPECT.search(body) is not None:
        check_strings(value)


def check_strings(value: Json) -> None:
    """The same for a value of which no body is known to be free of both."""
    pending: list[tuple[str, Json]] = [("", value)]
    while pending:
        path, item = pending.pop()
        match item:
            case str() if found := _UNSAFE.search(item):
                what = "NUL" if found[0] == "\0" else "a lone surrogate"
                raise invalid(path, f"must not contain {what}")
            case dict():
                for key, member in item.items():
                    # An unsafe key is quoted, so that the path stays printable.
                    name = echo(key) if _UNSAFE.search(key) else key
                    inner = f"{path}.{name}" if path else name
                    pending.extend(((inner, key), (inner, member)))
            case list():
                pending.extend((f"{path}[{index}]", member) for index, member in enumerate(item))
