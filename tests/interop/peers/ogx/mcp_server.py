"""An MCP server with one tool, for the environment that .ci/peers.sh makes for OGX, which calls it."""
# mypy: ignore-errors
# The package it imports may be absent from the project's environment.

import os

from mcp.server.mcpserver import MCPServer
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

server = MCPServer("wx")


@server.tool()
def get_weather(city: str) -> str:
    """The weather of a city."""
    return f"{city}: 3C"


@server.custom_route("/health", methods=["GET"])
async def health(_: Request) -> Response:
    return PlainTextResponse("ok")


server.run(transport="streamable-http", host="127.0.0.1", port=int(os.environ["MCP_PORT"]))
