"""Consent at a third party: a page that the caller's user has to open, and what the caller is told of it. Law: pure; the
gateway never opens the page, and nobody's word that it was opened is authority: who asked for consent looks for itself.

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
"""Pages that one call may want."""

_SHOWN = 300
"""Characters of what a backend says beside it."""


@dataclass(frozen=True, slots=True)
class ConsentLink:
    """`id` is the gateway's own. `server` is for whom the consent is, as `mcp:mail`; `text` says why, in its words. `call` is
    the tool call that waits for it, where it is one of the gateway's."""

    id: str
    url: str
    server: str = ""
    text: str = ""
    call: str = ""


def check_all(urls: Sequence[str]) -> None:
    """Raises: ValueError as `check`, and for more than anybody opens."""
    if len(urls) > MOST:
        raise ValueError(f"there are {len(urls)} addresses, more than {MOST}")
    for url in urls:
        check(url)


def check(url: str) -> None:
    """A page that a person may be sent to. Raises: ValueError that says what is wrong, without the address."""
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


def question(
    links: Sequence[ConsentLink], request_id: str, expires_at: str | None = None
) -> tuple[tuple[Part, ...], dict[str, Json]]:
    """The parts of the message, for each page words and the bare address behind them, and its `consent` for programs."""
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
    """A stranger's words in one line."""
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


def named(message: Message | None) -> Iterator[ConsentLink]:
    """The links of a question, as it was asked."""
    match (message.metadata or {}).get(tool_calls.URI) if message is not None else None:
        case {"consent": {"links": [*links]}}:
            for link in links:
                match link:
                    case {"id": str(name), "url": str(url), **more}:
                        yield ConsentLink(name, url, *(str(more.get(key, "")) for key in ("server", "text", "callId")))
