"""Framing of events. Life and end of streams: tests/interaction/test_streams.py."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from gateway.a2a.errors import A2AError, TaskNotFound
from gateway.foundation.shutdown import Drain
from gateway.http.sse import Envelope, EventResponse, StreamSettings
from gateway.ledger.events import Frame
from tests.support.core import soon

BARE = Envelope(b"", b"", lambda error: error.message.encode())
WRAPPED = Envelope(b'{"id":1,"result":', b"}", lambda error: error.message.encode())


def test_an_event_has_its_number_and_one_line_of_data() -> None:
    assert BARE.join([(7, b"{}")]) == b"id: 7\ndata: {}\n\n"


def test_an_event_without_a_number_has_no_id() -> None:
    assert BARE.join([(None, b"{}")]) == b"data: {}\n\n"


def test_a_batch_is_one_piece_with_the_envelope_around_each_event() -> None:
    assert WRAPPED.join([(1, b"a"), (2, b"b")]) == (
        b'id: 1\ndata: {"id":1,"result":a}\n\nid: 2\ndata: {"id":1,"result":b}\n\n'
    )


def test_an_empty_batch_is_empty() -> None:
    assert WRAPPED.join([]) == b""


def test_an_error_is_an_event_of_its_own_kind() -> None:
    assert WRAPPED.failure(TaskNotFound("gone")) == b"event: error\ndata: gone\n\n"


class _Caller:
    """Takes the first `free` pieces of the body at once, and the others when it is told to read on. Sends nothing."""

    def __init__(self, free: int) -> None:
        self.free = free
        self.waits, self.reads = asyncio.Event(), asyncio.Event()
        self.taken: list[bytes] = []
        self.asked = 0
        self.asked_again = asyncio.Event()

    async def receive(self) -> dict[str, object]:
        self.asked += 1
        if self.waits.is_set():
            self.asked_again.set()
        await asyncio.Event().wait()
        raise AssertionError

    async def send(self, message: dict[str, object]) -> None:
        body = message.get("body")
        if not isinstance(body, bytes):
            return
        if len(self.taken) >= self.free and not self.reads.is_set():
            self.waits.set()
            await self.reads.wait()
        self.taken.append(body)


class _OneBatch:
    may_end_at = 0

    def __init__(self, *frames: Frame) -> None:
        self._frames = list(frames)

    async def __aiter__(self) -> AsyncIterator[list[Frame]]:
        yield self._frames

    async def aclose(self) -> None:
        pass


def _unexpected(error: Exception) -> A2AError:
    raise error


LONGEST = 30
LARGE: Frame = (1, b"x" * 300_000)


def _response(drain: Drain, keepalive: float = 60.0) -> EventResponse:
    return EventResponse(_OneBatch(LARGE), BARE, StreamSettings(drain, _unexpected, keepalive, send_timeout=60.0))


async def test_a_large_batch_goes_out_in_pieces() -> None:
    caller = _Caller(free=100)
    await soon(_response(Drain())({}, caller.receive, caller.send))  # type: ignore[arg-type]
    assert max(map(len, caller.taken)) == 64 * 1024
    assert b"".join(caller.taken) == BARE.join([LARGE])


@pytest.mark.parametrize("free", [0, 1, 2])
async def test_no_comment_stands_in_the_middle_of_an_event(free: int) -> None:
    caller = _Caller(free)
    async with asyncio.timeout(LONGEST), asyncio.TaskGroup() as group:
        group.create_task(_response(Drain(), keepalive=0.001)({}, caller.receive, caller.send))  # type: ignore[arg-type]
        await caller.asked_again.wait()
        caller.reads.set()
    assert BARE.join([LARGE]) in b"".join(caller.taken)


@pytest.mark.parametrize(("free", "begun"), [(0, False), (1, True), (3, True)])
async def test_an_event_that_has_begun_to_go_out_is_whole_before_the_stream_ends_for_a_drain(
    free: int, begun: bool
) -> None:
    caller, drain = _Caller(free), Drain()
    async with asyncio.timeout(LONGEST), asyncio.TaskGroup() as group:
        group.create_task(_response(drain)({}, caller.receive, caller.send))  # type: ignore[arg-type]
        await caller.waits.wait()
        drain.set()
        caller.reads.set()
    assert b"".join(caller.taken) == (BARE.join([LARGE]) if begun else b"") + b": draining\n\n"
