"""The vendor's own client in front of an emulator on a real socket, and readers of its answers."""

import json
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any, TypeAlias, TypeVar

import openai
import pytest
from openai import AsyncOpenAI

from gateway.testing.serving import serve
from tests.emulators.server import Emulator

T = TypeVar("T")
Connect: TypeAlias = Callable[[Emulator], Awaitable[AsyncOpenAI]]


@pytest.fixture
async def connect() -> AsyncGenerator[Connect]:
    """Serves an emulator until the test ends and gives a client of it."""
    async with AsyncExitStack() as stack:

        async def connected(emulator: Emulator) -> AsyncOpenAI:
            url = await stack.enter_async_context(serve(emulator.app))
            client = AsyncOpenAI(base_url=f"{url}/v1", api_key="sk-0123456789abcdef", max_retries=0)
            return await stack.enter_async_context(client)

        yield connected


async def collect(stream: AsyncIterable[T], into: list[T]) -> None:
    async for each in stream:
        into.append(each)


async def events_of(client: AsyncOpenAI, text: str = "hi", **options: Any) -> list[Any]:
    """The events of a streamed response."""
    events: list[Any] = []
    await collect(await client.responses.create(model="m", input=text, stream=True, **options), events)
    return events


async def response_wire(client: AsyncOpenAI, **options: Any) -> str:
    """The bytes of a streamed response as text."""
    body: dict[str, Any] = {"model": "m", "input": "hi", "stream": True} | options
    async with client.responses.with_streaming_response.create(**body) as response:
        wire: bytes = await response.read()
        return wire.decode()


def data_of(wire: str) -> list[dict[str, Any]]:
    """The values of the `data:` lines, without the last line of some servers, `[DONE]`."""
    lines = [line[6:] for line in wire.splitlines() if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


def error_of(failure: pytest.ExceptionInfo[openai.APIStatusError]) -> dict[str, Any]:
    error: dict[str, Any] = failure.value.response.json()["error"]
    return error
