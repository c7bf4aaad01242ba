"""The eleven operations of A2A 1.0, section 3.1. Law: checks, one commit, then work; a task that the caller may not see does
not exist for it; an answer without a stream is the drained stream."""

from collections import Counter
from collections.abc import Awaitable

from gateway.a2a import model
from gateway.a2a.draft_1_1 import LongPollRequest
from gateway.a2a.errors import (
    A2AError,
    Busy,
    ExtendedAgentCardNotConfigured,
    PushNotificationNotSupported,
    TaskNotCancelable,
    Unanswered,
    UnsupportedOperation,
    echo,
    invalid,
)
from gateway.a2a.model import INTERRUPTED, TERMINAL
from gateway.engine.fanout import Fanout, Subscription, TaskStream, large_task_frame, message_stream, task_frame
from gateway.engine.other_processes import LogTailStream, cancel_in_processes
from gateway.engine.turn_run import TurnRun
from gateway.foundation.clock import Clock, milliseconds
from gateway.foundation.shutdown import Drain, DrainOver
from gateway.ledger.errors import Conflict, LedgerUnavailable
from gateway.ledger.port import Ledger
from gateway.ledger.tasks import PageLimits, TaskFilter, TaskRecord
from gateway.ledger.turns import Replay
from gateway.operations import page_tokens
from gateway.operations.accept import MessageIntake
from gateway.operations.call import EventStream, OperationCall, draining
from gateway.operations.incoming import read_message, repeated_by
from gateway.operations.long_poll import LongPolls
from gateway.operations.paused_turns import OnStored, PausedTurns
from gateway.operations.push_configs import MAX_CONFIGS, PushConfigs
from gateway.operations.quotas import Quotas
from gateway.operations.task_reader import TaskReader
from gateway.scheduling.runner import Runner

_PAGE_SIZE = 50
_PAGE_BYTES = 2**22 - 2**12
"""A page ends with the task that brings it to this size. Default clients of gRPC take 4 MiB, with the token."""
_CANCEL_ATTEMPTS = 3


