"""Deletes what is older than its lifetime: events, then the public record of tasks, then idle contexts. Law: only ended turns
lose anything, in pieces so small that no turn waits for them; a later read gets an explicit error."""

import asyncio
from contextlib import suppress

import msgspec
import structlog

from gateway.foundation.clock import Clock
from gateway.ledger.errors import Conflict, skip_failures
from gateway.ledger.port import RetentionLedger
from gateway.ledger.retention import ExpireTasks
from gateway.ledger.tasks import TaskOwner
from gateway.maintenance.duties import Duties
from gateway.operations.contexts import Contexts

log = structlog.get_logger("gateway.maintenance.retention")

_EVERY = 3600.0
_FULL_SWEEP = 24
"""The number of sweeps after which one sweep examines all tasks. The other sweeps skip tasks that ended before the last
sweep; they miss imported tasks, and tasks whose events were not all delivered at that time."""

_TASKS = 50
_CONTEXTS = 500
"""Tasks in one commit, and contexts in one read."""


class Lifetimes(msgspec.Struct, frozen=True):
    """Seconds: from the end of a task to the deletion of its events, and of its record; since the last use of a context."""

    events: float = 7 * 86400.0
    tasks: float = 30 * 86400.0
    contexts_idle: float = 90 * 86400.0


class Retention(msgspec.Struct):
    """One instance serves the whole database; of several processes one at a time sweeps."""

    ledger: RetentionLedger
    contexts: Contexts
    clock: Clock
    duties: Duties
    lifetimes: Lifetimes
    _swept: int = -1
    """Tasks that ended before this time have no events left."""
    _sweeps: int = 0

    async def run(self) -> None:
        """Never returns."""
        while True:
            with skip_failures(log, "retention.skipped"), suppress(Conflict):
                await self.sweep()
            await asyncio.sleep(_EVERY)

    async def sweep(self) -> None:
        """Deletes everything that is due now, unless another process does.

        Raises: Conflict when another process has begun to meanwhile; LedgerUnavailable.
        """
        if await self.duties.elsewhere("retention"):
            return
        now, lifetimes = self.clock.now(), self.lifetimes
        unlogged = now - int(lifetimes.events * 1000)
        unrecorded = now - int(lifetimes.tasks * 1000)
        since = self._swept if self._sweeps % _FULL_SWEEP else -1
        events = tasks = 0
        owner = TaskOwner()
        while (following := await self.ledger.next_owner(owner)) is not None:
            owner = following
            tasks += await self._expire(owner, -1, unrecorded, records=True)
            events += await self._expire(owner, since, unlogged, records=False)
        self._swept = max(self._swept, unlogged - 1)
        self._sweeps += 1
        contexts = await self._expire_contexts(now - int(lifetimes.contexts_idle * 1000))
        if events or tasks or contexts:
            log.info("retention.swept", logs=events, tasks=tasks, contexts=contexts)

    async def _expire(self, owner: TaskOwner, since: int, before: int, *, records: bool) -> int:
        """Returns how many tasks lost something. Tasks that ended before `since` are skipped."""
        after, count = (since, ""), 0
        while found := await self.ledger.ended_tasks(owner, before, after, _TASKS):
            after = (found[-1].status_at, found[-1].id)
            over = tuple(task.id for task in found if records or task.logged)
            if over:
                await self.duties.take("retention")
                await self.ledger.commit(ExpireTasks(over, records))
                count += len(over)
        return count

    async def _expire_contexts(self, idle_before: int) -> int:
        after, count = "", 0
        while found := await self.ledger.aged_contexts(idle_before, after, _CONTEXTS):
            after = found[-1].id
            for context in found:
                if not (context.idle or context.purge_pending):
                    continue
                await self.duties.take("retention")
                try:
                    count += await self.contexts.expire(context, idle_before)
                except Conflict as error:
                    log.error("context.not-expired", context=context.public_id, error=str(error))
            if found[-1].created_at >= idle_before:
                break  # contexts created later cannot have been idle for so long
        return count
