"""What the shell may complete. Law: quick and silent; who presses Tab wants no error, and no answer is one.

What options mean that are more than words. Law: a bad one is told before anything is sent.

Options and arguments that several commands take. Law: as `commands`, it imports nothing but typer.
"""

import http.client
import json
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import typer

from gateway.cli.console.exits import ExitCode, Stop

_TIMEOUT = 0.5
_LARGEST = 1_000_000


def agent_names(url: str) -> list[str]:
    """The agents of the gateway that runs there, none where nothing of the kind does."""
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


KEY_VARIABLE = "A2A_GATEWAY_KEY"


def read_url(url: str) -> str:
    """The same address. Raises: Stop (2) for what is none."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable or any(character.isspace() for character in url):
        raise Stop(ExitCode.USAGE, f"{url!r} is no address; write one such as http://127.0.0.1:8080")
    return url


def read_headers(given: Sequence[str]) -> dict[str, str]:
    """Headers from `NAME: VALUE`. Raises: Stop (2)."""
    headers = {}
    for header in given:
        name, colon, value = header.partition(":")
        name, value = name.strip(), value.strip()
        if not colon or not name.replace("-", "").replace("_", "").isalnum() or not f"{name}{value}".isascii():
            raise Stop(ExitCode.USAGE, f"--header must look like 'Name: value', not {name!r}")
        if not value.isprintable():
            raise Stop(ExitCode.USAGE, f"--header {name!r} holds a control character")
        headers[name] = value
    return headers


def read_key(key: str | None) -> str | None:
    """The API key; None where there is none, or an empty one. Raises: Stop (2)."""
    text = (key or "").strip()
    if not text.isascii() or not text.isprintable() or " " in text:
        raise Stop(ExitCode.USAGE, "the API key holds what no key can hold: is it whole, and nothing else?")
    return text or None


def with_key(headers: Mapping[str, str], key: str | None) -> dict[str, str]:
    """The headers that a request carries. One that was typed says more than a key."""
    if key is None or any(name.lower() == "authorization" for name in headers):
        return dict(headers)
    return {**headers, "Authorization": f"Bearer {key}"}


DEFAULT_URL = "http://127.0.0.1:8080"


class Output(StrEnum):
    text = "text"
    json = "json"
    jsonl = "jsonl"


class BindingChoice(StrEnum):
    jsonrpc = "jsonrpc"
    rest = "rest"


class Approve(StrEnum):
    ask = "ask"
    yes = "yes"
    no = "no"


def _agents_there(ctx: typer.Context, incomplete: str) -> list[str]:

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
        autocompletion=_agents_there,
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
        envvar="A2A_GATEWAY_KEY",
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
        metavar="[AGENT|URL]", show_default=False, help="Name of an agent, or an address.", autocompletion=_agents_there
    ),
]


def examples(*lines: str) -> str:
    """The end of a command's help."""
    return "\n".join(("Examples:", "", "\b", *(f"  {line}" for line in lines)))


class StateChoice(StrEnum):
    submitted = "submitted"
    working = "working"
    completed = "completed"
    failed = "failed"
    canceled = "canceled"
    rejected = "rejected"
    input_required = "input-required"
    auth_required = "auth-required"
