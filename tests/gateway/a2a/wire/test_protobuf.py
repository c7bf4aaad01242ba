"""The codec next to protobuf's own library with the classes of a2a-sdk: the same bytes mean the same to both."""

import struct
import tracemalloc
from typing import Any

import msgspec
import pytest
from a2a.types import a2a_pb2
from google.protobuf import json_format, struct_pb2  # type: ignore[import-untyped]
from google.protobuf.descriptor import Descriptor, FieldDescriptor  # type: ignore[import-untyped]
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from hypothesis import given
from hypothesis import strategies as st

from gateway.a2a import model
from gateway.a2a.errors import InvalidParams, ParseError
from gateway.a2a.wire import v1_0, v1_0_proto
from gateway.a2a.wire.protobuf import VALUE, VALUES, Enumeration, Field, Message
from gateway.a2a.wire.v1_0_proto import PROCEDURES, SERVICE

DEPTH = 100


def reachable() -> dict[str, Message | Enumeration]:
    """Every message and enumeration of the protocol that a method uses, by its full name."""
    found: dict[str, Message | Enumeration] = {}
    waiting: list[Any] = [kind for each in PROCEDURES.values() for kind in (each.request, each.response)]
    while waiting:
        kind = waiting.pop()
        if isinstance(kind, Message | Enumeration) and kind.name not in found:
            found[kind.name] = kind
            waiting += [field.kind for field in kind.fields] if isinstance(kind, Message) else []
    return found


KINDS = reachable()
MESSAGES = {name: kind for name, kind in KINDS.items() if isinstance(kind, Message) and "a2a" in name}


def generated(name: str) -> Any:
    """The class of a2a-sdk for the message."""
    return getattr(a2a_pb2, name.rpartition(".")[2])


# --- the tables


@pytest.mark.parametrize("name", MESSAGES)
def test_the_table_of_a_message_is_that_of_the_protocol(name: str) -> None:
    official: Descriptor = generated(name).DESCRIPTOR

    assert [_row(field) for field in MESSAGES[name].fields] == [
        _official_row(field) for field in sorted(official.fields, key=lambda field: field.number)
    ]


def _row(field: Field) -> tuple[object, ...]:
    kind = getattr(field.kind, "name", None)
    return field.number, field.name, field.json_name, field.kind.type, kind, field.form, field.choice, field.explicit


def _official_row(field: FieldDescriptor) -> tuple[object, ...]:
    repeated, target = field.is_repeated, field.message_type
    is_map = target is not None and target.GetOptions().map_entry
    if is_map:
        assert target.fields_by_name["key"].type == FieldDescriptor.TYPE_STRING
        value, form = target.fields_by_name["value"], "map"
    else:
        value, form = field, "many" if repeated else "one"
    of = value.message_type or value.enum_type
    oneof = field.containing_oneof
    synthetic = oneof is not None and oneof.name.startswith("_")
    choice = oneof.name if oneof is not None and not synthetic else None
    kind = None if of is None else of.full_name
    return field.number, field.name, field.json_name, value.type, kind, form, choice, synthetic


@pytest.mark.parametrize("name", [name for name, kind in KINDS.items() if isinstance(kind, Enumeration)])
def test_the_names_of_an_enumeration_are_those_of_the_protocol(name: str) -> None:
    kind = KINDS[name]
    assert isinstance(kind, Enumeration)

    assert dict(enumerate(kind.names)) == {
        value.number: value.name for value in a2a_pb2.DESCRIPTOR.enum_types_by_name[name.rpartition(".")[2]].values
    }


def test_the_methods_are_those_of_the_protocol_and_of_the_dialect() -> None:
    service = a2a_pb2.DESCRIPTOR.services_by_name["A2AService"]

    assert service.full_name == SERVICE
    assert {name: (each.request.name, each.response.name) for name, each in PROCEDURES.items()} == {
        method.name: (method.input_type.full_name, method.output_type.full_name) for method in service.methods
    }
    assert {name: each.streaming for name, each in PROCEDURES.items()} == {
        name: method.streaming for name, method in v1_0.METHODS.items()
    }


