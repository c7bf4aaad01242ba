"""Requests that carry nothing of the conversation, before the one that does: no message is at fault where one is refused."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from adapters.a2a import adapter as a2a
from adapters.assistants.adapter import assistants
from adapters.copilot import adapter as copilot
from adapters.langgraph import adapter as langgraph
from adapters.openai.responses import adapter as responses
from gateway.ports.adapter import AdapterError, AnyAdapterFactory, ErrorClass
from gateway.testing.adapter_scripts import collect, request
from tests.adapters.raw_server import Exchange, StartRaw, plain

ENGINE = "/copilotstudio/dataverse-backed/authenticated/bots/b/conversations"
AGENTS: dict[str, tuple[AnyAdapterFactory, Callable[[str], dict[str, Any]]]] = {
    "a2a card": (a2a.factory, lambda url: {"url": url}),
    "assistants thread": (assistants, lambda url: {"base_url": f"{url}/v1", "api_key": "k", "assistant_id": "asst_1"}),
    "copilot-studio engine": (
        copilot.factory,
        lambda url: {"direct_to_engine": {"url": f"{url}{ENGINE}", "token": "t"}},
    ),
    "copilot-studio line": (
        copilot.factory,
        lambda url: {"direct_line": {"url": f"{url}/v3/directline", "secret": "s"}},
    ),
    "copilot-studio token": (copilot.factory, lambda url: {"direct_line": {"token_endpoint": f"{url}/token"}}),
    "langgraph thread": (langgraph.factory, lambda url: {"url": url, "assistant": "agent"}),
    "openai-responses conversation": (
        responses.factory,
        lambda url: {"base_url": f"{url}/v1", "api_key": "k", "model": "m", "conversation": True},
    ),
}


@pytest.mark.parametrize("agent", AGENTS)
@pytest.mark.parametrize("status", ["400 Bad Request", "413 Too Large", "415 Unsupported", "422 Unprocessable"])
async def test_a_refusal_is_about_no_message(raw: StartRaw, agent: str, status: str) -> None:
    async def refuse(exchange: Exchange) -> None:
        body = json.dumps({"error": {"code": "Odd", "message": "odd"}}).encode()
        await exchange.send(plain(status, body, Content_Type="application/json"))

    server, (factory, settings) = await raw(refuse), AGENTS[agent]
    adapter = factory.build(factory.settings.model_validate(settings(server.url)))
    with pytest.raises(AdapterError) as caught:
        await collect(adapter, request("Hi"))
    await adapter.aclose()
    assert caught.value.kind is ErrorClass.NOT_SERVED
