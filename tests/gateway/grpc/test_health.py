"""The health service, asked with the messages of its specification."""

import asyncio
from typing import Any

import grpc
import pytest

from gateway.a2a.wire.v1_0_proto import SERVICE
from gateway.grpc import server
from tests.gateway.grpc.calling import Served, refused, serving

SERVING, NOT_SERVING, UNKNOWN = b"\x08\x01", b"\x08\x02", b"\x08\x03"


def asked(name: str) -> bytes:
    return b"\x0a" + bytes((len(name),)) + name.encode() if name else b""


def check(served: Served, name: str = "") -> Any:
    return served.raw("/grpc.health.v1.Health/Check", asked(name), metadata=())


def watch(served: Served, name: str = "") -> Any:
    return served.channel.unary_stream("/grpc.health.v1.Health/Watch")(asked(name))


@pytest.mark.parametrize("name", ["", SERVICE])
async def test_a_gateway_that_accepts_requests_serves(name: str) -> None:
    async with serving() as served:
        assert await check(served, name) == SERVING


async def test_a_gateway_without_its_database_does_not_serve() -> None:
    async with serving(ready=False) as served:
        assert await check(served) == NOT_SERVING


async def test_another_service_is_not_found() -> None:
    async with serving() as served:
        error = await refused(check(served, "other"))

    assert error.code() is grpc.StatusCode.NOT_FOUND


async def test_a_watch_tells_of_the_drain_and_ends() -> None:
    async with serving() as served, asyncio.timeout(10):
        call = aiter(watch(served))
        first = await anext(call)
        served.drain.set()
        rest = [message async for message in call]

    assert [first, *rest] == [SERVING, NOT_SERVING]


async def test_a_watch_of_another_service_says_that_it_is_unknown() -> None:
    async with serving() as served, asyncio.timeout(10):
        call = aiter(watch(served, "other"))
        assert await anext(call) == UNKNOWN
        served.drain.set()
        assert [message async for message in call] == []


async def test_open_calls_without_a_credential_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_PUBLIC_CALLS", 1)
    async with serving() as served, asyncio.timeout(10):
        watching = aiter(watch(served))
        await anext(watching)
        error = await refused(check(served))

    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_a_question_that_is_no_message_is_refused() -> None:
    async with serving() as served:
        error = await refused(served.raw("/grpc.health.v1.Health/Check", b"\x0a\x05", metadata=()))

    assert (error.code(), error.details()) == (
        grpc.StatusCode.INVALID_ARGUMENT,
        "Invalid protobuf payload: it is truncated",
    )
