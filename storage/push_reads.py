"""The reads of push notifications. Law: as in `reads`."""

import msgspec

from gateway.commits.failures import CorruptRecord
from gateway.push_records import DuePush, PushConfig, PushState, PushStatus
from storage import compiled as queries
from storage.grouped import Row
from storage.readers import Readers

_CONFIG_COLUMNS = len(PushConfig.__struct_fields__)


class StoredPushes:
    """Every method raises LedgerUnavailable, and CorruptRecord for a row that nobody can read."""

    def __init__(self, readers: Readers) -> None:
        self._readers = readers

    async def push_configs(self, task: str) -> tuple[PushConfig, ...]:
        rows = await self._readers.fetch(queries.PUSH_CONFIGS, {"task": task})
        return tuple(PushConfig(*row) for row in rows)

    async def due_pushes(self, now: int, but: tuple[str, ...], limit: int) -> tuple[DuePush, ...]:
        values = {"now": now, "but": msgspec.json.encode(but).decode(), "limit": limit}
        rows = await self._readers.scan(queries.DUE_PUSHES, values)
        return tuple(
            DuePush(_config(row), next_event, due_at, attempts, bool(visible))
            for row in rows
            for next_event, due_at, attempts, visible in [row[_CONFIG_COLUMNS:]]
        )

    async def next_push(self) -> tuple[bool, int | None]:
        [(active, due_at)] = await self._readers.fetch(queries.NEXT_PUSH, {})
        return bool(active), due_at

    async def push_events(self, task: str, first: int) -> tuple[tuple[int, bytes], ...]:
        rows = await self._readers.scan(queries.PUSH_EVENTS, {"task": task, "first": first})
        return tuple(
            (number, payload)
            for start, last, payloads in rows
            for number, payload in zip(range(start, last + 1), lines(task, payloads, last - start + 1), strict=True)
            if number >= first
        )

    async def is_answered_bare(self, task: str) -> bool:
        return bool(await self._readers.fetch(queries.ANSWERED_BARE, {"task": task}))

    async def pushes(self, tenant: str, principal: str) -> tuple[PushStatus, ...]:
        rows = await self._readers.scan(queries.PUSHES, {"tenant": tenant, "principal": principal})
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
