"""The reading half of the Ledger port: queries, and their rows as records. Law: a read changes nothing."""

import asyncio
from typing import Any

import msgspec

from gateway.a2a.model import Message
from gateway.foundation.off_loop import off_loop
from gateway.foundation.sizes import LARGE
from gateway.ledger.api_keys import ApiKey
from gateway.ledger.backlog import Backlog
from gateway.ledger.calls import LatestCall, MeasuredCall, UnknownCall
from gateway.ledger.documents import ContextDocument
from gateway.ledger.duties import HeldDuty
from gateway.ledger.errors import Conflict
from gateway.ledger.leases import UnfinishedTurn
from gateway.ledger.push import DuePush, PushConfig, PushState, PushStatus
from gateway.ledger.quotas import ReportedUse
from gateway.ledger.retention import AgedContext, Deletion, EndedTask, Withdrawal
from gateway.ledger.states import ToolCallStatus
from gateway.ledger.tasks import OpenTurn, PageLimits, TaskFilter, TaskOwner, TaskPage, TaskRecord, TurnRecord
from gateway.ledger.threads import Caller, ContextRecord, ThreadRecord
from gateway.ledger.tool_calls import AskedCall, EarlierToolCall, StandingApproval, ToolCallRecord
from gateway.ledger.traces import RecordedTurn
from gateway.ledger.turns import IdempotencyKey, Preferences, Replay, WaitingTurn
from gateway.ports.conversation import HistoryRecord
from storage import compiled
from storage.read import rows as records
from storage.read.documents import document
from storage.read.queries import Readers, recent_values
from storage.statement import Query, Row

_CONFIG_COLUMNS = len(PushConfig.__struct_fields__)

_NO_LIMIT = 2**62

_TOMBSTONES = frozenset({"deleted", "expired"})
_STATE = compiled.EXPORTED_COLUMNS["context"].index("state")
_ENDED_AT = compiled.EXPORTED_COLUMNS["turn"].index("ended_at")

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


