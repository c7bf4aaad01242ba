"""Hostile callers over gRPC: whatever they send, open and leave, the gateway answers others, and keeps nothing of it."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
import pytest
from a2a.types import a2a_pb2

from tests.gateway.grpc.calling import VERSION, channel_to, path, refused
from tests.running import Local, local_gateway
from tests.support.core import soon, until

AGENT = 'echo: {type: python, ref: "tests.interop.echo_agent:reply"}'
SETTINGS = "limits: {request_body: 64KiB, stream_blocked: 1s}"
STREAMS = 1000
CODES = {
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.UNIMPLEMENTED,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.NOT_FOUND,
}


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Local]:
    async with local_gateway(AGENT, tmp_path, settings=SETTINGS, grpc=True) as gateway:
        yield gateway


def channel(gateway: Local) -> Any:
    assert gateway.grpc is not None
    return channel_to(gateway.grpc)


def request(text: str) -> bytes:
    message = a2a_pb2.Message(message_id="m", role=a2a_pb2.Role.ROLE_USER, parts=[a2a_pb2.Part(text=text)])
    payload: bytes = a2a_pb2.SendMessageRequest(message=message).SerializeToString()
    return payload


async def answers(gateway: Local) -> str:
    """The answer to an honest caller."""
    async with channel(gateway) as honest:
        call = honest.unary_unary(path("SendMessage"), response_deserializer=a2a_pb2.SendMessageResponse.FromString)
        task = (await call(request("Hello"), metadata=VERSION, timeout=30)).task
    return "".join(part.text for artifact in task.artifacts for part in artifact.parts)


async def nothing_is_left(gateway: Local, tasks: int) -> None:
    """No stream, no slot, no task more than before."""
    await until(lambda: gateway.gateway._fanout.streams == 0)
    await until(lambda: len(asyncio.all_tasks()) <= tasks)


async def test_a_thousand_streams_that_are_opened_and_reset_leave_nothing(gateway: Local) -> None:
    async with channel(gateway) as hostile:
        opened = hostile.unary_stream(path("SendStreamingMessage"))
        assert await answers(gateway)
        tasks = len(asyncio.all_tasks())
        for _ in range(STREAMS // 100):
            calls = [opened(request("one two"), metadata=VERSION) for _ in range(100)]
            await asyncio.gather(*(_first(call) for call in calls[:50]))
            for call in calls:
                call.cancel()
        assert await answers(gateway) == "You said Hello."
        await nothing_is_left(gateway, tasks)


async def _first(call: Any) -> None:
    async for _ in call:
        return


async def test_deadlines_of_a_millisecond_leave_nothing(gateway: Local) -> None:
    async with channel(gateway) as hostile:
        assert await answers(gateway)
        tasks = len(asyncio.all_tasks())
        unary, stream = hostile.unary_unary(path("SendMessage")), hostile.unary_stream(path("SendStreamingMessage"))
        for _ in range(50):
            calls = [opened(request("one"), metadata=VERSION, timeout=0.001) for opened in (unary, stream)]
            codes = [await _code(call) for call in calls]
            assert set(codes) <= {grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.OK}
        assert await answers(gateway) == "You said Hello."
        await nothing_is_left(gateway, tasks)


async def _code(call: Any) -> grpc.StatusCode:
    with suppress(grpc.aio.AioRpcError):
        await (_drained(call) if hasattr(call, "__aiter__") else call)
    code: grpc.StatusCode = await call.code()
    return code


async def _drained(call: Any) -> None:
    async for _ in call:
        pass


@pytest.mark.parametrize("seed", range(5))
async def test_noise_is_refused_with_a_code_that_says_so(gateway: Local, seed: int) -> None:
    noise = random.Random(seed)
    whole = request("Hello" * 20)
    payloads = [noise.randbytes(noise.randrange(1, 2000)) for _ in range(20)]
    payloads += [whole[: noise.randrange(1, len(whole) - 1)] for _ in range(20)]
    payloads += [bytes(70_000), b"\x12" * 60_000, b"\x0b" * 60_000]
    async with channel(gateway) as hostile:
        calls = [hostile.unary_unary(path("SendMessage"))(each, metadata=VERSION, timeout=30) for each in payloads]
        errors = [await refused(call) for call in calls]

    assert {error.code() for error in errors} <= CODES
    assert await answers(gateway) == "You said Hello."


async def test_bytes_that_are_no_http_leave_nothing(gateway: Local) -> None:
    noise = random.Random(1)
    assert await answers(gateway)
    tasks = len(asyncio.all_tasks())
    for begin in (b"", b"GET / HTTP/1.1\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"):
        for _ in range(10):
            reading, writing = await asyncio.open_connection("127.0.0.1", gateway.grpc)
            writing.write(begin + noise.randbytes(500))
            writing.write_eof()
            await soon(_to_the_end(reading))
            writing.close()
    assert await answers(gateway) == "You said Hello."
    await nothing_is_left(gateway, tasks)


async def _to_the_end(reading: asyncio.StreamReader) -> None:
    with suppress(ConnectionError):
        while await reading.read(65536):
            pass


async def test_a_caller_that_counts_resumes_without_a_gap_or_a_repeat(gateway: Local) -> None:
    async with channel(gateway) as caller:
        streaming, subscribing = (
            caller.unary_stream(path(name), response_deserializer=a2a_pb2.StreamResponse.FromString)
            for name in ("SendStreamingMessage", "SubscribeToTask")
        )
        call = streaming(request("one two three"), metadata=VERSION)
        whole = [event async for event in call]
        first = int(dict(await call.initial_metadata())["last-event-id"])
        subscribe = a2a_pb2.SubscribeToTaskRequest(id=whole[0].task.id).SerializeToString()

        for read in range(1, len(whole) + 1):
            last = str(first + read - 1)
            resumed = subscribing(subscribe, metadata=(*VERSION, ("last-event-id", last)))
            task, *rest = [event async for event in resumed]
            assert dict(await resumed.initial_metadata())["last-event-id"] == last
            assert task.HasField("task")
            assert rest == whole[read:]
