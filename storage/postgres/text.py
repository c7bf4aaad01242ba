"""SQL in the dialect of PostgreSQL, with its parameters. Law: a text has the name of the statement or query that it words.

PostgreSQL keeps no NUL in a text, and a handle or the arguments of a tool may have one. Such a text is stored with an escape in
front, a character that no language has, and with two characters for each NUL.
"""

import json
import re
from collections.abc import Callable

import msgspec

from storage.statement import Value, Values, picker

_ESCAPE = "\ufdd0"
_LIST = re.compile(r"jsonb_array_elements_text\((?:CAST\()?\$(\d+)")
_NUL, _ITSELF = f"{_ESCAPE}0", f"{_ESCAPE}1"


class Text(msgspec.Struct, frozen=True):
    """`names` are the parameters `$1`, `$2`, ..."""

    sql: str
    names: tuple[str, ...] = ()


class Prepared(msgspec.Struct, frozen=True):
    """A text as a connection runs it. `name` is that of the prepared statement, empty for one that is not prepared. `lists` are
    the places of parameters that are lists in JSON."""

    name: bytes
    sql: bytes
    parameters: Callable[[Values], tuple[Value, ...]]
    lists: tuple[int, ...] = ()


class Call(msgspec.Struct, frozen=True):
    """A text with its parameters on the wire."""

    text: Prepared
    parameters: list[bytes | None]
    formats: list[int] | None
    """Of each parameter, 1 where it is binary; None where none is."""


def prepared(name: str, text: Text) -> Prepared:
    lists = {int(place) - 1 for place in _LIST.findall(text.sql)}
    return Prepared(name.encode(), text.sql.encode(), picker(text.names), tuple(sorted(lists)))


def plain(sql: str, *names: str) -> Prepared:
    """One that runs too seldom to be prepared."""
    return prepared("", Text(sql, names))


def bound(text: Prepared, values: Values) -> Call:
    """Raises: KeyError, UnicodeEncodeError, TypeError."""
    given = text.parameters(values)
    if text.lists:
        given = tuple([_escaped_list(each) if place in text.lists else each for place, each in enumerate(given)])
    parameters: list[bytes | None] = []
    binary = False
    # A turn binds some hundred values: in one loop they take half of the time that a function for each takes.
    for value in given:
        if isinstance(value, str):
            parameters.append(escaped(value).encode())
        elif value is None:
            parameters.append(None)
        elif isinstance(value, int):
            parameters.append(b"%d" % value)
        elif isinstance(value, bytes):
            parameters.append(value)
            binary = True
        else:
            raise TypeError(f"no column holds a {type(value).__name__}")
    return Call(text, parameters, [int(isinstance(each, bytes)) for each in given] if binary else None)


def escaped(text: str) -> str:
    """As the database keeps it."""
    if "\0" not in text and text[:1] != _ESCAPE:
        return text
    return _ESCAPE + text.replace(_ESCAPE, _ITSELF).replace("\0", _NUL)


def _escaped_list(value: Value) -> Value:
    """A list in JSON whose texts are compared with columns."""
    if not isinstance(value, str) or ("u0000" not in value and _ESCAPE not in value):
        return value
    # In ASCII, so that it is not escaped as a text itself.
    return json.dumps([escaped(each) if isinstance(each, str) else each for each in msgspec.json.decode(value)])


def decoded(value: bytes) -> str:
    """A text as it was given."""
    return unescaped(value.decode())


def unescaped(text: str) -> str:
    return text[1:].replace(_NUL, "\0").replace(_ITSELF, _ESCAPE) if text[:1] == _ESCAPE else text
