"""What a task waits for, as far as it can be answered on the command line. Source: the tool-calls/v1 extension."""

from dataclasses import dataclass

from gateway.a2a.tool_calls import URI
from gateway.cli.talk.tool_lines import tool_call
from gateway.client.transport import Json, json_at, objects, text_at


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
