"""Items of a thread -> `input` of the Responses wire. Law: no id that a backend gave goes back to it, but those that
say what is answered: of a call, of a question.

Source: OpenAI API description 2.3.0, schema `InputItem`.

Output items of the Responses wire, as far as they are read. Law: anything may be absent or null but an item's type.

Source: OpenAI API description 2.3.0, schema `OutputItem`; captures of other servers.

The newest items of a conversation -> what they hold of a request; pure. Law: only what lies behind the last item that is
known for certain counts, so that a message that was said twice is not taken for the other.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, assert_never

import msgspec

from adapters.openai.shared import (
    CallIds,
    arguments_text,
    compact,
    file_name,
    file_url,
    function_name,
    media_type,
    output_text,
    part_text,
    said,
)
from gateway.a2a.model import Json, Part
from gateway.ports.adapter import ToolCallReady
from gateway.ports.conversation import AssistantItem, CallItem, Item, OpaqueItem, OutputItem, ReasoningItem, UserItem
from gateway.ports.tools import ToolDeclaration


def encode_tool(tool: ToolDeclaration) -> dict[str, Json]:
    """Not strict: that mode takes a part of JSON Schema only."""
    named = {"type": "function", "name": tool.name, "description": tool.description}
    return {**named, "parameters": tool.parameters, "strict": False}


def encode_input(items: Sequence[Item]) -> list[Json]:
    ids = CallIds()
    fresh = _fresh_decisions(items)
    return [encoded for item in items if (encoded := _item(item, ids, fresh)) is not None]


def _fresh_decisions(items: Sequence[Item]) -> frozenset[str]:
    """Questions whose answer the backend has not reacted to. It takes an older one for the answer to its next question,
    if that is about the same: OGX 1.5.0 does."""
    fresh = set()
    for item in reversed(items):
        if isinstance(item, OutputItem):
            if item.approved is not None:
                fresh.add(item.call_id)
        elif not isinstance(item, UserItem):
            break
    return frozenset(fresh)


def _item(item: Item, ids: CallIds, fresh: frozenset[str]) -> Json:
    match item:
        case UserItem(message=message):
            return {"type": "message", "role": "user", "content": [_part(part) for part in message.parts]}
        case AssistantItem(parts=parts):
            # A list of `output_text` needs the ids that the backend gave.
            text = said(parts)
            return {"type": "message", "role": "assistant", "content": text} if text else None
        case CallItem(call_id=question, asking=str(server)):
            asked = {"type": "mcp_approval_request", "id": question, "server_label": server}
            return {**asked, "name": item.name, "arguments": item.arguments} if question in fresh else None
        case OutputItem(call_id=question, approved=bool(approved)):
            return _decision(question, approved, item.output) if question in fresh else None
        case CallItem():
            return {
                "type": "function_call",
                "call_id": ids.of_call(item.call_id),
                "name": function_name(item.name),
                "arguments": arguments_text(item.arguments),
            }
        case OutputItem():
            return {"type": "function_call_output", "call_id": ids.of_output(item.call_id), "output": output_text(item)}
        case ReasoningItem(opaque=opaque):
            return opaque
        case OpaqueItem(payload=payload):
            return payload
        case _:
            assert_never(item)


def _decision(question: str, approved: bool, reason: Json) -> Json:
    decision = {"type": "mcp_approval_response", "approval_request_id": question, "approve": approved}
    return {**decision, "reason": reason} if isinstance(reason, str) and reason else decision


def _part(part: Part) -> Json:
    text = part_text(part)
    if text is not None:
        return {"type": "input_text", "text": text}
    if media_type(part).startswith("image/"):
        return {"type": "input_image", "image_url": file_url(part), "detail": "auto"}
    if part.url is not None:
        return {"type": "input_file", "file_url": part.url}
    return {"type": "input_file", "filename": file_name(part), "file_data": file_url(part)}


# Item type -> what the tool is called; the backend runs them. An MCP tool has a name of its own.
SERVER_TOOLS = {
    "mcp_call": "",
    "web_search_call": "web_search",
    "file_search_call": "file_search",
    "code_interpreter_call": "code_interpreter",
    "image_generation_call": "image_generation",
}
# These wait for an answer, unless the backend brings one as an item of its own.
OPEN_CALLS = frozenset({"function_call", "custom_tool_call"})
OPEN_CALL_OUTPUTS = frozenset({"function_call_output", "custom_tool_call_output"})
CALLS = OPEN_CALLS | SERVER_TOOLS.keys()
# Foundry alone has it: its user has to open a page.
CONSENT = "oauth_consent_request"
# It stands for all that was said before it.
COMPACTION = "compaction"

_FAILED = frozenset({"failed", "incomplete", "cancelled"})


class Content(msgspec.Struct):
    text: str | None = None
    refusal: str | None = None


class ResponseItem(msgspec.Struct):
    type: str
    id: str | None = None
    call_id: str | None = None
    status: str | None = None
    phase: str | None = None
    content: list[Content] | None = None
    summary: list[Content] | None = None
    name: str | None = None
    server_label: str | None = None
    consent_link: str | None = None
    approval_request_id: str | None = None
    arguments: str | None = None
    input: str | None = None
    output: Json = None
    error: Json = None
    action: Json = None
    queries: Json = None
    results: Json = None
    code: str | None = None
    outputs: Json = None
    revised_prompt: str | None = None
    result: str | None = None
    output_format: str | None = None

    @property
    def text(self) -> str:
        return "".join(part.text or part.refusal or "" for part in self.content or ())

    @property
    def thought(self) -> str:
        """What may be shown of reasoning: its summary, or all of it where a server gives that."""
        return "\n\n".join(part.text or "" for part in self.summary or ()) or self.text

    @property
    def tool(self) -> str:
        return self.name or SERVER_TOOLS.get(self.type) or self.type

    @property
    def server(self) -> str | None:
        """Who runs the tool; None where it is not the backend."""
        if self.type == "mcp_call":
            return f"mcp:{self.server_label}" if self.server_label else "mcp"
        return SERVER_TOOLS.get(self.type)


def handled(call_id: str, item: ResponseItem, arguments: str) -> ToolCallReady:
    """A call that the backend runs, or has run."""
    asked = item.approval_request_id
    return ToolCallReady(call_id, item.tool, arguments, True, item.server, item.id, question=asked)


class Outcome(NamedTuple):
    arguments: str
    output: Json
    error: bool


def outcome(item: ResponseItem) -> Outcome:
    """What a tool of the backend was asked and what came of it; many only say that they are through."""
    error = item.error is not None or item.status in _FAILED
    status = {"status": item.status or "completed"}
    match item.type:
        case "mcp_call":
            output = item.error if item.error is not None else item.output
            return Outcome(item.arguments or "", "" if output is None else output, error)
        case "file_search_call":
            asked, output = {"queries": item.queries}, item.results
        case "code_interpreter_call":
            asked, output = {"code": item.code}, item.outputs
        case "image_generation_call":
            asked, output = {"prompt": item.revised_prompt}, None
        case _:
            asked, output = item.action, None
    return Outcome(compact(asked or {}), status if output is None else output, error)


@dataclass(frozen=True, slots=True)
class Verbatim:
    """An item as it came, but for what only the backend's own store can resolve, and nulls, which not all take back."""

    id: str | None
    payload: dict[str, Json]


