"""Tool calls of an agent: as lines on a terminal, and as questions that can be answered on the command line.

Law: nothing is assumed about the agent's JSON. Source: the tool-calls/v1 extension; its parts are also those of Google ADK.
"""

from dataclasses import dataclass
from datetime import datetime

from gateway.a2a.tool_calls import URI
from gateway.cli.console.output import json_text
from gateway.client.transport import Json, json_at, objects, text_at
from gateway.core.tools.answers import ADK_CONFIRMATION


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


def call_line(part: Json, began: str | None = None) -> str:
    """The line of a part that is a tool call or its result. `began` is when the call began to run, as far as that is known,
    and empty if it is not; None stands for the time at which it was made."""
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
        code, reason = (json_at(failure, key) if facts is not None else None for key in ("code", "message"))
        end = code if code in ("rejected", "cancelled", "interrupted") else "failed"
        line = f"{name} {end}: {reason if isinstance(reason, str) else json_text(failure)}"
    return f"{line}{_duration(json_at(facts, 'startedAt') if began is None else began, json_at(facts, 'endedAt'))}"


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


def running_since(update: Json) -> tuple[str, str] | None:
    """The call that a status update is about, and when it began to run: empty while a person is asked about it."""
    facts = json_at(update, "metadata", URI)
    call, phase, now = text_at(facts, "callId"), json_at(facts, "phase"), text_at(update, "status", "timestamp")
    if call is not None and phase == "executing" and now is not None:
        return call, now
    return (call, "") if call is not None and phase == "awaiting-approval" else None


def waited_calls(task: Json) -> set[str]:
    """The calls of a task about which a person was asked, as far as its history tells."""
    asked = (objects(json_at(message, "metadata", URI, "approval"), "tools") for message in objects(task, "history"))
    return {name for tools in asked for tool in tools if (name := text_at(tool, "id"))}


def replaced_call(part: Json) -> str | None:
    """The call whose progress line a result may replace. The line of the call itself stays, with its arguments."""
    return text_at(part, "data", "id") if tool_call(part) == "function_response" else None


def _duration(began: Json, ended: Json) -> str:
    """The duration of the call, where the agent gives both ends."""
    try:
        seconds = (datetime.fromisoformat(ended) - datetime.fromisoformat(began)).total_seconds()
    except (TypeError, ValueError):
        return ""
    return f" ({seconds:.1f} s)" if seconds >= 0 else ""


@dataclass(frozen=True, slots=True)
class Question:
    """`approvals` are calls to approve, `calls` are to run here; each is `{id, name, args}`.

    `consent`: the user has to sign in or to consent in another place; after that any message continues the task.
    """

    approvals: tuple[Json, ...]
    calls: tuple[Json, ...]
    consent: bool = False

    def __bool__(self) -> bool:
        return bool(self.approvals or self.calls or self.consent)

    @property
    def tool_options(self) -> list[str]:
        """The options that name a command for each tool that is to run here."""
        return [
            word
            for tool in dict.fromkeys(call["name"] for call in self.calls)
            for word in ("--tool", f"{tool}=COMMAND")
        ]


def question_of(event: Json) -> Question | None:
    """The question in this StreamResponse or SendMessageResponse; None where it has no status.

    An empty question means that the task works, has ended or waits for a text.
    """
    status = json_at(event, "task", "status") or json_at(event, "statusUpdate", "status")
    state = text_at(status, "state")
    if state is None:
        return None
    if state != "TASK_STATE_INPUT_REQUIRED":
        return Question((), (), consent=state == "TASK_STATE_AUTH_REQUIRED")
    message = json_at(status, "message")
    approvals = objects(json_at(message, "metadata", URI, "approval"), "tools")
    calls = (part["data"] for part in objects(message, "parts") if _runs_here(part))
    return Question(tuple(tool for tool in approvals if text_at(tool, "id")), tuple(calls))


def _runs_here(part: Json) -> bool:
    named = text_at(part, "data", "id") and text_at(part, "data", "name")
    return bool(named) and tool_call(part) == "function_call" and json_at(part, "metadata", URI, "origin") == "client"
