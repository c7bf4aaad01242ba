"""Tool calls as lines on a terminal: what is called, how far it is, what came of it and how long it took.

Law: the wire's JSON is a stranger's. Source: the tool-calls/v1 extension; its parts are Google ADK's, too.
"""

from datetime import datetime
from typing import Any

from gateway.answers import ADK_CONFIRMATION
from gateway.cli.terminal import json_text
from gateway.client_wire import at, text_at
from gateway.tool_calls import URI

Json = Any

_ENDS = {"failed": "failed:", "rejected": "rejected:", "cancelled": "cancelled:", "interrupted": "interrupted:"}


def tool_call(part: Json) -> str | None:
    """`function_call`, `function_response`, or None for anything but a tool call."""
    metadata = at(part, "metadata")
    kind = at(metadata, "adk_type") or at(metadata, "type")
    return kind if kind in ("function_call", "function_response") else None


def is_said_twice(part: Json, message: Json) -> bool:
    """Is the part a question for a yes, in Google ADK's form, beside which the message asks in ours?"""
    return text_at(part, "data", "name") == ADK_CONFIRMATION and at(message, "metadata", URI, "approval") is not None


def call_line(part: Json) -> str:
    """The line of a part that is a tool call or its outcome."""
    data, facts = at(part, "data"), at(part, "metadata", URI)
    name = f"tool: {at(data, 'name')}"
    if tool_call(part) == "function_call":
        return name if at(facts, "exposure") == "names" else f"{name} {json_text(at(data, 'args'))}"
    response = at(data, "response")
    failure = at(response, "error")
    if failure is None:
        hidden = at(facts, "exposure") in ("names", "args")
        line = f"{name} is done" if hidden else f"{name} gave {json_text(response)}"
    else:
        said = at(failure, "message") if facts is not None else None
        word = _ENDS.get(str(at(failure, "code")), "failed:") if facts is not None else "failed:"
        line = f"{name} {word} {said if isinstance(said, str) else json_text(failure)}"
    return f"{line}{_taken(facts)}"


def moment_line(facts: Json) -> str | None:
    """The line of what happens between a call and its outcome, None for what is not worth one."""
    name = f"tool: {at(facts, 'name')}"
    match at(facts, "phase"):
        case "awaiting-approval":
            return f"{name} waits for a yes"
        case "progress" if text_at(facts, "text"):
            return f"{name} ... {at(facts, 'text')}"
        case _:
            return None


def about(part: Json) -> str | None:
    """The call whose last line this one may take the place of: the line of the call itself stays, with its arguments."""
    return text_at(part, "data", "id") if tool_call(part) == "function_response" else None


def _taken(facts: Json) -> str:
    """How long the call took, where both ends are told."""
    try:
        began, ended = (datetime.fromisoformat(at(facts, key)) for key in ("startedAt", "endedAt"))
        seconds = (ended - began).total_seconds()
    except (TypeError, ValueError):
        return ""
    return f" ({seconds:.1f} s)" if seconds >= 0 else ""
