"""Steps of a scripted backend, and scripts that choose steps by the conversation.

A script is a function of the conversation; every emulator plays the same steps on its own wire.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

Json: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Say:
    """Text of the answer in `chunks` deltas. Neighbouring Say, Cite and Refuse steps share one message."""

    text: str
    chunks: int = 1


@dataclass(frozen=True, slots=True)
class Refuse:
    """The model declines: a refusal instead of text."""

    text: str
    chunks: int = 1


@dataclass(frozen=True, slots=True)
class Cite:
    """An annotation of the open message (`url_citation`, or `container_file_citation` for a file)."""

    annotation: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Think:
    """Reasoning. `encrypted` is random when empty, and sent only if the request includes it."""

    summary: str
    encrypted: str = ""
    chunks: int = 1


@dataclass(frozen=True, slots=True)
class Call:
    """A function call that the client must answer. `call_id` is random when empty."""

    name: str
    arguments: str | Mapping[str, Any]
    call_id: str = ""
    chunks: int = 2


@dataclass(frozen=True, slots=True)
class Pause:
    """Waits until the event is set."""

    until: asyncio.Event


@dataclass(frozen=True, slots=True)
class Delay:
    """Waits for a while."""

    seconds: float


@dataclass(frozen=True, slots=True)
class ServerTool:
    """A tool that the server itself runs; `during` lies between its start and its outcome."""

    kind: Literal["mcp", "web_search"]
    name: str
    arguments: Mapping[str, Any]
    output: str = ""
    error: str | None = None
    during: Pause | Delay | None = None
    question: str | None = None
    """The id of the approved Ask."""


@dataclass(frozen=True, slots=True)
class Ask:
    """The server asks whether it may run a tool of its MCP server. `question` is its id, random when empty."""

    name: str
    arguments: Mapping[str, Any]
    question: str = ""


@dataclass(frozen=True, slots=True)
class ImageOut:
    """A generated picture."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Item:
    """Any other output item, announced and done at once; it gets an `id` if it has none."""

    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Restarted:
    """`response.in_progress` in mid-stream: the output so far is void and will be sent again."""


@dataclass(frozen=True, slots=True)
class Fail:
    """The response ends as failed (Chat Completions: an error line under HTTP 200)."""

    code: str = "server_error"
    message: str = "The server had an error processing your request. Sorry about that!"


@dataclass(frozen=True, slots=True)
class ErrorEvent:
    """An error inside the stream, after which nothing follows."""

    code: str | None = "server_error"
    message: str = "The server had an error processing your request. Sorry about that!"
    param: str | None = None


@dataclass(frozen=True, slots=True)
class Incomplete:
    """The answer is cut by a limit."""

    reason: Literal["max_output_tokens", "content_filter"] = "max_output_tokens"


@dataclass(frozen=True, slots=True)
class Stop:
    """The answer ends for this reason, in the wire's own word. `container`: the server's tools ran in the one of this id."""

    reason: str
    container: str = ""


@dataclass(frozen=True, slots=True)
class Status:
    """An HTTP error instead of an answer. First step only."""

    status: int
    body: Mapping[str, Any] | str = ""
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Html:
    """A page of some proxy instead of an answer. First step only."""

    status: int = 502
    page: str = "<!DOCTYPE html><html><head><title>Bad gateway</title></head><body><h1>502</h1></body></html>"


