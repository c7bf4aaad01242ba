"""Conditions with more than two words as comparisons, because SQLite fills a temporary table for each `IN` of each row that it
checks. What they say stays the same, and so do the rows.

Source: https://sqlite.org/lang_altertable.html, "Making Other Kinds Of Table Schema Changes".
"""

import re

from alembic import op

revision = "0005"
down_revision = "0004"
only_adds = True

_IN = re.compile(r"(?P<own>= \()?(?P<column>\w+) IN \((?P<words>'\w+'(?:, '\w+'){2,})\)(?(own)\))")
_LIVE = "(state != 'closed' AND state != 'expired' AND state != 'deleted')"


def upgrade() -> None:
    connection = op.get_bind()
    connection.exec_driver_sql("DROP INDEX uq_thread_live")
    tables = connection.exec_driver_sql(
        "SELECT name, sql FROM sqlite_schema WHERE type = 'table' AND sql LIKE '% IN (%'"
    )
    changed = [(_IN.sub(_comparisons, sql), name) for name, sql in tables]
    connection.exec_driver_sql("PRAGMA writable_schema = ON")
    connection.exec_driver_sql("UPDATE sqlite_schema SET sql = ? WHERE type = 'table' AND name = ?", changed)
    # This connection reads the schema again; all others do so because of the new index.
    connection.exec_driver_sql("PRAGMA writable_schema = RESET")
    connection.exec_driver_sql(f"CREATE UNIQUE INDEX uq_thread_live ON thread (context, agent) WHERE {_LIVE}")


def _comparisons(found: re.Match[str]) -> str:
    column, words = found["column"], found["words"].split(", ")
    return ("= " if found["own"] else "") + f"({' OR '.join(f'{column} = {word}' for word in words)})"
