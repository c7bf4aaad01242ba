"""Agents that pause at named points of their answer until a test releases them, also inside another process.

A message "POINT NAME" pauses at that point, under that name; any other text is answered with all earlier messages of the
context.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from gateway.testing.serving import serve
from tests.emulators.responses_server import ResponsesServer
from tests.emulators.scripts import Conversation, Delay, Pause, Say, ServerTool, Step

# The agent that runs inside the gateway reports to a port of the test and waits there.
_SOURCE = """
import asyncio

from gateway.agent import ToolCall, ToolResult


async def hold(text):
    reader, writer = await asyncio.open_connection("127.0.0.1", {port})
    writer.write(text.encode() + b"\\n")
    await reader.read()
    writer.close()
    await writer.wait_closed()


async def reply(turn):
    point = turn.text.partition(" ")[0]
    if point == "silent":
        await hold(turn.text)
    elif point == "talking":
        yield "one "
        yield "two "
        await hold(turn.text)
        yield "three"
        return
    elif point == "calling":
        yield "wait "
        yield ToolCall("call_1", "lookup", {{"city": "Oslo"}})
        await hold(turn.text)
        yield ToolResult("call_1", {{"result": "3C"}})
    elif point == "called":
        yield ToolCall("call_1", "lookup", {{"city": "Oslo"}})
        yield ToolResult("call_1", {{"result": "3C"}})
        yield "so "
        await hold(turn.text)
    elif point == "flooding":
        while True:
            yield "tick "
            await asyncio.sleep(0)
    earlier = [part["text"] for entry in turn.history if entry["role"] == "ROLE_USER" for part in entry["parts"]]
    yield " | ".join([*earlier, turn.text])
"""

POINTS = ("silent", "talking", "calling", "called", "flooding")
AGENTS = ("function", "chained")


@dataclass(slots=True)
class PausedAgents:
    """`arrived` is set when the agent stops for a message of that text, `go_on` lets it continue."""

    backend: ResponsesServer = field(init=False)
    agents: str = ""
    arrived: defaultdict[str, asyncio.Event] = field(default_factory=lambda: defaultdict(asyncio.Event))
    go_on: defaultdict[str, asyncio.Event] = field(default_factory=lambda: defaultdict(asyncio.Event))

    async def hold(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One pause of the agent inside the gateway; the kill of its gateway ends the pause."""
        text = (await reader.readline()).decode().strip()
        self.arrived[text].set()
        async with asyncio.TaskGroup() as group:
            let_go, gone = group.create_task(self.go_on[text].wait()), group.create_task(reader.read())
            await asyncio.wait((let_go, gone), return_when=asyncio.FIRST_COMPLETED)
            let_go.cancel()
            gone.cancel()
        writer.close()

    def script(self, conversation: Conversation) -> Iterator[Step]:
        text = conversation.text
        match text.partition(" ")[0]:
            case "silent":
                yield from self._stop(text)
            case "talking":
                yield Say("one ")
                yield Say("two ")
                yield from self._stop(text)
                yield Say("three")
                return
            case "calling":
                yield Say("wait ")
                self.arrived[text].set()
                yield ServerTool("mcp", "lookup", {"city": "Oslo"}, "3C", during=Pause(self.go_on[text]))
            case "called":
                yield ServerTool("mcp", "lookup", {"city": "Oslo"}, "3C")
                yield Say("so ")
                yield from self._stop(text)
            case "flooding":
                while True:
                    yield Say("tick ")
                    yield Delay(0)
        yield Say(" | ".join(conversation.user_texts))

    def _stop(self, text: str) -> Iterator[Step]:
        self.arrived[text].set()
        yield Pause(self.go_on[text])


@asynccontextmanager
async def paused_agents(directory: Path) -> AsyncIterator[PausedAgents]:
    """The agents `function` and `chained`, and what they need to run; `directory` is that of the configuration."""
    held = PausedAgents()
    held.backend = ResponsesServer(held.script)
    stops = await asyncio.start_server(held.hold, "127.0.0.1", 0)
    port = stops.sockets[0].getsockname()[1]
    (directory / "held.py").write_text(_SOURCE.format(port=port))
    try:
        async with serve(held.backend.app) as url:
            held.agents = (
                "function: {type: python, ref: './held.py:reply'}\n"
                f"chained: {{type: openai-responses, model: m, base_url: '{url}/v1'}}"
            )
            yield held
    finally:
        stops.close()
        await stops.wait_closed()