# `created_by` is in what comes out only.
_NOT_TAKEN_BACK = frozenset({"id", "response_id", "created_by"})

_decode_object = msgspec.json.Decoder(dict[str, Json]).decode


def verbatim(item: msgspec.Raw) -> Verbatim:
    payload = _decode_object(item)
    name = payload.get("id")
    kept = {key: value for key, value in payload.items() if key not in _NOT_TAKEN_BACK and value is not None}
    return Verbatim(name if isinstance(name, str) else None, kept)


class Found(NamedTuple):
    """`held`: so many of the items that were asked for, from the first on; `added`: what the backend put behind them."""

    held: int
    added: list[Json]


def find(newest_first: Sequence[Json], last_item: str | None, wanted: Sequence[Json], *, whole: bool) -> Found | None:
    """None when the list does not show where the last completed call ended; `whole`: it shows the beginning.

    `last_item` is what that call left last, None when there was no such call.
    """
    known = next((index for index, item in enumerate(newest_first) if item.get("id") == last_item), None)
    if known is None and (last_item is not None or not whole):
        return None
    since = list(reversed(newest_first[:known]))
    signs, looked_for = [_sign(item) for item in since], [_sign(item) for item in wanted]
    held, start = max((_agreeing(signs[start:], looked_for), start) for start in range(len(since) + 1))
    behind = since[start + held :] if held else []
    ends = next((index for index, item in enumerate(behind) if item.get("role") == "user"), len(behind))
    return Found(held, behind[:ends])


def _agreeing(signs: Sequence[Json], looked_for: Sequence[Json]) -> int:
    pairs = zip(signs, looked_for, strict=False)
    return next((index for index, (one, other) in enumerate(pairs) if one != other), min(len(signs), len(looked_for)))


def _sign(item: Json) -> Json:
    """What stays the same of an item that was sent: a server adds ids and statuses, and fields of its own to contents."""
    content = item.get("content")
    parts = [{"text": content}] if isinstance(content, str) else content or ()
    texts = [part.get("text") for part in parts if isinstance(part, dict)]
    answered = item.get("call_id") or item.get("approval_request_id")
    return item.get("type", "message"), item.get("role"), answered, texts
