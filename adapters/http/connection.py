"""Connections of the HTTP client, on private API of aiohttp. Law: no other module of the adapters uses such API.

What is used, and why: docs/adr/0016-private-api-of-aiohttp-and-asyncio.md.
"""

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp.client_proto import ResponseHandler

from gateway.foundation.keep_alive import CLIENT_KEEP_ALIVE
from gateway.foundation.tls import client_context


class StaleConnection(aiohttp.ServerDisconnectedError):
    """A kept connection ended before any byte of the answer to its latest request."""


class Connection(ResponseHandler):
    """One connection. `content` is the body of the stream that the connection carries, or carried last."""

    content: aiohttp.StreamReader | None = None
    _kept = False
    """The connection has answered an earlier request."""
    _heard = False
    """A byte of the answer to the latest request has come."""

    def set_response_params(self, **params: Any) -> None:
        """aiohttp calls this at the beginning of each request."""
        self._kept, self._heard = self._heard, False
        super().set_response_params(**params)

    def data_received(self, data: bytes) -> None:
        self._heard = True
        super().data_received(data)

    def set_exception(self, exc: BaseException, *exc_cause: BaseException) -> None:
        lost = isinstance(exc, aiohttp.ServerDisconnectedError | aiohttp.ClientOSError)
        if lost and self._kept and not self._heard:
            exc = StaleConnection(f"{type(exc).__name__}: {exc}")
        super().set_exception(exc, *exc_cause)

    def carry(self, content: aiohttp.StreamReader) -> None:
        """Attaches the body of a stream. From this call on, the reader of `content` limits the silence, because aiohttp
        makes a timer for each chunk."""
        self.content = content
        self.read_timeout = None
        self.start_timeout()

    def resume_reading(self, resume_parser: bool = True) -> None:
        # aiohttp (3.14) calls this, and parses nothing once more, after every chunk that was read: 3 % of a turn.
        if self._reading_paused:
            super().resume_reading(resume_parser)

    def connection_lost(self, exc: BaseException | None) -> None:
        super().connection_lost(exc)
        content, self.content = self.content, None
        # aiohttp (3.14) does not wake the reader of a body whose framing is broken.
        if content is not None and not content.is_eof() and content.exception() is None:
            content.set_exception(aiohttp.ClientPayloadError("the body's framing is broken"))


class Connector(aiohttp.TCPConnector):
    """Makes connections of the class above."""

    def __init__(self, ca: Path | None = None) -> None:
        """`ca` as in `client_context`."""
        trusted = True if ca is None else client_context(ca)
        super().__init__(limit=0, keepalive_timeout=CLIENT_KEEP_ALIVE, ssl=trusted)
        connection: type[ResponseHandler] = Connection
        self._factory = partial(connection, loop=asyncio.get_running_loop())

    def close_kept(self) -> None:
        """Closes the connections that wait for their next request."""
        for kept in self._conns.values():
            for protocol, _ in kept:
                protocol.close()
        self._conns.clear()
