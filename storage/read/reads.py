"""The reads of push notifications. Law: as in `reads`.

The reading half of the Ledger port: queries, and what they find. Law: a read changes nothing.
"""

import asyncio
from functools import cache
from typing import Any

import msgspec

from gateway.a2a.model import Message
from gateway.ledger.api_keys import ApiKey
from gateway.ledger.calls import LatestCall, MeasuredCall, UnknownCall
from gateway.ledger.documents import ContextDocument
from gateway.ledger.errors import Conflict, CorruptRecord
from gateway.ledger.leases import UnfinishedTurn
from gateway.ledger.push import DuePush, PushConfig, PushState, PushStatus
from gateway.ledger.retention import AgedContext, Deletion, EndedTask
from gateway.ledger.tasks import OpenTurn, TaskFilter, TaskOwner, TaskRecord, TurnRecord
from gateway.ledger.threads import Caller, ContextRecord, ThreadRecord
from gateway.ledger.tool_calls import AskedCall, EarlierToolCall, StandingApproval, ToolCallRecord
from gateway.ledger.turns import IdempotencyKey, Preferences, Replay, WaitingTurn
from gateway.ports.conversation import HistoryRecord
from storage import compiled
from storage.read import rows as records
from storage.read.documents import document
from storage.read.grouped import Row
from storage.read.pool import Readers

_CONFIG_COLUMNS = len(PushConfig.__struct_fields__)


class StoredPushes:
    """Every method raises LedgerUnavailable, and CorruptRecord for a row that nobody can read."""

    def __init__(self, readers: Readers) -> None:
        self._readers = readers

    async def push_configs(self, task: str) -> tuple[PushConfig, ...]:
        rows = await self._readers.fetch(compiled.PUSH_CONFIGS, {"task": task})
        return tuple(PushConfig(*row) for row in rows)

    async def due_pushes(self, now: int, but: tuple[str, ...], limit: int) -> tuple[DuePush, ...]:
        values = {"now": now, "but": msgspec.json.encode(but).decode(), "limit": limit}
        rows = await self._readers.scan(compiled.DUE_PUSHES, values)
        return tuple(
            DuePush(_config(row), next_event, due_at, attempts, bool(visible))
            for row in rows
            for next_event, due_at, attempts, visible in [row[_CONFIG_COLUMNS:]]
        )

    async def next_push(self) -> tuple[bool, int | None]:
        [(active, due_at)] = await self._readers.fetch(compiled.NEXT_PUSH, {})
        return bool(active), due_at

    async def push_events(self, task: str, first: int) -> tuple[tuple[int, bytes], ...]:
        rows = await self._readers.scan(compiled.PUSH_EVENTS, {"task": task, "first": first})
        return tuple(
            (number, payload)
            for start, last, payloads in rows
            for number, payload in zip(range(start, last + 1), lines(task, payloads, last - start + 1), strict=True)
            if number >= first
        )

    async def is_hidden(self, task: str) -> bool:
        return bool(await self._readers.fetch(compiled.HIDDEN_TASK, {"task": task}))

    async def push_statuses(self, tenant: str, principal: str) -> tuple[PushStatus, ...]:
        rows = await self._readers.scan(compiled.PUSHES, {"tenant": tenant, "principal": principal})
        return tuple(_status(row) for row in rows)


def _config(row: Row) -> PushConfig:
    return PushConfig(*row[:_CONFIG_COLUMNS])


def _status(row: Row) -> PushStatus:
    agent, state, *progress = row[_CONFIG_COLUMNS:]
    return PushStatus(_config(row), agent, PushState(state), *progress)


def lines(task: str, payload: str, expected: int) -> list[bytes]:
    """The events of one row of the log. Raises: CorruptRecord."""
    found = payload.encode().split(b"\n")
    if len(found) != expected:
        raise CorruptRecord(f"a row of task {task!r} holds {len(found)} events instead of {expected}")
    return found


_TASK_COLUMNS = len(TaskRecord.__struct_fields__)

_NO_LIMIT = 2**62


@cache
def _of_tasks(count: int, artifacts: bool) -> str:
    asked = ", ".join(f":task_{index}" for index in range(count))
    sql: str = compiled.TURNS[artifacts]
    return sql.replace(":task_0", asked)


