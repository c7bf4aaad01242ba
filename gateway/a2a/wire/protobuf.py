"""Protobuf as JSON values and back, by tables of field numbers. Law: pure; reads what protobuf's own libraries read, and
refuses what they refuse.

A message is its ProtoJSON object: names in camelCase, enums by name, bytes as base64, times as text. Sources: the encoding
of Protocol Buffers (protobuf.dev/programming-guides/encoding) and ProtoJSON. No generated modules: `docs/adr/0028`.
"""

import binascii
import math
import struct
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import lru_cache
from itertools import islice
from typing import Any, NamedTuple, NoReturn, Protocol, TypeVar

import msgspec

from gateway.a2a.errors import ParseError
from gateway.a2a.model import Json
from gateway.foundation import clock

VALUES = 250_000
"""The most fields of one message, its inner messages included. Reading so many takes a third of a second."""

_VARINT, _FIXED64, _LENGTH, _GROUP, _GROUP_END, _FIXED32 = range(6)
_FIXED = {_FIXED64: 8, _FIXED32: 4}
_UINT32, _UINT64 = 2**32 - 1, 2**64 - 1
_LARGEST_LENGTH = 2**31 - 1
_EXACT = 2**53
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001  # in UTC, as all of protobuf
_NANOS = range(10**9)
_double = struct.Struct("<d")
_ABSENT = object()
T = TypeVar("T")
_DEFAULTS = ("", 0, False)

Raw = Any
"""The content of a field on the wire: the integer of a varint, the bytes (a memoryview) of anything else."""


def _malformed(what: str) -> NoReturn:
    raise ParseError(f"Invalid protobuf payload: {what}")


class Reading(msgspec.Struct):
    """What is left of the bounds of one payload, and whether NUL was met in one of its texts."""

    depth: int
    values: int = VALUES
    nul: bool = False

    def count(self) -> None:
        """One more field. Raises: ParseError."""
        self.values -= 1
        if self.values < 0:
            _malformed(f"it has more than {VALUES} fields")


class Kind(Protocol):
    """The type of a field. `wire` is its wire type, `type` its number in `FieldDescriptorProto.Type`."""

    @property
    def wire(self) -> int: ...

    @property
    def type(self) -> int: ...

    def read(self, raw: Raw, depth: int, reading: Reading, before: Json) -> Json:
        """`depth` is the most arrays and objects, each in the other, of the value. `before` is the value of an earlier
        occurrence, which a message continues, or `_ABSENT`.

        Raises: ParseError.
        """
        ...

    def write(self, value: Json) -> bytes:
        """The value without its tag, and without its length where its wire type has one."""
        ...


# --- the wire


def _varint(data: memoryview, at: int, longest: int = 10) -> tuple[int, int]:
    """The integer, of which 64 bits count, and the position after it."""
    if at < len(data) and data[at] < 0x80:
        return data[at], at + 1
    result = shift = 0
    for position in range(at, min(at + longest, len(data))):
        byte = data[position]
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result & _UINT64, position + 1
        shift += 7
    if len(data) - at < longest:
        _malformed("it is truncated")
    _malformed("an integer is too long")


def _tag(data: memoryview, at: int) -> tuple[int, int, int]:
    """Field number, wire type, and the position after them."""
    tag, at = _varint(data, at, 5)
    if tag > _UINT32 or tag < 8:
        _malformed("a field has no valid number")
    return tag >> 3, tag & 7, at


def _fields(data: memoryview, reading: Reading) -> Iterator[tuple[int, int, Raw]]:
    """Number, wire type and content of each field, without groups, which no message here has."""
    at, end = 0, len(data)
    while at < end:
        number, wire, at = _tag(data, at)
        reading.count()
        if wire == _VARINT:
            value, at = _varint(data, at)
            yield number, wire, value
        elif wire == _GROUP:
            at = _after_group(data, at, number, reading)
        else:
            start, at = _content(data, at, wire)
            yield number, wire, data[start:at]


