"""Carries out one turn: makes its service calls, runs its tools between them, stores and shows what comes of it, ends it.

Law: the only broad `except` is here; every exit ends the turn, lets it wait, or leaves it to recovery, with nothing shown
that is not stored.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from functools import partial

import structlog
from msgspec.structs import replace

from gateway import call_points, client_tools, handles, listening, ownership, tools
from gateway.approvals import asks
from gateway.catching_up import Pace, catch_up
from gateway.clock import Clock, timestamp
from gateway.commits import (
    Append,
    CommitPoint,
    Complete,
    Conflict,
    EventRow,
    Finish,
    LedgerUnavailable,
    Pending,
    Prepare,
    Release,
    Resume,
    Rewind,
    Suspend,
    ThreadRecord,
    Unsync,
)
from gateway.failures import (
    INTERNAL,
    OWNER_CONFLICT,
    TOOL_OUTCOME_UNKNOWN,
    TOOLS_FAILING,
    TOOLS_UNAVAILABLE,
    TURN_TIMEOUT,
)
from gateway.invoking import invoke, is_cancelled
from gateway.items import HandleKind, HistoryRecord, Item, Ownership, StorageOwner, UserItem
from gateway.lifecycle import apply
from gateway.live import Lane, Rejoined, Work, status
from gateway.model import (
    INTERRUPTED,
    TERMINAL,
    StreamResponse,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
)
from gateway.ports import (
    Adapter,
    AdapterError,
    AdapterEvent,
    CallStarted,
    ErrorClass,
    Ledger,
    Resuming,
    ServiceRequest,
    StartedOver,
)
from gateway.projection import View, project
from gateway.recall import recall
from gateway.replaying import Replay, Seen
from gateway.retrying import Phase, may_repeat, wait_before
from gateway.states import state_of
from gateway.tool_port import ToolError
from gateway.tools import Settled, ToolCall, ToolPolicy
from gateway.toolset import OfferedTool
from gateway.turn import Turn, TurnFacts
from gateway.turn_commands import (
    CloseCall,
    Command,
    Conflicting,
    DropCall,
    EndTool,
    EndTurn,
    GoOn,
    NotePending,
    Publish,
    Reply,
    StartTool,
    StrayResult,
    Wait,
)
from gateway.whole_answers import whole
from gateway.wire.v1_0 import encode_event

log = structlog.get_logger("gateway.serving")

_FAULTS = (Exception, KeyboardInterrupt, SystemExit, BaseExceptionGroup)
"""What an adapter may raise: none of it may end the process for all the others."""

_WARNED = 1000
"""Threads of which is remembered that their operator was warned."""

_FAILING_ROUNDS = 3
"""So many rounds in a row with nothing but failures end the turn."""

_NO_TOOLS = ToolPolicy()

_FOUND_WITHIN = 60_000
"""Milliseconds. So long a response that came too late is kept for whoever took the thread over."""

Call = Callable[[Adapter, ServiceRequest], AsyncGenerator[AdapterEvent, None]]


class TurnFailed(Exception):
    """The turn cannot go on, and no backend is to blame. `detail` is for the operator's log."""

    def __init__(self, failure: str, detail: str) -> None:
        super().__init__(failure)
        self.failure = failure
        self.detail = detail


class Parked(Exception):
    """The turn cannot begin: one before it waits for its caller."""


@dataclass(slots=True)
class Means:
    """What every turn of a process works with. `sleep` and `jitter` (0 to 1) are how time passes between two tries."""

    ledger: Ledger
    clock: Clock
    holder: str
    lease: float
    sleep: Callable[[float], Awaitable[None]]
    jitter: Callable[[], float]
    call: Call = lambda adapter, request: adapter.call(request)
    warned: dict[str, None] = field(default_factory=dict)

    def lease_until(self) -> int:
        return self.clock.now() + int(self.lease * 1000)

    def prepare(self, thread: ThreadRecord, turn: str, task: str, *, round_: int = 0, attempt: int = 0) -> Prepare:
        """C2. The first call of a turn takes the lease."""
        return Prepare(
            thread=thread.id,
            generation=thread.generation,
            holder=self.holder,
            lease_until=self.lease_until(),
            turn=turn,
            task=task,
            service_call=self.clock.row_id(),
            round=round_,
            attempt=attempt,
            handle_in=thread.handle,
            now=self.clock.now(),
            event=None,
        )


