"""A task for operators: its rows, long texts and events."""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Sequence

import msgspec

from gateway.a2a.model import TaskState
from gateway.foundation.off_loop import off_loop
from gateway.ledger.admin.reads import PREVIEW
from gateway.ledger.admin.timelines import (
    Body,
    BodyKey,
    BodyKind,
    CallHead,
    EventLine,
    EventPage,
    ItemHead,
    MessageHead,
    Note,
    TaskHead,
    Timeline,
    ToolHead,
    TurnHead,
)
from gateway.ledger.states import ServiceCallStatus, ToolCallStatus, TurnStatus
from storage import compiled
from storage.read import rows as records
from storage.read.admin.words import correlation_id
from storage.read.queries import Readers
from storage.statement import Query, Row

_TURNS = 50
_ROWS = 2500
"""Rows of each kind that belong to the turns of a timeline."""

_PREVIEWS = 300
_PIECE = 65_536
"""Characters of a long text."""

_EVENTS = 200
_PAGE_BYTES, _EVENT_BYTES = 262_144, 65_536
_FIRST_ROWS = 8
"""Rows of the log that are read before their size is looked at; then twice as many."""

_TEXTS: dict[BodyKind, Query] = {
    "message": compiled.ADMIN_TEXT_MESSAGE,
    "said": compiled.ADMIN_TEXT_SAID,
    "artifacts": compiled.ADMIN_TEXT_ARTIFACTS,
    "status": compiled.ADMIN_TEXT_STATUS,
    "arguments": compiled.ADMIN_TEXT_ARGUMENTS,
    "outcome": compiled.ADMIN_TEXT_OUTCOME,
    "item": compiled.ADMIN_TEXT_ITEM,
    "usage": compiled.ADMIN_TEXT_USAGE,
}


class TimelineQueries:
    """A part of `AdminQueries`."""

    _readers: Readers

    async def task_head(self, tenant: str, task: str) -> TaskHead | None:
        rows = await self._readers.scan(compiled.ADMIN_TASK, {"tenant": tenant, "task": task})
        return _head(rows[0]) if rows else None

    async def timeline(self, tenant: str, task: str, after: int = 0) -> Timeline | None:
        head = await self.task_head(tenant, task)
        if head is None:
            return None
        values = {"task": task, "after": after, "limit": _TURNS + 1}
        rows, [(whole,)] = await self._readers.scan_all(
            (compiled.ADMIN_TURNS, values), (compiled.ADMIN_TURN_COUNT, values)
        )
        turns = tuple(map(_turn, rows[:_TURNS]))
        of_turns = await self._of_turns(turns)
        after_last = turns[-1].number if len(rows) > _TURNS else None
        return await asyncio.to_thread(_timeline, head, turns, of_turns, whole, after_last)

    async def _of_turns(self, turns: Sequence[TurnHead]) -> list[list[Row]]:
        """The messages, calls, tool calls, notes and items of these turns, and one of a kind more than may be shown."""
        if not turns:
            return [[], [], [], [], []]
        threads: dict[str, list[int]] = defaultdict(list)
        for turn in turns:
            threads[turn.thread].append(turn.number)
        values = {"turns": msgspec.json.encode([turn.id for turn in turns]).decode(), "limit": _ROWS + 1}
        queries = (compiled.ADMIN_MESSAGES, compiled.ADMIN_CALLS, compiled.ADMIN_TOOLS, compiled.ADMIN_NOTES)
        of_threads = [
            (compiled.ADMIN_ITEMS, {**values, "thread": thread, "first": min(numbers), "behind": max(numbers) + 1})
            for thread, numbers in threads.items()
        ]
        found = await self._readers.scan_all(*[(query, values) for query in queries], *of_threads)
        return [*found[: len(queries)], [row for rows in found[len(queries) :] for row in rows]]

    # --- long texts

    async def previews(self, tenant: str, keys: tuple[BodyKey, ...]) -> dict[BodyKey, Body]:
        wanted = frozenset(keys[:_PREVIEWS])
        found = await self._texts(tenant, wanted, 0, PREVIEW)
        return {key: body for key, body in found.items() if key in wanted}

    async def body(self, tenant: str, key: BodyKey, offset: int = 0) -> Body | None:
        found = await self._texts(tenant, (key,), offset, _PIECE)
        return found.get(key)

    async def _texts(self, tenant: str, keys: Iterable[BodyKey], offset: int, size: int) -> dict[BodyKey, Body]:
        """Pieces of these texts, and perhaps of others."""
        of_kind: dict[BodyKind, list[BodyKey]] = defaultdict(list)
        for key in keys:
            of_kind[key.kind].append(key)
        if not of_kind:
            return {}
        asked = [(_TEXTS[kind], _wanted(tenant, wanted, offset, size)) for kind, wanted in of_kind.items()]
        found = await self._readers.scan_all(*asked)
        return {
            BodyKey(kind, row_id, number): Body(text, offset, length)
            for kind, rows in zip(of_kind, found, strict=True)
            for row_id, number, text, length in rows
        }

    # --- events

    async def task_events(self, tenant: str, task: str, after: int = 0, limit: int = _EVENTS) -> EventPage | None:
        head = await self.task_head(tenant, task)
        if head is None:
            return None
        shown: list[EventLine] = []
        size, at, rows = 0, after, _FIRST_ROWS
        while len(shown) < limit and size < _PAGE_BYTES and at < head.last_event:
            found = await self._lines(task, at, rows)
            if not found:
                break
            for number, line in found:
                if len(shown) == limit or (shown and size + min(len(line), _EVENT_BYTES) > _PAGE_BYTES):
                    return EventPage(tuple(shown), shown[-1].number, head.last_event)
                shown.append(EventLine(number, line[:_EVENT_BYTES], len(line)))
                size += len(shown[-1].payload)
            at, rows = found[-1][0], rows * 2
        more = bool(shown) and shown[-1].number < head.last_event
        return EventPage(tuple(shown), shown[-1].number if more else None, head.last_event)

    async def event(self, tenant: str, task: str, number: int) -> bytes | None:
        if await self.task_head(tenant, task) is None:
            return None
        return dict(await self._lines(task, number - 1, 1)).get(number)

    async def _lines(self, task: str, after: int, rows: int) -> tuple[tuple[int, bytes], ...]:
        """The events with numbers above `after` in so many rows of the log. Raises: CorruptRecord."""
        found = await self._readers.scan(compiled.ADMIN_EVENTS, {"task": task, "after": after, "limit": rows})
        size = sum([len(payload) for _, _, payload in found])
        return await off_loop(size, records.numbered, task, found, after + 1)


