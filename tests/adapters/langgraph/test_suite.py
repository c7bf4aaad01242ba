"""The conformance suite against the emulator of an Agent Server."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack
from typing import Any

import pytest

from adapters.langgraph.adapter import factory
from gateway.ports.adapter import Adapter
from gateway.testing.serving import serve
from tests.adapters.emulator_suite import EmulatorSuite
from tests.adapters.emulator_support import KEY, plays, trickling
from tests.emulators.langgraph_server import LangGraphServer
from tests.emulators.scripts import ErrorEvent, Item, Say, ServerTool, Status
from tests.openapi import langgraph_judge


class TestLangGraph(EmulatorSuite):
    factory = factory
    emulator = LangGraphServer
    server: LangGraphServer

    @pytest.fixture
    async def adapter(self) -> AsyncGenerator[Adapter]:
        self.server = LangGraphServer(api_key=KEY, validator=langgraph_judge())
        self.released, self.resumes = asyncio.Event(), asyncio.Event()
        async with AsyncExitStack() as stack:
            self.stop = stack.aclose
            app = trickling(self.server.app, lambda: self.trickles)
            url = await stack.enter_async_context(serve(app))
            built = factory.build(factory.settings.model_validate({"url": url, "api_key": KEY}))
            yield built
            await built.aclose()
        assert self.server.violations == []

    async def backend_fails(self) -> None:
        self.server.script = plays(ErrorEvent("AuthenticationError", f"Incorrect API key provided: {KEY}."))

    async def backend_answers_status(self, status: int) -> None:
        self.server.script = plays(Status(status, {"detail": f"No, not for {KEY}."}))

    async def backend_goes_on(self, *pieces: str) -> None:
        await super().backend_goes_on(*pieces)
        await self.server.runs[-1].ended.wait()

    async def backend_is_released(self) -> None:
        """A run goes on when its listener leaves."""
        await self.server.left.wait()

    async def backend_asks(self, question: str) -> None:
        self.server.script = plays(Item({"interrupt": question}))

    async def backend_waits(self) -> bool:
        [*_, thread] = self.server.threads.values()
        return bool(thread.interrupts)

    async def backend_runs_tool(self, name: str, arguments: dict[str, Any], output: str) -> None:
        self.server.script = plays(ServerTool("mcp", name, arguments, output), Say("Found."))

    async def backend_calls(self, *rounds: Sequence[tuple[str, dict[str, Any]]]) -> None:
        pytest.skip("a graph brings its own tools, and runs them")

    async def backend_received(self) -> list[list[tuple[str, str]]]:
        bodies = [body for body in self.server.requests if "assistant_id" in body]
        return [[(message["role"], message["content"]) for message in body["input"]["messages"]] for body in bodies]
