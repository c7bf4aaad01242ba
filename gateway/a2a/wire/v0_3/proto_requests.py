"""Requests of HTTP+JSON in A2A 0.3, which are written as the ProtoJSON of `a2a.v1`. Law: as in `requests`.

Two spellings are read: that of the official SDKs, which have `content`, `fileWithUri` and `ROLE_USER`; and that of the
specification's text, which is the JSON of JSON-RPC. A message with `parts` is in the second.

Source: A2A 0.3.0, sections 3.5.6 and 7, and its `specification/grpc/a2a.proto`.
"""

import binascii
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from typing import Any

import msgspec
from msgspec.structs import replace

from gateway.a2a import model
from gateway.a2a.errors import MethodNotFound, echo
from gateway.a2a.model import Json, Wire
from gateway.a2a.wire.dialect import Method
from gateway.a2a.wire.proto_json import Misfit, ObjectReader, base64
from gateway.a2a.wire.v0_3 import requests
from gateway.a2a.wire.v0_3.requests import Configuration, PushConfig


class _File(Wire, frozen=True, kw_only=True):
    file_with_uri: str | None = None
    file_with_bytes: str | None = None
    mime_type: str | None = None
    name: str | None = None


class _Data(Wire, frozen=True, kw_only=True):
    data: dict[str, Json] | None = None


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
    content: tuple[_Part, ...] = ()
    metadata: dict[str, Json] | None = None
    extensions: tuple[str, ...] | None = None


class _Configuration(Wire, frozen=True, kw_only=True):
    accepted_output_modes: tuple[str, ...] | None = None
    push_notification: PushConfig | None = None
    history_length: int | None = None
    blocking: bool = False


class _Send(Wire, frozen=True, kw_only=True):
    request: _Message = msgspec.field(name="message")
    configuration: _Configuration | None = None
    metadata: dict[str, Json] | None = None


class _OneTask(Wire, frozen=True, kw_only=True):
    """`id` is that of the path, and `name` the resource name of the body."""

    id: str
    name: str | None = None
    metadata: dict[str, Json] | None = None


class _TaskPushConfig(Wire, frozen=True, kw_only=True):
    name: str | None = None
    task_id: str | None = None
    push_notification_config: PushConfig | None = None


class _CreatePush(Wire, frozen=True, kw_only=True):
    """The configuration is in `config`, or in the place of the whole."""

    id: str
    parent: str | None = None
    config_id: str | None = None
    config: _TaskPushConfig | None = None
    name: str | None = None
    task_id: str | None = None
    push_notification_config: PushConfig | None = None


class _ListPush(Wire, frozen=True, kw_only=True):
    id: str
    page_size: int | None = None
    page_token: str | None = None


_REQUESTS: Mapping[str, type[Wire]] = {
    "SendMessage": _Send,
    "SendStreamingMessage": _Send,
    "CancelTask": _OneTask,
    "SubscribeToTask": _OneTask,
    "CreateTaskPushNotificationConfig": _CreatePush,
    "ListTaskPushNotificationConfigs": _ListPush,
}
METHODS: Mapping[str, Method] = {
    each.operation: replace(each, name=each.operation, request=_REQUESTS.get(each.operation, each.request))
    for each in requests.METHODS.values()
}
"""The methods by the names of their operations in A2A 1.0: the binding has none of its own."""

_IN_WORDS = requests.METHODS["message/send"]


def method(name: str) -> Method:
    """Raises: MethodNotFound."""
    found = METHODS.get(name)
    if found is None:
        raise MethodNotFound(
            f"Method not found: A2A 0.3 has no {echo(name)}; A2A 1.0 has it, at an address without /v1"
        )
    return found


def decode(called: Method, params: Json) -> Any:
    """The request of the model. Raises: InvalidParams naming the field as the request does, as `message.content[0].file`."""
    if called.request is _Send and _is_in_words(params):
        return requests.decode(_IN_WORDS, params)
    try:
        return _TO_MODEL[called.operation](_reader(called.request)(params))
    except Misfit as misfit:
        raise misfit.named() from None


def decode_query(called: Method, pairs: Sequence[tuple[str, str]], path: Mapping[str, str]) -> Any:
    """The same from a URL."""
    try:
        return _TO_MODEL[called.operation](_reader(called.request).read_query(pairs, path))
    except Misfit as misfit:
        raise misfit.named() from None


_reader = cache(ObjectReader[Any])


