"""Events and output items of the Responses wire, as far as they are read. Law: every field but an item's type may be absent
or null.

Source: OpenAI API description 2.3.0, schemas `OutputItem` and `ResponseStreamEvent`; captures of other servers.
"""

import msgspec

from adapters.openai.encoding import json_text
from adapters.openai.responses.continuation import Echo
from gateway.a2a.model import Json
from gateway.ports.adapter import ToolCallReady

# Tools that the backend runs: item type -> name of the tool. An MCP tool has a name of its own.
SERVER_TOOLS = {
    "mcp_call": "",
    "web_search_call": "web_search",
    "file_search_call": "file_search",
    "code_interpreter_call": "code_interpreter",
    "image_generation_call": "image_generation",
}
# These calls wait for an answer of the client, unless the backend sends the answer as a separate item.
OPEN_CALLS = frozenset({"function_call", "custom_tool_call"})
OPEN_CALL_OUTPUTS = frozenset({"function_call_output", "custom_tool_call_output"})
CALLS = OPEN_CALLS | SERVER_TOOLS.keys()
# Only of Foundry: its user has to open a page.
CONSENT = "oauth_consent_request"
# Stands for everything before it.
COMPACTION = "compaction"
# The most frequent events.
TEXT_DELTAS = frozenset({"response.output_text.delta", "response.refusal.delta"})
# Events after which nothing of the response follows.
ENDS = frozenset({"response.completed", "response.incomplete", "response.failed", "response.cancelled", "error"})

_FAILED = frozenset({"failed", "incomplete", "cancelled"})
# `created_by` is an output field only.
_NOT_TAKEN_BACK = frozenset({"id", "response_id", "created_by"})

# Events that only repeat what came before in pieces. Their first bytes tell them, without parsing.
REPETITIONS = tuple(
    b'{"type":"response.%b"' % kind
    for kind in (
        b"content_part.added",
        b"content_part.done",
        b"output_text.annotation.added",
        b"reasoning_summary_part.added",
        b"reasoning_summary_part.done",
        b"reasoning_summary_text.done",
        b"reasoning_text.done",
        b"image_generation_call.partial_image",
        b"code_interpreter_call_code.delta",
        b"code_interpreter_call_code.done",
        b"function_call_arguments.done",
    )
)


_decode_object = msgspec.json.Decoder(dict[str, Json]).decode


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
    given: Json = msgspec.field(name="arguments", default=None)
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
    def is_commentary(self) -> bool:
        """Whether the message tells of the work, and is no answer."""
        return self.phase == "commentary"

    @property
    def key(self) -> str:
        """What the events about this item name."""
        return self.id or self.call_id or ""

    @property
    def text(self) -> str:
        return "".join(part.text or part.refusal or "" for part in self.content or ())

    @property
    def reasoning(self) -> str:
        """The summary of reasoning, or all of it where a server shows that."""
        return "\n\n".join(part.text or "" for part in self.summary or ()) or self.text

    @property
    def arguments(self) -> str | None:
        """A text of JSON; some servers give an object."""
        return self.given if self.given is None or isinstance(self.given, str) else json_text(self.given)

    @property
    def tool(self) -> str:
        return self.name or SERVER_TOOLS.get(self.type) or self.type

    @property
    def server(self) -> str | None:
        """The executor of a tool that the backend runs itself, None for any other tool."""
        if self.type not in SERVER_TOOLS:
            return None
        return SERVER_TOOLS[self.type] or (f"mcp:{self.server_label}" if self.server_label else "mcp")


decode_item = msgspec.json.Decoder(ResponseItem).decode


def server_call(call_id: str, item: ResponseItem, arguments: str) -> ToolCallReady:
    """The event of a call that the backend runs, or has run."""
    asked = item.approval_request_id
    return ToolCallReady(call_id, item.tool, arguments, True, item.server, item.id, question=asked)


def outcome(item: ResponseItem) -> tuple[str, Json, bool]:
    """Arguments and output of a tool of the backend, and whether it failed. Many tools show only that they have ended."""
    error = item.error is not None or item.status in _FAILED
    status = {"status": item.status or "completed"}
    match item.type:
        case "mcp_call":
            output = item.error if item.error is not None else item.output
            return item.arguments or "", "" if output is None else output, error
        case "file_search_call":
            asked, output = {"queries": item.queries}, item.results
        case "code_interpreter_call":
            asked, output = {"code": item.code}, item.outputs
        case "image_generation_call":
            asked, output = {"prompt": item.revised_prompt}, None
        case _:
            asked, output = item.action, None
    return json_text(asked or {}), status if output is None else output, error


def replay(item: msgspec.Raw) -> tuple[str | None, dict[str, Json]]:
    """The id of an item, and the form in which the item goes back to a backend: without ids of its own store, and without
    nulls, which not every server accepts."""
    payload = _decode_object(item)
    name = payload.get("id")
    kept = {key: value for key, value in payload.items() if key not in _NOT_TAKEN_BACK and value is not None}
    return name if isinstance(name, str) else None, kept


class Event(msgspec.Struct, gc=False):
    type: str = ""
    sequence_number: Json = None
    item_id: str | None = None
    output_index: Json = None
    delta: Json = None
    text: Json = None
    refusal: Json = None
    summary_index: int | None = None
    arguments: str | None = None
    item: msgspec.Raw = msgspec.Raw()
    response: msgspec.Raw = msgspec.Raw()
    error: Json = None
    code: Json = None
    message: Json = None

    @property
    def index(self) -> int | None:
        """The place of the event's item in the output."""
        return self.output_index if isinstance(self.output_index, int) else None


class _Incomplete(msgspec.Struct):
    reason: str | None = None


SESSION = "agent_session_id"
"""The sandbox of a hosted agent of Foundry."""
WAITING = "waiting_calls"
"""What the adapter's state has of the calls that wait for an output: a digest by the id of each."""
RENAMED = "renamed_calls"
"""The same, of the calls whose id the backend has changed: the new id by the one that the core knows."""


class Response(Echo):
    agent_session_id: str | None = None
    status: str | None = None
    store: bool | None = None
    usage: Json = None
    error: Json = None
    incomplete_details: _Incomplete | None = None
    output: list[msgspec.Raw] | None = None


decode_event = msgspec.json.Decoder(Event).decode
decode_response = msgspec.json.Decoder(Response).decode
