"""Options and arguments of commands, alone and as values of several, and what the shell completes in them.

Law: imports nothing but typer; completion is quick, and an error in it completes nothing.
"""

import http.client
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import typer

from gateway.cli.console.address import DEFAULT_URL, KEY_VARIABLE, AgentAddress, BindingName, http_get, read_address
from gateway.cli.console.output import Output

DEFAULT_FILE = Path("gateway.yaml")

Approve: TypeAlias = Literal["ask", "yes", "no"]
LogFormatName: TypeAlias = Literal["text", "json"]
ReplaySpeed: TypeAlias = Literal["0", "1", "10"]
LogLevelName: TypeAlias = Literal["debug", "info", "warning", "error"]
StateName: TypeAlias = Literal[
    "submitted", "working", "completed", "failed", "canceled", "rejected", "input-required", "auth-required"
]


def agent_names(url: str) -> list[str]:
    """The agents of the gateway at this address; none where no gateway answers."""
    try:
        _, listing = http_get(f"{url.rstrip('/')}/a2a", timeout=0.5, largest=1_000_000)
        return [str(item["agent"]) for item in json.loads(listing)["agents"]]
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
        help="An API key of the gateway; the variable keeps it out of the list of processes.",
    ),
]
Authorities = Annotated[
    Path | None,
    typer.Option("--ca", metavar="FILE", help="Trust the authorities whose certificates (PEM) this file holds, too."),
]
Proxy = Annotated[
    str | None,
    typer.Option("--proxy", metavar="URL", help="Go through this proxy, not through those of the environment."),
]
Text = Annotated[str, typer.Argument(metavar="TEXT", help="What to say; - reads standard input.")]
Binding = Annotated[
    BindingName | None, typer.Option(metavar="jsonrpc|rest", help="Use this one of the agent's interfaces.")
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
Verbose = Annotated[
    bool, typer.Option("-v", "--verbose", help="Tell how many tokens the answer took, too, if the agent says it.")
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
    typer.Argument(metavar="[AGENT|URL]", help="Name of an agent, or an address.", autocompletion=_complete_agent),
]
ConfigFile = Annotated[Path, typer.Option("-c", "--config", metavar="FILE", help="The configuration file.")]
Listing = Annotated[
    Output,
    typer.Option(
        "-o", "--output", metavar="text|json|jsonl", help="text: columns; json: all in one; jsonl: a line each."
    ),
]
KeyName = Annotated[str, typer.Argument(metavar="NAME", help="Name of the key, for people.")]


@dataclass(frozen=True, slots=True)
class GatewayOptions:
    """Where a gateway is."""

    url: Url = DEFAULT_URL
    headers: Headers = None
    key: ApiKey = None
    ca: Authorities = None
    proxy: Proxy = None

    def address(self, agent: str | None = None, binding: BindingName | None = None) -> AgentAddress:
        """Raises: Stop (2)."""
        return read_address(agent, self.url, binding, self.headers, self.key, self.ca, self.proxy)


@dataclass(frozen=True, slots=True)
class AgentOptions:
    """Where an agent is."""

    url: Url = DEFAULT_URL
    agent: Agent = None
    binding: Binding = None
    headers: Headers = None
    key: ApiKey = None
    ca: Authorities = None
    proxy: Proxy = None

    def address(self) -> AgentAddress:
        """Raises: Stop (2)."""
        return read_address(self.agent, self.url, self.binding, self.headers, self.key, self.ca, self.proxy)


@dataclass(frozen=True, slots=True)
class SendOptions:
    """A message, and where its agent is."""

    text: Text
    url: Url = DEFAULT_URL
    agent: Agent = None
    binding: Binding = None
    context: Context = None
    task: Task = None
    files: Files = None
    data: Data = None
    headers: Headers = None
    key: ApiKey = None
    ca: Authorities = None
    proxy: Proxy = None
    idempotency_key: Key = None
    output: Format = Output.text
    timeout: Timeout = None
    verbose: Verbose = False

    def address(self) -> AgentAddress:
        """Raises: Stop (2)."""
        return read_address(self.agent, self.url, self.binding, self.headers, self.key, self.ca, self.proxy)


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """What to serve, and where to listen."""

    targets: Annotated[
        list[str] | None, typer.Argument(metavar="TARGET", help="Agents in short, instead of a file.")
    ] = None
    file: Annotated[
        Path | None,
        typer.Option("-c", "--config", metavar="FILE", show_default=str(DEFAULT_FILE), help="The configuration file."),
    ] = None
    save: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the targets to this configuration file, then serve it.")
    ] = None
    force: Annotated[bool, typer.Option("--force", help="Let --save write over a file.")] = False
    host: Annotated[str | None, typer.Option(metavar="HOST", help="Listen on this address instead of the file's.")] = (
        None
    )
    port: Annotated[
        int | None, typer.Option(metavar="PORT", min=0, max=65535, help="Listen on this port; 0 takes a free one.")
    ] = None
    workers: Annotated[
        str | None,
        typer.Option(
            metavar="N|auto",
            help="Serve by so many processes, or by one for each core; the storage must be one that replicas share.",
        ),
    ] = None
    worker: Annotated[int | None, typer.Option(metavar="DESCRIPTOR", hidden=True)] = None
    insecure: Annotated[
        bool,
        typer.Option("--insecure", help="Listen where other machines reach it, though nobody is asked who they are."),
    ] = False
    record: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Write what goes to backends and tools, and what comes, as files; secrets masked."
        ),
    ] = None
    replay: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Answer from such files instead of asking backends and tools.")
    ] = None
    replay_speed: Annotated[
        ReplaySpeed, typer.Option(metavar="0|1|10", help="Replay so much faster than it was; 0 waits for nothing.")
    ] = "0"
    strict: Annotated[
        bool,
        typer.Option("--strict", help="Exit with 1 where the replay had no answer, or a recording was not asked for."),
    ] = False
    log_format: Annotated[
        LogFormatName | None,
        typer.Option(
            metavar="text|json",
            show_default="text on a terminal, else json",
            help="The log on standard error: text for people, or a JSON object per line.",
        ),
    ] = None
    log_level: Annotated[
        LogLevelName | None,
        typer.Option(metavar="debug|info|warning|error", show_default="info", help="The least that is logged."),
    ] = None

    def flags(self) -> dict[str, object]:
        """Settings by dotted path."""
        given = {
            "server.host": self.host,
            "server.port": self.port,
            "server.workers": self._workers(),
            "logs.format": self.log_format,
            "logs.level": self.log_level,
        }
        return {name: value for name, value in given.items() if value is not None}

    def _workers(self) -> str | int | None:
        given = self.workers
        return int(given) if given is not None and given.isascii() and given.isdecimal() else given


@dataclass(frozen=True, slots=True)
class NewKeyOptions:
    """An API key to make."""

    name: KeyName
    principal: Annotated[
        str | None,
        typer.Option(metavar="NAME", show_default="the key's name", help="Whose key it is: what it sees and owns."),
    ] = None
    tenant: Annotated[str, typer.Option(metavar="NAME", help="The tenant of the principal, if there are several.")] = ""
    admin: Annotated[bool, typer.Option("--admin", help="The key opens the admin API, too.")] = False
    expires: Annotated[
        str | None, typer.Option(metavar="DURATION", help="Ends by itself after so long, as 90d; never if not given.")
    ] = None
    file: ConfigFile = DEFAULT_FILE
    output: Listing = Output.text
