"""What is being received: how much of it there may be."""

import asyncio
from contextlib import AbstractAsyncContextManager

import pytest

from gateway.config.gateway import LimitsConfig
from gateway.grpc import arrivals
from gateway.grpc.arrivals import Arrivals, Arriving
from tests.gateway.grpc.calling import Served, path, serving
from tests.gateway.grpc.raw import (
    CANCEL,
    DATA,
    END_STREAM,
    HELLO,
    RST_STREAM,
    frame,
    headers,
    raw_peer,
    request,
    status,
)
from tests.support.core import until

SEND_MESSAGE = path("SendMessage")
MIB = 2**20
CHUNK = 2**14
REFUSED = ("8", "Too much is being received; try again.")


def begun(stream: int) -> bytes:
    """A call whose message of a MiB has begun to arrive."""
    data = b"\0" + MIB.to_bytes(4) + bytes(CHUNK - 5)
    return headers(stream, SEND_MESSAGE) + frame(DATA, 0, stream, data)


def serving_large() -> AbstractAsyncContextManager[Served]:
    return serving(limits=LimitsConfig.model_construct(request_body=MIB))


async def _kept(served: Served, size: int) -> None:
    await until(lambda: served.server._arriving.size == size)


async def test_a_call_that_brings_too_much_to_its_connection_is_refused_and_the_others_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(arrivals, "_MOST", 3 * CHUNK + 100)
    async with serving_large() as served, raw_peer(served.port) as peer, asyncio.timeout(20):
        for stream in (1, 3, 5):
            peer.send(begun(stream))
        await _kept(served, 3 * CHUNK)
        peer.send(begun(7))
        assert await status(peer, 7) == REFUSED
        await _kept(served, 3 * CHUNK)
        peer.send(request(9, SEND_MESSAGE))
        assert (await status(peer, 9))[0] == "0"


async def test_in_a_full_process_a_connection_may_bring_one_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrivals, "_ALL_MOST", 2 * CHUNK)
    async with serving_large() as served, asyncio.timeout(20), raw_peer(served.port) as one:
        async with raw_peer(served.port) as other:
            one.send(begun(1) + begun(3))
            await _kept(served, 2 * CHUNK)
            other.send(begun(1))
            await _kept(served, 3 * CHUNK)
            other.send(begun(3))
            assert await status(other, 3) == REFUSED
        await _kept(served, 2 * CHUNK)


async def test_what_was_answered_or_lost_does_not_count() -> None:
    async with serving_large() as served, raw_peer(served.port) as peer, asyncio.timeout(20):
        peer.send(begun(1) + request(3, SEND_MESSAGE))
        assert (await status(peer, 3))[0] == "0"
        await _kept(served, CHUNK)
        peer.send(frame(RST_STREAM, 0, 1, CANCEL))
        await _kept(served, 0)


async def test_a_message_counts_until_its_caller_has_said_that_it_is_the_last() -> None:
    async with serving_large() as served, raw_peer(served.port) as peer, asyncio.timeout(20):
        peer.send(headers(1, SEND_MESSAGE) + frame(DATA, 0, 1, b"\0" + len(HELLO).to_bytes(4) + HELLO))
        await _kept(served, len(HELLO))
        peer.send(frame(DATA, END_STREAM, 1))
        assert (await status(peer, 1))[0] == "0"
        await _kept(served, 0)


async def test_a_caller_without_a_credential_sends_no_large_message() -> None:
    async with serving_large() as served, raw_peer(served.port) as peer, asyncio.timeout(20):
        peer.send(headers(1, "/grpc.health.v1.Health/Check") + frame(DATA, 0, 1, b"\0" + (4097).to_bytes(4)))
        assert await status(peer, 1) == ("8", "the message has more than 4096 bytes")


def test_a_connection_has_its_own_limit_and_that_of_the_process() -> None:
    arriving = Arriving()
    one, other = Arrivals(arriving), Arrivals(arriving)
    one.hold(64 * MIB)
    assert not one.refuses(8 * MIB)
    one.hold(1)
    assert one.refuses(8 * MIB)
    arriving.size = 256 * MIB
    other.hold(1)
    assert not other.refuses(1)
    other.hold(1)
    assert other.refuses(1)
    one.release(64 * MIB)
    assert not other.refuses(1)
