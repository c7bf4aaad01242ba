"""Deep values of a backend, over HTTP: shown, listed, exported and imported. Source: docs/state-model.md, scenario 131."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from gateway.a2a.nesting import DEEPEST
from gateway.agent import ToolCall, ToolResult
from gateway.client.admin import export_context, import_context
from gateway.client.client import Client
from gateway.client.discovery import discover
from gateway.client.transport import open_http
from gateway.testing.serving import serve
from tests.emulators.responses_server import ResponsesServer
from tests.emulators.scripts import Say, ServerTool
from tests.gateway.a2a.test_nesting import nested
from tests.running import local_gateway

SEND = {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}]}}


async def reply(_: Any) -> AsyncIterator[Any]:
    """The agent: its tool tells as much as may be stored."""
    yield ToolCall("c1", "dig", {})
    yield ToolResult("c1", nested(DEEPEST))
    yield {"data": nested(DEEPEST)}


async def test_131_the_deepest_value_can_be_exported_and_imported_whatever_requests_may_hold(tmp_path: Path) -> None:
    agent, settings = f"a: {{type: python, ref: '{__name__}:reply'}}", "limits: {json_depth: 20}"
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()
    async with local_gateway(agent, one, settings=settings) as gateway, open_http(gateway.url) as http:
        client = Client(http, await discover(http, gateway.url, "a"))
        task = (await client.send(SEND))["task"]
        assert task["status"]["state"] == "TASK_STATE_COMPLETED"
        document = await export_context(http, gateway.url, task["contextId"])
    async with local_gateway(agent, two, settings=settings) as gateway, open_http(gateway.url) as http:
        await import_context(http, gateway.url, document)
        client = Client(http, await discover(http, gateway.url, "a"))
        assert (await client.get_task(task["id"]))["artifacts"] == task["artifacts"]


DEPTHS = [100, 101, *range(904, 1000, 4), 5000, 20_000]
"""On Python 3.11 a text of 928 levels could be read, and not the event that held its value. Others have other windows."""


async def test_131_a_deep_output_of_a_tool_that_the_backend_ran_leaves_its_task_readable(tmp_path: Path) -> None:
    outputs = iter(['{"a":' * depth + "1" + "}" * depth for depth in DEPTHS])
    server = ResponsesServer(lambda _: [ServerTool("mcp", "search", {"q": 1}, next(outputs)), Say("found")])
    async with serve(server.app) as url:
        agent = f"a: {{type: openai-responses, model: m, base_url: '{url}/v1', api_key: k}}"
        async with local_gateway(agent, tmp_path) as gateway, open_http(gateway.url) as http:
            client = Client(http, await discover(http, gateway.url, "a"))
            for _ in DEPTHS:
                task = (await client.send(SEND))["task"]
                assert (await client.get_task(task["id"]))["status"]["state"] == "TASK_STATE_COMPLETED"
            listed = (await client.list_tasks({"includeArtifacts": True}))["tasks"]
    assert len(listed) == len(DEPTHS)
    assert [task["metadata"] for task in listed if "unreadable" in task.get("metadata", {})] == []
