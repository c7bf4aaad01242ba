"""The A2A adapter passes the conformance suite over each binding, in each version, and where an agent does not stream."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import Any, ClassVar

import pytest

from adapters.a2a.adapter import factory
from gateway.ports.adapter import Adapter
from gateway.testing.adapter_scripts import skip
from gateway.testing.serving import serve
from tests.adapters.a2a.conftest import adapter_at, left_in
from tests.adapters.emulator_suite import EmulatorSuite
from tests.adapters.emulator_support import KEY, plays, trickling
from tests.emulators.a2a_agent import A2AAgent
from tests.emulators.a2a_events import WAITING
from tests.emulators.scripts import Fail, Say, ServerTool


class _Suite(EmulatorSuite):
    factory = factory
    emulator: ClassVar[Any] = A2AAgent
    values: ClassVar[Mapping[str, Any]] = {}
    server: A2AAgent

    @pytest.fixture
    async def adapter(self) -> AsyncGenerator[Adapter]:
        self.server = type(self).emulator(plays(), api_key=KEY)
        self.released, self.resumes = asyncio.Event(), asyncio.Event()
        async with AsyncExitStack() as stack:
            self.stop = stack.aclose
            url = await stack.enter_async_context(serve(trickling(self.server.app, lambda: self.trickles)))
            adapter = adapter_at(url, **self.values)
            yield adapter
            await adapter.aclose()

    async def backend_fails(self) -> None:
        self.server.script = plays(Fail(message=f"The key {KEY} is of no use."))

    async def backend_is_released(self) -> None:
        await self.server.left.wait()

    async def backend_goes_on(self, *pieces: str) -> None:
        self.rest = pieces
        self.resumes.set()
        [*_, run] = self.server.runs.values()
        await run.settle()

    async def backend_asks(self, question: str) -> None:
        self.server.script = plays(left_in("INPUT_REQUIRED", question))

    async def backend_waits(self) -> bool:
        [*_, run] = self.server.runs.values()
        return run.state in WAITING

    async def backend_runs_tool(self, name: str, arguments: dict[str, Any], output: str) -> None:
        self.server.script = plays(ServerTool("mcp", name, arguments, output), Say("There it is."))

    async def backend_calls(self, *rounds: Sequence[tuple[str, dict[str, Any]]]) -> None:
        skip("backend_calls", *rounds)

    async def backend_received(self) -> list[list[tuple[str, str]]]:
        return [
            [("user", "".join(part["text"] for part in sent["message"]["parts"] if "text" in part))]
            for sent in self.server.sent
        ]


class TestJsonRpc(_Suite):
    """A2A 1.0 by JSON-RPC."""


class TestRest(_Suite):
    """A2A 1.0 by HTTP+JSON."""

    values: ClassVar = {"transport": "HTTP+JSON"}


class TestBelowV1(_Suite):
    """A2A 0.3 by JSON-RPC."""

    emulator: ClassVar = partial(A2AAgent, version="0.3")


class _Whole(_Suite):
    """The agent gives whole tasks, so no connection waits for an answer."""

    async def backend_is_released(self) -> None:
        pytest.skip("no connection waits")

    async def backend_breaks_off(self, *pieces: str) -> None:
        pytest.skip(f"a task that has said {pieces!r} and nothing more is still at work")


class TestWhole(_Whole):
    """A2A 1.0 by JSON-RPC, without streams."""

    emulator: ClassVar = partial(A2AAgent, streaming=False)


class TestWholeBelowV1(_Whole):
    """A2A 0.3 by JSON-RPC, without streams."""

    emulator: ClassVar = partial(A2AAgent, streaming=False, version="0.3")
