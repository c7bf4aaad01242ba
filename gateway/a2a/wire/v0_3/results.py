"""Results and events in the JSON of A2A 0.3. Law: nothing of the model is lost but what 0.3 has no word for: `mediaType` and
`filename` of a text or of data go into the metadata of their part.

Source: A2A 0.3.0, sections 6 and 7.
"""

from collections.abc import Callable, Collection
from functools import lru_cache, partial
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from gateway.a2a import model
from gateway.a2a.model import INTERRUPTED, TERMINAL, Json, StreamResponse, TaskState, Wire
from gateway.a2a.wire.card import card_json
from gateway.a2a.wire.dialect import line
from gateway.a2a.wire.v0_3.requests import WRAPPED

_REMEMBERED = 512
_REMEMBERED_BYTES = 8192
"""Of an event that is translated once for all streams. A longer one is rare, and would occupy memory."""


class _Kinded(Wire, frozen=True, tag_field="kind"):
    pass


class _Text(_Kinded, frozen=True, tag="text", kw_only=True):
    text: str
    metadata: dict[str, Json] | None = None


class _FileContent(Wire, frozen=True, kw_only=True):
    bytes: str | None = None
    uri: str | None = None
    mime_type: str | None = None
    name: str | None = None


class _File(_Kinded, frozen=True, tag="file", kw_only=True):
    file: _FileContent
    metadata: dict[str, Json] | None = None


class _Data(_Kinded, frozen=True, tag="data", kw_only=True):
    data: dict[str, Json]
    metadata: dict[str, Json] | None = None


_Part = _Text | _File | _Data


class Message(_Kinded, frozen=True, tag="message", kw_only=True):
    message_id: str
    context_id: str | None = None
    task_id: str | None = None
    role: str
    parts: list[_Part]
    metadata: dict[str, Json] | None = None
    extensions: tuple[str, ...] | None = None
    reference_task_ids: tuple[str, ...] | None = None


class _Artifact(Wire, frozen=True, kw_only=True):
    artifact_id: str
    name: str | None = None
    description: str | None = None
    parts: list[_Part]
    metadata: dict[str, Json] | None = None
    extensions: tuple[str, ...] | None = None


class _Status(Wire, frozen=True, kw_only=True):
    state: str
    message: Message | None = None
    timestamp: str | None = None


class Task(_Kinded, frozen=True, tag="task", kw_only=True):
    id: str
    context_id: str
    status: _Status
    artifacts: list[_Artifact] | None = None
    history: list[Message] | None = None
    metadata: dict[str, Json] | None = None


class StatusUpdate(_Kinded, frozen=True, tag="status-update", kw_only=True):
    task_id: str
    context_id: str
    status: _Status
    final: bool
    metadata: dict[str, Json] | None = None


class ArtifactUpdate(_Kinded, frozen=True, tag="artifact-update", kw_only=True):
    task_id: str
    context_id: str
    artifact: _Artifact
    append: bool = False
    last_chunk: bool = False
    metadata: dict[str, Json] | None = None


class _Authentication(Wire, frozen=True, kw_only=True):
    schemes: list[str]
    credentials: str | None = None


class PushConfig(Wire, frozen=True, kw_only=True):
    id: str | None = None
    url: str
    token: str | None = None
    authentication: _Authentication | None = None


class _TaskPushConfig(Wire, frozen=True, kw_only=True):
    task_id: str
    push_notification_config: PushConfig


STATES = {state: state.removeprefix("TASK_STATE_").lower().replace("_", "-") for state in TaskState}
_ROLES = {model.Role.USER: "user", model.Role.AGENT: "agent"}
LAST = TERMINAL | INTERRUPTED

_events = msgspec.json.Decoder(StreamResponse)


def encode(result: Any) -> bytes:
    """A result of the model as the `result` of a response of 0.3."""
    match result:
        case model.SendMessageResponse(task=model.Task() as task):
            return line(of_task(task))
        case model.SendMessageResponse(message=model.Message() as message):
            return line(of_message(message))
        case model.Task():
            return line(of_task(result))
        case model.TaskPushNotificationConfig():
            return line(_push_config(result))
        case model.ListTaskPushNotificationConfigsResponse():
            return line([_push_config(config) for config in result.configs])
        case model.AgentCard():
            return line(card_json(result))
        case _:
            return line(result)


