"""How real servers report a response of unknown outcome."""

from collections.abc import AsyncIterator

import pytest

from adapters.openai.responses.adapter import ResponsesAdapter, factory
from gateway.ports.adapter import CallCompleted, CallStarted
from gateway.ports.capabilities import Fate, Fetched, Ongoing
from gateway.testing.adapter_scripts import collect, completed, first_text, request, text
from tests.interop.peer_processes import Peer


async def _adapter(url: str) -> AsyncIterator[ResponsesAdapter]:
    built = factory.build(factory.settings.model_validate({"model": "openai/gpt-4", "base_url": url}))
    assert isinstance(built, ResponsesAdapter)
    yield built
    await built.aclose()


@pytest.fixture
async def on_ogx(ogx_peer: Peer) -> AsyncIterator[ResponsesAdapter]:
    async for built in _adapter(ogx_peer.url):
        yield built


@pytest.fixture
async def on_agentserver(agentserver_peer: Peer) -> AsyncIterator[ResponsesAdapter]:
    async for built in _adapter(agentserver_peer.url):
        yield built


async def _completed_then_gone(adapter: ResponsesAdapter) -> None:
    given = await collect(adapter, request("one"))
    ended = completed(given)
    assert ended.handle is not None
    found = await adapter.fetch(Ongoing(ended.handle))
    assert (found.fate, text(found.events)) == (Fate.COMPLETED, text(given))
    last = found.events[-1]
    assert isinstance(last, CallCompleted)
    assert (last.handle, last.stored) == (ended.handle, ended.stored)
    await adapter.forget(ended.handle)
    assert await adapter.fetch(Ongoing(ended.handle)) == Fetched(Fate.GONE)
    await adapter.forget(ended.handle)


async def test_ogx_tells_of_a_response_until_it_is_deleted(on_ogx: ResponsesAdapter) -> None:
    await _completed_then_gone(on_ogx)


async def test_a_hosted_agent_tells_of_a_response_until_it_is_deleted(on_agentserver: ResponsesAdapter) -> None:
    await _completed_then_gone(on_agentserver)


async def test_ogx_says_that_a_response_runs_whose_client_left(on_ogx: ResponsesAdapter) -> None:
    """The status stays so: the server never ends the response."""
    events = on_ogx.call(request("slow"))
    started = await anext(events)
    assert isinstance(started, CallStarted)
    assert started.handle is not None
    await first_text(events)
    await events.aclose()
    assert await on_ogx.fetch(Ongoing(started.handle)) == Fetched(Fate.RUNNING)
