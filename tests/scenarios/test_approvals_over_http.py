"""From the configuration file to the wire: a real tool, a backend over HTTP, and a caller who has to approve."""

from pathlib import Path
from typing import Any

import aiohttp
import pytest

from gateway.testing.serving import serve
from tests.emulators.anthropic import MessagesServer
from tests.emulators.chat import ChatServer
from tests.emulators.responses_server import ResponsesServer
from tests.emulators.scripts import Call, Say, in_rounds
from tests.emulators.server import Emulator
from tests.running import local_gateway

TOOL = '''
def book(hotel: str) -> str:
    """Books a room."""
    return f"booked {hotel}"
'''

SETTINGS = 'tools: {desk: {type: python, ref: "./desk.py:book"}}'


WIRES: dict[str, type[Emulator]] = {
    "openai-responses": ResponsesServer,
    "openai-chat": ChatServer,
    "anthropic": MessagesServer,
}


async def say(url: str, *parts: dict[str, Any], task: str | None = None, context: str = "c") -> dict[str, Any]:
    message = {"messageId": "m", "role": "ROLE_USER", "parts": list(parts), "contextId": context}
    if task is not None:
        message["taskId"] = task
    headers = {"A2A-Version": "1.0"}
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.post(f"{url}/a2a/hotel/message:send", json={"message": message}) as answer,
    ):
        body: dict[str, Any] = await answer.json()
        return body


@pytest.mark.parametrize("kind", WIRES)
@pytest.mark.parametrize("approved", [True, False])
async def test_112_a_call_is_asked_about_allowed_and_run_by_a_gateway_as_it_is_configured(
    tmp_path: Path, kind: str, approved: bool
) -> None:
    (tmp_path / "desk.py").write_text(TOOL, encoding="utf-8")
    script = in_rounds([Call("book", {"hotel": "Ritz"})], [Say("All done.")])
    server = WIRES[kind](script)
    async with serve(server.app) as backend:
        agent = f"hotel: {{type: {kind}, model: m, base_url: '{backend}/v1', tools: [desk], approvals: [{{tool: 'desk.*'}}]}}"
        async with local_gateway(agent, tmp_path, settings=SETTINGS) as gateway:
            task = (await say(gateway.url, {"text": "Book the Ritz."}))["task"]
            assert task["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
            metadata = task["status"]["message"]["metadata"]["https://a2a-gateway.dev/extensions/tool-calls/v1"]
            [tool] = metadata["approval"]["tools"]
            assert tool["args"] == {"hotel": "Ritz"}
            refused = await say(gateway.url, {"data": {"approvals": [{"id": "x", "approved": True}]}}, task=task["id"])
            assert refused["error"]["code"] == 400
            decision = {"approvals": [{"id": tool["id"], "approved": approved}]}
            done = (await say(gateway.url, {"data": decision}, task=task["id"]))["task"]
            assert done["status"]["state"] == "TASK_STATE_COMPLETED"
            assert done["artifacts"][0]["parts"][0]["text"] == "All done."
            assert ("booked Ritz" in str(server.requests[-1])) is approved
            assert len(server.requests) == 2
