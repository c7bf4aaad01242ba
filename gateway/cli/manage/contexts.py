"""`contexts`: conversations. Law: uses ListTasks, as A2A has no other operation for them, and the administration API."""

import os
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

from gateway.cli.console.address import AgentAddress
from gateway.cli.console.connect import call_admin, not_found
from gateway.cli.console.output import (
    Columns,
    ExitCode,
    Output,
    Stop,
    local_time,
    print_json,
    print_listing,
    reason_of,
    visible,
)
from gateway.cli.manage.tasks import list_tasks
from gateway.cli.talk.render import first_text, state_of, state_words, status_time, transcript
from gateway.client.admin import adopt_handle, delete_context, export_context, import_context
from gateway.client.transport import Json, text_at

_COLUMNS: Columns = {
    "CONTEXT": lambda summary: summary["contextId"],
    "TASKS": lambda summary: str(summary["tasks"]),
    "LAST": lambda summary: state_words(summary["lastState"]),
    "SINCE": lambda summary: local_time(sys.stdout, summary["lastTimestamp"]),
    "BEGAN WITH": lambda summary: summary["beganWith"],
}


def print_contexts(address: AgentAddress, limit: int | None, output: Output) -> None:
    """Raises: Stop."""
    contexts: dict[str, list[Json]] = {}
    for task in list_tasks(address, {}):
        contexts.setdefault(text_at(task, "contextId") or "", []).append(task)
    latest = [_summary(context, found) for context, found in list(contexts.items())[:limit]]
    print_listing(output, "contexts", latest, _COLUMNS, "there are no contexts", optional=("TASKS", "SINCE"))


def _summary(context: str, tasks: list[Json]) -> Json:
    """`tasks` are in the order of ListTasks: the latest is the first."""
    return {
        "contextId": context,
        "tasks": len(tasks),
        "lastTask": text_at(tasks[0], "id"),
        "lastState": text_at(tasks[0], "status", "state"),
        "lastTimestamp": status_time(tasks[0]),
        "beganWith": first_text(tasks[-1]),
    }


def print_context(address: AgentAddress, context: str, output: Output) -> None:
    """Raises: Stop."""
    tasks = list_tasks(address, {"contextId": context, "includeArtifacts": True})
    if not tasks:
        raise not_found(address, f"there is no task of a context {context!r} at {address.text}", "contexts")
    tasks.reverse()
    if output is not Output.text:
        print_json(tasks, {"contextId": context, "tasks": tasks}, output)
        return
    lines = [f"context {context}: {len(tasks)} {'task' if len(tasks) == 1 else 'tasks'}"]
    for task in tasks:
        moment = local_time(sys.stdout, status_time(task))
        lines += ["", f"task {text_at(task, 'id')}  {state_of(task)}  {moment}".rstrip(), *transcript(task)]
    sys.stdout.writelines(f"{visible(line)}\n" for line in lines)


def delete(address: AgentAddress, context: str) -> None:
    """Raises: Stop."""
    call_admin(address, lambda http: delete_context(http, address.url, context, address.agent))
    sys.stdout.write(f"{visible(f'context {context} is deleted')}\n")


def export(address: AgentAddress, context: str, file: Path | None) -> None:
    """To standard output where no file is given. Raises: Stop."""
    document = call_admin(address, lambda http: export_context(http, address.url, context))
    if file is None:
        sys.stdout.write(f"{document.decode()}\n")
        return
    try:
        # Everything that was said is in it, so that a new file is readable by its owner only.
        with open(file, "wb", opener=partial(os.open, mode=0o600)) as written:
            written.write(document)
    except OSError as error:
        raise Stop(ExitCode.USAGE, f"{file} cannot be written: {reason_of(error)}") from error
    sys.stderr.write(f"{visible(f'context {context} is in {file}')}\n")


def import_document(address: AgentAddress, file: Path) -> None:
    """From standard input where the file is -. Raises: Stop."""
    try:
        document = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
    except OSError as error:
        raise Stop(ExitCode.USAGE, f"{file} cannot be read: {reason_of(error)}") from error
    context = call_admin(address, lambda http: import_context(http, address.url, document))
    sys.stdout.write(f"{visible(f'context {context} is imported')}\n")


def adopt(address: AgentAddress, handle: str, context: str | None) -> None:
    """Prints the id of the new context alone. Raises: Stop."""
    agent = address.agent or ""
    gateway = replace(address, agent=None)
    made = call_admin(gateway, lambda http: adopt_handle(http, gateway.url, agent, handle, context), "agents")
    sys.stdout.write(f"{visible(made)}\n")
