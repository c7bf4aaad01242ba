"""From what a user types to an address to call: agent cards, and the interface that both sides speak."""

from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import quote, urljoin, urlsplit

import httpx2

from gateway.client.transport import (
    CONNECT,
    VERSION,
    Json,
    NotA2A,
    Unreachable,
    at,
    objects,
    reaching,
    read_json,
    refusal,
    text_at,
)
from gateway.foundation.text import did_you_mean

CARD = ".well-known/agent-card.json"


class Binding(StrEnum):
    JSONRPC = "JSONRPC"
    REST = "HTTP+JSON"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """`card` is the address of the card that named this interface, None where there was no card."""

    url: str
    binding: Binding
    tenant: str | None = None
    streaming: bool = True
    card: str | None = None


async def fetch_card(http: httpx2.AsyncClient, url: str, agent: str | None = None) -> tuple[str, Json]:
    """The card and its address. `url` is the card's own, or a base; `agent` one of ours below that base.

    Raises: Unreachable, NotA2A, Refused.
    """
    address = card_address(url, agent)
    card = await _card_at(http, address)
    if card is None:
        raise NotA2A(f"there is no agent card at {address}{await _agents_there(http, url, agent)}")
    return address, card


def card_address(url: str, agent: str | None) -> str:
    base = url.rstrip("/")
    if agent is not None:
        return f"{base}/a2a/{quote(agent, safe='')}/{CARD}"
    return url if urlsplit(url).path.endswith(".json") else f"{base}/{CARD}"


async def discover(
    http: httpx2.AsyncClient, url: str, agent: str | None = None, binding: Binding | None = None
) -> Endpoint:
    """Where to send messages. A `url` with a path but without a card is taken for the endpoint itself.

    Raises: Unreachable, NotA2A, Refused.
    """
    address = card_address(url, agent)
    card = await _card_at(http, address)
    if card is not None:
        return _choose(card, address, binding)
    if agent is None and urlsplit(url).path.strip("/") and address != url:
        root = urljoin(url, f"/{CARD}")
        card = await _card_at(http, root)
        if card is not None and any(item.get("url") == url for item in _interfaces(card)):
            named = [item for item in _interfaces(card) if item.get("url") == url]
            return _choose({**card, "supportedInterfaces": named}, root, binding)
        return Endpoint(url, binding or Binding.JSONRPC)
    raise NotA2A(f"there is no agent card at {address}{await _agents_there(http, url, agent)}")


async def _card_at(http: httpx2.AsyncClient, address: str) -> Json | None:
    """None where something answers, but not with a card."""
    with reaching(address):
        response = await http.get(address, headers={"Accept": "application/json"}, timeout=CONNECT)
    if response.status_code in {401, 403, 429} or response.status_code >= 500:
        raise refusal(response, read_json(response))
    card = read_json(response)
    return card if response.status_code == 200 and isinstance(card, dict) and "name" in card else None


async def _agents_there(http: httpx2.AsyncClient, url: str, wanted: str | None) -> str:
    """What a gateway of ours says of its agents, for the end of a sentence."""
    listing = f"{url.rstrip('/')}/a2a"
    try:
        with reaching(listing):
            response = await http.get(listing, timeout=CONNECT)
    except Unreachable:
        return ""
    names = [str(item["agent"]) for item in objects(read_json(response), "agents") if "agent" in item]
    if not names:
        return ""
    if wanted is None:
        return f"; this gateway has several agents: name one of {', '.join(names)}"
    meant = did_you_mean(wanted, names)
    return f"; {f'did you mean {meant!r}? T' if meant else 't'}he agents of this gateway are {', '.join(names)}"


def _interfaces(card: Json) -> list[dict[str, Json]]:
    return objects(card, "supportedInterfaces")


def _choose(card: Json, address: str, binding: Binding | None) -> Endpoint:
    """The first interface that we speak: the card names the preferred one first. Raises: NotA2A."""
    wanted = {binding} if binding else set(Binding)
    for item in _interfaces(card):
        url = text_at(item, "url")
        version = str(item.get("protocolVersion")).split(".")[:2]
        if text_at(item, "protocolBinding") in wanted and version == VERSION.split(".") and url:
            return Endpoint(
                urljoin(address, url),
                Binding(item["protocolBinding"]),
                text_at(item, "tenant"),
                bool(at(card, "capabilities", "streaming")),
                address,
            )
    offered = [f"{item.get('protocolBinding')} {item.get('protocolVersion')}" for item in _interfaces(card)]
    names = " or ".join(sorted(wanted))
    raise NotA2A(
        f"the card at {address} offers no A2A {VERSION} over {names}; it offers {', '.join(offered) or 'nothing'}"
    )
