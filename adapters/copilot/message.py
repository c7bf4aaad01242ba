"""The items of a request -> one activity, with the files that go along. Law: a bot gets one message for each service call,
whatever it has to be told.

A bot that has lost the conversation is told it again as the beginning of the message.
"""

import base64
import binascii
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile

import msgspec
from msgspec import UNSET

from gateway.a2a.model import Json, Part
from gateway.ports import conversation
from gateway.ports.conversation import AssistantItem, Item, OutputItem, UserItem

_EARLIER = "Earlier in this conversation:"
_NOW = "Now:"
_SPEAKERS = {True: "User", False: "You"}
_BYTES = "application/octet-stream"
_SIGN_LENGTH = 16


@dataclass(frozen=True, slots=True)
class File:
    """A file whose bytes the request brings."""

    name: str
    media_type: str
    content: bytes


@dataclass(frozen=True, slots=True)
class Outgoing:
    """`links` are files by their addresses, as attachments. `value` is the data of the message, None without any."""

    text: str
    value: Json = None
    links: tuple[dict[str, Json], ...] = ()
    files: tuple[File, ...] = ()

    @property
    def fields(self) -> dict[str, Json]:
        """The fields of the activity, but for its files."""
        given: dict[str, Json] = {"type": "message", "text": self.text, "value": self.value}
        given["attachments"] = list(self.links) or None
        return {name: value for name, value in given.items() if value not in (None, "")}

    @property
    def inline_files(self) -> list[Json]:
        """The files as attachments that hold their bytes."""
        return [
            {
                "contentType": file.media_type,
                "name": file.name,
                "contentUrl": f"data:{file.media_type};base64,{base64.b64encode(file.content).decode()}",
            }
            for file in self.files
        ]


def encode(items: Sequence[Item]) -> Outgoing:
    """Raises: ValueError for a file whose bytes are no base64."""
    new = tuple(takewhile(lambda item: isinstance(item, UserItem), reversed(items)))[::-1]
    earlier, messages = items[: len(items) - len(new)], [item.message for item in new if isinstance(item, UserItem)]
    text = "\n\n".join(filter(None, (_words(message.parts) for message in messages)))
    told = "\n\n".join(filter(None, map(_told, earlier)))
    if told:
        text = f"{_EARLIER}\n\n{told}\n\n{_NOW}\n\n{text}"
    parts = [part for message in messages for part in message.parts]
    data = [part.data for part in parts if part.data is not UNSET]
    return Outgoing(
        text,
        data[0] if len(data) == 1 else data or None,
        tuple(_link(part) for part in parts if part.url is not None),
        tuple(_file(part, number) for number, part in enumerate(parts, 1) if part.raw is not None),
    )


def signs(items: Iterable[Item]) -> list[str]:
    """A sign for each item, by which the message that carried it is recognised in its conversation."""
    return [hashlib.sha256(conversation.encode(item)).hexdigest()[:_SIGN_LENGTH] for item in items]


def multipart(activity: bytes, files: Iterable[File], boundary: str) -> bytes:
    """The body of an upload: the activity, then its files. Source: Direct Line API 3.0, "Send an activity to the bot"."""
    return b"".join((*_sections(activity, files, boundary), f"--{boundary}--\r\n".encode()))


def _sections(activity: bytes, files: Iterable[File], boundary: str) -> Iterator[bytes]:
    yield _section(boundary, 'form-data; name="activity"', "application/vnd.microsoft.activity", activity)
    for file in files:
        name = file.name.replace("\\", "_").replace('"', "'").replace("\r", " ").replace("\n", " ")
        yield _section(boundary, f'form-data; name="file"; filename="{name}"', file.media_type, file.content)


def _section(boundary: str, disposition: str, media_type: str, content: bytes) -> bytes:
    kind = media_type if media_type.isprintable() else _BYTES
    head = f"--{boundary}\r\nContent-Disposition: {disposition}\r\nContent-Type: {kind}\r\n\r\n"
    return head.encode() + content + b"\r\n"


def _told(item: Item) -> str:
    match item:
        case UserItem(message=message):
            parts: Sequence[Part] = message.parts
        case AssistantItem():
            parts = item.parts
        case OutputItem(output=output, approved=None):
            text = output if isinstance(output, str) else msgspec.json.encode(output).decode()
            return f"Result of a tool: {text}"
        case _:
            return ""
    words = _words(parts) or ("(a file)" if parts else "")
    return f"{_SPEAKERS[isinstance(item, UserItem)]}: {words}" if words else ""


def _words(parts: Iterable[Part]) -> str:
    return "\n".join(part.text for part in parts if part.text)


def _link(part: Part) -> dict[str, Json]:
    link = {"contentType": part.media_type or _BYTES, "contentUrl": part.url, "name": part.filename}
    return {name: value for name, value in link.items() if value is not None}


def _file(part: Part, number: int) -> File:
    try:
        content = base64.b64decode(part.raw or "", validate=True)
    except binascii.Error as error:
        raise ValueError(f"a file is no base64: {error}") from error
    return File(part.filename or f"file-{number}", part.media_type or _BYTES, content)
