"""`tasks watch`: the events of a task, until it ends or waits for an answer."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing

from gateway.cli.console.address import AgentAddress
from gateway.cli.console.connect import open_client, stop_for, task_must_exist
from gateway.cli.console.exits import ExitCode
from gateway.cli.console.parameters import Approve, Output
from gateway.cli.talk.answers import answer_questions
from gateway.cli.talk.display import TaskDisplay
from gateway.cli.talk.local_tools import Tools
from gateway.cli.talk.message import compose
from gateway.cli.talk.next_commands import answer_command, open_task_lines
from gateway.cli.talk.state import ConversationState
from gateway.cli.talk.transcript import status_time
from gateway.client.client import WAITING, Client
from gateway.client.transport import ClientError, Json, Refused


def watch(
    address: AgentAddress,
    task: str,
    first: int | None,
    output: Output,
    approve: Approve | None = None,
    tools: Tools | None = None,
) -> int:
    """`first`: number of the first event. `approve` None: asks on a terminal. Raises: Stop."""
    display = _Watch(address, task, first or 1, output)
    try:
        with task_must_exist(address, task):
            asyncio.run(display.run())
        if display.question:
            answer_questions(display, display.send_answer, approve, tools or {})
        asyncio.run(display.print_task())
    except KeyboardInterrupt:
        display.leave("interrupted")
        return ExitCode.INTERRUPTED
    except ClientError as error:
        stop = stop_for(error)
        if display.conversation.state is None:
            raise stop from error
        display.leave(stop.text)
        return stop.code
    return display.end()


class _Watch(TaskDisplay):
    def __init__(self, address: AgentAddress, task: str, first: int, output: Output) -> None:
        super().__init__(address, output, ConversationState(task=task))
        self._task = task
        self._first = first

    async def run(self) -> None:
        """Raises: ClientError."""
        async with open_client(self.address) as client:
            now = await client.get_task(self._task)
            async for event in self._events(client, now):
                if self.conversation.state is None and self._first > 1:
                    self.view.skip(event.get("task"))
                self.receive(event)

    async def _events(self, client: Client, now: Json) -> AsyncIterator[Json]:
        if not client.endpoint.streaming:
            yield {"task": now}
            yield {"task": await client.wait(self._task)}
            return
        async with aclosing(client.follow(self._task, self._first - 1, status_time(now))) as events:
            async for event in events:
                yield event

    async def send_answer(self, extra: dict[str, Json], parts: list[Json]) -> None:
        """Sends the answer that the task waits for, and watches on. Raises: ClientError."""
        message = extra | compose(parts, context=self.conversation.context, task=self._task)
        self.question = None
        async with open_client(self.address) as client:
            try:
                await self._follow(client.send_and_follow(message))
            except Refused as error:
                if error.temporary or error.status in {401, 403}:
                    raise
                # Another client may have answered first: the task goes on all the same.
                self.screen.report(stop_for(error).text)
                await self._follow(client.follow_any(self._task))

    async def _follow(self, events: AsyncGenerator[Json, None]) -> None:
        async with aclosing(events):
            async for event in events:
                self.receive(event)

    async def print_task(self) -> None:
        """Prints the task as one document in the format json. Raises: ClientError."""
        if self.output is Output.json:
            async with open_client(self.address) as client:
                self.print({"task": await client.get_task(self._task)})

    def end(self) -> int:
        """Shows how to answer a task that waits; the exit code of a task that has ended or waits."""
        if self.output is Output.text:
            self.view.finish()
            self.screen.report(f"context {self.conversation.context}  task {self._task}  {self.conversation.words}")
            if self.conversation.state in WAITING:
                self.screen.report(f"answer: {answer_command(self.address, self._task, self.question)}")
        return self.conversation.exit_code

    def leave(self, reason: str) -> None:
        """Shows how to answer or to follow the task, which goes on."""
        self.screen.end_line()
        lines = open_task_lines(self.address, self._task, self.conversation.state, self.question)
        self.screen.report("\n".join([reason, *lines]))
