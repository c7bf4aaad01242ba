"""The agent that every official client talks to: the echo agent, and what the text "fail", "given" and "sent" ask for."""

import json
from collections.abc import AsyncIterator
from typing import Any

from gateway.agent import ToolCall, ToolResult, Turn
from tests.interop import echo_agent

PARTS: list[dict[str, Any]] = [
    {"raw": "QSBub3RlLg==", "filename": "note.txt", "mediaType": "text/plain"},
    {"url": "https://files.example/plan.pdf", "filename": "plan.pdf", "mediaType": "application/pdf"},
    {"data": {"rooms": 2, "pets": ["cat"]}},
]
"""Two files and data as A2A 1.0 writes them: the clients send these, and the agent gives them."""


async def reply(turn: Turn) -> AsyncIterator[str | dict[str, Any] | ToolCall | ToolResult]:
    match turn.text:
        case "fail":
            raise RuntimeError("out of order")
        case "given":
            for part in PARTS:
                yield part
        case "sent":
            _text, *parts = turn.message["parts"]
            yield json.dumps(parts)
        case _:
            async for piece in echo_agent.reply(turn):
                yield piece
