"""Consent at a third party: the page that the user has to open, as the caller is asked about it. Law: pure; the gateway never
opens the page, and takes nobody's word that it was opened: the party that asked for the consent checks.

Source: A2A 1.0, section 7.6; MCP 2025-11-25, elicitation in URL mode.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from gateway.a2a import tool_calls
from gateway.a2a.model import Json, Message, Part
from gateway.foundation.addresses import is_loopback

LONGEST = 8192
"""Characters of an address: Foundry's carry a signed state of a few thousand."""

MOST = 16
"""Pages of one call."""

_SHOWN = 300
"""Characters of the backend's text beside it."""


@dataclass(frozen=True, slots=True)
class ConsentLink:
    """`id`: the gateway's. `server`: for whom the consent is, as `mcp:mail`; `text`: its reason, in its words. `call`: the
    tool call of the gateway that waits for the consent, if one does."""

    id: str
    url: str
    server: str = ""
    text: str = ""
    call: str = ""


def check_all(urls: Sequence[str]) -> None:
    """Raises: ValueError as `check`, and for too many pages."""
    if len(urls) > MOST:
        raise ValueError(f"there are {len(urls)} addresses, more than {MOST}")
    for url in urls:
        check(url)


def check(url: str) -> None:
    """Raises: ValueError, without the address in its text, for a page that nobody may be sent to."""
    if len(url) > LONGEST:
        raise ValueError(f"the address has {len(url)} characters, more than {LONGEST}")
    if not (url.isascii() and url.isprintable()) or any(sign in url for sign in ' "<>\\^`{|}'):
        raise ValueError("the address has characters that no address has")
    try:
        parts = urlsplit(url)
    except ValueError:
        raise ValueError("the address has a host in brackets that is no address") from None
    host = parts.hostname
    if not host or "@" in parts.netloc:
        raise ValueError("the address has no host, or a user before it")
    if parts.scheme != "https" and not (parts.scheme == "http" and is_loopback(host)):
        raise ValueError("the address is not one of https")


def consent_prompt(
    links: Sequence[ConsentLink], request_id: str, expires_at: str | None = None
) -> tuple[tuple[Part, ...], dict[str, Json]]:
    """The parts of the message, a text and the bare address for each page, and its `consent` for programs."""
    parts = tuple(Part(text=text) for link in links for text in (_words(link), link.url))
    ours: dict[str, Json] = {"requestId": request_id, "links": [_link(link) for link in links]}
    if expires_at is not None:
        ours["expiresAt"] = expires_at
    return parts, ours


def _words(link: ConsentLink) -> str:
    who = f" for {_line(link.server)}" if link.server else ""
    why = f" It says: {_line(link.text)}" if link.text else ""
    return f"Your consent{who} is needed at a third party.{why} Open this page, then answer on this task to go on:\n"


def _line(text: str) -> str:
    """Untrusted text as one line."""
    line = " ".join("".join(sign if sign.isprintable() else " " for sign in text).split())
    return line if len(line) <= _SHOWN else line[:_SHOWN] + "…"


def _link(link: ConsentLink) -> dict[str, Json]:
    said: dict[str, Json] = {"id": link.id, "url": link.url}
    if link.server:
        said["server"] = _line(link.server)
    if link.text:
        said["text"] = _line(link.text)
    if link.call:
        said["callId"] = link.call
    return said


def links_of(message: Message | None) -> Iterator[ConsentLink]:
    """The links of a stored prompt."""
    match (message.metadata or {}).get(tool_calls.URI) if message is not None else None:
        case {"consent": {"links": [*links]}}:
            for link in links:
                match link:
                    case {"id": str(name), "url": str(url), **more}:
                        yield ConsentLink(name, url, *(str(more.get(key, "")) for key in ("server", "text", "callId")))
