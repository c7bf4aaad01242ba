"""Clients of one backend, and the events and faults that they give."""

from collections.abc import AsyncGenerator, Callable
from typing import Any, TypeAlias

import pytest

from adapters.http.client import HttpClient
from adapters.http.settings import Timeouts
from adapters.http.signing import Signing
from adapters.openai.failures import OpenAIFailures
from gateway.foundation.route import DIRECT, Route
from gateway.ports.adapter import AdapterError

KEY = "sk-proj-0123456789abcdef"
Connect: TypeAlias = Callable[..., HttpClient]


@pytest.fixture
async def connect() -> AsyncGenerator[Connect]:
    clients: list[HttpClient] = []

    def connected(signing: Signing | None = None, route: Route = DIRECT, **timeouts: float) -> HttpClient:
        patient = Timeouts.model_construct(connect=5.0, first_byte=30.0, between_bytes=30.0)
        client = HttpClient(
            patient.model_copy(update=timeouts),
            OpenAIFailures((KEY,)),
            {"Authorization": f"Bearer {KEY}"},
            route,
            signing,
        )
        clients.append(client)
        return client

    yield connected
    for client in clients:
        await client.aclose()


async def batches(client: HttpClient, url: str, body: bytes = b"{}", **options: Any) -> list[list[bytes]]:
    async with client.stream(url, body, **options) as stream:
        return [batch async for batch in stream]


async def events(client: HttpClient, url: str) -> list[bytes]:
    return [data for batch in await batches(client, url) for data in batch]


async def answered(client: HttpClient, url: str) -> None:
    """A call as adapters make it: they stop at the event that ends the answer."""
    async with client.stream(url, b"{}") as stream:
        async for _ in stream:
            stream.answered = True
            return


async def fault(client: HttpClient, url: str, **options: Any) -> AdapterError:
    with pytest.raises(AdapterError) as caught:
        await batches(client, url, **options)
    return caught.value
