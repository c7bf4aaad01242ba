"""Events of a Responses stream, as far as they are read. Law: every field may be absent or null."""

import msgspec

from adapters.openai.responses.continuation import Echo
from gateway.a2a.model import Json

# Events that only repeat what came before in pieces. Their first bytes tell them, without parsing.
TYPE_FIRST = b'{"type":"'
REPETITIONS = frozenset(
    {
        b"response.content_part.added",
        b"response.content_part.done",
        b"response.output_text.done",
        b"response.output_text.annotation.added",
        b"response.refusal.done",
        b"response.reasoning_summary_part.added",
        b"response.reasoning_summary_part.done",
        b"response.reasoning_summary_text.done",
        b"response.reasoning_text.done",
        b"response.image_generation_call.partial_image",
        b"response.code_interpreter_call_code.delta",
        b"response.code_interpreter_call_code.done",
        b"response.function_call_arguments.done",
    }
)


class Event(msgspec.Struct, gc=False):
    type: str = ""
    sequence_number: Json = None
    item_id: str | None = None
    delta: Json = None
    summary_index: int | None = None
    arguments: str | None = None
    item: msgspec.Raw = msgspec.Raw()
    response: msgspec.Raw = msgspec.Raw()
    error: Json = None
    code: Json = None
    message: Json = None


class _Incomplete(msgspec.Struct):
    reason: str | None = None


class Response(Echo):
    status: str | None = None
    store: bool | None = None
    usage: Json = None
    error: Json = None
    incomplete_details: _Incomplete | None = None
    output: list[msgspec.Raw] | None = None


decode_event = msgspec.json.Decoder(Event).decode
decode_response = msgspec.json.Decoder(Response).decode
