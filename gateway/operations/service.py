"""The eleven operations of A2A 1.0, section 3.1. Law: checks, one commit, then work; what a caller may not see is not
there; non-streaming is the drained stream."""

from gateway.a2a.errors import (
    Busy,
    PushNotificationNotSupported,
    TaskNotCancelable,
    UnsupportedOperation,
    echo,
    invalid,
)
from gateway.a2a.model import (
    INTERRUPTED,
    TERMINAL,
    AgentCard,
    CancelTaskRequest,
    DeleteTaskPushNotificationConfigRequest,
    GetExtendedAgentCardRequest,
    GetTaskPushNotificationConfigRequest,
    GetTaskRequest,
    ListTaskPushNotificationConfigsRequest,
    ListTaskPushNotificationConfigsResponse,
    ListTasksRequest,
    ListTasksResponse,
    SendMessageRequest,
    SendMessageResponse,
    SubscribeToTaskRequest,
    Task,
    TaskPushNotificationConfig,
    TaskState,
)
from gateway.core.task_record import assemble
from gateway.engine.fanout import Fanout, Subscription, TaskStream, message_stream, task_frame
from gateway.engine.other_processes import LogTailStream, RemoteCancel
from gateway.engine.turn_run import TurnRun
from gateway.foundation.clock import Clock, milliseconds
from gateway.foundation.drain import Drain
from gateway.ledger.events import Frame
from gateway.ledger.port import Ledger
from gateway.ledger.tasks import TaskFilter
from gateway.ledger.turns import Replay
from gateway.operations import task_reader
from gateway.operations.accept import MessageIntake
from gateway.operations.answer import OnStored
from gateway.operations.api import EventStream, OperationCall
from gateway.operations.incoming import read_message
from gateway.operations.push_configs import PushConfigs
from gateway.operations.quotas import Quotas
from gateway.operations.task_reader import TaskReader, status_of
from gateway.scheduling.close import close_task
from gateway.scheduling.runner import Runner

_PAGE = 50
_ATTEMPTS = 3


