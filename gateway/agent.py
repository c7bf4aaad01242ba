"""The public module for agents of `type: python`: the values that an agent function receives and yields. Law: the
module holds values only, and does no I/O.

A value of a wrong type raises TypeError when it is made. Wrong content raises ValueError in `decode_part` or
`decode_json`.
"""

import base64
import binascii
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from gateway.a2a.model import Json, Part
from gateway.a2a.nesting import DEEPEST, TOO_DEEP

__all__ = ["Artifact", "AuthRequired", "Content", "DirectMessage", "InputRequired", "Reject", "Status"]
__all__ += ["ToolCall", "ToolResult", "Turn", "TurnEnding", "decode_json", "decode_part", "decode_parts", "decode_text"]

Content = str | dict[str, Any] | list[str | dict[str, Any]]
"""A text, a part as A2A 1.0 JSON (`{"data": {...}}`), or a list of texts and parts."""

_DIGITS = 20
_SIZE = 8 * 1024 * 1024
_CONTENTS = ("text", "raw", "url", "data")
_TEXT_KEYS = {"filename": "filename", "mediaType": "media_type"}


@dataclass(kw_only=True, slots=True)
class Turn:
    """One message that the agent function answers.

    `message` is that message and `first_message` the message that began its task, both as A2A 1.0 JSON; they are the same
    one until the function has raised InputRequired or AuthRequired. `history` holds
    the earlier messages of the context, the oldest first, as `{"role": "ROLE_USER" | "ROLE_AGENT", "parts": [...]}`.
    `state` is a dict of JSON that belongs to the conversation; its content after a successful turn is passed to the
    next turn.
    """

    message: dict[str, Any]
    first_message: dict[str, Any]
    context_id: str = ""
    task_id: str = ""
    principal: str = ""
    history: list[dict[str, Any]] = field(default_factory=list)
    state: dict[str, Any] = field(default_factory=dict)
    asked_to_stop: Callable[[], bool] = field(default=lambda: False, repr=False)

    @property
    def text(self) -> str:
        """The text parts of the message, joined by newlines."""
        return "\n".join(part["text"] for part in self.message.get("parts", ()) if "text" in part)

    @property
    def cancelled(self) -> bool:
        """Whether the turn was cancelled. If the function is a coroutine, asyncio also cancels it."""
        return self.asked_to_stop()


def _expect(owner: object, name: str, value: object, kind: type | tuple[type, ...], wanted: str) -> None:
    if not isinstance(value, kind):
        raise TypeError(f"{type(owner).__name__}: {name} must be {wanted}, not {type(value).__name__}")


def _expect_content(owner: object, value: object) -> None:
    wanted = "text, a part (dict) or a list of both"
    _expect(owner, "its content", value, (str, dict, list, tuple), wanted)
    for entry in value if isinstance(value, list | tuple) else ():
        _expect(owner, "every entry of its content", entry, (str, dict), "text or a part (dict)")


@dataclass(frozen=True, slots=True)
class Artifact:
    """A result that is separate from the answer. With `append`, the parts are added to the artifact of the same id;
    `last_chunk` says that no more parts follow."""

    parts: list[str | dict[str, Any]]
    artifact_id: str | None = None
    name: str | None = None
    description: str | None = None
    metadata: dict[str, Any] | None = None
    append: bool = False
    last_chunk: bool = False

    def __post_init__(self) -> None:
        _expect(self, "parts", self.parts, (list, tuple), "a list")
        _expect_content(self, self.parts)
        for name, value in (("artifact_id", self.artifact_id), ("name", self.name), ("description", self.description)):
            _expect(self, name, value, (str, type(None)), "text")
        _expect(self, "metadata", self.metadata, (dict, type(None)), "a dict")
        _expect(self, "append", self.append, bool, "True or False")
        _expect(self, "last_chunk", self.last_chunk, bool, "True or False")
        if self.append and self.artifact_id is None:
            raise TypeError("Artifact: append needs the artifact_id of the artifact that it adds to")


@dataclass(frozen=True, slots=True)
class Status:
    """A line about the agent's current work, which is not part of the answer."""

    text: str

    def __post_init__(self) -> None:
        _expect(self, "its text", self.text, str, "text")


