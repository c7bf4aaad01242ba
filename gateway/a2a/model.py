"""The A2A 1.0 data model as frozen values. Law: every type of the wire is defined here once, in the words of the protocol.

Source: `specification/a2a.proto` of A2A 1.0. Attributes are snake_case, the JSON names camelCase. A field that is
`None` (or `UNSET`, for `Part.data`, where null is a value) is absent on the wire.
"""

from enum import StrEnum
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

Json = Any
"""Any JSON value: null, bool, int, float, str, list or dict with string keys."""


class Wire(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel", gc=False):
    """Base of all types of the wire. Values from JSON have no reference cycles, so the garbage collector skips them."""


class TaskState(StrEnum):
    SUBMITTED = "TASK_STATE_SUBMITTED"
    WORKING = "TASK_STATE_WORKING"
    COMPLETED = "TASK_STATE_COMPLETED"
    FAILED = "TASK_STATE_FAILED"
    CANCELED = "TASK_STATE_CANCELED"
    INPUT_REQUIRED = "TASK_STATE_INPUT_REQUIRED"
    REJECTED = "TASK_STATE_REJECTED"
    AUTH_REQUIRED = "TASK_STATE_AUTH_REQUIRED"


TERMINAL = frozenset({TaskState.COMPLETED, TaskState.FAILED, TaskState.CANCELED, TaskState.REJECTED})
INTERRUPTED = frozenset({TaskState.INPUT_REQUIRED, TaskState.AUTH_REQUIRED})


class Role(StrEnum):
    USER = "ROLE_USER"
    AGENT = "ROLE_AGENT"


class Part(Wire, frozen=True, kw_only=True):
    """One piece of content: exactly one of `text`, `raw` (base64), `url` and `data` is set."""

    text: str | None = None
    raw: str | None = None
    url: str | None = None
    data: Json | UnsetType = UNSET
    metadata: dict[str, Json] | None = None
    filename: str | None = None
    media_type: str | None = None


class Message(Wire, frozen=True, kw_only=True):
    message_id: str
    context_id: str | None = None
    task_id: str | None = None
    role: Role
    parts: tuple[Part, ...]
    metadata: dict[str, Json] | None = None
    extensions: tuple[str, ...] | None = None
    reference_task_ids: tuple[str, ...] | None = None


class Artifact(Wire, frozen=True, kw_only=True):
    artifact_id: str
    name: str | None = None
    description: str | None = None
    parts: tuple[Part, ...]
    metadata: dict[str, Json] | None = None
    extensions: tuple[str, ...] | None = None


class TaskStatus(Wire, frozen=True, kw_only=True):
    """`timestamp` is UTC with milliseconds and `Z`, as `gateway.foundation.clock.timestamp` writes it."""

    state: TaskState
    message: Message | None = None
    timestamp: str | None = None


class Task(Wire, frozen=True, kw_only=True):
    id: str
    context_id: str
    status: TaskStatus
    artifacts: tuple[Artifact, ...] | None = None
    history: tuple[Message, ...] | None = None
    metadata: dict[str, Json] | None = None


class TaskStatusUpdateEvent(Wire, frozen=True, kw_only=True):
    task_id: str
    context_id: str
    status: TaskStatus
    metadata: dict[str, Json] | None = None


class TaskArtifactUpdateEvent(Wire, frozen=True, kw_only=True):
    task_id: str
    context_id: str
    artifact: Artifact
    append: bool = False
    last_chunk: bool = False
    metadata: dict[str, Json] | None = None


class StreamResponse(Wire, frozen=True, kw_only=True):
    """Exactly one of the four is set."""

    task: Task | None = None
    message: Message | None = None
    status_update: TaskStatusUpdateEvent | None = None
    artifact_update: TaskArtifactUpdateEvent | None = None


class SendMessageResponse(Wire, frozen=True, kw_only=True):
    """Exactly one of the two is set."""

    task: Task | None = None
    message: Message | None = None


class AuthenticationInfo(Wire, frozen=True, kw_only=True):
    scheme: str
    credentials: str | None = None


class TaskPushNotificationConfig(Wire, frozen=True, kw_only=True):
    tenant: str | None = None
    id: str | None = None
    task_id: str | None = None
    url: str
    token: str | None = None
    authentication: AuthenticationInfo | None = None


class SendMessageConfiguration(Wire, frozen=True, kw_only=True):
    accepted_output_modes: tuple[str, ...] | None = None
    task_push_notification_config: TaskPushNotificationConfig | None = None
    history_length: int | None = None
    return_immediately: bool | None = None


class SendMessageRequest(Wire, frozen=True, kw_only=True):
    tenant: str | None = None
    message: Message
    configuration: SendMessageConfiguration | None = None
    metadata: dict[str, Json] | None = None


class GetTaskRequest(Wire, frozen=True, kw_only=True):
    tenant: str | None = None
    id: str
    history_length: int | None = None


class ListTasksRequest(Wire, frozen=True, kw_only=True):
    tenant: str | None = None
    context_id: str | None = None
    status: TaskState | None = None
    page_size: int | None = None
    page_token: str | None = None
    history_length: int | None = None
    status_timestamp_after: str | None = None
    include_artifacts: bool | None = None


class ListTasksResponse(Wire, frozen=True, kw_only=True):
    tasks: tuple[Task, ...]
    next_page_token: str
    page_size: int
    total_size: int


class CancelTaskRequest(Wire, frozen=True, kw_only=True):
    tenant: str | None = None
    id: str
    metadata: dict[str, Json] | None = None


class SubscribeToTaskRequest(Wire, frozen=True, kw_only=True):
    tenant: str | None = None
    id: str


class GetTaskPushNotificationConfigRequest(Wire, frozen=True, kw_only=True):
    tenant: str | None = None
    task_id: str
    id: str


class DeleteTaskPushNotificationConfigRequest(Wire, frozen=True, kw_only=True):
    tenant: str | None = None
    task_id: str
    id: str


class ListTaskPushNotificationConfigsRequest(Wire, frozen=True, kw_only=True):
    tenant: str | None = None
    task_id: str
    page_size: int | None = None
    page_token: str | None = None


class ListTaskPushNotificationConfigsResponse(Wire, frozen=True, kw_only=True):
    configs: tuple[TaskPushNotificationConfig, ...]
    next_page_token: str


class GetExtendedAgentCardRequest(Wire, frozen=True, kw_only=True):
    tenant: str | None = None


class AgentInterface(Wire, frozen=True, kw_only=True):
    url: str
    protocol_binding: str
    tenant: str | None = None
    protocol_version: str


class AgentProvider(Wire, frozen=True, kw_only=True):
    url: str
    organization: str


class AgentExtension(Wire, frozen=True, kw_only=True):
    uri: str
    description: str | None = None
    required: bool = False
    params: dict[str, Json] | None = None


class AgentCapabilities(Wire, frozen=True, kw_only=True):
    streaming: bool | None = None
    push_notifications: bool | None = None
    extensions: tuple[AgentExtension, ...] | None = None
    extended_agent_card: bool | None = None


class AgentSkill(Wire, frozen=True, kw_only=True):
    id: str
    name: str
    description: str
    tags: tuple[str, ...]
    examples: tuple[str, ...] | None = None
    input_modes: tuple[str, ...] | None = None
    output_modes: tuple[str, ...] | None = None


class AgentCardSignature(Wire, frozen=True, kw_only=True):
    """A JWS without its payload, which is the card. `protected` and `signature` are base64url, `header` is not encoded."""

    protected: str
    signature: str
    header: dict[str, Json] | None = None


class AgentCard(Wire, frozen=True, kw_only=True):
    name: str
    description: str
    supported_interfaces: tuple[AgentInterface, ...]
    provider: AgentProvider | None = None
    version: str
    documentation_url: str | None = None
    capabilities: AgentCapabilities
    default_input_modes: tuple[str, ...]
    default_output_modes: tuple[str, ...]
    skills: tuple[AgentSkill, ...]
    signatures: tuple[AgentCardSignature, ...] | None = None
    icon_url: str | None = None
    security_schemes: dict[str, Json] | None = None
    security_requirements: tuple[dict[str, Json], ...] | None = None
