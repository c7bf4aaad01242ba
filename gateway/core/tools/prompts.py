"""The prompt of a waiting turn: which tools need an approval, which results the client has to send, which pages the
user has to open for a consent. Law: pure; the text for people and the parts for programs are each complete; the gateway
never opens a page. The gateway does not rely on a caller's statement that a page was opened: the party that asked for
the consent checks it.

Google ADK understands the part: a long-running call of `adk_request_confirmation`, in the form that ADK's own agents
use. Source: A2A 1.0, section 7.6; MCP 2025-11-25, elicitation in URL mode.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from urllib.parse import urlsplit

import msgspec

from gateway.a2a import tool_calls
from gateway.a2a.model import Json, Message, Part
from gateway.a2a.redaction import JsonPath, redacted_member
from gateway.core.tools.answers import ADK_CONFIRMATION, confirmation_of
from gateway.core.tools.tool_call import ConsentLink, ToolCall
from gateway.foundation.addresses import is_loopback
from gateway.ledger.states import ToolCallStatus

_OF_THE_USER = (ToolCallStatus.PENDING_APPROVAL, ToolCallStatus.PENDING_CONSENT)
_LONG = {"adk_is_long_running": True, "kagent_is_long_running": True}
LONGEST = 8192
"""Characters of an address: Foundry's carry a signed state of a few thousand."""

MOST = 16
"""Pages of one call."""

_SHOWN = 300
"""Characters in the text of a call's arguments, which the part has all, and of a third party's words."""


def prompt(
    calls: Sequence[ToolCall], request_id: str, expires_at: str, redact: tuple[JsonPath, ...] = ()
) -> tuple[tuple[Part, ...], dict[str, Json]]:
    """The parts and the metadata of the message. `calls` are the waiting ones, `expires_at` is a timestamp.

    `redact` masks arguments in the approvals; a client that runs a tool gets all of them.
    """
    asked = [call for call in calls if call.status is ToolCallStatus.PENDING_APPROVAL]
    if redact:
        asked = [replace(call, inputs=redacted_member("args", call.inputs, redact)[0]) for call in asked]
    theirs = [call for call in calls if call.status not in _OF_THE_USER]
    words = (Part(text=_words(asked, theirs)),) if asked or theirs else ()
    parts = (*words, *map(_confirmation, asked), *map(_request, theirs))
    ours: dict[str, Json] = {"waitsFor": [call.facts.id for call in calls], "expiresAt": expires_at}
    if asked:
        tools = [{**_call(call), **({} if call.identity is None else {"tool": call.identity})} for call in asked]
        ours["approval"] = {"requestId": request_id, "tools": tools, "expiresAt": expires_at}
    links = [link for call in calls if call.status is ToolCallStatus.PENDING_CONSENT for link in call.pages]
    if links:
        pages, ours["consent"] = consent_prompt(links, request_id, expires_at)
        parts = (*parts, *pages)
    return parts, {tool_calls.URI: ours}


def _words(asked: Sequence[ToolCall], theirs: Sequence[ToolCall]) -> str:
    lines: list[str] = []
    if len(asked) == 1:
        lines.append(f"May the tool {_shown(asked[0])} be used?")
    elif asked:
        lines += ["May these tools be used?", *(f"- {_shown(call)}" for call in asked)]
    if theirs:
        lines.append("Waiting for the result of " + ", ".join(_name(call) for call in theirs) + ".")
    return "\n".join(lines)


def _shown(call: ToolCall) -> str:
    arguments = msgspec.json.encode(call.inputs).decode()
    return f"{_name(call)} with {arguments if len(arguments) <= _SHOWN else arguments[:_SHOWN] + '…'}"


def _name(call: ToolCall) -> str:
    """The name that a rule has for the tool, so that the person who answers can write the rule."""
    if call.identity is not None:
        return _line(call.identity)
    return call.facts.name if call.facts.server is None else f"{call.facts.name} ({call.facts.server})"


def _call(call: ToolCall) -> dict[str, Json]:
    return {"id": call.facts.id, "name": call.facts.name, "args": call.inputs}


def _confirmation(call: ToolCall) -> Part:
    """Source: google-adk 2.13, generate_request_confirmation_event."""
    arguments: dict[str, Json] = {
        "originalFunctionCall": _call(call),
        "toolConfirmation": {"hint": f"May the tool {_shown(call)} be used?", "confirmed": False},
    }
    data = {"id": confirmation_of(call.facts.id), "name": ADK_CONFIRMATION, "args": arguments}
    kind = "function_call"
    return Part(data=data, metadata={"adk_type": kind, "type": kind, "kagent_type": kind, **_LONG})


def _request(call: ToolCall) -> Part:
    part = tool_calls.requested(call.facts, call.arguments or "")
    return msgspec.structs.replace(part, metadata={**(part.metadata or {}), **_LONG})


def check_all(urls: Sequence[str]) -> None:
    """Raises: ValueError as `check`, and for too many pages."""
    if len(urls) > MOST:
        raise ValueError(f"there are {len(urls)} addresses, more than {MOST}")
    for url in urls:
        check(url)


def check(url: str) -> None:
    """Raises: ValueError, without the address in its text, for a page to which no user may be sent."""
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
    parts = tuple(Part(text=text) for link in links for text in (_consent_words(link), link.url))
    ours: dict[str, Json] = {"requestId": request_id, "links": [_link(link) for link in links]}
    if expires_at is not None:
        ours["expiresAt"] = expires_at
    return parts, ours


def _consent_words(link: ConsentLink) -> str:
    who = f" for {_line(link.server)}" if link.server else ""
    why = f" It says: {_line(link.text)}" if link.text else ""
    return f"Your consent{who} is needed at a third party.{why} Open this page, then answer on this task to go on:\n"


def _line(text: str) -> str:
    """Untrusted text as one line."""
    line = " ".join("".join(sign if sign.isprintable() else " " for sign in text).split())
    return line if len(line) <= _SHOWN else line[:_SHOWN] + "…"


def _link(link: ConsentLink) -> dict[str, Json]:
    words = {"server": link.server, "text": link.text, "callId": link.call}
    return {"id": link.id, "url": link.url, **{name: _line(word) for name, word in words.items() if word}}


def identities_of(message: Message | None) -> Mapping[str, str]:
    """The identities of the tools that a stored prompt asks about, by the id of the call."""
    match (message.metadata or {}).get(tool_calls.URI) if message is not None else None:
        case {"approval": {"tools": [*tools]}}:
            return {
                str(one["id"]): str(one["tool"])
                for one in tools
                if isinstance(one, dict) and {"id", "tool"} <= one.keys()
            }
    return {}


def links_of(message: Message | None) -> Iterator[ConsentLink]:
    """The links of a stored prompt."""
    match (message.metadata or {}).get(tool_calls.URI) if message is not None else None:
        case {"consent": {"links": [*links]}}:
            for link in links:
                match link:
                    case {"id": str(name), "url": str(url), **more}:
                        yield ConsentLink(name, url, *(str(more.get(key, "")) for key in ("server", "text", "callId")))
