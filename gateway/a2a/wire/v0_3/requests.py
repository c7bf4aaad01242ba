"""Requests of A2A 0.3 as requests of the model. Law: a default of 0.3 becomes an explicit value of 1.0.

Source: A2A 0.3.0, sections 6 and 7. `blocking` is false by default, and a `historyLength` of 0 is no limit.
"""

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from functools import cache
from typing import Any

from msgspec import UNSET, UnsetType

from gateway.a2a import model
from gateway.a2a.errors import MethodNotFound, echo
from gateway.a2a.model import Json, Wire
from gateway.a2a.wire import v1_0
from gateway.a2a.wire.dialect import Method
from gateway.a2a.wire.proto_json import Misfit, ObjectReader, base64

WRAPPED = "data_part_compat"
"""Metadata of a part whose data are no object: they are the member `value` of one. Source: a2a-sdk."""


class _Role(StrEnum):
    USER = "user"
    AGENT = "agent"


_ROLES = {_Role.USER: model.Role.USER, _Role.AGENT: model.Role.AGENT}


class _File(Wire, frozen=True, kw_only=True):
    bytes: str | None = None
    uri: str | None = None
    name: str | None = None
    mime_type: str | None = None


class _Part(Wire, frozen=True, kw_only=True):
    kind: str | None = None
    text: str | None = None
    file: _File | None = None
    data: Json | UnsetType = UNSET
    metadata: dict[str, Json] | None = None


class _Message(Wire, frozen=True, kw_only=True):
    message_id: str
    context_id: str | None = None
    task_id: str | None = None
    role: _Role
    parts: tuple[_Part, ...]
    metadata: dict[str, Json] | None = None
    extensions: tuple[str, ...] | None = None
    reference_task_ids: tuple[str, ...] | None = None


class _Authentication(Wire, frozen=True, kw_only=True):
    schemes: tuple[str, ...] = ()
    credentials: str | None = None


class PushConfig(Wire, frozen=True, kw_only=True):
    id: str | None = None
    url: str
    token: str | None = None
    authentication: _Authentication | None = None


class Configuration(Wire, frozen=True, kw_only=True):
    accepted_output_modes: tuple[str, ...] | None = None
    blocking: bool = False
    history_length: int | None = None
    push_notification_config: PushConfig | None = None


class _Send(Wire, frozen=True, kw_only=True):
    message: _Message
    configuration: Configuration | None = None
    metadata: dict[str, Json] | None = None


class _TaskQuery(Wire, frozen=True, kw_only=True):
    id: str
    history_length: int | None = None


class _TaskId(Wire, frozen=True, kw_only=True):
    id: str
    metadata: dict[str, Json] | None = None


class _SetPush(Wire, frozen=True, kw_only=True):
    task_id: str
    push_notification_config: PushConfig


class _GetPush(Wire, frozen=True, kw_only=True):
    id: str
    push_notification_config_id: str | None = None


class _DeletePush(Wire, frozen=True, kw_only=True):
    id: str
    push_notification_config_id: str


class _Nothing(Wire, frozen=True):
    pass


METHODS: Mapping[str, Method] = {
    method.name: method
    for method in (
        Method("message/send", "SendMessage", _Send),
        Method("message/stream", "SendStreamingMessage", _Send, streaming=True),
        Method("tasks/get", "GetTask", _TaskQuery),
        Method("tasks/cancel", "CancelTask", _TaskId),
        Method("tasks/resubscribe", "SubscribeToTask", _TaskId, streaming=True),
        Method("tasks/pushNotificationConfig/set", "CreateTaskPushNotificationConfig", _SetPush),
        Method("tasks/pushNotificationConfig/get", "GetTaskPushNotificationConfig", _GetPush),
        Method("tasks/pushNotificationConfig/list", "ListTaskPushNotificationConfigs", _TaskId),
        Method("tasks/pushNotificationConfig/delete", "DeleteTaskPushNotificationConfig", _DeletePush),
        Method("agent/getAuthenticatedExtendedCard", "GetExtendedAgentCard", _Nothing, needs_extensions=False),
    )
}


def method(name: str) -> Method:
    """Raises: MethodNotFound."""
    found = METHODS.get(name)
    if found is not None:
        return found
    hint = ""
    if name in v1_0.METHODS:
        hint = " is a method of A2A 1.0: send A2A-Version: 1.0, because a request without it is one of A2A 0.3"
    raise MethodNotFound(f"Method not found: {echo(name)}{hint}")


def decode(called: Method, params: Json) -> Any:
    """The request of the model. Raises: InvalidParams naming the field as 0.3 does, as `message.parts[0].file.uri`."""
    try:
        return TO_MODEL[called.operation](_reader(called.request)(params))
    except Misfit as misfit:
        raise misfit.named() if misfit.path else Misfit(misfit.description, "params").named() from None


