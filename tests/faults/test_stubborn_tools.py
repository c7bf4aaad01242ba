"""A tool that ignores its cancellation: neither its turn nor the exit of the process waits for it."""

import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

from gateway.a2a.tool_calls import URI
from gateway.core.failures import TOOL_OUTCOME_UNKNOWN
from gateway.testing.serving import serve
from tests.a2a_client import A2A, COMPLETED, Frame, a2a_http, failed, why
from tests.emulators.responses_server import ResponsesServer
from tests.emulators.scripts import Call, Conversation, Say, Step
from tests.running import child_gateways

_TOOLS = """
import asyncio


async def stubborn() -> str:
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            pass
"""


def _script(conversation: Conversation) -> Iterator[Step]:
    if conversation.text == "try" and not conversation.tool_outputs:
        yield Call("stubborn", {}, call_id="c1")
    else:
        yield Say("done")


@asynccontextmanager
async def _agents(folder: Path) -> AsyncIterator[str]:
    (folder / "stubborn_tools.py").write_text(_TOOLS)
    async with serve(ResponsesServer(_script).app) as url:
        yield f"agent: {{type: openai-responses, model: m, base_url: '{url}/v1', tools: [slow]}}"


def _settings(grace: str, timeout: str = "60s") -> str:
    tool = f"{{type: python, ref: './stubborn_tools.py:stubborn', timeout: {timeout}}}"
    return f"server: {{port: 0, shutdown_grace: {grace}}}\ntools:\n  slow: {tool}"


def _runs(frames: list[Frame]) -> bool:
    updates = [frame.event.get("statusUpdate", {}) for frame in frames]
    return any(update.get("metadata", {}).get(URI, {}).get("phase") == "executing" for update in updates)


async def test_the_end_of_the_process_does_not_wait_for_a_tool_that_goes_on(tmp_path: Path) -> None:
    async with (
        _agents(tmp_path) as agents,
        child_gateways(agents, tmp_path, settings=_settings("200ms")) as start,
    ):
        child = await start()
        async with a2a_http(child.url) as http, A2A(http, "agent").stream("try") as stream:
            seen = await stream.read_until(_runs)
            child.signal(signal.SIGTERM)
            await stream.rest()
        assert await child.ended() == 0
        assert b"tool.abandoned" in child.output
        again = await start()
        async with a2a_http(again.url) as http:
            async with A2A(http, "agent").subscribe(seen[0].event["task"]["id"], seen[-1].number) as resumed:
                rest = await resumed.rest()
            assert why(rest[-1].event["statusUpdate"]) == failed(TOOL_OUTCOME_UNKNOWN)


async def test_a_turn_goes_on_without_a_tool_that_goes_on_behind_its_time(tmp_path: Path) -> None:
    async with (
        _agents(tmp_path) as agents,
        child_gateways(agents, tmp_path, settings=_settings("30s", "100ms")) as start,
    ):
        child = await start()
        async with a2a_http(child.url) as http:
            assert why(await A2A(http, "agent").send("try")) == COMPLETED
        child.signal(signal.SIGTERM)
        assert await child.ended() == 0