class Operations:
    """What the bindings call. One instance serves every agent of the gateway."""

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
        self._clock = clock
        self._page_secret = page_secret
        self.drain = drain
        self._push_configs = push_configs
        self._reader = TaskReader(ledger, runner)
        self._elsewhere = RemoteCancel(ledger, runner.patience)
        self._intake = MessageIntake(ledger, runner, fanout, self._reader, clock, (quotas or Quotas(clock)).runs)

    # --- messages

    async def send_message(self, call: OperationCall, request: SendMessageRequest) -> SendMessageResponse:
        configuration = request.configuration
        history = configuration.history_length if configuration else None
        waits = not (configuration and configuration.return_immediately)
        begun: list[Task] = []
        accepted = await self._accept(
            call, request, None if waits else lambda work: begun.append(work.live.snapshot(history_length=history))
        )
        task_id = accepted.task if isinstance(accepted, Replay) else accepted.live.id
        work = self._runner.run_of(task_id) if isinstance(accepted, Replay) else accepted
        if work is None:
            await self._ended_elsewhere(call, task_id, waits=waits)
        reply = await (work.reply() if work is not None else self._reader.reply(call, task_id))
        if reply is not None:
            return SendMessageResponse(message=reply)
        if begun:
            return SendMessageResponse(task=begun[0])
        if work is not None and waits:
            await work.ended()
            if work.live.status.state in TERMINAL | INTERRUPTED:
                return SendMessageResponse(task=work.live.snapshot(history_length=history))
        return SendMessageResponse(task=await self._reader.task(call, task_id, history))

    async def _accept(
        self, call: OperationCall, request: SendMessageRequest, on_stored: OnStored | None = None
    ) -> TurnRun | Replay:
        if self.drain.is_set():
            raise Busy("The gateway is shutting down; try again.", retry_after=1)
        configuration = request.configuration
        with self._runner.in_flight.now:
            push = None
            if configuration is not None and configuration.task_push_notification_config is not None:
                push = await self._configs_for(call).draft_of(call, request)
            incoming = await read_message(call, request, push)
            accepted = await self._intake.accept(incoming, on_stored)
        if push is not None:
            self._configs_for(call).changed()
        return accepted

    async def send_streaming_message(self, call: OperationCall, request: SendMessageRequest) -> EventStream:
        self._fanout.check_room()
        streams: list[TaskStream] = []
        try:
            accepted = await self._accept(call, request, lambda work: streams.append(self._from_the_start(work)))
            if isinstance(accepted, Replay):
                return await self._repeat(call, accepted.task)
            reply = await accepted.reply()
        except BaseException:
            for stream in streams:
                await stream.aclose()
            raise
        [stream] = streams
        if reply is not None:
            await stream.aclose()
            return message_stream(reply)
        return stream

    def _from_the_start(self, work: TurnRun) -> TaskStream:
        """The Task as it was accepted, then all that its turn does."""
        number = work.live.journal.number
        subscription = self._fanout.open(work.live.id).subscribe()
        work.done.add_done_callback(lambda _: subscription.end())
        return TaskStream([task_frame(work.live.snapshot(), number)], number, subscription)

    async def _repeat(self, call: OperationCall, task_id: str) -> EventStream:
        """What the first stream shows from here on."""
        work = self._runner.run_of(task_id)
        if work is None:
            await self._ended_elsewhere(call, task_id, waits=False)
        reply = await (work.reply() if work is not None else self._reader.reply(call, task_id))
        return message_stream(reply) if reply is not None else await self._attach(call, task_id, repeats=True)

    async def _ended_elsewhere(self, call: OperationCall, task_id: str, *, waits: bool) -> None:
        """Returns when the turn has ended that another process runs; at once where nobody waits for a known task."""
        record = await self._ledger.task(call.caller, call.agent.name, task_id)
        if record is None or record.state in TERMINAL | INTERRUPTED or (record.visible and not waits):
            return
        stream = self._followed(record.id, [], record.last_event, self._fanout.open(record.id).subscribe(), True)
        try:
            async for _ in stream:
                pass
        finally:
            await stream.aclose()

    def _followed(
        self,
        task: str,
        ready: list[Frame],
        number: int,
        subscription: Subscription,
        with_turn: bool,
        ended: bool = False,
    ) -> LogTailStream:
        return LogTailStream(
            task,
            ready,
            number,
            subscription,
            self._ledger,
            self._runner.log_tail,
            with_turn=with_turn,
            ended=ended,
        )

    # --- tasks

    async def get_task(self, call: OperationCall, request: GetTaskRequest) -> Task:
        return await self._reader.task(call, request.id, request.history_length)

    async def list_tasks(self, call: OperationCall, request: ListTasksRequest) -> ListTasksResponse:
        since = request.status_timestamp_after
        where = TaskFilter(
            context_id=request.context_id or None,
            state=request.status,
            status_since=milliseconds(since) if since else None,
            after=task_reader.decode(self._page_secret, call, request),
        )
        size = request.page_size if request.page_size is not None else _PAGE
        artifacts = bool(request.include_artifacts)
        records, total = await self._ledger.tasks(call.caller, call.agent.name, where, size + 1)
        page = records[:size]
        outputs = await self._reader.listed(page, artifacts)
        tasks = tuple(
            assemble(
                record.id,
                record.context_id,
                status_of(record),
                outputs[record.id],
                history_length=request.history_length,
                artifacts=artifacts,
            )
            for record in page
        )
        token = ""
        if len(records) > size:
            token = task_reader.encode(self._page_secret, call, request, (page[-1].status_at, page[-1].id))
        return ListTasksResponse(tasks=tasks, next_page_token=token, page_size=size, total_size=total)

    async def cancel_task(self, call: OperationCall, request: CancelTaskRequest) -> Task:
        asked = ours = False
        for _ in range(_ATTEMPTS):
            work = self._reader.work(call, request.id)
            if work is not None:
                ours = True
                await self._runner.cancel(work)
                if work.live.status.state is TaskState.CANCELED:
                    return work.live.snapshot()
            record = await self._reader.record(call, request.id)
            if asked and record.state is TaskState.CANCELED:
                return await self._reader.task(call, request.id)
            if record.state in TERMINAL:
                raise TaskNotCancelable(
                    f"Task {echo(record.id)} has ended ({record.state}).", metadata={"taskId": record.id}
                )
            if record.state in INTERRUPTED or await self._ledger.waiting_turn(record.id) is not None:
                canceled = TaskState.CANCELED
                if await close_task(
                    call.caller, record, canceled, self._ledger, self._fanout, self._clock, call.rendering
                ):
                    return await self._reader.task(call, request.id)
            elif not (asked or ours):
                asked = True
                await self._elsewhere.cancel(record.context, lambda turn: turn.task == request.id)
        raise Busy(f"Task {echo(request.id)} cannot be canceled now; try again.", retry_after=5)

    async def subscribe_to_task(self, call: OperationCall, request: SubscribeToTaskRequest) -> EventStream:
        return await self._attach(call, request.id, repeats=False)

    async def _attach(self, call: OperationCall, task_id: str, *, repeats: bool) -> EventStream:
        """The Task, then its events: those behind `Last-Event-ID` where the caller names one, else those to come.

        It ends with the task; where it repeats the stream of a message, with that message's turn.
        """
        self._fanout.check_room()
        subscription = self._fanout.open(task_id).subscribe()
        try:
            work = self._reader.work(call, task_id)
            if work is not None:
                if repeats:
                    work.done.add_done_callback(lambda _: subscription.end())
                now = await self._reader.now(work.live) if call.last_event_id is None else None
                if now is not None:
                    task, number = now
                    return TaskStream([task_frame(task, number)], number, subscription)
            return await self._stored(call, task_id, subscription, repeats=repeats)
        except BaseException:
            subscription.close()
            raise

    async def _stored(
        self, call: OperationCall, task_id: str, subscription: Subscription, *, repeats: bool
    ) -> EventStream:
        record = await self._reader.record(call, task_id)
        resume = call.last_event_id
        if record.state in TERMINAL and resume is None and not repeats:
            raise UnsupportedOperation(
                f"Task {echo(task_id)} has ended ({record.state}); read it with GetTask.", metadata={"taskId": task_id}
            )
        if resume is None:
            task, number = await self._reader.stored(call, task_id)
            ready, state = [task_frame(task, number)], task.status.state
        else:
            task, later, number = await self._reader.as_of(record, resume)
            ready, state = [task_frame(task, None), *later], record.state
        ended = state in TERMINAL or (repeats and state in INTERRUPTED)
        return self._followed(record.id, ready, number, subscription, repeats, ended)

    # --- push notifications

    async def create_push_config(
        self, call: OperationCall, request: TaskPushNotificationConfig
    ) -> TaskPushNotificationConfig:
        configs = self._configs_for(call)
        if not request.task_id:
            raise invalid("taskId", "is required")
        await self._reader.record(call, request.task_id)
        return await configs.create(call, request.task_id, request)

    async def get_push_config(
        self, call: OperationCall, request: GetTaskPushNotificationConfigRequest
    ) -> TaskPushNotificationConfig:
        configs = self._configs_for(call)
        await self._reader.record(call, request.task_id)
        return await configs.get(request.task_id, request.id)

    async def list_push_configs(
        self, call: OperationCall, request: ListTaskPushNotificationConfigsRequest
    ) -> ListTaskPushNotificationConfigsResponse:
        configs = self._configs_for(call)
        await self._reader.record(call, request.task_id)
        return await configs.list(request.task_id)

    async def delete_push_config(self, call: OperationCall, request: DeleteTaskPushNotificationConfigRequest) -> None:
        configs = self._configs_for(call)
        await self._reader.record(call, request.task_id)
        await configs.delete(request.task_id, request.id)

    def _configs_for(self, call: OperationCall) -> PushConfigs:
        """Raises: PushNotificationNotSupported."""
        if self._push_configs is None:
            raise PushNotificationNotSupported(f"The agent {call.agent.name!r} does not support push notifications.")
        return self._push_configs

    # --- what the card does not declare

    async def get_extended_card(self, call: OperationCall, request: GetExtendedAgentCardRequest) -> AgentCard:
        raise UnsupportedOperation(f"The agent {call.agent.name!r} has no extended card.")
