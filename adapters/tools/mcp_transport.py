"""Transports to an MCP server. Law: they tell what the MCP library hides: the HTTP status of an answer, and the end of
the connection.
"""

import asyncio
import sys
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import anyio
import httpx2
from mcp import StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client

from gateway.foundation.keep_alive import CLIENT_KEEP_ALIVE

_CONNECT_SECONDS = 10
_EVENT_LIMIT = 4 * 1024 * 1024

_Streams = tuple[Any, Any]
Transport = AbstractAsyncContextManager[_Streams]


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """The status of an HTTP answer, and whether the request named a session."""

    status: int
    in_session: bool


http_answers: ContextVar[list[HttpAnswer]] = ContextVar("http_answers")
"""The answers to the requests of the current call."""


def over_stdio(command: list[str], env: dict[str, str], cwd: Path | None) -> Transport:
    """The server gets `env` and the few variables that programs need, none of the gateway's secrets.

    Its stderr is the gateway's.
    """
    parameters = StdioServerParameters(command=command[0], args=command[1:], env=env, cwd=cwd)
    return stdio_client(parameters, errlog=sys.__stderr__ or sys.stderr)


@asynccontextmanager
async def over_http(url: str, headers: dict[str, str]) -> AsyncGenerator[_Streams, None]:
    async with (
        httpx2.AsyncClient(
            headers={"User-Agent": "a2a-gateway", **headers},
            # A tool may be silent for as long as a call may take.
            timeout=httpx2.Timeout(_CONNECT_SECONDS, read=None),
            limits=httpx2.Limits(keepalive_expiry=CLIENT_KEEP_ALIVE),
            trust_env=False,
            event_hooks={"response": [_record]},
        ) as http,
        streamable_http_client(url, http_client=http, max_sse_event_size=_EVENT_LIMIT) as streams,
    ):
        yield streams


async def _record(response: httpx2.Response) -> None:
    http_answers.get([]).append(HttpAnswer(response.status_code, "mcp-session-id" in response.request.headers))


@asynccontextmanager
async def observed(transport: Transport, ended: asyncio.Event) -> AsyncGenerator[_Streams, None]:
    """The same transport; `ended` is set when the server sends nothing more."""
    async with transport as (read, write):
        yield _ObservedStream(read, ended), write


class _ObservedStream:
    """Passes everything on to the stream to read from."""

    def __init__(self, stream: Any, ended: asyncio.Event) -> None:
        self._stream = stream
        self._ended = ended

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        try:
            return await anext(self._stream)
        except (StopAsyncIteration, anyio.ClosedResourceError):
            self._ended.set()
            raise

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        handled: bool | None = await self._stream.__aexit__(kind, error, trace)
        return handled
