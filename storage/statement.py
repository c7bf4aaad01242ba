"""What compiled SQL looks like to those who run it. Law: no SQLAlchemy here, so that running needs none of it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Statement:
    """`what` it does, for messages. `rows`: how many it must touch; None where any number is right."""

    what: str
    sql: str
    rows: int | None = 1


@dataclass(frozen=True, slots=True)
class Listing:
    """The two queries of one combination of filters: a page, and how many match on all pages."""

    page: str
    total: str


Value = str | int | bytes | None
Step = tuple[Statement, dict[str, Value]]
"""A statement and its parameters."""
