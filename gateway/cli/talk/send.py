"""`send` and `stream`: one message to an agent, and the answer.

Law: the task is the agent's: a lost terminal, a lost connection and the end of a timeout do not stop it, and the user gets
the command that finds it again.
"""

import asyncio
import shlex
from collections.abc import Iterator
from contextlib import aclosing, nullcontext
from typing import Literal, TypeAlias

from gateway.cli.console.address import AgentAddress
from gateway.cli.console.connect import open_client, stop_for, task_must_exist
from gateway.cli.console.exits import ExitCode, Stop
from gateway.cli.console.options import SendOptions
from gateway.cli.console.parameters import Approve, Output
from gateway.cli.console.terminal import json_text, program
from gateway.cli.talk.answers import answer_questions, decisions_on
from gateway.cli.talk.display import TaskDisplay
from gateway.cli.talk.local_tools import Tools, with_tools
from gateway.cli.talk.message import build_message, compose
from gateway.cli.talk.next_commands import answer_command, blocking_task_lines, open_task_lines
from gateway.cli.talk.state import ConversationState
from gateway.client.client import ENDED, WAITING, Client
from gateway.client.transport import ClientError, Json, text_at

Command: TypeAlias = Literal["send", "stream"]


def run_send(command: Command, options: SendOptions, approve: Approve | None = None, tools: Tools | None = None) -> int:
    """`approve` None: asks on a terminal. Raises: Stop."""
    tools = tools or {}
    address = options.address()
    exchange = _Exchange(command, options, address, with_tools(build_message(options), tools))
    try:
        with task_must_exist(address, options.task) if options.task is not None else nullcontext():
            asyncio.run(exchange.run())
        if command == "stream":
            if exchange.question:
                answer_questions(exchange, exchange.send_answer, approve, tools)
            asyncio.run(exchange.print_result())
    except KeyboardInterrupt:
        exchange.leave("interrupted")
        return ExitCode.INTERRUPTED
    except TimeoutError:
        exchange.leave(f"no end within {options.timeout:g} s")
        return ExitCode.TIMED_OUT
    except ClientError as error:
        exchange.screen.end_line()
        stop = stop_for(error)
        if exchange.last_event is None:
            raise Stop(stop.code, "\n".join([stop.text, *blocking_task_lines(address, error)])) from error
        exchange.leave(stop.text)
        return stop.code
    return exchange.end()


class _Exchange(TaskDisplay):
    """`last_event` is None until the agent has taken the message."""

    def __init__(self, command: Command, options: SendOptions, address: AgentAddress, message: dict[str, Json]) -> None:
        conversation = ConversationState(context=options.context, task=options.task)
        super().__init__(address, options.output, conversation)
        self.last_event: Json = None
        self._command = command
        self._options = options
        self._idempotency_key = options.idempotency_key
        self._message = message
        self._sent = False

    async def run(self) -> None:
        """Raises: ClientError, TimeoutError."""
        options = self._options
        async with asyncio.timeout(options.timeout), open_client(self.address) as client:
            self._sent = True
            if options.task is not None and self.output is Output.text:
                self.view.skip(await client.get_task(options.task))
            await (self._send(client) if self._command == "send" else self._stream(client))

    async def send_answer(self, extra: dict[str, Json], parts: list[Json]) -> None:
        """Sends the answer that the task waits for. Raises: ClientError, TimeoutError."""
        self._message = extra | compose(parts, context=self.conversation.context, task=self.conversation.task)
        self._idempotency_key = None
        async with asyncio.timeout(self._options.timeout), open_client(self.address) as client:
            await self._stream(client)

    async def _send(self, client: Client) -> None:
        request: dict[str, Json] = {"message": self._message}
        if self._options.task is None:
            # With the id of a new task at once, the command can wait for it even if this connection is lost.
            request["configuration"] = {"returnImmediately": True}
        result = await client.send(request, self._idempotency_key)
        self.note(result)
        task = text_at(result, "task", "id")
        if task and text_at(result, "task", "status", "state") not in ENDED | WAITING:
            result = {"task": await client.wait(task)}
            self.note(result)
        if self.output is Output.text:
            self.view.receive(result)
        else:
            self.print(result)

    async def _stream(self, client: Client) -> None:
        if not client.endpoint.streaming:
            raise Stop(ExitCode.USAGE, "this agent does not stream, as its card says; use send instead of stream")
        async with aclosing(client.stream({"message": self._message}, self._idempotency_key)) as events:
            async for event in events:
                self.receive(event)

    async def print_result(self) -> None:
        """Prints the result as one document in the format json. Raises: ClientError."""
        if self.output is not Output.json:
            return
        task, result = self.conversation.task, self.last_event
        if task and not self.conversation.replied:
            async with open_client(self.address) as client:
                result = {"task": await client.get_task(task)}
        self.print(result)

    def note(self, event: Json) -> None:
        self.last_event = event
        super().note(event)

    def end(self) -> int:
        """Shows the next commands; the exit code of a task that has ended or waits."""
        if self.output is Output.text:
            self.view.finish()
            for line in self._next_lines():
                self.screen.report(line)
        return self.conversation.exit_code

    def _next_lines(self) -> Iterator[str]:
        conversation, question = self.conversation, self.question
        named = (("context", conversation.context), ("task", conversation.task))
        ids = [f"{name} {value}" for name, value in named if value]
        if ids:
            yield "  ".join((*ids, *([conversation.words] if conversation.words else [])))
        if question and question.approvals and conversation.task:
            yield f"ask again: {answer_command(self.address, conversation.task, question)}"
        if ids:
            yield f"next: {self._next_command()}"

    def _next_command(self) -> str:
        address, conversation, question = self.address, self.conversation, self.question
        words = [self._command, *address.options]
        if question and question.calls and conversation.task:
            return answer_command(address, conversation.task, question)
        if question and question.approvals and conversation.task:
            decision = json_text(decisions_on(question.approvals, approved=True))
            return f"{program()} {shlex.join([*words, '--task', conversation.task, '--data', decision, ''])}"
        if conversation.state in WAITING and conversation.task:
            words += ["--task", conversation.task]
        elif conversation.context:
            words += ["--context", conversation.context]
        return f"{program()} {shlex.join(words)} 'your next message'"

    def leave(self, reason: str) -> None:
        """Shows how to follow and cancel the task, which goes on."""
        self.screen.end_line()
        task = self.conversation.task
        lines = [reason]
        if not self._sent:
            lines = [f"{reason}; nothing was sent"]
        elif task is None:
            lines = [f"{reason}; the agent may work on the message, but it has not named a task yet"]
        else:
            lines += open_task_lines(self.address, task, self.conversation.state, self.question)
        self.screen.report("\n".join(lines))