class Serving:
    """One turn on its way. `attempt` is the number of the next try, `tries` how many of this very request failed.

    `base` is the handle at which the turn began, `pending` the one that the try under way was told of. `doubtful`: the
    backend may still be at work on an earlier turn of the thread, so that it has to be asked again while it is locked.
    `seen` is what was shown when the call began; `replay` passes over it while the call is told once more. `resuming`: the
    turn waited, and does so still.
    """

    __slots__ = (
        "_means",
        "attempt",
        "base",
        "deadline",
        "doubtful",
        "failing",
        "lane",
        "machine",
        "pending",
        "phase",
        "replay",
        "resuming",
        "seen",
        "tools",
        "tries",
        "view",
        "work",
    )

    def __init__(self, means: Means, work: Work, lane: Lane) -> None:
        self._means = means
        self.work = work
        self.lane = lane
        self.tools = _NO_TOOLS
        self.machine = Turn(self._facts(), means.clock)
        self.view = View((), ())
        self.phase = Phase.SENT
        self.attempt = 0
        self.tries = 0
        self.failing = 0
        self.base = lane.thread.handle
        self.pending: str | None = None
        self.doubtful: str | None = None
        self.replay: Replay | None = None
        self.seen: Seen | None = None
        self.deadline = 0.0
        self.resuming = bool(work.resumed)

    def _facts(self) -> TurnFacts:
        work, thread, policies = self.work, self.lane.thread, self.work.agent.policies
        return TurnFacts(
            work.live.id,
            work.live.context_id,
            ownership.of_thread(thread, work.agent.adapter.ownership),
            direct_replies=work.may_reply,
            tolerate_missing_handle=policies.on_missing_handle == "tolerate" and thread.handle is not None,
            shadow=policies.shadow_history,
            on_owner_conflict=policies.on_owner_conflict,
            tools=self.tools,
            rendering=work.rendering,
        )

    # --- from beginning to end

    async def run(self) -> None:
        """Raises: Conflict, LedgerUnavailable when the end could not be stored; then it is left to recovery."""
        try:
            async with asyncio.timeout(self.work.agent.policies.turn_timeout):
                await self._serve()
        except AdapterError as error:
            await self._fail(error.kind, error.detail)
        except TurnFailed as error:
            if self.resuming:
                # What was decided stays decided, and is taken up again later. Source: state-model, scenario 116.
                log.warning("turn.not-resumed", task=self.work.live.id, failure=error.failure, detail=error.detail)
            else:
                await self._fail(error.failure, error.detail)
        except TimeoutError:
            await self._call_off()
            await self._fail(TURN_TIMEOUT, "the turn ran into its own time limit")
        except asyncio.CancelledError as error:
            if not self.work.cancel_asked:
                if is_cancelled():
                    raise
                await self._fail(INTERNAL, f"the adapter raised {error!r}")
            elif not self.machine.ended:
                await self._cancel()
        except (Conflict, LedgerUnavailable, Parked):
            raise
        except _FAULTS as error:  # the one place that turns any fault into a terminal state
            await self._fail(INTERNAL, repr(error), exc_info=True)

    async def _cancel(self) -> None:
        confirmed = await self._call_off()
        metadata = None if confirmed is None else {"backendCancelled": confirmed}
        self.replay = None
        commands = self.machine.cancel()
        await self._perform([replace(c, metadata=metadata) if isinstance(c, EndTurn) else c for c in commands])

    async def _call_off(self) -> bool | None:
        under_way = None if self.machine.between_calls else self.pending
        return await listening.call_off(self.work.agent, self.work.live.id, under_way)

    async def _fail(self, failure: str, detail: str, *, exc_info: bool = False) -> None:
        work = self.work
        if work.live.status.state in TERMINAL | INTERRUPTED:
            log.error("turn.fault-after-end", task=work.live.id, failure=failure, detail=detail)
            return
        correlation_id = self._means.clock.correlation_id()
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
        before = self.machine
        self.replay = None
        if work.prepared:
            before.calls = {}  # What asked for them is not stored, and never will be.
        stood = [(call, call.status) for call in before.calls.values()]
        try:
            await self._perform(before.fail(failure, correlation_id))
        except (Conflict, LedgerUnavailable):
            raise
        except Exception as error:  # noqa: BLE001 - what was said cannot be stored, or the reason is none: without them
            log.error("turn.unrecordable", correlation_id=correlation_id, error=repr(error))
            self.machine, self.pending = Turn(self._facts(), self._means.clock), None
            for call, state in stood:
                call.status = state
                self.machine.calls[call.facts.id] = call
            await self._perform(self.machine.fail(INTERNAL, correlation_id))

    async def _serve(self) -> None:
        if self.work.cancel_asked:
            raise asyncio.CancelledError
        if self.work.resumed:
            await self._resume()
            self._check_owner()
            await self._run_tools()
        while not self.machine.ended:
            if self.machine.between_calls:
                if self.machine.waiting:
                    await self._perform(self.machine.wait())
                    return
                self._count_failures()
                self.machine.next_call()
                self.attempt = self.tries = 0
                self.pending = None
            await self._service_call()
            await self._run_tools()

    async def _service_call(self) -> None:
        adapter, rejoined = self.work.agent.adapter, self.work.rejoined
        request = await self._prepare() if rejoined is None else await self._rejoin(rejoined)
        if rejoined is None:
            self.seen = Seen(self.work.live.outputs[-1], self.machine.answer)
        self.work.rejoined = None
        again = rejoined is not None
        while True:
            try:
                if self.lane.thread.lost:
                    raise AdapterError(ErrorClass.HANDLE_EXPIRED, "the handle was lost in an earlier turn")
                if again and isinstance(adapter, Resuming):
                    return await self._listen(adapter.resume(request, self.pending or ""))
                return await self._listen(self._means.call(adapter, request))
            except _FAULTS as error:
                between = self.machine.ended or self.machine.between_calls
                if self.machine.between_calls and not self.work.prepared:
                    log.error("call.fault-after-end", task=self.work.live.id, detail=repr(error))
                    return None
                if not isinstance(error, AdapterError):
                    raise
                again = not between and listening.goes_on(adapter, self.pending, error)
                if again:
                    await self._listen_again(error)
                else:
                    request = await self._once_more(request, error)

    # --- a call that goes on when nobody listens

    async def _listen_again(self, error: AdapterError) -> None:
        wait = listening.wait_before(self.tries, self._means.jitter())
        self.tries += 1
        detail = {"failure": error.kind, "detail": error.detail, "wait": round(wait, 3)}
        log.info("call.listened-again", agent=self.work.agent.name, task=self.work.live.id, **detail)
        await self._means.sleep(error.retry_after or wait)
        self._replay()

    async def _rejoin(self, rejoined: Rejoined) -> ServiceRequest:
        """The turn was taken over in the midst of a service call."""
        self.deadline = self._means.clock.monotonic() + self.work.agent.policies.turn_timeout
        self.tools = await self._offer()
        self.attempt, self.pending, self.base = rejoined.attempt, rejoined.pending, self.work.base
        self.machine.round, self.seen = rejoined.round, rejoined.before
        self.machine.begin_again(rejoined.before.answer, ())
        self._replay()
        return await self._request()

    def _replay(self) -> None:
        """The call tells everything once more: what was shown of it need not be."""
        shown = Seen(self.work.live.outputs[-1], self.machine.answer)
        self.replay = Replay(self.seen or shown, shown)
        self.machine.begin_again(self.replay.answer, self.replay.calls)

    async def _listen(self, told: AsyncGenerator[AdapterEvent, None]) -> None:
        machine, thread = self.machine, self.lane.thread
        static = handles.is_static(thread)
        self.phase = Phase.SENT
        async with aclosing(told) as events:
            async for event in events:
                if type(event) is StartedOver:
                    self._replay()
                    continue
                # The call that makes a static handle names it before it says anything.
                made = static and thread.handle is None
                self.phase = _phase(event, self.phase, names_first=made)
                commands = machine.receive(handles.in_conversation(thread, event) if static else event)
                if self.replay is not None and (machine.ended or machine.between_calls):
                    self._end_replay()
                if len(commands) == 1 and isinstance(commands[0], Publish):
                    self._publish(commands[0].update)
                elif commands:
                    await self._perform(commands)
                if machine.ended or machine.between_calls:
                    return
        raise AdapterError(ErrorClass.CONTRACT_BROKEN, "the adapter ended its call without completing it")

    # --- the tools between two service calls

    async def _run_tools(self) -> None:
        """Those that may run, beside each other; each outcome is stored when it is there. What the backend may run has
        only to be told to it."""
        for call in self.machine.calls.values():
            if call.question and call.status == "approved":
                await self._perform(self.machine.settle_tool(call, Settled("completed", tools.ALLOWED)))
        due = [call for call in self.machine.calls.values() if call.to_run]
        if not due or self.machine.ended:
            return
        if self.machine.waiting and self.work.agent.policies.mixed_batch == "hold":
            return
        for call in due:
            if not call.can_run_with(self.tools.offered.get(call.facts.name)):
                detail = f"{call.facts.name} ran when its process died, and is no idempotent tool any more"
                raise TurnFailed(TOOL_OUTCOME_UNKNOWN, detail)
        limit = asyncio.Semaphore(self.work.agent.policies.parallel_tools)
        try:
            async with asyncio.TaskGroup() as group:
                for call in due:
                    group.create_task(self._run_tool(call, limit))
        except BaseExceptionGroup as group_error:
            raise group_error.exceptions[0] from None

    async def _run_tool(self, call: ToolCall, limit: asyncio.Semaphore) -> None:
        async with limit:
            work, machine = self.work, self.machine
            tool = self.tools.offered.get(call.facts.name)
            refused = tools.refusal(call, tool)
            if refused is not None or tool is None:
                await self._perform(machine.settle_tool(call, refused or Settled("not_found", tools.NO_SUCH_TOOL)))
                return None
            known = await self._known(call)
            if known is not None:
                return await self._perform(machine.settle_tool(call, known))
            await self._perform(machine.start_tool(call))

            def progress(text: str) -> None:
                if call.status == "running":
                    for command in machine.progress(call, text):
                        if isinstance(command, Publish):
                            self._publish(command.update)

            settled = await invoke(tool, call, work.live.context_id, work.caller.principal, progress)
            return await self._perform(machine.settle_tool(call, settled))

    async def _known(self, call: ToolCall) -> Settled | None:
        """What came of this very call before, from a backend whose ids stay the same in the whole thread.

        Source: state-model, scenario 82. Raises: AdapterError when the id meant another call.
        """
        if self.work.agent.adapter.ownership.call_ids == "response":
            return None
        thread = self.lane.thread.id
        earlier = await self._means.ledger.earlier_tool_call(thread, call.external_id, call.facts.id)
        if earlier is None or earlier.outcome in (tools.NOT_RUN, tools.LIMIT_REACHED):
            return None
        if (earlier.name, earlier.arguments) != (call.facts.name, call.arguments):
            raise AdapterError(
                ErrorClass.CONTRACT_BROKEN, f"the id of tool call {call.external_id!r} meant another one"
            )
        return Settled(earlier.status, earlier.outcome)

    def _count_failures(self) -> None:
        """Raises: TurnFailed for a model that goes on calling what does not work."""
        only_failures = bool(self.machine.calls) and all(
            call.status in ("failed", "not_found") for call in self.machine.calls.values()
        )
        self.failing = self.failing + 1 if only_failures else 0
        if self.failing >= _FAILING_ROUNDS:
            raise TurnFailed(TOOLS_FAILING, f"{self.failing} rounds of tools in a row failed")

    async def _offer(self) -> ToolPolicy:
        """Raises: TurnFailed when it cannot be told what the agent's tools are."""
        agent, policies = self.work.agent, self.work.agent.policies
        exhausted = self.machine.round >= policies.tool_rounds
        unknown_fails = policies.unknown_tool == "fail"
        theirs = client_tools.offered(policies.client_tools, self.work.message)
        offered: Mapping[str, OfferedTool] = {}
        if agent.toolset is not None:
            try:
                offered = await agent.toolset.offered()
            except ToolError as error:
                raise TurnFailed(TOOLS_UNAVAILABLE, error.detail) from error
        return ToolPolicy(
            offered,
            {tool.name: tool for tool in theirs if tool.name not in offered},
            partial(asks, policies.approvals),
            unknown_fails=unknown_fails,
            exhausted=exhausted,
            patience=int(policies.approval_timeout * 1000),
        )

    async def _resume(self) -> None:
        """A turn that waited goes on: with the lease, at the round in which it stopped."""
        work, lane, means = self.work, self.lane, self._means
        self.machine.go_on(work.resumed)
        self.base = work.base
        self.tools = await self._offer()
        await self._reread()
        self.machine.facts = self._facts()
        working, final = self._working()
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
            work.live.status, self.resuming = working, False
            lane.thread, lane.leased = replace(lane.thread, generation=lane.thread.generation + 1), True

        await work.live.journal.commit(lambda row: (replace(point, event=row),), final, stored)

    def _check_owner(self) -> None:
        """The settings may have changed while the turn waited. Source: state-model, scenario 29. Raises: TurnFailed."""
        thread, declared = self.lane.thread, self.work.agent.adapter.ownership
        if not ownership.serves(declared, thread):
            began, now = f"{thread.owner}, {thread.handle_kind}", f"{declared.owner}, {declared.handle}"
            raise TurnFailed(OWNER_CONFLICT, f"the thread began with ({began}), the agent is now set to ({now})")

    def _working(self) -> tuple[TaskStatus, bytes | None]:
        """The status of the task at work, and the event that tells it where it is new."""
        live = self.work.live
        working = status(apply(live.status.state, TaskState.WORKING), timestamp(self._means.clock.now()))
        if live.status.state is TaskState.WORKING:
            return working, None
        update = TaskStatusUpdateEvent(task_id=live.id, context_id=live.context_id, status=working)
        return working, encode_event(StreamResponse(status_update=update))

    # --- a call that failed

    async def _once_more(self, request: ServiceRequest, error: AdapterError) -> ServiceRequest:
        """The request of the next try, recorded and after its wait. Raises: `error` where there is none."""
        work, thread = self.work, self.lane.thread
        declared = work.agent.adapter.ownership
        if self.machine.ended or self.machine.between_calls:
            raise error
        wait = None
        if may_repeat(
            ownership.of_thread(thread, declared), self.phase, error.kind, continues=request.handle is not None
        ):
            wait = wait_before(
                error.kind,
                self.tries + 1,
                retry_after=error.retry_after,
                remaining=request.deadline - self._means.clock.monotonic(),
                jitter=self._means.jitter(),
            )
        if wait is not None:
            unsure = await self._wait(error, wait)
            return await self._request() if unsure else request
        following = ownership.successor(error.kind, thread, declared, work.agent.policies)
        if following is None or self.phase is Phase.EMITTED:
            raise error
        return await self._rebuild(error, following)

    async def _wait(self, error: AdapterError, seconds: float) -> bool:
        """The try that failed is recorded before the wait, the next one behind it. True: the request may be another then."""
        work, lane = self.work, self.lane
        log.info(
            "call.retried",
            agent=work.agent.name,
            task=work.live.id,
            failure=error.kind,
            detail=error.detail,
            tries=self.tries + 1,
            wait=round(seconds, 3),
        )
        failed = self._drop(DropCall("failed", error.kind, ()), loses=False)
        unsure = self.doubtful is not None and error.kind is ErrorClass.LOCKED
        if self.doubtful is not None and unsure:
            failed.append(Unsync(lane.thread.id, self.doubtful))

        def stored() -> None:
            work.prepared, self.pending = False, None
            lane.thread = _behind(lane.thread, failed)

        await work.live.journal.commit(lambda row: (*_appended(row), *failed), None, stored)
        self.attempt, self.tries = self.attempt + 1, self.tries + 1
        await self._means.sleep(seconds)
        await self._take_call()
        return unsure

    async def _rebuild(self, error: AdapterError, following: Ownership) -> ServiceRequest:
        """The conversation goes on in a new epoch, told whole from the shadow. Raises: `error` where that has gaps."""
        work, lane, means = self.work, self.lane, self._means
        if not ownership.is_complete(await means.ledger.history(lane.thread.id, unsent_only=False)):
            log.warning("thread.not-rebuilt", task=work.live.id, thread=lane.thread.id, reason="shadow with gaps")
            raise error
        failed = self._drop(DropCall("failed", error.kind, ()), loses=False)
        begin = ownership.epoch(lane.thread, means.clock.row_id(), following)
        thread = ownership.behind(lane.thread, begin)
        self.attempt, self.tries, self.pending, self.base = self.attempt + 1, 0, None, None
        prepare = means.prepare(thread, work.turn, work.live.id, round_=self.machine.round, attempt=self.attempt)

        def stored() -> None:
            lane.thread, work.service_call = thread, prepare.service_call

        for command in self.machine.rebuilt(error.kind):
            if isinstance(command, Publish):
                self._publish(command.update)
        await work.live.journal.commit(lambda row: (*_appended(row), *failed, begin, prepare), None, stored)
        log.warning("thread.rebuilt", agent=work.agent.name, task=work.live.id, failure=error.kind, detail=error.detail)
        return await self._request()

    # --- the request

    async def _prepare(self) -> ServiceRequest:
        await self._take_call()
        if not self.deadline:
            self.deadline = self._means.clock.monotonic() + self.work.agent.policies.turn_timeout
        self.tools = await self._offer()
        return await self._request()

    async def _take_call(self) -> None:
        """Takes the lease and records the call. Another process on the thread is waited for, until the turn's timeout."""
        work, lane = self.work, self.lane
        gave_back = False
        while not work.prepared:
            if not lane.current:
                await self._reread()
            try:
                await self._commit_prepare(await self._catch_up() if lane.thread.unsynced else ())
            except Conflict:
                if is_cancelled():
                    # Told while the commit went on, and not again: this must not try for ever.
                    raise asyncio.CancelledError from None
                lane.current = False
                record = await self._means.ledger.task(work.caller, work.agent.name, work.live.id)
                if record is None or record.state in TERMINAL:
                    raise
                if self._begins and not gave_back:
                    # A turn of another process may come first, which cannot begin as long as the lease is held here.
                    await self._means.ledger.commit(Release(lane.thread.id, self._means.holder))
                    lane.leased, gave_back = False, True
                if await self._means.ledger.waiting_task(lane.thread.id) is not None:
                    raise Parked from None
                await asyncio.sleep(self._means.lease / 10)

    @property
    def _begins(self) -> bool:
        """The call that comes next is the turn's first, and takes the lease."""
        return self.attempt == 0 and self.machine.round == 0

    async def _request(self) -> ServiceRequest:
        self.machine.facts = self._facts()
        self.view = await self._recall()
        return self._asking(self.lane.thread.handle, self.view.items)

    def _asking(self, handle: str | None, items: tuple[Item, ...]) -> ServiceRequest:
        work, lane = self.work, self.lane
        declared = work.agent.adapter.ownership
        owned = ownership.of_thread(lane.thread, declared)
        last = self.tools.exhausted and work.agent.policies.round_limit_action == "final_call_without_tools"
        return ServiceRequest(
            handle=handle,
            items=items,
            context_id=work.live.context_id,
            task_id=work.live.id,
            principal=work.caller.principal,
            message=work.message,
            first_message=work.first_message,
            state=state_of(work.agent.adapter, lane.thread),
            accepted_output_modes=work.accepted_output_modes,
            deadline=self.deadline,
            owner=None if owned.owner is declared.owner else owned.owner,
            tools=() if last else self.tools.declarations(),
        )

    async def _catch_up(self) -> tuple[CommitPoint, ...]:
        """Nobody heard the end of an earlier service call of this thread: what the backend knows of it comes first."""
        work, means = self.work, self._means

        pace = Pace(means.sleep, means.jitter)
        found = await catch_up(means.ledger, work.agent, self.lane.thread, self._asking, means.clock, pace)
        self.doubtful = found.doubtful
        return found.points

    async def _reread(self) -> None:
        known, lane = self.lane.thread, self.lane
        thread = await self._means.ledger.thread(known.id)
        if thread is None:
            raise Conflict(f"thread {known.id!r} is gone")
        lane.thread, lane.current = thread, True

    async def _recall(self) -> View:
        work, thread = self.work, self.lane.thread
        if work.fresh_thread and self.machine.round == 0:
            first = HistoryRecord(1, 1, UserItem(work.message), turn_id=work.turn)
            return project(ownership.of_thread(thread, work.agent.adapter.ownership), (first,), work.turn)
        return await recall(self._means.ledger, work.agent, thread, work.turn)

    async def _commit_prepare(self, before: tuple[CommitPoint, ...]) -> None:
        """`before`: what has to be stored of the thread in the same unit."""
        work, lane, means = self.work, self.lane, self._means
        thread = _behind(lane.thread, before)
        working, final = self._working()
        takes_lease = self._begins
        prepare = means.prepare(thread, work.turn, work.live.id, round_=self.machine.round, attempt=self.attempt)

        def points(row: EventRow | None) -> tuple[CommitPoint, ...]:
            return (*before, replace(prepare, event=row))

        def stored() -> None:
            work.live.status = working
            work.service_call, work.prepared = prepare.service_call, True
            self.base = thread.handle if takes_lease else self.base
            lane.thread, lane.leased = replace(thread, generation=thread.generation + takes_lease), True

        await work.live.journal.commit(points, final, stored)

    # --- commands

    def _end_replay(self) -> None:
        """The call is complete: its answer may be less than what was shown."""
        replay, self.replay = self.replay, None
        whole = replay.end() if replay is not None else None
        if whole is not None:
            live = self.work.live
            self._publish(TaskArtifactUpdateEvent(task_id=live.id, context_id=live.context_id, artifact=whole))

    def _publish(self, told: TaskStatusUpdateEvent | TaskArtifactUpdateEvent) -> None:
        work = self.work
        update = told if self.replay is None else self.replay.pass_on(told)
        if update is None:
            return
        if isinstance(update, TaskArtifactUpdateEvent):
            event = StreamResponse(artifact_update=update)
        else:
            event = StreamResponse(status_update=update)
        work.live.journal.add(encode_event(event))
        work.live.outputs[-1].apply(update)
        if not work.opened.done():
            work.opened.set_result(None)

    async def _perform(self, commands: list[Command]) -> None:
        points: list[CommitPoint] = []
        reply: Reply | None = None
        ends = False
        for command in commands:
            match command:
                case Publish(update=update):
                    self._publish(update)
                case NotePending(handle=handle):
                    await self._note_pending(handle)
                case Reply():
                    reply = command
                case StrayResult(call_id=call_id):
                    log.warning("tool.stray-result", agent=self.work.agent.name, task=self.work.live.id, call=call_id)
                case GoOn():
                    pass
                case Wait():
                    await self._suspend(command)
                case EndTurn():
                    ends = True
                    await self._end(command, tuple(points), reply)
                case _:
                    points += self._points(command, points)
        if points and not ends:
            await self._store(points)

    def _points(
        self, command: CloseCall | DropCall | Conflicting | StartTool | EndTool, before: list[CommitPoint]
    ) -> list[CommitPoint]:
        work, thread, now = self.work, self.lane.thread, self._means.clock.now()
        match command:
            case CloseCall():
                return [call_points.complete(work, thread, self.view, command, now)]
            case DropCall():
                return self._drop(command)
            case Conflicting():
                return self._conflict(command, before)
            case StartTool():
                return [call_points.tool_starts(thread, command, now)]
            case EndTool():
                return [call_points.tool_ends(_behind(thread, before), work.turn, work.service_call, command)]

    async def _store(self, points: list[CommitPoint]) -> None:
        """What ends no turn: a call that is complete while the turn goes on, the start or the end of a tool."""
        work, lane = self.work, self.lane

        def stored() -> None:
            lane.thread = _behind(lane.thread, points)
            if any(isinstance(point, Complete) for point in points):
                work.prepared, work.fresh_thread = False, False

        try:
            await work.live.journal.commit(lambda row: (*_appended(row), *points), None, stored)
        except Conflict:
            await self._leave_behind(tuple(points))
            raise

    async def _suspend(self, wait: Wait) -> None:
        work, lane, means = self.work, self.lane, self._means
        now = means.clock.now()
        asking = status(apply(work.live.status.state, wait.state), timestamp(now), wait.message)
        update = TaskStatusUpdateEvent(
            task_id=work.live.id, context_id=work.live.context_id, status=asking, metadata=wait.metadata
        )
        output = work.live.outputs[-1]

        def unit(row: EventRow | None) -> tuple[CommitPoint, ...]:
            suspend = Suspend(work.live.id, work.turn, lane.thread.id, wait.state, wait.message, row, now)
            return (suspend, Release(lane.thread.id, means.holder))

        def stored() -> None:
            output.apply(update)
            work.live.status, lane.leased = asking, False
            if not work.opened.done():
                work.opened.set_result(None)

        await work.live.journal.commit(unit, encode_event(StreamResponse(status_update=update)), stored)

    async def _note_pending(self, handle: str) -> None:
        """A static one was made for this call: the adapter goes on to use it when it cannot be lost any more."""
        self.pending = handle
        journal, pending = self.work.live.journal, Pending(self.work.service_call, handle)
        if handles.is_static(self.lane.thread):
            await journal.commit(lambda row: (pending,) if row is None else (pending, Append(row)))
        else:
            journal.note(pending)

    def _drop(self, command: DropCall, *, loses: bool = True) -> list[CommitPoint]:
        now = self._means.clock.now()
        return call_points.drop(self.work, self.lane.thread, command, self.pending, now, loses=loses)

    def _conflict(self, command: Conflicting, before: list[CommitPoint]) -> list[CommitPoint]:
        work, means = self.work, self._means
        thread = _behind(self.lane.thread, before)
        if command.adopts:
            log.warning("thread.adopted", agent=work.agent.name, thread=thread.id)
            backend = Ownership(StorageOwner.BACKEND, HandleKind.ROTATING)
            return [ownership.epoch(thread, means.clock.row_id(), backend, command.handle)]
        if thread.id not in means.warned:
            means.warned = {thread.id: None, **dict(list(means.warned.items())[: _WARNED - 1])}
            log.warning("thread.owner-conflict", agent=work.agent.name, thread=thread.id)
        if command.handle is None:
            return []
        return [call_points.orphan(work.agent, thread, command.handle, means.clock.now())]

    async def _end(self, end: EndTurn, points: tuple[CommitPoint, ...] = (), reply: Reply | None = None) -> None:
        """C6, with what closes the service call, in one unit; then the final event is shown."""
        work, lane, means = self.work, self.lane, self._means
        live = work.live
        now = means.clock.now()
        final = status(apply(live.status.state, end.state), timestamp(now), end.message)
        update = TaskStatusUpdateEvent(task_id=live.id, context_id=live.context_id, status=final, metadata=end.metadata)
        output = live.outputs[-1]
        if work.repeats_answer and end.status == "completed":
            for again in whole(output, live.id, live.context_id):
                self._publish(again)
        goes = lane.running is work and not lane.waiting
        if ownership.goes_back(lane.thread, end.status, work.agent.policies) and work.service_call:
            points = (*points, Rewind(lane.thread.id, work.turn, self.base, now))

        def unit(row: EventRow | None) -> tuple[CommitPoint, ...]:
            finish = Finish(
                task=live.id,
                turn=work.turn,
                thread=lane.thread.id,
                status=end.status,
                failure_class=end.failure,
                state=end.state,
                message=end.message,
                events=row,
                last_event=live.journal.number + 1,
                artifacts=output.artifacts_json(),
                messages=output.messages_json(end.message),
                visible=reply is None,
                now=now,
            )
            return (*points, finish, Release(lane.thread.id, means.holder)) if goes else (*points, finish)

        def stored() -> None:
            output.apply(update)
            live.status = final
            lane.leased = lane.leased and not goes
            lane.thread = _behind(lane.thread, points)
            if not work.opened.done():
                work.opened.set_result(reply.message if reply is not None else None)

        try:
            await live.journal.commit(unit, encode_event(StreamResponse(status_update=update)), stored)
        except Conflict:
            await self._leave_behind(points)
            raise

    async def _leave_behind(self, points: tuple[CommitPoint, ...]) -> None:
        """Somebody else has moved the thread on: what this call led to is nobody's. Source: state-model, scenario 39.

        But for a call that can be listened to again: whoever took the turn over goes on with that very one.
        """
        agent, thread, now = self.work.agent, self.lane.thread, self._means.clock.now()
        taken = self.pending if isinstance(agent.adapter, Resuming) else None
        left = [handle for handle in ownership.led_to(thread, points) if handle != taken]
        orphans = [call_points.orphan(agent, thread, handle, now) for handle in left]
        if orphans:
            with suppress(Conflict, LedgerUnavailable):
                await self._means.ledger.commit(*orphans)


def _behind(thread: ThreadRecord, points: list[CommitPoint] | tuple[CommitPoint, ...]) -> ThreadRecord:
    for point in points:
        thread = ownership.behind(thread, point)
    return thread


def _appended(row: EventRow | None) -> tuple[CommitPoint, ...]:
    return () if row is None else (Append(row),)


def _phase(event: AdapterEvent, before: Phase, *, names_first: bool) -> Phase:
    """How far the call is with this event. `names_first`: that it started is said before anything is sent."""
    if not isinstance(event, CallStarted):
        return Phase.EMITTED
    return before if names_first else Phase.STARTED
