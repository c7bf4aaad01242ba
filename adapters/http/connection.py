"""Connections of the HTTP client, on private API of aiohttp. Law: no other module of the adapters uses such API.

What is used, and why: docs/adr/0016-private-api-of-aiohttp-and-asyncio.md.
"""

import asyncio
from functools import partial

import aiohttp
from aiohttp.client_proto import ResponseHandler

from gateway.foundation.keep_alive import CLIENT_KEEP_ALIVE


class Connection(ResponseHandler):
    """One connection. `content` is the body of the stream that the connection carries, or carried last."""

    content: aiohttp.StreamReader | None = None

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

    def __init__(self) -> None:
        super().__init__(limit=0, keepalive_timeout=CLIENT_KEEP_ALIVE)
        connection: type[ResponseHandler] = Connection
        self._factory = partial(connection, loop=asyncio.get_running_loop())
