"""Activities as both wires carry them. Law: a message that cannot be read is an error, and any other activity is left out.

Source: Bot Framework Activity schema; Direct Line API 3.0 (ActivitySet).
"""

from collections.abc import Iterator

import msgspec

from gateway.a2a import nesting
from gateway.a2a.model import Json

MESSAGE = "message"
TYPING = "typing"
EVENT = "event"
END_OF_CONVERSATION = "endOfConversation"

_STREAM = "streaminfo"


class _Wire(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """Fields that are not named here are read over."""


class Account(_Wire, frozen=True):
    """`role` is `user` or `bot`; some services write a number."""

    id: str = ""
    role: str | int | None = None


class ConversationAccount(_Wire, frozen=True):
    id: str | None = None


class Attachment(_Wire, frozen=True):
    """A file by its address (`https:` or `data:`), or a card as `content`."""

    content_type: str = ""
    content_url: str | None = None
    content: Json = None
    name: str | None = None


class CardAction(_Wire, frozen=True):
    """A button. `value` is what it sends or opens."""

    type: str = ""
    title: str | None = None
    value: Json = None


class SuggestedActions(_Wire, frozen=True):
    actions: tuple[CardAction, ...] | None = None


class Activity(_Wire, frozen=True):
    """`reply_to_id` is the id of the activity that this one answers."""

    type: str = ""
    id: str | None = None
    sender: Account | None = msgspec.field(default=None, name="from")
    conversation: ConversationAccount | None = None
    text: str | None = None
    input_hint: str | None = None
    reply_to_id: str | None = None
    name: str | None = None
    value_type: str | None = None
    value: Json = None
    code: str | None = None
    attachments: tuple[Attachment, ...] | None = None
    suggested_actions: SuggestedActions | None = None
    entities: Json = None
    channel_data: Json = None


class StreamInfo(_Wire, frozen=True):
    """The place of an activity in a message that comes in pieces. `kind` is `informative`, `streaming` or `final`; `delta` says
    that the text is only what is new."""

    kind: str
    id: str
    sequence: int | None = None
    result: str | None = None
    delta: bool = False


def read(content: Json) -> Activity | None:
    """The activity, or None for a value that says nothing. Raises: ValueError for a message of another form."""
    if not isinstance(content, dict):
        return None
    try:
        if not nesting.fits(content):
            raise ValueError(f"it is {nesting.TOO_DEEP}")
        return msgspec.convert(content, Activity)
    except ValueError as error:
        if content.get("type") == MESSAGE:
            raise ValueError(f"a message cannot be read: {error}") from error
        return None


def read_set(content: Json) -> tuple[list[Activity], str | None]:
    """The activities of an ActivitySet, and its watermark, where it has one. Raises: ValueError as `read`."""
    match content:
        case {"activities": list(found), **rest}:
            watermark = rest.get("watermark")
            named = isinstance(watermark, str | int) and watermark != ""
            return [each for each in map(read, found) if each is not None], str(watermark) if named else None
    return [], None


def stream_of(activity: Activity) -> StreamInfo | None:
    """The place of the activity in a stream, in either of its two forms: an entity, or fields of `channelData`. A stream that
    does not name itself has the id of its first activity."""
    for place in _places(activity):
        kind = place.get("streamType")
        if not isinstance(kind, str) or not kind:
            continue
        name, sequence, result = place.get("streamId"), place.get("streamSequence"), place.get("streamResult")
        return StreamInfo(
            kind,
            name if isinstance(name, str) and name else activity.id or "",
            sequence if isinstance(sequence, int) else None,
            result if isinstance(result, str) else None,
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
