"""The ids of jobs at backends, which name the thread and what the job is about. Law: pure; a file keeps them whole, PostgreSQL
and the rows that are copied as short as its indexes take them.
"""

from hashlib import sha256

from gateway.ledger.rows import Row, RowTable

_NAMED = {"delete_job": ("handle",), "withdrawal": ("handle", "run")}
"""The columns that the id of a job names."""

LONGEST = 2000
"""Bytes of what is named. An index of PostgreSQL takes 2,704 bytes of all columns."""


def has_jobs(table: RowTable) -> bool:
    return table.name in _NAMED


def short_id(whole: str) -> str:
    """The id in PostgreSQL; there `short` in `storage/sql/fragments.py` makes the same."""
    thread, space, named = whole.partition(" ")
    return thread + space + _short(named)


def whole_ids(table: RowTable, row: Row) -> Row:
    """The row as a file has it."""
    values = dict(zip(table.columns, row, strict=True))
    thread, space, found = str(values["id"]).partition(" ")
    named = " ".join([str(values[name]) for name in _NAMED[table.name]])
    if found != _short(named):
        return row
    values["id"] = thread + space + named
    return tuple(values.values())


def _short(named: str) -> str:
    content = named.encode()
    return named if len(content) <= LONGEST else sha256(content).hexdigest()
