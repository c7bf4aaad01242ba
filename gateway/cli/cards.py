"""`card`: what an agent says of itself, in short or as it is."""

import asyncio
import sys
from collections.abc import Iterator, Sequence

from gateway.cli.exits import ExitCode
from gateway.cli.failures import told_plainly
from gateway.cli.options import read_headers, read_key, read_url, with_key
from gateway.cli.terminal import json_text, visible
from gateway.client_discovery import fetch_card
from gateway.client_wire import Json, at, objects, open_http


def print_card(agent: str | None, url: str, headers: Sequence[str], key: str | None, *, as_json: bool) -> int:
    """Raises: Stop."""
    if agent is not None and "://" in agent:
        url, agent = agent, None
    read_url(url)
    sent = with_key(read_headers(headers), read_key(key))

    async def ask() -> tuple[str, Json]:
        async with open_http(url, sent) as client:
            return await fetch_card(client, url, agent)

    with told_plainly():
        address, card = asyncio.run(ask())
    text = json_text(card, indent=2) if as_json else visible("\n".join(_described(address, card)))
    sys.stdout.write(f"{text}\n")
    return ExitCode.OK


def _described(address: str, card: Json) -> Iterator[str]:
    yield f"{card['name']} {card.get('version', '')}".rstrip()
    if isinstance(card.get("description"), str):
        yield card["description"]
    yield ""
    yield f"card         {address}"
    for item in objects(card, "supportedInterfaces"):
        tenant = f" (tenant {item['tenant']})" if item.get("tenant") else ""
        yield f"interface    {item.get('protocolBinding')} {item.get('protocolVersion')} at {item.get('url')}{tenant}"
    able = [name for name in ("streaming", "pushNotifications", "extendedAgentCard") if at(card, "capabilities", name)]
    yield f"capabilities {', '.join(able) or 'none'}"
    for item in objects(at(card, "capabilities"), "extensions"):
        yield f"extension    {item.get('uri')}{' (required)' if item.get('required') else ''}"
    yield f"takes        {_listed(card, 'defaultInputModes')}"
    yield f"gives        {_listed(card, 'defaultOutputModes')}"
    for item in objects(card, "skills"):
        yield f"skill        {item.get('id')}: {item.get('description')}"


def _listed(card: Json, key: str) -> str:
    modes = card.get(key)
    return ", ".join(map(str, modes)) if isinstance(modes, list) else "not said"
