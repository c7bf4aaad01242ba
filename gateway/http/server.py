"""The HTTP server of a gateway process. Law: the gateway handles the signals: the first drains, the second ends at once, SIGHUP
reloads; the exit status is clean."""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from starlette.types import ASGIApp
from uvicorn import Config, Server

from gateway.foundation.forks import keep_from_copies
from gateway.foundation.hangups import take_hangup
from gateway.foundation.shared_port import address_family, join
from gateway.http.connection import BLOCKED_SECONDS, Connection

_BACKLOG = 4096
_UNACKNOWLEDGED_SECONDS = 40
"""A peer that acknowledges nothing for so long is gone. With a comment every 15 s a silent stream ends within a minute."""
_UNSENT_BYTES = 64 * 1024
"""What the system takes of a response before its peer has room for it. It takes more only when much of that has gone, and would
keep megabytes for a slow reader, which then looks for a minute like one that reads nothing."""

_LAST_SECONDS = 1.0
"""What a peer gets, once the process ends, to read the rest of its response."""
_GIVEN_UP_SECONDS = 3
"""Then uvicorn cancels what still goes on, although its peer is gone."""

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class _Server(Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """uvicorn's own handler would end the process with the status of the signal."""
        yield


def listen(host: str, port: int, *, shared: bool = False) -> socket.socket:
    """A bound socket; port 0 lets the system choose. With `shared` the port is one that is reserved for several processes.

    Raises: OSError.
    """
    bound = join(host, port) if shared else _create(host, port)
    if sys.platform == "linux":
        # Accepted connections inherit both. The default of the first is a quarter of an hour.
        bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _UNACKNOWLEDGED_SECONDS * 1000)
        bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, _UNSENT_BYTES)
    return bound


def _create(host: str, port: int) -> socket.socket:
    return socket.create_server((host, port), family=address_family(host), backlog=_BACKLOG)


class HttpServer:
    """Serves one application on one socket."""

    def __init__(
        self,
        app: ASGIApp,
        bound: socket.socket,
        blocked: float = BLOCKED_SECONDS,
        refused: Callable[[int, str | None], None] = lambda _status, _peer: None,
    ) -> None:
        """`blocked` is the number of seconds after which the connection of a peer that reads nothing is closed. `refused` gets
        the status and the peer of each request that never reached the application."""

        class ServerConnection(Connection):
            blocked_seconds = blocked
            told = staticmethod(refused)

        self._connection = ServerConnection
        self._socket = bound
        self._server = _Server(
            Config(
                app,
                http=ServerConnection,
                ws="none",
                lifespan="off",
                interface="asgi3",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                backlog=_BACKLOG,
                timeout_graceful_shutdown=_GIVEN_UP_SECONDS,
            )
        )
        keep_from_copies(self)

    def descriptors(self) -> Iterator[int]:
        """Of all its sockets."""
        yield self._socket.fileno()
        for connection in self._server.server_state.connections:
            if isinstance(connection, Connection):
                yield connection.transport.get_extra_info("socket").fileno()

    def listen(self) -> None:
        """From now on the kernel takes connections, which are served once `serve` runs."""
        self._socket.listen(_BACKLOG)

    async def serve(self) -> None:
        """Returns after `stop`, when every connection is closed."""
        await self._server.serve(sockets=[self._socket])

    def retire(self) -> None:
        """Makes each later response the last response of its connection, so that no client reuses a connection to a
        process that has ended."""
        self._connection.retiring = True
        for connection in self._server.server_state.connections:
            if isinstance(connection, Connection):
                connection.close_after_response()

    def stop(self) -> None:
        self._server.should_exit = True
        asyncio.get_running_loop().call_later(_LAST_SECONDS, self._drop_connections)

    def _drop_connections(self) -> None:
        """Wakes a response that waits for its peer to read: uvicorn would cancel it, and log that as an error."""
        for connection in tuple(self._server.server_state.connections):
            if isinstance(connection, Connection):
                connection.drop()


class Signals:
    """SIGTERM and SIGINT, counted, and SIGHUP. Use inside `with signals.watched()`."""

    def __init__(self) -> None:
        self.first = asyncio.Event()
        self.second = asyncio.Event()
        self.reload = asyncio.Event()

    @contextmanager
    def watched(self, *, reloads: bool = False) -> Iterator[None]:
        """Handles the signals while the block runs. Without `reloads`, SIGHUP keeps its default and ends the
        process; with it, one that was kept before counts."""
        loop, at_hangup = asyncio.get_running_loop(), signal.getsignal(signal.SIGHUP)
        watched = (*_SIGNALS, signal.SIGHUP) if reloads else _SIGNALS
        for number in _SIGNALS:
            loop.add_signal_handler(number, self.ordered)
        if reloads:
            loop.add_signal_handler(signal.SIGHUP, self._hung_up, os.isatty(0))
            if take_hangup():
                self.reload.set()
        try:
            yield
        finally:
            for number in watched:
                loop.remove_signal_handler(number)
            if reloads:
                signal.signal(signal.SIGHUP, at_hangup)

    def _hung_up(self, had_terminal: bool) -> None:
        """A closed terminal sends the same signal: then no keyboard can end the process, and it drains."""
        if had_terminal and not os.isatty(0):
            self.ordered()
        else:
            self.reload.set()

    def ordered(self) -> None:
        """The process is to drain; said again, to end."""
        if self.first.is_set():
            self.second.set()
        self.first.set()
