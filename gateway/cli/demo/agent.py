"""The Python agent of the demo: a function that calls a tool of its own and remembers the conversation."""

import asyncio
from collections.abc import AsyncIterator

from gateway.agent import Status, ToolCall, ToolResult, Turn

_PACE = 0.05
"""Seconds between two parts of the answer, so that a person sees them arrive."""


async def reply(turn: Turn) -> AsyncIterator[str | Status | ToolCall | ToolResult]:
    """Counts words, and quotes the first message of the conversation from the second one on."""
    yield Status("counting the words")
    yield ToolCall("count", "count_words", {"text": turn.text})
    await asyncio.sleep(_PACE * 8)
    words = len(turn.text.split())
    yield ToolResult("count", {"words": words})
    yield f"Your message has {words} {'word' if words == 1 else 'words'}."
    earlier = [message for message in turn.history if message["role"] == "ROLE_USER"]
    if earlier:
        await asyncio.sleep(_PACE)
        first = "".join(part.get("text", "") for part in earlier[0]["parts"])
        yield f' It is message {len(earlier) + 1} of our conversation. You first said: "{first}".'
