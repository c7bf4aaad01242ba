"""A client that sends nothing more behind its request, as `nc -N` and `socat` do, and still reads (RFC 9112, 9.6)."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop
from starlette.types import Receive, Scope, Send

from gateway.http.reply import Reply
from tests.gateway.http.peers import GET, Peer, all_is_read, echo, served
from tests.support.core import BOUND, soon

SHORT = 0.05
POST = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nabc"
LOOPS = pytest.mark.parametrize("loop", [asyncio.run, uvloop.run])
Run = Callable[[Coroutine[Any, Any, None]], None]


class App:
    """Its response begins when it is told to; a stream goes on, at each tick, until its client is gone."""

    def __init__(self, *, streams: bool = False) -> None:
        self.asked, self.ready, self.tick, self.gone = (asyncio.Event() for _ in range(4))
        self._streams = streams

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        self.asked.set()
        async with asyncio.TaskGroup() as group:
            answering = group.create_task(self._answer(scope, receive, send))
            while (await receive())["type"] != "http.disconnect":
                pass
            if not answering.done():
                self.gone.set()
                answering.cancel()

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.ready.wait()
        if not self._streams:
            await Reply(b"1")(scope, receive, send)
            return
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while True:
            await self.tick.wait()
            self.tick.clear()
            await send({"type": "http.response.body", "body": b": \n\n", "more_body": True})


async def the_end_is_seen() -> None:
    """Returns when the event loop has read what was sent before."""
    async with served(echo) as connect:
        await all_is_read(connect)


@LOOPS
def test_an_answer_reaches_a_client_that_sends_nothing_more_and_is_its_last(loop: Run) -> None:
    async def run() -> None:
        app = App()
        async with served(app) as connect:
            peer = await connect()
            await peer.say(POST)
            await soon(app.asked.wait())
            peer.end()
            await the_end_is_seen()
            app.ready.set()
            data = await peer.rest()
        assert data.endswith(b"\r\n\r\n1")
        assert b"connection: close" in data
        assert not app.gone.is_set()

    loop(run())


@LOOPS
@pytest.mark.parametrize("data", [GET, POST, GET + POST + GET])
def test_a_request_that_comes_with_the_end_of_its_client_is_answered(loop: Run, data: bytes) -> None:
    async def run() -> None:
        async with served(echo) as connect:
            peer = await connect()
            await peer.say(data)
            peer.end()
            assert (await peer.rest()).count(b"HTTP/1.1 200 OK") == data.count(b"HTTP/1.1")

    loop(run())


@LOOPS
@pytest.mark.parametrize("data", [b"", GET[:-2], POST[:-1], GET + POST[:-1]])
def test_a_request_that_can_never_be_complete_ends_the_connection(loop: Run, data: bytes) -> None:
    async def run() -> None:
        async with served(App()) as connect:
            peer = await connect()
            await peer.say(data)
            peer.end()
            assert await peer.rest() == b""

    loop(run())


@LOOPS
def test_a_client_that_sends_nothing_more_has_a_limited_time_for_its_answer_to_begin(loop: Run) -> None:
    async def run() -> None:
        app = App()
        async with served(app, half_closed_seconds=SHORT) as connect:
            peer = await connect()
            await peer.say(POST)
            await soon(app.asked.wait())
            peer.end()
            assert await peer.rest() == b""
            await soon(app.gone.wait())

    loop(run())


@LOOPS
def test_a_stream_that_begins_in_time_goes_on_and_notices_that_its_client_is_gone(loop: Run) -> None:
    async def run() -> None:
        app = App(streams=True)
        async with served(app, half_closed_seconds=20 * SHORT, head_seconds=25 * SHORT) as connect:
            peer = await connect()
            await peer.say(POST)
            peer.end()
            await soon(app.asked.wait())
            app.ready.set()
            await peer.line()
            # A silent connection has more time than the response has to begin.
            assert await (await connect()).rest() == b""
            for _ in range(3):
                app.tick.set()
                assert await peer.take(100) == b"4\r\n: \n\n\r\n"
            assert not app.gone.is_set()
            peer.leave()
            async with asyncio.timeout(BOUND):
                while not app.gone.is_set():
                    app.tick.set()
                    await asyncio.sleep(0)

    loop(run())


@LOOPS
@pytest.mark.parametrize("leave", [Peer.end, Peer.leave])
def test_a_response_that_has_begun_ends_at_once_with_its_client(loop: Run, leave: Callable[[Peer], None]) -> None:
    async def run() -> None:
        app = App(streams=True)
        app.ready.set()
        async with served(app) as connect:
            peer = await connect()
            await peer.say(POST)
            await peer.line()
            leave(peer)
            await soon(app.gone.wait())

    loop(run())
