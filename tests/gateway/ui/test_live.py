"""Rows of a task while it runs."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import httpx2
import pytest

from gateway.ledger.api_keys import RevokeKey
from tests.a2a_client import A2A, a2a_http
from tests.gateway.ui.visitor import Visitor, make_key, visiting
from tests.running import Local, StartLocal, local_gateway

AGENTS = """
echo: {type: python, ref: "gateway.cli.demo.agent:reply", default: true}
slow: {type: python, ref: "tests.gateway.ui.agents:waits"}
"""


@pytest.fixture
async def gateway(start_local: StartLocal) -> Local:
    return await start_local(AGENTS)


@pytest.fixture
async def visitor(gateway: Local) -> AsyncIterator[Visitor]:
    async with visiting(gateway) as visitor:
        await visitor.open("/ui/")
        yield visitor


async def running(http: httpx2.AsyncClient) -> str:
    """A task that is at work until it is cancelled."""
    answer = await http.post(
        "/a2a/slow/message:send",
        json={
            "message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}]},
            "configuration": {"returnImmediately": True},
        },
    )
    task: str = answer.json()["task"]["id"]
    return task


async def until(lines: AsyncIterator[str], wanted: str) -> list[str]:
    """All lines up to one that begins so."""
    found: list[str] = []
    async with asyncio.timeout(60):
        async for line in lines:
            found.append(line)
            if line.startswith(wanted):
                return found
    raise AssertionError(found)


async def test_rows_come_as_they_change_until_the_task_ends(gateway: Local, visitor: Visitor) -> None:
    async with a2a_http(gateway.url) as http:
        task = await running(http)
        await visitor.open(f"/ui/tasks/{task}")
        assert f'data-live="/ui/tasks/{task}/live"' in visitor.html
        async with visitor.http.stream("GET", f"/ui/tasks/{task}/live") as stream:
            lines = stream.aiter_lines()
            first = await until(lines, "event: row")
            assert "event: sentence" in first
            assert f"/ui/tasks/{task}/cancel" in "".join(first)
            await http.post(f"/a2a/slow/tasks/{task}:cancel")
            rest = "\n".join(await until(lines, "event: end"))
            assert "cancelled" in rest
            assert "failed" not in rest
            assert 'id="turn-' in rest
            *_, head = rest.split('id="head"')
            assert f"/ui/tasks/{task}/events" in head
            assert f"/ui/tasks/{task}/cancel" not in head


async def test_the_page_of_an_ended_task_is_not_live(gateway: Local, visitor: Visitor) -> None:
    async with a2a_http(gateway.url) as http:
        task = (await A2A(http, "echo").send("hi"))["id"]
    await visitor.open(f"/ui/tasks/{task}")
    assert "data-live" not in visitor.html
    async with visitor.http.stream("GET", f"/ui/tasks/{task}/live") as stream:
        await until(stream.aiter_lines(), "event: end")


async def test_a_session_has_four_live_pages(gateway: Local, visitor: Visitor) -> None:
    async with a2a_http(gateway.url) as http:
        task = await running(http)
        address = f"/ui/tasks/{task}/live"
        async with AsyncExitStack() as stack:
            kept = []  # a reader that is not kept closes its stream
            for _ in range(4):
                stream = await stack.enter_async_context(visitor.http.stream("GET", address))
                kept.append(stream.aiter_lines())
                await until(kept[-1], "event: row")
            assert (await visitor.http.get(address)).status_code == 204
        await http.post(f"/a2a/slow/tasks/{task}:cancel")


async def test_a_drain_ends_it(gateway: Local, visitor: Visitor) -> None:
    async with a2a_http(gateway.url) as http:
        task = await running(http)
        async with visitor.http.stream("GET", f"/ui/tasks/{task}/live") as stream:
            lines = stream.aiter_lines()
            await until(lines, "event: row")
            gateway.gateway.drain.set()
            async with asyncio.timeout(60):
                assert not [line async for line in lines if line.startswith("event: end")]
        await http.post(f"/a2a/slow/tasks/{task}:cancel")


@pytest.mark.parametrize("end", ["revocation", "logout"])
async def test_a_session_that_is_over_ends_it(tmp_path: Path, end: str) -> None:
    settings = "auth: {mode: any_of, api_keys: {enabled: true}}"
    async with local_gateway(AGENTS, tmp_path, settings=settings) as gateway, visiting(gateway) as visitor:
        await visitor.log_in(await make_key(gateway))
        await visitor.open("/ui/keys/new")
        async with a2a_http(gateway.url) as http:
            http.headers["authorization"] = f"Bearer {await make_key(gateway, 'ada', admin=False)}"
            task = await running(http)
            async with visitor.http.stream("GET", f"/ui/tasks/{task}/live") as stream:
                lines = stream.aiter_lines()
                await until(lines, "event: row")
                if end == "logout":
                    await visitor.send("/ui/logout")
                else:
                    ledger = gateway.gateway.runner.runtime.ledger
                    await ledger.commit(RevokeKey("ops", ledger.now()))
                async with asyncio.timeout(60):
                    assert not [line async for line in lines if line.startswith("event: end")]
            await http.post(f"/a2a/slow/tasks/{task}:cancel")


async def test_who_has_shown_no_key_hears_nothing(start_local: StartLocal) -> None:
    gateway = await start_local(AGENTS, settings="auth: {mode: any_of, api_keys: {enabled: true}}")
    async with visiting(gateway) as visitor:
        assert (await visitor.http.get("/ui/tasks/x/live")).status_code == 401
