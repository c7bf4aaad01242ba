"""`contexts`: conversations, as the tasks of an agent tell of them. Law: A2A has no operation for them but ListTasks."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import httpx2

from gateway.cli.exits import ExitCode, Stop
from gateway.cli.failures import told_plainly
from gateway.cli.parameters import Output
from gateway.cli.reaching import Reach
from gateway.cli.table import local_time, print_rows
from gateway.cli.tasks import Filters, listed, print_json
from gateway.cli.terminal import visible
from gateway.cli.transcript import moment_of, opening, state_of, transcript
from gateway.client_admin import adopt_handle, delete_context, export_context, import_context
from gateway.client_wire import Refused, open_http, text_at

Json = Any

T = TypeVar("T")


def print_contexts(there: Reach, limit: int | None, output: Output) -> int:
    """Raises: Stop."""
    with told_plainly():
        tasks = asyncio.run(listed(there, Filters()))
    contexts: dict[str, list[Json]] = {}
    for task in tasks:
        contexts.setdefault(text_at(task, "contextId") or "", []).append(task)
    shown = list(contexts.items())[:limit]
    if output is not Output.text:
        told = [_summary(context, of_context) for context, of_context in shown]
        print_json(told, {"contexts": told}, output)
        return ExitCode.OK
    rows = [
        (
            context,
            str(len(found)),
            state_of(found[0]),
            local_time(sys.stdout, moment_of(found[0])),
            opening(found[-1]),
        )
        for context, found in shown
    ]
    if rows:
        print_rows(sys.stdout, ("CONTEXT", "TASKS", "LAST", "SINCE", "BEGAN WITH"), rows)
    else:
        sys.stderr.write("there are no contexts\n")
    return ExitCode.OK


def _summary(context: str, tasks: list[Json]) -> Json:
    """`tasks` are in the order of ListTasks: the latest is the first."""
    return {
        "contextId": context,
        "tasks": len(tasks),
        "lastTask": text_at(tasks[0], "id"),
        "lastState": text_at(tasks[0], "status", "state"),
        "lastTimestamp": moment_of(tasks[0]),
        "beganWith": opening(tasks[-1]),
    }


def print_context(there: Reach, context: str, output: Output) -> int:
    """Raises: Stop."""
    with told_plainly():
        tasks = asyncio.run(listed(there, Filters(context=context), {"includeArtifacts": True}))
    if not tasks:
        raise _none(there, f"there is no task of a context {context!r} at {there.place}")
    tasks.reverse()
    if output is not Output.text:
        print_json(tasks, {"contextId": context, "tasks": tasks}, output)
        return ExitCode.OK
    lines = [f"context {context}: {len(tasks)} {'task' if len(tasks) == 1 else 'tasks'}"]
    for task in tasks:
        moment = local_time(sys.stdout, moment_of(task))
        lines += ["", f"task {text_at(task, 'id')}  {state_of(task)}  {moment}".rstrip(), *transcript(task)]
    sys.stdout.writelines(f"{visible(line)}\n" for line in lines)
    return ExitCode.OK


def delete(there: Reach, context: str) -> int:
    """Raises: Stop."""

    asked(there, lambda http: delete_context(http, there.url, context, there.agent))
    sys.stdout.write(f"{visible(f'context {context} is deleted')}\n")
    return ExitCode.OK


def export(there: Reach, context: str, file: Path | None) -> int:
    """To standard output where no file is given. Raises: Stop."""
    document = asked(there, lambda http: export_context(http, there.url, context))
    if file is None:
        sys.stdout.write(f"{document.decode()}\n")
        return ExitCode.OK
    try:
        file.write_bytes(document)
    except OSError as error:
        raise Stop(ExitCode.UNEXPECTED, f"{file} cannot be written: {error.strerror}") from error
    sys.stderr.write(f"{visible(f'context {context} is in {file}')}\n")
    return ExitCode.OK


def bring(there: Reach, file: Path) -> int:
    """From standard input where the file is -. Raises: Stop."""
    try:
        document = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
    except OSError as error:
        raise Stop(ExitCode.USAGE, f"{file} cannot be read: {error.strerror}") from error
    context = asked(there, lambda http: import_context(http, there.url, document))
    sys.stdout.write(f"{visible(f'context {context} is imported')}\n")
    return ExitCode.OK


def adopt(there: Reach, handle: str, context: str | None) -> int:
    """Prints the id of the new context alone. Raises: Stop."""
    agent = there.agent or ""
    made = asked(there, lambda http: adopt_handle(http, there.url, agent, handle, context))
    sys.stdout.write(f"{visible(made)}\n")
    return ExitCode.OK


def asked(there: Reach, what: Callable[[httpx2.AsyncClient], Awaitable[T]], group: str = "contexts") -> T:
    """`group`: of the commands of which one lists what there is. Raises: Stop."""

    async def ask() -> T:
        async with open_http(there.url, there.sent) as http:
            return await what(http)

    with told_plainly():
        try:
            return asyncio.run(ask())
        except Refused as error:
            if error.status != 404:
                raise
            raise _none(there, f"{there.url}: {error}", group) from error


def _none(there: Reach, what: str, group: str = "contexts") -> Stop:
    return Stop(ExitCode.UNEXPECTED, f"{what}\nThose that are there: {there.command(group, 'list')}")
