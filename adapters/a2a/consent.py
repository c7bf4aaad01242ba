"""The pages on which a user has to consent, in the message of a task that waits for that. Law: pure; only what is an address
and nothing else counts, since an address in a sentence may be any."""

from collections.abc import Iterator

from gateway.a2a.model import Json, Message, Part
from gateway.a2a.tool_calls import URI
from gateway.core.tools.prompts import MOST, check
from gateway.ports.adapter import ConsentAsked

_MEMBERS = ("url", "authUrl", "auth_url", "authUri", "auth_uri", "authorizationUrl", "authorization_url", "consentUrl")
"""The names that agents give to an address in data."""


def pages(message: Message | None) -> tuple[ConsentAsked, ...]:
    if message is None:
        return ()
    match (message.metadata or {}).get(URI):
        case {"consent": {"links": [*links]}}:
            return tuple(_of_gateway(links))[:MOST]
    words = "\n".join(part.text for part in message.parts if part.text is not None and not _address(part.text))
    found = dict.fromkeys(address for part in message.parts for address in _addresses(part))
    return tuple(ConsentAsked(address, text=words) for address in found)[:MOST]


def _of_gateway(links: list[Json]) -> Iterator[ConsentAsked]:
    for link in links:
        match link:
            case {"url": str(url), **more} if _address(url):
                server, text = more.get("server"), more.get("text")
                yield ConsentAsked(
                    url, server if isinstance(server, str) else "", text if isinstance(text, str) else ""
                )


def _addresses(part: Part) -> Iterator[str]:
    if part.url is not None and _address(part.url):
        yield part.url
    elif part.text is not None and (found := _address(part.text)):
        yield found
    elif isinstance(part.data, dict):
        for name in _MEMBERS:
            value = part.data.get(name)
            if isinstance(value, str) and _address(value):
                yield value


def _address(text: str) -> str:
    """The address that the text is, if a user may be sent there; else empty."""
    stripped = text.strip()
    try:
        check(stripped)
    except ValueError:
        return ""
    return stripped
