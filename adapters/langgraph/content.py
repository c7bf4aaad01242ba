"""Parts of A2A messages <-> the content of LangChain's messages. Law: a message has an id that is the same every time that it
is sent, so that a thread holds it once.

Source: langchain-core 1.8.3, `langchain_core.messages.content` and `langchain_core.messages.block_translators`.
"""

import base64
import hashlib
import mimetypes
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import UNSET

from adapters.langgraph.wire import Message, json_text
from gateway.a2a import model
from gateway.a2a.model import Json, Part
from gateway.ports.conversation import AssistantItem, CallItem, Item, OutputItem, UserItem, joined

_FILES = frozenset({"image", "audio", "video", "file", "text-plain", "image_url", "input_audio"})
_KINDS = frozenset({"audio", "video"})
_DATA_URL = re.compile(r"data:([^;,]*)(;[^,]*)?,(.*)", re.DOTALL)


def message_id(message: model.Message) -> str:
    """An id for the thread. The caller's own may come again with other words."""
    return _id(message.task_id, message.message_id, message.parts)


def encode_message(item: UserItem) -> dict[str, Json]:
    message = item.message
    return {"role": "user", "content": encode_parts(message.parts), "id": message_id(message)}


def encode_result(call_id: str, output: Json, *, error: bool) -> dict[str, Json]:
    """The result of a tool call."""
    text = output if isinstance(output, str) else json_text(output)
    status = "error" if error else "success"
    return {"role": "tool", "content": text, "tool_call_id": call_id, "status": status, "id": _id("result", call_id)}


def encode_conversation(items: Sequence[Item]) -> list[dict[str, Json]]:
    """The messages among the items; all of a conversation that is told to a new thread. A question for approval and its
    decision are no messages, and a call without a result would not be accepted."""
    answered = {item.call_id for item in items if isinstance(item, OutputItem) and item.approved is None}
    called = {item.call_id for item in items if isinstance(item, CallItem) and item.asking is None}
    messages: list[dict[str, Json]] = []
    for place, item in enumerate(items):
        match item:
            case UserItem():
                messages.append(encode_message(item))
            case AssistantItem(parts=parts):
                content = encode_parts(parts)
                messages.append({"role": "assistant", "content": content, "id": _id("answer", place, content)})
            case CallItem(call_id=call_id, asking=None) if call_id in answered:
                call = {"name": item.name, "args": _arguments(item.arguments), "id": call_id, "type": "tool_call"}
                if messages and messages[-1].get("tool_calls"):
                    messages[-1]["tool_calls"].append(call)
                else:
                    told = {"role": "assistant", "content": "", "tool_calls": [call]}
                    messages.append({**told, "id": _id("calls", place, call_id)})
            case OutputItem(call_id=call_id, approved=None) if call_id in called:
                messages.append(encode_result(call_id, item.output, error=item.error))
    return messages


def encode_parts(parts: Iterable[Part]) -> str | list[dict[str, Json]]:
    """One text where there are no files: not every graph reads lists."""
    given = tuple(parts)
    texts = [text for part in given if (text := _text(part)) is not None]
    if len(texts) == len(given):
        return joined(texts)
    return [_block(part) for part in given]


def encode_answer(parts: Iterable[Part]) -> Json:
    """The answer to a question of the graph: data as it is, all else as the content of a message."""
    given = tuple(parts)
    if len(given) == 1 and given[0].text is None and given[0].data is not UNSET:
        return given[0].data
    return encode_parts(given)


def text_of(message: Message) -> str:
    content = message.content
    if isinstance(content, list):
        return "".join(filter(None, map(_text_of_block, content)))
    return content or ""


def reasoning_of(message: Message) -> str:
    content = message.content
    said = [_reasoning_of_block(block) for block in content] if isinstance(content, list) else []
    # DeepSeek, Qwen and vLLM, in LangChain's own integrations.
    more = (message.additional_kwargs or {}).get("reasoning_content")
    return "".join(said) + (more if isinstance(more, str) else "")


def files_of(message: Message) -> list[Part]:
    content = message.content
    blocks = content if isinstance(content, list) else ()
    files = (_file(block) for block in blocks if isinstance(block, dict) and block.get("type") in _FILES)
    return [part for part in files if part is not None]