class Reads:
    """Every method raises LedgerUnavailable, and CorruptRecord for an unreadable row."""

    def __init__(self, readers: Readers) -> None:
        self._readers = readers

    async def _first(self, query: Query, **values: Any) -> Row | None:
        rows = await self._readers.fetch(query, values)
        return rows[0] if rows else None

    # --- tasks and contexts of a caller ---

    async def context(self, caller: Caller, public_id: str, agent: str) -> ContextRecord | None:
        rows = await self._readers.lookup(compiled.CONTEXT, {**_owned(caller, agent), "public_id": public_id})
        if not rows:
            return None
        row_id, public, state, waiting, stuck, *row = rows[0]
        thread = None if row[0] is None else records.thread(row)
        return ContextRecord(row_id, public, state, thread, waiting, stuck)

    async def task(self, caller: Caller, agent: str, task_id: str) -> TaskRecord | None:
        rows = await self._readers.lookup(compiled.TASK, {**_owned(caller, agent), "task": task_id})
        return records.task(rows[0]) if rows else None

    async def whole_task(
        self, caller: Caller, agent: str, task_id: str, history: int | None = None
    ) -> tuple[TaskRecord, tuple[TurnRecord, ...]] | None:
        query, values = compiled.WHOLE_TASK, _owned(caller, agent)
        if history is None:
            values["task"] = task_id
        else:
            query = compiled.RECENT_TASK
            values |= recent_values(task_id, history)
        rows = await self._readers.lookup(query, values)
        if not rows:
            return None
        *task, _ = rows[0]
        of_turns = [row[-1] for row in rows]
        if sum(map(len, of_turns)) > LARGE:
            return await asyncio.to_thread(_whole_task, task, of_turns)
        return _whole_task(task, of_turns)

    async def tasks(self, caller: Caller, agent: str, where: TaskFilter, limits: PageLimits) -> TaskPage:
        after_at, after_id = where.after or (None, None)
        values = {
            **_owned(caller, agent),
            "context_id": where.context_id,
            "state": where.state,
            "status_since": where.status_since,
            "after_at": after_at,
            "after_id": after_id,
            "limit": limits.tasks + 1,
        }
        filters = (where.context_id, where.state, where.status_since, where.after)
        return await self._readers.page(tuple([each is not None for each in filters]), values, limits)

    async def turns(self, task_ids: tuple[str, ...], artifacts: bool) -> dict[str, tuple[TurnRecord, ...]]:
        """Every task that was asked for, with its turns in order."""
        if not task_ids:
            return {}
        wanted = {"with_history": 1, "with_artifacts": int(artifacts)}
        found = await self._readers.fetch_all(*[(compiled.TURNS, {"task": task_id, **wanted}) for task_id in task_ids])
        of_tasks = [[row for (row,) in rows] for rows in found]
        return await off_loop(sum([len(row) for rows in of_tasks for row in rows]), _turns, task_ids, of_tasks)

    async def first_message(self, task_id: str) -> Message | None:
        row = await self._first(compiled.FIRST_MESSAGE, task=task_id)
        return records.decoded(records.message_decoder.decode, row[0], f"task {task_id!r}") if row else None

    async def replay(self, caller: Caller, agent: str, key: IdempotencyKey) -> Replay | None:
        values = {**_owned(caller, agent), "key_kind": key.kind, "key": key.key}
        rows = await self._readers.lookup(compiled.REPLAY, values)
        return Replay(*rows[0]) if rows else None

    async def waiting_tasks(self, context: str) -> tuple[TaskRecord, ...]:
        rows = await self._readers.fetch(compiled.WAITING_TASKS, {"context": context})
        return tuple(map(records.task, rows))

    # --- the event log ---

    async def events(self, task_id: str, after: int, size: int | None = None) -> tuple[tuple[int, bytes], ...]:
        values: dict[str, Any] = {"task": task_id, "after": after}
        if size is None:
            rows = await self._readers.scan(compiled.EVENTS, values)
        else:
            rows = await self._readers.log_page({**values, "size": size})
        found = sum([len(payload) for _, _, payload in rows])
        return await off_loop(found, records.numbered, task_id, rows, after + 1)

    async def latest_events(self, tasks: tuple[str, ...]) -> dict[str, int]:
        rows = await self._readers.fetch(compiled.LATEST_EVENTS, {"tasks": msgspec.json.encode(tasks).decode()})
        return dict(rows)

    # --- threads, turns and calls ---

    async def thread(self, thread_id: str) -> ThreadRecord | None:
        rows = await self._readers.lookup(compiled.THREAD, {"thread": thread_id})
        return records.thread(rows[0]) if rows else None

    async def history(self, thread_id: str, *, unsent_only: bool) -> tuple[HistoryRecord, ...]:
        query = compiled.UNSENT_ITEMS if unsent_only else compiled.HISTORY
        read = self._readers.fetch if unsent_only else self._readers.scan
        rows = await read(query, {"thread": thread_id})
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
        return tuple(MeasuredCall(weight, records.json_or_null(usage, owner)) for weight, usage in rows)

    async def unknown_call(self, thread_id: str) -> UnknownCall | None:
        row = await self._first(compiled.UNKNOWN_CALL, thread=thread_id)
        if row is None:
            return None
        call, turn, number, handle_in, pending, displaced, run = row
        return UnknownCall(call, turn, number, handle_in, pending, bool(displaced), run)

    async def latest_call(self, turn: str) -> LatestCall | None:
        row = await self._first(compiled.LATEST_CALL, turn=turn)
        return records.latest_call(row) if row else None

    async def preferences(self, turn: str) -> Preferences:
        row = await self._first(compiled.PREFERENCES, turn=turn)
        if row is None or row[0] is None:
            return Preferences()
        return records.decoded(records.preferences_decoder.decode, row[0], f"turn {turn!r}")

    async def turn_base(self, turn: str) -> tuple[str | None, ...]:
        rows = await self._readers.fetch(compiled.TURN_BASE, {"turn": turn})
        return tuple(handle for (handle,) in rows[:1])

    async def open_tool_calls(self, turn: str) -> tuple[ToolCallRecord, ...]:
        rows = await self._readers.fetch(compiled.OPEN_TOOL_CALLS, {"turn": turn})
        return tuple(map(records.tool_call, rows))

    async def unreported_tool_calls(self, turn: str) -> tuple[ToolCallRecord, ...]:
        rows = await self._readers.fetch(compiled.UNREPORTED_TOOL_CALLS, {"turn": turn})
        return tuple(map(records.tool_call, rows))

    async def earlier_tool_call(self, thread_id: str, external_id: str, than: str) -> EarlierToolCall | None:
        row = await self._first(compiled.EARLIER_TOOL_CALL, thread=thread_id, external_id=external_id, than=than)
        if row is None:
            return None
        name, arguments, status, outcome = row
        return EarlierToolCall(
            name, arguments, ToolCallStatus(status), records.json_or_null(outcome, f"thread {thread_id!r}")
        )

    async def recorded_turn(self, turn: str) -> RecordedTurn | None:
        asked = {"turn": turn}
        found, calls, tools = await self._readers.fetch_all(
            (compiled.RECORDED_TURN, asked), (compiled.RECORDED_CALLS, asked), (compiled.RECORDED_TOOLS, asked)
        )
        return records.recorded_turn(found[0], calls, tools, f"turn {turn!r}") if found else None

    # --- turns that wait for their caller ---

    async def waiting_turn(self, task: str) -> WaitingTurn | None:
        row = await self._first(compiled.WAITING_TURN, task=task)
        if row is None:
            return None
        turn, thread, inputs, base, cancel_asked = row
        calls = await self._readers.fetch(compiled.CALLS_OF_ROUND, {"turn": turn})
        return WaitingTurn(turn, thread, inputs, base, tuple(map(records.asked, calls)), bool(cancel_asked))

    async def waiting_task(self, thread: str) -> str | None:
        row = await self._first(compiled.WAITING_TASK, thread=thread)
        return row[0] if row else None

    async def asked_calls(self, task: str) -> tuple[AskedCall, ...]:
        rows = await self._readers.fetch(compiled.ASKED_CALLS, {"task": task})
        return tuple(map(records.asked, rows))

    async def overdue_turns(self, now: int, answered_before: int, limit: int) -> tuple[tuple[TaskOwner, str], ...]:
        values = {"now": now, "before": answered_before, "limit": limit}
        rows = await self._readers.fetch(compiled.OVERDUE_TURNS, values)
        return tuple((TaskOwner(*owner), task) for *owner, task in rows)

    async def standing_approvals(self, context: str, principal: str) -> tuple[StandingApproval, ...]:
        rows = await self._readers.fetch(compiled.STANDING_APPROVALS, {"context": context, "principal": principal})
        return tuple(StandingApproval(*row) for row in rows)

    # --- recovery ---

    async def unfinished_turns(self, now: int, process: str = "") -> tuple[UnfinishedTurn, ...]:
        rows = await self._readers.fetch(compiled.UNFINISHED_TURNS, {"now": now, "process": process})
        return tuple(map(_unfinished, sorted(rows, key=lambda row: (row[2], row[0]))))

    async def open_turns(self, context: str) -> tuple[OpenTurn, ...]:
        rows = await self._readers.fetch(compiled.OPEN_TURNS, {"context": context})
        return tuple(OpenTurn(turn, task, thread, bool(waits)) for turn, task, thread, waits in rows)

    async def process_of(self, turn: str) -> str | None:
        row = await self._first(compiled.PROCESS_OF, turn=turn)
        return row[0] if row else None

    async def cancel_requests(self, process: str) -> tuple[str, ...]:
        rows = await self._readers.fetch(compiled.CANCEL_REQUESTS, {"process": process})
        return tuple(task for (task,) in rows)

    # --- retention ---

    async def deletions(self, limit: int) -> tuple[Deletion, ...]:
        rows = await self._readers.fetch(compiled.DELETIONS, {"limit": limit})
        return tuple(Deletion(*row) for row in rows)

    async def backlog(self) -> Backlog:
        [row] = await self._readers.fetch(compiled.BACKLOG, {})
        return Backlog(*row)

    async def next_withdrawals(self, limit: int) -> tuple[Withdrawal, ...]:
        rows = await self._readers.fetch(compiled.NEXT_WITHDRAWALS, {"limit": limit})
        return tuple(Withdrawal(*row) for row in rows)

    async def withdrawals(self, thread_id: str) -> tuple[Withdrawal, ...]:
        rows = await self._readers.fetch(compiled.WITHDRAWALS, {"thread": thread_id})
        return tuple(Withdrawal(*row) for row in rows)

    async def duty(self, name: str) -> HeldDuty | None:
        row = await self._first(compiled.DUTY, duty=name)
        return HeldDuty(*row) if row else None

    async def reported_use(self, process: str, now: int) -> tuple[ReportedUse, ...]:
        rows = await self._readers.fetch(compiled.REPORTED_USE, {"process": process, "now": now})
        return tuple(
            ReportedUse(other, records.decoded(records.use_decoder.decode, callers, f"process {other!r}"))
            for other, callers in rows
        )

    async def next_owner(self, after: TaskOwner) -> TaskOwner | None:
        row = await self._first(compiled.NEXT_OWNER, **msgspec.structs.asdict(after))
        return TaskOwner(*row) if row else None

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
        row = await self._first(compiled.PURGE_PENDING, context=context)
        return bool(row and row[0])

    async def export(self, caller: Caller, public_id: str) -> ContextDocument | None:
        values = {"tenant": caller.tenant, "principal": caller.principal, "public_id": public_id}
        found = await self._readers.fetch(compiled.EXPORTED_CONTEXT, values)
        if not found:
            return None
        of_context = [(query, {"context": found[0][0]}) for query in _EXPORTED]
        [found, *rows] = await self._readers.scan_all((compiled.EXPORTED_CONTEXT, values), *of_context)
        if not found or found[0][_STATE] in _TOMBSTONES:
            return None
        if any(turn[_ENDED_AT] is None for turn in rows[_EXPORTED.index(compiled.EXPORTED_TURNS)]):
            raise Conflict(f"a turn of context {public_id!r} has not ended")
        return await asyncio.to_thread(document, found[0], *rows)

    # --- push notifications ---

    async def push_configs(self, task: str) -> tuple[PushConfig, ...]:
        rows = await self._readers.fetch(compiled.PUSH_CONFIGS, {"task": task})
        return tuple(PushConfig(*row) for row in rows)

    async def due_pushes(self, now: int, excluded: tuple[str, ...], limit: int) -> tuple[DuePush, ...]:
        values = {"now": now, "excluded": msgspec.json.encode(excluded).decode(), "limit": limit}
        rows = await self._readers.scan(compiled.DUE_PUSHES, values)
        return tuple(
            DuePush(PushConfig(*row[:_CONFIG_COLUMNS]), next_event, due_at, attempts, bool(visible))
            for row in rows
            for next_event, due_at, attempts, visible in [row[_CONFIG_COLUMNS:]]
        )

    async def turn_of_event(self, task: str, number: int) -> tuple[str, str | None] | None:
        row = await self._first(compiled.TURN_OF_EVENT, task=task, number=number)
        return None if row is None else (row[0], row[1])

    async def next_push(self) -> tuple[bool, int | None]:
        [(active, due_at)] = await self._readers.fetch(compiled.NEXT_PUSH, {})
        return bool(active), due_at

    async def push_events(self, task: str, first: int) -> tuple[tuple[int, bytes], ...]:
        rows = await self._readers.scan(compiled.PUSH_EVENTS, {"task": task, "first": first})
        return records.numbered(task, rows, first)

    async def is_hidden(self, task: str) -> bool:
        return await self._first(compiled.HIDDEN_TASK, task=task) is not None

    async def push_statuses(self, tenant: str, principal: str) -> tuple[PushStatus, ...]:
        rows = await self._readers.scan(compiled.PUSHES, {"tenant": tenant, "principal": principal})
        return tuple(
            PushStatus(PushConfig(*row[:_CONFIG_COLUMNS]), agent, PushState(state), *progress)
            for row in rows
            for agent, state, *progress in [row[_CONFIG_COLUMNS:]]
        )

    # --- API keys ---

    async def api_key(self, digest: bytes) -> ApiKey | None:
        rows = await self._readers.lookup(compiled.API_KEY, {"digest": digest})
        return records.api_key(rows[0]) if rows else None

    async def api_keys(self) -> tuple[ApiKey, ...]:
        return tuple(map(records.api_key, await self._readers.scan(compiled.API_KEYS, {})))


def _whole_task(task: list[Any], of_turns: list[bytes]) -> tuple[TaskRecord, tuple[TurnRecord, ...]]:
    """Raises: CorruptRecord."""
    record = records.task(task)
    return record, records.turns(record.id, of_turns)


def _turns(task_ids: tuple[str, ...], of_tasks: list[list[bytes]]) -> dict[str, tuple[TurnRecord, ...]]:
    """Raises: CorruptRecord."""
    return {task_id: records.turns(task_id, rows) for task_id, rows in zip(task_ids, of_tasks, strict=True)}


def _owned(caller: Caller, agent: str) -> dict[str, Any]:
    return {"tenant": caller.tenant, "principal": caller.principal, "agent": agent}


def _unfinished(row: Row) -> UnfinishedTurn:
    _, turn, thread, generation, expired, waits, process, cancel_asked, tries, tenant, principal, *task = row
    # Ending a turn needs no status message: an unreadable one must not hide all other turns.
    record = records.task([*task[:5], None, *task[6:]])
    caller, asked = Caller(principal, tenant), bool(cancel_asked)
    return UnfinishedTurn(turn, thread, generation, record, caller, bool(expired), bool(waits), process, asked, tries)