def _wanted(tenant: str, keys: Sequence[BodyKey], offset: int, size: int) -> dict[str, object]:
    return {
        "tenant": tenant,
        "ids": msgspec.json.encode([key.id for key in keys]).decode(),
        "numbers": msgspec.json.encode([key.number for key in keys]).decode(),
        "start": offset + 1,
        "size": size,
    }


def _timeline(
    head: TaskHead, turns: tuple[TurnHead, ...], of_turns: list[list[Row]], whole: int, after: int | None
) -> Timeline:
    messages, calls, tools, notes, items = of_turns
    kinds = {"messages": messages, "calls": calls, "tools": tools, "notes": notes, "items": items}
    return Timeline(
        head,
        turns,
        tuple([MessageHead(*row) for row in messages[:_ROWS]]),
        tuple(map(_call, calls[:_ROWS])),
        tuple(map(_tool, tools[:_ROWS])),
        tuple(map(_item, items[:_ROWS])),
        tuple([Note(*row) for row in notes[:_ROWS]]),
        whole,
        after,
        frozenset(kind for kind, rows in kinds.items() if len(rows) > _ROWS),
    )


def _head(row: Row) -> TaskHead:
    task, context, context_id, tenant, principal, agent, visible, state, *rest, failed = row
    place = (task, context, context_id, tenant, principal, agent)
    return TaskHead(*place, bool(visible), TaskState(state), *[*rest, correlation_id(failed)])


def _turn(row: Row) -> TurnHead:
    turn, thread, number, status, failure, process, cancel_asked, displaced, *rest = row
    flags = bool(cancel_asked), bool(displaced)
    return TurnHead(turn, thread, number, TurnStatus(status), failure, process, *flags, *rest)


def _call(row: Row) -> CallHead:
    call, turn, round_, attempt, status, *rest = row
    return CallHead(call, turn, round_, attempt, ServiceCallStatus(status), *rest)


def _tool(row: Row) -> ToolHead:
    tool, call, turn, sequence, external_id, name, executor, server, status, required, *rest = row
    kind = ToolCallStatus(status), bool(required)
    return ToolHead(tool, call, turn, sequence, external_id, name, executor, server, *kind, *rest)


def _item(row: Row) -> ItemHead:
    thread, position, turn, call, kind, replayable, *rest = row
    return ItemHead(thread, position, turn, call, kind, bool(replayable), *rest)
