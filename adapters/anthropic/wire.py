"""Events of a stream of the Messages API, as far as they are read. Law: every field may be absent or null.

Source: anthropic 2.14.0, types `RawMessageStreamEvent` and `ContentBlock`.
"""

import msgspec

from adapters.anthropic.content import Block
from gateway.a2a.model import Json


class Delta(msgspec.Struct, gc=False):
    type: str = ""
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    partial_json: str | None = None
    citation: Json = None
    content: str | None = None
    encrypted_content: str | None = None
    stop_reason: str | None = None
    stop_details: Json = None
    container: Json = None


class Message(msgspec.Struct, gc=False):
    id: str | None = None
    usage: Json = None
    container: Json = None


class Event(msgspec.Struct, gc=False):
    type: str = ""
    index: int | None = None
    delta: Delta | None = None
    content_block: Block | None = None
    message: Message | None = None
    usage: Json = None
    error: Json = None


decode_event = msgspec.json.Decoder(Event).decode
