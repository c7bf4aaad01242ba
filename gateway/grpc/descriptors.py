"""The files of the services as protobuf describes them, made of the tables of the codec. Law: nothing is described twice.

Source: google/protobuf/descriptor.proto.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from gateway.a2a.model import Json
from gateway.a2a.wire.protobuf import (
    BOOLEAN,
    DOUBLE,
    EMPTY,
    INT32,
    INT64,
    STRUCT,
    TEXT,
    TIMESTAMP,
    VALUE,
    Enumeration,
    Field,
    Kind,
    Message,
    Procedure,
)

_OPTIONAL, _REPEATED = 1, 3


def _many(number: int, name: str, kind: Kind = TEXT) -> Field:
    return Field(number, name, kind, form="many")


def _given(number: int, name: str, kind: Kind = INT32) -> Field:
    return Field(number, name, kind, explicit=True)


def _message(name: str, *fields: Field) -> Message:
    return Message(f"google.protobuf.{name}", *fields)


_OPTIONS = _message("MessageOptions", _given(7, "map_entry", BOOLEAN))
_FIELD = _message(
    "FieldDescriptorProto",
    Field(1, "name", TEXT),
    _given(3, "number"),
    _given(4, "label"),
    _given(5, "type"),
    Field(6, "type_name", TEXT),
    _given(9, "oneof_index"),
    Field(10, "json_name", TEXT),
    Field(17, "proto3_optional", BOOLEAN),
)
_ENUM = _message(
    "EnumDescriptorProto",
    Field(1, "name", TEXT),
    _many(2, "value", _message("EnumValueDescriptorProto", Field(1, "name", TEXT), _given(2, "number"))),
)
_ENTRY = _message("DescriptorProto", Field(1, "name", TEXT), _many(2, "field", _FIELD), Field(7, "options", _OPTIONS))
_DESCRIPTOR = _message(
    "DescriptorProto",
    Field(1, "name", TEXT),
    _many(2, "field", _FIELD),
    _many(3, "nested_type", _ENTRY),
    _many(4, "enum_type", _ENUM),
    _many(8, "oneof_decl", _message("OneofDescriptorProto", Field(1, "name", TEXT))),
)
_METHOD = _message(
    "MethodDescriptorProto",
    Field(1, "name", TEXT),
    Field(2, "input_type", TEXT),
    Field(3, "output_type", TEXT),
    Field(5, "client_streaming", BOOLEAN),
    Field(6, "server_streaming", BOOLEAN),
)
_FILE = _message(
    "FileDescriptorProto",
    Field(1, "name", TEXT),
    Field(2, "package", TEXT),
    _many(3, "dependency"),
    _many(4, "message_type", _DESCRIPTOR),
    _many(5, "enum_type", _ENUM),
    _many(6, "service", _message("ServiceDescriptorProto", Field(1, "name", TEXT), _many(2, "method", _METHOD))),
    Field(12, "syntax", TEXT),
)


class File(NamedTuple):
    """A file as `FileDescriptorProto`, and the full names of what it defines."""

    name: str
    content: bytes
    dependencies: tuple[str, ...]
    symbols: frozenset[str]


Definition = Message | Enumeration


def service_file(
    name: str, service: str, procedures: Mapping[str, Procedure], dependencies: Sequence[File] = ()
) -> File:
    """The file of one service, with the messages of its package that its methods use."""
    package, _, short = service.rpartition(".")
    definitions = _reachable(package, [kind for each in procedures.values() for kind in (each.request, each.response)])
    methods = [
        {
            "name": method,
            "inputType": f".{each.request.name}",
            "outputType": f".{each.response.name}",
            "clientStreaming": each.talking,
            "serverStreaming": each.streaming or each.talking,
        }
        for method, each in procedures.items()
    ]
    symbols = {service, *(f"{service}.{method}" for method in procedures)}
    return _file(name, package, definitions, dependencies, [{"name": short, "method": methods}], symbols)


def _file(
    name: str,
    package: str,
    definitions: Sequence[Definition],
    dependencies: Sequence[File] = (),
    services: Sequence[Json] = (),
    symbols: set[str] = set(),  # noqa: B006  # never changed
) -> File:
    tops = [each for each in definitions if each.name.rpartition(".")[0] == package]
    enums = [each for each in definitions if isinstance(each, Enumeration)]
    content = _FILE.write(
        {
            "name": name,
            "package": package,
            "dependency": [each.name for each in dependencies],
            "messageType": [_message_json(each, enums) for each in tops if isinstance(each, Message)],
            "enumType": [_enum_json(each) for each in enums if each in tops],
            "service": services,
            "syntax": "proto3",
        }
    )
    further = [file for each in dependencies for file in (each.name, *each.dependencies)]
    return File(
        name, content, tuple(dict.fromkeys(further)), frozenset({*symbols, *(each.name for each in definitions)})
    )


def _reachable(package: str, roots: Sequence[Definition]) -> list[Definition]:
    """What the roots use of their package, each once."""
    found: dict[str, Definition] = {}
    waiting: list[Any] = list(reversed(roots))
    while waiting:
        kind = waiting.pop()
        if isinstance(kind, Message | Enumeration) and kind.name.startswith(f"{package}.") and kind.name not in found:
            found[kind.name] = kind
            if isinstance(kind, Message):
                waiting += [field.kind for field in reversed(kind.fields)]
    return list(found.values())


def _short(name: str) -> str:
    return name.rpartition(".")[2]


def _enum_json(enumeration: Enumeration) -> Json:
    values = [{"name": name, "number": number} for number, name in enumerate(enumeration.names)]
    return {"name": _short(enumeration.name), "value": values}


def _message_json(message: Message, enums: Sequence[Enumeration]) -> Json:
    choices = list(dict.fromkeys(field.choice for field in message.fields if field.choice is not None))
    # What is `optional` is the only member of a oneof of its own, and these stand behind all others.
    lone = [f"_{field.name}" for field in message.fields if field.explicit]
    return {
        "name": _short(message.name),
        "field": [_field_json(message, field, [*choices, *lone]) for field in message.fields],
        "nestedType": [_entry_json(field) for field in message.fields if field.form == "map"],
        "enumType": [_enum_json(each) for each in enums if each.name.rpartition(".")[0] == message.name],
        "oneofDecl": [{"name": name} for name in [*choices, *lone]],
    }


def _field_json(message: Message, field: Field, oneofs: list[str]) -> Json:
    oneof = f"_{field.name}" if field.explicit else field.choice
    return {
        "name": field.name,
        "number": field.number,
        "label": _OPTIONAL if field.form == "one" else _REPEATED,
        **(_type(field.kind) if field.form != "map" else {"type": 11, "typeName": f".{message.name}.{_entry(field)}"}),
        **({} if oneof is None else {"oneofIndex": oneofs.index(oneof)}),
        "jsonName": field.json_name,
        "proto3Optional": field.explicit,
    }


def _type(kind: Kind) -> dict[str, Json]:
    name = getattr(kind, "name", "")
    return {"type": kind.type, **({"typeName": f".{name}"} if name else {})}


def _entry(field: Field) -> str:
    return "".join(word.capitalize() for word in field.name.split("_")) + "Entry"


def _entry_json(field: Field) -> Json:
    key = {"name": "key", "number": 1, "label": _OPTIONAL, "type": TEXT.type, "jsonName": "key"}
    value = {"name": "value", "number": 2, "label": _OPTIONAL, **_type(field.kind), "jsonName": "value"}
    return {"name": _entry(field), "field": [key, value], "options": {"mapEntry": True}}


# --- google.protobuf

_NULL = Enumeration("google.protobuf.NullValue", "NULL_VALUE")
_LIST = _message("ListValue", _many(1, "values", VALUE))
_ANY_JSON = _message(
    "Value",
    Field(1, "null_value", _NULL, choice="kind"),
    Field(2, "number_value", DOUBLE, choice="kind"),
    Field(3, "string_value", TEXT, choice="kind"),
    Field(4, "bool_value", BOOLEAN, choice="kind"),
    Field(5, "struct_value", STRUCT, choice="kind"),
    Field(6, "list_value", _LIST, choice="kind"),
)
_MEMBERS = Message(STRUCT.name, Field(1, "fields", VALUE, form="map"))
_MOMENT = Message(TIMESTAMP.name, Field(1, "seconds", INT64), Field(2, "nanos", INT32))


def google_files() -> Iterator[File]:
    """Those that A2A needs."""
    package = "google.protobuf"
    yield _file("google/protobuf/struct.proto", package, [_MEMBERS, _ANY_JSON, _LIST, _NULL])
    yield _file("google/protobuf/timestamp.proto", package, [_MOMENT])
    yield _file("google/protobuf/empty.proto", package, [EMPTY])
