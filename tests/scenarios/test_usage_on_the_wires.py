"""The tokens that services report on their wires, as a caller reads them over HTTP."""

from pathlib import Path
from typing import Any

import pytest

from gateway.testing.serving import serve
from tests.a2a_client import A2A, a2a_http
from tests.emulators.anthropic import MessagesServer
from tests.emulators.chat import ChatServer
from tests.emulators.responses_server import ResponsesServer
from tests.emulators.scripts import Say
from tests.emulators.server import Emulator
from tests.running import local_gateway

NAMES = {"inputTokens", "outputTokens", "totalTokens"}
DETAILS = {"cachedTokens", "reasoningTokens"}

WIRES: dict[str, tuple[type[Emulator], str, set[str]]] = {
    "a chain": (ResponsesServer, "type: openai-responses", NAMES | DETAILS),
    "a conversation": (ResponsesServer, "type: openai-responses, conversation: true", NAMES | DETAILS),
    "background": (ResponsesServer, "type: openai-responses, background: true", NAMES | DETAILS),
    "whole": (ResponsesServer, "type: openai-responses, history: {owner: gateway}", NAMES | DETAILS),
    "chat": (ChatServer, "type: openai-chat", NAMES),
    "messages": (MessagesServer, "type: anthropic", NAMES | {"cachedTokens"}),
}


@pytest.mark.parametrize("wire", WIRES)
async def test_48_a_stream_the_task_and_the_list_show_the_tokens(tmp_path: Path, wire: str) -> None:
    emulator, settings, names = WIRES[wire]
    async with serve(emulator(lambda _: [Say("Hello you")]).app) as url:
        agents = f"told: {{{settings}, model: m, base_url: '{url}/v1'}}"
        async with local_gateway(agents, tmp_path) as gateway, a2a_http(gateway.url) as http:
            caller = A2A(http, "told")
            async with caller.stream("Hi", "c") as stream:
                frames = await stream.rest()
            task = await caller.get(frames[0].event["task"]["id"])
            [listed] = await caller.tasks("c")
            sent = await caller.send("And now?", "c")

    shown: dict[str, Any] = frames[-1].event["statusUpdate"]["metadata"]["usage"]
    assert set(shown["turn"]) == names
    assert shown["turn"]["totalTokens"] == shown["turn"]["inputTokens"] + shown["turn"]["outputTokens"] > 0
    assert shown["task"] == shown["turn"]
    assert task["metadata"]["usage"] == listed["metadata"]["usage"] == shown
    assert set(sent["metadata"]["usage"]["turn"]) == names


async def test_48_a_service_that_is_not_asked_for_tokens_shows_none(tmp_path: Path) -> None:
    async with serve(ChatServer(lambda _: [Say("Hello you")]).app) as url:
        agents = f"told: {{type: openai-chat, model: m, base_url: '{url}/v1', include_usage: false}}"
        async with local_gateway(agents, tmp_path) as gateway, a2a_http(gateway.url) as http:
            assert "metadata" not in await A2A(http, "told").send("Hi")
