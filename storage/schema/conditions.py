"""Conditions on a row, as SQL, shared by tables, statements and queries. Law: a partial index is used only by a statement with
the same text."""

THREAD_LIVE = "state NOT IN ('closed', 'expired', 'deleted')"
"""The thread may still continue."""

TASK_OPEN = "state NOT IN ('TASK_STATE_COMPLETED', 'TASK_STATE_FAILED', 'TASK_STATE_CANCELED', 'TASK_STATE_REJECTED')"
"""The state of the task is not final."""

TASK_ENDED = TASK_OPEN.replace("NOT IN", "IN")
"""The state of the task is final."""

TASK_WAITING = "state IN ('TASK_STATE_INPUT_REQUIRED', 'TASK_STATE_AUTH_REQUIRED')"
"""The task waits for its caller."""

TURN_UNFINISHED = "ended_at IS NULL AND status IN ('accepted', 'running')"
"""A process has to run or to end the turn."""

ITEM_UNSENT = "sent_in IS NULL AND replayable = 1"
"""No completed service call has carried the history item yet."""

ITEM_REFUSED = "refused_in IS NOT NULL"
"""The backend refused a request because of the history item."""

CALL_UNDER_WAY = "status IN ('prepared', 'started')"
"""The end of the service call is not stored yet."""

TOOL_CALL_SETTLED = "status IN ('completed', 'failed', 'not_found', 'rejected', 'cancelled', 'interrupted', 'external')"
"""The tool call has its outcome."""
