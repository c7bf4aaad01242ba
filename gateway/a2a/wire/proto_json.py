"""Reads ProtoJSON objects as the frozen values of the model. Law: every error names its field; `data` and `metadata`
are not changed.

The readers accept all that ProtoJSON requires: names in camelCase and proto names, null and '' for an absent field,
enums by name or number, integers as text or as 5.0, base64 in both alphabets, and unknown fields, which they ignore.
"""

import binascii
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from enum import StrEnum
from types import UnionType
from typing import Any, Generic, TypeVar, Union, get_args, get_origin

import msgspec
from msgspec import UnsetType

from gateway.a2a.draft_1_1 import ConditionalConfiguration, LongPollRequest
from gateway.a2a.errors import InvalidParams, echo, invalid
from gateway.a2a.model import Json as JsonValue
from gateway.a2a.model import ListTasksRequest, Part, Role, TaskState, Wire
from gateway.foundation import clock

W = TypeVar("W", bound=Wire)
Reader = Callable[[JsonValue], Any]

_UNSPECIFIED: Mapping[type[StrEnum], str] = {TaskState: "TASK_STATE_UNSPECIFIED", Role: "ROLE_UNSPECIFIED"}
"""The enums of the proto. Others have no numbers."""

_CONTENTS = ("text", "raw", "url", "data")
_MAY_BE_EMPTY = frozenset({"text", "bytes", "file_with_bytes"})
_DIGITS = re.compile(r"-?[0-9]{1,10}")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)", re.ASCII)
_TO_STANDARD = str.maketrans("-_", "+/")


class Misfit(Exception):
    """A value does not fit its field. Every reader that passes the error on puts its own field in front of `path`."""

    def __init__(self, description: str, path: str = "") -> None:
        super().__init__(description)
        self.description = description
        self.path = path

    def named(self) -> InvalidParams:
        return invalid(self.path.lstrip("."), self.description)


_KINDS = {type(None): "null", bool: "a boolean", int: "a number", float: "a number", str: "a string", list: "an array"}


def _kind(value: JsonValue) -> str:
    return _KINDS.get(type(value), "an object")


def _only(kind: type, wanted: str) -> Reader:
    def read(value: JsonValue) -> Any:
        if isinstance(value, kind):
            return value
        raise Misfit(f"must be {wanted}, not {_kind(value)}")

    return read


_string, _boolean, _mapping = _only(str, "a string"), _only(bool, "true or false"), _only(dict, "an object")


def _integer_of(bits: int, digits: re.Pattern[str]) -> Reader:
    allowed = range(-(2 ** (bits - 1)), 2 ** (bits - 1))

    def read(value: JsonValue) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            textual = isinstance(value, str) and digits.fullmatch(value)
            if not (textual or (isinstance(value, float) and value.is_integer())):
                raise Misfit(
                    f"must be an integer, not {echo(value) if isinstance(value, float | str) else _kind(value)}"
                )
            value = int(value)
        if value not in allowed:
            raise Misfit(f"must be an integer of {bits} bits")
        return int(value)

    return read


_int32, _int64 = _integer_of(32, _DIGITS), _integer_of(64, re.compile(r"-?[0-9]{1,19}"))


def base64(value: JsonValue) -> str:
    """The value as standard base64 with padding. Raises: Misfit."""
    text: str = _string(value).rstrip("=").translate(_TO_STANDARD)
    if len(text) % 4 != 1:
        padded = text + "=" * (-len(text) % 4)
        with suppress(ValueError):
            binascii.a2b_base64(padded, strict_mode=True)
            return padded
    raise Misfit("must be base64")


def _timestamp(value: JsonValue) -> str:
    text: str = _string(value)
    if _TIME.fullmatch(text):
        with suppress(ValueError):
            clock.milliseconds(text)
            return text
    raise Misfit(f"must be a time as 2025-10-28T10:30:00.000Z, not {echo(text)}")


def _enumeration(kind: type[StrEnum]) -> Reader:
    by_name: dict[JsonValue, StrEnum | None] = {member.value: member for member in kind}
    by_number: dict[JsonValue, StrEnum | None] = {}
    names = ", ".join(member.value for member in kind)
    if kind in _UNSPECIFIED:
        by_number = dict(enumerate(kind, start=1))
        by_name[_UNSPECIFIED[kind]] = by_number[0] = None

    def read(value: JsonValue) -> StrEnum | None:
        if not isinstance(value, str | int) or isinstance(value, bool):
            raise Misfit(f"must be one of {names}, not {_kind(value)}")
        table = by_name if isinstance(value, str) else by_number
        if value not in table:
            raise Misfit(f"must be one of {names}, not {echo(value)}")
        return table[value]

    return read


def _array(item: Reader) -> Reader:
    def read(value: JsonValue) -> tuple[Any, ...]:
        if not isinstance(value, list):
            raise Misfit(f"must be an array, not {_kind(value)}")
        items = []
        for index, element in enumerate(value):
            try:
                items.append(item(element))
            except Misfit as misfit:
                misfit.path = f"[{index}]{misfit.path}"
                raise
        return tuple(items)

    return read


