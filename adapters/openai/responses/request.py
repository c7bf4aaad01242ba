"""Encodes the items of a thread as the `input` of the Responses wire. Law: an id that the backend made is not sent
back, except the id of the call or the question that an item answers.

Source: OpenAI API description 2.3.0, schema `InputItem`.
"""

from collections.abc import Iterable, Sequence
from typing import assert_never

from adapters.openai import encoding
from adapters.openai.responses.wire import RENAMED, WAITING
from gateway.a2a.model import Json, Part
from gateway.ports.conversation import AssistantItem, CallItem, Item, OpaqueItem, OutputItem, ReasoningItem, UserItem
from gateway.ports.tools import ToolDeclaration


def encode_tool(tool: ToolDeclaration) -> dict[str, Json]:
    """Encodes a declaration as a tool without strict mode, because strict mode accepts only a part of JSON Schema."""
    named = {"type": "function", "name": tool.name, "description": tool.description}
    return {**named, "parameters": tool.parameters, "strict": False}


def encode_input(items: Sequence[Item], state: Json = None) -> list[Json]:
    """`state` is that of the last call."""
    ids = encoding.CallIds(_texts(state, RENAMED))
    fresh = _fresh_decisions(items)
    return [encoded for item in items if (encoded := _item(item, ids, fresh)) is not None]


def answered_calls(items: Iterable[Item], state: Json = None) -> dict[str, str | None]:
    """The calls whose outputs these items of a request bring, by the backend's ids, with the digests that the state of the last
    call has."""
    digests, renamed = _texts(state, WAITING), _texts(state, RENAMED)
    answered = (item.call_id for item in items if isinstance(item, OutputItem) and item.approved is None)
    return {name: digests.get(name) for name in (renamed.get(each, each) for each in answered)}


def _texts(state: Json, name: str) -> dict[str, str]:
    """The texts of a member of the adapter's state, which may be of another version."""
    found = state.get(name) if isinstance(state, dict) else None
    return {key: text for key, text in found.items() if isinstance(text, str)} if isinstance(found, dict) else {}


def _fresh_decisions(items: Sequence[Item]) -> frozenset[str]:
    """The ids of the questions whose decision the backend has not received yet. Older decisions are not sent again,
    because OGX 1.5.0 would use them as the answer to its next question about the same call."""
    fresh = set()
    for item in reversed(items):
        if isinstance(item, OutputItem):
            if item.approved is not None:
                fresh.add(item.call_id)
        elif not isinstance(item, UserItem):
            break
    return frozenset(fresh)


def _item(item: Item, ids: encoding.CallIds, fresh: frozenset[str]) -> Json:
    match item:
        case UserItem(message=message):
            return {"type": "message", "role": "user", "content": [_part(part) for part in message.parts]}
        case AssistantItem(parts=parts):
            # The content is one text: a list of `output_text` would need the ids that the backend made.
            text = encoding.answer_text(parts)
            return {"type": "message", "role": "assistant", "content": text} if text else None
        case CallItem(call_id=question, asking=str(server)):
            asked = {"type": "mcp_approval_request", "id": question, "server_label": server}
            return {**asked, "name": item.name, "arguments": item.arguments} if question in fresh else None
        case OutputItem(call_id=question, approved=bool(approved)):
            decision = {"type": "mcp_approval_response", "approval_request_id": question, "approve": approved}
            reason = {"reason": item.output} if isinstance(item.output, str) and item.output else {}
            return decision | reason if question in fresh else None
        case CallItem():
            return {
                "type": "function_call",
                "call_id": ids.of_call(item.call_id),
                "name": encoding.function_name(item.name),
                "arguments": encoding.arguments_text(item.arguments),
            }
        case OutputItem():
            output = encoding.output_text(item)
            return {"type": "function_call_output", "call_id": ids.of_output(item.call_id), "output": output}
        case ReasoningItem(opaque=kept) | OpaqueItem(payload=kept):
            # What an adapter of another wire has kept has no type.
            return kept if isinstance(kept, dict) and "type" in kept else None
        case _:
            assert_never(item)


def _part(part: Part) -> Json:
    text = encoding.part_text(part)
    if text is not None:
        return {"type": "input_text", "text": text}
    if encoding.media_type(part).startswith("image/"):
        return {"type": "input_image", "image_url": encoding.file_url(part), "detail": "auto"}
    if part.url is not None:
        return {"type": "input_file", "file_url": part.url}
    return {"type": "input_file", "filename": encoding.file_name(part), "file_data": encoding.file_url(part)}
