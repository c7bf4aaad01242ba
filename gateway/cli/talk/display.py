"""One task on the terminal, in the format that was asked for."""

import sys

from gateway.cli.console.address import AgentAddress
from gateway.cli.console.parameters import Output
from gateway.cli.console.terminal import Screen, json_text
from gateway.cli.talk.questions import Question, question_of
from gateway.cli.talk.render import TextView
from gateway.cli.talk.state import ConversationState
from gateway.client.transport import Json


class TaskDisplay:
    """Shows events, and keeps where the conversation stands. `question`: what the task waits for, if it does."""

    def __init__(self, address: AgentAddress, output: Output, conversation: ConversationState) -> None:
        self.address = address
        self.output = output
        self.conversation = conversation
        self.question: Question | None = None
        self.screen = Screen(sys.stdout, sys.stderr)
        self.view = TextView(self.screen)

    def note(self, event: Json) -> None:
        """Keeps what the event says of the conversation, without showing it."""
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

    def pause(self) -> None:
        """Shows what the agent asks, before it is answered."""
        if self.output is Output.text and self.question:
            self.view.finish()
            self.view.continue_task()

    def print(self, value: Json) -> None:
        self.screen.line(json_text(value, indent=2 if self.output is Output.json else None))
