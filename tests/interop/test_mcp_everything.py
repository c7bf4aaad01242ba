"""MCP's own test server as a source of tools, over stdio and streamable HTTP."""

import asyncio
import os
import shlex
import signal
from collections.abc import AsyncIterator, Awaitable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Protocol

import pytest

from adapters.tools.mcp import McpServer, McpSettings
from gateway.engine.tool_sources import AttachedSource, SourceToolset
from gateway.ports.tools import ToolError, ToolOutput
from tests.adapters.tools.served_mcp import BOUND, Served, run
from tests.interop.peer_processes import mcp_everything

LONG = "trigger-long-running-operation"


class Running(Protocol):
    """The server as a source, and the means to kill its process."""

    source: McpServer

    async def kill(self) -> None: ...

    async def restore(self) -> None:
        """Starts the server again where the adapter would not."""


class OverStdio:
    def __init__(self, folder: Path) -> None:
        self._told = folder / "pid"
        command = " ".join(map(shlex.quote, (*mcp_everything(), "stdio")))
        script = f"echo $$ > {shlex.quote(str(self._told))}; exec {command}"
        self.source = McpServer(McpSettings(command=("sh", "-c", script)))

    async def kill(self) -> None:
        os.kill(int(self._told.read_text()), signal.SIGKILL)

    async def restore(self) -> None: ...


class OverHttp:
    def __init__(self) -> None:
        environment = {"PATH": os.environ["PATH"], "PORT": "PORT"}
        self.served = Served((*mcp_everything(), "streamableHttp"), environment)
        self.source = McpServer(McpSettings(url=self.served.url))

    async def kill(self) -> None:
        await self.served.kill()

    async def restore(self) -> None:
        await self.served.start()


@pytest.fixture(params=["stdio", "http"])
async def everything(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Running]:
    async with AsyncExitStack() as stack:
        running: Running
        if request.param == "stdio":
            running = OverStdio(tmp_path)
        else:
            running = OverHttp()
            stack.push_async_callback(running.kill)
            await running.restore()
        stack.push_async_callback(running.source.aclose)
        yield running


async def test_its_tools_can_be_offered_to_a_model(everything: Running) -> None:
    offered = await SourceToolset([AttachedSource("everything", "mcp", everything.source)]).offered()
    assert {"echo", "get-sum", "get-structured-content", LONG} <= offered.keys()
    assert offered["echo"].declaration.description == "Echoes back the input string"
    assert offered["echo"].idempotent
    assert offered["get-sum"].complaint({"a": 1}) == "'b' is a required property"
    assert offered["get-sum"].complaint({"a": 1, "b": 2}) is None


async def test_results_of_every_form_are_outputs(everything: Running) -> None:
    source, said = everything.source, list[str]()
    assert await source.run(run("echo", message="hello")) == ToolOutput("Echo: hello")
    assert await source.run(run("get-sum", a=1, b=2)) == ToolOutput("The sum of 1 and 2 is 3.")
    assert await source.run(run("get-structured-content", location="Chicago")) == ToolOutput(
        {"temperature": 36, "conditions": "Light rain / drizzle", "humidity": 82}
    )
    image = (await source.run(run("get-tiny-image"))).output
    assert isinstance(image, list)
    assert [block["type"] for block in image if isinstance(block, dict)] == ["text", "image", "text"]
    refused = await source.run(run("get-sum", a="x", b=2))
    assert refused.error
    assert "expected number" in str(refused.output)
    assert (await source.run(run("none-such"))).error
    assert await source.run(run(LONG, said.append, duration=0.03, steps=3)) == ToolOutput(
        "Long running operation completed. Duration: 0.03 seconds, Steps: 3."
    )
    assert said == ["1 of 3", "2 of 3", "3 of 3"]


async def test_killed_in_the_middle_of_a_call_it_fails_the_call_and_the_next_one_works(everything: Running) -> None:
    begun = asyncio.Event()
    call = run(LONG, lambda _: begun.set(), duration=1000, steps=100_000)
    async with asyncio.timeout(BOUND), asyncio.TaskGroup() as group:
        refused = group.create_task(_refused(everything.source.run(call)))
        await begun.wait()
        await everything.kill()
    assert refused.result()
    await everything.restore()
    assert await everything.source.run(run("echo", message="again")) == ToolOutput("Echo: again")


async def test_a_session_that_it_lost_in_a_restart_is_begun_again_without_a_word() -> None:
    everything = OverHttp()
    try:
        await everything.restore()
        assert await everything.source.run(run("echo", message="one")) == ToolOutput("Echo: one")
        await everything.kill()
        await everything.restore()
        assert await everything.source.run(run("echo", message="two")) == ToolOutput("Echo: two")
    finally:
        await everything.source.aclose()
        await everything.kill()


async def _refused(asked: Awaitable[object]) -> str:
    with pytest.raises(ToolError) as error:
        await asked
    return error.value.detail
