"""`push`: the push notifications that are still to be posted, and those that were given up.

Law: uses the administration API only.
"""

import sys

from gateway.cli.console.address import AgentAddress
from gateway.cli.console.connect import call_admin
from gateway.cli.console.output import Columns, Output, local_time, print_listing, visible
from gateway.client.admin import list_pushes, replay_pushes
from gateway.client.transport import text_at

_COLUMNS: Columns = {
    "TASK": lambda config: text_at(config, "taskId") or "",
    "CONFIG": lambda config: text_at(config, "id") or "",
    "STATE": lambda config: text_at(config, "state") or "",
    "EVENT": lambda config: str(config.get("nextEvent", "")),
    "TRIES": lambda config: str(config.get("attempts", "")),
    "NEXT": lambda config: local_time(sys.stdout, text_at(config, "nextAttempt") or ""),
    "ADDRESS": lambda config: text_at(config, "url") or "",
    "WHY": lambda config: text_at(config, "lastError") or "",
}


def print_pushes(address: AgentAddress, stopped: bool, output: Output) -> None:
    """Raises: Stop."""
    found = call_admin(address, lambda http: list_pushes(http, address.url))
    shown = [config for config in found if not stopped or text_at(config, "state") in ("stopped", "gone")]
    print_listing(
        output,
        "configs",
        shown,
        _COLUMNS,
        "there is nothing to deliver for this principal; another one's is listed with a key of its own",
    )


def replay(address: AgentAddress, task: str, config: str | None) -> None:
    """Raises: Stop."""
    count = call_admin(address, lambda http: replay_pushes(http, address.url, task, config), "push")
    what = "configuration goes on where it was" if count == 1 else "configurations go on where they were"
    sys.stdout.write(f"{visible(f'task {task}: {count} {what} stopped')}\n")
