"""Calls that go on at their backend when nobody listens: when they are listened to again, and how they are ended there.

Law: what says nothing of the call itself does not end it.

Makes one service call of a turn: listens to it, and makes it again or listens to it again where that is safe. Law: a call
that failed is recorded before the next try; what comes behind a call's end changes nothing of it.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TypeGuard

import structlog

from gateway.core import ownership
from gateway.core.agents import Agent
from gateway.core.failures import Phase, may_repeat, retry_wait
from gateway.core.replay import Replay, ShownOutput
from gateway.core.turn.commands import AbortCall, Publish
from gateway.engine import executor
from gateway.engine.executor import CommandExecutor
from gateway.engine.journal import appended
from gateway.engine.preparation import CallPreparation
from gateway.engine.runtime import Asking
from gateway.engine.turn_context import TurnContext
from gateway.engine.turn_run import Rejoined
from gateway.foundation.retry import backoff
from gateway.foundation.tracebacks import drop_tracebacks
from gateway.ledger.points import CommitPoint
from gateway.ledger.threads import MarkUnsynced
from gateway.ports.adapter import (
    Adapter,
    AdapterError,
    AdapterEvent,
    CallStarted,
    ErrorClass,
    Processed,
    ServiceRequest,
    StartedOver,
)
from gateway.ports.capabilities import Cancelling, Resuming
from gateway.ports.conversation import Ownership

log = structlog.get_logger("gateway.engine.service_call")

_FIRST_WAIT = 0.5
_LONGEST_WAIT = 8.0
_PATIENCE = 5.0
"""Seconds that a backend has to confirm that it does not go on."""


def goes_on(adapter: Adapter, pending: str | None, error: AdapterError) -> TypeGuard[Resuming]:
    """May the call that has this pending handle be listened to again, behind this error?"""
    meaning = error.kind.meaning
    may_run = meaning.transient and meaning.processed is not Processed.YES
    return isinstance(adapter, Resuming) and pending is not None and may_run


def wait_before_resuming(tries: int, jitter: float) -> float:
    """Seconds. There is no last try but the turn's own time limit: the backend may have to be started first."""
    return backoff(_FIRST_WAIT, _LONGEST_WAIT, tries + 1, jitter)


async def call_off(agent: Agent, task: str, pending: str | None) -> bool | None:
    """Whether the backend confirmed that it does not go on; None where it would not anyway."""
    adapter = agent.adapter
    if pending is None or not isinstance(adapter, Cancelling):
        return None
    try:
        async with asyncio.timeout(_PATIENCE):
            return await adapter.cancel(pending)
    except (AdapterError, TimeoutError) as error:
        log.warning("call.not-cancelled", agent=agent.name, task=task, error=repr(error))
        return False


FAULTS = (Exception, KeyboardInterrupt, SystemExit, BaseExceptionGroup)
"""What an adapter may raise: none of it may end the process for all the others."""


