"""The port: TLS, keys, the access log, and what a caller may send and leave undone."""

import asyncio
import os
import socket
from pathlib import Path
from typing import Any

import grpc
import pytest

from gateway.config.gateway import LimitsConfig
from gateway.foundation.clock import Clock
from gateway.grpc import context
from gateway.grpc.connection import Bounds
from gateway.grpc.server import GrpcServer, Tls
from gateway.http.auth import KeyAuthentication
from gateway.ports.observer import Observer, RequestLine
from tests.gateway.grpc.calling import LARGEST, VERSION, Served, channel_to, details, path, refused, serving
from tests.gateway.grpc.raw import raw_peer, request, status
from tests.gateway.grpc.test_service import FIRST, SECOND, streaming
from tests.gateway.http.test_auth import Keys
from tests.interaction.harness import SEND
from tests.support.certificates import certificate

# --- who calls


async def test_tls_is_spoken_with_the_certificate_of_the_files(tmp_path: Path) -> None:
    file = certificate(tmp_path, "localhost")
    trusting = grpc.ssl_channel_credentials(file.read_bytes())
    async with serving(tls=Tls(file, file), credentials=trusting) as served:
        task = await served.call("GetTask", {"id": "task-1"})
        async with channel_to(served.port) as plain:
            error = await refused(plain.unary_unary(path("GetTask"))(b"", metadata=VERSION, timeout=10))

    assert task.id == "task-1"
    assert error.code() is grpc.StatusCode.UNAVAILABLE


@pytest.mark.parametrize("header", ["authorization", "x-api-key"])
async def test_a_key_is_taken_from_the_metadata(header: str) -> None:
    keys = Keys()
    key = keys.issue("alice")
    async with serving(auth=KeyAuthentication(keys, Clock())) as served:
        none = await refused(served.call("GetTask", {"id": "task-1"}))
        credential = f"Bearer {key}" if header == "authorization" else key
        await served.call("GetTask", {"id": "task-1"}, (*VERSION, (header, credential)))

    assert none.code() is grpc.StatusCode.UNAUTHENTICATED
    assert details(none)[0]["reason"] == "UNAUTHENTICATED"
    assert served.operations.calls[0][1].caller.principal == "alice"


async def test_a_stream_ends_when_its_key_is_revoked() -> None:
    keys = Keys()
    key = keys.issue("alice")
    auth = KeyAuthentication(keys, Clock())
    operations, _ = streaming([(1, FIRST)], stays_open=True)
    async with serving(auth=auth, operations=operations) as served, asyncio.TaskGroup() as group:
        rechecks = group.create_task(auth.run())
        call = served.call("SendStreamingMessage", SEND, (*VERSION, ("x-api-key", key)))
        await anext(aiter(call))
        keys.revoke(key)
        error = await refused(call)
        rechecks.cancel()

    assert (error.code(), error.details()) == (grpc.StatusCode.UNAUTHENTICATED, "the API key is not valid any more")


async def test_every_call_is_told_as_a_request() -> None:
    lines: list[RequestLine] = []

    class Heard(Observer):
        def request_ended(self, line: RequestLine) -> None:
            lines.append(line)

    async with serving(observer=Heard()) as served:
        await served.call("GetTask", {"id": "task-1"})
        await refused(served.call("GetTask", {"id": "task-1"}, metadata=()))

    answered, failed = lines
    assert (answered.method, answered.path, answered.principal, answered.agent, answered.operation) == (
        "POST",
        path("GetTask"),
        "anonymous",
        "echo",
        "GetTask",
    )
    assert (answered.status, answered.peer, failed.status, failed.error) == (
        200,
        "127.0.0.1",
        400,
        "VERSION_NOT_SUPPORTED",
    )


# --- what is sent


async def test_a_message_over_the_limit_is_refused() -> None:
    async with serving() as served:
        error = await refused(served.raw(path("SendMessage"), b"\x0a" + bytes(LARGEST)))
        await served.call("GetTask", {"id": "task-1"})

    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


