"""`contexts`: conversations, as the tasks of an agent tell of them. Law: A2A has no operation for them but ListTasks.

`push`: what is to be posted to callers, and what could not be. Law: as in `contexts`: only through the gateway.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import httpx2

from gateway.cli.console.connect import Reach, told_plainly
from gateway.cli.console.exits import ExitCode, Stop
from gateway.cli.console.parameters import Output
from gateway.cli.console.terminal import local_time, print_rows, visible
from gateway.cli.manage.tasks import Filters, listed, print_json
from gateway.cli.talk.conversation import moment_of, opening, state_of, transcript
from gateway.client.admin import (
    adopt_handle,
    delete_context,
    export_context,
    import_context,
    list_pushes,
    replay_pushes,
)
from gateway.client.transport import Refused, open_http, text_at

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


def print_pushes(there: Reach, stopped: bool, output: Output) -> int:
    """Raises: Stop."""
    found = asked(there, lambda http: list_pushes(http, there.url))
    shown = [config for config in found if not stopped or text_at(config, "state") in ("stopped", "gone")]
    if output is not Output.text:
        print_json(shown, {"configs": shown}, output)
        return ExitCode.OK
    rows = [_row(config) for config in shown]
    if rows:
        print_rows(sys.stdout, ("TASK", "CONFIG", "STATE", "EVENT", "TRIES", "NEXT", "ADDRESS", "WHY"), rows)
    else:
        sys.stderr.write("there is nothing to deliver\n")
    return ExitCode.OK


def _row(config: Json) -> tuple[str, ...]:
    following = text_at(config, "nextAttempt")
    return (
        text_at(config, "taskId") or "",
        text_at(config, "id") or "",
        text_at(config, "state") or "",
        str(config.get("nextEvent", "")),
        str(config.get("attempts", "")),
        "" if following is None else local_time(sys.stdout, following),
        text_at(config, "url") or "",
        text_at(config, "lastError") or "",
    )


def replay(there: Reach, task: str, config: str | None) -> int:
    """Raises: Stop."""
    count = asked(there, lambda http: replay_pushes(http, there.url, task, config), "push")
    what = "configuration goes on where it was" if count == 1 else "configurations go on where they were"
    sys.stdout.write(f"{visible(f'task {task}: {count} {what} stopped')}\n")
    return ExitCode.OK
