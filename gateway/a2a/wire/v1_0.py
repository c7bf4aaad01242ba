"""The dialect A2A 1.0: method names, requests from JSON, results and events to JSON. Law: camelCase out, one line each.

Source: A2A 1.0, sections 5.3, 5.5 to 5.7, 9 and 11.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from gateway.a2a import model
from gateway.a2a.errors import A2AError, MethodNotFound, echo
from gateway.a2a.model import Json, Wire
from gateway.a2a.wire.card import card_json
from gateway.a2a.wire.dialect import Dialect, Method, line
from gateway.a2a.wire.proto_json import Misfit, ObjectReader

VERSION = "1.0"


def _method(name: str, request: type[Wire], *, streaming: bool = False, needs_extensions: bool = True) -> Method:
    return Method(name, name, request, streaming, needs_extensions)


METHODS: Mapping[str, Method] = {
    method.name: method
    for method in (
        _method("SendMessage", model.SendMessageRequest),
        _method("SendStreamingMessage", model.SendMessageRequest, streaming=True),
        _method("GetTask", model.GetTaskRequest),
        _method("ListTasks", model.ListTasksRequest),
        _method("CancelTask", model.CancelTaskRequest),
        _method("SubscribeToTask", model.SubscribeToTaskRequest, streaming=True),
        _method("CreateTaskPushNotificationConfig", model.TaskPushNotificationConfig),
        _method("GetTaskPushNotificationConfig", model.GetTaskPushNotificationConfigRequest),
        _method("ListTaskPushNotificationConfigs", model.ListTaskPushNotificationConfigsRequest),
        _method("DeleteTaskPushNotificationConfig", model.DeleteTaskPushNotificationConfigRequest),
        _method("GetExtendedAgentCard", model.GetExtendedAgentCardRequest, needs_extensions=False),
    )
}


def method(name: str) -> Method:
    """Raises: MethodNotFound."""
    found = METHODS.get(name)
    if found is None:
        raise MethodNotFound(f"Method not found: {echo(name)}")
    return found


_reader = cache(ObjectReader[Any])


def decode(called: Method, params: Json) -> Any:
    """The request in `params`. Raises: InvalidParams naming the field, as `message.parts[0].text`."""
    try:
        return _reader(called.request)(params)
    except Misfit as misfit:
        raise misfit.named() if misfit.path else Misfit(misfit.description, "params").named() from None


def decode_query(called: Method, pairs: Sequence[tuple[str, str]], path: Mapping[str, str]) -> Any:
    try:
        return _reader(called.request).read_query(pairs, path)
    except Misfit as misfit:
        raise misfit.named() from None


def encode(result: Wire) -> bytes:
    """A result, or an event for every stream, log and webhook, as one line of JSON that fits into an SSE field."""
    return line(card_json(result) if isinstance(result, model.AgentCard) else result)


def code(error: A2AError) -> int:
    return error.code


DIALECT = Dialect(
    version=VERSION,
    method=method,
    decode=decode,
    decode_query=decode_query,
    encode=encode,
    event=None,
    code=code,
    extensions=b"a2a-extensions",
)
