"""A2A errors as the status of a gRPC call. Law: the same reason, texts and violations as over HTTP.

Sources: A2A 1.0, section 10.6; google/rpc/status.proto and error_details.proto.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

import grpc

from gateway.a2a.errors import A2AError, ParseError
from gateway.a2a.model import Json
from gateway.a2a.wire.protobuf import INT32, INT64, OCTETS, TEXT, Field, Message
from gateway.http.reply import TYPES, cut, details

_ANY = Message("google.protobuf.Any", Field(1, "type_url", TEXT), Field(2, "value", OCTETS))
_STATUS = Message(
    "google.rpc.Status",
    Field(1, "code", INT32),
    Field(2, "message", TEXT),
    Field(3, "details", _ANY, form="many"),
)
_VIOLATION = Message("google.rpc.BadRequest.FieldViolation", Field(1, "field", TEXT), Field(2, "description", TEXT))
_DURATION = Message("google.protobuf.Duration", Field(1, "seconds", INT64), Field(2, "nanos", INT32))
_DETAILS = {
    f"{TYPES}{each.name.rpartition('.')[2]}": each
    for each in (
        Message(
            "google.rpc.ErrorInfo",
            Field(1, "reason", TEXT),
            Field(2, "domain", TEXT),
            Field(3, "metadata", TEXT, form="map"),
        ),
        Message("google.rpc.BadRequest", Field(1, "field_violations", _VIOLATION, form="many")),
        Message("google.rpc.RetryInfo", Field(1, "retry_delay", _DURATION)),
    )
}

_TRAILER = "grpc-status-details-bin"
_DEPTH = 10


class Status(NamedTuple):
    """The code, the text, and the trailing metadata of a call that has failed."""

    code: grpc.StatusCode
    text: str
    metadata: tuple[tuple[str, bytes], ...]


def status_of(error: A2AError) -> Status:
    code, text = grpc.StatusCode[error.grpc], cut(error.message)
    found = details(error)
    if error.retry_after is not None:
        found.append({"@type": f"{TYPES}RetryInfo", "retryDelay": {"seconds": error.retry_after}})
    packed = [{"typeUrl": each["@type"], "value": _DETAILS[each["@type"]].write(each)} for each in found]
    whole = _STATUS.write({"code": code.value[0], "message": text, "details": packed})
    return Status(code, text, ((_TRAILER, whole),))


def details_of(metadata: Iterable[tuple[str, Any]] | None) -> list[dict[str, Json]]:
    """The details in the trailing metadata of a call that has failed, as google.rpc objects with their `@type`; those that are
    not known are left out."""
    whole = next((value for name, value in metadata or () if name == _TRAILER), b"")
    try:
        packed = _STATUS.decode(whole, _DEPTH)[0].get("details", [])
        found = [(each.get("typeUrl", ""), each.get("value", b"")) for each in packed]
        return [{"@type": kind, **_DETAILS[kind].decode(value, _DEPTH)[0]} for kind, value in found if kind in _DETAILS]
    except ParseError:
        return []
