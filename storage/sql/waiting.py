"""The statements and queries of turns that wait for their caller. Law: as in `sql/turns.py`; the waiting rows have indexes of
their own."""

from sqlalchemy import and_, bindparam, case, func, insert, null, or_, select, update

from storage.schema.tables import input_, service_call, task, tool_call, turn
from storage.sql.fragments import ONE, Write, given, in_generation, limited, matches, some, there_is, tool_columns, word

_OF_TURN = tool_call.c.service_call.in_(select(service_call.c.id).where(matches(service_call, turn="turn")))

ANSWER_TURN = Write(
    "answer a waiting turn of the caller, in the thread's generation",
    update(turn)
    .where(
        matches(turn, id="turn", task="task", thread="thread"),
        turn.c.status == word("waiting"),
        there_is(task, matches(task, id="task", tenant="tenant", principal="principal", agent="agent")),
        in_generation,
    )
    .values(status=word("waiting")),
)

NEXT_INPUT = Write(
    "store the answer",
    insert(input_)
    .inline()
    .values(
        **given("turn", "ordinal", "tenant", "principal", "agent", "message_id", "digest", "key_kind", "key", "event"),
        **given(received_at="now", payload="message"),
    ),
)

DECIDE_TOOL = Write(
    "decide a tool call of this turn that waits for a decision, with these arguments",
    update(tool_call)
    .where(
        matches(tool_call, id="tool_call"),
        tool_call.c.status == word("pending_approval"),
        tool_call.c.approval_decision.is_(None),
        tool_call.c.digest.is_not_distinct_from(bindparam("digest")),
        _OF_TURN,
    )
    .values(
        **given("standing", approval_decision="decision", approval_by="by", approval_at="now"),
        status=case((bindparam("decision") == word("approved"), word("approved")), else_=tool_call.c.status),
    ),
)

PAUSE_TOOL = Write(
    "let a running tool call wait for a consent, in the thread's generation",
    update(tool_call)
    .where(matches(tool_call, id="tool_call"), tool_call.c.status == word("running"), in_generation)
    .values(
        status=word("pending_consent"),
        runs_left=tool_call.c.runs_left + ONE,
        approval_consumed_at=null(),
        approval_expires_at=bindparam("expires_at"),
    ),
)

RETRY_TOOL = Write(
    "approve a tool call of this turn again that waits for a consent",
    update(tool_call)
    .where(matches(tool_call, id="tool_call"), tool_call.c.status == word("pending_consent"), _OF_TURN)
    .values(status=word("approved")),
)

SET_QUESTION = Write(
    "set the question of a task that waits for its caller",
    update(task)
    .where(
        matches(task, id="task"),
        task.c.state.in_([word("TASK_STATE_INPUT_REQUIRED"), word("TASK_STATE_AUTH_REQUIRED")]),
    )
    .values(given("state", status_message="question", status_at="now")),
)

# --- reads ------------------------------------------------------------------------------------------------------------

WAITING_TURN = select(
    turn.c.id,
    turn.c.thread,
    select(func.count()).select_from(input_).where(input_.c.turn == turn.c.id).scalar_subquery(),
    limited(
        select(service_call.c.handle_in)
        .where(service_call.c.turn == turn.c.id)
        .order_by(service_call.c.round, service_call.c.attempt)
    ).scalar_subquery(),
    turn.c.cancel_asked,
).where(matches(turn, task="task"), turn.c.status == word("waiting"))

WAITING_TASK = select(turn.c.task).where(
    matches(turn, thread="thread"), turn.c.ended_at.is_(None), turn.c.status == word("waiting")
)

_ASKED = (*tool_columns, *some(tool_call, "digest", "approval_decision", "approval_expires_at", "outcome"))
"""The columns in the order of ToolCallRecord, then of AskedCall."""

_CALLS = service_call.join(tool_call, tool_call.c.service_call == service_call.c.id)

_LAST_CALL = limited(
    select(service_call.c.id)
    .where(matches(service_call, turn="turn"))
    .order_by(service_call.c.round.desc(), service_call.c.attempt.desc())
)

CALLS_OF_ROUND = (
    select(*_ASKED)
    .select_from(_CALLS)
    .where(service_call.c.id == _LAST_CALL.scalar_subquery())
    .order_by(tool_call.c.sequence)
)

ASKED_CALLS = (
    select(*_ASKED)
    .select_from(
        turn.join(service_call, service_call.c.turn == turn.c.id).join(
            tool_call, tool_call.c.service_call == service_call.c.id
        )
    )
    .where(
        matches(turn, task="task"),
        or_(tool_call.c.approval_decision.is_not(None), tool_call.c.executor == word("client")),
    )
)

STANDING_APPROVALS = select(tool_call.c.server, tool_call.c.digest, tool_call.c.arguments).where(
    # With this condition the planner uses the partial index.
    tool_call.c.standing.is_not(None),
    matches(tool_call, standing="context", approval_by="principal"),
)

_WAITS = and_(
    service_call.c.turn == turn.c.id,
    tool_call.c.outcome.is_(None),
    or_(
        tool_call.c.status.in_([word("pending_approval"), word("pending_consent")]),
        tool_call.c.executor == word("client"),
    ),
)

OVERDUE_TURNS = limited(
    select(task.c.tenant, task.c.principal, task.c.agent, task.c.id)
    .select_from(turn.join(task, task.c.id == turn.c.task))
    .where(
        turn.c.status == word("waiting"),
        or_(
            and_(task.c.status_at <= bindparam("before"), ~there_is(_CALLS, _WAITS)),
            # A cancel was requested before the turn came to wait, and its process did not notice it.
            turn.c.cancel_asked == ONE,
            # A call that ran when its process died, and may run again, waits for nothing.
            there_is(_CALLS, service_call.c.turn == turn.c.id, tool_call.c.status == word("running")),
            there_is(_CALLS, _WAITS, tool_call.c.approval_expires_at <= bindparam("now")),
        ),
    ),
    bindparam("limit"),
)
