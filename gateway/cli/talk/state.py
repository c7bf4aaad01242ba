"""Where a conversation stands, from the events of its tasks."""

from dataclasses import dataclass

from gateway.cli.console.exits import OF_STATE, ExitCode
from gateway.client.transport import Json, json_at, text_at

_BODIES = ("task", "message", "statusUpdate", "artifactUpdate")


def state_words(state: str | None) -> str:
    """A task's state as a person writes it."""
    return (state or "").removeprefix("TASK_STATE_").lower().replace("_", " ")


@dataclass(slots=True)
class ConversationState:
    """Context, task and its state, for the exit code and for the next command. `replied`: by a message, without a task."""

    context: str | None = None
    task: str | None = None
    state: str | None = None
    replied: bool = False

    def note(self, event: Json) -> None:
        """`event` is a StreamResponse or a SendMessageResponse."""
        body = next((body for key in _BODIES if isinstance(body := json_at(event, key), dict)), None)
        self.context = text_at(body, "contextId") or self.context
        self.task = text_at(body, "taskId") or text_at(event, "task", "id") or self.task
        self.state = text_at(body, "status", "state") or self.state
        self.replied = self.replied or json_at(event, "message") is not None

    @property
    def words(self) -> str:
        return state_words(self.state)

    @property
    def exit_code(self) -> ExitCode:
        return ExitCode.OK if self.replied else OF_STATE.get(self.state or "", ExitCode.UNEXPECTED)
