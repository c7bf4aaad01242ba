"""Compiled SQL as writers and readers use it. Law: no SQLAlchemy here, so that running needs none of it; a name stands for the
same statement or query in every dialect."""

from collections.abc import Callable
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, NamedTuple

Value = str | int | bytes | None
Values = dict[str, Value]


@dataclass(frozen=True, slots=True, eq=False)
class Statement:
    """A prepared statement in SQLite's dialect, equal to itself alone. `what` names the action in error texts. `rows` is the
    number of rows that the statement must change, or None for any number.

    `names` are the parameters for the question marks of the SQL, in order: SQLite binds them in less time than
    parameters with names.
    """

    name: str
    what: str
    sql: str
    rows: int | None = 1
    names: tuple[str, ...] = ()
    parameters: Callable[[Values], tuple[Value, ...]] = field(init=False, repr=False, compare=False)
    """The parameters in the order of `names`."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "parameters", picker(self.names))


def picker(names: tuple[str, ...]) -> Callable[[Values], tuple[Value, ...]]:
    match names:
        case ():
            return lambda _: ()
        case (name,):
            return lambda values: (values[name],)
        case _:
            return itemgetter(*names)


class Query(NamedTuple):
    """A prepared query in SQLite's dialect, with parameters as `:name`."""

    name: str
    sql: str


Row = tuple[Any, ...]

Step = tuple[Statement, Values]
"""A statement and its parameters."""
