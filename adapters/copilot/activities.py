"""Activities as both wires carry them. Law: a field of another form counts as none, a number as the text that shows it; a
message whose words cannot be read says so, and any other activity is left out.

Source: Bot Framework Activity schema; Direct Line API 3.0 (ActivitySet).
"""

import re
from collections.abc import Iterable, Iterator

import msgspec
from msgspec.structs import replace

from adapters.http.address import NO_SEGMENTS
from gateway.a2a import nesting
from gateway.a2a.model import Json

MESSAGE = "message"
TYPING = "typing"
EVENT = "event"
END_OF_CONVERSATION = "endOfConversation"

_STREAM = "streaminfo"
_SEQUENCE = re.compile(r"[0-9]{1,9}")


class Account(msgspec.Struct, frozen=True, gc=False):
    """`role` is `user` or `bot`; some services write a number."""

    id: str = ""
    role: str | int | None = None


class Attachment(msgspec.Struct, frozen=True, gc=False):
    """A file by its address (`https:` or `data:`), or a card as `content`."""

    content_type: str = ""
    content_url: str | None = None
    content: Json = None
    name: str | None = None


class CardAction(msgspec.Struct, frozen=True, gc=False):
    """A button. `value` is what it sends or opens."""

    type: str = ""
    title: str | None = None
    value: Json = None


class Activity(msgspec.Struct, frozen=True, gc=False):
    """`reply_to_id` is the id of the activity that this one answers. `unreadable` says why the words of a message are not
    known."""

    type: str = ""
    id: str | None = None
    sender: Account | None = None
    conversation: str | None = None
    text: str | None = None
    input_hint: str | None = None
    reply_to_id: str | None = None
    name: str | None = None
    value_type: str | None = None
    value: Json = None
    code: str | None = None
    attachments: tuple[Attachment, ...] = ()
    suggested_actions: tuple[CardAction, ...] = ()
    entities: Json = None
    channel_data: Json = None
    unreadable: str | None = None


class StreamInfo(msgspec.Struct, frozen=True, gc=False):
    """The place of an activity in a message that comes in pieces. `kind` is `informative`, `streaming` or `final`; `delta` says
    that the text is only what is new."""

    kind: str
    id: str
    sequence: int | None = None
    result: str | None = None
    delta: bool = False


def is_conversation_id(text: str) -> bool:
    """Whether the text can be the id of a conversation."""
    return text not in NO_SEGMENTS and text.isprintable() and not any(mark in text for mark in "/?#")


def read(content: Json) -> Activity | None:
    """The activity, or None for a value that says nothing."""
    if not isinstance(content, dict):
        return None
    kind, text = text_of(content.get("type")) or "", content.get("text")
    common = Activity(
        type=kind,
        id=text_of(content.get("id")),
        sender=_account(content.get("from")),
        conversation=_id(content.get("conversation")),
        reply_to_id=text_of(content.get("replyToId")),
    )
    if not nesting.fits(content):
        return replace(common, unreadable=f"it is {nesting.TOO_DEEP}") if kind == MESSAGE else None
    return replace(
        common,
        text=text_of(text),
        input_hint=text_of(content.get("inputHint")),
        name=text_of(content.get("name")),
        value_type=text_of(content.get("valueType")),
        value=content.get("value"),
        code=text_of(content.get("code")),
        attachments=tuple(map(_attachment, _objects(content.get("attachments")))),
        suggested_actions=tuple(map(_action, _objects(_member(content.get("suggestedActions"), "actions")))),
        entities=content.get("entities"),
        channel_data=content.get("channelData"),
        unreadable="its text is none" if kind == MESSAGE and isinstance(text, dict | list) else None,
    )


def read_set(content: Json) -> tuple[list[Activity], str | None]:
    """The activities of an ActivitySet, and its watermark, where it has one."""
    match content:
        case {"activities": list(found), **rest}:
            watermark = rest.get("watermark")
            named = isinstance(watermark, str | int) and watermark != ""
            return [each for each in map(read, found) if each is not None], str(watermark) if named else None
    return [], None


def text_of(value: Json) -> str | None:
    """A text, or the text of a number; None for any other value."""
    match value:
        case str():
            return value
        case bool() | int() | float():
            return msgspec.json.encode(value).decode()
    return None


def _id(value: Json) -> str | None:
    """The id of an account, which some bots write instead of it."""
    return text_of(value.get("id")) if isinstance(value, dict) else text_of(value)


def _account(value: Json) -> Account | None:
    role = _member(value, "role")
    name = _id(value)
    if name is None and role is None:
        return None
    return Account(name or "", role if isinstance(role, str | int) else None)


def _attachment(given: dict[str, Json]) -> Attachment:
    url = given.get("contentUrl")
    return Attachment(
        content_type=text_of(given.get("contentType")) or "",
        content_url=url if isinstance(url, str) else None,
        content=given.get("content"),
        name=text_of(given.get("name")),
    )


def _action(given: dict[str, Json]) -> CardAction:
    return CardAction(text_of(given.get("type")) or "", text_of(given.get("title")), given.get("value"))


def _member(value: Json, name: str) -> Json:
    return value.get(name) if isinstance(value, dict) else None


def _objects(value: Json) -> Iterable[dict[str, Json]]:
    """The objects of a list; one that stands alone counts as a list of it."""
    listed = value if isinstance(value, list) else [value]
    return (each for each in listed if isinstance(each, dict) and each)


def stream_of(activity: Activity) -> StreamInfo | None:
    """The place of the activity in a stream, in either of its two forms: an entity, or fields of `channelData`. A stream that
    does not name itself has the id of its first activity."""
    for place in _places(activity):
        kind = place.get("streamType")
        if not isinstance(kind, str) or not kind:
            continue
        sequence = text_of(place.get("streamSequence")) or ""
        return StreamInfo(
            kind,
            text_of(place.get("streamId")) or activity.id or "",
            int(sequence) if _SEQUENCE.fullmatch(sequence) else None,
            text_of(place.get("streamResult")),
            place.get("chunkType") == "delta",
        )
    return None


def _places(activity: Activity) -> Iterator[dict[str, Json]]:
    entities = activity.entities if isinstance(activity.entities, list) else ()
    data = activity.channel_data if isinstance(activity.channel_data, dict) else {}
    for entity in entities:
        if isinstance(entity, dict) and entity.get("type") == _STREAM:
            # The kind of an entity may be left out.
            yield data | {"streamType": "streaming"} | entity
    yield data
