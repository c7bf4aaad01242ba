"""The conformance suite against Direct Line, by WebSocket and by polling."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack
from typing import Any

import pytest

from adapters.copilot.adapter import factory
from gateway.ports.adapter import Adapter
from gateway.testing.adapter_scripts import skip
from tests.adapters.copilot.copilot_support import SECRET, by_secret
from tests.adapters.emulator_suite import EmulatorSuite
from tests.adapters.emulator_support import plays
from tests.emulators.direct_line_bots import ScriptedLine
from tests.emulators.scripts import Conversation, NoTerminal, Say, ServerTool, Status, Step


class TestDirectLine(EmulatorSuite):
    secret = SECRET
    factory = factory
    server: Any

    sockets = True

    @pytest.fixture
    async def adapter(self) -> AsyncGenerator[Adapter]:
        self.server = ScriptedLine(plays(), api_key=SECRET)
        self.server.sockets = self.sockets
        self.released, self.resumes = asyncio.Event(), asyncio.Event()
        async with AsyncExitStack() as stack:
            self.stop = stack.aclose
            await stack.enter_async_context(self.server.serve())
            adapter = by_secret(self.server)
            yield adapter
            await adapter.aclose()

    async def backend_echoes(self) -> None:
        self.server.script = lambda conversation: [Say(conversation.text, chunks=3)]

    async def backend_trickles(self) -> None:
        skip("backend_trickles")

    async def backend_fails(self) -> None:
        error = {"code": "ServiceError", "message": f"Incorrect secret: {SECRET}."}
        self.server.script = plays(Status(500, {"error": error}))

    async def backend_answers_status(self, status: int) -> None:
        self.server.script = plays(Status(status, {"error": {"code": "BadArgument", "message": f"No: {SECRET}."}}))

    async def backend_breaks_off(self, *pieces: str) -> None:
        async def script(_: Conversation) -> AsyncGenerator[Step]:
            for piece in pieces:
                yield Say(piece)
            await self.server.only.break_down()
            yield NoTerminal()

        self.server.script = script

    async def backend_is_released(self) -> None:
        await self.server.only.left.wait()

    async def backend_runs_tool(self, name: str, arguments: dict[str, Any], output: str) -> None:
        self.server.script = plays(ServerTool("mcp", name, arguments, output), Say("Done"))

    async def backend_received(self) -> list[list[tuple[str, str]]]:
        return [[("user", activity["text"])] for activity in self.server.requests]

    async def backend_calls(self, *rounds: Sequence[tuple[str, dict[str, Any]]]) -> None:
        skip("backend_calls", *rounds)


class TestDirectLineByPolling(TestDirectLine):
    sockets = False

    async def backend_stalls(self, *pieces: str) -> None:
        skip("backend_stalls", *pieces)
