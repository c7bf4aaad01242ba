"""An Agent Server of LangGraph in front of the adapter."""

from collections.abc import AsyncGenerator, Callable
from typing import Any

import pytest

from adapters.langgraph.adapter import LangGraphAdapter, factory
from gateway.testing.serving import serve
from tests.adapters.emulator_support import KEY
from tests.emulators.langgraph_server import LangGraphServer
from tests.openapi import langgraph_judge


@pytest.fixture
async def server() -> LangGraphServer:
    """Refuses requests that violate the vendor's API description, and any other key."""
    return LangGraphServer(api_key=KEY, validator=langgraph_judge())


@pytest.fixture
async def url(server: LangGraphServer) -> AsyncGenerator[str]:
    async with serve(server.app) as url:
        yield url


@pytest.fixture
async def build(url: str) -> AsyncGenerator[Callable[..., LangGraphAdapter]]:
    """Makes adapters as the gateway does."""
    made: list[LangGraphAdapter] = []

    def built(**values: Any) -> LangGraphAdapter:
        settings = factory.settings.model_validate({"url": url, "api_key": KEY} | values)
        adapter = factory.build(settings)
        assert isinstance(adapter, LangGraphAdapter)
        made.append(adapter)
        return adapter

    yield built
    for adapter in made:
        await adapter.aclose()


@pytest.fixture
def adapter(build: Callable[..., LangGraphAdapter]) -> LangGraphAdapter:
    return build()
