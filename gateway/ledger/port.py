"""The Ledger port: what the core reads and commits, a protocol for each concern. Law: a ledger needs this package, `ports`
and `a2a`, nothing else; a user names the smallest part that it needs."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import msgspec

from gateway.a2a.model import Message
from gateway.ledger.api_keys import ApiKey
from gateway.ledger.backlog import Backlog, Sizes
from gateway.ledger.calls import LatestCall, MeasuredCall, UnknownCall
from gateway.ledger.documents import ContextDocument
from gateway.ledger.duties import HeldDuty
from gateway.ledger.leases import UnfinishedTurn
from gateway.ledger.points import CommitPoint
from gateway.ledger.push import PushReads
from gateway.ledger.quotas import ReportedUse
from gateway.ledger.retention import AgedContext, Deletion, EndedTask, Withdrawal
from gateway.ledger.rows import LedgerRows
from gateway.ledger.tasks import OpenTurn, PageLimits, TaskFilter, TaskOwner, TaskPage, TaskRecord, TurnRecord
from gateway.ledger.threads import Caller, ContextRecord, ThreadRecord
from gateway.ledger.tool_calls import AskedCall, EarlierToolCall, StandingApproval, ToolCallRecord
from gateway.ledger.traces import RecordedTurn
from gateway.ledger.turns import IdempotencyKey, Preferences, Replay, WaitingTurn
from gateway.ports.conversation import HistoryRecord
from gateway.ports.observer import Observer

if TYPE_CHECKING:  # its many records are made only where there are pages
    from gateway.ledger.admin.reads import AdminReads

Changed = frozenset[str] | None
"""The tasks of which there may be new rows; None: look for yourself."""


class Commits(Protocol):
    """The one way to write."""

    async def commit(self, *points: CommitPoint) -> None:
        """All points in one transaction; returns when it is durable. Raises: Conflict, LedgerUnavailable."""

    def submit(self, points: tuple[CommitPoint, ...], done: Callable[[Exception | None], None]) -> None:
        """Commits like `commit`, without waiting: `done` is called in the event loop, in the order of submission."""


class BacklogReads(Protocol):
    async def backlog(self) -> Backlog: ...

    async def sizes(self) -> Sizes: ...


class Observed(Protocol):
    def observe(self, observer: Observer) -> None:
        """From now on the observer hears of each group of units that was written."""


class TaskReads(Protocol):
    """Tasks and contexts as their caller sees them. A row of another caller does not exist for these reads."""

    async def context(self, caller: Caller, public_id: str, agent: str) -> ContextRecord | None: ...

    async def task(self, caller: Caller, agent: str, task_id: str) -> TaskRecord | None: ...

    async def whole_task(
        self, caller: Caller, agent: str, task_id: str, history: int | None = None
    ) -> tuple[TaskRecord, tuple[TurnRecord, ...]] | None:
        """A task and its turns in order, with artifacts and the history of the `history` latest turns (None: of all),
        from one snapshot."""

    async def tasks(self, caller: Caller, agent: str, where: TaskFilter, limits: PageLimits) -> TaskPage:
        """A page of the tasks that match, from one snapshot. What does not fit into it is not read."""

    async def turns(self, task_ids: tuple[str, ...], artifacts: bool) -> dict[str, tuple[TurnRecord, ...]]: ...

    async def first_message(self, task_id: str) -> Message | None: ...

    async def replay(self, caller: Caller, agent: str, key: IdempotencyKey) -> Replay | None: ...

    async def waiting_tasks(self, context: str) -> tuple[TaskRecord, ...]:
        """The public tasks of a context (its row) that wait for their caller, of all agents."""


class EventReads(Protocol):
    """The event log, and how a process notices what other processes have committed."""

    async def events(self, task_id: str, after: int, size: int | None = None) -> tuple[tuple[int, bytes], ...]:
        """(number, A2A 1.0 JSON) of the events with numbers above `after`, in order.

        With `size`, whole rows until these events have that many bytes, and no more is read: events of fewer bytes are all that
        there are.
        """

    async def latest_events(self, tasks: tuple[str, ...]) -> dict[str, int]:
        """The number of the last event of each of these tasks; a task that is gone is left out."""

    def changes(self, wanted: Callable[[], Awaitable[object]]) -> AsyncGenerator[Changed, None]:
        """What any process has committed, this one included, from the first item on, which is None. An item comes behind its
        commit, and is a hint: it may be lost or come twice. What comes between two items is joined.

        A store that has to ask its database awaits `wanted` before each look, which returns as long as somebody waits for a
        change; one that is told ignores it. Raises: LedgerUnavailable, and is called again later.
        """


class ThreadReads(Protocol):
    """Threads and their history."""

    async def thread(self, thread_id: str) -> ThreadRecord | None: ...

    async def history(self, thread_id: str, *, unsent_only: bool) -> tuple[HistoryRecord, ...]:
        """Items of a thread in order of turns, then positions."""

    async def recent_history(
        self, thread_id: str, turn_id: str, *, messages: int | None, weight: int | None, opaque: bool
    ) -> tuple[HistoryRecord, ...]:
        """Returns the end of `history`: whole turns, as many as are needed for the turns up to `turn_id` to reach the
        limit of messages or of weight.

        With `opaque`, reasoning and opaque items count too. The rest of the thread is not read, however long it is.
        """

    async def measured_calls(self, thread_id: str) -> tuple[MeasuredCall, ...]:
        """The latest few completed service calls of a thread, the last one first."""

    async def unknown_call(self, thread_id: str) -> UnknownCall | None:
        """The service call that made a thread `unsynced`."""

    async def withdrawals(self, thread_id: str) -> tuple[Withdrawal, ...]:
        """What calls of a thread have left waiting at the backend, and is still to be withdrawn."""


class TurnReads(Protocol):
    """A turn, its service calls and tool calls."""

    async def latest_call(self, turn: str) -> LatestCall | None: ...

    async def preferences(self, turn: str) -> Preferences:
        """The preferences of the message that opened the turn."""

    async def turn_base(self, turn: str) -> tuple[str | None, ...]:
        """The handle at which a turn began, or that of the chain that it began itself; empty where it made no call."""

    async def open_tool_calls(self, turn: str) -> tuple[ToolCallRecord, ...]:
        """The tool calls of a turn that have no outcome, in the order in which they were made."""

    async def unreported_tool_calls(self, turn: str) -> tuple[ToolCallRecord, ...]:
        """The tool calls of a turn that the backend runs, and of which it has not reported the outcome."""

    async def earlier_tool_call(self, thread_id: str, external_id: str, than: str) -> EarlierToolCall | None:
        """The latest call of this thread with that external id that has ended, except the call `than`."""

    async def recorded_turn(self, turn: str) -> RecordedTurn | None:
        """What a turn has done and when, from one snapshot. None when the turn is gone."""


class ApprovalReads(Protocol):
    """Turns that wait for their caller, and what was approved."""

    async def waiting_turn(self, task: str) -> WaitingTurn | None:
        """The turn of this task that waits for its caller."""

    async def waiting_task(self, thread: str) -> str | None:
        """The task whose turn waits on this thread."""

    async def asked_calls(self, task: str) -> tuple[AskedCall, ...]:
        """The tool calls of a task, in any turn, that its caller has decided or has to run."""

    async def overdue_turns(self, now: int, answered_before: int, limit: int) -> tuple[tuple[TaskOwner, str], ...]:
        """The tasks whose turns should wait no longer: everything was answered before then, or its time is over."""

    async def standing_approvals(self, context: str, principal: str) -> tuple[StandingApproval, ...]:
        """What the principal approved for the life of the context (its row)."""


class RecoveryReads(Protocol):
    """Turns that have not ended, and the processes that have them."""

    async def unfinished_turns(self, now: int, process: str = "") -> tuple[UnfinishedTurn, ...]:
        """The turns of dead processes, and all turns of `process` that have not ended."""

    async def open_turns(self, context: str) -> tuple[OpenTurn, ...]:
        """The turns of a context (its row) that have not ended, of all agents and processes."""

    async def process_of(self, turn: str) -> str | None:
        """The process that has this turn; None when the turn has ended."""

    async def cancel_requests(self, process: str) -> tuple[str, ...]:
        """The tasks whose turns this process has to cancel on request."""


class DutyReads(Protocol):
    """Work that one process at a time does for all."""

    async def duty(self, name: str) -> HeldDuty | None:
        """Who has taken it and not left it."""


class DutyLedger(Commits, DutyReads, Protocol):
    """The part of who does it."""


class QuotaReads(Protocol):
    """Limits that count over all processes."""

    async def reported_use(self, process: str, now: int) -> tuple[ReportedUse, ...]:
        """The reports of the other processes that have not lapsed, in the order of the processes."""


class QuotaLedger(Commits, QuotaReads, Protocol):
    """The part of limits that count over all processes."""


class RetentionReads(Protocol):
    """What is over its time, and handles that backends have to delete."""

    async def deletions(self, limit: int) -> tuple[Deletion, ...]:
        """The next deletions, due or not, without those that were given up."""

    async def next_withdrawals(self, limit: int) -> tuple[Withdrawal, ...]:
        """The next withdrawals, due or not."""

    async def next_owner(self, after: TaskOwner) -> TaskOwner | None:
        """The next owner of public tasks, in order."""

    async def ended_tasks(
        self, owner: TaskOwner, before: int, after: tuple[int, str], limit: int
    ) -> tuple[EndedTask, ...]:
        """Tasks whose state is older than `before`, the oldest first. `after` is the pair (status_at, id) of the last
        task that was read."""

    async def aged_contexts(self, idle_before: int, after: str, limit: int) -> tuple[AgedContext, ...]:
        """Contexts in the order in which they were made. `after` is the id of the last one read."""

    async def purge_pending(self, context: str) -> bool:
        """Whether a tombstone still has rows to purge."""


class RetentionLedger(Commits, RetentionReads, Protocol):
    """The part of retention."""

    def on_backend_job(self, wake: Callable[[], None]) -> None:
        """`wake` is called in the event loop after each commit of this process that may have queued a deletion or a
        withdrawal."""


class BackendJobsLedger(RetentionLedger, ThreadReads, Protocol):
    """The part of deletions and withdrawals at backends."""


class PushLedger(Commits, PushReads, Protocol):
    """The part of push notifications."""

    async def events(self, task_id: str, after: int) -> tuple[tuple[int, bytes], ...]:
        """As in EventReads."""

    async def turns(self, task_ids: tuple[str, ...], artifacts: bool) -> dict[str, tuple[TurnRecord, ...]]:
        """As in TaskReads."""


class ContextExports(Protocol):
    async def export(self, caller: Caller, public_id: str) -> ContextDocument | None:
        """A context as it is at one moment; None when there is none or it is a tombstone.

        Raises: Conflict while a turn waits or runs in it.
        """


class ApiKeyReads(Protocol):
    async def api_key(self, digest: bytes) -> ApiKey | None:
        """The key with this digest, whether it is in force or not. Every call asks the database, because another
        process may have revoked the key."""

    async def api_keys(self) -> tuple[ApiKey, ...]:
        """All keys that were ever made, the oldest first."""


class Ledger(
    TaskReads, EventReads, ThreadReads, TurnReads, ApprovalReads, RecoveryReads, DutyReads, QuotaReads, RetentionLedger,
    PushLedger, ContextExports, ApiKeyReads, BacklogReads, Observed, Protocol,
):  # fmt: skip
    """Durable state: all parts of the port."""

    @property
    def admin(self) -> "AdminReads":
        """What the pages for operators read, and nothing else does."""

    def now(self) -> int:
        """Milliseconds since the epoch by the clock that all processes on this ledger share: leases, claims and expiry are
        compared by it. Without I/O: where the clock is a server's, a store samples it when it opens, commits or renews, and
        goes on by the monotonic clock in between."""

    async def secret(self, name: str) -> bytes:
        """32 random bytes that stay the same for the life of the database, made on first use."""

    def hears(self) -> str | None:
        """How `changes` comes by them now, in a word for operators (`notifications`, `polling`); None where there is only one
        way."""

    async def ready(self) -> None:
        """Raises: LedgerUnavailable when it cannot read, its schema does not fit, or its last write failed and a new one
        fails too."""


class LedgerSettings(Protocol):
    """What the settings of every kind of ledger have."""

    @property
    def url(self) -> str: ...


S = TypeVar("S", bound=LedgerSettings)


class LedgerFactory(msgspec.Struct, Generic[S], frozen=True):
    """A kind of ledger. An entry point of the group `a2a_gateway.ledgers` names one; the entry's name is the URL's scheme.

    `settings` is a pydantic model (frozen, extra keys forbidden) of the kind's own keys of the section `storage`, and of
    `url`: the model checks it and completes it, relative paths for one, without network. `open(settings, auto_migrate)` is
    the ledger while its block runs; `auto_migrate` allows to make its schema or to bring it up to date. It raises
    LedgerUnavailable. `back_up(settings, target)` copies the ledger to a new file while it is used.
    `restore(source, settings, replace)` puts such a file in its place and returns where the ledger that it replaced is
    kept, if there was one. Both raise FileExistsError for what may not be replaced, LedgerUnavailable (with the trouble
    `locked` for a ledger that is in use), and OSError. None where the store has tools of its own. `problem(settings)` says
    what keeps this machine from opening the ledger, as far as that shows without opening it; None where nothing does.
    `absence(settings)` says that there is no ledger yet, and makes none; None where there is one, or where nothing can be
    seen. It raises LedgerUnavailable.
    `rows(settings, make)` are the rows for `storage copy` while its block runs; `make` allows to make the schema where there
    is nothing. It raises LedgerUnavailable, also for a schema of another version. None where rows cannot be copied.
    `part(settings)` names the part of the database that is the ledger, for people; None where it is the one that the URL alone
    says. `keeps` is false where nothing outlives the process that has opened the ledger.
    No text, of an error or a log line, quotes the credentials of a URL.
    """

    settings: type[S]
    open: Callable[[S, bool], AbstractAsyncContextManager[Ledger]]
    back_up: Callable[[S, Path], None] | None = None
    restore: Callable[[Path, S, bool], Path | str | None] | None = None
    problem: Callable[[S], str | None] | None = None
    absence: Callable[[S], str | None] | None = None
    scales_out: bool = False
    rows: Callable[[S, bool], AbstractContextManager[LedgerRows]] | None = None
    keeps: bool = True
    part: Callable[[S], str | None] | None = None


AnyLedgerFactory = LedgerFactory[Any]
