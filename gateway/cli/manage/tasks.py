"""`tasks list`, `get` and `cancel`: the tasks of an agent."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass

from gateway.cli.console.address import AgentAddress
from gateway.cli.console.connect import client_errors_stop, open_client, task_must_exist
from gateway.cli.console.exits import ExitCode
from gateway.cli.console.parameters import Output, StateChoice
from gateway.cli.console.table import local_time, print_json, print_listing
from gateway.cli.console.terminal import visible
from gateway.cli.talk.transcript import first_text, state_of, status_time, transcript
from gateway.client.client import Client
from gateway.client.transport import Json, text_at


@dataclass(frozen=True, slots=True)
class Filters:
    """Which tasks. `limit` None: all."""

    context: str | None = None
    state: StateChoice | None = None
    limit: int | None = None

    @property
    def params(self) -> dict[str, Json]:
        """The parameters of ListTasks."""
        where: dict[str, Json] = {}
        if self.context is not None:
            where["contextId"] = self.context
        if self.state is not None:
            where["status"] = f"TASK_STATE_{self.state.name.upper()}"
        return where


async def list_tasks(address: AgentAddress, filters: Filters, more: dict[str, Json] | None = None) -> list[Json]:
    """Raises: ClientError."""
    async with (
        open_client(address) as client,
        aclosing(client.tasks(filters.params | (more or {}), filters.limit)) as tasks,
    ):
        return [task async for task in tasks]


def print_tasks(address: AgentAddress, filters: Filters, output: Output) -> int:
    """Raises: Stop."""
    with client_errors_stop():
        tasks = asyncio.run(list_tasks(address, filters))
    empty = "there are no such tasks" if filters.params else "there are no tasks"
    return print_listing(output, "tasks", tasks, ("TASK", "STATE", "SINCE", "CONTEXT", "BEGAN WITH"), _row, empty)


def _row(task: Json) -> tuple[str, ...]:
    return (
        text_at(task, "id") or "",
        state_of(task),
        local_time(sys.stdout, status_time(task)),
        text_at(task, "contextId") or "",
        first_text(task),
    )


def print_task(address: AgentAddress, task: str, output: Output) -> int:
    """Raises: Stop."""
    found = _call(address, task, lambda client: client.get_task(task))
    if output is not Output.text:
        print_json([found], found, output)
        return ExitCode.OK
    head = f"{state_of(found)}  {local_time(sys.stdout, status_time(found))}".rstrip()
    lines = [f"task     {text_at(found, 'id')}", f"context  {text_at(found, 'contextId')}", f"state    {head}"]
    sys.stdout.writelines(f"{visible(line)}\n" for line in lines)
    said = list(transcript(found))
    sys.stdout.writelines(f"{line}\n" for line in (["", *said] if said else []))
    return ExitCode.OK


def cancel(address: AgentAddress, task: str, output: Output) -> int:
    """Raises: Stop."""
    found = _call(address, task, lambda client: client.cancel_task(task))
    if output is Output.text:
        sys.stdout.write(f"{visible(f'task {task} is {state_of(found)}')}\n")
    else:
        print_json([found], found, output)
    return ExitCode.OK


def _call(address: AgentAddress, task: str, operation: Callable[[Client], Awaitable[Json]]) -> Json:
    """Raises: Stop."""

    async def call() -> Json:
        async with open_client(address) as client:
            return await operation(client)

    with client_errors_stop(), task_must_exist(address, task):
        return asyncio.run(call())
