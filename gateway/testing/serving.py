"""Runs an ASGI application on a free loopback port inside the current event loop.

Law: no task, signal handler or logger setting outlives the block; the end never waits for a client.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

DROP = "gateway.testing.drop"
"""Key of `scope["state"]`: a function that flushes the written bytes and closes the connection in mid-answer."""

_ROUNDS_OF_ACCEPT = 3
"""Rounds of the event loop from the moment in which it accepts a connection until that is one of the server's."""


@asynccontextmanager
async def serve(app: ASGIApp, port: int = 0) -> AsyncGenerator[str]:
    """Serves `app` while the block runs; gives its base URL, such as `http://127.0.0.1:40123`. Port 0: a free one.

    The end of the block cuts open streams and cancels unfinished requests. Different tasks may enter and leave the
    block, as fixtures of pytest-asyncio do.
    """
    stopping = asyncio.Event()
    config = _QuietConfig(
        _suppress_cancellation(app, stopping.is_set),
        http=_Connection,
        ws="none",
        lifespan="off",
        interface="asgi3",
        proxy_headers=False,
        log_config=None,
    )
    config.load()
    state = ServerState()
    loop = asyncio.get_running_loop()
    listener = await loop.create_server(lambda: _Connection(config, state, {}), "127.0.0.1", port)
    try:
        yield f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    finally:
        stopping.set()
        await _stop(listener, state)


async def _stop(listener: asyncio.AbstractServer, state: ServerState) -> None:
    listener.close()
    for _ in range(_ROUNDS_OF_ACCEPT):
        await asyncio.sleep(0)
    while state.connections:
        for connection in state.connections:
            connection.transport.abort()
        await asyncio.sleep(0)  # the event loop calls `connection_lost` in its next round
    unfinished = tuple(state.tasks)
    for task in unfinished:
        task.cancel()
    await asyncio.gather(*unfinished, return_exceptions=True)
    await listener.wait_closed()


def _suppress_cancellation(app: ASGIApp, stopping: Callable[[], bool]) -> ASGIApp:
    """Otherwise uvicorn logs every request that the end of the block cancelled as an application error."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await app(scope, receive, send)
        except asyncio.CancelledError:
            if not stopping():
                raise

    return answer


class _QuietConfig(Config):
    def configure_logging(self) -> None:
        """Leaves the loggers to the process that embeds this server."""


class _Connection(HttpToolsProtocol):
    def __init__(self, config: Config, server_state: ServerState, app_state: dict[str, Any]) -> None:
        super().__init__(config, server_state, app_state)
        self.access_log = False

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope["state"][DROP] = self.transport.close
