"""Limits of well-formed requests: sizes, ids, ranges. Law: pure; every refusal names its field."""

import re
from dataclasses import dataclass
from functools import singledispatch

import msgspec

from gateway.a2a.errors import echo, invalid
from gateway.a2a.model import (
    CancelTaskRequest,
    DeleteTaskPushNotificationConfigRequest,
    GetTaskPushNotificationConfigRequest,
    GetTaskRequest,
    Json,
    ListTaskPushNotificationConfigsRequest,
    ListTasksRequest,
    Message,
    Role,
    SendMessageConfiguration,
    SendMessageRequest,
    SubscribeToTaskRequest,
    TaskPushNotificationConfig,
    Wire,
)

_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_PAGE_SIZES = range(1, 101)
_OUTPUT_MODES = 100
_LABEL = 1024
_SECRET = 8192
_SCHEME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,64}")
_HEADER = re.compile(r"[!-~](?:[ -~]*[!-~])?")

_encoder = msgspec.json.Encoder()


@dataclass(frozen=True, slots=True)
class Limits:
    """The maximum of each in one request. `metadata`: bytes of JSON. `id_length`: characters of any id."""

    parts: int = 1000
    reference_ids: int = 100
    extensions: int = 50
    metadata: int = 65536
    id_length: int = 256


def check(request: Wire, limits: Limits) -> None:
    """Raises: InvalidParams naming the field."""
    tenant = getattr(request, "tenant", None)
    if tenant is not None:
        check_id("tenant", tenant, limits)
    _check(request, limits)


def check_id(field: str, value: str, limits: Limits) -> None:
    """Raises: InvalidParams."""
    if len(value) > limits.id_length:
        raise invalid(field, f"must not be longer than {limits.id_length} characters, it has {len(value)}")
    if _CONTROL.search(value):
        raise invalid(field, f"must not contain control characters or lone surrogates: {echo(value)}")


@singledispatch
def _check(_request: Wire, _limits: Limits) -> None:
    """Requests without a rule of their own."""


@_check.register
def _send(request: SendMessageRequest, limits: Limits) -> None:
    _check_message(request.message, limits)
    if request.configuration is not None:
        _check_configuration(request.configuration, limits)
    _check_metadata("metadata", request.metadata, limits)


@_check.register
def _get(request: GetTaskRequest, limits: Limits) -> None:
    check_id("id", request.id, limits)
    _check_history_length("historyLength", request.history_length)


@_check.register
def _list(request: ListTasksRequest, limits: Limits) -> None:
    if request.context_id is not None:
        check_id("contextId", request.context_id, limits)
    if request.page_size is not None and request.page_size not in _PAGE_SIZES:
        raise invalid("pageSize", f"must be from 1 to 100, not {request.page_size}")
    _check_history_length("historyLength", request.history_length)


@_check.register
def _cancel(request: CancelTaskRequest, limits: Limits) -> None:
    check_id("id", request.id, limits)
    _check_metadata("metadata", request.metadata, limits)


@_check.register
def _subscribe(request: SubscribeToTaskRequest, limits: Limits) -> None:
    check_id("id", request.id, limits)


@_check.register
def _push_config(request: TaskPushNotificationConfig, limits: Limits) -> None:
    _check_push_config("", request, limits)


def _check_push_config(place: str, config: TaskPushNotificationConfig, limits: Limits) -> None:
    for field, value in (("taskId", config.task_id), ("id", config.id)):
        if value is not None:
            check_id(f"{place}{field}", value, limits)
    authentication = config.authentication
    if authentication is not None and _SCHEME.fullmatch(authentication.scheme) is None:
        raise invalid(f"{place}authentication.scheme", "must be the name of an HTTP authentication scheme, as Bearer")
    secrets = (
        ("token", config.token),
        ("authentication.credentials", authentication.credentials if authentication else None),
    )
    for field, value in secrets:
        # The value goes into a header, and is not repeated in the error.
        if value and (len(value) > _SECRET or _HEADER.fullmatch(value) is None):
            raise invalid(f"{place}{field}", f"must be one line of up to {_SECRET} visible ASCII characters")


@_check.register
def _one_push_config(
    request: GetTaskPushNotificationConfigRequest | DeleteTaskPushNotificationConfigRequest, limits: Limits
) -> None:
    _check_ids(limits, taskId=request.task_id, id=request.id)


@_check.register
def _push_configs(request: ListTaskPushNotificationConfigsRequest, limits: Limits) -> None:
    _check_ids(limits, taskId=request.task_id)


def _check_ids(limits: Limits, **ids: str | None) -> None:
    for field, value in ids.items():
        if value is not None:
            check_id(field, value, limits)


def _check_message(message: Message, limits: Limits) -> None:
    check_id("message.messageId", message.message_id, limits)
    if message.role is not Role.USER:
        raise invalid("message.role", f"must be {Role.USER}: an agent's message cannot be sent to it")
    if message.context_id is not None:
        check_id("message.contextId", message.context_id, limits)
    if message.task_id is not None:
        check_id("message.taskId", message.task_id, limits)
    if not message.parts:
        raise invalid("message.parts", "at least one part is required")
    _check_count("message.parts", message.parts, limits.parts)
    for index, part in enumerate(message.parts):
        if part.metadata is not None:
            _check_metadata(f"message.parts[{index}].metadata", part.metadata, limits)
        for name, value in (("filename", part.filename), ("mediaType", part.media_type)):
            if value is not None and len(value) > _LABEL:
                raise invalid(f"message.parts[{index}].{name}", f"must be up to {_LABEL} characters")
    _check_id_list("message.referenceTaskIds", message.reference_task_ids or (), limits.reference_ids, limits)
    _check_id_list("message.extensions", message.extensions or (), limits.extensions, limits)
    _check_metadata("message.metadata", message.metadata, limits)


def _check_configuration(configuration: SendMessageConfiguration, limits: Limits) -> None:
    modes = configuration.accepted_output_modes or ()
    _check_id_list("configuration.acceptedOutputModes", modes, _OUTPUT_MODES, limits)
    _check_history_length("configuration.historyLength", configuration.history_length)
    if configuration.task_push_notification_config is not None:
        _check_push_config(
            "configuration.taskPushNotificationConfig.", configuration.task_push_notification_config, limits
        )


def _check_count(field: str, values: tuple[object, ...], most: int) -> None:
    if len(values) > most:
        raise invalid(field, f"must not have more than {most} elements, it has {len(values)}")


def _check_id_list(field: str, values: tuple[str, ...], most: int, limits: Limits) -> None:
    _check_count(field, values, most)
    for index, value in enumerate(values):
        check_id(f"{field}[{index}]", value, limits)


def _check_history_length(field: str, value: int | None) -> None:
    if value is not None and value < 0:
        raise invalid(field, f"must not be negative, it is {value}")


def _check_metadata(field: str, metadata: dict[str, Json] | None, limits: Limits) -> None:
    if metadata and (length := len(_encoder.encode(metadata))) > limits.metadata:
        raise invalid(field, f"must not be larger than {limits.metadata} bytes of JSON, it has {length}")
