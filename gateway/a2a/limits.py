"""Limits of well-formed requests: sizes, ids, ranges. Law: pure; every refusal names its field."""

import re
from collections.abc import Callable
from functools import cache
from typing import Any

import msgspec

from gateway.a2a import model
from gateway.a2a.errors import echo, invalid
from gateway.a2a.model import Json

_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_PAGE_SIZES = range(1, 101)
_OUTPUT_MODES = 100
_LABEL = 1024
_SECRET = 8192
_SCHEME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,64}")
_HEADER = re.compile(r"[!-~](?:[ -~]*[!-~])?")

_encoder = msgspec.json.Encoder()

_Check = Callable[[str, Any, "Limits"], None]


class Limits(msgspec.Struct, frozen=True):
    """The limits of one request: the maximum number or size of each of its parts. `metadata` is a number of bytes of
    JSON, `id_length` a number of characters of any id."""

    parts: int = 1000
    reference_ids: int = 100
    extensions: int = 50
    metadata: int = 65536
    id_length: int = 256


def check(request: model.Wire, limits: Limits) -> None:
    """Raises: InvalidParams naming the field."""
    for field, attribute, check_value in _checks(type(request)):
        value = getattr(request, attribute)
        if value is not None:
            check_value(field, value, limits)
    if isinstance(request, model.SendMessageRequest):
        _check_message(request.message, limits)
        if request.configuration is not None:
            _check_configuration(request.configuration, limits)
    elif isinstance(request, model.ListTasksRequest):
        _check_page_size(request.page_size)
    elif isinstance(request, model.ListTaskPushNotificationConfigsRequest):
        # Its field has no presence in the protocol definition: 0 is what a request without it has.
        _check_page_size(request.page_size or None)
    elif isinstance(request, model.TaskPushNotificationConfig):
        _check_push_config("", request, limits)


def _check_page_size(size: int | None) -> None:
    if size is not None and size not in _PAGE_SIZES:
        raise invalid("pageSize", f"must be from 1 to 100, not {size}")


@cache
def _checks(kind: type[model.Wire]) -> tuple[tuple[str, str, _Check], ...]:
    """The fields of this type that several types have: their names on the wire and in the type, and their checks."""
    fields = (
        ("tenant", "tenant", check_id),
        ("taskId", "task_id", check_id),
        ("id", "id", check_id),
        ("contextId", "context_id", check_id),
        ("historyLength", "history_length", _check_history_length),
        ("metadata", "metadata", _check_metadata),
    )
    return tuple(field for field in fields if field[1] in kind.__struct_fields__)


def check_id(field: str, value: str, limits: Limits) -> None:
    """Raises: InvalidParams."""
    if len(value) > limits.id_length:
        raise invalid(field, f"must not be longer than {limits.id_length} characters, it has {len(value)}")
    if not value.isprintable() and _CONTROL.search(value):
        raise invalid(field, f"must not contain control characters or lone surrogates: {echo(value)}")


def _check_push_config(place: str, config: model.TaskPushNotificationConfig, limits: Limits) -> None:
    for field, value in (("taskId", config.task_id), ("id", config.id)):
        if value is not None:
            check_id(f"{place}{field}", value, limits)
    authentication = config.authentication
    if authentication is not None and _SCHEME.fullmatch(authentication.scheme) is None:
        raise invalid(f"{place}authentication.scheme", "must be the name of an HTTP authentication scheme, as Bearer")
    credentials = authentication.credentials if authentication else None
    for field, value in (("token", config.token), ("authentication.credentials", credentials)):
        # The value goes into a header, and is not repeated in the error.
        if value and (len(value) > _SECRET or _HEADER.fullmatch(value) is None):
            raise invalid(f"{place}{field}", f"must be one line of up to {_SECRET} visible ASCII characters")


def _check_message(message: model.Message, limits: Limits) -> None:
    check_id("message.messageId", message.message_id, limits)
    if message.role is not model.Role.USER:
        raise invalid("message.role", f"must be {model.Role.USER}: an agent's message cannot be sent to it")
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


def _check_configuration(configuration: model.SendMessageConfiguration, limits: Limits) -> None:
    modes = configuration.accepted_output_modes or ()
    _check_id_list("configuration.acceptedOutputModes", modes, _OUTPUT_MODES, limits)
    _check_history_length("configuration.historyLength", configuration.history_length, limits)
    if (push := configuration.task_push_notification_config) is not None:
        _check_push_config("configuration.taskPushNotificationConfig.", push, limits)


def _check_count(field: str, values: tuple[object, ...], most: int) -> None:
    if len(values) > most:
        raise invalid(field, f"must not have more than {most} elements, it has {len(values)}")


def _check_id_list(field: str, values: tuple[str, ...], most: int, limits: Limits) -> None:
    _check_count(field, values, most)
    for index, value in enumerate(values):
        check_id(f"{field}[{index}]", value, limits)


def _check_history_length(field: str, value: int | None, _limits: Limits) -> None:
    if value is not None and value < 0:
        raise invalid(field, f"must not be negative, it is {value}")


def _check_metadata(field: str, metadata: dict[str, Json] | None, limits: Limits) -> None:
    if metadata and (length := len(_encoder.encode(metadata))) > limits.metadata:
        raise invalid(field, f"must not be larger than {limits.metadata} bytes of JSON, it has {length}")