class ServiceCallLoop:
    """Those of one turn, one after another. `tries`: how many of this very request failed; `phase`: how far the try under
    way came. `seen` is what was shown when the call began."""

    __slots__ = ("_course", "_lane", "_means", "_performer", "_phase", "_preparer", "_seen", "_tries", "_work")

    def __init__(self, course: TurnContext, performer: CommandExecutor) -> None:
        self._course = course
        self._means, self._work, self._lane = course.means, course.work, course.lane
        self._performer = performer
        self._preparer = CallPreparation(course)
        self._phase = Phase.SENT
        self._tries = 0
        self._seen: ShownOutput | None = None

    async def make(self) -> None:
        """The next one, to its end. Raises: AdapterError, or what else an adapter raises; TurnFailed, Parked, Conflict."""
        course, work, rejoined = self._course, self._work, self._work.rejoined
        adapter = work.agent.adapter
        course.begin_call()
        self._tries = 0
        if rejoined is not None:
            self._take_up(rejoined)
        again = rejoined is not None and rejoined.pending is not None
        request = await (self._rejoin() if again else self._preparer.prepare())
        if rejoined is None:
            self._seen = ShownOutput(work.live.outputs[-1], course.machine.answer)
        work.rejoined = None
        while True:
            try:
                if self._lane.thread.lost:
                    raise AdapterError(ErrorClass.HANDLE_EXPIRED, "the handle was lost in an earlier turn")
                with self._means.breakers.asking(work.agent) as asking:
                    if again and isinstance(adapter, Resuming):
                        return await self._listen(adapter.resume(request, course.pending or ""), asking)
                    return await self._listen(self._means.call(adapter, request), asking)
            except FAULTS as error:
                if course.machine.between_calls and not work.prepared:
                    log.error("call.fault-after-end", task=work.live.id, detail=repr(error))
                    return None
                if not isinstance(error, AdapterError) or course.machine.ended or course.machine.between_calls:
                    raise
                again = goes_on(adapter, course.pending, error)
                if again:
                    await self._wait_to_listen(error)
                else:
                    request = await self._once_more(request, error)
                drop_tracebacks(error)

    async def _listen(self, told: AsyncGenerator[AdapterEvent, None], asking: Asking) -> None:
        machine, thread, performer = self._course.machine, self._lane.thread, self._performer
        static = ownership.is_static(thread)
        self._phase = Phase.SENT
        async with aclosing(told) as events:
            async for event in events:
                if type(event) is StartedOver:
                    self._begin_again()
                    continue
                if type(event) is not CallStarted:
                    phase = Phase.EMITTED
                else:
                    # The call that makes a static handle names it before anything is sent.
                    phase = self._phase if static and thread.handle is None else Phase.STARTED
                if phase is not self._phase:
                    self._phase = phase
                    asking.heard()
                commands = machine.receive(ownership.on_static_handle(thread, event) if static else event)
                if performer.replay is not None and (machine.ended or machine.between_calls):
                    performer.end_replay()
                if len(commands) == 1 and isinstance(commands[0], Publish):
                    performer.publish(commands[0].update)
                elif commands:
                    await performer.perform(commands)
                if machine.ended or machine.between_calls:
                    return
        raise AdapterError(ErrorClass.CONTRACT_BROKEN, "the adapter ended its call without completing it")

    # --- a call that goes on when nobody listens

    async def _wait_to_listen(self, error: AdapterError) -> None:
        wait = wait_before_resuming(self._tries, self._means.pace.jitter())
        self._tries += 1
        wait = max(wait, error.retry_after or 0.0)
        detail = {"failure": error.kind, "detail": error.detail, "wait": round(wait, 3)}
        log.info("call.listened-again", agent=self._work.agent.name, task=self._work.live.id, **detail)
        await self._means.pace.sleep(wait)
        self._begin_again()

    def _take_up(self, rejoined: Rejoined) -> None:
        """The turn was taken over, at this service call."""
        course = self._course
        course.attempt, course.pending, course.base = rejoined.attempt, rejoined.pending, self._work.base
        self._seen = rejoined.before
        course.machine.rejoin(rejoined.round, rejoined.before.answer)

    async def _rejoin(self) -> ServiceRequest:
        self._preparer.set_deadline()
        await self._course.offer()
        self._begin_again()
        return await self._preparer.request()

    def _begin_again(self) -> None:
        """The call tells everything once more: what was shown of it need not be."""
        machine = self._course.machine
        shown = ShownOutput(self._work.live.outputs[-1], machine.answer)
        replay = self._performer.replay = Replay(self._seen or shown, shown)
        machine.replay_call(replay.answer, replay.calls)

    # --- a call that failed

    async def _once_more(self, request: ServiceRequest, error: AdapterError) -> ServiceRequest:
        """The request of the next try, recorded and after its wait. Raises: `error` where there is none."""
        work, thread, clock = self._work, self._lane.thread, self._means.clock
        declared = work.agent.adapter.ownership
        owned = ownership.of_thread(thread, declared)
        wait = None
        if may_repeat(owned, self._phase, error.kind, continues=request.handle is not None):
            wait = retry_wait(
                error.kind,
                self._tries + 1,
                retry_after=error.retry_after,
                remaining=request.deadline - clock.monotonic(),
                jitter=self._means.pace.jitter(),
            )
        if wait is not None:
            if self._means.breakers.refuses(work.agent):
                raise error
            unsure = await self._wait(error, wait)
            return await self._preparer.request() if unsure else request
        following = ownership.rebuild_ownership(error.kind, thread, declared, work.agent.policies)
        if following is None or self._phase is Phase.EMITTED:
            raise error
        return await self._rebuild(error, following)

    async def _wait(self, error: AdapterError, seconds: float) -> bool:
        """The try that failed is recorded before the wait, the next one behind it. True: the request may be another then."""
        course, work, lane = self._course, self._work, self._lane
        log.info(
            "call.retried",
            agent=work.agent.name,
            task=work.live.id,
            failure=error.kind,
            detail=error.detail,
            tries=self._tries + 1,
            wait=round(seconds, 3),
        )
        failed = self._failed(error)
        unsure = self._preparer.doubtful if error.kind is ErrorClass.LOCKED else None
        if unsure is not None:
            failed.append(MarkUnsynced(lane.thread.id, unsure))

        def stored() -> None:
            work.prepared, course.pending = False, None
            lane.thread = ownership.apply_points(lane.thread, failed)

        await work.live.journal.commit(lambda row: (*appended(row), *failed), None, stored)
        course.attempt, self._tries = course.attempt + 1, self._tries + 1
        await self._means.pace.sleep(seconds)
        await self._preparer.take_call()
        return unsure is not None

    async def _rebuild(self, error: AdapterError, following: Ownership) -> ServiceRequest:
        """The conversation goes on in a new epoch, told whole from the shadow. Raises: `error` where that has gaps."""
        course, work, lane, means = self._course, self._work, self._lane, self._means
        if not ownership.is_complete(await means.ledger.history(lane.thread.id, unsent_only=False)):
            log.warning("thread.not-rebuilt", task=work.live.id, thread=lane.thread.id, reason="shadow with gaps")
            raise error
        failed = self._failed(error)
        begin = ownership.epoch(lane.thread, means.clock.row_id(), following)
        thread = ownership.apply_point(lane.thread, begin)
        course.attempt, self._tries, course.pending, course.base = course.attempt + 1, 0, None, None
        round_, attempt = course.machine.round, course.attempt
        prepare = means.prepare(thread, work.turn, work.live.id, round_=round_, attempt=attempt)

        def stored() -> None:
            lane.thread, work.service_call = thread, prepare.service_call

        for command in course.machine.announce_rebuild(error.kind):
            if isinstance(command, Publish):
                self._performer.publish(command.update)
        await work.live.journal.commit(lambda row: (*appended(row), *failed, begin, prepare), None, stored)
        log.warning("thread.rebuilt", agent=work.agent.name, task=work.live.id, failure=error.kind, detail=error.detail)
        return await self._preparer.request()

    def _failed(self, error: AdapterError) -> list[CommitPoint]:
        """The end of a try behind which there is another."""
        drop, now = AbortCall(error.kind, ()), self._means.clock.now()
        return executor.drop(self._work, self._lane.thread, drop, self._course.pending, now, loses=False)
