"""One task on the terminal: where its conversation stands, its events in the format that was asked for, and next commands."""

import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass

from gateway.cli.console.address import AgentAddress
from gateway.cli.console.connect import open_client
from gateway.cli.console.output import OF_STATE, ExitCode, Output, Screen, json_text
from gateway.cli.talk.render import TextView, state_words
from gateway.cli.talk.tool_calls import Question, question_of
from gateway.client.client import WAITING
from gateway.client.transport import ClientError, Json, Refused, json_at, text_at


@dataclass(slots=True)
class ConversationState:
    """The context, the task and the state of the task, for the exit code and for the next command. `replied` says that
    the agent answered with a message without a task. `usage` are the tokens that the agent has shown, if any."""

    context: str | None = None
    task: str | None = None
    state: str | None = None
    replied: bool = False
    usage: Json = None

    def note(self, event: Json) -> None:
        """`event` is a StreamResponse or a SendMessageResponse."""
        bodies = (json_at(event, key) for key in ("task", "message", "statusUpdate", "artifactUpdate"))
        body = next((body for body in bodies if isinstance(body, dict)), None)
        self.context = text_at(body, "contextId") or self.context
        self.task = text_at(body, "taskId") or text_at(event, "task", "id") or self.task
        self.state = text_at(body, "status", "state") or self.state
        self.usage = json_at(body, "metadata", "usage") or self.usage
        self.replied = self.replied or json_at(event, "message") is not None

    @property
    def words(self) -> str:
        return state_words(self.state)

    @property
    def exit_code(self) -> ExitCode:
        return ExitCode.OK if self.replied else OF_STATE.get(self.state or "", ExitCode.UNEXPECTED)


class TaskDisplay:
    """Shows events, and keeps the state of the conversation. `question` is the question for which the task waits, if it
    waits."""

    def __init__(self, address: AgentAddress, output: Output, conversation: ConversationState) -> None:
        self.address = address
        self.output = output
        self.conversation = conversation
        self.question: Question | None = None
        self.last_event: Json = None
        self.screen = Screen(sys.stdout, sys.stderr)
        self.view = TextView(self.screen)

    def note(self, event: Json) -> None:
        """Keeps what the event says of the conversation, without showing it."""
        self.last_event = event
        self.conversation.note(event)
        question = question_of(event)
        self.question = self.question if question is None else question

    def receive(self, event: Json) -> None:
        """Shows an event of a stream. The format json shows nothing before the end."""
        self.note(event)
        if self.output is Output.text:
            self.view.receive(event)
        elif self.output is Output.jsonl:
            self.print(event)

    async def receive_all(self, events: AsyncGenerator[Json, None]) -> None:
        async with aclosing(events):
            async for event in events:
                self.receive(event)

    def pause(self) -> None:
        """Shows what the agent asks, before it is answered."""
        if self.output is Output.text and self.question:
            self.view.finish()
            self.view.continue_task()

    def print(self, value: Json) -> None:
        self.screen.line(json_text(value, indent=2 if self.output is Output.json else None))

    async def print_result(self) -> None:
        """Prints the result as one document in the format json. Raises: ClientError."""
        if self.output is Output.json:
            task = None if self.conversation.replied else self.conversation.task
            self.print({"task": await self.get_task(task)} if task else self.last_event)

    async def get_task(self, task: str) -> Json:
        """Raises: ClientError."""
        async with open_client(self.address) as client:
            return await client.get_task(task)

    def leave(self, reason: str) -> None:
        """Shows how to answer, follow and cancel the task, which goes on."""
        self.screen.end_line()
        self.screen.report("\n".join([reason, *self.open_task_lines()]))

    def answer_command(self, task: str) -> str:
        """The command that answers what the task waits for, or asks for the answer."""
        if not self.question:
            return self.address.command("stream", "--task", task, argument="your answer")
        return self.address.command("tasks", "watch", *self.question.tool_options, argument=task)

    def open_task_lines(self) -> list[str]:
        """Lines that say how to answer a task that waits, or how to follow a running task, after the command has
        ended."""
        task = self.conversation.task
        if task is None:
            return []
        if self.conversation.state in WAITING:
            lines = [f"The task {task} waits for an answer.", f"answer: {self.answer_command(task)}"]
        else:
            lines = [f"The task {task} goes on.", f"follow: {self.address.command('tasks', 'watch', argument=task)}"]
        return [*lines, f"cancel: {self.address.command('tasks', 'cancel', argument=task)}"]

    def blocking_task_lines(self, error: ClientError) -> list[str]:
        """How to answer the task because of which a message was refused, if there is one."""
        if not isinstance(error, Refused) or error.task is None:
            return []
        words = (("answer", "watch"), ("cancel", "cancel"))
        return [f"{what}: {self.address.command('tasks', word, argument=error.task)}" for what, word in words]