# --- both ways

texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
numbers = st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**53), 2**53)
json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
moments = st.datetimes().map(lambda moment: moment.isoformat() + "Z")


def objects(descriptor: Descriptor) -> st.SearchStrategy[dict[str, Any]]:
    """ProtoJSON objects of a message, with any of its fields."""
    members = {field.json_name: _values(field) for field in descriptor.fields}
    rivals = [{field.json_name for field in oneof.fields} for oneof in descriptor.oneofs if len(oneof.fields) > 1]

    def one_of_each(found: dict[str, Any]) -> dict[str, Any]:
        for names in rivals:
            for name in sorted(names & found.keys())[1:]:
                del found[name]
        return found

    return st.fixed_dictionaries({}, optional=members).map(one_of_each)


def _values(field: FieldDescriptor) -> st.SearchStrategy[Any]:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        return st.dictionaries(texts, _single(field.message_type.fields_by_name["value"]), max_size=2)
    return st.lists(_single(field), max_size=2) if field.is_repeated else _single(field)


def _single(field: FieldDescriptor) -> st.SearchStrategy[Any]:
    target = field.message_type
    if target is not None:
        known = {
            "google.protobuf.Struct": st.dictionaries(texts, json_values, max_size=3),
            "google.protobuf.Value": json_values,
            "google.protobuf.Timestamp": moments,
        }
        return known[target.full_name] if target.full_name in known else st.deferred(lambda: objects(target))
    if field.enum_type is not None:
        return st.sampled_from([value.name for value in field.enum_type.values])
    scalars = {
        FieldDescriptor.TYPE_BOOL: st.booleans(),
        FieldDescriptor.TYPE_INT32: st.integers(-(2**31), 2**31 - 1),
        FieldDescriptor.TYPE_BYTES: st.binary(max_size=20).map(lambda content: msgspec.to_builtins(content)),
        FieldDescriptor.TYPE_STRING: texts,
    }
    return scalars[field.type]


def of_any_message() -> st.SearchStrategy[tuple[str, Any]]:
    def with_official(name: str) -> st.SearchStrategy[tuple[str, Any]]:
        kind = generated(name)
        return objects(kind.DESCRIPTOR).map(lambda value: (name, json_format.ParseDict(value, kind())))

    return st.sampled_from(sorted(MESSAGES)).flatmap(with_official)


@given(of_any_message())
def test_what_the_library_writes_is_read_as_it_reads_it(case: tuple[str, Any]) -> None:
    name, official = case

    value, _ = MESSAGES[name].decode(official.SerializeToString(), DEPTH)

    assert json_format.ParseDict(value, generated(name)()) == official


@given(of_any_message())
def test_what_is_written_is_what_the_library_reads(case: tuple[str, Any]) -> None:
    name, official = case

    payload = MESSAGES[name].write(json_format.MessageToDict(official))

    written = generated(name).FromString(payload)
    # Times are written with milliseconds.
    assert _json(written) == _json(generated(name).FromString(official.SerializeToString()))


def _json(message: Any) -> Any:
    return _in_seconds(json_format.MessageToDict(message))


_TIMES = ("timestamp", "statusTimestampAfter")


def _in_seconds(value: Any) -> Any:
    match value:
        case dict():
            return {name: _in_seconds(member[:19] if name in _TIMES else member) for name, member in value.items()}
        case list():
            return [_in_seconds(each) for each in value]
    return value


@st.composite
def damaged(draw: st.DrawFn) -> tuple[str, bytes]:
    """A payload of the message with bytes changed, cut, doubled or put in."""
    name, official = draw(of_any_message())
    payload = bytearray(official.SerializeToString())
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(payload)))
        end = draw(st.integers(at, min(len(payload), at + 8)))
        payload[at:end] = draw(st.binary(max_size=8) | st.just(bytes(payload[at:end]) * 2))
    return name, bytes(payload)


