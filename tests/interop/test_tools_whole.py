"""Whole turns with tools, all of it real: a model server, MCP's own test server, and a client on the wire."""

import asyncio
import os
import shlex
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway.a2a.tool_calls import URI
from tests.a2a_client import A2A, COMPLETED, Frame, a2a_http, text_of, why
from tests.adapters.tools.served_mcp import Served
from tests.interop.peer_processes import Aimock, Peer, mcp_everything
from tests.running import StartLocal

_HELLO = "Hello from aimock, a longer reply so that several chunks are streamed."
SUMS = {"The sum of 1 and 2 is 3.", "The sum of 3 and 4 is 7.", "Echo: done"}


def _agents(ogx: Peer, aimock: Aimock) -> str:
    responses = f"type: openai-responses, model: openai/gpt-4, base_url: '{ogx.url}', tools: [everything]"
    return "\n".join(
        (
            f"chained: {{{responses}}}",
            f"unstored: {{{responses}, history: {{owner: gateway}}}}",
            f"conversing: {{{responses}, conversation: true}}",
            f"chat: {{type: openai-chat, model: gpt-4, base_url: '{aimock.url}', tools: [everything]}}",
        )
    )


class Everything:
    """MCP's test server in the gateway's configuration; over stdio it writes its process id into `folder`."""

    def __init__(self, transport: str, folder: Path) -> None:
        self._told = folder / "pid"
        self._served: Served | None = None
        if transport == "stdio":
            command = " ".join(map(shlex.quote, (*mcp_everything(), "stdio")))
            script = f"echo $$ > {shlex.quote(str(self._told))}; exec {command}"
            self.settings = f"tools: {{everything: {{type: mcp, command: {['sh', '-c', script]}}}}}"
        else:
            environment = {"PATH": os.environ["PATH"], "PORT": "PORT"}
            self._served = Served((*mcp_everything(), "streamableHttp"), environment)
            self.settings = f"tools: {{everything: {{type: mcp, url: '{self._served.url}'}}}}"

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            if self._served is not None:
                stack.push_async_callback(self._served.kill)
                await self._served.start()
            yield

    async def kill(self) -> None:
        if self._served is not None:
            await self._served.kill()
        else:
            os.kill(int(self._told.read_text()), signal.SIGKILL)

    async def restore(self) -> None:
        if self._served is not None:
            await self._served.start()


@pytest.fixture(params=["stdio", "http"])
async def everything(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Everything]:
    server = Everything(request.param, tmp_path)
    async with server.running():
        yield server


def _facts(frames: list[Frame]) -> list[Any]:
    """The events of tool calls, in order."""
    told = []
    for frame in frames:
        update = frame.event.get("statusUpdate", {})
        places = [update, *update.get("status", {}).get("message", {}).get("parts", ())]
        told += [place["metadata"][URI] for place in places if URI in place.get("metadata", {})]
    return told


@pytest.mark.parametrize("agent", ["chained", "unstored", "conversing", "chat"])
async def test_rounds_of_parallel_calls_reach_the_tools_once_and_the_caller_live(
    ogx_peer: Peer, aimock_peer: Aimock, everything: Everything, start_local: StartLocal, agent: str
) -> None:
    gateway = await start_local(_agents(ogx_peer, aimock_peer), settings=everything.settings)
    async with a2a_http(gateway.url) as http:
        caller = A2A(http, agent)
        async with caller.stream("sums") as stream:
            frames = await stream.rest()
        task = await caller.get(frames[0].event["task"]["id"])
        later = await caller.send("two", task["contextId"])

    assert (why(task), text_of(task)) == (COMPLETED, "3, 7, and it was said.")
    assert (why(later), text_of(later)) == (COMPLETED, _HELLO)
    facts = _facts(frames)
    ends = [fact for fact in facts if fact["phase"] == "succeeded"]
    assert len({fact["callId"] for fact in facts}) == len(ends) == 3
    assert {(fact["round"], fact["index"]) for fact in ends} == {(0, 0), (0, 1), (1, 0)}
    assert {fact["server"] for fact in facts} == {"mcp:everything"}
    results = [
        part["data"]["response"]["result"]
        for message in task["history"]
        for part in message["parts"]
        if "response" in part.get("data", {})
    ]
    assert (set(results), len(results)) == (SUMS, 3)


@pytest.mark.parametrize("agent", ["chained", "chat"])
async def test_a_server_killed_in_the_middle_of_a_call_is_told_to_the_model_and_the_context_goes_on(
    ogx_peer: Peer, aimock_peer: Aimock, everything: Everything, start_local: StartLocal, agent: str
) -> None:
    gateway = await start_local(_agents(ogx_peer, aimock_peer), settings=everything.settings)
    async with a2a_http(gateway.url) as http:
        caller = A2A(http, agent)
        async with caller.stream("endless") as stream:
            await stream.read_until(lambda frames: any(fact["phase"] == "progress" for fact in _facts(frames)))
            await everything.kill()
            frames = await stream.rest()
        broken = await caller.get(frames[0].event["task"]["id"])
        await everything.restore()
        async with asyncio.timeout(60):
            after = await caller.send("two", broken["contextId"])

    assert (why(broken), text_of(broken)) == (COMPLETED, "It broke off.")
    assert [fact["phase"] for fact in _facts(frames) if fact["phase"] in ("succeeded", "failed")] == ["failed"]
    assert (why(after), text_of(after)) == (COMPLETED, _HELLO)
