"""An agent that uses three tools before it answers, for the clients that show them."""

from collections.abc import AsyncIterator

from gateway.agent import Status, ToolCall, ToolResult, Turn


async def reply(turn: Turn) -> AsyncIterator[str | Status | ToolCall | ToolResult]:
    yield Status("looking it up")
    yield ToolCall("c1", "weather", {"city": "Oslo"})
    yield ToolResult("c1", {"sky": "grey", "degrees": 3})
    yield ToolCall("c2", "clock", {})
    yield ToolResult("c2", "noon")
    yield ToolCall("c3", "news", {"day": "today"})
    yield ToolResult("c3", "no paper today", error=True)
    earlier = [entry for entry in turn.history if entry["role"] == "ROLE_USER"]
    yield "Grey, "
    yield f"3 degrees; message {len(earlier) + 1}."


CALLS = [("weather", {"city": "Oslo"}), ("clock", {}), ("news", {"day": "today"})]
RESULTS = [
    ("weather", {"sky": "grey", "degrees": 3}),
    ("clock", {"result": "noon"}),
    ("news", {"error": {"code": "failed", "message": "no paper today"}}),
]
ANSWER = "Grey, 3 degrees; message {}."
