"""The prompt of a waiting turn: which tools need an approval, and which results the client has to send. Law: pure; the text for
people and the parts for programs are each complete.

Google ADK understands the part: a long-running call of `adk_request_confirmation`, as its own agents make it.
"""

from collections.abc import Sequence
from dataclasses import replace

import msgspec

from gateway.a2a import tool_calls
from gateway.a2a.model import Json, Part
from gateway.a2a.redaction import JsonPath, redacted_member
from gateway.core.tools import consent
from gateway.core.tools.answers import ADK_CONFIRMATION, confirmation_of
from gateway.core.tools.tool_call import ToolCall
from gateway.ledger.states import ToolCallStatus

_OF_THE_USER = (ToolCallStatus.PENDING_APPROVAL, ToolCallStatus.PENDING_CONSENT)
_LONG = {"adk_is_long_running": True, "kagent_is_long_running": True}
_SHOWN = 300
"""Characters of a call's arguments in the text; the part has them all."""


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
        tools = [_call(call) for call in asked]
        ours["approval"] = {"requestId": request_id, "tools": tools, "expiresAt": expires_at}
    links = [link for call in calls if call.status is ToolCallStatus.PENDING_CONSENT for link in call.pages]
    if links:
        pages, ours["consent"] = consent.consent_prompt(links, request_id, expires_at)
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
