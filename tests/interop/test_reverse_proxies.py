"""The files of deploy/ for reverse proxies, in the real proxies with TLS, in front of a gateway."""

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest

from tests.a2a_client import A2A, streamed_text, text_of
from tests.interop.proxies import PROXIES, proxy
from tests.running import StartLocal

_AGENT = """
import asyncio
from collections.abc import AsyncIterator

released = asyncio.Event()


async def reply(text: str) -> AsyncIterator[str]:
    if text == "release":
        released.set()
        yield "released"
    else:
        yield "first "
        await released.wait()
        yield "second"
"""
each_proxy = pytest.mark.parametrize("name", list(PROXIES))


@asynccontextmanager
async def behind(name: str, folder: Path, start_local: StartLocal) -> AsyncIterator[httpx2.AsyncClient]:
    """A client of a gateway that the proxy hides."""
    (folder / "held.py").write_text(_AGENT)
    gateway = await start_local('held: {type: python, ref: "./held.py:reply"}')
    async with proxy(name, folder, gateway.url) as (url, authority):
        context = ssl.create_default_context(cafile=authority)
        headers = {"A2A-Version": "1.0"}
        async with httpx2.AsyncClient(base_url=url, headers=headers, verify=context, trust_env=False) as client:
            yield client


@each_proxy
async def test_a_delta_passes_before_the_next_one_exists(name: str, tmp_path: Path, start_local: StartLocal) -> None:
    async with behind(name, tmp_path, start_local) as http:
        agent = A2A(http, "held")
        async with agent.stream("hold") as stream:
            await stream.read_until(lambda frames: "first" in streamed_text(frames))
            assert text_of(await agent.send("release")) == "released"
            assert streamed_text(await stream.rest()) == "first second"


@each_proxy
async def test_a_stream_is_resumed_by_its_event_number(name: str, tmp_path: Path, start_local: StartLocal) -> None:
    async with behind(name, tmp_path, start_local) as http:
        agent = A2A(http, "held")
        async with agent.stream("hold") as stream:
            frames = list(await stream.read_until(lambda frames: "first" in streamed_text(frames)))
        task = frames[0].event["task"]["id"]
        async with agent.subscribe(task, after=frames[-1].number) as rest:
            await agent.send("release")
            assert streamed_text(await rest.rest()) == "second"


@each_proxy
async def test_the_admin_api_is_refused(name: str, tmp_path: Path, start_local: StartLocal) -> None:
    async with behind(name, tmp_path, start_local) as http:
        response = await http.get("/admin/api/v1/contexts/c")
        assert (response.status_code, b"context" in response.content) == (403, False)


@each_proxy
async def test_a_body_over_the_limit_meets_the_error_of_the_gateway(
    name: str, tmp_path: Path, start_local: StartLocal
) -> None:
    async with behind(name, tmp_path, start_local) as http:
        response = await http.post(
            "/a2a/held", content=b" " * (8 * 2**20 + 1), headers={"Content-Type": "application/json"}
        )
        assert (response.status_code, "8388608 bytes" in response.json()["error"]["message"]) == (413, True)
