"""`contexts`: conversations, as the tasks of an agent tell of them. Law: A2A has no operation for them but ListTasks."""

import asyncio
import sys
from typing import Any

from gateway.cli.exits import ExitCode, Stop
from gateway.cli.failures import told_plainly
from gateway.cli.parameters import Output
from gateway.cli.reaching import Reach
from gateway.cli.table import local_time, print_rows
from gateway.cli.tasks import Filters, listed, print_json
from gateway.cli.terminal import visible
from gateway.cli.transcript import moment_of, opening, state_of, transcript
from gateway.client_admin import delete_context
from gateway.client_wire import Refused, open_http, text_at

Json = Any


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

    async def ask() -> None:
        async with open_http(there.url, there.headers) as http:
            await delete_context(http, there.url, context, there.agent)

    with told_plainly():
        try:
            asyncio.run(ask())
        except Refused as error:
            if error.status != 404:
                raise
            raise _none(there, f"{there.url}: {error}") from error
    sys.stdout.write(f"{visible(f'context {context} is deleted')}\n")
    return ExitCode.OK


def _none(there: Reach, what: str) -> Stop:
    return Stop(ExitCode.UNEXPECTED, f"{what}\nThose that are there: {there.command('contexts', 'list')}")
