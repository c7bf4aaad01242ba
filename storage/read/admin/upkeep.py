"""What is wrong, late or given up, for operators."""

from collections import defaultdict
from collections.abc import Callable

from msgspec.structs import replace

from gateway.a2a.model import TaskState
from gateway.foundation.clock import earliest_row_id
from gateway.ledger.admin.reads import PATIENCE
from gateway.ledger.admin.upkeep import (
    BrokenThread,
    CallTime,
    DeletionKey,
    Deliveries,
    Delivery,
    DeliveryFilter,
    DeliveryKey,
    FailedTurn,
    FailureFact,
    FailureKey,
    Failures,
    HandleDeletion,
    HandleDeletions,
    OpenCount,
    OpenToolFacts,
    OpenTurnFacts,
    Overview,
    ProcessFacts,
    StuckReceiver,
    ToolTime,
)
from gateway.ledger.backlog import Backlog
from gateway.ledger.push import PushState
from gateway.ledger.states import ServiceCallStatus, ToolCallStatus, TurnStatus
from storage import compiled
from storage.read.admin.searching import LAST, Pace
from storage.read.admin.words import correlation_id
from storage.read.queries import Readers
from storage.statement import Query, Row

_MOST = 100
"""Rows of a page."""

_OPEN = 10_000
"""Open turns, tasks that wait, or threads that cannot continue, that are looked at."""

_OWED = 5000
"""Stuck deliveries that are looked at: of those that are tried, and of those that are not."""

_TURNS, _BROKEN, _STUCK, _TIMES = 200, 50, 20, 500
_RECENT = 300
"""Turns whose calls tell how long things take."""

_SAMPLE = 100
"""Turns, and calls of tools in them, of each sample of what tools take."""

