"""The dialect A2A 1.0: method names, requests from JSON, results and events to JSON. Law: camelCase out, one line each.

Source: A2A 1.0, sections 5.3, 5.5 to 5.7, 9 and 11.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import msgspec

from gateway.errors import MethodNotFound, echo
from gateway.model import (
    CancelTaskRequest,
    DeleteTaskPushNotificationConfigRequest,
    GetExtendedAgentCardRequest,
    GetTaskPushNotificationConfigRequest,
    GetTaskRequest,
    Json,
    ListTaskPushNotificationConfigsRequest,
    ListTasksRequest,
    SendMessageRequest,
    SubscribeToTaskRequest,
    TaskPushNotificationConfig,
    Wire,
)
from gateway.wire.proto_json import Misfit, ObjectReader

VERSION = "1.0"

# What some reader of SSE takes for the end of a line and JSON leaves as it is. In UTF-8 the bytes mean nothing else.
_LINE_ENDS = ((b"\xe2\x80\xa8", b"\\u2028"), (b"\xe2\x80\xa9", b"\\u2029"), (b"\xc2\x85", b"\\u0085"))

_encoder = msgspec.json.Encoder()


@dataclass(frozen=True, slots=True)
class Method:
    """`name` is the one on the wire, `operation` the one of `gateway.calls.Operations`."""

    name: str
    operation: str
    request: type[Wire]
    streaming: bool = False
    needs_extensions: bool = True


METHODS: Mapping[str, Method] = {
    method.name: method
    for method in (
        Method("SendMessage", "send_message", SendMessageRequest),
        Method("SendStreamingMessage", "send_streaming_message", SendMessageRequest, streaming=True),
        Method("GetTask", "get_task", GetTaskRequest),
        Method("ListTasks", "list_tasks", ListTasksRequest),
        Method("CancelTask", "cancel_task", CancelTaskRequest),
        Method("SubscribeToTask", "subscribe_to_task", SubscribeToTaskRequest, streaming=True),
        Method("CreateTaskPushNotificationConfig", "create_push_config", TaskPushNotificationConfig),
        Method("GetTaskPushNotificationConfig", "get_push_config", GetTaskPushNotificationConfigRequest),
        Method("ListTaskPushNotificationConfigs", "list_push_configs", ListTaskPushNotificationConfigsRequest),
        Method("DeleteTaskPushNotificationConfig", "delete_push_config", DeleteTaskPushNotificationConfigRequest),
        Method("GetExtendedAgentCard", "get_extended_card", GetExtendedAgentCardRequest, needs_extensions=False),
    )
}


def method(name: str) -> Method:
    """Raises: MethodNotFound."""
    found = METHODS.get(name)
    if found is None:
        raise MethodNotFound(f"Method not found: {echo(name)}")
    return found


@cache
def _reader(request: type[Wire]) -> ObjectReader[Any]:
    return ObjectReader(request)


def decode(request: type[Wire], params: Json) -> Any:
    """The request that `params` holds. Raises: InvalidParams naming the field, as `message.parts[0].text`."""
    try:
        return _reader(request)(params)
    except Misfit as misfit:
        raise misfit.named() if misfit.path else Misfit(misfit.description, "params").named() from None


def decode_query(request: type[Wire], pairs: Sequence[tuple[str, str]], path: Mapping[str, str]) -> Any:
    """As `decode`, from a URL: `pairs` of its query, `path` the fields (by proto name) that its path holds."""
    try:
        return _reader(request).read_query(pairs, path)
    except Misfit as misfit:
        raise misfit.named() from None


def encode(value: Wire) -> bytes:
    """A result, or an event for every stream, log and webhook, as one line of JSON for any reader's idea of a line: it goes
    into an SSE field as it is."""
    line = _encoder.encode(value)
    if line.isascii():  # quicker than three searches, and mostly so
        return line
    for character, escape in _LINE_ENDS:
        if character in line:
            line = line.replace(character, escape)
    return line
