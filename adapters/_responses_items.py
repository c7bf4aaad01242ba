"""Output items of the Responses wire, as far as they are read. Law: anything may be absent or null but an item's type.

Source: OpenAI API description 2.3.0, schema `OutputItem`; captures of other servers.
"""

from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from adapters._content import compact
from gateway.model import Json
from gateway.ports import ToolCallReady

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


class OutputItem(msgspec.Struct):
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


def handled(call_id: str, item: OutputItem, arguments: str) -> ToolCallReady:
    """A call that the backend runs, or has run."""
    asked = item.approval_request_id
    return ToolCallReady(call_id, item.tool, arguments, True, item.server, item.id, question=asked)


class Outcome(NamedTuple):
    arguments: str
    output: Json
    error: bool


def outcome(item: OutputItem) -> Outcome:
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
