"""A tool of a real MCP server that needs its user's consent, from the model's call to the answer: a caller on the wire, a
gateway that is killed meanwhile, and a user who opens the page."""

from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import pytest

from adapters.tools.mcp import McpServer, McpSettings
from gateway.a2a.tool_calls import URI
from gateway.testing.serving import serve
from tests.a2a_client import A2A, COMPLETED, a2a_http, text_of, why
from tests.adapters.tools.served_mcp import SMALL, Served, run
from tests.emulators.chat import ChatServer
from tests.emulators.scripts import Call, Conversation, Say, Step
from tests.running import local_gateway

WAITS = "TASK_STATE_AUTH_REQUIRED"
PAGE = "https://login.example/?user=ada"


def script(conversation: Conversation) -> Iterable[Step]:
    if not conversation.tool_outputs and conversation.text == "Read my mail":
        yield Call("echo", {"text": "hello"}, "call_1")
        yield Call("mail", {"user": "ada"}, "call_2")
    else:
        items = [item for item in conversation.items if item.get("role") == "tool"]
        yield Say(" | ".join([*(str(item["content"]) for item in items), conversation.text]))


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    served = Served((*SMALL, "PORT"))
    await served.start()
    try:
        yield served
    finally:
        await served.kill()


def _link(task: dict[str, Any]) -> dict[str, Any]:
    assert task["status"]["state"] == WAITS
    [link] = task["status"]["message"]["metadata"][URI]["consent"]["links"]
    found: dict[str, Any] = link
    return found


async def test_a_call_is_made_again_when_its_user_has_consented(tmp_path: Path, served: Served) -> None:
    backend = ChatServer(script)
    async with serve(backend.app) as url:
        agent = f"mail: {{type: openai-chat, model: m, base_url: '{url}/v1', tools: [box]}}"
        settings = f"tools: {{box: {{type: mcp, url: '{served.url}'}}}}"
        async with local_gateway(agent, tmp_path, settings=settings) as gateway, a2a_http(gateway.url) as http:
            mail = A2A(http, "mail")
            asked = await mail.send("Read my mail")
            link = _link(asked)
            assert (link["url"], link["server"], link["text"]) == (PAGE, "mcp:box", "To read your mail.")
            assert asked["status"]["message"]["parts"][-1] == {"text": PAGE}
            again = await mail.send("not yet", asked["contextId"], taskId=asked["id"])
            assert _link(again)["url"] == PAGE
        async with local_gateway(agent, tmp_path, settings=settings) as gateway, a2a_http(gateway.url) as http:
            mail = A2A(http, "mail")
            assert await mail.get(asked["id"]) == again
            browser = McpServer(McpSettings.model_validate({"url": served.url}))
            await browser.run(run("consent", user="ada"))
            await browser.aclose()
            done = await mail.send("now I have", asked["contextId"], taskId=asked["id"])
    assert why(done) == COMPLETED
    assert text_of(done) == "hello | two letters for ada | now I have"
    assert len(backend.requests) == 2