@dataclass(frozen=True, slots=True)
class Raw:
    """Bytes written as they are. A reply that is not streamed consists of them alone."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Cut:
    """Drops the connection after the bytes written so far."""


@dataclass(frozen=True, slots=True)
class NoTerminal:
    """Ends the stream cleanly, without a terminal event."""


Step: TypeAlias = (
    Say | Refuse | Cite | Think | Call | ServerTool | Ask | ImageOut | Item | Restarted | Pause | Delay
    | Fail | ErrorEvent | Incomplete | Stop | Status | Html | Raw | Cut | NoTerminal
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Conversation:
    """The history in the wire's own items, oldest first, and the request."""

    items: tuple[Json, ...]
    request: Json

    @property
    def user_texts(self) -> tuple[str, ...]:
        return tuple(_text(item.get("content")) for item in self.items if item.get("role") == "user")

    @property
    def text(self) -> str:
        """The text of the last user message."""
        return self.user_texts[-1] if self.user_texts else ""

    @property
    def tool_outputs(self) -> dict[str, str]:
        """Outputs of tool calls after the last user message, by call id."""
        outputs: dict[str, str] = {}
        for item in self.items:
            if item.get("role") == "user":
                outputs.clear()
            elif item.get("type") == "function_call_output":
                outputs[str(item.get("call_id"))] = _text(item.get("output"))
            elif item.get("role") == "tool":
                outputs[str(item.get("tool_call_id"))] = _text(item.get("content"))
        return outputs

    @property
    def decisions(self) -> dict[str, bool]:
        """Decisions on questions for approval after the last user message, by the question's id."""
        decisions: dict[str, bool] = {}
        for item in self.items:
            if item.get("role") == "user":
                decisions.clear()
            elif item.get("type") == "mcp_approval_response":
                decisions[str(item.get("approval_request_id"))] = item.get("approve") is True
        return decisions

    @property
    def round(self) -> int:
        """The number of requests with outputs or decisions after the last user message."""
        rounds, answered = 0, False
        for item in self.items:
            was, answered = answered, item.get("type") in _ANSWERS or item.get("role") == "tool"
            rounds = 0 if item.get("role") == "user" else rounds + (answered and not was)
        return rounds


_ANSWERS = frozenset({"function_call_output", "mcp_approval_response"})

Script: TypeAlias = Callable[[Conversation], Iterable[Step] | AsyncIterable[Step]]


def _text(content: str | Iterable[Mapping[str, Any]] | None) -> str:
    if isinstance(content, str) or content is None:
        return content or ""
    return "".join(part.get("text", "") for part in content)


async def steps_of(script: Script, conversation: Conversation) -> AsyncGenerator[Step]:
    """The script's steps, each computed after the one before it was played."""
    produced = script(conversation)
    if not isinstance(produced, AsyncIterable):
        for step in produced:
            yield step
        return
    try:
        async for step in produced:
            yield step
    finally:
        if isinstance(produced, AsyncGenerator):
            await produced.aclose()


def by_keyword(table: Mapping[str, Sequence[Step] | Script], otherwise: Sequence[Step] | Script = ()) -> Script:
    """A script from a table: the first key that the last user message contains (in any case) decides."""

    def script(conversation: Conversation) -> Iterable[Step] | AsyncIterable[Step]:
        text = conversation.text.lower()
        chosen = next((steps for key, steps in table.items() if key.lower() in text), otherwise)
        return chosen(conversation) if callable(chosen) else chosen

    return script


def in_rounds(*rounds: Sequence[Step] | Script) -> Script:
    """A script of a turn with tools: the first round answers the user's message, each other the outputs of the round before.

    The last round also answers every later request.
    """

    def script(conversation: Conversation) -> Iterable[Step] | AsyncIterable[Step]:
        chosen = rounds[min(conversation.round, len(rounds) - 1)]
        return chosen(conversation) if callable(chosen) else chosen

    return script


def rate_limited(retry_after: int | None = 1) -> Status:
    """429 as OpenAI sends it; `Retry-After` in seconds may be missing."""
    error = {
        "message": "Rate limit reached for gpt-5.5 in organization org-x on requests per min (RPM): Limit 3, Used 3.",
        "type": "requests",
        "param": None,
        "code": "rate_limit_exceeded",
    }
    return Status(429, {"error": error}, {} if retry_after is None else {"Retry-After": str(retry_after)})


def greeting(_: Conversation) -> tuple[Step, ...]:
    """The script of an emulator without one."""
    return (Say("Hello."),)


def pieces(text: str, count: int) -> Iterator[str]:
    """`text` in at most `count` pieces of about the same length, none of them empty."""
    size = max(1, -(-len(text) // max(1, count)))
    for start in range(0, len(text), size):
        yield text[start : start + size]
