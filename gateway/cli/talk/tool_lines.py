"""Tool calls as lines on a terminal: the call, its progress, its result and its duration.

Law: nothing is assumed about the agent's JSON. Source: the tool-calls/v1 extension; its parts are also those of Google ADK.
"""

from datetime import datetime

from gateway.a2a.tool_calls import URI
from gateway.cli.console.terminal import json_text
from gateway.client.transport import Json, json_at, text_at
from gateway.core.tools.answers import ADK_CONFIRMATION

_ENDS = {"failed": "failed:", "rejected": "rejected:", "cancelled": "cancelled:", "interrupted": "interrupted:"}


def tool_call(part: Json) -> str | None:
    """`function_call`, `function_response`, or None for any other part."""
    metadata = json_at(part, "metadata")
    kind = json_at(metadata, "adk_type") or json_at(metadata, "type")
    return kind if kind in ("function_call", "function_response") else None


def repeats_approval(part: Json, message: Json) -> bool:
    """Whether the part asks for an approval in Google ADK's form, and the message asks for it in ours as well."""
    return (
        text_at(part, "data", "name") == ADK_CONFIRMATION and json_at(message, "metadata", URI, "approval") is not None
    )


def call_line(part: Json) -> str:
    """The line of a part that is a tool call or its result."""
    data, facts = json_at(part, "data"), json_at(part, "metadata", URI)
    name = f"tool: {json_at(data, 'name')}"
    if tool_call(part) == "function_call":
        return name if json_at(facts, "exposure") == "names" else f"{name} {json_text(json_at(data, 'args'))}"
    response = json_at(data, "response")
    failure = json_at(response, "error")
    if failure is None:
        hidden = json_at(facts, "exposure") in ("names", "args")
        line = f"{name} is done" if hidden else f"{name} gave {json_text(response)}"
    else:
        reason = json_at(failure, "message") if facts is not None else None
        end = _ENDS.get(str(json_at(failure, "code")), "failed:") if facts is not None else "failed:"
        line = f"{name} {end} {reason if isinstance(reason, str) else json_text(failure)}"
    return f"{line}{_duration(facts)}"


def progress_line(facts: Json) -> str | None:
    """The line of an event between a call and its result; None if it is worth none."""
    name = f"tool: {json_at(facts, 'name')}"
    match json_at(facts, "phase"):
        case "awaiting-approval":
            return f"{name} waits for a yes"
        case "progress" if text_at(facts, "text"):
            return f"{name} ... {json_at(facts, 'text')}"
        case _:
            return None


def replaced_call(part: Json) -> str | None:
    """The call whose progress line a result may replace. The line of the call itself stays, with its arguments."""
    return text_at(part, "data", "id") if tool_call(part) == "function_response" else None


def _duration(facts: Json) -> str:
    """The duration of the call, where the agent gives both ends."""
    try:
        began, ended = (datetime.fromisoformat(json_at(facts, key)) for key in ("startedAt", "endedAt"))
        seconds = (ended - began).total_seconds()
    except (TypeError, ValueError):
        return ""
    return f" ({seconds:.1f} s)" if seconds >= 0 else ""
