"""`tasks`: the tasks of an agent; one of them is watched until it ends or waits for an answer."""

import asyncio
import sys
from contextlib import aclosing

from gateway.cli.console.address import AgentAddress
from gateway.cli.console.connect import call, open_client, stop_for, task_must_exist
from gateway.cli.console.output import Columns, ExitCode, Output, local_time, print_json, print_listing, visible
from gateway.cli.console.parameters import Approve, StateName
from gateway.cli.talk.answers import answer_questions, read_tools
from gateway.cli.talk.display import ConversationState, TaskDisplay
from gateway.cli.talk.render import first_text, state_of, status_time, token_words, transcript
from gateway.client.client import WAITING, Client
from gateway.client.transport import ClientError, Json, Refused, json_at, text_at

_COLUMNS: Columns = {
    "TASK": lambda task: text_at(task, "id") or "",
    "STATE": state_of,
    "SINCE": lambda task: local_time(sys.stdout, status_time(task)),
    "CONTEXT": lambda task: text_at(task, "contextId") or "",
    "BEGAN WITH": first_text,
}


def list_tasks(address: AgentAddress, where: dict[str, Json], limit: int | None = None) -> list[Json]:
    """All tasks unless there is a limit; `where` are parameters of ListTasks. Raises: Stop."""

    async def collect(client: Client) -> list[Json]:
        async with aclosing(client.tasks(where, limit)) as tasks:
            return [task async for task in tasks]

    return call(open_client(address), collect)


def print_tasks(
    address: AgentAddress, context: str | None, state: StateName | None, limit: int | None, output: Output
) -> None:
    """Raises: Stop."""
    where = {} if context is None else {"contextId": context}
    if state is not None:
        where["status"] = f"TASK_STATE_{state.upper().replace('-', '_')}"
    tasks = list_tasks(address, where, limit)
    empty = "there are no such tasks" if where else "there are no tasks"
    print_listing(output, "tasks", tasks, _COLUMNS, empty, optional=("CONTEXT", "SINCE"))


def print_task(address: AgentAddress, task: str, output: Output) -> None:
    """Raises: Stop."""
    found = call(open_client(address), lambda client: client.get_task(task), task_must_exist(address, task))
    if output is not Output.text:
        print_json([found], found, output)
        return
    head = f"{state_of(found)}  {local_time(sys.stdout, status_time(found))}".rstrip()
    lines = [f"task     {text_at(found, 'id')}", f"context  {text_at(found, 'contextId')}", f"state    {head}"]
    if tokens := token_words(json_at(found, "metadata", "usage", "task")):
        lines.append(f"tokens   {tokens}")
    sys.stdout.writelines(f"{visible(line)}\n" for line in lines)
    said = list(transcript(found))
    sys.stdout.writelines(f"{line}\n" for line in (["", *said] if said else []))


def cancel(address: AgentAddress, task: str, output: Output) -> None:
    """Raises: Stop."""
    found = call(open_client(address), lambda client: client.cancel_task(task), task_must_exist(address, task))
    if output is Output.text:
        sys.stdout.write(f"{visible(f'task {task} is {state_of(found)}')}\n")
    else:
        print_json([found], found, output)


def watch(
    address: AgentAddress,
    task: str,
    first: int | None,
    output: Output,
    approve: Approve | None,
    tools: list[str] | None,
) -> int:
    """Follows a task. `first` is the number of the first event. When `approve` is None, the command asks on the
    terminal. Raises: Stop."""
    commands = read_tools(tools)
    display = _Watch(address, task, first or 1, output)
    try:
        with task_must_exist(address, task):
            asyncio.run(display.run())
        if display.question:
            answer_questions(display, display.send_answer, approve, commands)
        if output is Output.json:
            display.print({"task": asyncio.run(display.get_task(task))})
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
            if client.endpoint.streaming:
                await self.receive_all(client.follow(self._task, self._first - 1, status_time(now)))
            else:
                self.receive({"task": now})
                self.receive({"task": await client.wait(self._task)})

    def receive(self, event: Json) -> None:
        if self.conversation.state is None and self._first > 1:
            self.view.skip(event.get("task"))
        super().receive(event)

    async def send_answer(self, message: dict[str, Json]) -> None:
        """Sends the answer that the task waits for, and watches on. Raises: ClientError."""
        self.question = None
        async with open_client(self.address) as client:
            try:
                await self.receive_all(client.send_and_follow(message))
            except Refused as error:
                if error.temporary or error.status in {401, 403}:
                    raise
                # Another client may have answered first. The task continues in this case too.
                self.screen.report(stop_for(error).text)
                await self.receive_all(client.follow_any(self._task))

    def end(self) -> int:
        """Shows how to answer a task that waits; the exit code of a task that has ended or waits."""
        if self.output is Output.text:
            self.view.finish()
            self.screen.report(f"context {self.conversation.context}  task {self._task}  {self.conversation.words}")
            if self.conversation.state in WAITING:
                self.screen.report(f"answer: {self.answer_command(self._task)}")
        return self.conversation.exit_code
