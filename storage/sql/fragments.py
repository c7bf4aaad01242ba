"""Parts of statements and queries. Law: only `storage.sql.compile`, migrations and tests import SQL clauses; what runs imports
their text from `storage.compiled`. What differs between dialects is spelled here."""

from typing import Any

import msgspec
from sqlalchemy import Column, Select, Table, and_, bindparam, exists, func, literal_column, or_, select
from sqlalchemy.dialects import postgresql
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.expression import ClauseElement, ColumnElement, FromClause, TextClause
from sqlalchemy.sql.functions import GenericFunction

from gateway.ledger.leases import LONGEST_LEASE
from storage.job_ids import LONGEST
from storage.schema.tables import context, delete_job, history_item, service_call, task, thread, tool_call, turn

ONE: ColumnElement[int] = literal_column("1")
ZERO: ColumnElement[int] = literal_column("0")

upsert = postgresql.insert
"""An INSERT with ON CONFLICT. That of this dialect compiles for SQLite as well, but not the reverse."""


class Write(msgspec.Struct, frozen=True):
    """A statement that writes. `what` describes the statement in error texts. `rows` is the number of rows that it must
    change, or None for any number."""

    what: str
    clause: ClauseElement
    rows: int | None = 1


def unindexed(column: ColumnElement[str]) -> ColumnElement[str]:
    """The value of a column where no index is to find it: a planner without statistics takes any equality for a rare one."""
    return column.concat(literal_column("''"))


def limited(query: Select[Any], count: ColumnElement[int] = ONE) -> Select[Any]:
    """The first `count` rows. The offset is written out, as SQLite's dialect would add it as a parameter."""
    return query.limit(count).offset(ZERO)


def there_is(source: FromClause, *where: ColumnElement[bool] | TextClause) -> ColumnElement[bool]:
    return exists(select(ONE).select_from(source).where(*where))


def deletion_jobs(what: str, handles: Select[Any]) -> Write:
    """A job for each handle that a backend has to delete. `handles` selects job, agent and handle; a job exists only once."""
    jobs = handles.add_columns(bindparam("now"), ZERO)
    insert = upsert(delete_job).from_select(["id", "adapter", "handle", "due_at", "attempts"], jobs)
    return Write(what, insert.on_conflict_do_nothing(), rows=None)


def job_of(handle: Column[object]) -> Select[Any]:
    """Job, agent and handle of each row with a handle; the job's id names the thread."""
    return select(thread.c.id + literal_column("' '") + short(handle), thread.c.agent, handle).where(
        handle.is_not(None)
    )


class short(GenericFunction[str]):  # noqa: N801
    """A text, or one that stands for it where it is longer than an index takes."""

    inherit_cache = True


class lesser(GenericFunction[int]):  # noqa: N801  # named as in SQL
    """The lesser of two values."""

    inherit_cache = True


class json_each(GenericFunction[Any]):  # noqa: N801
    """The values of a JSON array as rows."""

    inherit_cache = True


class place_in(GenericFunction[int]):  # noqa: N801
    """At which character of a text the first occurrence of another one begins, from 1; 0 where there is none."""

    inherit_cache = True


class joined(GenericFunction[str]):  # noqa: N801
    """The texts of a group, with commas between them."""

    inherit_cache = True


class formatted(GenericFunction[str]):  # noqa: N801
    """A format with a text or a number for each `%s`."""

    inherit_cache = True


class as_bytes(GenericFunction[bytes]):  # noqa: N801
    """A text as the bytes of its UTF-8, whether they are valid or not."""

    inherit_cache = True


class as_number(GenericFunction[int]):  # noqa: N801
    """A value as a number of 64 bits, where a dialect would take it for another type."""

    inherit_cache = True


