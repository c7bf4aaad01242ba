"""The options of commands as values. Law: imports nothing but typer, as `commands`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from gateway.cli.console.address import DEFAULT_URL, AgentAddress, read_address
from gateway.cli.console.parameters import (
    DEFAULT_FILE,
    Agent,
    ApiKey,
    Binding,
    ConfigFile,
    Context,
    Data,
    Files,
    Format,
    Headers,
    Key,
    KeyName,
    Listing,
    Output,
    Task,
    Text,
    Timeout,
    Url,
)


@dataclass(frozen=True, slots=True)
class GatewayOptions:
    """Where a gateway is."""

    url: Url = DEFAULT_URL
    headers: Headers = None
    key: ApiKey = None

    def address(self, agent: str | None = None) -> AgentAddress:
        """Raises: Stop (2)."""
        return read_address(agent, self.url, None, self.headers, self.key)


@dataclass(frozen=True, slots=True)
class AgentOptions:
    """Where an agent is."""

    url: Url = DEFAULT_URL
    agent: Agent = None
    binding: Binding = None
    headers: Headers = None
    key: ApiKey = None

    def address(self) -> AgentAddress:
        """Raises: Stop (2)."""
        return read_address(self.agent, self.url, self.binding, self.headers, self.key)


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
    idempotency_key: Key = None
    output: Format = Output.text
    timeout: Timeout = None

    def address(self) -> AgentAddress:
        """Raises: Stop (2)."""
        return read_address(self.agent, self.url, self.binding, self.headers, self.key)


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """What to serve, and where to listen."""

    targets: Annotated[
        list[str] | None,
        typer.Argument(metavar="TARGET", show_default=False, help="Agents in short, instead of a file."),
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
    insecure: Annotated[
        bool,
        typer.Option("--insecure", help="Listen where other machines reach it, though nobody is asked who they are."),
    ] = False

    def flags(self) -> dict[str, object]:
        """Settings by dotted path."""
        given = {"server.host": self.host, "server.port": self.port}
        return {name: value for name, value in given.items() if value is not None}


@dataclass(frozen=True, slots=True)
class NewKeyOptions:
    """An API key to make."""

    name: KeyName
    principal: Annotated[
        str | None,
        typer.Option(metavar="NAME", show_default="the key's name", help="Whose key it is: what it sees and owns."),
    ] = None
    tenant: Annotated[
        str, typer.Option(metavar="NAME", show_default=False, help="The tenant of the principal, if there are several.")
    ] = ""
    admin: Annotated[bool, typer.Option("--admin", help="The key opens the admin API, too.")] = False
    expires: Annotated[
        str | None, typer.Option(metavar="DURATION", help="Ends by itself after so long, as 90d; never if not given.")
    ] = None
    file: ConfigFile = DEFAULT_FILE
    output: Listing = Output.text