class Field(msgspec.Struct, frozen=True):
    """One field of the model. `read_text` reads a query parameter.

    `keeps_null` says that null is a value of the field. `drops_empty` says that '' counts as absent.
    """

    name: str
    json_name: str
    read: Reader
    read_text: Reader
    required: bool
    keeps_null: bool
    drops_empty: bool


class ObjectReader(Generic[W]):
    """Reads a JSON object as a value of one type of the model."""

    def __init__(self, kind: type[W]) -> None:
        self._kind = kind
        self._fields: dict[str, Field] = {}
        for info in msgspec.structs.fields(kind):
            field = _field(kind, info)
            self._fields[field.name] = self._fields[field.json_name] = field
        self._required = tuple({f.name: f for f in self._fields.values() if f.required}.values())

    def __call__(self, value: JsonValue) -> W:
        if not isinstance(value, dict):
            raise Misfit(f"must be an object, not {_kind(value)}")
        return self._complete(self._read(value.items(), {}))

    def read_query(self, pairs: Iterable[tuple[str, str]], fixed: Mapping[str, str]) -> W:
        """Reads the parameters of a query, together with the fields that the path gives (`fixed`, by proto name).

        Raises: Misfit when a value does not fit, or when a scalar is given twice.
        """
        same = {(key, fixed[field.name]) for key, field in self._fields.items() if field.name in fixed}
        others = (pair for pair in pairs if pair not in same)
        return self._complete(self._read(others, dict(fixed), in_text=True))

    def _read(
        self, members: Iterable[tuple[str, JsonValue]], found: dict[str, Any], *, in_text: bool = False
    ) -> dict[str, Any]:
        field = None
        try:
            for key, item in members:
                field = self._fields.get(key)
                if field is None or (item is None and not field.keeps_null) or (item == "" and field.drops_empty):
                    continue
                if field.name in found:
                    raise Misfit("is given twice")
                value = (field.read_text if in_text else field.read)(item)
                if value is not None or field.keeps_null:
                    found[field.name] = value
        except Misfit as misfit:
            misfit.path = f".{field.json_name}{misfit.path}" if field else misfit.path
            raise
        return found

    def _complete(self, found: dict[str, Any]) -> W:
        for field in self._required:
            if field.name not in found:
                raise Misfit("is required and must not be empty", f".{field.json_name}")
        if self._kind is Part:
            _one_content(found)
        return self._kind(**found)


def _one_content(part: dict[str, Any]) -> None:
    given = [name for name in _CONTENTS if name in part]
    # Clients that write every absent field send a null `data` beside the real content.
    if len(given) > 1 and part.get("data", ...) is None:
        given.remove("data")
        del part["data"]
    if not given:
        raise Misfit("has no content: one of text, raw, url and data is required")
    if len(given) > 1:
        raise Misfit(f"has several contents, {' and '.join(given)}: exactly one is allowed")


def _field(owner: type[Wire], info: msgspec.structs.FieldInfo) -> Field:
    kind = _without_absence(info.type)
    read = _SPECIAL.get((owner, info.name)) or _reader(kind)
    read_text = read
    if kind is bool:
        read_text = _boolean_text
    elif isinstance(kind, type) and issubclass(kind, StrEnum):
        read_text = _number_first(read)
    is_content = info.name in _MAY_BE_EMPTY or (owner is Part and info.name in _CONTENTS)
    drops_empty = read is _string and not is_content
    return Field(info.name, info.encode_name, read, read_text, info.required, kind is Any, drops_empty)


_SPECIAL: Mapping[tuple[type[Wire], str], Reader] = {
    (Part, "raw"): base64,
    (ListTasksRequest, "status_timestamp_after"): _timestamp,
    (LongPollRequest, "current_generation"): _int64,
    (ConditionalConfiguration, "if_generation_match"): _int64,
}


def _without_absence(kind: Any) -> Any:
    if get_origin(kind) not in (Union, UnionType):
        return kind
    present = [option for option in get_args(kind) if option not in (type(None), UnsetType)]
    return present[0] if len(present) == 1 else Any


def _reader(kind: Any) -> Reader:
    simple: dict[Any, Reader] = {str: _string, bool: _boolean, int: _int32, Any: lambda value: value}
    if kind in simple:
        return simple[kind]
    if get_origin(kind) is tuple:
        return _array(_reader(get_args(kind)[0]))
    if get_origin(kind) is dict:
        return _mapping
    return _enumeration(kind) if issubclass(kind, StrEnum) else ObjectReader(kind)


def _boolean_text(text: str) -> bool:
    if text in ("true", "false"):
        return text == "true"
    raise Misfit(f"must be true or false, not {echo(text)}")


def _number_first(read: Reader) -> Reader:
    return lambda text: read(int(text) if _DIGITS.fullmatch(text) else text)
