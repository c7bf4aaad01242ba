"""Items of a thread -> `messages` of the Chat Completions wire. Law: an assistant message with calls is followed at once
by one tool message for each of them.

Source: OpenAI API description 2.3.0, schema `ChatCompletionRequestMessage`.
"""

from collections import deque
from collections.abc import Iterable
from itertools import groupby

from adapters.openai import encoding
from gateway.a2a.model import Json, Part
from gateway.ports.conversation import AssistantItem, CallItem, Item, OutputItem, UserItem, joined
from gateway.ports.tools import ToolDeclaration

_AUDIO_FORMATS = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"}


def encode_tool(tool: ToolDeclaration) -> dict[str, Json]:
    function = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    return {"type": "function", "function": function}


def encode_messages(items: Iterable[Item]) -> list[Json]:
    """Reasoning, opaque items and a backend's questions for approval have no place on this wire."""
    items = tuple(item for item in items if not _is_question(item))
    outputs: dict[str, deque[OutputItem]] = {}
    for item in items:
        if isinstance(item, OutputItem):
            outputs.setdefault(item.call_id, deque()).append(item)
    ids = encoding.CallIds()
    messages: list[Json] = []
    for is_call, group in groupby(items, lambda item: isinstance(item, CallItem)):
        if is_call:
            _add_calls(messages, [item for item in group if isinstance(item, CallItem)], outputs, ids)
        else:
            for item in group:
                _add_text(messages, item)
    return messages


def _is_question(item: Item) -> bool:
    asks = isinstance(item, CallItem) and item.asking is not None
    return asks or (isinstance(item, OutputItem) and item.approved is not None)


def _add_text(messages: list[Json], item: Item) -> None:
    match item:
        case UserItem(message=message):
            messages.append({"role": "user", "content": _content(message.parts)})
        case AssistantItem(parts=parts):
            text = encoding.answer_text(parts)
            last = messages[-1] if messages else {}
            if last.get("role") == "assistant":
                last["content"] = joined((last["content"], text))
            elif text:
                messages.append({"role": "assistant", "content": text})


def _add_calls(
    messages: list[Json], calls: list[CallItem], outputs: dict[str, deque[OutputItem]], ids: encoding.CallIds
) -> None:
    """One message with all calls, and the output of each. Ids may repeat in a thread: a call has the first output left."""
    if not messages or messages[-1]["role"] != "assistant":
        messages.append({"role": "assistant", "content": None})
    messages[-1]["tool_calls"] = [
        {
            "id": ids.of_call(call.call_id),
            "type": "function",
            "function": {
                "name": encoding.function_name(call.name),
                "arguments": encoding.arguments_text(call.arguments),
            },
            **({} if call.opaque is None else {"extra_content": call.opaque}),
        }
        for call in calls
    ]
    for call in calls:
        output = encoding.output_text(outputs[call.call_id].popleft())
        messages.append({"role": "tool", "tool_call_id": ids.of_output(call.call_id), "content": output})


def _content(parts: tuple[Part, ...]) -> Json:
    texts = [encoding.part_text(part) for part in parts]
    if None not in texts:
        # Many compatible servers take lists of parts only for models with vision.
        return "\n".join(text for text in texts if text is not None)
    return [_part(part) for part in parts]


def _part(part: Part) -> Json:
    text = encoding.part_text(part)
    if text is not None:
        return {"type": "text", "text": text}
    kind = encoding.media_type(part)
    if kind.startswith("image/"):
        return {"type": "image_url", "image_url": {"url": encoding.file_url(part)}}
    if part.raw is None:
        return {"type": "text", "text": f"{encoding.file_name(part)}: {part.url}"}
    if kind in _AUDIO_FORMATS:
        return {"type": "input_audio", "input_audio": {"data": part.raw, "format": _AUDIO_FORMATS[kind]}}
    return {"type": "file", "file": {"filename": encoding.file_name(part), "file_data": encoding.file_url(part)}}