def output_of(message: Message) -> Json:
    """The result of a tool: its text, or its blocks where not all of them are text."""
    content = message.content
    if isinstance(content, list):
        texts = list(map(_text_of_block, content))
        return content if None in texts else "".join(filter(None, texts))
    return content or ""


def _id(*of: object) -> str:
    return hashlib.sha256(msgspec.json.encode(of)).hexdigest()[:32]


def _arguments(text: str) -> Json:
    """An object: LangChain takes nothing else."""
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError):
        return {"raw": text}


def _text(part: Part) -> str | None:
    if part.text is not None:
        return part.text
    return None if part.data is UNSET else json_text(part.data)


def _block(part: Part) -> dict[str, Json]:
    text = _text(part)
    if text is not None:
        return {"type": "text", "text": text}
    media_type = part.media_type or mimetypes.guess_type(part.filename or part.url or "")[0]
    kind = (media_type or "").partition("/")[0]
    if kind == "image":
        # Every version of LangChain reads this form.
        url = part.url if part.url is not None else f"data:{media_type};base64,{part.raw}"
        return {"type": "image_url", "image_url": {"url": url}}
    source = {"url": part.url} if part.url is not None else {"base64": part.raw}
    named = {"filename": part.filename} if part.filename else {}
    block = {"type": kind if kind in _KINDS else "file", "mime_type": media_type or "application/octet-stream"}
    return {**block, **source, **named}


def _text_of_block(block: Json) -> str | None:
    match block:
        case str():
            return block
        case {"type": "text" | "output_text", "text": str(text)}:
            return text
    return None


def _reasoning_of_block(block: Json) -> str:
    match block:
        case {"type": "reasoning", "reasoning": str(text)} | {"type": "thinking", "thinking": str(text)}:
            return text
        case {"type": "reasoning", "summary": [*pieces]}:
            return "".join(_summaries(pieces))
        case {"type": "reasoning_content", "reasoning_content": {"text": str(text)}}:  # Bedrock
            return text
    return ""


def _summaries(pieces: Iterable[Any]) -> Iterator[str]:
    for piece in pieces:
        if isinstance(piece, dict) and isinstance(piece.get("text"), str):
            yield piece["text"]


def _file(block: Mapping[str, Any]) -> Part | None:
    """The forms of LangChain 1 and 0, and those of OpenAI's Chat Completions."""
    media_type, name = block.get("mime_type"), _name(block)
    match block:
        case {"image_url": {"url": str(url)}} | {"image_url": str(url)}:
            return _at(url, media_type, name)
        case {"input_audio": {"data": str(data), **rest}}:
            return Part(raw=data, media_type=f"audio/{rest.get('format') or 'wav'}", filename=name)
        case {"type": "text-plain", "text": str(text)}:
            return Part(raw=base64.b64encode(text.encode()).decode(), media_type="text/plain", filename=name)
        case {"base64": str(data)} | {"source_type": "base64", "data": str(data)}:
            return Part(raw=data, media_type=_type(media_type), filename=name)
        case {"url": str(url)}:
            return _at(url, media_type, name)
        case {"file": {"file_data": str(url), **rest}}:
            given = rest.get("filename")
            return _at(url, media_type, given if isinstance(given, str) else name)
    return None


def _at(url: str, media_type: Json, name: str | None) -> Part:
    data = _DATA_URL.fullmatch(url)
    if data is not None and data[2] and data[2].endswith(";base64"):
        return Part(raw=data[3], media_type=data[1] or _type(media_type), filename=name)
    return Part(url=url, media_type=_type(media_type) or mimetypes.guess_type(url)[0], filename=name)


def _type(media_type: Json) -> str | None:
    return media_type if isinstance(media_type, str) else None


def _name(block: Mapping[str, Any]) -> str | None:
    extras: Mapping[str, Any] = next(
        (block[key] for key in ("extras", "metadata") if isinstance(block.get(key), dict)), {}
    )
    name = block.get("filename") or extras.get("filename") or extras.get("name")
    return name if isinstance(name, str) else None