def remembered(translate: Callable[[StreamResponse], Any]) -> Callable[[int | None, bytes], bytes]:
    """The translation of an event of the log, which is made once however many streams it goes to."""

    def translated(payload: bytes) -> bytes:
        return line(translate(_events.decode(payload)))

    short = lru_cache(maxsize=_REMEMBERED)(translated)
    return lambda _number, payload: short(payload) if len(payload) <= _REMEMBERED_BYTES else translated(payload)


def of_event(
    found: StreamResponse, last: Collection[TaskState] = LAST
) -> Task | Message | StatusUpdate | ArtifactUpdate:
    """`last` are the states of a final update."""
    if found.artifact_update is not None:
        update = found.artifact_update
        return ArtifactUpdate(
            task_id=update.task_id,
            context_id=update.context_id,
            artifact=_artifact(update.artifact),
            append=update.append,
            last_chunk=update.last_chunk,
            metadata=update.metadata,
        )
    if found.status_update is not None:
        changed = found.status_update
        return StatusUpdate(
            task_id=changed.task_id,
            context_id=changed.context_id,
            status=_status(changed.status),
            final=changed.status.state in last,
            metadata=changed.metadata,
        )
    if found.message is not None:
        return of_message(found.message)
    if found.task is not None:
        return of_task(found.task)
    raise ValueError("an event of none of the four kinds")


event = remembered(of_event)
"""An event of the log as an event of 0.3."""
earlier_event = remembered(partial(of_event, last=TERMINAL))


def of_task(task: model.Task) -> Task:
    return Task(
        id=task.id,
        context_id=task.context_id,
        status=_status(task.status),
        artifacts=None if task.artifacts is None else [_artifact(artifact) for artifact in task.artifacts],
        history=None if task.history is None else [of_message(message) for message in task.history],
        metadata=task.metadata,
    )


def _status(status: model.TaskStatus) -> _Status:
    message = None if status.message is None else of_message(status.message)
    return _Status(state=STATES[status.state], message=message, timestamp=status.timestamp)


def of_message(message: model.Message) -> Message:
    return Message(
        message_id=message.message_id,
        context_id=message.context_id,
        task_id=message.task_id,
        role=_ROLES[message.role],
        parts=[_part(part) for part in message.parts],
        metadata=message.metadata,
        extensions=message.extensions,
        reference_task_ids=message.reference_task_ids,
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
    metadata = part.metadata
    if part.raw is not None or part.url is not None:
        file = _FileContent(bytes=part.raw, uri=part.url, mime_type=part.media_type, name=part.filename)
        return _File(file=file, metadata=metadata)
    metadata = described(part)
    if part.text is not None:
        return _Text(text=part.text, metadata=metadata)
    data, metadata = wrapped(part.data, metadata)
    return _Data(data=data, metadata=metadata)


def described(part: model.Part) -> dict[str, Json] | None:
    """The metadata of a text or of data, which have no other place for their type and name."""
    if part.media_type is None and part.filename is None:
        return part.metadata
    about = {"mediaType": part.media_type, "filename": part.filename}
    return {key: value for key, value in about.items() if value is not None} | (part.metadata or {})


def wrapped(data: Json | UnsetType, metadata: dict[str, Json] | None) -> tuple[dict[str, Json], dict[str, Json] | None]:
    """Data as the object that 0.3 wants, with the metadata that say so where they are none."""
    if isinstance(data, dict):
        return data, metadata
    return {"value": None if data is UNSET else data}, {**(metadata or {}), WRAPPED: True}


def _push_config(config: model.TaskPushNotificationConfig) -> _TaskPushConfig:
    return _TaskPushConfig(task_id=config.task_id or "", push_notification_config=push_config(config))


def push_config(config: model.TaskPushNotificationConfig) -> PushConfig:
    """The configuration without its task, which is the same in both spellings."""
    scheme = config.authentication
    authentication = (
        None if scheme is None else _Authentication(schemes=[scheme.scheme], credentials=scheme.credentials)
    )
    return PushConfig(id=config.id, url=config.url, token=config.token, authentication=authentication)
