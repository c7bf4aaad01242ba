"""A small MCP server, written with the `mcp` package: `python -m tests.adapters.tools.mcp_server [PORT]`, else over stdio."""

import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
from mcp.server.mcpserver import Context, MCPServer
from mcp.shared.exceptions import MCPError, UrlElicitationRequiredError

server = MCPServer("small", log_level="CRITICAL")


@server.tool(annotations=types.ToolAnnotations(read_only_hint=True), structured_output=False)
def echo(text: str) -> str:
    """Echoes."""
    return text


@server.tool(annotations=types.ToolAnnotations(idempotent_hint=True))
def add(a: int, b: int) -> dict[str, int]:
    """Adds."""
    return {"sum": a + b}


@server.tool(structured_output=False)
def blocks() -> Sequence[Any]:
    """Several blocks."""
    return [types.TextContent(text="one"), types.TextContent(text="two")]


@server.tool(structured_output=False)
def nothing() -> Sequence[Any]:
    """No block."""
    return []


@server.tool(structured_output=False)
def fails() -> str:
    """Reports a failure."""
    raise ValueError("no such city")


@server.tool(structured_output=False)
async def works(ctx: Context[Any], steps: int) -> str:
    """Reports its progress."""
    for step in range(steps):
        await ctx.report_progress(step + 1, steps, f"step {step + 1}")
    return "done"


@server.tool(structured_output=False)
async def hangs(ctx: Context[Any], ended: str) -> str:
    """Reports once, never answers, and makes a file when it is cancelled."""
    await ctx.report_progress(1, message="hanging")
    try:
        await anyio.sleep_forever()
    finally:
        os.mkdir(ended)  # noqa: PTH102  # and not awaited: it is being cancelled
    return ""


@server.tool(structured_output=False)
def dies() -> str:
    """Ends the process."""
    os._exit(3)


@server.tool(structured_output=False)
async def stalls(began: str) -> str:
    """Makes a file, and then stops the event loop of the process, which answers nothing any more."""
    os.mkdir(began)  # noqa: PTH102  # and not awaited: nothing is, from here on
    time.sleep(1000)  # noqa: ASYNC251
    return ""


@server.tool(structured_output=False)
def environment() -> str:
    """The environment and the folder of the process."""
    return "\n".join(
        [str(Path.cwd()), str(os.getpid()), *(f"{name}={value}" for name, value in sorted(os.environ.items()))]
    )


@server.tool(structured_output=False)
def meta(ctx: Context[Any]) -> str:
    """What is said beside the arguments."""
    return json.dumps(dict(ctx.request_context.meta or {}))


@server.tool(structured_output=False)
async def grow(ctx: Context[Any], name: str) -> str:
    """Another tool from now on."""
    server.add_tool(echo, name=name, structured_output=False)
    await ctx.notify_tools_changed() if hasattr(
        ctx, "notify_tools_changed"
    ) else await ctx.session.send_tool_list_changed()
    return "grown"


CONSENTED: set[str] = set()


@server.tool(structured_output=False)
def mail(user: str) -> str:
    """Reads the mail of a user who has consented."""
    if user not in CONSENTED:
        page = types.ElicitRequestURLParams(
            message="To read your mail.", url=f"https://login.example/?user={user}", elicitation_id=f"e-{user}"
        )
        raise UrlElicitationRequiredError([page])
    return f"two letters for {user}"


@server.tool(structured_output=False)
def consent(user: str) -> str:
    """The effect of the third party's page."""
    CONSENTED.add(user)
    return "Thank you."


@server.tool(structured_output=False)
def refuses(name: str) -> str:
    """Is refused with the value of an environment variable."""
    raise MCPError(types.INTERNAL_ERROR, f"bad {os.environ[name]}")


@server.tool(structured_output=False)
def odd(data: Any) -> str:
    """Wants a consent, in a form of its own."""
    raise MCPError(types.URL_ELICITATION_REQUIRED, "sign in", data)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        server.run("streamable-http", port=int(sys.argv[1]))
    else:
        server.run("stdio")
