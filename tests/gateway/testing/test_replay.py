"""The fixture for tests of users: a gateway that recordings answer."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from urllib.request import ProxyHandler, Request, build_opener

import pytest

from gateway.app.tapping import TappedRegistry
from gateway.foundation.clock import Clock
from gateway.recording.recorder import Recording
from gateway.testing.replay import Replayed, replayed, replaying
from tests.a2a_client import A2A, a2a_http, user_message
from tests.emulators.chat import ChatServer
from tests.emulators.scripts import Say
from tests.running import local_gateway

__all__ = ["replayed"]

AGENT = "{type: openai-chat, model: m, base_url: 'URL/v1', api_key: '${SOME_KEY}'}"


@pytest.fixture
async def folder(tmp_path: Path) -> Path:
    """A configuration, and a recording of `Hello`."""
    async with ChatServer(lambda _: [Say("It was recorded.")]).serve() as url:
        agent = AGENT.replace("URL", url)
        (tmp_path / "gateway.yaml").write_text(f"version: 1\nagents:\n  a: {agent}\n")
        with Recording(tmp_path / "taken", Clock()) as recording:
            tapped = lambda config: TappedRegistry(recording, frozenset, config)  # noqa: E731
            here = f"a: {agent.replace('${SOME_KEY}', 'k' * 20)}"
            async with local_gateway(here, tmp_path, tapped=tapped) as local, a2a_http(local.url) as http:
                await A2A(http, "a").send("Hello")
    return tmp_path


def said(url: str, text: str) -> str:
    body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": user_message(text)}}
    headers = {"Content-Type": "application/json", "A2A-Version": "1.0"}
    request = Request(f"{url}/a2a/a", json.dumps(body).encode(), headers)
    with build_opener(ProxyHandler({})).open(request, timeout=30) as answer:
        return str(json.load(answer)["result"]["task"])


async def in_thread(work: Callable[[], str]) -> str:
    return await asyncio.to_thread(work)


async def test_a_test_is_answered_by_recordings(folder: Path, replayed: Replayed) -> None:
    url = await in_thread(lambda: replayed(folder / "gateway.yaml", folder / "taken"))
    assert "It was recorded." in await in_thread(lambda: said(url, "Hello"))


async def test_a_test_fails_where_a_recording_is_missing(folder: Path) -> None:
    def use(*, strict: bool) -> str:
        with replaying(folder / "gateway.yaml", folder / "taken", strict=strict) as url:
            return said(url, "Hallo")

    assert "differs at" in await in_thread(lambda: use(strict=False))
    with pytest.raises(AssertionError, match=r"the replay of .* did not fit"):
        await in_thread(lambda: use(strict=True))


async def test_a_gateway_that_cannot_start_says_why(folder: Path) -> None:
    def use() -> str:
        with replaying(folder / "gateway.yaml", folder / "nowhere") as url:
            return url

    with pytest.raises(AssertionError, match="nowhere cannot be used for recordings"):
        await in_thread(use)