@given(damaged() | st.tuples(st.sampled_from(sorted(MESSAGES)), st.binary(max_size=64)))
def test_damaged_bytes_mean_the_same_to_both_or_are_refused_by_both(case: tuple[str, bytes]) -> None:
    name, payload = case
    try:
        official = json_format.MessageToDict(generated(name).FromString(payload))
    except DecodeError:
        with pytest.raises(ParseError):
            MESSAGES[name].decode(payload, DEPTH)
        return
    except (ValueError, json_format.SerializeToJsonError):
        return  # it is read, and cannot be JSON

    value, _ = MESSAGES[name].decode(payload, DEPTH)

    assert json_format.MessageToDict(json_format.ParseDict(value, generated(name)())) == official


# --- bounds of what is read


def sent(**members: Any) -> bytes:
    message = a2a_pb2.SendMessageRequest(message=a2a_pb2.Message(message_id="m", role=a2a_pb2.Role.ROLE_USER))
    part = message.message.parts.add()
    json_format.ParseDict(members or {"text": "Hello"}, part)
    payload: bytes = message.SerializeToString()
    return payload


def params(payload: bytes, depth: int = DEPTH) -> Any:
    return v1_0_proto.params(v1_0.METHODS["SendMessage"], payload, depth)


def test_a_request_is_the_value_of_the_model() -> None:
    method = v1_0.METHODS["SendMessage"]

    request = v1_0_proto.DIALECT.decode(method, params(sent(raw="aGk=", filename="f")))

    part = model.Part(raw="aGk=", filename="f")
    assert request == model.SendMessageRequest(
        message=model.Message(message_id="m", role=model.Role.USER, parts=(part,))
    )


def test_a_missing_field_is_named_as_in_json() -> None:
    method = v1_0.METHODS["SendMessage"]

    with pytest.raises(InvalidParams, match=r"message\.messageId: is required"):
        v1_0_proto.DIALECT.decode(method, params(b"\x12\x00"))


def test_nul_in_a_text_is_refused_by_name() -> None:
    with pytest.raises(InvalidParams, match=r"message\.parts\[0\]\.text: must not contain NUL"):
        params(sent(text="a\0b"))


def nested(levels: int) -> Any:
    value: Any = "x"
    for _ in range(levels):
        value = [value]
    return value


def test_data_is_as_deep_as_in_json() -> None:
    """A request, its message, the parts, a part, and the data."""
    assert params(sent(data=nested(20)), depth=24)["message"]["parts"][0]["data"] == nested(20)
    with pytest.raises(ParseError, match="nested deeper than 23 levels"):
        params(sent(data=nested(20)), depth=23)


def test_endless_nesting_is_refused() -> None:
    value = b""
    for _ in range(2000):
        value = b"\x32" + _delimited(b"\x0a" + _delimited(value))
    metadata = b"\x0a" + _delimited(b"\x0a\x01x\x12" + _delimited(value))

    with pytest.raises(ParseError, match="nested deeper than 100 levels"):
        params(b"\x22" + _delimited(metadata))


def _delimited(content: bytes) -> bytes:
    return _varint(len(content)) + content


def _varint(number: int) -> bytes:
    out = b""
    while number > 0x7F:
        out += bytes((number & 0x7F | 0x80,))
        number >>= 7
    return out + bytes((number,))


