"""Options and arguments of commands, and what the shell completes in them.

Law: imports nothing but typer; completion is quick, and an error in it completes nothing.
"""

import http.client
import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import typer

from gateway.cli.console.address import DEFAULT_URL, KEY_VARIABLE, BindingChoice

DEFAULT_FILE = Path("gateway.yaml")

_TIMEOUT = 0.5
_LARGEST = 1_000_000


class Output(StrEnum):
    text = "text"
    json = "json"
    jsonl = "jsonl"


class Approve(StrEnum):
    ask = "ask"
    yes = "yes"
    no = "no"


class StateChoice(StrEnum):
    submitted = "submitted"
    working = "working"
    completed = "completed"
    failed = "failed"
    canceled = "canceled"
    rejected = "rejected"
    input_required = "input-required"
    auth_required = "auth-required"


def agent_names(url: str) -> list[str]:
    """The agents of the gateway at this address; none where no gateway answers."""
    try:
        parts = urlsplit(url)
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        connection = kind(parts.hostname or "", parts.port, timeout=_TIMEOUT)
        try:
            connection.request("GET", f"{parts.path.rstrip('/')}/a2a")
            listing = json.loads(connection.getresponse().read(_LARGEST))
        finally:
            connection.close()
        return [str(item["agent"]) for item in listing["agents"]]
    except (OSError, http.client.HTTPException, ValueError, LookupError, TypeError):
        return []


def _complete_agent(ctx: typer.Context, incomplete: str) -> list[str]:
    url = ctx.params.get("url")
    return [name for name in agent_names(url if isinstance(url, str) else DEFAULT_URL) if name.startswith(incomplete)]


Url = Annotated[
    str,
    typer.Option(
        "-u",
        "--url",
        metavar="URL",
        envvar="A2A_GATEWAY_URL",
        help="A gateway, or any A2A 1.0 agent: its base address, its card or its endpoint.",
    ),
]
Agent = Annotated[
    str | None,
    typer.Option(
        "-a",
        "--agent",
        metavar="NAME",
        help="Which agent of a gateway; its default one if not given.",
        autocompletion=_complete_agent,
    ),
]
Headers = Annotated[
    list[str] | None,
    typer.Option("--header", metavar="'NAME: VALUE'", help="A header for every request; may be repeated."),
]
ApiKey = Annotated[
    str | None,
    typer.Option(
        "--key",
        metavar="KEY",
        envvar=KEY_VARIABLE,
        show_default=False,
        help="An API key of the gateway; the variable keeps it out of the list of processes.",
    ),
]
Text = Annotated[str, typer.Argument(metavar="TEXT", show_default=False, help="What to say; - reads standard input.")]
Binding = Annotated[
    BindingChoice | None, typer.Option(metavar="jsonrpc|rest", help="Use this one of the agent's interfaces.")
]
Context = Annotated[str | None, typer.Option(metavar="ID", help="Go on with this conversation.")]
Task = Annotated[str | None, typer.Option(metavar="ID", help="Go on with this task, which waits for an answer.")]
Files = Annotated[
    list[Path] | None, typer.Option("--file", metavar="PATH", help="Send this file along; may be repeated.")
]
Data = Annotated[str | None, typer.Option(metavar="JSON", help="Send this JSON along.")]
Key = Annotated[
    str | None,
    typer.Option("--idempotency-key", metavar="KEY", help="The same key again is the same message, not another one."),
]
Format = Annotated[
    Output,
    typer.Option("-o", "--output", metavar="text|json|jsonl", help="text; json: the result; jsonl: a line per event."),
]
Timeout = Annotated[
    float | None, typer.Option(metavar="SECONDS", min=0.001, help="Stop waiting after so long; the task goes on.")
]
Approval = Annotated[
    Approve | None,
    typer.Option(
        "--approve",
        metavar="ask|yes|no",
        show_default="ask on a terminal",
        help="What becomes of tool calls that need a yes.",
    ),
]
Tools = Annotated[
    list[str] | None,
    typer.Option(
        "--tool",
        metavar="NAME=COMMAND",
        help="A tool that the agent may use on this machine; may be repeated. "
        "It gets its arguments as JSON on standard input; what it prints is the result.",
    ),
]
AgentOrUrl = Annotated[
    str | None,
    typer.Argument(
        metavar="[AGENT|URL]",
        show_default=False,
        help="Name of an agent, or an address.",
        autocompletion=_complete_agent,
    ),
]
ConfigFile = Annotated[Path, typer.Option("-c", "--config", metavar="FILE", help="The configuration file.")]
Listing = Annotated[
    Output,
    typer.Option(
        "-o", "--output", metavar="text|json|jsonl", help="text: columns; json: all in one; jsonl: a line each."
    ),
]
KeyName = Annotated[str, typer.Argument(metavar="NAME", show_default=False, help="Name of the key, for people.")]
