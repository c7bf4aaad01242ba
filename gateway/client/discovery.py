"""Finds the endpoint behind the address that a user types. Law: the card decides, and its first usable interface is chosen; but
an endpoint that the typed address leads to is called there, whatever address the card gives it."""

import re
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from urllib.parse import quote, urljoin, urlsplit

import httpx2

from gateway.client import transport
from gateway.client.transport import ClientError, Json, NotA2A, json_at, objects, text_at
from gateway.foundation.text import did_you_mean

CARD = ".well-known/agent-card.json"
_INTERFACES = "supportedInterfaces"
_OF_A_GATEWAY = re.compile(r"/a2a/[^/]+$")
"""The end of the path of an agent of a gateway."""


class Binding(StrEnum):
    JSONRPC = "JSONRPC"
    REST = "HTTP+JSON"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """`card` is the address of the card that names this interface, None where there is no card."""

    url: str
    binding: Binding
    tenant: str | None = None
    streaming: bool = True
    card: str | None = None


async def fetch_card(http: httpx2.AsyncClient, url: str, agent: str | None = None) -> tuple[str, Json]:
    """The card and its address. `url` is that of the card, or a base; `agent` names one of a gateway at that base.

    Raises: Unreachable, NotA2A, Refused.
    """
    address = card_address(url, agent)
    card = await _card_at(http, address)
    if card is None:
        raise NotA2A(f"there is no agent card at {address}{await _agents_hint(http, url, agent)}")
    return address, card


def card_address(url: str, agent: str | None) -> str:
    base = url.rstrip("/")
    if agent is not None:
        return f"{base}/a2a/{quote(agent, safe='')}/{CARD}"
    return url if urlsplit(url).path.endswith(".json") else f"{base}/{CARD}"


async def discover(
    http: httpx2.AsyncClient, url: str, agent: str | None = None, binding: Binding | None = None
) -> Endpoint:
    """The endpoint for messages. A `url` with a path but without a card is taken for the endpoint itself.

    Raises: Unreachable, NotA2A, Refused.
    """
    address = card_address(url, agent)
    card = await _card_at(http, address)
    if card is None and agent is None and urlsplit(url).path.strip("/") and address != url:
        address = urljoin(url, f"/{CARD}")
        card = await _card_at(http, address)
        named = [item for item in objects(card, _INTERFACES) if item.get("url") == url]
        if not named:
            return Endpoint(url, binding or Binding.JSONRPC)
        card = {**card, _INTERFACES: named}
    if card is None:
        raise NotA2A(f"there is no agent card at {address}{await _agents_hint(http, url, agent)}")
    return await _reached_as_typed(http, _choose(card, address, binding), card, address)


async def _reached_as_typed(http: httpx2.AsyncClient, endpoint: Endpoint, card: Json, address: str) -> Endpoint:
    """The endpoint under the address that its card came from, where it is there, too; the endpoint itself otherwise.

    A card carries the address for everybody (`server.public_url`), which may lead past the machine that the user means.
    """
    folder = address.removesuffix(f"/{CARD}")
    agent = _OF_A_GATEWAY.search(urlsplit(endpoint.url).path.rstrip("/"))
    if agent is None or folder == address or _origin(endpoint.url) == _origin(address):
        return endpoint
    if folder.endswith(agent[0]):
        return replace(endpoint, url=folder)
    here = f"{folder.removesuffix('/a2a')}{agent[0]}"
    with suppress(ClientError):
        if await _card_at(http, f"{here}/{CARD}") == card:
            return replace(endpoint, url=here)
    return endpoint


def _origin(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    return parts.scheme, parts.netloc


async def _card_at(http: httpx2.AsyncClient, address: str) -> Json:
    """None where the answer is no card."""
    with transport.http_errors(address):
        response = await http.get(address, headers={"Accept": "application/json"}, timeout=transport.CONNECT)
    if response.status_code in {401, 403, 407, 421, 429} or response.status_code >= 500:
        raise transport.refused_from(response, transport.read_json(response))
    card = transport.read_json(response)
    return card if response.status_code == 200 and isinstance(card, dict) and "name" in card else None


async def list_agents(http: httpx2.AsyncClient, url: str) -> list[dict[str, Json]]:
    """The cards of the agents of a gateway, each with the agent's name as `agent`. Raises: Unreachable, NotA2A, Refused."""
    listing = f"{url.rstrip('/').removesuffix('/a2a')}/a2a"
    with transport.http_errors(listing):
        response = await http.get(listing, timeout=transport.CONNECT)
    body = transport.read_json(response)
    agents = [item for item in objects(body, "agents") if text_at(item, "agent")]
    if not agents and response.status_code >= 400 and response.status_code != 404:
        raise transport.refused_from(response, body)
    if not agents:
        raise NotA2A(f"there is no list of agents at {listing}: that is no gateway of this kind")
    return agents


async def _agents_hint(http: httpx2.AsyncClient, url: str, wanted: str | None) -> str:
    """The agents that a gateway lists there, for the end of a sentence."""
    try:
        names = [str(item["agent"]) for item in await list_agents(http, url)]
    except ClientError:
        return ""
    if wanted is None:
        return f"; this gateway has several agents: name one of {', '.join(names)}"
    meant = did_you_mean(wanted, names)
    return f"; {f'did you mean {meant!r}? T' if meant else 't'}he agents of this gateway are {', '.join(names)}"


def _choose(card: Json, address: str, binding: Binding | None) -> Endpoint:
    """The first interface that the client speaks, as a card lists the preferred one first. Raises: NotA2A."""
    wanted = {binding} if binding else set(Binding)
    interfaces = objects(card, _INTERFACES)
    for item in interfaces:
        url = text_at(item, "url")
        version = str(item.get("protocolVersion")).split(".")[:2]
        if text_at(item, "protocolBinding") in wanted and version == transport.VERSION.split(".") and url:
            streaming = bool(json_at(card, "capabilities", "streaming"))
            spoken = Binding(item["protocolBinding"])
            return Endpoint(urljoin(address, url), spoken, text_at(item, "tenant"), streaming, address)
    offered = [f"{item.get('protocolBinding')} {item.get('protocolVersion')}" for item in interfaces]
    names = " or ".join(sorted(wanted))
    raise NotA2A(
        f"the card at {address} offers no A2A {transport.VERSION} over {names}; it offers {', '.join(offered) or 'nothing'}"
    )
