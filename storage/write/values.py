"""Fields of commit points as parameters of statements. Law: a parameter has the name of the field that it holds."""

from typing import Any

import msgspec

from gateway.a2a.model import Json
from gateway.ports import conversation
from gateway.ports.conversation import weight
from storage.statement import Value, Values

_encoder = msgspec.json.Encoder()


def parameters(point: msgspec.Struct, **others: Value) -> Values:
    """Its fields under their names, with the others added or in their place."""
    return msgspec.structs.asdict(point) | others


def json(value: Any) -> str:
    return _encoder.encode(value).decode()


def json_or_null(value: Json) -> str | None:
    return None if value is None else json(value)


def later_version(version: int | None) -> int | None:
    """NULL stands for the first version."""
    return None if version == 1 else version


def item(item: conversation.Item) -> dict[str, Value]:
    """The columns of a history item that follow from the item itself."""
    return {"kind": conversation.kind(item), "weight": weight(item), "payload": conversation.encode(item).decode()}