def _is_in_words(params: Json) -> bool:
    message = params.get("message")
    return isinstance(message, dict) and "parts" in message and "content" not in message


def _send(asked: _Send) -> model.SendMessageRequest:
    given = asked.configuration or _Configuration()
    return model.SendMessageRequest(
        message=_message(asked.request),
        configuration=requests.configuration(
            Configuration(
                accepted_output_modes=given.accepted_output_modes,
                blocking=given.blocking,
                history_length=given.history_length,
                push_notification_config=given.push_notification,
            )
        ),
        metadata=asked.metadata,
    )


def _message(message: _Message) -> model.Message:
    """Raises: Misfit."""
    if not message.content:
        raise Misfit("at least one part is required", ".message.content")
    return model.Message(
        message_id=message.message_id,
        context_id=message.context_id,
        task_id=message.task_id,
        role=message.role,
        parts=tuple(_part(part, f".message.content[{index}]") for index, part in enumerate(message.content)),
        metadata=message.metadata,
        extensions=message.extensions,
    )


def _part(part: _Part, path: str) -> model.Part:
    """Raises: Misfit."""
    requests.only_content(path, text=part.text, file=part.file, data=part.data)
    if part.file is not None:
        return _file_part(part.file, part.metadata, f"{path}.file")
    if part.data is not None:
        return requests.data_part(part.data.data or {}, part.metadata, f"{path}.data.data")
    return model.Part(text=part.text, metadata=part.metadata)


def _file_part(file: _File, metadata: dict[str, Json] | None, path: str) -> model.Part:
    """Raises: Misfit."""
    about: dict[str, Any] = {"metadata": metadata, "filename": file.name, "media_type": file.mime_type}
    if (file.file_with_bytes is None) == (file.file_with_uri is None):
        raise Misfit("must have exactly one of fileWithBytes and fileWithUri", path)
    if file.file_with_uri is not None:
        return model.Part(url=file.file_with_uri, **about)
    try:
        return model.Part(raw=_raw(file.file_with_bytes), **about)
    except Misfit as misfit:
        misfit.path = f"{path}.fileWithBytes"
        raise


def _raw(value: Json) -> str:
    """The content in base64. The SDKs of Python, Java and Go write the base64 of its base64, that of JavaScript its base64.

    Bytes that are the base64 of something are taken for the former. Raises: Misfit.
    """
    once = base64(value)
    content = binascii.a2b_base64(once)
    with suppress(Misfit, UnicodeDecodeError):
        twice = base64(content.decode("ascii"))
        if len(twice) == len(content):  # padded as it must be
            return twice
    return once


def _create_push(asked: _CreatePush) -> model.TaskPushNotificationConfig:
    """Raises: Misfit."""
    in_config = asked.config is not None
    given = asked.config or _TaskPushConfig(
        name=asked.name, task_id=asked.task_id, push_notification_config=asked.push_notification_config
    )
    place = ".config" if in_config else ""
    _same(".parent", asked.parent, f"tasks/{asked.id}")
    _same(f"{place}.taskId", given.task_id, asked.id)
    _same(f"{place}.name", given.name and "/".join(given.name.split("/")[:2]), f"tasks/{asked.id}")
    config = given.push_notification_config
    if config is None:
        raise Misfit("is required and must not be empty", f"{place}.pushNotificationConfig")
    found = requests.push_config(config, asked.id)
    return found if found.id else msgspec.structs.replace(found, id=asked.config_id)


def _same(path: str, given: str | None, expected: str) -> None:
    """Raises: Misfit where the body names another task than the path."""
    if given and given != expected:
        raise Misfit(f"is not the same in the body as in the path, {echo(expected)}", path)


def _one_task(asked: _OneTask) -> str:
    """The task. Raises: Misfit."""
    _same(".name", asked.name, f"tasks/{asked.id}")
    return asked.id


_TO_MODEL: Mapping[str, Callable[[Any], Wire]] = {
    **requests.TO_MODEL,
    "SendMessage": _send,
    "SendStreamingMessage": _send,
    "CancelTask": lambda asked: model.CancelTaskRequest(id=_one_task(asked), metadata=asked.metadata),
    "SubscribeToTask": lambda asked: model.SubscribeToTaskRequest(id=_one_task(asked)),
    "CreateTaskPushNotificationConfig": _create_push,
    "ListTaskPushNotificationConfigs": lambda asked: model.ListTaskPushNotificationConfigsRequest(
        task_id=asked.id, page_size=asked.page_size, page_token=asked.page_token
    ),
}