@pytest.mark.parametrize(
    ("payload", "what"),
    [
        pytest.param(b"\x12\x05\x0a", "it is truncated", id="length beyond the end"),
        pytest.param(b"\x12", "it is truncated", id="no length"),
        pytest.param(b"\x80", "it is truncated", id="half a tag"),
        pytest.param(b"\x80" * 11, "an integer is too long", id="endless integer"),
        pytest.param(b"\x00\x00", "a field has no valid number", id="field 0"),
        pytest.param(b"\x0f\x00", "a field has an unknown wire type", id="wire type 7"),
        pytest.param(b"\x0c", "a field has an unknown wire type", id="end of no group"),
        pytest.param(b"\x0b\x14", "a group ends that has not begun", id="another group's end"),
        pytest.param(b"\x0b" * 200, "it is nested deeper than 100 levels", id="deep groups"),
        pytest.param(b"\x0a\x01\xff", "a string is not UTF-8", id="not UTF-8"),
        pytest.param(b"\x0a\x03\xed\xa0\x80", "a string is not UTF-8", id="lone surrogate"),
        pytest.param(b"\x08\x00" * (VALUES + 1), f"it has more than {VALUES} fields", id="very many fields"),
        pytest.param(b"\x12\xff\xff\xff\xff\x0f", "a length is too large", id="huge length"),
    ],
)
def test_a_malformed_payload_is_refused_with_the_reason(payload: bytes, what: str) -> None:
    with pytest.raises(ParseError) as refused:
        params(payload)
    assert refused.value.message == f"Invalid protobuf payload: {what}"


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
def test_a_number_that_json_cannot_hold_is_refused(number: float) -> None:
    metadata = b"\x0a" + _delimited(b"\x0a\x01n\x12" + _delimited(b"\x11" + struct.pack("<d", number)))

    with pytest.raises(ParseError, match="not finite"):
        params(b"\x22" + _delimited(metadata))


def test_unknown_fields_and_groups_are_passed_over() -> None:
    unknown = b"\xfa\x3e\x03abc" + b"\xf8\x3e\x01" + b"\xf9\x3e12345678" + b"\xfd\x3e1234" + b"\xfb\x3e\x08\x01\xfc\x3e"

    assert params(unknown + sent() + unknown) == params(sent())


def test_a_whole_number_is_an_integer_where_a_double_holds_it_exactly() -> None:
    data = params(sent(data=[5, 5.5, 2**53, 2.0**60]))["message"]["parts"][0]["data"]

    assert [(type(number), number) for number in data] == [(int, 5), (float, 5.5), (int, 2**53), (float, 2.0**60)]


# --- events

EVENT = {
    "artifactUpdate": {
        "taskId": "t",
        "contextId": "c",
        "artifact": {"artifactId": "a", "parts": [{"text": "Héllo"}, {"data": {"n": [1, None, True, {"x": 0.5}]}}]},
        "append": True,
    }
}


def test_an_event_of_the_log_is_a_stream_response() -> None:
    written = a2a_pb2.StreamResponse.FromString(v1_0_proto.event(1, msgspec.json.encode(EVENT)))

    assert json_format.MessageToDict(written) == EVENT


LIKE_AN_EVENT = msgspec.json.encode(EVENT).decode()


def update(*parts: Any, **members: Any) -> dict[str, Any]:
    """An event that adds the parts."""
    artifact = {"artifactId": "a", **members.pop("artifact", {}), "parts": list(parts), **members.pop("behind", {})}
    return {"artifactUpdate": {"taskId": "t", "contextId": "c", "artifact": artifact, **members}}


