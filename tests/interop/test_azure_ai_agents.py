"""Microsoft's client of classic Foundry agents in front of the emulator of their service: what the adapter is tested against is
what the client takes for the service."""

import asyncio
from pathlib import Path
from typing import Any

from gateway.testing.serving import serve
from tests.emulators.assistants import AssistantsServer
from tests.emulators.scripts import Call, Conversation, Say, Step, in_rounds
from tests.interop import peer_processes

_TOKEN = "entra-token"
_EXPECTED: dict[str, Any] = {
    "agent": {"name": "Ada", "model": "m"},
    "stream": {
        "pieces": ["Hello ", "there"],
        "first": "thread.run.created",
        "last": ["thread.run.completed", "done"],
    },
    "tools": {
        "status": "completed",
        "steps": ["tool_calls", "message_creation"],
        "said": [["user", "weather"], ["assistant", "It has 3 C"]],
    },
    "poll": {"status": "completed", "tokens": True, "said": [["user", "Hi"], ["assistant", "Hello there"]]},
    "cancel": {"status": ["cancelling", "cancelled"]},
    "files": {"name": "a.txt", "content": "text"},
    "error": {"error": "ResourceNotFoundError", "status": 404},
}


def _script(conversation: Conversation) -> list[Step]:
    if conversation.text != "weather":
        return [Say("Hello there", chunks=2)]
    rounds = in_rounds([Call("weather", {"city": "Oslo"})], [Say("It has 3 C")])
    return list(rounds(conversation))  # type: ignore[arg-type]


async def test_the_client_does_with_the_emulator_what_it_does_with_the_service(tmp_path: Path) -> None:
    server = AssistantsServer(_script, api_key=_TOKEN, version="v1")
    async with serve(server.app) as url:
        asked = {"url": f"{url}/v1", "transport": _TOKEN, "checks": list(_EXPECTED), "parts": []}
        seen = await asyncio.to_thread(peer_processes.client, "azure-ai-agents", tmp_path, asked)
    assert seen == _EXPECTED