@pytest.mark.parametrize(
    "payload", [b"\xff" * 100, b"\x12\x7f", b"\x0b" * 1000, bytes(100)], ids=["ones", "cut", "groups", "zeros"]
)
async def test_a_message_that_is_none_is_refused(payload: bytes) -> None:
    async with serving() as served:
        error = await refused(served.raw(path("SendMessage"), payload))

    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert details(error)[0]["reason"] == "PARSE_ERROR"


async def test_a_compressed_message_is_refused() -> None:
    message = {**SEND["message"], "parts": [{"text": "Hello" * 1000}]}
    async with serving() as served:
        error = await refused(served.call("SendMessage", {"message": message}, compression=grpc.Compression.Gzip))

    assert error.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_a_call_without_a_message_is_refused() -> None:
    async with serving() as served:
        call = served.channel.stream_unary(path("GetTask"))(iter(()), metadata=VERSION)
        error = await refused(call)

    assert (error.code(), error.details()) == (grpc.StatusCode.INVALID_ARGUMENT, "the call has no message")


async def test_a_message_that_does_not_arrive_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(context, "_MESSAGE_TIMEOUT", 0.1)
    async with serving() as served:
        call = served.channel.stream_unary(path("GetTask"))(metadata=VERSION)
        error = await refused(call)

    assert error.details() == "the message did not arrive within 0.1 s"


# --- what is not read


@pytest.mark.parametrize("method", ["SendMessage", "SendStreamingMessage"])
async def test_a_caller_that_takes_nothing_loses_its_call(method: str) -> None:
    """A peer that grants no window keeps neither the call nor its stream nor the memory, and is told why."""
    limits = LimitsConfig.model_construct(stream_blocked=0.3)
    operations, stream = streaming([(1, FIRST), (2, SECOND)], stays_open=True)
    async with serving(operations=operations, limits=limits) as served, asyncio.timeout(20):
        async with raw_peer(served.port, window=0) as peer:
            peer.send(request(1, path(method)))
            assert (await status(peer, 1))[0] == "13"
            if method == "SendStreamingMessage":
                await stream.closed.wait()
        await served.call("GetTask", {"id": "task-1"})


# --- the port


async def test_a_port_that_is_taken_is_refused() -> None:
    async with serving() as served:
        with pytest.raises(OSError, match="in use"):
            GrpcServer("127.0.0.1", served.port, None, Bounds(LARGEST, 15, 15))


async def test_its_sockets_are_known_so_that_no_copy_of_the_process_keeps_them() -> None:
    async with serving() as served:
        await served.call("GetTask", {"id": "task-1"})
        known = list(served.server.descriptors())
        ports = {_own_port(descriptor) for descriptor in known}

    assert len(known) == 2  # the listening one, and a connection
    assert ports == {served.port}


def _own_port(descriptor: int) -> int:
    with socket.socket(fileno=os.dup(descriptor)) as each:
        port: int = each.getsockname()[1]
        return port


async def test_retiring_lets_calls_end_and_takes_no_more() -> None:
    operations, stream = streaming([(1, FIRST)], stays_open=True)
    async with serving(operations=operations) as served, asyncio.timeout(20):
        call = served.call("SendStreamingMessage", SEND)
        await anext(aiter(call))
        await asyncio.gather(served.server.retire(10), _refused_then_drained(served, call))
    assert stream.closed.is_set()


async def _refused_then_drained(served: Served, call: Any) -> None:
    async with channel_to(served.port) as other:
        error = await refused(other.unary_unary(path("GetTask"))(b"", metadata=VERSION))
    assert error.code() is grpc.StatusCode.UNAVAILABLE
    served.drain.set()
    assert (await refused(call)).code() is grpc.StatusCode.UNAVAILABLE
