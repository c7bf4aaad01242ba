"""One behaviour for every kind of agent, so that one test serves all: the answer repeats all messages of the context.

"hold NAME" waits in the middle of the answer until `gate("hold NAME")` is set, "tool" lets the agent use a tool of its own,
"ask" asks a question back (functions only).
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence

from gateway.agent import InputRequired, ToolCall, ToolResult, Turn
from tests.emulators.scripts import Conversation, Pause, Say, ServerTool, Step

_GATES: dict[str, asyncio.Event] = {}


def gate(text: str) -> asyncio.Event:
    return _GATES.setdefault(text, asyncio.Event())


def knows(*said: str) -> str:
    """The answer to the last of these messages of one context."""
    return f"You said {', then '.join(said)}."


async def reply(turn: Turn) -> AsyncIterator[str | ToolCall | ToolResult]:
    """The agent as a Python function."""
    if turn.text == "ask":
        raise InputRequired("Which city?")
    if turn.text.startswith("hold"):
        yield "before "
        await gate(turn.text).wait()
        yield "after"
        return
    if turn.text == "tool":
        yield ToolCall("call_1", "lookup", {"city": "Oslo"})
        yield ToolResult("call_1", {"result": "3C"})
    earlier = [part["text"] for entry in turn.history if entry["role"] == "ROLE_USER" for part in entry["parts"]]
    for piece in _in_pieces([*earlier, turn.text]):
        yield piece


def script(conversation: Conversation) -> Iterator[Step]:
    """The agent as what a model service answers."""
    if conversation.text.startswith("hold"):
        yield Say("before ")
        yield Pause(gate(conversation.text))
        yield Say("after")
        return
    if conversation.text == "tool":
        yield ServerTool("mcp", "lookup", {"city": "Oslo"}, "3C")
    for piece in _in_pieces(conversation.user_texts):
        yield Say(piece)


def _in_pieces(said: Sequence[str]) -> list[str]:
    return [f"{word} " for word in knows(*said).split(" ")[:-1]] + knows(*said).split(" ")[-1:]
