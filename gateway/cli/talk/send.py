"""`send` and `stream`: one message to an agent, and the answer.

Law: the task is the agent's: a lost terminal, a lost connection and the end of a timeout do not stop it, and the user gets
the command that finds it again.
"""

import asyncio
import shlex
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Literal

from gateway.cli.console.connect import open_client, stop_for, task_must_exist
from gateway.cli.console.output import ExitCode, Output, Stop, json_text, program
from gateway.cli.console.parameters import Approve, SendOptions
from gateway.cli.talk.answers import answer_questions, decisions_on, read_tools, with_tools
from gateway.cli.talk.display import ConversationState, TaskDisplay
from gateway.cli.talk.message import build_message
from gateway.cli.talk.render import token_words
from gateway.cli.talk.spinner import waiting
from gateway.client.client import ENDED, WAITING, Client
from gateway.client.transport import ClientError, Json, json_at, text_at


def run_send(
    command: Literal["send", "stream"],
    options: SendOptions,
    approve: Approve | None = None,
    given: list[str] | None = None,
) -> int:
    """Sends one message and shows the answer. When `approve` is None, the command asks on the terminal. `given` are the
    tools that run in this command. Raises: Stop."""
    tools = read_tools(given)
    exchange = _Exchange(command, options, with_tools(build_message(options), tools))
    try:
        with task_must_exist(exchange.address, options.task) if options.task is not None else nullcontext():
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
            raise Stop(stop.code, "\n".join([stop.text, *exchange.blocking_task_lines(error)])) from error
        exchange.leave(stop.text)
        return stop.code
    return exchange.end()


class _Exchange(TaskDisplay):
    """One message and its answer. `last_event` is None until the agent has taken the message."""

    def __init__(self, command: str, options: SendOptions, message: dict[str, Json]) -> None:
        super().__init__(
            options.address(), options.output, ConversationState(context=options.context, task=options.task)
        )
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

    async def send_answer(self, message: dict[str, Json]) -> None:
        """Sends the answer that the task waits for. Raises: ClientError, TimeoutError."""
        self._message, self._idempotency_key = message, None
        async with asyncio.timeout(self._options.timeout), open_client(self.address) as client:
            await self._stream(client)

    async def _send(self, client: Client) -> None:
        request: dict[str, Json] = {"message": self._message}
        if self._options.task is None:
            # With the id of a new task at once, the command can wait for it even if this connection is lost.
            request["configuration"] = {"returnImmediately": True}
        with waiting(self.screen, "waiting for the answer"):
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
        await self.receive_all(client.stream({"message": self._message}, self._idempotency_key))

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
        tokens = token_words(json_at(conversation.usage, "turn")) if self._options.verbose else ""
        if tokens:
            yield f"tokens: {tokens}"
        if question and question.approvals and conversation.task:
            yield f"ask again: {self.answer_command(conversation.task)}"
        if ids:
            yield f"next: {self._next_command()}"

    def _next_command(self) -> str:
        conversation, task, question = self.conversation, self.conversation.task, self.question
        words = [self._command, *self.address.options]
        if task and question and question.calls:
            return self.answer_command(task)
        if task and question and question.approvals:
            decision = json_text(decisions_on(question.approvals, approved=True))
            return f"{program()} {shlex.join([*words, '--task', task, '--data', decision, ''])}"
        if task and conversation.state in WAITING:
            words += ["--task", task]
        elif conversation.context:
            words += ["--context", conversation.context]
        return f"{program()} {shlex.join(words)} 'your next message'"

    def leave(self, reason: str) -> None:
        if self._sent and self.conversation.task is None:
            reason += "; the agent may work on the message, but it has not named a task yet"
        super().leave(reason if self._sent else f"{reason}; nothing was sent")

    def open_task_lines(self) -> list[str]:
        return super().open_task_lines() if self._sent else []
