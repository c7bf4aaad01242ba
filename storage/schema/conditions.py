"""Conditions on a row, as SQL, shared by tables, statements and queries. Law: a partial index is used only by a statement with
the same text.

More than two words are compared one by one: for `IN (...)` SQLite fills a temporary table each time that it checks a row,
which takes as long as the rest of a small INSERT.
"""

_LISTED = 2


def one_of(column: str, *words: str) -> str:
    """The column has one of these values."""
    if len(words) <= _LISTED:
        return f"{column} IN ({', '.join(map(repr, words))})"
    return f"({' OR '.join(f'{column} = {word!r}' for word in words)})"


def none_of(column: str, *words: str) -> str:
    """The column has none of these values."""
    return f"({' AND '.join(f'{column} != {word!r}' for word in words)})"


def thread_live(table: str = "") -> str:
    """The thread may still continue. `table` ends with a full stop where the column needs one."""
    return none_of(f"{table}state", "closed", "expired", "deleted")


THREAD_LIVE = thread_live()

THREAD_BROKEN = one_of("state", "lost", "unsynced")
"""The thread cannot simply continue."""

_FINAL = ("TASK_STATE_COMPLETED", "TASK_STATE_FAILED", "TASK_STATE_CANCELED", "TASK_STATE_REJECTED")


def task_ended(table: str = "") -> str:
    """The state of the task is final. `table` as in `thread_live`."""
    return one_of(f"{table}state", *_FINAL)


TASK_ENDED = task_ended()

TASK_OPEN = none_of("state", *_FINAL)
"""The state of the task is not final."""


def task_waiting(table: str = "") -> str:
    """The task waits for its caller. `table` as in `thread_live`."""
    return one_of(f"{table}state", "TASK_STATE_INPUT_REQUIRED", "TASK_STATE_AUTH_REQUIRED")


TASK_WAITING = task_waiting()

TURN_UNFINISHED = f"ended_at IS NULL AND {one_of('status', 'accepted', 'running')}"
"""A process has to run or to end the turn."""

TURN_CANCEL_ASKED = "ended_at IS NULL AND cancel_asked = 1"
"""The process that runs the turn was asked to cancel it, and has not done so yet."""

ITEM_UNSENT = "sent_in IS NULL AND replayable = 1"
"""No completed service call has carried the history item yet."""

ITEM_REFUSED = "refused_in IS NOT NULL"
"""The backend refused a request because of the history item."""

CALL_UNDER_WAY = one_of("status", "prepared", "started")
"""The end of the service call is not stored yet."""

TOOL_CALL_SETTLED = one_of(
    "status", "completed", "failed", "not_found", "rejected", "cancelled", "interrupted", "external"
)
"""The tool call has its outcome."""
