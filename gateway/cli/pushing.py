"""`push`: what is to be posted to callers, and what could not be. Law: as in `contexts`: only through the gateway."""

import sys
from typing import Any

from gateway.cli.contexts import asked
from gateway.cli.exits import ExitCode
from gateway.cli.parameters import Output
from gateway.cli.reaching import Reach
from gateway.cli.table import local_time, print_rows
from gateway.cli.tasks import print_json
from gateway.cli.terminal import visible
from gateway.client_admin import list_pushes, replay_pushes
from gateway.client_wire import text_at

Json = Any


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
