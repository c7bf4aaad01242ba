"""The port of the bindings: the eleven operations of A2A 1.0, section 3.1. Law: no envelope and no HTTP."""

from collections.abc import AsyncIterator
from typing import Protocol

import msgspec

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
)
from gateway.a2a.tool_calls import Rendering, rendering
from gateway.core.agents import Agent
from gateway.ledger.events import Frame
from gateway.ledger.threads import Caller


class OperationCall(msgspec.Struct, frozen=True):
    """The caller of an operation, the agent, and the service parameters of the request.

    `extensions`: the activated ones, which both the caller and the agent name. `named`: all that the caller names; extensions
    of other vendors identify the kind of client.
    """

    agent: Agent
    caller: Caller
    extensions: frozenset[str] = frozenset()
    named: frozenset[str] = frozenset()
    idempotency_key: str | None = None
    last_event_id: int | None = None
    version: str = "1.0"

    @property
    def rendering(self) -> Rendering:
        """What the caller sees of tool calls."""
        return rendering(self.agent.policies.tool_calls, self.caller.principal, self.named)


class EventStream(Protocol):
    """The events of one task. Iterating gives batches of frames and ends when the stream closes."""

    def __aiter__(self) -> AsyncIterator[list[Frame]]: ...

    async def aclose(self) -> None: ...


class A2AOperations(Protocol):
    """Every operation raises A2AError for a failure that the caller can act on, a streaming one before it returns a stream."""

    async def send_message(self, call: OperationCall, request: SendMessageRequest) -> SendMessageResponse: ...

    async def send_streaming_message(self, call: OperationCall, request: SendMessageRequest) -> EventStream: ...

    async def get_task(self, call: OperationCall, request: GetTaskRequest) -> Task: ...

    async def list_tasks(self, call: OperationCall, request: ListTasksRequest) -> ListTasksResponse: ...

    async def cancel_task(self, call: OperationCall, request: CancelTaskRequest) -> Task: ...

    async def subscribe_to_task(self, call: OperationCall, request: SubscribeToTaskRequest) -> EventStream: ...

    async def create_push_config(
        self, call: OperationCall, request: TaskPushNotificationConfig
    ) -> TaskPushNotificationConfig: ...

    async def get_push_config(
        self, call: OperationCall, request: GetTaskPushNotificationConfigRequest
    ) -> TaskPushNotificationConfig: ...

    async def list_push_configs(
        self, call: OperationCall, request: ListTaskPushNotificationConfigsRequest
    ) -> ListTaskPushNotificationConfigsResponse: ...

    async def delete_push_config(
        self, call: OperationCall, request: DeleteTaskPushNotificationConfigRequest
    ) -> None: ...

    async def get_extended_card(self, call: OperationCall, request: GetExtendedAgentCardRequest) -> AgentCard: ...
