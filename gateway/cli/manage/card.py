"""`card`: the card of an agent, as text or as JSON."""

import sys
from collections.abc import Iterator

from gateway.cli.console.address import AgentAddress
from gateway.cli.console.connect import call, open_address
from gateway.cli.console.output import json_text, visible
from gateway.client.discovery import fetch_card
from gateway.client.transport import Json, json_at, objects


def print_card(address: AgentAddress, *, as_json: bool) -> None:
    """Raises: Stop."""
    url, card = call(open_address(address), lambda http: fetch_card(http, address.url, address.agent))
    text = json_text(card, indent=2) if as_json else visible("\n".join(_lines(url, card)))
    sys.stdout.write(f"{text}\n")


def _lines(url: str, card: Json) -> Iterator[str]:
    yield f"{card['name']} {card.get('version', '')}".rstrip()
    if isinstance(card.get("description"), str):
        yield card["description"]
    yield ""
    yield f"card         {url}"
    for item in objects(card, "supportedInterfaces"):
        tenant = f" (tenant {item['tenant']})" if item.get("tenant") else ""
        yield f"interface    {item.get('protocolBinding')} {item.get('protocolVersion')} at {item.get('url')}{tenant}"
    able = [
        name for name in ("streaming", "pushNotifications", "extendedAgentCard") if json_at(card, "capabilities", name)
    ]
    yield f"capabilities {', '.join(able) or 'none'}"
    for item in objects(json_at(card, "capabilities"), "extensions"):
        yield f"extension    {item.get('uri')}{' (required)' if item.get('required') else ''}"
    yield f"takes        {_listed(card, 'defaultInputModes')}"
    yield f"gives        {_listed(card, 'defaultOutputModes')}"
    for item in objects(card, "skills"):
        yield f"skill        {item.get('id')}: {item.get('description')}"


def _listed(card: Json, key: str) -> str:
    modes = card.get(key)
    return ", ".join(map(str, modes)) if isinstance(modes, list) else "not said"