def _content(data: memoryview, at: int, wire: int) -> tuple[int, int]:
    """Beginning and end of the content of a field that is not an integer."""
    if wire == _LENGTH:
        size, at = _varint(data, at, 5)
        if size > _LARGEST_LENGTH:
            _malformed("a length is too large")
    elif wire in _FIXED:
        size = _FIXED[wire]
    else:
        _malformed("a field has an unknown wire type")
    if at + size > len(data):
        _malformed("it is truncated")
    return at, at + size


def _after_group(data: memoryview, at: int, number: int, reading: Reading) -> int:
    open_groups = [number]
    while open_groups:
        if at >= len(data):
            _malformed("it is truncated")
        number, wire, at = _tag(data, at)
        reading.count()
        if wire == _GROUP:
            open_groups.append(number)
            if len(open_groups) > reading.depth:
                _malformed(f"it is nested deeper than {reading.depth} levels")
        elif wire == _GROUP_END:
            if open_groups.pop() != number:
                _malformed("a group ends that has not begun")
        elif wire == _VARINT:
            _, at = _varint(data, at)
        else:
            _, at = _content(data, at, wire)
    return at


@lru_cache(maxsize=2**12)
def varint(number: int) -> bytes:
    """An integer as it is written."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _delimited(content: bytes) -> bytes:
    return varint(len(content)) + content


# --- scalars


class _Text:
    wire, type = _LENGTH, 9

    def read(self, raw: Raw, depth: int, reading: Reading, before: Json) -> str:
        try:
            text = str(raw, "utf-8")
        except UnicodeDecodeError:
            _malformed("a string is not UTF-8")
        if "\0" in text:
            reading.nul = True
        return text

    def write(self, value: Json) -> bytes:
        content: bytes = value.encode()
        return content


class _Base64:
    """Bytes, as base64 in JSON."""

    wire, type = _LENGTH, 12

    def read(self, raw: Raw, depth: int, reading: Reading, before: Json) -> str:
        return binascii.b2a_base64(raw, newline=False).decode()

    def write(self, value: Json) -> bytes:
        return binascii.a2b_base64(value)


class _Octets:
    """Bytes, as they are."""

    wire, type = _LENGTH, 12

    def read(self, raw: Raw, depth: int, reading: Reading, before: Json) -> bytes:
        return bytes(raw)

    def write(self, value: Json) -> bytes:
        content: bytes = value
        return content


class _Boolean:
    wire, type = _VARINT, 8

    def read(self, raw: Raw, depth: int, reading: Reading, before: Json) -> bool:
        return bool(raw)

    def write(self, value: Json) -> bytes:
        return b"\1" if value else b"\0"


class _Integer(msgspec.Struct, frozen=True):
    bits: int
    type: int
    wire: int = _VARINT

    def read(self, raw: Raw, depth: int, reading: Reading, before: Json) -> int:
        half = 1 << self.bits - 1
        number: int = (raw + half & 2 * half - 1) - half
        return number

    def write(self, value: Json) -> bytes:
        return varint(value & _UINT64)


class _Double:
    """A number of JSON. A whole one that is exact is an integer."""

    wire, type = _FIXED64, 1

    def read(self, raw: Raw, depth: int, reading: Reading, before: Json) -> int | float:
        number: float = _double.unpack(raw)[0]
        if not math.isfinite(number):
            _malformed("a number is not finite, which JSON cannot hold")
        return int(number) if number.is_integer() and abs(number) <= _EXACT else number

    def write(self, value: Json) -> bytes:
        return _double.pack(value)


TEXT, BASE64, OCTETS, BOOLEAN, DOUBLE = _Text(), _Base64(), _Octets(), _Boolean(), _Double()
INT32, INT64 = _Integer(32, 5), _Integer(64, 3)


class Enumeration:
    """Names by number, from 0 on. A number without a name stays a number."""

    wire, type = _VARINT, 14

    def __init__(self, name: str, *names: str) -> None:
        self.name = name
        self.names = names
        self._numbers = {each: varint(number) for number, each in enumerate(names)}

    def read(self, raw: Raw, depth: int, reading: Reading, before: Json) -> str | int:
        number = INT32.read(raw, depth, reading, before)
        return self.names[number] if 0 <= number < len(self.names) else number

    def write(self, value: Json) -> bytes:
        return self._numbers[value]


# --- messages


@dataclass(frozen=True, slots=True, eq=False)
class Field:
    """One field of a message. `explicit`: it tells absence from the default (`optional`). `choice` names the oneof that it
    belongs to. `form`: it comes once, many times, or as the entries of a map with text as keys."""

    number: int
    name: str
    kind: Kind
    explicit: bool = False
    choice: str | None = None
    form: str = "one"
    json_name: str = field(init=False)
    tag: bytes = field(init=False)

    def __post_init__(self) -> None:
        first, *words = self.name.split("_")
        object.__setattr__(self, "json_name", first + "".join(word.capitalize() for word in words))
        wire = self.kind.wire if self.form == "one" else _LENGTH
        object.__setattr__(self, "tag", varint(self.number << 3 | wire))

    @property
    def wire(self) -> int:
        return self.kind.wire if self.form != "map" else _LENGTH

    @property
    def written_when_default(self) -> bool:
        return self.explicit or self.choice is not None or self.kind.type == _MESSAGE


_MESSAGE = 11


class Message:
    """A message as the JSON object of its fields. `name` is its full name."""

    wire, type = _LENGTH, _MESSAGE

    def __init__(self, name: str, *fields: Field) -> None:
        self.name = name
        self.fields = fields
        self._by_number = {each.number: each for each in fields}
        self._rivals = {
            each.number: [other.json_name for other in fields if other.choice == each.choice and other is not each]
            for each in fields
            if each.choice is not None
        }
        self._writers = {each.json_name: _writer(each) for each in fields}

    def decode(self, payload: bytes, depth: int) -> tuple[dict[str, Json], bool]:
        """The object, nested at most `depth` deep, and whether a text in it has NUL. Raises: ParseError."""
        reading = Reading(depth)
        return self.read(memoryview(payload), depth, reading, _ABSENT), reading.nul

    def write(self, value: Json) -> bytes:
        """The message; members without a field are left out."""
        out: list[bytes] = []
        for name, member in value.items():
            writer = self._writers.get(name)
            if writer is not None:
                writer(member, out)
        return b"".join(out)

    def write_around(self, value: Mapping[str, Json], name: str) -> tuple[bytes, bytes]:
        """What stands in the message in front of a member, and behind it."""
        names = list(value)
        at = names.index(name)
        begin, end = names[:at], names[at + 1 :]
        return self.write({each: value[each] for each in begin}), self.write({each: value[each] for each in end})

    def tag(self, name: str) -> bytes:
        """What begins a member of this name."""
        return next(each.tag for each in self.fields if each.json_name == name)

    def read(self, raw: Raw, depth: int, reading: Reading, before: Json) -> dict[str, Json]:
        found: dict[str, Json] = {} if before is _ABSENT else before
        inner = _below(depth, reading)
        for number, wire, content in _fields(raw, reading):
            member = self._by_number.get(number)
            # By the rules of protobuf, a known number with another wire type is an unknown field.
            if member is None or wire != member.wire:
                continue
            name = member.json_name
            if member.form == "map":
                entry = _Entry(member.kind).read(content, _below(inner, reading), reading, _ABSENT)
                found.setdefault(name, {}).update((entry,))
            elif member.form == "many":
                items = found.setdefault(name, [])
                items.append(member.kind.read(content, _below(inner, reading), reading, _ABSENT))
            else:
                for rival in self._rivals.get(number, ()):
                    found.pop(rival, None)
                found[name] = member.kind.read(content, inner, reading, found.get(name, _ABSENT))
        return found


class Procedure(NamedTuple):
    """A method of a service: its messages, and who sends many of them, the server (`streaming`) or both (`talking`)."""

    request: Message
    response: Message
    streaming: bool = False
    talking: bool = False


def _below(depth: int, reading: Reading) -> int:
    if depth <= 0:
        _malformed(f"it is nested deeper than {reading.depth} levels")
    return depth - 1


def _writer(member: Field) -> Callable[[Json, list[bytes]], None]:
    tag, write = member.tag, member.kind.write

    def delimited(value: Json, out: list[bytes]) -> None:
        content = write(value)
        out += (tag, varint(len(content)), content)

    def undelimited(value: Json, out: list[bytes]) -> None:
        out += (tag, write(value))

    one = delimited if member.kind.wire == _LENGTH else undelimited

    def unless_default(value: Json, out: list[bytes]) -> None:
        if value not in _DEFAULTS:
            one(value, out)

    def many(values: Json, out: list[bytes]) -> None:
        for value in values:
            one(value, out)

    # The value of an entry is field 2 of a message, and is written whatever it is.
    write_value = _writer(Field(2, "value", member.kind, explicit=True)) if member.form == "map" else one

    def entries(values: Json, out: list[bytes]) -> None:
        for key, value in values.items():
            entry = [b"\x0a", _delimited(key.encode())]
            write_value(value, entry)
            out += (tag, _delimited(b"".join(entry)))

    if member.form != "one":
        return many if member.form == "many" else entries
    return one if member.written_when_default else unless_default


class _Entry(msgspec.Struct, frozen=True):
    """An entry of a map with text as keys, as the pair of both."""

    kind: Kind

    def read(self, raw: Raw, depth: int, reading: Reading, before: Json) -> tuple[str, Json]:
        key, value = "", _ABSENT
        for number, wire, content in _fields(raw, reading):
            if number == 1 and wire == _LENGTH:
                key = TEXT.read(content, depth, reading, _ABSENT)
            elif number == 2 and wire == self.kind.wire:
                value = self.kind.read(content, depth, reading, value)
        if value is _ABSENT:
            value = self.kind.read(memoryview(b""), depth, reading, _ABSENT)
        return key, value


# --- google.protobuf


class _Value:
    """Any JSON."""

    wire, type, name = _LENGTH, _MESSAGE, "google.protobuf.Value"

    def read(self, raw: Raw, depth: int, reading: Reading, before: Json) -> Json:
        value: Json = before if isinstance(before, dict | list) else None
        for number, wire, content in _fields(raw, reading):
            match number, wire:
                case 1, 0:
                    value = None
                case 2, 1:
                    value = DOUBLE.read(content, depth, reading, _ABSENT)
                case 3, 2:
                    value = TEXT.read(content, depth, reading, _ABSENT)
                case 4, 0:
                    value = bool(content)
                case 5, 2:
                    value = STRUCT.read(content, depth, reading, value if isinstance(value, dict) else _ABSENT)
                case 6, 2:
                    value = self._list(content, depth, reading, value if isinstance(value, list) else [])
        return value

    def _list(self, raw: Raw, depth: int, reading: Reading, items: list[Json]) -> list[Json]:
        inner = _below(depth, reading)
        for number, wire, content in _fields(raw, reading):
            if number == 1 and wire == _LENGTH:
                items.append(self.read(content, inner, reading, _ABSENT))
        return items

    def write(self, value: Json) -> bytes:
        kind = type(value)
        if kind is str:
            return b"\x1a" + _delimited(value.encode())
        if kind is bool:
            return b"\x20\1" if value else b"\x20\0"
        if not value and (kind is dict or kind is list):
            return b"\x2a\0" if kind is dict else b"\x32\0"
        if kind is dict:
            members = STRUCT.write(value)
            return b"\x2a%b%b" % (varint(len(members)), members)
        if kind is list or kind is tuple:
            items = _in_blocks(value, self._items)
            return b"".join((b"\x32", varint(len(items)), items))
        return b"\x08\0" if value is None else b"\x11" + DOUBLE.write(value)

    def _items(self, values: Collection[Json]) -> bytes | bytearray:
        """Of an array."""
        if len(values) >= _MANY and _NUMBERS.issuperset(map(type, values)):
            return _numbers(values)
        return b"".join([b"\x0a" + _delimited(self.write(each)) for each in values])


class _Struct:
    """An object of any JSON."""

    wire, type, name = _LENGTH, _MESSAGE, "google.protobuf.Struct"

    def read(self, raw: Raw, depth: int, reading: Reading, before: Json) -> dict[str, Json]:
        members: dict[str, Json] = {} if before is _ABSENT else before
        inner = _below(depth, reading)
        for number, wire, content in _fields(raw, reading):
            if number == 1 and wire == _LENGTH:
                key, value = _MEMBER.read(content, inner, reading, _ABSENT)
                members[key] = value
        return members

    def write(self, value: Json) -> bytes:
        return bytes(_in_blocks(value.items(), self._members))

    def _members(self, members: Iterable[tuple[str, Json]]) -> bytes:
        out: list[bytes] = []
        for key, member in members:
            entry = b"\x0a" + _delimited(key.encode()) + b"\x12" + _delimited(VALUE.write(member))
            out += (b"\x0a", _delimited(entry))
        return b"".join(out)


_BLOCK = 2**12
"""Items of an array, or members of an object, that are bytes of their own at once. Each takes 50 bytes more than it has."""

_MANY = 8
"""Numbers that are written quicker together than one by one."""

_NUMBERS = frozenset({int, float})

_ITEM_OF_NUMBER = b"\x0a\x09\x11"
"""What stands in front of each number of an array: of the item, its size, of the number."""


def _in_blocks(items: Collection[T], write: Callable[[Collection[T]], bytes | bytearray]) -> bytes | bytearray:
    if len(items) <= _BLOCK:
        return write(items)
    out = bytearray()
    rest = iter(items)
    while block := tuple(islice(rest, _BLOCK)):
        out += write(block)
    return out


def _numbers(values: Collection[Json]) -> bytearray:
    """The items of an array of numbers."""
    content = struct.pack(f"<{len(values)}d", *values)
    head, size = len(_ITEM_OF_NUMBER), len(_ITEM_OF_NUMBER) + _double.size
    out = bytearray(len(values) * size)
    for at, byte in enumerate(_ITEM_OF_NUMBER):
        out[at::size] = bytes((byte,)) * len(values)
    for at in range(_double.size):
        out[head + at :: size] = content[at :: _double.size]
    return out


class _Timestamp:
    """A moment, as text with `Z`."""

    wire, type, name = _LENGTH, _MESSAGE, "google.protobuf.Timestamp"

    def __init__(self) -> None:
        self._parts = Message(self.name, Field(1, "seconds", INT64), Field(2, "nanos", INT32))

    def read(self, raw: Raw, depth: int, reading: Reading, before: Json) -> str:
        parts = self._parts.read(raw, 1, reading, _ABSENT)
        seconds, nanos = parts.get("seconds", 0), parts.get("nanos", 0)
        try:
            moment = _EPOCH + timedelta(seconds=seconds)
        except OverflowError:
            _malformed("a Timestamp is not in the years 1 to 9999")
        if nanos not in _NANOS:
            _malformed("the nanos of a Timestamp are not from 0 to 999999999")
        return f"{moment.isoformat()}.{nanos:09d}Z"

    def write(self, value: Json) -> bytes:
        seconds, milliseconds = divmod(clock.milliseconds(value), 1000)
        return self._parts.write({"seconds": seconds, "nanos": milliseconds * 1_000_000})


VALUE, STRUCT, TIMESTAMP = _Value(), _Struct(), _Timestamp()
EMPTY = Message("google.protobuf.Empty")
_MEMBER = _Entry(VALUE)
