"""The queries that find where an id belongs, for operators. Law: as in `sql/admin_contexts.py`. Each returns the columns of
Place behind its kind, in its order."""

from typing import Any

from sqlalchemy import Select, bindparam, func, literal_column, or_, select
from sqlalchemy.sql.expression import ColumnElement, FromClause

from storage.schema.tables import api_key, context, input_, service_call, task, thread, tool_call, turn
from storage.sql.admin_contexts import CORRELATION_ID, IN_TENANT, recent
from storage.sql.fragments import ONE, limited, matches, word

_MOST: ColumnElement[int] = literal_column("20")
_EMPTY = word("")
_WANTED: ColumnElement[str] = bindparam("wanted")

_IN_CALL = service_call.join(turn, turn.c.id == service_call.c.turn)
_IN_TOOL = tool_call.join(service_call, service_call.c.id == tool_call.c.service_call)


def _in_thread(source: FromClause) -> FromClause:
    return source.join(thread, thread.c.id == turn.c.thread).join(context, context.c.id == thread.c.context)


def _places(name: ColumnElement[str], source: FromClause, *conditions: ColumnElement[bool]) -> Select[Any]:
    """Places in turns."""
    found = select(name, context.c.id, thread.c.agent, turn.c.task, turn.c.id, context.c.principal).select_from(
        _in_thread(source)
    )
    return limited(found.where(IN_TENANT, *conditions), _MOST)


ADMIN_PLACE_CONTEXT = select(context.c.id, context.c.id, _EMPTY, _EMPTY, _EMPTY, context.c.principal).where(
    context.c.id == _WANTED, IN_TENANT
)

_principals = (
    select(func.min(context.c.principal).label("principal")).where(context.c.tenant == bindparam("tenant"))
).cte("principals", recursive=True)
_of_next = context.alias("of_next")
_following = (
    select(func.min(_of_next.c.principal))
    .where(_of_next.c.tenant == bindparam("tenant"), _of_next.c.principal > _principals.c.principal)
    .scalar_subquery()
)
_all_principals = _principals.union_all(select(_following).where(_principals.c.principal.is_not(None)))
_some_principals = limited(select(_all_principals.c.principal), literal_column("10000")).subquery("some_principals")

ADMIN_PLACE_PUBLIC_CONTEXT = limited(
    select(context.c.id, context.c.id, _EMPTY, _EMPTY, _EMPTY, context.c.principal)
    .select_from(_some_principals.join(context, context.c.principal == _some_principals.c.principal))
    .where(context.c.tenant == bindparam("tenant"), context.c.public_id == _WANTED),
    _MOST,
)
"""Public ids are unique for a principal: one look for each of at most 10,000 principals."""

ADMIN_PLACE_THREAD = (
    select(thread.c.id, context.c.id, thread.c.agent, _EMPTY, _EMPTY, context.c.principal)
    .select_from(thread.join(context, context.c.id == thread.c.context))
    .where(thread.c.id == _WANTED, IN_TENANT)
)

ADMIN_PLACE_TASK = (
    select(task.c.id, context.c.id, task.c.agent, task.c.id, _EMPTY, context.c.principal)
    .select_from(task.join(context, context.c.id == task.c.context))
    .where(task.c.id == _WANTED, IN_TENANT)
)

ADMIN_PLACE_TURN = _places(turn.c.id, turn, turn.c.id == _WANTED)
ADMIN_PLACE_CALL = _places(service_call.c.id, _IN_CALL, service_call.c.id == _WANTED)
ADMIN_PLACE_TOOL_CALL = _places(
    tool_call.c.id, _IN_TOOL.join(turn, turn.c.id == service_call.c.turn), tool_call.c.id == _WANTED
)
ADMIN_PLACE_MESSAGE = _places(
    input_.c.turn, input_.join(turn, turn.c.id == input_.c.turn), input_.c.message_id == _WANTED
)

_recent = recent()
_RECENT_CALLS = _recent.join(turn, turn.c.id == _recent.c.id).join(service_call, service_call.c.turn == turn.c.id)

ADMIN_PLACE_HANDLE = _places(
    service_call.c.id,
    _RECENT_CALLS,
    or_(*(service_call.c[name] == _WANTED for name in ("handle_in", "pending_handle", "handle_out", "run"))),
)
ADMIN_PLACE_EXTERNAL = _places(
    tool_call.c.id,
    _RECENT_CALLS.join(tool_call, tool_call.c.service_call == service_call.c.id),
    tool_call.c.external_id == _WANTED,
)
ADMIN_PLACE_TRACE = _places(
    turn.c.id,
    _recent.join(turn, turn.c.id == _recent.c.id),
    func.substr(turn.c.trace, literal_column("4"), literal_column("32")) == _WANTED,
)
"""The second part of a `traceparent` is the id of its trace. Source: W3C Trace Context, section 3.2.2."""

ADMIN_PLACE_FAILURE = _places(
    turn.c.id,
    _recent.join(turn, turn.c.id == _recent.c.id).join(task, task.c.id == turn.c.task),
    func.substr(CORRELATION_ID, ONE, func.length(_WANTED) + ONE) == _WANTED.concat(literal_column("'\"'")),
)

ADMIN_PLACE_KEY = limited(
    select(api_key.c.name)
    .where(matches(api_key, tenant="tenant"), or_(api_key.c.name == _WANTED, api_key.c.prefix == _WANTED))
    .order_by(api_key.c.created_at.desc()),
    _MOST,
)
"""As `API_KEYS`, it reads all keys: there are few."""