_HOUR = 3_600_000
_AGES = tuple(_HOUR // 6 << doubled for doubled in range(8))
"""How old the turns of the earlier samples are at least, in milliseconds: up to 21 hours. Each is twice the one before, so that
a tool that became slow is quick in one of the samples as long as there are turns from twice that time ago."""

_FAILURES = 1000
_END = 2**62

_DELIVERIES: dict[DeliveryFilter, Query] = {
    DeliveryFilter.STUCK: compiled.ADMIN_DELIVERIES_STUCK,
    DeliveryFilter.ACTIVE: compiled.ADMIN_DELIVERIES_ACTIVE,
}


class UpkeepQueries:
    """A part of `AdminQueries`."""

    _readers: Readers
    _now: Callable[[], int]

    async def overview(self, tenant: str) -> Overview:
        now = self._now()
        values = {"tenant": tenant, "now": now}
        turns, tools, counts, questions, failures, broken, stuck, given_up = await self._readers.scan_all(
            (compiled.ADMIN_OPEN_TURNS, {**values, "chunk": _OPEN, "limit": _TURNS}),
            (compiled.ADMIN_OPEN_TOOLS, {**values, "chunk": _OPEN, "limit": _TURNS}),
            (compiled.ADMIN_OPEN_COUNTS, {**values, "chunk": _OPEN}),
            (compiled.ADMIN_QUESTION_COUNTS, {**values, "chunk": _OPEN}),
            (compiled.ADMIN_FAILED_LATELY, {**values, "since": now - _HOUR, "chunk": _FAILURES}),
            (compiled.ADMIN_BROKEN, {**values, "chunk": _OPEN, "limit": _BROKEN}),
            (compiled.ADMIN_STUCK_RECEIVERS, {**values, "chunk": _OWED, "limit": _STUCK}),
            (compiled.ADMIN_DELETIONS_GIVEN_UP, {**values, "after_job": "", "limit": _STUCK}),
        )
        befores = (LAST, *[earliest_row_id(max(0, now - age)) for age in _AGES])
        sample = {**values, "chunk": _SAMPLE, "limit": _SAMPLE}
        call_times, [backlog], processes, duties, *tool_times = await self._readers.scan_all(
            (compiled.ADMIN_CALL_TIMES, {**values, "before": LAST, "chunk": _RECENT, "limit": _TIMES}),
            (compiled.BACKLOG, {}),
            (compiled.ADMIN_PROCESSES, {**values, "limit": _MOST}),
            (compiled.ADMIN_DUTIES, {**values, "limit": _MOST}),
            *[(compiled.ADMIN_TOOL_TIMES, {**sample, "before": before}) for before in befores],
        )
        return Overview(
            now,
            tuple([OpenCount(agent, TurnStatus(status), *rest) for agent, status, *rest in counts]),
            tuple([OpenCount(agent, TurnStatus.WAITING, *rest) for agent, *rest in questions]),
            tuple(map(_open_turn, turns)),
            tuple(map(_open_tool, tools)),
            tuple(map(_failure, failures)),
            tuple([BrokenThread(*row) for row in broken]),
            tuple(map(_stuck, stuck)),
            tuple([HandleDeletion(*row) for row in given_up]),
            tuple([CallTime(*row) for row in call_times]),
            tuple([tuple([ToolTime(*row) for row in sample]) for sample in tool_times]),
            Backlog(*backlog),
            _processes(processes, duties),
        )

    async def failures(
        self,
        tenant: str,
        agent: str | None = None,
        before: FailureKey | None = None,
        *,
        limit: int = 20,
        patience: float = PATIENCE,
    ) -> Failures:
        pace, found = Pace(patience), []
        key = before or FailureKey(_END, LAST)
        while True:
            values = {
                "tenant": tenant,
                "agent": agent or "",
                "ended_at": key.ended_at,
                "turn": key.turn,
                "chunk": pace.chunk,
                "limit": limit + 1,
            }
            rows, edge = await self._readers.scan_all(
                (compiled.ADMIN_FAILED, values), (compiled.ADMIN_FAILED_EDGE, values)
            )
            found += [FailedTurn(*[*row[:-1], correlation_id(row[-1])]) for row in rows]
            if len(found) > limit:
                last = found[limit - 1]
                return Failures(tuple(found[:limit]), FailureKey(last.ended_at, last.turn))
            if not edge:
                return Failures(tuple(found), None)
            key = FailureKey(*edge[0])
            if not pace.looked():
                return Failures(tuple(found), key, key.ended_at)

    async def deliveries(
        self, tenant: str, where: DeliveryFilter, before: DeliveryKey | None = None, *, task: str | None = None
    ) -> Deliveries:
        values = _before(tenant, before, _MOST + 1)
        if task is None:
            rows = await self._readers.scan(_DELIVERIES[where], values)
        else:
            rows = await self._readers.scan(compiled.ADMIN_DELIVERIES_OF_TASK, {**values, "task": task})
        shown = tuple(map(_delivery, rows[:_MOST]))
        if len(rows) <= _MOST:
            return Deliveries(shown, None)
        last = shown[-1]
        return Deliveries(shown, DeliveryKey(last.created_at, last.task, last.id))

    async def handle_deletions(self, tenant: str, given_up: bool, after: DeletionKey | None = None) -> HandleDeletions:
        key = after or DeletionKey(0, "")
        values = {"tenant": tenant, "after_at": key.due_at, "after_job": key.job, "limit": _MOST + 1}
        query = compiled.ADMIN_DELETIONS_GIVEN_UP if given_up else compiled.ADMIN_DELETIONS
        rows = await self._readers.scan(query, values)
        shown = tuple([HandleDeletion(*row) for row in rows[:_MOST]])
        if len(rows) <= _MOST:
            return HandleDeletions(shown, None)
        return HandleDeletions(shown, DeletionKey(shown[-1].due_at or 0, shown[-1].job))


def _before(tenant: str, key: DeliveryKey | None, limit: int) -> dict[str, object]:
    created_at, task, config = (_END, LAST, LAST) if key is None else (key.created_at, key.task, key.id)
    return {
        "tenant": tenant,
        "created_at": created_at,
        "before_task": task,
        "before_id": config,
        "limit": limit,
    }


def _open_turn(row: Row) -> OpenTurnFacts:
    turn, task, context, principal, agent, status, process, tries, accepted_at, started_at, *of_call, answering = row
    place, times = (turn, task, context, principal, agent), (accepted_at, started_at)
    found = OpenTurnFacts(*place, TurnStatus(status), process, tries, *times, answering=bool(answering))
    call, call_status, round_, attempt, prepared_at = of_call
    if call is None:
        return found
    known = ServiceCallStatus(call_status)
    return replace(found, call=call, call_status=known, round=round_, attempt=attempt, prepared_at=prepared_at)


def _open_tool(row: Row) -> OpenToolFacts:
    tool, turn, task, context, agent, name, executor, status, asked_at, started_at = row
    place = (tool, turn, task, context, agent)
    return OpenToolFacts(*place, name, executor, ToolCallStatus(status), asked_at, started_at)


def _failure(row: Row) -> FailureFact:
    agent, failure_class, task, thread, context, ended_at, latest, number, failed = row
    place = (agent, failure_class, task, thread, context, ended_at)
    return FailureFact(*place, bool(latest), number, correlation_id(failed))


def _delivery(row: Row) -> Delivery:
    task, config, context, principal, agent, task_state, url, state, *rest = row
    states = TaskState(task_state), url, PushState(state)
    return Delivery(task, config, context, principal, agent, *states, *rest)


def _stuck(row: Row) -> StuckReceiver:
    *delivery, deliveries, behind, looked_at = row
    return StuckReceiver(_delivery(tuple(delivery)), deliveries, behind, looked_at < _OWED)


def _processes(alive: list[Row], duties: list[Row]) -> tuple[ProcessFacts, ...]:
    """Processes with queued turns or duties."""
    held: dict[str, list[str]] = defaultdict(list)
    until: dict[str, int] = dict(alive)
    for name, holder, held_until in duties:
        held[holder].append(name)
        until[holder] = max(held_until, until.get(holder, 0))
    return tuple([ProcessFacts(process, at, tuple(held[process])) for process, at in until.items()])
