"""Results and events of HTTP+JSON in A2A 0.3, which are written as the ProtoJSON of `a2a.v1`.

Law: no member is written that its messages do not have, because the official SDKs refuse a whole answer for one. What they
have no word for goes into metadata.

Source: A2A 0.3.0, section 7, and its `specification/grpc/a2a.proto`.
"""

from collections.abc import Collection, Mapping
from functools import partial
from typing import Any

from gateway.a2a import model
from gateway.a2a.model import TERMINAL, Json, StreamResponse, TaskState, Wire
from gateway.a2a.wire.dialect import line
from gateway.a2a.wire.v0_3 import results
from gateway.a2a.wire.v0_3.results import LAST, PushConfig, described, remembered, wrapped


class _File(Wire, frozen=True, kw_only=True):
    """`file_with_bytes` is the base64 text of the content. ProtoJSON writes it in base64 again: so do the SDKs of Python, Java
    and Go."""

    file_with_uri: str | None = None
    file_with_bytes: bytes | None = None
    mime_type: str | None = None
    name: str | None = None


class _Data(Wire, frozen=True, kw_only=True):
    data: dict[str, Json]


class _Part(Wire, frozen=True, kw_only=True):
    text: str | None = None
    file: _File | None = None
    data: _Data | None = None
    metadata: dict[str, Json] | None = None


class _Message(Wire, frozen=True, kw_only=True):
    message_id: str
    context_id: str | None = None
    task_id: str | None = None
    role: model.Role
    content: list[_Part]
    metadata: dict[str, Json] | None = None
    extensions: tuple[str, ...] | None = None


class _Artifact(Wire, frozen=True, kw_only=True):
    artifact_id: str
    name: str | None = None
    description: str | None = None
    parts: list[_Part]
    metadata: dict[str, Json] | None = None
    extensions: tuple[str, ...] | None = None


class _Status(Wire, frozen=True, kw_only=True):
    state: str
    message: _Message | None = None
    timestamp: str | None = None


class _Task(Wire, frozen=True, kw_only=True):
    id: str
    context_id: str
    status: _Status
    artifacts: list[_Artifact] | None = None
    history: list[_Message] | None = None
    metadata: dict[str, Json] | None = None


class _StatusUpdate(Wire, frozen=True, kw_only=True):
    task_id: str
    context_id: str
    status: _Status
    final: bool = False
    metadata: dict[str, Json] | None = None


class _ArtifactUpdate(Wire, frozen=True, kw_only=True):
    task_id: str
    context_id: str
    artifact: _Artifact
    append: bool = False
    last_chunk: bool = False
    metadata: dict[str, Json] | None = None


class _Response(Wire, frozen=True, kw_only=True):
    """Of a message or of a stream: exactly one is set."""

    task: _Task | None = None
    message: _Message | None = None
    status_update: _StatusUpdate | None = None
    artifact_update: _ArtifactUpdate | None = None


class _TaskPushConfig(Wire, frozen=True, kw_only=True):
    name: str
    push_notification_config: PushConfig


class _TaskPushConfigs(Wire, frozen=True, kw_only=True):
    configs: list[_TaskPushConfig]
    next_page_token: str = ""


WRITTEN: Mapping[type[Wire], type[Wire]] = {
    model.SendMessageResponse: _Response,
    model.StreamResponse: _Response,
    model.Task: _Task,
    model.TaskPushNotificationConfig: _TaskPushConfig,
    model.ListTaskPushNotificationConfigsResponse: _TaskPushConfigs,
}
"""The form of each result on the wire. A card is written as it is."""

_STATES = {state: state.value for state in TaskState} | {TaskState.CANCELED: "TASK_STATE_CANCELLED"}


def encode(result: Any) -> bytes:
    """A result of the model as the body of a response of 0.3."""
    match result:
        case model.SendMessageResponse(task=model.Task() as task):
            return line(_Response(task=_task(task)))
        case model.SendMessageResponse(message=model.Message() as message):
            return line(_Response(message=_message(message)))
        case model.Task():
            return line(_task(result))
        case model.TaskPushNotificationConfig():
            return line(_push_config(result))
        case model.ListTaskPushNotificationConfigsResponse():
            configs = [_push_config(config) for config in result.configs]
            return line(_TaskPushConfigs(configs=configs, next_page_token=result.next_page_token))
        case _:
            return results.encode(result)


def _event(found: StreamResponse, last: Collection[TaskState] = LAST) -> _Response:
    if found.artifact_update is not None:
        return _Response(artifact_update=_artifact_update(found.artifact_update))
    if found.status_update is not None:
        return _Response(status_update=_status_update(found.status_update, last))
    return _Response(
        task=None if found.task is None else _task(found.task),
        message=None if found.message is None else _message(found.message),
    )


event = remembered(_event)
"""An event of the log as an event of 0.3."""
earlier_event = remembered(partial(_event, last=TERMINAL))


def _artifact_update(update: model.TaskArtifactUpdateEvent) -> _ArtifactUpdate:
    return _ArtifactUpdate(
        task_id=update.task_id,
        context_id=update.context_id,
        artifact=_artifact(update.artifact),
        append=update.append,
        last_chunk=update.last_chunk,
        metadata=update.metadata,
    )


def _status_update(update: model.TaskStatusUpdateEvent, last: Collection[TaskState]) -> _StatusUpdate:
    return _StatusUpdate(
        task_id=update.task_id,
        context_id=update.context_id,
        status=_status(update.status),
        final=update.status.state in last,
        metadata=update.metadata,
    )


def _task(task: model.Task) -> _Task:
    return _Task(
        id=task.id,
        context_id=task.context_id,
        status=_status(task.status),
        artifacts=None if task.artifacts is None else [_artifact(artifact) for artifact in task.artifacts],
        history=None if task.history is None else [_message(message) for message in task.history],
        metadata=task.metadata,
    )


def _status(status: model.TaskStatus) -> _Status:
    message = None if status.message is None else _message(status.message)
    return _Status(state=_STATES[status.state], message=message, timestamp=status.timestamp)


def _message(message: model.Message) -> _Message:
    metadata = message.metadata
    if message.reference_task_ids is not None:
        metadata = {"referenceTaskIds": message.reference_task_ids} | (metadata or {})
    return _Message(
        message_id=message.message_id,
        context_id=message.context_id,
        task_id=message.task_id,
        role=message.role,
        content=[_part(part) for part in message.parts],
        metadata=metadata,
        extensions=message.extensions,
    )


def _artifact(artifact: model.Artifact) -> _Artifact:
    return _Artifact(
        artifact_id=artifact.artifact_id,
        name=artifact.name,
        description=artifact.description,
        parts=[_part(part) for part in artifact.parts],
        metadata=artifact.metadata,
        extensions=artifact.extensions,
    )


def _part(part: model.Part) -> _Part:
    if part.raw is not None or part.url is not None:
        raw = None if part.raw is None else part.raw.encode()
        file = _File(file_with_uri=part.url, file_with_bytes=raw, mime_type=part.media_type, name=part.filename)
        return _Part(file=file, metadata=part.metadata)
    metadata = described(part)
    if part.text is not None:
        return _Part(text=part.text, metadata=metadata)
    data, metadata = wrapped(part.data, metadata)
    return _Part(data=_Data(data=data), metadata=metadata)


def _push_config(config: model.TaskPushNotificationConfig) -> _TaskPushConfig:
    return _TaskPushConfig(
        name=f"tasks/{config.task_id}/pushNotificationConfigs/{config.id}",
        push_notification_config=results.push_config(config),
    )
