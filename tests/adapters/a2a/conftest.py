"""Agents of the emulator that last as long as the test, with an adapter in front of each."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any, TypeAlias

import pytest

from adapters.a2a.adapter import A2AAdapter, factory
from gateway.testing.serving import serve
from tests.adapters.emulator_support import KEY
from tests.emulators.a2a_agent import A2AAgent
from tests.emulators.scripts import Item

Reach: TypeAlias = Callable[..., Awaitable[A2AAdapter]]


def adapter_at(url: str, **values: Any) -> A2AAdapter:
    """As the gateway makes it; it looks at a task every 100 ms."""
    settings = {"url": url, "api_key": KEY, "poll": "100ms", **values}
    return A2AAdapter(factory.settings.model_validate(settings))


def left_in(state: str, words: str = "Which?", **metadata: Any) -> Item:
    message = {"messageId": words, "role": "ROLE_AGENT", "parts": [{"text": words}], "metadata": metadata}
    return Item({"statusUpdate": {"status": {"state": f"TASK_STATE_{state}", "message": message}}})


@pytest.fixture
def agent() -> A2AAgent:
    return A2AAgent(lambda _: (), api_key=KEY)


@pytest.fixture
async def reach() -> AsyncGenerator[Reach]:
    """Serves an emulator, and gives an adapter of it."""
    async with AsyncExitStack() as stack:

        async def reached(agent: A2AAgent, **values: Any) -> A2AAdapter:
            adapter = adapter_at(await stack.enter_async_context(serve(agent.app)), **values)
            stack.push_async_callback(adapter.aclose)
            return adapter

        yield reached
