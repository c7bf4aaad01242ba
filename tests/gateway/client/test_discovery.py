"""From the typed address to the endpoint: cards, interfaces, endpoints without a card."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from gateway.client.discovery import CARD, Binding, Endpoint, card_address, discover, fetch_card
from gateway.client.transport import NotA2A, Refused, open_http
from gateway.testing.serving import serve
from tests.gateway.cli.scripted_agent import ScriptedAgent

Json = Any


async def found(agent: ScriptedAgent, path: str = "", binding: Binding | None = None) -> Endpoint:
    async with open_http(agent.url) as http:
        return await discover(http, f"{agent.url}{path}", None, binding)


def offers(*interfaces: tuple[str, str]) -> Json:
    items = [
        {"url": f"http://agent.example/{binding}", "protocolBinding": binding, "protocolVersion": version}
        for binding, version in interfaces
    ]
    return {"supportedInterfaces": items}


@pytest.mark.parametrize(
    ("url", "agent", "address"),
    [
        ("http://h:1", None, "http://h:1/.well-known/agent-card.json"),
        ("http://h:1/a2a/x/", None, "http://h:1/a2a/x/.well-known/agent-card.json"),
        ("http://h:1/", "notes", "http://h:1/a2a/notes/.well-known/agent-card.json"),
        ("http://h:1", "a/b", "http://h:1/a2a/a%2Fb/.well-known/agent-card.json"),
        ("http://h:1/cards/my.json", None, "http://h:1/cards/my.json"),
    ],
)
def test_a_card_is_searched_below_the_typed_address(url: str, agent: str | None, address: str) -> None:
    assert card_address(url, agent) == address


async def test_the_card_names_the_endpoint() -> None:
    async with ScriptedAgent(card={"capabilities": {}}).running() as agent:
        card = f"{agent.url}/.well-known/agent-card.json"
        expected = Endpoint(f"{agent.url}/rpc", Binding.JSONRPC, None, streaming=False, card=card)
        assert await found(agent) == expected
        assert await found(agent, "/.well-known/agent-card.json") == expected


async def test_an_interface_may_have_a_tenant_and_a_relative_address() -> None:
    item = {"url": "/here", "protocolBinding": "JSONRPC", "protocolVersion": "1.0.2", "tenant": "blue"}
    async with ScriptedAgent(card={"supportedInterfaces": [item]}).running() as agent:
        endpoint = await found(agent)
        assert (endpoint.url, endpoint.tenant) == (f"{agent.url}/here", "blue")


@pytest.mark.parametrize(
    ("asked", "chosen"), [(None, Binding.REST), (Binding.JSONRPC, Binding.JSONRPC), (Binding.REST, Binding.REST)]
)
async def test_the_first_usable_interface_is_chosen_or_the_requested_one(
    asked: Binding | None, chosen: Binding
) -> None:
    card = offers(("GRPC", "1.0"), ("HTTP+JSON", "1.0"), ("JSONRPC", "1.0"))
    async with ScriptedAgent(card=card).running() as agent:
        assert (await found(agent, binding=asked)).binding is chosen


@pytest.mark.parametrize(
    ("card", "words"),
    [
        (
            offers(("JSONRPC", "0.3"), ("GRPC", "1.0")),
            "offers no A2A 1.0 over HTTP\\+JSON or JSONRPC; it offers JSONRPC 0.3",
        ),
        ({"supportedInterfaces": "none"}, "it offers nothing"),
    ],
)
async def test_a_card_without_a_usable_interface_is_reported(card: Json, words: str) -> None:
    async with ScriptedAgent(card=card).running() as agent:
        with pytest.raises(NotA2A, match=words):
            await found(agent)


async def test_an_endpoint_of_json_rpc_is_found_in_the_card_at_the_root() -> None:
    async with ScriptedAgent(card={"capabilities": {"streaming": True}}).running() as agent:
        endpoint = await found(agent, "/rpc")
        assert endpoint == Endpoint(
            f"{agent.url}/rpc", Binding.JSONRPC, streaming=True, card=f"{agent.url}/.well-known/agent-card.json"
        )


async def test_an_address_without_any_card_is_taken_for_the_endpoint() -> None:
    async with ScriptedAgent(card=False).running() as agent:
        assert await found(agent, "/rpc") == Endpoint(f"{agent.url}/rpc", Binding.JSONRPC)
        assert await found(agent, "/v1", Binding.REST) == Endpoint(f"{agent.url}/v1", Binding.REST)


async def test_a_server_without_a_card_is_reported() -> None:
    async with ScriptedAgent(card=False).running() as agent, open_http(agent.url) as http:
        for attempt in (discover(http, agent.url), fetch_card(http, agent.url)):
            with pytest.raises(NotA2A) as caught:
                await attempt
            assert str(caught.value) == f"there is no agent card at {agent.url}/.well-known/agent-card.json"


async def test_a_refused_card_is_reported_with_its_error() -> None:
    async with ScriptedAgent().running() as agent, open_http(agent.url) as http:
        agent.app.routes.clear()
        agent.app.add_route("/.well-known/agent-card.json", refuse)
        with pytest.raises(Refused) as caught:
            await fetch_card(http, agent.url)
        assert caught.value.status == 401


async def refuse(_: object) -> Json:
    from starlette.responses import JSONResponse

    return JSONResponse({"error": {"code": 401, "message": "who are you?"}}, 401)


@asynccontextmanager
async def gateway(public_url: str, card_below: int = 200) -> AsyncIterator[str]:
    """The cards of a gateway with the agents a, its default, and b; `card_below` is the status of the cards below /a2a/."""

    async def card(request: Request) -> Response:
        name = request.path_params.get("name", "a")
        item = {"url": f"{public_url}/a2a/{name}", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
        status = card_below if "name" in request.path_params else 200
        return JSONResponse({"name": name, "supportedInterfaces": [item]} if status == 200 else {}, status)

    paths = (f"/{CARD}", f"/a2a/{CARD}", f"/a2a/{{name}}/{CARD}")
    async with serve(Starlette(routes=[Route(path, card) for path in paths])) as url:
        yield url


@pytest.mark.parametrize("public_url", ["https://agents.example", "https://agents.example/base", "http://127.0.0.1:1"])
@pytest.mark.parametrize(
    ("typed", "agent", "path"),
    [
        ("", None, "/a2a/a"),
        ("/", None, "/a2a/a"),
        ("/a2a", None, "/a2a/a"),
        (f"/{CARD}", None, "/a2a/a"),
        ("", "b", "/a2a/b"),
        ("/a2a/b", None, "/a2a/b"),
        ("/a2a/b/", None, "/a2a/b"),
        (f"/a2a/b/{CARD}", None, "/a2a/b"),
    ],
)
async def test_the_typed_address_of_a_gateway_wins_over_the_address_that_its_cards_give(
    public_url: str, typed: str, agent: str | None, path: str
) -> None:
    async with gateway(public_url) as url, open_http(url) as http:
        assert (await discover(http, f"{url}{typed}", agent)).url == f"{url}{path}"


@pytest.mark.parametrize("status", [401, 404, 500])
async def test_an_agent_that_is_not_at_the_typed_address_is_called_where_its_card_says(status: int) -> None:
    async with gateway("https://agents.example", status) as url, open_http(url) as http:
        assert (await discover(http, url)).url == "https://agents.example/a2a/a"


async def test_a_card_among_others_leads_to_the_agent_that_it_describes() -> None:
    async with ScriptedAgent(card=offers(("JSONRPC", "1.0"))).running() as agent:
        assert (await found(agent)).url == "http://agent.example/JSONRPC"
