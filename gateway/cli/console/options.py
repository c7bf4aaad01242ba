"""The options of commands as values. Law: imports nothing but typer, as `commands`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from gateway.cli.console import parameters
from gateway.cli.console.address import DEFAULT_URL, AgentAddress, read_address


@dataclass(frozen=True, slots=True)
class GatewayOptions:
    """Where a gateway is."""

    url: parameters.Url = DEFAULT_URL
    headers: parameters.Headers = None
    key: parameters.ApiKey = None

    def address(self, agent: str | None = None) -> AgentAddress:
        """Raises: Stop (2)."""
        return read_address(agent, self.url, None, self.headers, self.key)


@dataclass(frozen=True, slots=True)
class AgentOptions:
    """Where an agent is."""

    url: parameters.Url = DEFAULT_URL
    agent: parameters.Agent = None
    binding: parameters.Binding = None
    headers: parameters.Headers = None
    key: parameters.ApiKey = None

    def address(self) -> AgentAddress:
        """Raises: Stop (2)."""
        return read_address(self.agent, self.url, self.binding, self.headers, self.key)


@dataclass(frozen=True, slots=True)
class SendOptions:
    """A message, and where its agent is."""

    text: parameters.Text
    url: parameters.Url = DEFAULT_URL
    agent: parameters.Agent = None
    binding: parameters.Binding = None
    context: parameters.Context = None
    task: parameters.Task = None
    files: parameters.Files = None
    data: parameters.Data = None
    headers: parameters.Headers = None
    key: parameters.ApiKey = None
    idempotency_key: parameters.Key = None
    output: parameters.Format = parameters.Output.text
    timeout: parameters.Timeout = None

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
        typer.Option(
            "-c", "--config", metavar="FILE", show_default=str(parameters.DEFAULT_FILE), help="The configuration file."
        ),
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

    name: parameters.KeyName
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
    file: parameters.ConfigFile = parameters.DEFAULT_FILE
    output: parameters.Listing = parameters.Output.text
