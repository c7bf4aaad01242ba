"""What went over the wire for a call, where it was recorded."""

import re
from pathlib import Path

from gateway.app.tapping import TappedRegistry
from gateway.config.gateway import GatewayConfig
from gateway.foundation.clock import Clock
from gateway.recording.recorder import Recording
from tests.a2a_client import A2A, a2a_http
from tests.emulators.chat import ChatServer
from tests.emulators.scripts import Say, Status
from tests.gateway.ui.visitor import Visitor, visiting
from tests.running import Local, local_gateway

EVIL = "<script>alert(1)</script>"
SECRET = "k" * 20


async def call_page(gateway: Local, visitor: Visitor) -> str:
    """The address of the page of the one call of a task."""
    async with a2a_http(gateway.url) as http:
        task = await A2A(http, "a").send("Hello")
    await visitor.open(f"/ui/tasks/{task['id']}")
    found: list[str] = re.findall(r'href="(/ui/tasks/[^"]*/calls/[^"]*)"', visitor.html)
    [only] = found
    return only


async def test_a_recorded_call_is_shown_masked_and_as_text(tmp_path: Path) -> None:
    async with ChatServer(lambda _: [Say(f"It was {EVIL}.")]).serve() as url:
        agent = f"a: {{type: openai-chat, model: m, base_url: '{url}/v1', api_key: {SECRET}}}"
        with Recording(tmp_path / "taken", Clock()) as recording:

            def tapped(config: GatewayConfig) -> TappedRegistry:
                return TappedRegistry(recording, frozenset, config)

            async with local_gateway(agent, tmp_path, tapped=tapped) as gateway, visiting(gateway) as visitor:
                page = await visitor.open(await call_page(gateway, visitor))
                assert "POST" in page
                assert "/v1/chat/completions" in page
                assert "It was" in page
                assert "<script>alert" not in visitor.html
                assert SECRET not in visitor.html


async def test_a_turn_that_failed_leads_to_its_recorded_exchange(tmp_path: Path) -> None:
    async with ChatServer(lambda _: [Status(400, {"error": {"message": "No.", "code": "bad"}})]).serve() as url:
        agent = f"a: {{type: openai-chat, model: m, base_url: '{url}/v1', api_key: {SECRET}}}"
        with Recording(tmp_path / "taken", Clock()) as recording:

            def tapped(config: GatewayConfig) -> TappedRegistry:
                return TappedRegistry(recording, frozenset, config)

            async with local_gateway(agent, tmp_path, tapped=tapped) as gateway, visiting(gateway) as visitor:
                address = await call_page(gateway, visitor)
                assert "recorded exchange" in await visitor.open("/ui/agents/a")
                assert f'<a href="{address}">recorded exchange</a>' in visitor.html
                assert "No." in await visitor.open(address)


async def test_what_was_not_recorded_says_why(tmp_path: Path) -> None:
    async with ChatServer(lambda _: [Say("It was not.")]).serve() as url:
        agent = f"a: {{type: openai-chat, model: m, base_url: '{url}/v1', api_key: {SECRET}}}"
        async with local_gateway(agent, tmp_path) as gateway, visiting(gateway) as visitor:
            address = await call_page(gateway, visitor)
            assert "serve --record DIR" in await visitor.open(address)
            await visitor.open(f"{address}x", 404)
