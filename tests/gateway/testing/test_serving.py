"""An application on loopback: it starts on a free port and goes without a trace."""

import asyncio
import logging
from collections.abc import AsyncIterator

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from gateway.testing.serving import serve
from tests.emulators.responses_server import ResponsesServer
from tests.emulators.scripts import Conversation, Pause, Say, Step


async def greet(_: Request) -> Response:
    return PlainTextResponse("hello")


async def test_two_servers_have_a_port_each() -> None:
    app = Starlette(routes=[Route("/", greet)])
    async with serve(app) as first, serve(app) as second, httpx2.AsyncClient() as client:
        assert first != second
        assert (await client.get(first)).text == (await client.get(second)).text == "hello"


async def test_a_stopped_server_refuses_connections() -> None:
    async with serve(Starlette()) as url:
        pass
    async with httpx2.AsyncClient() as client:
        with pytest.raises(httpx2.ConnectError):
            await client.get(url)


@pytest.mark.parametrize("stream", [True, False])
async def test_stopping_cuts_an_unfinished_answer_and_leaves_no_task_and_no_log(
    stream: bool, caplog: pytest.LogCaptureFixture
) -> None:
    reached = asyncio.Event()

    async def script(_: Conversation) -> AsyncIterator[Step]:
        yield Say("one")
        reached.set()
        yield Pause(asyncio.Event())

    caplog.set_level(logging.INFO)
    before = asyncio.all_tasks()
    async with httpx2.AsyncClient(timeout=None) as client, asyncio.TaskGroup() as group:
        async with serve(ResponsesServer(script).app) as url:
            body = {"model": "m", "input": "hi", "stream": stream}
            call = group.create_task(_failing_post(client, f"{url}/v1/responses", body))
            async with asyncio.timeout(30):
                await reached.wait()
        await call
    assert asyncio.all_tasks() == before
    assert not [record for record in caplog.records if record.name.startswith("uvicorn")]


async def _failing_post(client: httpx2.AsyncClient, url: str, body: dict[str, object]) -> None:
    with pytest.raises(httpx2.RemoteProtocolError):
        await client.post(url, json=body)


async def test_an_error_of_the_application_is_logged_and_answered_with_500(caplog: pytest.LogCaptureFixture) -> None:
    def script(_: object) -> list[Say]:
        raise RuntimeError("mistake in a script")

    async with serve(ResponsesServer(script).app) as url, httpx2.AsyncClient() as client:
        answer = await client.post(f"{url}/v1/responses", json={"model": "m", "input": "hi"})
    assert answer.status_code == 500
    assert "mistake in a script" in caplog.text
