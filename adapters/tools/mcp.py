"""A source of tools of `type: mcp`: a Model Context Protocol server, over streamable HTTP or as a child process.

Law: one session for all turns, opened for the first request, and again after it was lost; a child that answers nothing any
more is ended. The MCP library is not needed to import this module.
"""

from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Self

from pydantic import Field, PrivateAttr, SecretStr, model_validator

from adapters.tools.mcp_errors import SessionExpired, start_error
from gateway.config.connections import ConnectionSettings
from gateway.config.settings import LocalPath, WebUrl
from gateway.ports.tools import SourceTool, ToolError, ToolFactory, ToolOutput, ToolRun

if TYPE_CHECKING:
    from adapters.tools.mcp_connection import Connection


class McpSettings(ConnectionSettings):
    """An MCP server: either `url`, or `command`."""

    url: WebUrl | None = Field(None, description="Address of a server that speaks streamable HTTP.")
    command: tuple[str, ...] | None = Field(
        None, min_length=1, description="Program and arguments of a server that is started here and speaks over stdio."
    )
    env: dict[str, SecretStr] = Field(
        {},
        description="Environment of `command`, besides PATH, HOME and the like: it gets nothing else of the gateway's.",
    )
    cwd: LocalPath | None = Field(None, description="Folder in which `command` runs.")
    _entry: str = PrivateAttr(default="mcp")

    def model_post_init(self, context: Any) -> None:
        if isinstance(context, dict) and "name" in context:
            self._entry = context["name"]

    @property
    def source(self) -> str:
        """The name of the source in the configuration."""
        return self._entry

    @model_validator(mode="after")
    def _one_transport(self) -> Self:
        if (self.url is None) == (self.command is None):
            raise ValueError("needs either `url` or `command`")
        given, others = ("url", ("env", "cwd")) if self.command is None else ("command", ("headers", "ca", "proxy"))
        for name in others:
            if getattr(self, name):
                raise ValueError(f"`{name}` cannot be used with `{given}`")
        return self


class McpServer:
    def __init__(self, settings: McpSettings) -> None:
        """Raises: ValueError without the package `mcp`."""
        try:
            # The import is not at the top of the module: it takes most of a second, and the package is an extra.
            import_module("adapters.tools.mcp_connection")
        except ImportError as error:
            raise ValueError(
                f"tools of type mcp need the package `mcp`, which cannot be imported ({error}); "
                "install it with: pip install 'a2a-gateway[mcp]'"
            ) from error
        self._settings = settings
        self._connections: list[Connection] = []
        self._closed = False

    async def tools(self) -> tuple[SourceTool, ...]:
        try:
            return await self._connection().tools()
        except SessionExpired:
            return await self._connection().tools()

    async def run(self, run: ToolRun) -> ToolOutput:
        try:
            return await self._connection().call(run)
        except SessionExpired:  # the tool did nothing yet
            return await self._connection().call(run)

    async def aclose(self) -> None:
        self._closed = True
        for connection in self._connections:
            await connection.aclose()

    def _connection(self) -> "Connection":
        """The shared connection; a new one when that is over."""
        if self._closed:
            raise ToolError("the source is closed")
        if not self._connections or self._connections[-1].over:
            self._connections = [each for each in self._connections if not each.closed]
            self._connections.append(_connect(self._settings))
        return self._connections[-1]


def _connect(settings: McpSettings) -> "Connection":
    from adapters.tools.mcp_connection import Connection, over_http, over_stdio

    if settings.url is not None:
        return Connection(
            settings.source, over_http(settings.url, settings.route), secrets=settings.connection_secrets()
        )
    env = {name: value.get_secret_value() for name, value in settings.env.items()}
    command = list(settings.command or ())
    transport = over_stdio(command, env, settings.cwd, settings.source)
    opening = partial(start_error, command, env, settings.cwd)
    return Connection(settings.source, transport, opening, env.values(), is_child=True)


factory = ToolFactory(settings=McpSettings, build=McpServer)
