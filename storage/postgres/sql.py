"""What a store on PostgreSQL runs besides the statements and queries of the ledger."""

from storage.compiled import RENEW_LEASE
from storage.postgres.compiled import TEXTS
from storage.postgres.settings import DIRECT
from storage.postgres.text import Prepared, Text, bound, plain, prepared

_RENEW_LEASE = Text(
    "UPDATE thread SET lease_until = $1 WHERE id = "
    "(SELECT id FROM thread WHERE id = $2 AND lease_holder = $3 FOR NO KEY UPDATE SKIP LOCKED)",
    ("lease_until", "thread", "holder"),
)
"""A row that somebody holds keeps no other lease from being renewed; nobody takes that one meanwhile."""

PREPARED: dict[str, Prepared] = {
    name: prepared(name, text) for name, text in {**TEXTS, RENEW_LEASE.name: _RENEW_LEASE}.items()
}
"""The statements and queries of the ledger, by their names."""


_IDS = "ARRAY(SELECT jsonb_array_elements_text($1::jsonb))"
_OF = "ARRAY(SELECT jsonb_array_elements_text($2::jsonb))"


def _lock(name: str, table: str, more: str = "") -> Prepared:
    """Locks the rows of these `ids`, and of what `more` selects, in the order of ids. `more` has the ids in `of`."""
    ids, names = (_IDS, ("ids",)) if not more else (f"{_IDS[:-1]} UNION {more})", ("ids", "of"))
    rows = f"SELECT id FROM {table} WHERE id = ANY({ids}) ORDER BY id FOR NO KEY UPDATE"  # noqa: S608
    return prepared(name, Text(rows, names))


BEGIN = prepared("BEGIN", Text("BEGIN ISOLATION LEVEL READ COMMITTED"))
SNAPSHOT = prepared("SNAPSHOT", Text("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"))
COMMIT = prepared("COMMIT", Text("COMMIT"))
ROLLBACK = prepared("ROLLBACK", Text("ROLLBACK"))
SAVEPOINT = prepared("SAVEPOINT", Text("SAVEPOINT unit"))
RELEASE = prepared("RELEASE", Text("RELEASE SAVEPOINT unit"))
UNDO = prepared("UNDO", Text("ROLLBACK TO SAVEPOINT unit"))
BRIEFLY = plain("SET LOCAL lock_timeout = 50")
"""Milliseconds for which a unit waits for a row while others wait for the unit."""

LOCK_CONTEXTS = _lock("LOCK_CONTEXTS", "context")
LOCK_THREADS = _lock("LOCK_THREADS", "thread")
LOCK_THREADS_AND_OF = _lock("LOCK_THREADS_AND_OF", "thread", f"SELECT id FROM thread WHERE context = ANY({_OF})")  # noqa: S608
"""Also all threads of these contexts. One statement, as two would each have an order of their own."""
LOCK_LOGS = _lock("LOCK_LOGS", "task")
"""Two groups that append to one task would otherwise both find the same last event, and give its numbers twice: the rows of the
log are keyed by their last number."""
LOCK_LOGS_AND_OF = _lock("LOCK_LOGS_AND_OF", "task", f"SELECT task FROM turn WHERE id = ANY({_OF})")  # noqa: S608
"""Also those of these turns, which another process gets: what the one before it appends is stored before that, or never."""

# Whoever appends an event holds a lock of its task that conflicts with this one; the trigger that makes
# deliveries due runs behind that. A task that is locked already is not waited for: its delivery stays due.
_BUSY = "a2a_gateway.busy"
LOCK_TASKS = prepared(
    "LOCK_TASKS",
    Text(
        f"SELECT set_config('{_BUSY}', (SELECT CAST(coalesce(jsonb_agg(id), '[]') AS text) FROM task "  # noqa: S608
        f"WHERE id = ANY({_IDS}) AND id NOT IN (SELECT id FROM (SELECT id FROM task WHERE id = ANY({_IDS}) "
        "ORDER BY id FOR UPDATE SKIP LOCKED) AS locked)), true)",
        ("ids",),
    ),
)
"""Keeps others from appending events. The busy ones are those to which somebody appends one now."""
KEEP_DUE = prepared(
    "KEEP_DUE",
    Text(
        f"UPDATE push_config SET due_at = 0 WHERE task = ANY({_IDS}) AND state = 'active' AND due_at IS NULL "  # noqa: S608
        f"AND CAST(current_setting('{_BUSY}') AS jsonb) ? task",
        ("ids",),
    ),
)
"""The deliveries of busy tasks: whoever appends an event there does not see that they would wait for it."""

