"""`tasks list`, `get` and `cancel`: the tasks of an agent."""

import asyncio
import sys
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from gateway.cli.console.address import AgentAddress
from gateway.cli.console.connect import client_errors_stop, open_client, task_must_exist
from gateway.cli.console.exits import ExitCode
from gateway.cli.console.parameters import Output, StateChoice
from gateway.cli.console.table import local_time, print_json, print_rows
from gateway.cli.console.terminal import visible
from gateway.cli.talk.transcript import first_text, state_of, status_time, transcript
from gateway.client.transport import text_at

Json = Any


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
    if output is not Output.text:
        print_json(tasks, {"tasks": tasks}, output)
        return ExitCode.OK
    rows = [
        (
            text_at(task, "id") or "",
            state_of(task),
            local_time(sys.stdout, status_time(task)),
            text_at(task, "contextId") or "",
            first_text(task),
        )
        for task in tasks
    ]
    if rows:
        print_rows(sys.stdout, ("TASK", "STATE", "SINCE", "CONTEXT", "BEGAN WITH"), rows)
    else:
        sys.stderr.write("there are no such tasks\n" if filters.params else "there are no tasks\n")
    return ExitCode.OK


def print_task(address: AgentAddress, task: str, output: Output) -> int:
    """Raises: Stop."""

    async def get() -> Json:
        async with open_client(address) as client:
            return await client.get_task(task)

    with client_errors_stop(), task_must_exist(address, task):
        found = asyncio.run(get())
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

    async def ask() -> Json:
        async with open_client(address) as client:
            return await client.cancel_task(task)

    with client_errors_stop(), task_must_exist(address, task):
        found = asyncio.run(ask())
    if output is Output.text:
        sys.stdout.write(f"{visible(f'task {task} is {state_of(found)}')}\n")
    else:
        print_json([found], found, output)
    return ExitCode.OK
