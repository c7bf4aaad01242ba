"""Servers and adapters that last as long as the test."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from gateway.ports.adapter import Adapter, AnyAdapterFactory
from gateway.testing.serving import serve
from tests.adapters.emulator_support import Build, Start, settings
from tests.adapters.raw_server import Answer, RawServer, StartRaw
from tests.emulators.server import Emulator


@pytest.fixture
async def raw() -> AsyncGenerator[StartRaw]:
    """Starts raw servers."""
    async with AsyncExitStack() as stack:

        async def start(answer: Answer) -> RawServer:
            server = RawServer(answer)
            listener = await asyncio.start_server(server.serve_connection, "127.0.0.1", 0, backlog=200)
            stack.push_async_callback(server.stop)
            stack.callback(listener.close)
            server.url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
            return server

        yield start


@pytest.fixture
async def start() -> AsyncGenerator[Start]:
    """Starts emulators, and gives their base URLs."""
    async with AsyncExitStack() as stack:

        async def started(emulator: Emulator) -> str:
            return f"{await stack.enter_async_context(serve(emulator.app))}/v1"

        yield started


@pytest.fixture
async def build() -> AsyncGenerator[Build]:
    """Makes adapters as the gateway does."""
    adapters: list[Adapter] = []

    def built(factory: AnyAdapterFactory, url: str, **values: Any) -> Adapter:
        adapters.append(factory.build(factory.settings.model_validate(settings(url, **values))))
        return adapters[-1]

    yield built
    for adapter in adapters:
        await adapter.aclose()
