"""The reading half of the Ledger port: queries, and rows made into records. Law: a read changes nothing."""

from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

import msgspec

from gateway import items
from gateway.commits import (
    Caller,
    ContextRecord,
    CorruptRecord,
    IdempotencyKey,
    OpenTurn,
    Replay,
    TaskFilter,
    TaskRecord,
    ThreadRecord,
    TurnRecord,
    UnfinishedTurn,
)
from gateway.items import HandleKind, HistoryRecord, StorageOwner, UserItem
from gateway.model import Message, TaskState
from storage import compiled as queries
from storage.readers import Readers, Row

_message = msgspec.json.Decoder(Message)
_messages = msgspec.json.Decoder(tuple[Message, ...])
_values = msgspec.json.Decoder(tuple[Any, ...])
_value = msgspec.json.Decoder()

T = TypeVar("T")


@cache
def _of_tasks(count: int, artifacts: bool) -> str:
    asked = ", ".join(f":task_{index}" for index in range(count))
    sql: str = queries.TURNS[artifacts]
    return sql.replace(":task_0", asked)


class Reads:
    """Every method raises LedgerUnavailable, and CorruptRecord for a row that nobody can read."""

    def __init__(self, readers: Readers) -> None:
        self._readers = readers

    async def context(self, caller: Caller, public_id: str, agent: str) -> ContextRecord | None:
        rows = await self._readers.fetch(queries.CONTEXT, {**_whose(caller, agent), "public_id": public_id})
        if not rows:
            return None
        row_id, public, state, *thread = rows[0]
        return ContextRecord(row_id, public, state, None if thread[0] is None else _thread(thread))

    async def thread(self, thread_id: str) -> ThreadRecord | None:
        rows = await self._readers.fetch(queries.THREAD, {"thread": thread_id})
        return _thread(rows[0]) if rows else None

    async def task(self, caller: Caller, agent: str, task_id: str) -> TaskRecord | None:
        rows = await self._readers.fetch(queries.TASK, {**_whose(caller, agent), "task": task_id})
        return _task(rows[0]) if rows else None

    async def waiting(self, context: str) -> tuple[TaskRecord, ...]:
        rows = await self._readers.fetch(queries.WAITING_TASKS, {"context": context})
        return tuple(_task(row) for row in rows)

    async def replay(self, caller: Caller, agent: str, key: IdempotencyKey) -> Replay | None:
        values = {**_whose(caller, agent), "key_kind": key.kind, "key": key.key}
        rows = await self._readers.fetch(queries.REPLAY, values)
        return Replay(*rows[0]) if rows else None

    async def turns(self, task_ids: tuple[str, ...], artifacts: bool) -> dict[str, tuple[TurnRecord, ...]]:
        """Every task that was asked for, with its turns in order."""
        if not task_ids:
            return {}
        sql = _of_tasks(len(task_ids), artifacts)
        rows = await self._readers.fetch(sql, {f"task_{index}": task_id for index, task_id in enumerate(task_ids)})
        found: dict[str, list[TurnRecord]] = {task_id: [] for task_id in task_ids}
        for task_id, *row in rows:
            found[task_id].append(_turn(task_id, row))
        return {task_id: tuple(turns) for task_id, turns in found.items()}

    async def first_message(self, task_id: str) -> Message | None:
        rows = await self._readers.fetch(queries.FIRST_MESSAGE, {"task": task_id})
        return _readable(_message.decode, rows[0][0], f"task {task_id!r}") if rows else None

    async def events(self, task_id: str, after: int) -> tuple[tuple[int, bytes], ...]:
        rows = await self._readers.fetch(queries.EVENTS, {"task": task_id, "after": after})
        return tuple(
            (number, payload)
            for first, last, payloads in rows
            for number, payload in zip(range(first, last + 1), _lines(task_id, payloads, last - first + 1), strict=True)
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
        sql = queries.LISTINGS[
            where.context_id is not None,
            where.state is not None,
            where.status_since is not None,
            where.after is not None,
        ]
        page = await self._readers.fetch(sql.page, values)
        total = await self._readers.fetch(sql.total, values)
        return tuple(_task(row) for row in page), total[0][0]

    async def history(self, thread_id: str, *, unsent_only: bool) -> tuple[HistoryRecord, ...]:
        sql = queries.UNSENT_ITEMS if unsent_only else queries.HISTORY
        rows = await self._readers.fetch(sql, {"thread": thread_id})
        return tuple(_item(thread_id, row) for row in rows)

    async def unfinished(self, now: int, process: str = "") -> tuple[UnfinishedTurn, ...]:
        rows = await self._readers.fetch(queries.UNFINISHED_TURNS, {"now": now, "process": process})
        return tuple(
            UnfinishedTurn(turn, thread, generation, _task(task), Caller(principal, tenant), bool(expired))
            for number, turn, thread, generation, expired, tenant, principal, *task in sorted(
                rows, key=lambda row: (row[2], row[0])
            )
        )

    async def open_turns(self, context: str) -> tuple[OpenTurn, ...]:
        rows = await self._readers.fetch(queries.OPEN_TURNS, {"context": context})
        return tuple(OpenTurn(*row) for row in rows)

    async def cancels_asked(self, process: str) -> tuple[str, ...]:
        rows = await self._readers.fetch(queries.CANCELS_ASKED, {"process": process})
        return tuple(task for (task,) in rows)

    async def version(self) -> int:
        return await self._readers.version()

    async def latest_events(self, tasks: tuple[str, ...]) -> dict[str, int]:
        rows = await self._readers.fetch(queries.LATEST_EVENTS, {"tasks": msgspec.json.encode(tasks).decode()})
        return dict(rows)


def _whose(caller: Caller, agent: str) -> dict[str, Any]:
    return {"tenant": caller.tenant, "principal": caller.principal, "agent": agent}


def _readable(decode: Callable[[str], T], payload: str, owner: str) -> T:
    try:
        return decode(payload)
    except msgspec.MsgspecError as error:
        raise CorruptRecord(f"a row of {owner} cannot be read: {error}") from error


def _thread(row: Row | list[Any]) -> ThreadRecord:
    thread_id, context, agent, epoch, owner, handle_kind, handle, generation, state = row
    return ThreadRecord(
        id=thread_id,
        context=context,
        agent=agent,
        epoch=epoch,
        owner=StorageOwner(owner),
        handle_kind=HandleKind(handle_kind),
        handle=handle,
        generation=generation,
        adapter_state=None if state is None else _readable(_value.decode, state, f"thread {thread_id!r}"),
    )


def _task(row: Row | list[Any]) -> TaskRecord:
    task_id, context, context_id, agent, state, message, status_at, last_event, visible = row
    return TaskRecord(
        id=task_id,
        context=context,
        context_id=context_id,
        agent=agent,
        state=TaskState(state),
        status_message=None if message is None else _readable(_message.decode, message, f"task {task_id!r}"),
        status_at=status_at,
        last_event=last_event,
        visible=bool(visible),
    )


def _turn(task_id: str, row: list[Any]) -> TurnRecord:
    payload, event, ended_at, messages, artifacts = row
    owner = f"task {task_id!r}"
    return TurnRecord(
        message=_readable(_message.decode, payload, owner),
        event=event,
        messages=None if messages is None else _readable(_messages.decode, messages, owner),
        artifacts=None if artifacts is None else _readable(_values.decode, artifacts, owner),
        ended=ended_at is not None,
    )


def _lines(task_id: str, payload: str, expected: int) -> list[bytes]:
    lines = payload.encode().split(b"\n")
    if len(lines) != expected:
        raise CorruptRecord(f"a row of task {task_id!r} holds {len(lines)} events instead of {expected}")
    return lines


def _item(thread_id: str, row: Row) -> HistoryRecord:
    position, turn, turn_id, payload, message, provider_id, sent_in, replayable = row
    owner = f"thread {thread_id!r}"
    if payload is None:
        item: items.Item = UserItem(_readable(_message.decode, message, owner))
    else:
        item = _readable(items.decode, payload, owner)
    return HistoryRecord(
        position=position,
        turn=turn,
        item=item,
        provider_id=provider_id,
        sent_in=sent_in,
        replayable=bool(replayable),
        turn_id=turn_id,
    )
