"""The operations as the bindings call them, with scripted answers."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from gateway.a2a.errors import PushNotificationNotSupported, UnsupportedOperation
from gateway.a2a.model import (
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
    TaskStatus,
    Wire,
)
from gateway.ledger.events import Frame
from gateway.operations.call import OperationCall
from gateway.operations.service import Operations

TASK = Task(
    id="task-1",
    context_id="context-1",
    status=TaskStatus(state=TaskState.WORKING, timestamp="2026-11-20T10:00:00.000Z"),
)
TASK_JSON = {
    "id": "task-1",
    "contextId": "context-1",
    "status": {"state": "TASK_STATE_WORKING", "timestamp": "2026-11-20T10:00:00.000Z"},
}


_PUSH = ("create_push_config", "get_push_config", "list_push_configs", "delete_push_config")


class ScriptedStream:
    """Gives its batches, then ends, raises, or stays open."""

    may_end_at = 0

    def __init__(self, *batches: list[Frame], error: Exception | None = None, stays_open: bool = False) -> None:
        self._batches = batches
        self._error = error
        self._end = asyncio.Event()
        if not stays_open:
            self._end.set()
        self.closed = asyncio.Event()

    async def __aiter__(self) -> AsyncIterator[list[Frame]]:
        for batch in self._batches:
            yield batch
        await self._end.wait()
        if self._error is not None:
            raise self._error

    async def aclose(self) -> None:
        self.closed.set()


class ScriptedOperations(Operations):
    """`answers` by operation; an exception among them is raised. `calls`: the calls received."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, OperationCall, Wire]] = []
        self.answers: dict[str, Any] = {
            "send_message": SendMessageResponse(task=TASK),
            "get_task": TASK,
            "list_tasks": ListTasksResponse(tasks=(TASK,), next_page_token="", page_size=50, total_size=1),
            "cancel_task": TASK,
            **dict.fromkeys(_PUSH, PushNotificationNotSupported("this agent sends no push notifications")),
            "get_extended_card": UnsupportedOperation("this agent has no extended card"),
        }

    @property
    def requests(self) -> list[tuple[str, Wire]]:
        return [(name, request) for name, _, request in self.calls]

    def _answer(self, name: str, call: OperationCall, request: Wire) -> Any:
        self.calls.append((name, call, request))
        answer = self.answers[name]
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def send_message(self, call: OperationCall, request: SendMessageRequest) -> SendMessageResponse:
        answer: SendMessageResponse = self._answer("send_message", call, request)
        return answer

    async def send_streaming_message(self, call: OperationCall, request: SendMessageRequest) -> ScriptedStream:
        answer: ScriptedStream = self._answer("send_streaming_message", call, request)
        return answer

    async def get_task(self, call: OperationCall, request: GetTaskRequest) -> Task:
        answer: Task = self._answer("get_task", call, request)
        return answer

    async def list_tasks(self, call: OperationCall, request: ListTasksRequest) -> ListTasksResponse:
        answer: ListTasksResponse = self._answer("list_tasks", call, request)
        return answer

    async def cancel_task(self, call: OperationCall, request: CancelTaskRequest) -> Task:
        answer: Task = self._answer("cancel_task", call, request)
        return answer

    async def subscribe_to_task(self, call: OperationCall, request: SubscribeToTaskRequest) -> ScriptedStream:
        answer: ScriptedStream = self._answer("subscribe_to_task", call, request)
        return answer

    async def create_push_config(
        self, call: OperationCall, request: TaskPushNotificationConfig
    ) -> TaskPushNotificationConfig:
        answer: TaskPushNotificationConfig = self._answer("create_push_config", call, request)
        return answer

    async def get_push_config(
        self, call: OperationCall, request: GetTaskPushNotificationConfigRequest
    ) -> TaskPushNotificationConfig:
        answer: TaskPushNotificationConfig = self._answer("get_push_config", call, request)
        return answer

    async def list_push_configs(
        self, call: OperationCall, request: ListTaskPushNotificationConfigsRequest
    ) -> ListTaskPushNotificationConfigsResponse:
        answer: ListTaskPushNotificationConfigsResponse = self._answer("list_push_configs", call, request)
        return answer

    async def delete_push_config(self, call: OperationCall, request: DeleteTaskPushNotificationConfigRequest) -> None:
        self._answer("delete_push_config", call, request)

    async def get_extended_card(self, call: OperationCall, request: GetExtendedAgentCardRequest) -> AgentCard:
        answer: AgentCard = self._answer("get_extended_card", call, request)
        return answer
