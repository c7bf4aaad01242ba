"""Serves one turn: its service calls, with the tools between them, until it ends or waits for its caller.

Law: whatever fault comes out of them is turned into a state here; every exit ends the turn, lets it wait, or leaves it to
recovery, with nothing shown that is not stored.
"""

import asyncio
import sys

import structlog
from msgspec.structs import replace

from gateway.a2a.model import INTERRUPTED, TERMINAL
from gateway.core import ownership
from gateway.core.failures import INTERNAL, OWNER_CONFLICT, TOOL_OUTCOME_UNKNOWN, TURN_TIMEOUT
from gateway.core.turn.commands import EndTurn
from gateway.engine import service_call
from gateway.engine.executor import CommandExecutor
from gateway.engine.preparation import Parked
from gateway.engine.runtime import Runtime
from gateway.engine.service_call import FAULTS, ServiceCallLoop
from gateway.engine.tool_loop import ToolRounds, is_cancelled
from gateway.engine.turn_context import TurnContext, TurnFailed
from gateway.engine.turn_run import ThreadQueue, TurnRun
from gateway.foundation.clock import milliseconds, timestamp
from gateway.foundation.tracebacks import drop_tracebacks
from gateway.ledger.errors import Conflict, LedgerUnavailable
from gateway.ledger.turns import Resume
from gateway.ports.adapter import AdapterError

log = structlog.get_logger("gateway.engine.turn_runner")


class TurnRunner:
    """One turn, from beginning to end. `resuming`: the turn waited, and does so still."""

    __slots__ = ("_calls", "_course", "_performer", "_resuming", "_rounds", "_work")

    def __init__(self, means: Runtime, work: TurnRun, lane: ThreadQueue) -> None:
        self._work = work
        self._course = TurnContext(means, work, lane)
        self._performer = CommandExecutor(self._course)
        self._calls = ServiceCallLoop(self._course, self._performer)
        self._rounds = ToolRounds(self._course, self._performer)
        self._resuming = bool(work.resumed)

    async def run(self) -> None:
        """Raises: Conflict, LedgerUnavailable when the end could not be stored; then it is left to recovery. Parked."""
        work = self._work
        try:
            async with asyncio.timeout(work.agent.policies.turn_timeout):
                await self._serve()
        except AdapterError as error:
            rest = self._course.means.breakers.rest(work.agent, error)
            await self._fail(error.kind, error.detail, retry_after=rest)
        except TurnFailed as error:
            if not self._resuming:
                await self._fail(error.failure, error.detail)
            elif self._in_vain():
                await self._course.reread()
                await self._fail(TOOL_OUTCOME_UNKNOWN, f"a tool was to run again, and {error.failure}: {error.detail}")
            else:
                # What was decided stays decided, and is taken up again later. Source: state-model, scenario 116.
                log.warning("turn.not-resumed", task=work.live.id, failure=error.failure, detail=error.detail)
        except TimeoutError:
            await self._call_off()
            await self._fail(TURN_TIMEOUT, "the turn ran into its own time limit")
        except asyncio.CancelledError as error:
            if not work.cancel_asked:
                if is_cancelled():
                    raise
                await self._fail(INTERNAL, f"the adapter raised {error!r}")
            elif not self._course.machine.ended:
                await self._cancel()
        except (Conflict, LedgerUnavailable, Parked):
            raise
        except FAULTS as error:  # the one place that turns any fault into a terminal state
            await self._fail(INTERNAL, repr(error), exc_info=True)

    async def _serve(self) -> None:
        machine = self._course.machine
        if self._work.cancel_asked:
            raise asyncio.CancelledError
        if self._work.resumed:
            await self._resume()
            self._check_owner()
            await self._rounds.run()
        while not machine.ended:
            if machine.between_calls:
                if machine.waiting:
                    await self._performer.perform(machine.wait())
                    return
                self._rounds.count_failures()
                machine.next_call()
            await self._calls.make()
            await self._rounds.run()

    # --- a turn that waited

    async def _resume(self) -> None:
        """It goes on: with the lease, at the round in which it stopped."""
        course, work = self._course, self._work
        lane, means = course.lane, course.means
        await course.offer()
        await course.reread()
        course.machine.resume(course.facts())
        working, final = course.working()
        point = Resume(
            thread=lane.thread.id,
            generation=lane.thread.generation,
            holder=means.holder,
            lease_until=means.lease_until(),
            turn=work.turn,
            task=work.live.id,
            now=means.clock.now(),
            event=None,
        )

        def stored() -> None:
            work.live.status, self._resuming = working, False
            lane.thread, lane.leased = replace(lane.thread, generation=lane.thread.generation + 1), True

        await work.live.journal.commit(lambda row: (replace(point, event=row),), final, stored)

    def _check_owner(self) -> None:
        """The settings may have changed while the turn waited. Source: state-model, scenario 29. Raises: TurnFailed."""
        thread, declared = self._course.lane.thread, self._work.agent.adapter.ownership
        if not ownership.can_serve(declared, thread):
            began, now = f"{thread.owner}, {thread.handle_kind}", f"{declared.owner}, {declared.handle}"
            raise TurnFailed(OWNER_CONFLICT, f"the thread began with ({began}), the agent is now set to ({now})")

    def _in_vain(self) -> bool:
        """A tool was to run again, and its source has been away for as long as a turn may take."""
        work = self._work
        rested = self._course.clock.now() - milliseconds(work.live.status.timestamp or timestamp(0))
        return any(call.cut for call in work.resumed) and rested >= work.agent.policies.turn_timeout * 1000

    # --- a turn that is ended before its end

    async def _cancel(self) -> None:
        confirmed = await self._call_off()
        metadata = None if confirmed is None else {"backendCancelled": confirmed}
        self._performer.replay = None
        commands = self._course.machine.cancel()
        await self._performer.perform(
            [replace(c, metadata=metadata) if isinstance(c, EndTurn) else c for c in commands]
        )

    async def _call_off(self) -> bool | None:
        under_way = None if self._course.machine.between_calls else self._course.pending
        return await service_call.call_off(self._work.agent, self._work.live.id, under_way)

    async def _fail(self, failure: str, detail: str, *, exc_info: bool = False, retry_after: int | None = None) -> None:
        course, work, performer = self._course, self._work, self._performer
        if work.live.status.state in TERMINAL | INTERRUPTED:
            log.error("turn.fault-after-end", task=work.live.id, failure=failure, detail=detail)
            return
        correlation_id = course.means.clock.correlation_id()
        log.warning(
            "turn.failed",
            agent=work.agent.name,
            task=work.live.id,
            turn=work.turn,
            failure=failure,
            detail=detail,
            correlation_id=correlation_id,
            exc_info=exc_info,
        )
        drop_tracebacks(sys.exception())
        machine = course.machine
        performer.replay = None
        if work.prepared:
            machine.abandon_unrecorded_calls()
        try:
            await performer.perform(machine.fail(failure, correlation_id, retry_after))
        except (Conflict, LedgerUnavailable):
            raise
        except Exception as error:  # noqa: BLE001 - what was said cannot be stored, or the reason is none: without them
            log.error("turn.unrecordable", correlation_id=correlation_id, error=repr(error))
            course.pending = None
            machine.restart(course.facts())
            await performer.perform(machine.fail(INTERNAL, correlation_id))
