"""The statements of a thread that cannot simply continue: lost, unsynced, in a new epoch, returned to an earlier handle, with
displaced turns. Law: that a turn is displaced is stored in its row alone; what follows from it is stored with its end.
"""

from sqlalchemy import Update, bindparam, delete, func, insert, literal_column, null, or_, select, text, update
from sqlalchemy.sql.expression import ColumnElement

from storage.schema.conditions import THREAD_LIVE
from storage.schema.tables import delete_job, history_item, service_call, thread, turn
from storage.sql.fragments import (
    ONE,
    ZERO,
    Write,
    deletion_jobs,
    given,
    job_of,
    limited,
    matches,
    short,
    some,
    there_is,
    turn_base,
    word,
)

# --- the state of the thread ---

_IN_GENERATION = matches(thread, id="thread", generation="generation")

MARK_HANDLE_LOST = Write(
    "note that the thread's handle is lost",
    update(thread).where(_IN_GENERATION, text(THREAD_LIVE)).values(state=word("lost")),
)

MARK_UNSYNCED = Write(
    "note that the outcome of a service call of the turn is unknown",
    update(thread)
    .where(
        matches(thread, id="thread"),
        thread.c.storage_owner == word("backend"),
        thread.c.state == word("open"),
        there_is(
            service_call,
            matches(service_call, turn="turn"),
            service_call.c.status == word("unknown"),
            or_(service_call.c.pending_handle.is_not(None), thread.c.handle_kind == word("static")),
        ),
    )
    .values(state=word("unsynced")),
    rows=None,
)

MARK_SYNCED = Write(
    "note that the thread's unknown service call was looked up",
    update(thread).where(_IN_GENERATION, thread.c.state == word("unsynced")).values(state=word("open")),
)


CONFIRM_HANDLE = Write(
    "begin the thread at the handle that its unknown service call has made",
    update(thread)
    .where(_IN_GENERATION, text(THREAD_LIVE), thread.c.handle_kind == word("static"), thread.c.handle.is_(None))
    .values(**given("handle", clean_handle="handle"), generation=thread.c.generation + ONE),
)


# --- a new epoch ---

NEXT_EPOCH = Write(
    "count the thread's next epoch",
    update(thread)
    .where(_IN_GENERATION, text(THREAD_LIVE))
    .values(epoch=thread.c.epoch + ONE, generation=thread.c.generation + ONE),
)

_BACKEND = ("storage_owner", "handle_kind", "handle", "clean_handle", "adapter_state", "state_version")
_KEPT = some(thread, "context", "agent", "generation", *_BACKEND, "began_at", "began_by")

ARCHIVE_EPOCH = Write(
    "archive the epoch that ends",
    insert(thread).from_select(
        ["id", "epoch", "state", *(column.name for column in _KEPT)],
        select(bindparam("closed"), thread.c.epoch - ONE, word("closed"), *_KEPT).where(matches(thread, id="thread")),
    ),
)

BEGIN_EPOCH = Write(
    "begin the thread's epoch",
    update(thread)
    .where(matches(thread, id="thread"))
    .values(
        **given("storage_owner", "handle_kind", "handle", clean_handle="handle"),
        adapter_state=null(),
        state_version=null(),
        adapter_secret=null(),
        state=word("open"),
        **given("began_by", began_at="now"),
    ),
)


# --- a return to the handle of a turn's beginning ---

_CALLS_OF_THREAD = service_call.join(thread, matches(thread, id="thread"))

DELETE_TURN_HANDLES = deletion_jobs(
    "queue the handles of the turn for deletion",
    job_of(service_call.c.handle_out)
    .select_from(_CALLS_OF_THREAD)
    .where(matches(service_call, turn="turn"), service_call.c.handle_out.is_distinct_from(service_call.c.handle_in)),
)

REWIND_HANDLE = Write(
    "return the thread's handle to where the turn began",
    update(thread)
    .where(matches(thread, id="thread"), thread.c.handle.is_distinct_from(bindparam("handle")))
    .values(**given("handle", clean_handle="handle"), generation=thread.c.generation + ONE),
    rows=None,
)


# --- displaced turns ---

_other = turn.alias("other")

DISPLACE = Write(
    "displace the turns that have not ended, up to this one",
    update(turn)
    .where(
        matches(turn, thread="thread"),
        turn.c.ended_at.is_(None),
        turn.c.number
        < select(_other.c.number + bindparam("itself")).where(matches(_other, id="turn")).scalar_subquery(),
    )
    .values(cancel_asked=ONE, displaced=ONE),
    rows=None,
)

