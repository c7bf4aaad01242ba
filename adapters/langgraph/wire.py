"""What a LangGraph Agent Server sends: messages, runs, interrupts, threads. Law: it knows the form of values, and not what
follows from them; unknown members are ignored, and a missing one has the value that the server leaves out.

Source: langgraph-api 0.16.7, its API description and its streams; langchain-core 1.8.3, `langchain_core.messages`.
"""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

import msgspec

from gateway.a2a.model import Json

AI = frozenset({"ai", "AIMessageChunk"})
TOOL = frozenset({"tool", "ToolMessageChunk"})
HUMAN = "human"
CHUNK = "AIMessageChunk"
LAST = "last"
INTERRUPTS = "__interrupt__"

RUNNING = frozenset({"pending", "running"})
SUCCESS = "success"
INTERRUPTED = "interrupted"
CONTEXT = "a2a_gateway_context"
"""A name in the metadata of a run: the context whose message has begun it."""
BUSY = "busy"
IDLE = "idle"


class ToolCall(msgspec.Struct, frozen=True):
    """A call of a whole message: `args` is an object, or the model's text where that is no JSON."""

    name: str | None = None
    args: Json = None
    id: str | None = None

    @property
    def arguments(self) -> str:
        return self.args if isinstance(self.args, str) else json_text(self.args)


class ToolCallChunk(msgspec.Struct, frozen=True):
    """A piece of a call. Only its first piece has the name and the id; the others have the same `index`."""

    name: str | None = None
    args: str | None = None
    id: str | None = None
    index: Json = None


class Message(msgspec.Struct):
    """A message, or a piece of one. `usage_metadata` of the pieces of a message add up to that of the message."""

    type: str = ""
    content: str | list[Any] | None = ""
    id: str | None = None
    name: str | None = None
    tool_calls: tuple[ToolCall, ...] | None = ()
    invalid_tool_calls: tuple[ToolCall, ...] | None = ()
    tool_call_chunks: tuple[ToolCallChunk, ...] | None = ()
    usage_metadata: dict[str, Json] | None = None
    response_metadata: dict[str, Json] | None = None
    additional_kwargs: dict[str, Json] | None = None
    chunk_position: str | None = None
    tool_call_id: str | None = None
    status: str | None = None

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """Those that have an id: without one no result can name a call."""
        return tuple(call for call in (*(self.tool_calls or ()), *(self.invalid_tool_calls or ())) if call.id)


class Where(msgspec.Struct, frozen=True):
    """The node that sends a message. `langgraph_checkpoint_ns` names the node and its task, which calls one model at a time
    unless it is written to do otherwise."""

    langgraph_checkpoint_ns: str = ""


class RunMetadata(msgspec.Struct, frozen=True):
    """The first event of a run. The server attempts a run again when its process has died."""

    run_id: str
    attempt: int = 1


class RunError(msgspec.Struct, frozen=True):
    """`error` is the class of an exception."""

    error: str = ""
    message: str = ""


class Interrupt(msgspec.Struct, frozen=True):
    """A question of the graph. Its answer is sent under its `id`."""

    id: str
    value: Json = None
    response_schema: Json = None


class Assistant(msgspec.Struct, frozen=True):
    """A graph with settings. The server makes one for each graph, of the graph's name."""

    name: str | None = None
    description: str | None = None
    version: int | None = None


class Run(msgspec.Struct, frozen=True):
    status: str
    run_id: str = ""
    metadata: Json = None

    def works_for(self, context: str) -> bool:
        """Whether it has not ended, and a message of this context of the gateway has begun it."""
        marks = self.metadata if isinstance(self.metadata, dict) else {}
        return self.status in RUNNING and marks.get(CONTEXT) == context


class Thread(msgspec.Struct, frozen=True):
    """`status` is idle, busy, interrupted or error. `interrupts` are the open questions, by the task of the graph."""

    status: str = ""
    values: Json = None
    interrupts: dict[str, list[Interrupt]] = {}

    @property
    def open(self) -> tuple[Interrupt, ...]:
        return tuple(each for asked in self.interrupts.values() for each in asked)

    def messages(self, key: str) -> list[Message]:
        """The messages under this key of the graph's state."""
        return list(messages_of(self.values, key))


class Checkpoint(msgspec.Struct, frozen=True):
    """The place of a state in the history of its thread."""

    checkpoint_id: str | None = None


class State(msgspec.Struct, frozen=True):
    """The state of a thread at one point of its history."""

    values: Json = None
    parent_checkpoint: Checkpoint | None = None


decode_message = msgspec.json.Decoder(tuple[Message, Where]).decode
decode_metadata = msgspec.json.Decoder(RunMetadata).decode
decode_error = msgspec.json.Decoder(RunError).decode
decode_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
decode_interrupts = msgspec.json.Decoder(tuple[Interrupt, ...]).decode


def json_text(value: Json) -> str:
    return msgspec.json.encode(value).decode()


def messages_of(values: Json, key: str) -> Iterator[Message]:
    """The messages in a state or in what a node adds to it. A graph may keep anything under the key."""
    listed = values.get(key) if isinstance(values, dict) else None
    for each in listed if isinstance(listed, list) else (listed,):
        with suppress(msgspec.ValidationError):
            yield msgspec.convert(each, Message)


def added_messages(update: bytes, key: str) -> Iterator[Message]:
    """The messages that a node adds to the state. A node that adds nothing has null; one may have several updates."""
    value = msgspec.json.decode(update)
    for each in value if isinstance(value, list) else (value,):
        yield from messages_of(each, key)


def total(reports: Iterable[dict[str, Json]]) -> dict[str, Json] | None:
    """The sum of reports of tokens, name by name; None for none."""
    whole: dict[str, Json] = {}
    for report in reports:
        for name, value in report.items():
            before = whole.get(name)
            if isinstance(value, dict):
                whole[name] = total([before, value] if isinstance(before, dict) else [value]) or {}
            elif isinstance(value, int | float) and not isinstance(value, bool):
                whole[name] = (before if isinstance(before, int | float) else 0) + value
    return whole or None