@pytest.mark.parametrize(
    "event",
    [
        update({"text": "Hi"}, append=True),
        update({"text": ""}),
        update({"text": 'She said "hi" \\ \u2028 \U0001f600 \n'}, append=True, lastChunk=True),
        update({"text": "long " * 10_000}, append=True),
        update({"text": "Hi"}, append=True, metadata={"n": [{"x": [{"y": 1}]}]}),
        update({"text": "Hi"}, behind={"metadata": {"parts": [{"text": "no"}]}, "extensions": ["e"]}),
        update({"text": "Hi"}, artifact={"name": LIKE_AN_EVENT, "description": '"parts":[{"text":"no"}]}'}),
        update({"text": LIKE_AN_EVENT}, append=True),
        update({"text": "Hi", "metadata": {"m": 1}}, append=True),
        update({"text": "Hi", "mediaType": "text/markdown"}),
        update({"text": "one"}, {"text": "two"}),
        update({"text": "one"}, {"url": "https://example.com"}),
        update({"data": {"parts": [{"text": "no"}]}}),
        update({"data": 1}, behind={"metadata": {"parts": [{"text": "no"}]}}),
        update({"data": {"parts": [{"text": {"parts": [{"text": [{"x": 1}]}]}}]}}),
        update({"data": {"parts": [{"text": "no"}]}}, {"text": "Hi"}),
        update(),
        update({"text": "one"}, append=True, unknown=[{"x": 1}]),
        {"statusUpdate": {"taskId": "t", "contextId": "c", "metadata": update({"text": "no"})}},
        {"task": {"id": "t", "artifacts": [{"artifactId": "a", "parts": [{"text": "Hi"}]}]}},
    ],
    ids=lambda event: str(event)[:60],
)
def test_an_event_means_what_it_meant_in_the_log(event: dict[str, Any]) -> None:
    official = json_format.ParseDict(event, a2a_pb2.StreamResponse(), ignore_unknown_fields=True)

    written = [v1_0_proto.event(1, msgspec.json.encode(each)) for each in (event, event)]

    assert [a2a_pb2.StreamResponse.FromString(each) for each in written] == [official] * 2


PARTS = st.lists(
    st.fixed_dictionaries({"text": st.text()}, optional={"metadata": st.dictionaries(st.text(), st.text())})
    | st.fixed_dictionaries({"data": st.recursive(st.none() | st.text(), lambda each: st.lists(each))}),
    max_size=3,
)


@given(PARTS, st.dictionaries(st.text(), st.text(), max_size=2), st.booleans())
def test_any_update_means_what_it_meant_in_the_log(parts: Any, metadata: dict[str, str], append: bool) -> None:
    event = update(*parts, append=append, metadata=metadata)

    written = a2a_pb2.StreamResponse.FromString(v1_0_proto.event(1, msgspec.json.encode(event)))

    assert written == json_format.ParseDict(event, a2a_pb2.StreamResponse())


def test_an_event_with_text_that_cannot_be_read_is_no_text() -> None:
    broken = b'{"artifactUpdate":{"taskId":"t","artifact":{"artifactId":"a","parts":[{"text":}]}}}'

    with pytest.raises(msgspec.DecodeError):
        v1_0_proto.event(1, broken)


def test_an_event_is_translated_once_however_many_watch() -> None:
    payload = msgspec.json.encode(EVENT)

    assert v1_0_proto.event(1, payload) is v1_0_proto.event(1, payload)


def test_every_result_of_a_method_can_be_written() -> None:
    task = model.Task(id="t", context_id="c", status=model.TaskStatus(state=model.TaskState.WORKING))
    config = model.TaskPushNotificationConfig(url="https://example.com", task_id="t")
    results = [
        model.SendMessageResponse(task=task),
        task,
        model.ListTasksResponse(tasks=(task,), next_page_token="", page_size=50, total_size=1),
        config,
        model.ListTaskPushNotificationConfigsResponse(configs=(config,), next_page_token=""),
    ]

    for result in results:
        official = generated(type(result).__name__).FromString(v1_0_proto.encode(result))
        written = msgspec.json.decode(v1_0.encode(result))
        assert official == json_format.ParseDict(written, generated(type(result).__name__)())


LONG = (
    [1, 2.5, -3] * 3000,
    [*range(9000), "x", True],
    [{"a": [1]}, [], {}] * 3000,
    {f"key-{index}": index for index in range(9000)},
    [[1.5] * 9, [1] * 7, [True] * 9],
)


@pytest.mark.parametrize("data", LONG, ids=["numbers", "mixed", "objects", "members", "short"])
def test_long_data_are_what_the_library_reads(data: Any) -> None:
    found = struct_pb2.Value.FromString(VALUE.write(data))

    assert json_format.MessageToDict(found) == data


def test_numbers_are_written_in_little_more_memory_than_they_have_bytes() -> None:
    data = [1] * 500_000
    tracemalloc.start()
    size = len(VALUE.write(data))
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert size == 500_000 * 11 + 5
    assert most < 3 * size
