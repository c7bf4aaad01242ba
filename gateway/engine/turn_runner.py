"""Runs one turn: its service calls, with the tools between them, until the turn ends or is paused.

Law: every fault becomes a state here; every exit ends the turn, pauses it, or leaves it to recovery, with nothing shown that is
not stored.
"""

import asyncio
import sys

import structlog

from gateway.a2a.model import INTERRUPTED, TERMINAL, Json
from gateway.core import ownership
from gateway.core.failures import INTERNAL, OWNER_CONFLICT, TOOL_OUTCOME_UNKNOWN, TURN_TIMEOUT, time_until_retry
from gateway.core.replay import shown_answer
from gateway.engine import paused_turn
from gateway.engine.cancellation import cancel_at_backend
from gateway.engine.executor import CommandExecutor
from gateway.engine.preparation import CallPreparation, Parked
from gateway.engine.runtime import Runtime
from gateway.engine.service_call import FAULTS, ServiceCallLoop
from gateway.engine.tool_loop import ToolRounds, is_cancelled
from gateway.engine.turn_context import TurnContext, TurnFailed
from gateway.engine.turn_run import ThreadQueue, TurnRun
from gateway.foundation.clock import milliseconds, timestamp
from gateway.foundation.tracebacks import drop_tracebacks
from gateway.ledger.errors import Conflict, LedgerUnavailable
from gateway.ledger.points import CommitPoint
from gateway.ledger.tasks import EventRow
from gateway.ledger.turns import Resume
from gateway.ports.adapter import AdapterError
from gateway.ports.capabilities import Ongoing
from gateway.ports.conversation import UserItem
from gateway.ports.wire import occasion

log = structlog.get_logger("gateway.engine.turn_runner")