LOG_PAGE = prepared(
    "LOG_PAGE",
    Text(
        "WITH RECURSIVE page(last, size) AS (SELECT $2::bigint, 0::bigint UNION ALL "
        "SELECT event.last, page.size + "
        "CASE WHEN event.first > $2 THEN octet_length(event.payload) - (event.last - event.first) ELSE 0 END "
        "FROM page JOIN event ON event.task = $1 AND event.last = "
        "(SELECT min(following.last) FROM event AS following WHERE following.task = $1 AND following.last > page.last) "
        "WHERE page.size < $3) "
        "SELECT first, last, payload FROM event "
        "WHERE task = $1 AND last > $2 AND last <= (SELECT max(page.last) FROM page) ORDER BY last",
        ("task", "after", "size"),
    ),
)
"""As `log_pages.log_page` of SQLite, from row to row: a line feed separates two events."""

# `server_time` is a function of the schema: milliseconds since 1970 by the server's clock.
COUNT_GROUP = prepared(
    "COUNT_GROUP",
    Text(
        "UPDATE ledger_writer SET number = $2, seen_at = server_time() WHERE id = $1 AND number = $2::bigint - 1 "
        "RETURNING seen_at",
        ("writer", "number"),
    ),
)
NEW_WRITER = plain(
    "INSERT INTO ledger_writer VALUES ($1, $2, server_time()) ON CONFLICT DO NOTHING", "writer", "number"
)
LATEST_GROUP = plain("SELECT number, server_time() FROM ledger_writer WHERE id = $1 FOR UPDATE", "writer")
"""Waits for a transaction of the same writer whose connection was lost, and, as it locks a row, for synchronous standbys: what
it finds they have as well."""
_UNCONFIRMED = (
    "EXISTS (SELECT 1 FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND clock_timestamp() - query_start > '1s')"
)
"""Only of the same user: of others the server shows no wait. A shorter one is the normal course of a commit."""
NUMBER = plain(
    f"SELECT (SELECT number FROM ledger_writer WHERE id = $1), pg_is_in_recovery(), {_UNCONFIRMED}",  # noqa: S608
    "writer",
)
"""Of the latest group, NULL where there is none; whether the server is a standby; whether a commit waits for one."""
UNCONFIRMED = plain(f"SELECT {_UNCONFIRMED}")
"""Whether a commit waits for a synchronous standby."""
CONFIRM = plain("SELECT pg_logical_emit_message(true, 'a2a-gateway', '') IS NOT NULL")
"""A commit that changes nothing and takes no lock, also where only reading is allowed. When it is answered, the synchronous
standbys have all that the server had before."""
FORGET_WRITERS = plain("DELETE FROM ledger_writer WHERE seen_at < server_time() - $1", "age")

_CURSOR = "page"


def cursor_of(name: str) -> Prepared:
    """Opens a cursor for a query."""
    text = TEXTS[name]
    return plain(f"DECLARE {_CURSOR} NO SCROLL CURSOR FOR {text.sql}", *text.names)


NEXT_TASKS = bound(prepared("NEXT_TASKS", Text(f"FETCH 32 FROM {_CURSOR}")), {})

IS_DIRECT = plain(f"SELECT coalesce(current_setting('{DIRECT}', true), '') = 'on'")
"""Whether the settings of the connection string have arrived at the server."""

LIMITS = plain(
    "SELECT set_config('search_path', $1, true), set_config('statement_timeout', $2, true), "
    "set_config('lock_timeout', $3, true), set_config('idle_in_transaction_session_timeout', $4, true)",
    *("search_path", "statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout"),
)
"""The limits of one transaction."""

FORMAT = plain("SELECT version_num, oldest FROM alembic_version, ledger_format")
"""The version of the schema, and the oldest version of the code that may use it."""

READ_ONLY = plain("SELECT current_setting('default_transaction_read_only') = 'on'")
"""Whether a transaction that does not say so itself would be refused a write on this connection."""

VERSION = prepared("VERSION", Text("SELECT CAST(coalesce(sum(number), 0) + count(*) AS bigint) FROM ledger_writer"))
"""A number that changes with every group of any process."""

SIZE = plain("SELECT pg_database_size(current_database())")

_CHANNEL = "a2a_gateway_ledger"

PING = "!"
"""A notification that only shows that they arrive. Others are ids of tasks as a list in JSON, or empty: look for yourself."""

LISTEN = plain(f"LISTEN {_CHANNEL}")
NOTIFY = prepared("NOTIFY", Text(f"SELECT pg_notify('{_CHANNEL}', $1)", ("payload",)))