_WORDS: dict[str, dict[type[GenericFunction[Any]], str]] = {
    "sqlite": {
        short: "{}",
        lesser: "min({})",
        json_each: "json_each({})",
        place_in: "instr({})",
        joined: "group_concat({})",
        formatted: "printf({})",
        as_bytes: "CAST({} AS BLOB)",
        as_number: "{}",
    },
    "postgresql": {
        short: f"(SELECT CASE WHEN octet_length(whole) > {LONGEST} "  # noqa: S608
        "THEN encode(sha256(convert_to(whole, 'UTF8')), 'hex') "
        "ELSE whole END FROM (SELECT CAST({} AS TEXT) AS whole) AS given)",
        lesser: "least({})",
        json_each: "jsonb_array_elements_text(CAST({} AS JSONB))",
        place_in: "strpos({})",
        joined: "string_agg({}, ',')",
        formatted: "format({})",
        as_bytes: "convert_to({}, 'UTF8')",
        as_number: "CAST({} AS BIGINT)",
    },
}


@compiles(short)
@compiles(lesser)
@compiles(json_each)
@compiles(place_in)
@compiles(joined)
@compiles(formatted)
@compiles(as_bytes)
@compiles(as_number)
def _in_dialect(element: GenericFunction[Any], compiler: SQLCompiler, **options: Any) -> str:
    arguments = compiler.process(element.clauses, **options)
    return _WORDS[compiler.dialect.name][type(element)].format(arguments)


def json_values(parameter: str, alias: str) -> Select[Any]:
    """The texts of a JSON array that is a parameter."""
    return select(json_each(bindparam(parameter)).table_valued("value", name=alias).c.value)


def json_numbers(parameter: str, alias: str) -> Select[Any]:
    """The numbers of a JSON array that is a parameter."""
    return select(as_number(json_each(bindparam(parameter)).table_valued("value", name=alias).c.value))


def given(*names: str, **others: str) -> dict[str, ColumnElement[object]]:
    """Columns that take the parameter of their own name, and others, by name, with their parameters."""
    return {column: bindparam(name) for column, name in (*zip(names, names, strict=True), *others.items())}


def word(value: str) -> ColumnElement[str]:
    """A constant in the SQL itself: the planner uses a partial index only where it sees the value."""
    return literal_column(f"'{value}'")


def some(table: Table, *names: str) -> tuple[Column[Any], ...]:
    """These columns of the table."""
    return tuple(table.c[name] for name in names)


task_columns = (
    *some(task, "id", "context"),
    context.c.public_id,
    *some(task, "agent", "state", "status_message", "status_at", "last_event", "visible", "created_at"),
)
"""The columns of TaskRecord, in its order."""

tool_columns = (
    *some(tool_call, "id", "service_call"),
    *some(service_call, "round", "ended_at"),
    *some(tool_call, "sequence", "external_id", "name", "arguments", "executor", "status", "server", "runs_left"),
)
"""The columns of ToolCallRecord, in its order."""


def matches(table: FromClause, **parameters: str) -> ColumnElement[bool]:
    """Columns, by name, equal their parameters."""
    return and_(*(table.c[column] == bindparam(parameter) for column, parameter in parameters.items()))


def lapsed(column: Column[int | None] | Column[int]) -> ColumnElement[bool]:
    """It expired before `now`, or ends too late to have been written by this clock."""
    now: ColumnElement[int] = bindparam("now")
    return or_(column < now, column > now + literal_column(str(LONGEST_LEASE)))


def next_number(column: Column[object], of: ColumnElement[bool]) -> ColumnElement[object]:
    """The number after the largest one."""
    largest = func.coalesce(func.max(column), ZERO)
    return select(largest + ONE).where(of).scalar_subquery()


next_position = next_number(history_item.c.position, matches(history_item, thread="thread"))
"""The position of an item that is appended to its thread."""

is_displaced = and_(turn.c.displaced == ONE, turn.c.ended_at.is_not(None))
"""The condition that a turn has ended and is not part of the conversation, because a later message took its place."""

in_generation = there_is(thread, matches(thread, id="thread", generation="generation"))
"""No commit has changed the generation of the thread since it was read."""


def turn_base() -> Select[Any]:
    """The handle at which the turn began, first. A call without a handle begins a chain: the first of its thread, or of an
    epoch that the turn itself began. A turn may begin from an earlier handle than that of its first, refused try."""
    call = service_call.c
    began = (call.handle_in.is_not(None), call.status != word("completed"), call.round, call.attempt)
    return select(call.handle_in).where(matches(service_call, turn="turn")).order_by(*began)