@dataclass(frozen=True, slots=True)
class ToolCall:
    """The agent calls one of its own tools. `call_id` is unique in the turn."""

    call_id: str
    name: str
    arguments: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _expect(self, "call_id", self.call_id, str, "text")
        _expect(self, "name", self.name, str, "text")
        _expect(self, "arguments", self.arguments, dict, "a dict")


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The result of the call with this id. `output` is any JSON. `error` says that the tool failed; `output` is the
    reason."""

    call_id: str
    output: Any
    error: bool = False

    def __post_init__(self) -> None:
        _expect(self, "call_id", self.call_id, str, "text")
        _expect(self, "error", self.error, bool, "True or False")


@dataclass(frozen=True, slots=True)
class DirectMessage:
    """The whole answer as a message without a task. The agent needs the setting `direct_replies: true`."""

    content: Content

    def __post_init__(self) -> None:
        _expect_content(self, self.content)


class TurnEnding(Exception):
    """Base of the exceptions that end a turn without an answer."""

    def __init__(self, content: Content) -> None:
        _expect_content(self, content)
        super().__init__(content)
        self.content = content


class InputRequired(TurnEnding):
    """The agent needs more input. The function is called again with the next message of the task."""


class AuthRequired(TurnEnding):
    """The user has to give an authorisation at a third party first. The function is called again with the next message
    of the task."""


class Reject(TurnEnding):
    """The agent refuses the task."""


def decode_text(value: str, where: str = "the text") -> str:
    """Returns the text. Raises: ValueError when it is too long, holds a NUL, or cannot be encoded as UTF-8."""
    if len(value) > _SIZE:
        raise ValueError(f"{where} has {len(value)} characters, more than {_SIZE}")
    if "\0" in value:
        raise ValueError(f"{where} holds a NUL at position {value.index(chr(0))}")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise ValueError(f"{where} holds half of a surrogate pair at position {error.start}") from None
    return str(value)


def decode_json(value: object, where: str) -> Json:
    """A copy of a JSON value, with tuples as lists. Raises: ValueError, which names the first place that is not valid
    JSON."""
    copy = _copy(value, where, 0)
    size = len(msgspec.json.encode(copy))
    if size > _SIZE:
        raise ValueError(f"{where} is {size} bytes of JSON, more than {_SIZE}")
    return copy


def _copy(value: object, where: str, depth: int) -> Json:
    if depth > DEEPEST:
        raise ValueError(f"{where.partition('[')[0]} is {TOO_DEEP}")
    match value:
        case None | bool():
            return value
        case str():
            return decode_text(value, where)
        case int():
            if abs(value) >= 10**_DIGITS:
                raise ValueError(f"{where} is a whole number of more than {_DIGITS} digits")
            return int(value)
        case float():
            if not math.isfinite(value):
                raise ValueError(f"{where} is {value}, which JSON does not have")
            return float(value)
        case list() | tuple():
            return [_copy(entry, f"{where}[{index}]", depth + 1) for index, entry in enumerate(value)]
        case dict():
            return {_key(key, where): _copy(entry, f"{where}[{key!r:.40}]", depth + 1) for key, entry in value.items()}
        case _:
            raise ValueError(f"{where} is of type {type(value).__name__}, which JSON does not have")


def _key(key: object, where: str) -> str:
    if not isinstance(key, str):
        raise ValueError(f"{where} has the key {key!r:.40}: JSON has only text for keys")
    return decode_text(key, f"a key of {where}")


def decode_parts(content: Content, where: str = "the content") -> tuple[Part, ...]:
    """The parts of a content. Raises: ValueError when a part is wrong, or when there is no part."""
    match content:
        case list() | tuple():
            parts = tuple(decode_part(entry, f"{where}[{index}]") for index, entry in enumerate(content))
        case _:
            parts = (decode_part(content, where),)
    if not parts:
        raise ValueError(f"{where} has no part")
    return parts


def decode_part(value: str | dict[str, Any], where: str = "the part") -> Part:
    """The part of a text, or of a part as A2A 1.0 JSON. Raises: ValueError, which names the mistake."""
    if isinstance(value, str):
        return Part(text=decode_text(value, where))
    given = [key for key in _CONTENTS if key in value]
    if len(given) != 1:
        found = " and ".join(given) or f"none of them but {sorted(map(str, value))!r:.80}"
        raise ValueError(f"{where} must have exactly one of text, raw, url and data; it has {found}")
    fields: dict[str, Any] = {}
    for key, entry in value.items():
        match key:
            case "data":
                fields["data"] = decode_json(entry, f"{where}.data")
            case "metadata":
                if not isinstance(entry, dict):
                    raise ValueError(f"{where}.metadata must be a dict, not {type(entry).__name__}")
                fields["metadata"] = decode_json(entry, f"{where}.metadata")
            case "text" | "raw" | "url" | "filename" | "mediaType":
                fields[_TEXT_KEYS.get(key, key)] = _string(entry, f"{where}.{key}")
            case _:
                allowed = ", ".join((*_CONTENTS, "metadata", *_TEXT_KEYS))
                raise ValueError(f"{where} has the unknown key {key!r:.40}; known are {allowed}")
    try:
        base64.b64decode(fields.get("raw", ""), validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"{where}.raw is not base64: {error}") from None
    return Part(**{"data": msgspec.UNSET, **fields})


def _string(value: object, where: str) -> str:
    if isinstance(value, bytes | bytearray):
        raise ValueError(f"{where} must be text, not bytes: base64.b64encode(...).decode()")
    if not isinstance(value, str):
        raise ValueError(f"{where} must be text, not {type(value).__name__}")
    return decode_text(value, where)
