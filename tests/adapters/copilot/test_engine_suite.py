"""The conformance suite against the engine itself."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack
from typing import Any

import pytest

from adapters.copilot.adapter import factory
from gateway.ports.adapter import Adapter
from gateway.testing.adapter_scripts import skip
from gateway.testing.serving import serve
from tests.adapters.copilot.copilot_support import build
from tests.adapters.emulator_suite import EmulatorSuite
from tests.adapters.emulator_support import KEY, plays, trickling
from tests.emulators.copilot_engine import CopilotEngine
from tests.emulators.scripts import Say, ServerTool


class TestDirectToEngine(EmulatorSuite):
    factory = factory
    server: CopilotEngine

    @pytest.fixture
    async def adapter(self) -> AsyncGenerator[Adapter]:
        self.server = CopilotEngine(plays(), api_key=KEY)
        self.released, self.resumes = asyncio.Event(), asyncio.Event()
        async with AsyncExitStack() as stack:
            self.stop = stack.aclose
            origin = await stack.enter_async_context(serve(trickling(self.server.app, lambda: self.trickles)))
            url = f"{origin}/copilotstudio/dataverse-backed/authenticated/bots/agent/conversations?api-version=1"
            adapter = build(direct_to_engine={"url": url, "token": KEY})
            yield adapter
            await adapter.aclose()

    async def backend_runs_tool(self, name: str, arguments: dict[str, Any], output: str) -> None:
        self.server.script = plays(ServerTool("mcp", name, arguments, output), Say("Done"))

    async def backend_received(self) -> list[list[tuple[str, str]]]:
        turns = [body["activity"]["text"] for body in self.server.requests if "activity" in body]
        return [[("user", text)] for text in turns]

    async def backend_calls(self, *rounds: Sequence[tuple[str, dict[str, Any]]]) -> None:
        skip("backend_calls", *rounds)
