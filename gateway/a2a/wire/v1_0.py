"""The dialect A2A 1.0, and the choice of a dialect: method names, requests from JSON, results and events to JSON. Law:
camelCase out, one line each; major and minor version decide, not the patch, and no version means 0.3.

Source: A2A 1.0, sections 3.6, 5.3, 5.5 to 5.7, 9 and 11.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import msgspec

from gateway.a2a import model
from gateway.a2a.errors import MethodNotFound, VersionNotSupported, echo
from gateway.a2a.model import Json, Wire
from gateway.a2a.wire.proto_json import Misfit, ObjectReader

VERSION = "1.0"

# Line ends for some readers of SSE that JSON does not escape. In UTF-8 these bytes have no other meaning.
_LINE_ENDS = ((b"\xe2\x80\xa8", b"\\u2028"), (b"\xe2\x80\xa9", b"\\u2029"), (b"\xc2\x85", b"\\u0085"))

_encoder = msgspec.json.Encoder()


@dataclass(frozen=True, slots=True)
class Method:
    name: str
    request: type[Wire]
    streaming: bool = False
    needs_extensions: bool = True


METHODS: Mapping[str, Method] = {
    method.name: method
    for method in (
        Method("SendMessage", model.SendMessageRequest),
        Method("SendStreamingMessage", model.SendMessageRequest, streaming=True),
        Method("GetTask", model.GetTaskRequest),
        Method("ListTasks", model.ListTasksRequest),
        Method("CancelTask", model.CancelTaskRequest),
        Method("SubscribeToTask", model.SubscribeToTaskRequest, streaming=True),
        Method("CreateTaskPushNotificationConfig", model.TaskPushNotificationConfig),
        Method("GetTaskPushNotificationConfig", model.GetTaskPushNotificationConfigRequest),
        Method("ListTaskPushNotificationConfigs", model.ListTaskPushNotificationConfigsRequest),
        Method("DeleteTaskPushNotificationConfig", model.DeleteTaskPushNotificationConfigRequest),
        Method("GetExtendedAgentCard", model.GetExtendedAgentCardRequest, needs_extensions=False),
    )
}


def method(name: str) -> Method:
    """Raises: MethodNotFound."""
    found = METHODS.get(name)
    if found is None:
        raise MethodNotFound(f"Method not found: {echo(name)}")
    return found


_reader = cache(ObjectReader[Any])


def decode(request: type[Wire], params: Json) -> Any:
    """The request in `params`. Raises: InvalidParams naming the field, as `message.parts[0].text`."""
    try:
        return _reader(request)(params)
    except Misfit as misfit:
        raise misfit.named() if misfit.path else Misfit(misfit.description, "params").named() from None


def decode_query(request: type[Wire], pairs: Sequence[tuple[str, str]], path: Mapping[str, str]) -> Any:
    """Decodes like `decode`, from a URL: `pairs` are those of its query, `path` the fields (by proto name) of its path."""
    try:
        return _reader(request).read_query(pairs, path)
    except Misfit as misfit:
        raise misfit.named() from None


def encode(value: Wire) -> bytes:
    """A result, or an event for every stream, log and webhook, as one line of JSON that fits into an SSE field."""
    line = _encoder.encode(value)
    if line.isascii():  # faster than three searches, and usually true
        return line
    for character, escape in _LINE_ENDS:
        if character in line:
            line = line.replace(character, escape)
    return line


@dataclass(frozen=True, slots=True)
class Dialect:
    """One version's JSON: method names, requests in, results out."""

    version: str
    method: Callable[[str], Method]
    decode: Callable[[type[Wire], Json], Any]
    decode_query: Callable[[type[Wire], Sequence[tuple[str, str]], Mapping[str, str]], Any]
    encode: Callable[[Wire], bytes]


DIALECTS: Mapping[str, Dialect] = {VERSION: Dialect(VERSION, method, decode, decode_query, encode)}

_UNNAMED = "0.3"
_VERSION = re.compile(r"([0-9]{1,4})\.([0-9]{1,4})(?:\.[0-9]{1,4})?")


def negotiate(requested: str | None) -> Dialect:
    """The dialect of the requested version. Raises: VersionNotSupported naming the supported ones."""
    text = requested or ""
    dialect = DIALECTS.get(text or _UNNAMED)
    if dialect is None and (match := _VERSION.fullmatch(text)):
        dialect = DIALECTS.get(f"{int(match[1])}.{int(match[2])}")
    if dialect is not None:
        return dialect
    supported = ", ".join(DIALECTS)
    asked = f"A2A version {echo(text)}" if text else f"A2A version {_UNNAMED} (assumed without A2A-Version)"
    why = f"{asked} is not supported; supported: {supported}"
    raise VersionNotSupported(why, metadata={"supportedVersions": supported})