LEAVE_OUT = Write(
    "leave a failed turn out of the conversation",
    update(turn).where(matches(turn, id="turn"), turn.c.status == word("failed")).values(displaced=ONE),
)

_IS_DISPLACED = there_is(turn, matches(turn, id="turn"), turn.c.displaced == ONE, turn.c.ended_at.is_not(None))

_MOVED_ON = there_is(service_call, matches(service_call, turn="turn"), service_call.c.status == word("completed"))

_BASE = limited(turn_base()).scalar_subquery()

DELETE_DISPLACED_HANDLES = deletion_jobs(
    "queue the handles of a displaced turn for deletion",
    job_of(service_call.c.handle_out)
    .select_from(_CALLS_OF_THREAD)
    .where(matches(service_call, turn="turn"), thread.c.handle_kind == word("rotating"), _IS_DISPLACED),
)

REVERT_DISPLACED = Write(
    "return the thread's handle to where a displaced turn began",
    update(thread)
    .where(
        matches(thread, id="thread"),
        text(THREAD_LIVE),
        thread.c.handle_kind == word("rotating"),
        _IS_DISPLACED,
        _MOVED_ON,
        thread.c.handle.is_distinct_from(_BASE),
    )
    .values(handle=_BASE, clean_handle=_BASE, generation=thread.c.generation + ONE),
    rows=None,
)


# --- items of earlier turns that the requests of the turn carried ---

_number = select(turn.c.number).where(matches(turn, id="turn")).scalar_subquery()

_earlier, _older, _led = turn.alias("earlier"), history_item.alias("older"), service_call.alias("led")

# The last turn before this one that is on the chain: all earlier items are on the chain, too, and are not examined.
_ON_CHAIN = limited(
    select(_earlier.c.id)
    .where(
        matches(_earlier, thread="thread"),
        _earlier.c.number < _number,
        _earlier.c.status != word("failed"),
        _earlier.c.displaced == ZERO,
        there_is(_led, _led.c.turn == _earlier.c.id, _led.c.handle_out.is_distinct_from(_led.c.handle_in)),
    )
    .order_by(_earlier.c.number.desc())
).scalar_subquery()

_FROM = func.coalesce(
    limited(
        select(_older.c.position)
        .where(matches(_older, thread="thread"), _older.c.turn == _ON_CHAIN, _older.c.input == ZERO)
        .order_by(_older.c.position.desc())
    ).scalar_subquery(),
    ZERO,
)


def _mark_unsent(*conditions: ColumnElement[bool]) -> Update:
    """Where the conditions do not hold, the first position is NULL, and no item is examined."""
    return (
        update(history_item)
        .where(
            matches(history_item, thread="thread"),
            history_item.c.position >= select(_FROM).where(*conditions).scalar_subquery(),
            history_item.c.turn != bindparam("turn"),
            history_item.c.sent_in.in_(select(service_call.c.id).where(matches(service_call, turn="turn"))),
        )
        .values(sent_in=null())
    )


_ROTATES = there_is(thread, matches(thread, id="thread"), thread.c.handle_kind == word("rotating"))

MARK_UNSENT = Write("mark items of earlier turns as unsent that the turn carried", _mark_unsent(_ROTATES), rows=None)

MARK_UNSENT_DISPLACED = Write(
    "mark items of earlier turns as unsent that a displaced turn carried",
    _mark_unsent(_IS_DISPLACED, _ROTATES),
    rows=None,
)


# --- a handle beside the thread ---

_JOB = bindparam("thread").op("||")(literal_column("' '")).op("||")(short(bindparam("handle")))

DELETE_ORPHAN = deletion_jobs(
    "queue a handle for deletion that no call of the thread has confirmed or may confirm",
    select(_JOB, bindparam("agent"), bindparam("handle")).where(
        # Another process may have found the handle meanwhile, and continued from it.
        ~there_is(
            service_call.join(turn, turn.c.id == service_call.c.turn),
            matches(turn, thread="thread"),
            matches(service_call, handle_out="handle"),
        ),
        # Or it is about to look whether it can.
        ~there_is(
            service_call.join(turn, turn.c.id == service_call.c.turn).join(thread, thread.c.id == turn.c.thread),
            matches(thread, id="thread"),
            thread.c.state == word("unsynced"),
            matches(service_call, pending_handle="handle"),
            service_call.c.status == word("unknown"),
        ),
    ),
)

KEEP_HANDLE = Write(
    "remove a handle from the queue of deletions", delete(delete_job).where(delete_job.c.id == _JOB), None
)
