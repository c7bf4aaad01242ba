"""The Ledger port: what the core reads and commits. Law: a ledger needs this module and the ones below it."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from gateway.a2a.model import Message
from gateway.ledger.api_keys import ApiKey
from gateway.ledger.calls import LatestCall, MeasuredCall, UnheardCall
from gateway.ledger.documents import ContextDocument
from gateway.ledger.leases import UnfinishedTurn
from gateway.ledger.points import CommitPoint
from gateway.ledger.push import PushReads
from gateway.ledger.retention import AgedContext, Deletion, EndedTask
from gateway.ledger.tasks import OpenTurn, TaskFilter, TaskOwner, TaskRecord, TurnRecord
from gateway.ledger.threads import Caller, ContextRecord, ThreadRecord
from gateway.ledger.tool_calls import AskedCall, EarlierToolCall, StandingApproval, ToolCallRecord
from gateway.ledger.turns import IdempotencyKey, Preferences, Replay, WaitingTurn
from gateway.ports.conversation import HistoryRecord


class Ledger(PushReads, Protocol):
    """Durable state. Every read names its caller: another caller's row is not there."""

    async def commit(self, *points: CommitPoint) -> None:
        """All points in one transaction; returns when it is durable. Raises: Conflict, LedgerUnavailable."""
        ...

    def submit(self, points: tuple[CommitPoint, ...], done: Callable[[Exception | None], None]) -> None:
        """As `commit`, without waiting: `done` is called in the event loop, in the order of submission."""
        ...

    async def context(self, caller: Caller, public_id: str, agent: str) -> ContextRecord | None: ...

    async def thread(self, thread_id: str) -> ThreadRecord | None: ...

    async def task(self, caller: Caller, agent: str, task_id: str) -> TaskRecord | None: ...

    async def whole_task(
        self, caller: Caller, agent: str, task_id: str
    ) -> tuple[TaskRecord, tuple[TurnRecord, ...]] | None:
        """A task and its turns in order, artifacts included, as one moment has them."""
        ...

    async def waiting(self, context: str) -> tuple[TaskRecord, ...]:
        """The public tasks of a context (its row) that wait for their caller, of all agents."""
        ...

    async def replay(self, caller: Caller, agent: str, key: IdempotencyKey) -> Replay | None: ...

    async def turns(self, task_ids: tuple[str, ...], artifacts: bool) -> dict[str, tuple[TurnRecord, ...]]: ...

    async def first_message(self, task_id: str) -> Message | None: ...

    async def events(self, task_id: str, after: int) -> tuple[tuple[int, bytes], ...]:
        """(number, A2A 1.0 JSON) of the events behind number `after`, in order."""
        ...

    async def tasks(
        self, caller: Caller, agent: str, where: TaskFilter, limit: int
    ) -> tuple[tuple[TaskRecord, ...], int]:
        """A page, latest status first, and how many tasks match in all."""
        ...

    async def history(self, thread_id: str, *, unsent_only: bool) -> tuple[HistoryRecord, ...]:
        """Items of a thread in order of turns, then positions."""
        ...

    async def recent_history(
        self, thread_id: str, turn_id: str, *, messages: int | None, weight: int | None, opaque: bool
    ) -> tuple[HistoryRecord, ...]:
        """As `history`, from its end: whole turns, until those up to this one have so many messages or so much weight.

        `opaque`: reasoning and opaque items count. However long the thread is, no more of it is read.
        """
        ...

    async def measured(self, thread_id: str) -> tuple[MeasuredCall, ...]:
        """The latest few completed service calls of a thread, the last one first."""
        ...

    async def unfinished(self, now: int, process: str = "") -> tuple[UnfinishedTurn, ...]:
        """What dead processes left, and all that has not ended of the process that asks."""
        ...

    async def open_turns(self, context: str) -> tuple[OpenTurn, ...]:
        """The turns of a context (its row) that have not ended, of all agents and processes."""
        ...

    async def open_tool_calls(self, turn: str) -> tuple[ToolCallRecord, ...]:
        """Those of a turn that have no outcome, in the order in which they were made."""
        ...

    async def latest_call(self, turn: str) -> LatestCall | None: ...

    async def preferences(self, turn: str) -> Preferences:
        """Of the message that opened the turn."""
        ...

    async def process_of(self, turn: str) -> str | None:
        """The process that has a turn which has not ended."""
        ...

    async def unheard(self, thread_id: str) -> UnheardCall | None:
        """What made a thread `unsynced`."""
        ...

    async def earlier_tool_call(self, thread_id: str, external_id: str, than: str) -> EarlierToolCall | None:
        """The latest one of this thread with that external id which has ended, but for the call `than`."""
        ...

    async def waiting_turn(self, task: str) -> WaitingTurn | None:
        """The turn of this task that waits for its caller."""
        ...

    async def waiting_task(self, thread: str) -> str | None:
        """The task whose turn waits on this thread."""
        ...

    async def asked_calls(self, task: str) -> tuple[AskedCall, ...]:
        """Those of a task that its caller has decided, or has to run, in whatever turn."""
        ...

    async def due_turns(self, now: int, answered_before: int, limit: int) -> tuple[tuple[TaskOwner, str], ...]:
        """The tasks whose turns wait in vain: everything was answered then, or the time for it is over."""
        ...

    async def standing_approvals(self, context: str, principal: str) -> tuple[StandingApproval, ...]:
        """What the principal allowed for as long as the context lasts, by its row's id."""
        ...

    async def turn_base(self, turn: str) -> tuple[str | None, ...]:
        """The handle at which a turn began, or the chain that it began itself; nothing where it made no call."""
        ...

    async def cancels_asked(self, process: str) -> tuple[str, ...]:
        """The tasks whose turns this process was asked to cancel."""
        ...

    async def version(self) -> int:
        """A number that changes with every commit, whichever process has made it."""
        ...

    async def latest_events(self, tasks: tuple[str, ...]) -> dict[str, int]:
        """The number of the last event of each of these tasks; a task that is gone is left out."""
        ...

    async def deletions(self, limit: int) -> tuple[Deletion, ...]:
        """The next ones, due or not, but for those that were given up."""
        ...

    async def next_owner(self, after: TaskOwner) -> TaskOwner | None:
        """All who have public tasks, one after the other."""
        ...

    async def ended_tasks(
        self, owner: TaskOwner, before: int, after: tuple[int, str], limit: int
    ) -> tuple[EndedTask, ...]:
        """Those whose state is older than `before`, the oldest first. `after` is (status_at, id) of the last one read."""
        ...

    async def aged_contexts(self, idle_before: int, after: str, limit: int) -> tuple[AgedContext, ...]:
        """Contexts in the order in which they were made. `after` is the id of the last one read."""
        ...

    async def left(self, context: str) -> bool:
        """Is there anything to purge yet of a buried context?"""
        ...

    async def export(self, caller: Caller, public_id: str) -> ContextDocument | None:
        """A context as it is at one moment; None when there is none or it is buried.

        Raises: Conflict while a turn waits or runs in it.
        """
        ...

    async def api_key(self, digest: bytes) -> ApiKey | None:
        """In force or not. Every call asks the database: another process may have revoked it."""
        ...

    async def api_keys(self) -> tuple[ApiKey, ...]:
        """All that were ever made, the oldest first."""
        ...

    async def secret(self, name: str) -> bytes:
        """32 random bytes that stay the same for the life of the database, made on first use."""
        ...

    async def ready(self) -> None:
        """Raises: LedgerUnavailable when it cannot read, its schema is not ours, or it has not taken writes of late and
        does not now."""
        ...


@dataclass(frozen=True, slots=True)
class LedgerFactory:
    """What an entry point of the group `a2a_gateway.ledgers` names; the entry's name is the URL's scheme."""

    open: Callable[[str, bool], AbstractAsyncContextManager[Ledger]]
