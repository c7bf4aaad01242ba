"""Conditions on a row that tables, statements and queries share, as SQL. Law: an index with one is only used where a statement
says the very same words."""

LIVE = "state NOT IN ('closed', 'expired', 'deleted')"
"""Of a thread: it may still go on."""

GOING = "state NOT IN ('TASK_STATE_COMPLETED', 'TASK_STATE_FAILED', 'TASK_STATE_CANCELED', 'TASK_STATE_REJECTED')"
"""Of a task: its state is not final."""

ENDED = GOING.replace("NOT IN", "IN")
"""Of a task: its state is final."""

WAITING = "state IN ('TASK_STATE_INPUT_REQUIRED', 'TASK_STATE_AUTH_REQUIRED')"
"""Of a task: its last turn has ended and its caller has to go on."""

UNFINISHED = "ended_at IS NULL AND status IN ('accepted', 'running')"
"""Of a turn: somebody has to run it or to end it."""

UNSENT = "sent_in IS NULL AND replayable = 1"
"""Of a history item: no completed service call has carried it yet."""

UNDER_WAY = "status IN ('prepared', 'started')"
"""Of a service call: nobody has told its end."""

SETTLED = "status IN ('completed', 'failed', 'not_found', 'rejected', 'cancelled', 'interrupted', 'external')"
"""Of a tool call: it has its outcome."""