class Reads(StoredPushes):
    """Every method raises LedgerUnavailable, and CorruptRecord for a row that nobody can read."""

    async def context(self, caller: Caller, public_id: str, agent: str) -> ContextRecord | None:
        rows = await self._readers.find(compiled.CONTEXT, {**_whose(caller, agent), "public_id": public_id})
        if not rows:
            return None
        row_id, public, state, waiting, stuck, *row = rows[0]
        thread = None if row[0] is None else records.thread(row)
        return ContextRecord(row_id, public, state, thread, waiting, stuck)

    async def thread(self, thread_id: str) -> ThreadRecord | None:
        rows = await self._readers.find(compiled.THREAD, {"thread": thread_id})
        return records.thread(rows[0]) if rows else None

    async def task(self, caller: Caller, agent: str, task_id: str) -> TaskRecord | None:
        rows = await self._readers.find(compiled.TASK, {**_whose(caller, agent), "task": task_id})
        return records.task(rows[0]) if rows else None

    async def whole_task(
        self, caller: Caller, agent: str, task_id: str
    ) -> tuple[TaskRecord, tuple[TurnRecord, ...]] | None:
        rows = await self._readers.find(compiled.WHOLE_TASK, {**_whose(caller, agent), "task": task_id})
        if not rows:
            return None
        return records.task(rows[0][:_TASK_COLUMNS]), records.turns(task_id, [row[_TASK_COLUMNS:] for row in rows])

    async def waiting_tasks(self, context: str) -> tuple[TaskRecord, ...]:
        rows = await self._readers.fetch(compiled.WAITING_TASKS, {"context": context})
        return tuple(records.task(row) for row in rows)

    async def api_key(self, digest: bytes) -> ApiKey | None:
        rows = await self._readers.find(compiled.API_KEY, {"digest": digest})
        return records.api_key(rows[0]) if rows else None

    async def api_keys(self) -> tuple[ApiKey, ...]:
        return tuple(map(records.api_key, await self._readers.scan(compiled.API_KEYS, {})))

    async def replay(self, caller: Caller, agent: str, key: IdempotencyKey) -> Replay | None:
        values = {**_whose(caller, agent), "key_kind": key.kind, "key": key.key}
        rows = await self._readers.find(compiled.REPLAY, values)
        return Replay(*rows[0]) if rows else None

    async def turns(self, task_ids: tuple[str, ...], artifacts: bool) -> dict[str, tuple[TurnRecord, ...]]:
        """Every task that was asked for, with its turns in order."""
        if not task_ids:
            return {}
        sql = _of_tasks(len(task_ids), artifacts)
        rows = await self._readers.fetch(sql, {f"task_{index}": task_id for index, task_id in enumerate(task_ids)})
        found: dict[str, list[list[Any]]] = {task_id: [] for task_id in task_ids}
        for task_id, *row in rows:
            found[task_id].append(row)
        return {task_id: records.turns(task_id, of_task) for task_id, of_task in found.items()}

    async def first_message(self, task_id: str) -> Message | None:
        rows = await self._readers.fetch(compiled.FIRST_MESSAGE, {"task": task_id})
        return records.readable(records.message_decoder.decode, rows[0][0], f"task {task_id!r}") if rows else None

    async def events(self, task_id: str, after: int) -> tuple[tuple[int, bytes], ...]:
        rows = await self._readers.scan(compiled.EVENTS, {"task": task_id, "after": after})
        return tuple(
            (number, payload)
            for first, last, payloads in rows
            for number, payload in zip(range(first, last + 1), lines(task_id, payloads, last - first + 1), strict=True)
            if number > after
        )

    async def tasks(
        self, caller: Caller, agent: str, where: TaskFilter, limit: int
    ) -> tuple[tuple[TaskRecord, ...], int]:
        after_at, after_id = where.after or (None, None)
        values = {
            **_whose(caller, agent),
            "context_id": where.context_id,
            "state": where.state,
            "status_since": where.status_since,
            "after_at": after_at,
            "after_id": after_id,
            "limit": limit,
        }
        sql = compiled.LISTINGS[
            where.context_id is not None,
            where.state is not None,
            where.status_since is not None,
            where.after is not None,
        ]
        page, total = await self._readers.fetch_all((sql.page, values), (sql.total, values))
        return tuple(records.task(row) for row in page), total[0][0]

    async def history(self, thread_id: str, *, unsent_only: bool) -> tuple[HistoryRecord, ...]:
        sql = compiled.UNSENT_ITEMS if unsent_only else compiled.HISTORY
        read = self._readers.fetch if unsent_only else self._readers.scan
        rows = await read(sql, {"thread": thread_id})
        return tuple(records.item(thread_id, row) for row in rows)

    async def recent_history(
        self, thread_id: str, turn_id: str, *, messages: int | None, weight: int | None, opaque: bool
    ) -> tuple[HistoryRecord, ...]:
        values = {
            "thread": thread_id,
            "turn": turn_id,
            "messages": _NO_LIMIT if messages is None else messages,
            "weight": _NO_LIMIT if weight is None else weight,
            "opaque": int(opaque),
        }
        rows = await self._readers.scan(compiled.RECENT_HISTORY, values)
        return tuple(records.item(thread_id, row) for row in rows)

    async def measured_calls(self, thread_id: str) -> tuple[MeasuredCall, ...]:
        rows = await self._readers.fetch(compiled.MEASURED_CALLS, {"thread": thread_id})
        owner = f"thread {thread_id!r}"
        return tuple(
            MeasuredCall(
                weight, None if usage is None else records.readable(records.value_decoder.decode, usage, owner)
            )
            for weight, usage in rows
        )

    async def unfinished_turns(self, now: int, process: str = "") -> tuple[UnfinishedTurn, ...]:
        rows = await self._readers.fetch(compiled.UNFINISHED_TURNS, {"now": now, "process": process})
        # Who ends it needs no status message: one that cannot be read must not hide all others.
        return tuple(
            UnfinishedTurn(
                turn,
                thread,
                generation,
                records.task([*task[:5], None, *task[6:]]),
                Caller(principal, tenant),
                bool(expired),
                bool(waits),
                left_by,
                bool(cancel_asked),
                tries,
            )
            for _, turn, thread, generation, expired, waits, left_by, cancel_asked, tries, tenant, principal, *task in (
                sorted(rows, key=lambda row: (row[2], row[0]))
            )
        )

    async def deletions(self, limit: int) -> tuple[Deletion, ...]:
        rows = await self._readers.fetch(compiled.DELETIONS, {"limit": limit})
        return tuple(Deletion(*row) for row in rows)

    async def next_owner(self, after: TaskOwner) -> TaskOwner | None:
        rows = await self._readers.fetch(compiled.NEXT_OWNER, msgspec.structs.asdict(after))
        return TaskOwner(*rows[0]) if rows else None

    async def ended_tasks(
        self, owner: TaskOwner, before: int, after: tuple[int, str], limit: int
    ) -> tuple[EndedTask, ...]:
        after_at, after_id = after
        values = {
            **msgspec.structs.asdict(owner),
            "before": before,
            "after_at": after_at,
            "after_id": after_id,
            "limit": limit,
        }
        rows = await self._readers.fetch(compiled.ENDED_TASKS, values)
        return tuple(EndedTask(task_id, status_at, bool(logged)) for task_id, status_at, logged in rows)

    async def aged_contexts(self, idle_before: int, after: str, limit: int) -> tuple[AgedContext, ...]:
        rows = await self._readers.scan(compiled.AGED_CONTEXTS, {"before": idle_before, "after": after, "limit": limit})
        return tuple(
            AgedContext(row_id, Caller(principal, tenant), public_id, created_at, bool(idle), bool(left))
            for row_id, tenant, principal, public_id, created_at, idle, left in rows
        )

    async def purge_pending(self, context: str) -> bool:
        rows = await self._readers.fetch(compiled.PURGE_PENDING, {"context": context})
        return bool(rows and rows[0][0])

    async def export(self, caller: Caller, public_id: str) -> ContextDocument | None:
        values = {"tenant": caller.tenant, "principal": caller.principal, "public_id": public_id}
        async with self._readers.snapshot() as fetch:
            found = await fetch(compiled.EXPORTED_CONTEXT, values)
            if not found or found[0][_STATE] in _BURIED:
                return None
            rows = [await fetch(sql, {"context": found[0][0]}) for sql in _EXPORTED]
        if any(turn[_ENDED_AT] is None for turn in rows[_EXPORTED.index(compiled.EXPORTED_TURNS)]):
            raise Conflict(f"a turn of context {public_id!r} has not ended")
        return await asyncio.to_thread(document, found[0], *rows)

    async def open_turns(self, context: str) -> tuple[OpenTurn, ...]:
        rows = await self._readers.fetch(compiled.OPEN_TURNS, {"context": context})
        return tuple(OpenTurn(row[0], row[1], row[2], bool(row[3])) for row in rows)

    async def open_tool_calls(self, turn: str) -> tuple[ToolCallRecord, ...]:
        rows = await self._readers.fetch(compiled.OPEN_TOOL_CALLS, {"turn": turn})
        return tuple(ToolCallRecord(*row) for row in rows)

    async def latest_call(self, turn: str) -> LatestCall | None:
        rows = await self._readers.fetch(compiled.LATEST_CALL, {"turn": turn})
        return LatestCall(*rows[0]) if rows else None

    async def preferences(self, turn: str) -> Preferences:
        rows = await self._readers.fetch(compiled.PREFERENCES, {"turn": turn})
        stored = rows[0][0] if rows else None
        return (
            Preferences()
            if stored is None
            else records.readable(records.preferences_decoder.decode, stored, f"turn {turn!r}")
        )

    async def process_of(self, turn: str) -> str | None:
        rows = await self._readers.fetch(compiled.PROCESS_OF, {"turn": turn})
        return rows[0][0] if rows else None

    async def unknown_call(self, thread_id: str) -> UnknownCall | None:
        rows = await self._readers.fetch(compiled.UNKNOWN_CALL, {"thread": thread_id})
        if not rows:
            return None
        call_id, turn, number, handle_in, pending, displaced = rows[0]
        return UnknownCall(call_id, turn, number, handle_in, pending, bool(displaced))

    async def earlier_tool_call(self, thread_id: str, external_id: str, than: str) -> EarlierToolCall | None:
        values = {"thread": thread_id, "external_id": external_id, "than": than}
        rows = await self._readers.fetch(compiled.EARLIER_TOOL_CALL, values)
        if not rows:
            return None
        name, arguments, status, outcome = rows[0]
        return EarlierToolCall(
            name, arguments, status, records.readable(records.value_decoder.decode, outcome, f"thread {thread_id!r}")
        )

    async def waiting_turn(self, task: str) -> WaitingTurn | None:
        rows = await self._readers.fetch(compiled.WAITING_TURN, {"task": task})
        if not rows:
            return None
        turn, thread, inputs, base, cancel_asked = rows[0]
        calls = await self._readers.fetch(compiled.CALLS_OF_ROUND, {"turn": turn})
        asked = tuple(records.asked(row) for row in calls)
        return WaitingTurn(turn, thread, inputs, base, asked, bool(cancel_asked))

    async def waiting_task(self, thread: str) -> str | None:
        rows = await self._readers.fetch(compiled.WAITING_TASK, {"thread": thread})
        return rows[0][0] if rows else None

    async def asked_calls(self, task: str) -> tuple[AskedCall, ...]:
        rows = await self._readers.fetch(compiled.ASKED_CALLS, {"task": task})
        return tuple(records.asked(row) for row in rows)

    async def overdue_turns(self, now: int, answered_before: int, limit: int) -> tuple[tuple[TaskOwner, str], ...]:
        values = {"now": now, "before": answered_before, "limit": limit}
        rows = await self._readers.fetch(compiled.OVERDUE_TURNS, values)
        return tuple((TaskOwner(*owner), task) for *owner, task in rows)

    async def standing_approvals(self, context: str, principal: str) -> tuple[StandingApproval, ...]:
        rows = await self._readers.fetch(compiled.STANDING_APPROVALS, {"context": context, "principal": principal})
        return tuple(StandingApproval(*row) for row in rows)

    async def turn_base(self, turn: str) -> tuple[str | None, ...]:
        rows = await self._readers.fetch(compiled.TURN_BASE, {"turn": turn})
        return tuple(handle for (handle,) in rows[:1])

    async def cancel_requests(self, process: str) -> tuple[str, ...]:
        rows = await self._readers.fetch(compiled.CANCEL_REQUESTS, {"process": process})
        return tuple(task for (task,) in rows)

    async def version(self) -> int:
        return await self._readers.version()

    async def latest_events(self, tasks: tuple[str, ...]) -> dict[str, int]:
        rows = await self._readers.fetch(compiled.LATEST_EVENTS, {"tasks": msgspec.json.encode(tasks).decode()})
        return dict(rows)


_BURIED = frozenset({"deleted", "expired"})
_STATE = 2
_ENDED_AT = 9
"""Places in the rows of `storage.sql.documents`."""

_EXPORTED = (
    compiled.EXPORTED_THREADS,
    compiled.EXPORTED_TASKS,
    compiled.EXPORTED_TURNS,
    compiled.EXPORTED_INPUTS,
    compiled.EXPORTED_CALLS,
    compiled.EXPORTED_TOOL_CALLS,
    compiled.EXPORTED_ITEMS,
    compiled.EXPORTED_EVENTS,
)


def _whose(caller: Caller, agent: str) -> dict[str, Any]:
    return {"tenant": caller.tenant, "principal": caller.principal, "agent": agent}