class Operations:
    """Every operation raises A2AError for a failure that the caller can act on, a streaming one before it returns a stream.

    One instance serves every agent of the gateway.
    """

    def __init__(
        self,
        ledger: Ledger,
        runner: Runner,
        fanout: Fanout,
        clock: Clock,
        *,
        page_secret: bytes,
        drain: Drain,
        quotas: Quotas | None = None,
        push_configs: PushConfigs | None = None,
    ) -> None:
        """`drain`, once set, refuses new messages. Without `push_configs` there are no push notifications."""
        self._ledger = ledger
        self._runner = runner
        self._fanout = fanout
        self._page_secret = page_secret
        self._drain = drain
        self._push_configs = push_configs
        self._reader = TaskReader(ledger, runner)
        self._paused = PausedTurns(ledger, runner, fanout, clock)
        quotas = quotas or Quotas(clock)
        self._intake = MessageIntake(ledger, runner, fanout, clock, self._reader, self._paused, quotas.runs)
        self._behind: Counter[str] = Counter()
        """How many messages wait for the end of the turn of a task."""
        self._polls = LongPolls(ledger, runner, fanout, self._reader, drain, quotas.streams)

    # --- messages

    async def send_message(self, call: OperationCall, request: model.SendMessageRequest) -> model.SendMessageResponse:
        configuration = request.configuration
        history = configuration.history_length if configuration else None
        waits = not (configuration and configuration.return_immediately)
        begun: list[model.Task] = []
        accepted = await self._accept(
            call, request, None if waits else lambda run: begun.append(_snapshot(call, run, history))
        )
        task_id = accepted.live.id if isinstance(accepted, TurnRun) else accepted.task
        run = accepted if isinstance(accepted, TurnRun) else self._runner.run_of(task_id)
        reply = await self._reply(call, task_id, run, for_end=waits)
        if reply is not None:
            return model.SendMessageResponse(message=reply)
        if begun:
            return model.SendMessageResponse(task=begun[0])
        if run is not None and waits:
            try:
                await self._drain.before_over(run.done)
            except DrainOver:
                raise _unanswered(call, task_id) from None
            if run.live.status.state in TERMINAL | INTERRUPTED:
                return model.SendMessageResponse(task=_snapshot(call, run, history))
        try:
            if run is not None and waits:
                await self._wait_elsewhere(call, run)
            return model.SendMessageResponse(task=await self._reader.task(call, task_id, history))
        except LedgerUnavailable as error:
            if isinstance(accepted, Replay):
                raise
            # Whoever hears that the storage is away may take the message for refused.
            raise _unanswered(call, task_id) from error

    async def _wait_elsewhere(self, call: OperationCall, run: TurnRun) -> None:
        """Waits for the end of a turn that has left this process before it. Raises: LedgerUnavailable, Unanswered where
        recovery has to end it first."""
        if isinstance(run.fault, LedgerUnavailable):
            raise run.fault
        if run.open_calls or isinstance(run.fault, Conflict):
            # It goes on later, once its tools can be reached, here or in another process; or is in another process already.
            await self._wait_remote(call, run.live.id, for_end=True)
        elif run.fault is not None:
            raise _unanswered(call, run.live.id)

    async def _accept(
        self, call: OperationCall, request: model.SendMessageRequest, on_stored: OnStored | None = None
    ) -> TurnRun | Replay:
        """A task at work takes a message from a caller of A2A 0.3, which waits for the end of its turn. As many may wait as
        turns may in a context.

        Source: A2A 0.3.0, section 7.1: only a task that has ended refuses messages.
        """
        ended: TurnRun | None = None
        while True:
            try:
                return await self._accept_now(call, request, on_stored)
            except UnsupportedOperation:
                run = self._reader.run_of(call, request.message.task_id or "")
                if not call.speaks_0_3 or run is None or run is ended:
                    raise
                if self._behind[run.live.id] >= call.agent.policies.queued_turns:
                    raise
                self._behind[run.live.id] += 1
                try:
                    await self._drain.before_over(run.done)
                except DrainOver:
                    raise draining() from None
                finally:
                    self._behind -= Counter({run.live.id: 1})
                ended = run

    async def _accept_now(
        self, call: OperationCall, request: model.SendMessageRequest, on_stored: OnStored | None
    ) -> TurnRun | Replay:
        if self._drain.is_set():
            raise draining()
        config = request.configuration.task_push_notification_config if request.configuration else None
        with self._runner.in_flight.now:
            push = None if config is None else await self._configs(call).draft(call, config, request.message)
            incoming = await read_message(call, request, push)
            accepted = await self._intake.accept(incoming, on_stored)
        if call.on_turn is not None and isinstance(accepted, TurnRun):
            call.on_turn(accepted)
        if call.on_task is not None:
            if isinstance(accepted, TurnRun):
                call.on_task(accepted.live.id, accepted.live.context_id)
            else:
                repeated = await self._reader.record(call, accepted.task)
                call.on_task(repeated.id, repeated.context_id)
        if push is not None:
            if isinstance(accepted, TurnRun):
                push.stored(accepted.live.id, accepted.live.context_id)
            self._configs(call).changed()
        return accepted

    async def send_streaming_message(self, call: OperationCall, request: model.SendMessageRequest) -> EventStream:
        self._fanout.check_room()
        streams: list[EventStream] = []
        try:
            accepted = await self._accept(call, request, lambda run: streams.append(self._stream_from_start(call, run)))
            if isinstance(accepted, Replay):
                return await self._stream_again(call, accepted.task)
            reply = await self._reply(call, accepted.live.id, accepted, for_end=False)
        except BaseException:
            for stream in streams:
                await stream.aclose()
            raise
        [stream] = streams
        if reply is not None:
            await stream.aclose()
            return message_stream(reply)
        return stream

    def _stream_from_start(self, call: OperationCall, run: TurnRun) -> EventStream:
        """The Task as it was accepted, then every event of its turn."""
        number = run.live.journal.number
        subscription = self._fanout.open(run.live.id).subscribe()
        if run.open_calls:
            # A turn that has waited may have to wait once more, for its tools, and goes on wherever they can be reached.
            ready, tail = [task_frame(_snapshot(call, run), number)], self._runner.log_tail
            return LogTailStream(
                run.live.id, ready, number, subscription, self._ledger, tail, with_turn=True, may_end_at=number + 1
            )
        run.done.add_done_callback(lambda _: subscription.end())
        return TaskStream([task_frame(_snapshot(call, run), number)], number, subscription)

    async def _stream_again(self, call: OperationCall, task_id: str) -> EventStream:
        """A stream for a repeated message: the Task, then all events that the first stream shows from this point on."""
        reply = await self._reply(call, task_id, self._runner.run_of(task_id), for_end=False)
        return (
            message_stream(reply)
            if reply is not None
            else await self._attach(call, task_id, with_turn=True, repeats=True)
        )

    async def _reply(
        self, call: OperationCall, task_id: str, run: TurnRun | None, *, for_end: bool
    ) -> model.Message | None:
        """The bare message that is the answer, None when there is a task. `run` is the turn in this process; a turn of another
        process is waited for until that is decided, `for_end`: until it has ended. Raises: Unanswered when this process stops
        to follow a turn of which that is not decided."""
        if run is not None:
            try:
                reply = await self._drain.before_over(run.response)
            except DrainOver:
                raise _unanswered(call) from None
            if reply is not None or run.public:
                return reply
        else:
            record = await self._wait_remote(call, task_id, for_end=for_end)
            if record is None or record.visible:
                return None
            if record.state in TERMINAL:
                return record.status_message
        raise _unanswered(call)

    async def _wait_remote(self, call: OperationCall, task_id: str, *, for_end: bool) -> TaskRecord | None:
        """The task of a turn of another process, when the turn has ended, without `for_end` already when its caller may know
        of the task; or when this process stops to wait. None when it is gone. Raises: Unanswered at a drain before the end of
        the turn, `for_end`."""
        # Before the state is read: behind this event one must follow, and an earlier question is none of this turn's ends.
        latest = await self._ledger.latest_events((task_id,))
        record = await self._ledger.task(call.caller, call.agent.name, task_id)
        if record is None or record.state in TERMINAL | INTERRUPTED or (record.visible and not for_end):
            return record
        subscription = self._fanout.open(record.id).subscribe()
        stream = LogTailStream(
            record.id, [], latest.get(task_id, 0), subscription, self._ledger, self._runner.log_tail, with_turn=True
        )
        try:
            with self._drain.on_set(subscription.end):
                async for _ in stream:
                    if not for_end:
                        record = await self._ledger.task(call.caller, call.agent.name, task_id)
                        if record is None or record.visible:
                            return record
        finally:
            await stream.aclose()
        if for_end and self._drain.is_set() and not stream.ended:
            raise _unanswered(call, task_id if record.visible else None)
        return await self._ledger.task(call.caller, call.agent.name, task_id)

    # --- tasks

    def get_task(self, call: OperationCall, request: model.GetTaskRequest) -> Awaitable[model.Task]:
        if isinstance(request, LongPollRequest) and request.current_generation is not None:
            return self._polls.task(call, request, request.current_generation)
        return self._reader.task(call, request.id, request.history_length)

    async def list_tasks(self, call: OperationCall, request: model.ListTasksRequest) -> model.ListTasksResponse:
        since = request.status_timestamp_after
        where = TaskFilter(
            context_id=request.context_id or None,
            state=request.status,
            status_since=milliseconds(since) if since else None,
            after=page_tokens.decode(self._page_secret, call, request),
        )
        size = request.page_size if request.page_size is not None else _PAGE_SIZE
        artifacts = bool(request.include_artifacts)
        limits = PageLimits(size, _PAGE_BYTES, request.history_length, artifacts, numbers=call.shows_generations)
        found = await self._ledger.tasks(call.caller, call.agent.name, where, limits)
        tasks = await self._reader.page(call, found.tasks, limits)
        token = ""
        if found.more or len(tasks) < len(found.tasks):
            last = found.tasks[len(tasks) - 1].record
            token = page_tokens.encode(self._page_secret, call, request, (last.status_at, last.id))
        return model.ListTasksResponse(
            tasks=tuple(tasks), next_page_token=token, page_size=size, total_size=found.total
        )

    async def cancel_task(self, call: OperationCall, request: model.CancelTaskRequest) -> model.Task:
        asked = ours = False
        for _ in range(_CANCEL_ATTEMPTS):
            run = self._reader.run_of(call, request.id)
            if run is not None:
                ours = True
                self._runner.cancel(run)
                try:
                    await self._drain.before_over(run.done)
                except DrainOver:
                    break
                if run.live.status.state is model.TaskState.CANCELED:
                    return _snapshot(call, run)
            record = await self._reader.record(call, request.id)
            if asked and record.state is model.TaskState.CANCELED:
                return await self._reader.task(call, request.id)
            if record.state in TERMINAL:
                raise TaskNotCancelable(
                    f"Task {echo(record.id)} has ended ({record.state}).", metadata={"taskId": record.id}
                )
            if record.state in INTERRUPTED or await self._ledger.waiting_turn(record.id) is not None:
                if await self._paused.cancel(call.caller, record, call.rendering):
                    return await self._reader.task(call, request.id)
            elif not (asked or ours):
                asked = True
                patience = self._runner.patience
                changes, context = self._runner.runtime.changes, record.context
                try:
                    await cancel_in_processes(
                        self._ledger, changes, context, lambda turn: turn.task == request.id, patience, self._drain
                    )
                except DrainOver:
                    break
        raise Busy(f"Task {echo(request.id)} cannot be canceled now; try again.", retry_after=5)

    async def subscribe_to_task(self, call: OperationCall, request: model.SubscribeToTaskRequest) -> EventStream:
        # In A2A 0.3 no event follows a final one, and a question is final.
        return await self._attach(call, request.id, with_turn=call.speaks_0_3)

    async def _attach(
        self, call: OperationCall, task_id: str, *, with_turn: bool, repeats: bool = False
    ) -> EventStream:
        """A stream of the Task and its events: the events after `Last-Event-ID` if the request has that header,
        otherwise the events to come.

        The stream ends with the task; with `with_turn`, it ends with the turn. A stream that `repeats` that of a message may be
        that of a task that has ended.
        """
        self._fanout.check_room()
        subscription = self._fanout.open(task_id).subscribe()
        try:
            run = self._reader.run_of(call, task_id)
            if run is not None:
                if with_turn:
                    run.done.add_done_callback(lambda _: subscription.end())
                current = await self._reader.live(run.live) if call.last_event_id is None else None
                if current is not None:
                    task, number = current
                    return TaskStream([await large_task_frame(call.shown(task, number), number)], number, subscription)
            return await self._attach_stored(call, task_id, subscription, with_turn=with_turn, repeats=repeats)
        except BaseException:
            subscription.close()
            raise

    async def _attach_stored(
        self, call: OperationCall, task_id: str, subscription: Subscription, *, with_turn: bool, repeats: bool
    ) -> EventStream:
        record = await self._reader.record(call, task_id)
        resume = call.last_event_id
        if record.state in TERMINAL and resume is None and not repeats:
            raise UnsupportedOperation(
                f"Task {echo(task_id)} has ended ({record.state}); read it with GetTask.",
                metadata={"taskId": task_id},
            )
        if resume is None:
            task, number = await self._reader.stored(call, task_id)
            ready, state = [await large_task_frame(call.shown(task, number), number)], task.status.state
        else:
            task, later, number = await self._reader.at_event(call, record, resume, subscription)
            ready, state = [await large_task_frame(task, None), *later], record.state
        ended = state in TERMINAL or (with_turn and state in INTERRUPTED)
        return LogTailStream(
            record.id,
            ready,
            number,
            subscription,
            self._ledger,
            self._runner.log_tail,
            with_turn=with_turn,
            ended=ended,
            may_end_at=record.last_event + (not ended),
        )

    # --- push notifications

    async def create_push_config(
        self, call: OperationCall, request: model.TaskPushNotificationConfig
    ) -> model.TaskPushNotificationConfig:
        configs = self._configs(call)
        if not request.task_id:
            raise invalid("taskId", "is required")
        await self._reader.record(call, request.task_id)
        return await configs.create(call, request.task_id, request)

    async def get_push_config(
        self, call: OperationCall, request: model.GetTaskPushNotificationConfigRequest
    ) -> model.TaskPushNotificationConfig:
        configs = await self._configs_of(call, request.task_id)
        return await configs.get(request.task_id, request.id)

    async def list_push_configs(
        self, call: OperationCall, request: model.ListTaskPushNotificationConfigsRequest
    ) -> model.ListTaskPushNotificationConfigsResponse:
        configs = await self._configs_of(call, request.task_id)
        return await configs.list(request.task_id, request.page_size or MAX_CONFIGS, request.page_token)

    async def delete_push_config(
        self, call: OperationCall, request: model.DeleteTaskPushNotificationConfigRequest
    ) -> None:
        configs = await self._configs_of(call, request.task_id)
        if not await configs.delete(request.task_id, request.id) and call.on_absent is not None:
            call.on_absent()

    async def _configs_of(self, call: OperationCall, task_id: str) -> PushConfigs:
        """Raises: PushNotificationNotSupported, TaskNotFound."""
        configs = self._configs(call)
        await self._reader.record(call, task_id)
        return configs

    def _configs(self, call: OperationCall) -> PushConfigs:
        """Raises: PushNotificationNotSupported."""
        if self._push_configs is None:
            raise PushNotificationNotSupported(
                f"Push notifications are not supported by the agent {call.agent.name!r}."
            )
        return self._push_configs

    # --- cards

    async def get_extended_card(
        self, call: OperationCall, request: model.GetExtendedAgentCardRequest
    ) -> model.AgentCard:
        """The card for this caller. Raises: UnsupportedOperation where the public card announces none, in A2A 0.3
        ExtendedAgentCardNotConfigured."""
        if call.agent.extended is None:
            missing = ExtendedAgentCardNotConfigured if call.speaks_0_3 else UnsupportedOperation
            raise missing(f"The agent {call.agent.name!r} has no extended card.")
        return call.agent.extended(call.caller.principal)


def _snapshot(call: OperationCall, run: TurnRun, history_length: int | None = None) -> model.Task:
    """The task of the turn as it is now, for the caller."""
    return call.shown(run.live.snapshot(history_length=history_length), run.live.journal.number)


def _unanswered(call: OperationCall, task_id: str | None = None) -> A2AError:
    """`task_id` is that of the task which the message has, where its caller may know it."""
    known_by = repeated_by(call)
    if known_by is not None:
        then = f"Sent again with the same {known_by}, it gets the answer."
    elif task_id is not None:
        then = f"GetTask has the answer, in the task {task_id}."
    else:
        then = "Sent again it would be another message, since it has no Idempotency-Key."
    return Unanswered(
        f"The message was accepted, but its answer is not waited for here any more. {then}",
        metadata=None if task_id is None else {"taskId": task_id},
    )