def decode_query(called: Method, pairs: Sequence[tuple[str, str]], path: Mapping[str, str]) -> Any:
    """The same from a URL."""
    try:
        return TO_MODEL[called.operation](_reader(called.request).read_query(pairs, path))
    except Misfit as misfit:
        raise misfit.named() from None


_reader = cache(ObjectReader[Any])


def _send(request: _Send) -> model.SendMessageRequest:
    return model.SendMessageRequest(
        message=_message(request.message),
        configuration=configuration(request.configuration or Configuration()),
        metadata=request.metadata,
    )


def configuration(given: Configuration) -> model.SendMessageConfiguration:
    push = given.push_notification_config
    return model.SendMessageConfiguration(
        accepted_output_modes=given.accepted_output_modes,
        task_push_notification_config=None if push is None else push_config(push),
        history_length=given.history_length or None,
        return_immediately=not given.blocking,
    )


def _message(message: _Message) -> model.Message:
    return model.Message(
        message_id=message.message_id,
        context_id=message.context_id,
        task_id=message.task_id,
        role=_ROLES[message.role],
        parts=tuple(_part(part, index) for index, part in enumerate(message.parts)),
        metadata=message.metadata,
        extensions=message.extensions,
        reference_task_ids=message.reference_task_ids,
    )


def _part(part: _Part, index: int) -> model.Part:
    """Raises: Misfit."""
    path = f".message.parts[{index}]"
    kind = only_content(path, text=part.text, file=part.file, data=None if part.data is UNSET else part.data)
    if part.kind not in (None, kind):
        raise Misfit(f"must be {kind!r} for a part with {kind}, not {echo(part.kind)}", f"{path}.kind")
    if part.file is not None:
        return _file_part(part.file, part.metadata, f"{path}.file")
    if part.text is not None:
        return model.Part(text=part.text, metadata=part.metadata)
    return data_part(part.data, part.metadata, f"{path}.data")


def only_content(path: str, **contents: object) -> str:
    """The name of the one content that is there. Raises: Misfit."""
    given = [kind for kind, content in contents.items() if content is not None]
    if not given:
        raise Misfit("has no content: one of text, file and data is required", path)
    if len(given) > 1:
        raise Misfit(f"has several contents, {' and '.join(given)}: exactly one is allowed", path)
    return given[0]


def _file_part(file: _File, metadata: dict[str, Json] | None, path: str) -> model.Part:
    """Raises: Misfit."""
    if (file.bytes is None) == (file.uri is None):
        raise Misfit("must have exactly one of bytes and uri", path)
    raw = None
    if file.bytes is not None:
        try:
            raw = base64(file.bytes)
        except Misfit as misfit:
            misfit.path = f"{path}.bytes"
            raise
    return model.Part(raw=raw, url=file.uri, metadata=metadata, filename=file.name, media_type=file.mime_type)


def data_part(data: Json, metadata: dict[str, Json] | None, path: str) -> model.Part:
    """Raises: Misfit."""
    if not isinstance(data, dict):
        raise Misfit("must be an object", path)
    if metadata is not None and metadata.get(WRAPPED) is True and data.keys() == {"value"}:
        rest = {key: value for key, value in metadata.items() if key != WRAPPED}
        return model.Part(data=data["value"], metadata=rest or None)
    return model.Part(data=data, metadata=metadata)


def push_config(config: PushConfig, task: str | None = None) -> model.TaskPushNotificationConfig:
    """Of several schemes the first counts: credentials have one."""
    given = config.authentication
    scheme = None
    if given is not None and given.schemes:
        scheme = model.AuthenticationInfo(scheme=given.schemes[0], credentials=given.credentials)
    return model.TaskPushNotificationConfig(
        id=config.id, task_id=task, url=config.url, token=config.token, authentication=scheme
    )


TO_MODEL: Mapping[str, Callable[[Any], Wire]] = {
    "SendMessage": _send,
    "SendStreamingMessage": _send,
    "GetTask": lambda asked: model.GetTaskRequest(id=asked.id, history_length=asked.history_length or None),
    "CancelTask": lambda asked: model.CancelTaskRequest(id=asked.id, metadata=asked.metadata),
    "SubscribeToTask": lambda asked: model.SubscribeToTaskRequest(id=asked.id),
    "CreateTaskPushNotificationConfig": lambda asked: push_config(asked.push_notification_config, asked.task_id),
    "GetTaskPushNotificationConfig": lambda asked: model.GetTaskPushNotificationConfigRequest(
        task_id=asked.id, id=asked.push_notification_config_id or ""
    ),
    "ListTaskPushNotificationConfigs": lambda asked: model.ListTaskPushNotificationConfigsRequest(task_id=asked.id),
    "DeleteTaskPushNotificationConfig": lambda asked: model.DeleteTaskPushNotificationConfigRequest(
        task_id=asked.id, id=asked.push_notification_config_id
    ),
    "GetExtendedAgentCard": lambda _: model.GetExtendedAgentCardRequest(),
}
