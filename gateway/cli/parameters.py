"""Options and arguments that several commands take. Law: as `commands`, it imports nothing but typer."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

DEFAULT_URL = "http://127.0.0.1:8080"


class Output(StrEnum):
    text = "text"
    json = "json"
    jsonl = "jsonl"


class BindingChoice(StrEnum):
    jsonrpc = "jsonrpc"
    rest = "rest"


def _agents_there(ctx: typer.Context, incomplete: str) -> list[str]:
    from gateway.cli.completing import agent_names

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
AgentOrUrl = Annotated[
    str | None,
    typer.Argument(
        metavar="[AGENT|URL]", show_default=False, help="Name of an agent, or an address.", autocompletion=_agents_there
    ),
]


def examples(*lines: str) -> str:
    """The end of a command's help."""
    return "\n".join(("Examples:", "", "\b", *(f"  {line}" for line in lines)))
