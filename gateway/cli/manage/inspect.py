"""`card`: what an agent says of itself, in short or as it is.

`health`: asks the gateway on this machine. Law: it starts quickly, because a container asks every few seconds.
"""

import asyncio
import http.client
import os
import sys
from collections.abc import Iterator, Sequence
from urllib.parse import urlsplit

from gateway.cli.console.connect import told_plainly
from gateway.cli.console.exits import ExitCode, Stop
from gateway.cli.console.parameters import read_headers, read_key, read_url, with_key
from gateway.cli.console.terminal import json_text, visible
from gateway.client.discovery import fetch_card
from gateway.client.transport import Json, at, objects, open_http


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


_TIMEOUT = 4.0


def print_health(url: str | None, *, live: bool) -> int:
    """Raises: Stop (69) with what is wrong."""
    base = read_url(url or f"http://127.0.0.1:{os.environ.get('A2A_GATEWAY__SERVER__PORT') or 8080}").rstrip("/")
    path = "/livez" if live else "/readyz"
    address = f"{base}{path}"
    parts = urlsplit(address)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=_TIMEOUT)
    try:
        connection.request("GET", parts.path)
        response = connection.getresponse()
        body = response.read(10_000).decode(errors="replace").strip()
    except TimeoutError as error:
        raise Stop(ExitCode.UNREACHABLE, f"{address} did not answer within {_TIMEOUT:g} s") from error
    except (OSError, http.client.HTTPException) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
        raise Stop(ExitCode.UNREACHABLE, f"{address} cannot be reached: {reason.lower()}") from error
    finally:
        connection.close()
    if response.status != http.HTTPStatus.OK:
        raise Stop(ExitCode.UNREACHABLE, f"{address} answered {response.status}: {body}")
    sys.stdout.write("alive\n" if live else "ready\n")
    return ExitCode.OK
