"""Makes the service calls of a turn: listens to each to its end, and repeats it or listens to it again where that is safe.

Law: the end of a try is stored before the next one; nothing after the end of a call counts, and an error that says nothing of
the call itself does not end it.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TypeGuard

import msgspec
import structlog
from msgspec.structs import replace

from gateway.a2a.model import Json
from gateway.core import ownership
from gateway.core.failures import CallProgress, may_repeat, retry_wait
from gateway.core.history import Doubt, narrower
from gateway.core.replay import Replay, ShownOutput
from gateway.core.tools.tool_call import Settled, answered
from gateway.core.turn.admission import admitted_output
from gateway.core.turn.commands import AbortCall, Publish
from gateway.engine.executor import CommandExecutor, aborted
from gateway.engine.journal import appended
from gateway.engine.masking import masked
from gateway.engine.preparation import CallPreparation
from gateway.engine.runtime import BackendRequest
from gateway.engine.turn_context import TurnContext
from gateway.foundation.retry import backoff
from gateway.foundation.tracebacks import drop_tracebacks
from gateway.ledger.points import CommitPoint
from gateway.ledger.threads import MarkUnsynced
from gateway.ports.adapter import (
    HANDLE_LOST,
    Adapter,
    AdapterError,
    AdapterEvent,
    AnswerPaused,
    CallStarted,
    ErrorClass,
    Processed,
    ServiceRequest,
    StartedOver,
    TextDelta,
    ToolResultReady,
)
from gateway.ports.capabilities import CanFind, CanListTail, CanResume, Ongoing
from gateway.ports.conversation import Ownership

log = structlog.get_logger("gateway.engine.service_call")

FAULTS = (Exception, KeyboardInterrupt, SystemExit, BaseExceptionGroup)
"""What an adapter may raise: none of it may end the process for all other turns."""

_FIRST_WAIT, _LONGEST_WAIT = 0.5, 8.0
_FINDS = 3
"""How often a call is looked for that may be under way without a name."""


def can_resume(adapter: Adapter, names: Ongoing | None, error: AdapterError) -> TypeGuard[CanResume]:
    """Whether the stream of the call with these names can be read again after this error."""
    meaning = error.kind.meaning
    may_run = meaning.transient and meaning.processed is not Processed.YES
    return isinstance(adapter, CanResume) and names is not None and may_run


class ServiceCallLoop(msgspec.Struct):
    """Makes the service calls of one turn, one after another. `tries` is the number of failed tries of the current
    call, `phase` the progress of the current try. `seen` is the output that was shown when the call began.
    `so_far` is that of the last pause in the answer."""

    context: TurnContext
    executor: CommandExecutor
    _preparation: CallPreparation
    _phase: CallProgress = CallProgress.SENT
    _tries: int = 0
    _looked_again: bool = False
    _seen: ShownOutput | None = None
    _so_far: Json = None

    async def make(self) -> None:
        """The next call, to its end. Raises: AdapterError or any fault of the adapter; TurnFailed, Parked, Conflict."""
        context, run, adapter = self.context, self.context.run, self.context.run.agent.adapter
        again, request = await self._begin()
        while True:
            try:
                if context.thread.lost:
                    raise AdapterError(ownership.LOST_BEFORE, "the handle was lost in an earlier turn")
                if again is None and context.doubtful is not None and await self._has_landed(request):
                    raise AdapterError(ErrorClass.LOCKED, "what an earlier call left at work has landed meanwhile")
                with context.runtime.service_call(run.agent) as sent:
                    if again is not None and isinstance(adapter, CanResume):
                        return await self._listen(adapter.resume(self._goes_on(request), again), sent)
                    return await self._listen(adapter.call(request), sent)
            except FAULTS as error:
                machine = context.machine
                if machine.between_calls and not run.prepared:
                    log.error("call.fault-after-end", task=run.live.id, detail=repr(error))
                    return None
                if not isinstance(error, AdapterError) or machine.ended or machine.between_calls:
                    raise
                names, resumed = context.addressed, again is not None
                if names is None and error.kind.meaning.processed is Processed.MAYBE:
                    names = await self._find(request)
                again = names if can_resume(adapter, names, error) else None
                if again is not None:
                    await self._wait_to_listen(error)
                elif resumed:
                    # Some of its output may have been shown before it was listened to again.
                    raise
                else:
                    request = await self._repeat(request, error)
                drop_tracebacks(error)

    async def _begin(self) -> tuple[Ongoing | None, ServiceRequest]:
        """The request of the call, and its names if it is under way already, in a turn that was taken over."""
        context, point = self.context, self.context.run.resume_point
        context.attempt, context.call, context.doubt, context.doubtful, self._tries = 0, Ongoing(), None, None, 0
        context.first_at = None
        self._so_far, self._looked_again = None, False
        again = None
        if point is not None:
            context.attempt, context.base, again, self._seen = (
                point.attempt,
                context.run.base,
                point.names,
                point.before,
            )
            context.machine.replay_call(point.before.answer, point.before.parts, round_=point.round)
        if again is not None:
            context.call = again
        unnamed = point is not None and point.unnamed
        if again is not None or unnamed:
            self._begin_again()
        else:
            await self._preparation.take_call()
        request = await self._preparation.first_request()
        if unnamed and (again := await self._find(request)) is None:
            raise AdapterError(ErrorClass.INTERRUPTED, "its process died before the backend had named the call")
        if point is None:
            self._seen = self._shown()
        context.run.resume_point = None
        return again, request

    async def _listen(self, stream: AsyncGenerator[AdapterEvent, None], sent: BackendRequest) -> None:
        machine, thread, executor = self.context.machine, self.context.thread, self.executor
        static = ownership.is_static(thread)
        self._phase, heard = CallProgress.SENT, sent.heard
        async with aclosing(stream) as events:
            async for event in events:
                if heard is not None:
                    heard()
                if type(event) is TextDelta and self._grow(event.text):
                    continue
                if type(event) is StartedOver:
                    self._begin_again()
                    continue
                if type(event) is AnswerPaused:
                    # What follows is a request of its own, of which nothing has come.
                    self._so_far, self._phase, self._tries = event.so_far, CallProgress.SENT, 0
                    continue
                if self._phase is not CallProgress.EMITTED:
                    phase = self._phase_after(event)
                    if phase is not self._phase:
                        self._phase = phase
                        self.context.first_at = self.context.first_at or self.context.clock.now()
                        sent.answered()
                outcome = await self._outcome(event) if type(event) is ToolResultReady else None
                commands = machine.receive(ownership.on_static_handle(thread, event) if static else event, outcome)
                over = machine.ended or machine.between_calls
                if over and executor.replay is not None:
                    executor.end_replay()
                if len(commands) == 1 and isinstance(commands[0], Publish):
                    executor.publish(commands[0].update)
                elif commands:
                    await executor.perform(commands)
                if over:
                    executor.replay = None
                    return
        raise AdapterError(ErrorClass.CONTRACT_BROKEN, "the adapter ended its call without completing it")

    def _grow(self, text: str) -> bool:
        """Whether the text only continues the one at the end of the answer: then it is shown, at the least cost."""
        if self._phase is not CallProgress.EMITTED or self.executor.replay is not None:
            return False
        artifact = self.context.machine.grow(text)
        if artifact:
            self.executor.grow(artifact, text)
        return bool(artifact)

    def _phase_after(self, event: AdapterEvent) -> CallProgress:
        if not isinstance(event, CallStarted):
            return CallProgress.EMITTED
        # The call that makes a static handle names it before anything is sent.
        thread = self.context.thread
        unsent = ownership.is_static(thread) and thread.handle is None and event.run is None
        return self._phase if unsent else CallProgress.STARTED

    async def _outcome(self, result: ToolResultReady) -> Settled | None:
        """The outcome with what the caller sees of it, where it has masks. Raises: AdapterError as the machine does."""
        rendering = self.context.machine.facts.rendering
        if not rendering.redact:
            return None
        return await masked(answered(admitted_output(result.output), error=result.error), rendering)

    def _shown(self) -> ShownOutput:
        return ShownOutput(self.context.run.live.outputs[-1], self.context.machine.answer)

    # --- a call that goes on at its backend without a listener

    async def _find(self, request: ServiceRequest) -> Ongoing | None:
        """The names of a call that the backend may have begun before it had named anything; None where it is not found. The
        backend may need a moment until it shows what it has just taken."""
        context, run, runtime = self.context, self.context.run, self.context.runtime
        adapter = run.agent.adapter
        if self._phase is not CallProgress.SENT or not isinstance(adapter, CanFind):
            return None
        for tries in range(1, _FINDS + 1):
            await runtime.pace.sleep(backoff(_FIRST_WAIT, _LONGEST_WAIT, tries, runtime.pace.jitter()))
            try:
                with runtime.breakers.request(run.agent):
                    found = await adapter.find(request)
            except AdapterError as error:
                drop_tracebacks(error)
                log.info("call.not-found", agent=run.agent.name, task=run.live.id, detail=error.detail)
                continue
            if found is not None:
                log.info("call.found", agent=run.agent.name, task=run.live.id)
                await self.executor.note_names(found.handle if context.thread.handle is None else None, found.run)
                return context.addressed
        return None

    def _goes_on(self, request: ServiceRequest) -> ServiceRequest:
        """The request with what its turn has shown so far."""
        return replace(request, shown=frozenset(self.context.run.live.outputs[-1].artifacts) - {request.answer})

    async def _wait_to_listen(self, error: AdapterError) -> None:
        """Only the turn's time limit ends these tries: the backend may have to be started first."""
        run, pace = self.context.run, self.context.runtime.pace
        self._tries += 1
        wait = max(backoff(_FIRST_WAIT, _LONGEST_WAIT, self._tries, pace.jitter()), error.retry_after or 0.0)
        detail = {"failure": error.kind, "detail": error.detail, "wait": round(wait, 3)}
        log.info("call.listened-again", agent=run.agent.name, task=run.live.id, **detail)
        await pace.sleep(wait)
        self._begin_again()

    def _begin_again(self) -> None:
        """The call repeats its events from the beginning: the replay filters out what was shown of it."""
        self._so_far = None
        shown = self._shown()
        replay = self.executor.replay = Replay(self._seen or shown, shown)
        self.context.machine.replay_call(replay.answer, replay.before, replay.calls)

    # --- a call that failed

    async def _repeat(self, request: ServiceRequest, error: AdapterError) -> ServiceRequest:
        """The request of the next try, recorded and after its wait. Raises: `error` where there is none."""
        context, run, thread, runtime = self.context, self.context.run, self.context.thread, self.context.runtime
        doubt, static = await self._doubt(error), ownership.is_static(thread)
        # Nothing can be taken back from a static conversation.
        stuck = doubt is not None and doubt.turn is not None and thread.handle is not None and static
        if doubt is not None and context.doubtful is not None and not self._looked_again:
            # The call in doubt may have landed meanwhile, and be the reason.
            self._looked_again = True
            await self._wait(error, 0.0, look_again=True)
            return await self._preparation.request()
        if doubt is not None and not stuck:
            return await self._narrow(error, doubt)
        declared = run.agent.adapter.ownership
        owned = ownership.of_thread(thread, declared)
        wait = None
        if may_repeat(owned, self._phase, error, self._tries + 1, continues=request.handle is not None):
            remaining, jitter = request.deadline - runtime.clock.monotonic(), runtime.pace.jitter()
            wait = retry_wait(error, self._tries + 1, remaining, jitter)
        if wait is not None:
            if runtime.breakers.refuses(run.agent):
                raise error
            made = context.call.handle if static and thread.handle is None else None
            reread = await self._wait(error, wait)
            again = await self._preparation.request() if reread else request
            if self._so_far is not None:
                return replace(again, so_far=self._so_far)
            return again if made is None else await self._in_conversation(made, again)
        following = ownership.rebuild_ownership(error.kind, thread, declared, run.agent.policies, stuck=stuck)
        if following is None or self._has_said:
            raise error
        return await self._rebuild(error, following)

    @property
    def _has_said(self) -> bool:
        """Whether a part of the answer is known, so that no other request can be made for it."""
        return self._phase is CallProgress.EMITTED or self._so_far is not None

    async def _has_landed(self, request: ServiceRequest) -> bool:
        """Whether the conversation holds some of this request, which an earlier call in doubt has brought since the look at it
        that this call was recorded with: as late as can be, because nothing keeps it from landing behind this look."""
        adapter = self.context.run.agent.adapter
        if request.handle is None or not isinstance(adapter, CanListTail):
            return False
        listing: CanListTail = adapter
        try:
            tail = await listing.tail(request)
        except AdapterError as error:
            # What it means is found out by the request.
            drop_tracebacks(error)
            return False
        return tail is not None and tail.held > 0

    async def _in_conversation(self, made: str, request: ServiceRequest) -> ServiceRequest:
        """The request in the conversation that an earlier try has made, and in which nothing was said."""
        await self.executor.note_names(made, None)
        return replace(request, handle=made)

    async def _doubt(self, error: AdapterError) -> Doubt | None:
        """The part of a refused request that the next request does without, or None when there is no next request."""
        context = self.context
        if not error.kind.meaning.refuses_content or self._has_said:
            return None
        # A conversation that is too long has nothing at fault in it: its window is the operator's to choose.
        carried = () if error.kind is ErrorClass.OVERFLOW else await context.suspects()
        static = context.thread.handle is not None and ownership.is_static(context.thread)
        return narrower(context.view, context.doubt, context.run.service_call, carried, static=static)

    async def _narrow(self, error: AdapterError, doubt: Doubt) -> ServiceRequest:
        """The request without what is in doubt. What is in doubt counts as refused when this request is accepted."""
        context = self.context
        if doubt.turn is not None and context.thread.handle is not None:
            # Without a handle the turn is in no chain: the gateway keeps the conversation, or tells it from its beginning.
            base = await context.runtime.ledger.turn_base(doubt.turn)
            doubt = replace(doubt, handle=base[0] if base else None)
        context.doubt = doubt
        found = {"failure": error.kind, "detail": error.detail, "items": len(doubt.positions), "turn": doubt.turn}
        log.info("call.narrowed", agent=context.run.agent.name, task=context.run.live.id, **found)
        await self._wait(error, 0.0)
        return await self._preparation.request()

    async def _wait(self, error: AdapterError, seconds: float, *, look_again: bool = False) -> bool:
        """Stores the end of the try, waits, and records the next try. `look_again`: the call in doubt is looked up again, as it
        is after a transient failure. Returns True when the request may have changed."""
        context, run = self.context, self.context.run
        found = {"failure": error.kind, "detail": error.detail, "tries": self._tries + 1, "wait": round(seconds, 3)}
        log.info("call.retried", agent=run.agent.name, task=run.live.id, **found)
        context.runtime.observer.call_repeated(run.agent.name, error.kind)
        failed = self._failed(error)
        unsure = context.doubtful if look_again or error.kind.meaning.transient else None
        if unsure is not None:
            failed.append(MarkUnsynced(context.thread.id, unsure))

        def stored() -> None:
            run.end_call(completed=False)
            context.held.apply(failed)
            run.live.count(failed)
            context.begin_try()

        await run.live.journal.commit(lambda row: (*appended(row), *failed), None, stored)
        self._tries += 1
        if run.spans is not None:
            run.spans.tried(error.kind)
        await context.runtime.pace.sleep(seconds)
        await self._preparation.take_call()
        if run.spans is not None:
            run.spans.tries_again()
        return unsure is not None

    async def _rebuild(self, error: AdapterError, following: Ownership) -> ServiceRequest:
        """Continues the conversation in a new epoch, and sends it completely from the shadow. Raises: `error` when the
        shadow has gaps."""
        context, run, runtime = self.context, self.context.run, self.context.runtime
        if not ownership.is_complete(await runtime.ledger.history(context.thread.id, unsent_only=False)):
            log.warning("thread.not-rebuilt", task=run.live.id, thread=context.thread.id, reason="shadow with gaps")
            raise error
        failed, was_lost = self._failed(error), context.thread.lost
        closed, now = runtime.clock.row_id(), runtime.clock.now()
        begin = ownership.epoch(context.thread, closed, following, why=error.kind, now=now)
        thread = ownership.apply_point(context.thread, begin)
        context.begin_try()
        context.base, context.doubt, context.doubtful, self._tries = None, None, None, 0
        prepare = context.prepare(thread)

        def stored() -> None:
            context.held.apply((begin,))
            run.live.count(failed)
            run.begin_call(prepare.service_call)

        for command in context.machine.announce_rebuild(error.kind):
            if isinstance(command, Publish):
                self.executor.publish(command.update)
        await run.live.journal.commit(lambda row: (*appended(row), *failed, begin, prepare), None, stored)
        if run.spans is not None:
            run.spans.tried(error.kind)
        if error.kind in HANDLE_LOST and not was_lost:
            runtime.observer.handle_lost(run.agent.name, rebuilt=True)
        log.warning("thread.rebuilt", agent=run.agent.name, task=run.live.id, failure=error.kind, detail=error.detail)
        return await self._preparation.request()

    def _failed(self, error: AdapterError) -> list[CommitPoint]:
        """The end of a try that another try follows."""
        return aborted(self.context, AbortCall(error.kind, (), error.usage), ends_turn=False)