class TurnRunner:
    """Runs one turn, from its beginning to its end. `paused` says that the turn was paused, and has not continued
    yet."""

    __slots__ = ("_calls", "_context", "_executor", "_paused", "_rounds", "_run")

    def __init__(self, runtime: Runtime, run: TurnRun, held: ThreadQueue) -> None:
        self._run = run
        self._context = TurnContext(runtime, run, held)
        self._executor = CommandExecutor(self._context)
        self._calls = ServiceCallLoop(self._context, self._executor, CallPreparation(self._context))
        self._rounds = ToolRounds(self._context, self._executor)
        self._paused = bool(run.open_calls)

    async def run(self) -> None:
        """Raises: Conflict, LedgerUnavailable when the end could not be stored, which recovery does then. Parked."""
        run = self._run
        occasion.set(run.occasion)
        try:
            async with asyncio.timeout(run.agent.policies.turn_timeout):
                await self._rounds_and_calls()
        except AdapterError as error:
            await self._end_with(error)
        except TurnFailed as error:
            if not self._paused:
                await self._fail(error.failure, error.detail)
            elif self._has_rested():
                await self._context.reread_thread()
                await self._fail(*self._why_it_rested(error))
            else:
                # What was decided stays decided, and is taken up again later. Source: docs/state-model.md, scenario 116.
                log.warning("turn.not-resumed", task=run.live.id, failure=error.failure, detail=error.detail)
        except TimeoutError:
            stopped = await self._cancel_call()
            await self._fail(TURN_TIMEOUT, "the turn ran into its own time limit", stopped=stopped)
        except asyncio.CancelledError as error:
            if not run.cancel_requested:
                if is_cancelled():
                    raise
                await self._fail(INTERNAL, f"the adapter raised {error!r}")
            elif not self._context.machine.ended:
                await self._cancel()
        except (Conflict, LedgerUnavailable, Parked):
            raise
        except FAULTS as error:  # the one place that turns any fault into a terminal state
            await self._fail(INTERNAL, repr(error), exc_info=True)

    async def _rounds_and_calls(self) -> None:
        machine = self._context.machine
        if self._run.cancel_requested:
            raise asyncio.CancelledError
        if self._paused:
            await self._resume()
            self._check_owner()
            await self._read_owed()
            await self._rounds.run()
        elif self._run.resume_point is not None:
            await self._read_owed()
        while not machine.ended:
            if machine.between_calls:
                if machine.waiting:
                    await self._executor.perform(machine.wait())
                    return
                self._rounds.count_failures()
                machine.next_call()
            if self._run.spans is None:
                await self._calls.make()
            else:
                with self._run.spans.call(self._context):
                    await self._calls.make()
            await self._rounds.run()

    # --- a turn that was paused

    async def _resume(self) -> None:
        """Continues the turn, under a lease, at the round in which it stopped."""
        context, run, runtime = self._context, self._run, self._context.runtime
        await context.offer_tools()
        await context.reread_thread()
        shown = shown_answer(run.live.outputs[-1], run.turn)
        context.machine.resume(context.facts(), shown.answer, shown.parts)
        working, final = context.working()
        thread, now, until = context.thread, runtime.clock.now(), runtime.lease_until()

        def unit(row: EventRow | None) -> tuple[CommitPoint, ...]:
            at = (thread.id, thread.generation, runtime.holder, until)
            return (Resume(*at, run.turn, run.live.id, now, row),)

        def stored() -> None:
            run.live.status, self._paused = working, False
            # From now on the turn is that of a process, which may lose it.
            run.open_calls, run.live.journal.holder = (), runtime.holder
            context.held.take_lease(thread)

        await run.live.journal.commit(unit, final, stored)

    async def _read_owed(self) -> None:
        """What the backend runs of earlier service calls may come to its end with the next one."""
        calls = await self._context.runtime.ledger.unreported_tool_calls(self._run.turn)
        self._context.machine.owe(map(paused_turn.unreported_call, calls))

    def _check_owner(self) -> None:
        """The settings may have changed while the turn was paused. Raises: TurnFailed.

        Source: docs/state-model.md, scenario 29.
        """
        thread, declared = self._context.thread, self._run.agent.adapter.ownership
        if not ownership.can_serve(declared, thread):
            began, now = f"{thread.owner}, {thread.handle_kind}", f"{declared.owner}, {declared.handle}"
            raise TurnFailed(OWNER_CONFLICT, f"the thread began with ({began}), the agent is now set to ({now})")

    def _has_rested(self) -> bool:
        """The turn waits for no caller, and a source of its tools has been away for as long as a turn may take."""
        run = self._run
        rested = self._context.clock.now() - milliseconds(run.live.status.timestamp or timestamp(0))
        return run.live.status.state not in INTERRUPTED and rested >= run.agent.policies.turn_timeout * 1000

    def _why_it_rested(self, error: TurnFailed) -> tuple[str, str]:
        """The failure of the turn and its detail. What was only approved has not run."""
        if any(call.rerun for call in self._run.open_calls):
            return TOOL_OUTCOME_UNKNOWN, f"a tool was to run again, and {error.failure}: {error.detail}"
        return error.failure, error.detail

    # --- a turn that ends early

    async def _end_with(self, error: AdapterError) -> None:
        run = self._run
        if run.to_be_cancelled:
            # The backend may have heard of it already.
            await self._cancel()
            return
        wait = time_until_retry(error, self._context.runtime.breakers.rest(run.agent, error))
        await self._fail(error.kind, error.detail, retry_after=wait, usage=error.usage, hint=error.hint)

    async def _cancel(self) -> None:
        stopped = await self._cancel_call()
        unsaid = self._executor.break_off_replay()
        await self._executor.perform(self._context.machine.cancel(unsaid, stopped=stopped))

    async def _cancel_call(self) -> bool | None:
        names = None if self._context.machine.between_calls else self._context.addressed
        return await cancel_at_backend(self._run.agent, self._run.live.id, names)

    async def _fail(
        self,
        failure: str,
        detail: str,
        *,
        exc_info: bool = False,
        retry_after: int | None = None,
        usage: Json = None,
        stopped: bool | None = None,
        hint: str = "",
    ) -> None:
        context, run, executor = self._context, self._run, self._executor
        machine = context.machine
        if run.live.status.state in TERMINAL | INTERRUPTED:
            log.error("turn.fault-after-end", task=run.live.id, failure=failure, detail=detail)
            return
        correlation_id = context.runtime.clock.correlation_id()
        found = {"failure": failure, "detail": detail, "correlation_id": correlation_id}
        log.warning("turn.failed", agent=run.agent.name, task=run.live.id, turn=run.turn, **found, exc_info=exc_info)
        drop_tracebacks(sys.exception())
        executor.break_off_replay()
        if run.prepared:
            machine.abandon_unrecorded_calls()
        try:
            # What the caller has said stands behind the outcomes.
            words = isinstance(next(reversed(context.view.items), None), UserItem)
            ended = machine.fail(failure, correlation_id, retry_after, usage, words=words, stopped=stopped, hint=hint)
            await executor.perform(ended)
        except (Conflict, LedgerUnavailable):
            raise
        except Exception as error:  # noqa: BLE001 - the output cannot be stored, or the reason is none: without them
            log.error("turn.unrecordable", correlation_id=correlation_id, error=repr(error))
            context.call = Ongoing()
            machine.restart(context.facts())
            await executor.perform(machine.fail(INTERNAL, correlation_id))
