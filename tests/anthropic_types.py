"""Validates bodies against the request types of the vendor's own client."""

from collections.abc import Iterator, Mapping
from types import UnionType
from typing import Any, Literal, Required, Union, get_args, get_origin

from anthropic.types.beta.message_create_params import MessageCreateParamsStreaming
from typing_extensions import get_type_hints, is_typeddict

_HEADERS = frozenset({"betas", "user_profile_id", "workspace_id"})
"""The parameters of the client that are no fields of the body."""


_OLDER = frozenset({"temperature", "top_p", "top_k"})
"""Fields that the client offers no longer, and that older models and compatible services take."""


def violations(_schema: str, body: object) -> list[str]:
    """What is wrong with the body of a request for a message, whatever the name of the schema."""
    fields = {name: body[name] for name in body if name not in _OLDER} if isinstance(body, dict) else {}
    found = list(_wrong(fields, MessageCreateParamsStreaming, "body"))
    return found + [f"body.{name}: is a header" for name in _HEADERS & fields.keys()]


def _wrong(value: object, kind: Any, place: str) -> Iterator[str]:
    origin, arguments = get_origin(kind), get_args(kind)
    if is_typeddict(kind):
        yield from _wrong_fields(value, kind, place)
    elif origin is Required:
        yield from _wrong(value, arguments[0], place)
    elif origin is Literal:
        if value not in arguments:
            yield f"{place}: {value!r} is none of {arguments}"
    elif origin in (Union, UnionType):
        reasons = [list(_wrong(value, each, place)) for each in arguments]
        if all(reasons):
            # The reason of the alternative that fits best is the most useful one.
            _, reason = min((len(each), max(each, key=len)) for each in reasons)
            yield reason
    elif origin is not None and origin is not dict and arguments:
        yield from _wrong_elements(value, arguments[0], place)
    else:
        yield from _wrong_plain(value, origin or kind, place)


def _wrong_elements(value: object, kind: Any, place: str) -> Iterator[str]:
    if not isinstance(value, list):
        yield f"{place}: {value!r} is no list"
        return
    for index, each in enumerate(value):
        yield from _wrong(each, kind, f"{place}[{index}]")


def _wrong_plain(value: object, kind: Any, place: str) -> Iterator[str]:
    wanted: dict[Any, Any] = {float: (int, float), None: type(None), type(None): type(None)}
    known = kind in (str, int, bool, float, dict, None, type(None))
    if known and (not isinstance(value, wanted.get(kind, kind)) or (kind is int and isinstance(value, bool))):
        yield f"{place}: {value!r} is no {kind}"


def _wrong_fields(value: object, kind: Any, place: str) -> Iterator[str]:
    if not isinstance(value, Mapping):
        yield f"{place}: {value!r} is no object"
        return
    hints = get_type_hints(kind, include_extras=True)
    for name in kind.__required_keys__ - value.keys():
        yield f"{place}.{name}: is missing"
    for name, each in value.items():
        if name not in hints:
            yield f"{place}.{name}: is unknown"
        else:
            yield from _wrong(each, hints[name], f"{place}.{name}")
