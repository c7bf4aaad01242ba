"""Items of a thread -> `input` of the Responses wire. Law: no id that a backend gave goes back to it.

Source: OpenAI API description 2.3.0, schema `InputItem`.
"""

from collections.abc import Iterable
from typing import assert_never

from adapters._content import call_id, file_name, file_url, function_name, media_type, output_text, part_text, said
from gateway.items import AssistantItem, CallItem, Item, OpaqueItem, OutputItem, ReasoningItem, UserItem
from gateway.model import Json, Part


def encode_input(items: Iterable[Item]) -> list[Json]:
    return [encoded for item in items if (encoded := _item(item)) is not None]


def _item(item: Item) -> Json:
    match item:
        case UserItem(message=message):
            return {"type": "message", "role": "user", "content": [_part(part) for part in message.parts]}
        case AssistantItem(parts=parts):
            # A list of `output_text` needs the ids that the backend gave.
            return {"type": "message", "role": "assistant", "content": said(parts)}
        case CallItem():
            name = function_name(item.name)
            return {
                "type": "function_call",
                "call_id": call_id(item.call_id),
                "name": name,
                "arguments": item.arguments,
            }
        case OutputItem():
            return {"type": "function_call_output", "call_id": call_id(item.call_id), "output": output_text(item)}
        case ReasoningItem(opaque=opaque):
            return opaque
        case OpaqueItem(payload=payload):
            return payload
        case _:
            assert_never(item)


def _part(part: Part) -> Json:
    text = part_text(part)
    if text is not None:
        return {"type": "input_text", "text": text}
    if media_type(part).startswith("image/"):
        return {"type": "input_image", "image_url": file_url(part), "detail": "auto"}
    if part.url is not None:
        return {"type": "input_file", "file_url": part.url}
    return {"type": "input_file", "filename": file_name(part), "file_data": file_url(part)}
