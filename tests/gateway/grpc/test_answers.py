"""Answers that their callers take slowly, or not at all, and the answers at the end of the server."""

import asyncio
import gc
import weakref
from base64 import b64decode
from typing import Any

import grpc
import pytest

from gateway.a2a.model import Artifact, Part, Task
from gateway.a2a.wire import v1_0_proto
from gateway.config.gateway import LimitsConfig
from gateway.grpc import turns
from gateway.grpc.context import Context
from gateway.grpc.status import details_of
from gateway.grpc.streaming import StreamedCall
from tests.garbage import left_behind
from tests.gateway.grpc.calling import Served, connection_of, path, refused, serving
from tests.gateway.grpc.raw import (
    CANCEL,
    DATA,
    END_STREAM,
    GOAWAY,
    HEADERS,
    HELLO,
    RST_STREAM,
    Peer,
    frame,
    headers,
    message,
    raw_peer,
    request,
    status,
)
from tests.gateway.grpc.test_service import FIRST, SECOND, Waiting, streaming
from tests.interaction.harness import SEND
from tests.interaction.scripted import TASK, ScriptedOperations, ScriptedStream
from tests.support.core import until

GET_TASK, SEND_MESSAGE, STREAM, SUBSCRIBE = map(
    path, ("GetTask", "SendMessage", "SendStreamingMessage", "SubscribeToTask")
)
ASKED = b"\x12\x06task-1"
"""A GetTaskRequest, or a SubscribeToTaskRequest."""
CONFIG = b"\x1a\x06task-1\x22\x13https://example.com"
"""A TaskPushNotificationConfig."""
ENDED = ("14", "The gateway is shutting down; ask again.")


def large(size: int) -> ScriptedOperations:
    """A task with a text of so many characters."""
    operations = ScriptedOperations()
    artifact = Artifact(artifact_id="a", parts=(Part(text="x" * size),))
    operations.answers["get_task"] = Task(id="task-1", context_id="c", status=TASK.status, artifacts=(artifact,))
    return operations


def asked(number: int, *further: tuple[str, str]) -> bytes:
    return headers(number, GET_TASK, *further) + message(number, ASKED)


async def whole(peer: Peer, stream: int) -> int:
    """The number of bytes that come up to the end of the stream, each window of which is granted anew."""
    size = 0
    while found := await peer.next(DATA, HEADERS, RST_STREAM):
        if found.stream == stream:
            size += len(found.payload) if found.kind == DATA else 0
            if found.kind == RST_STREAM or found.flags & END_STREAM:
                return size
    raise AssertionError("the stream does not end")


# --- slowly


async def test_an_answer_may_take_longer_than_a_caller_is_waited_for_as_long_as_it_moves() -> None:
    blocked = 1.0
    limits = LimitsConfig.model_construct(stream_blocked=blocked)
    async with (
        serving(operations=large(2**17), limits=limits) as served,
        raw_peer(served.port, window=0) as peer,
        asyncio.timeout(20),
    ):
        peer.send(asked(1))
        loop = asyncio.get_running_loop()
        end, size = loop.time() + 2 * blocked, 0
        while loop.time() < end:
            peer.window(1, 1)
            found = await peer.next(DATA)
            assert found is not None
            size += len(found.payload)
        peer.window(1, 2**20)
        peer.window(0, 2**20)
        assert size + await whole(peer, 1) > 2**17


async def test_what_waits_for_the_window_of_the_connection_waits_as_long_as_that_moves() -> None:
    blocked = 1.0
    limits = LimitsConfig.model_construct(stream_blocked=blocked)
    async with (
        serving(operations=large(2**17), limits=limits) as served,
        raw_peer(served.port, window=2**20) as peer,
        asyncio.timeout(20),
    ):
        numbers = range(1, 9, 2)
        peer.send(b"".join(map(asked, numbers)))
        loop = asyncio.get_running_loop()
        end = loop.time() + 2 * blocked
        size = 0
        while size < 65535 or loop.time() < end:
            if size >= 65535:
                peer.window(0, 1)
            found = await peer.next(DATA, RST_STREAM)
            assert found is not None
            assert found.kind == DATA
            size += len(found.payload)
        peer.window(0, 2**22)
        assert await _statuses(peer, set(numbers)) == dict.fromkeys(numbers, True)


async def _statuses(peer: Peer, numbers: set[int]) -> dict[int, bool]:
    """Whether each stream ends with trailers."""
    ended: dict[int, bool] = {}
    while numbers - ended.keys():
        found = await peer.next(HEADERS, RST_STREAM)
        assert found is not None
        if found.kind == RST_STREAM or found.flags & END_STREAM:
            ended[found.stream] = found.kind == HEADERS
    return ended


async def test_a_caller_that_takes_no_more_of_its_answer_gets_a_status_and_the_others_go_on() -> None:
    limits = LimitsConfig.model_construct(stream_blocked=1.0)
    async with (
        serving(operations=large(2**17), limits=limits) as served,
        raw_peer(served.port, window=1000) as peer,
        asyncio.timeout(20),
    ):
        peer.send(asked(1))
        assert await peer.next(DATA)
        assert await status(peer, 1) == ("14", "The answer was not taken in time.")
        peer.send(asked(3))
        peer.window(3, 2**20)
        peer.window(0, 2**20)
        assert await whole(peer, 3) > 2**17


# --- not at all


async def test_a_peer_that_takes_no_answers_gets_few_made_and_all_when_it_does() -> None:
    operations = large(2**16)
    async with serving(operations=operations) as served, raw_peer(served.port, window=0) as peer, asyncio.timeout(20):
        numbers = range(1, 201, 2)
        peer.send(b"".join(map(asked, numbers)))
        await until(lambda: len(operations.calls) == 16)
        peer.send(request(201, SEND_MESSAGE))
        await until(lambda: len(operations.calls) == 17)
        assert [name for name, *_ in operations.calls] == ["get_task"] * 16 + ["send_message"]

        for number in (*numbers, 201):
            peer.window(number, 2**20)
        peer.window(0, 2**24)
        assert await _statuses(peer, {*numbers, 201}) == dict.fromkeys((*numbers, 201), True)


async def test_nothing_is_read_for_a_peer_that_has_much_to_take_and_all_else_begins() -> None:
    operations = large(2**23)
    async with serving(operations=operations) as served, raw_peer(served.port, window=0) as peer, asyncio.timeout(20):
        peer.send(asked(1) + asked(3))
        await until(lambda: connection_of(served).turns.held > 2**24)
        peer.send(asked(5) + request(7, SEND_MESSAGE))
        await until(lambda: [name for name, *_ in operations.calls] == [*["get_task"] * 2, "send_message"])
        peer.send(frame(RST_STREAM, 0, 1, CANCEL))
        await until(lambda: len(operations.calls) == 4)


class Begun(Waiting):
    """SendMessage and SendStreamingMessage that wait for `go`."""

    async def send_streaming_message(self, call: Any, request: Any) -> ScriptedStream:
        self.begun.set()
        await self.go.wait()
        return await super().send_streaming_message(call, request)


async def _held(served: Served, peer: Peer, operations: ScriptedOperations) -> None:
    """Has the peer a large answer to take."""
    peer.send(asked(3))
    operations.answers["get_task"] = large(2**16).answers["get_task"]
    await until(lambda: connection_of(served).turns.held > 2**16)


@pytest.mark.parametrize("method", [SEND_MESSAGE, STREAM])
async def test_a_message_that_was_accepted_is_not_refused_where_its_answer_is_one_too_many(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a thousand repeats of a message, each of which has the same large answer."""
    monkeypatch.setattr(turns, "_MOST", 2**16)
    operations = Begun()
    operations.answers["send_streaming_message"] = stream = ScriptedStream([(1, FIRST)])
    async with serving(operations=operations) as served, raw_peer(served.port, window=0) as peer, asyncio.timeout(20):
        peer.send(request(1, method))
        await operations.begun.wait()
        await _held(served, peer, operations)
        operations.go.set()
        assert await _unanswered(peer, 1) == "task-1"
        assert method == SEND_MESSAGE or stream.closed.is_set()


@pytest.mark.parametrize("method", ["SendMessage", "SendStreamingMessage", "CreateTaskPushNotificationConfig"])
async def test_nothing_is_begun_twice_for_a_peer_that_has_far_too_much_to_take(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "_MOST", 2**16)
    operations = ScriptedOperations()
    async with serving(operations=operations) as served, raw_peer(served.port, window=0) as peer, asyncio.timeout(20):
        await _held(served, peer, operations)
        peer.send(headers(5, path(method)) + message(5, CONFIG if method.startswith("Create") else HELLO))
        assert await status(peer, 5) == ("8", "This connection has too many answers to take; try again.")
        assert [name for name, *_ in operations.calls] == ["get_task"]
        assert {each["@type"].rpartition(".")[2] for each in _details(peer)} == {"ErrorInfo", "RetryInfo"}


async def test_a_cancellation_is_carried_out_for_a_peer_that_has_far_too_much_to_take(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(turns, "_MOST", 2**16)
    operations = ScriptedOperations()
    async with serving(operations=operations) as served, raw_peer(served.port, window=0) as peer, asyncio.timeout(20):
        await _held(served, peer, operations)
        peer.send(headers(5, path("CancelTask")) + message(5, ASKED))
        assert await _unanswered(peer, 5) == "task-1"
        assert [name for name, *_ in operations.calls] == ["get_task", "cancel_task"]


@pytest.mark.parametrize("method", [SEND_MESSAGE, STREAM])
async def test_a_message_whose_answer_is_not_taken_is_not_refused(method: str) -> None:
    limits = LimitsConfig.model_construct(stream_blocked=0.2)
    operations, _ = streaming([(1, FIRST)], stays_open=True)
    async with (
        serving(operations=operations, limits=limits) as served,
        raw_peer(served.port, window=0) as peer,
        asyncio.timeout(20),
    ):
        peer.send(request(1, method))
        assert await _unanswered(peer, 1) == "task-1"


async def test_a_stream_whose_task_was_taken_is_ended_as_one_that_can_be_resumed() -> None:
    limits = LimitsConfig.model_construct(stream_blocked=0.2)
    operations, _ = streaming([(1, FIRST)], [(2, SECOND)], stays_open=True)
    async with (
        serving(operations=operations, limits=limits) as served,
        raw_peer(served.port, window=5 + len(v1_0_proto.event(1, FIRST))) as peer,
        asyncio.timeout(20),
    ):
        peer.send(request(1, STREAM))
        assert await status(peer, 1) == ("14", "The answer was not taken in time.")


async def test_a_message_whose_answer_is_not_taken_at_the_end_of_the_server_is_not_refused() -> None:
    async with serving() as served, raw_peer(served.port, window=0) as peer, asyncio.timeout(20):
        peer.send(request(1, SEND_MESSAGE))
        assert await peer.next(HEADERS)
        async with asyncio.TaskGroup() as group:
            group.create_task(served.server.retire(0))
            assert await _unanswered(peer, 1) == "task-1"


async def test_a_message_is_not_refused_by_a_drain_that_ends_its_stream_before_the_task_is_taken() -> None:
    operations, _ = streaming([(1, FIRST)], stays_open=True)
    async with serving(operations=operations) as served, raw_peer(served.port, window=0) as peer, asyncio.timeout(20):
        peer.send(request(1, STREAM))
        assert await peer.next(HEADERS)
        served.drain.set()
        await until(lambda: not served.drain.callbacks)
        peer.window(1, 2**16)
        assert await _unanswered(peer, 1) == "task-1"


async def test_a_message_is_not_refused_by_a_drain_that_ends_its_stream_before_the_task_comes() -> None:
    operations, _ = streaming(stays_open=True)
    async with serving(operations=operations) as served, raw_peer(served.port) as peer, asyncio.timeout(20):
        peer.send(request(1, STREAM))
        await until(lambda: served.drain.callbacks)
        served.drain.set()
        code, _ = await status(peer, 1)
        [info] = _details(peer)
        assert (code, info["reason"], info.get("metadata")) == ("13", "UNANSWERED", None)


async def test_a_subscription_that_a_drain_ends_before_its_task_is_taken_can_be_made_again() -> None:
    operations, _ = streaming([(1, FIRST)], stays_open=True)
    async with serving(operations=operations) as served, raw_peer(served.port, window=0) as peer, asyncio.timeout(20):
        peer.send(headers(1, SUBSCRIBE) + message(1, ASKED))
        assert await peer.next(HEADERS)
        served.drain.set()
        await until(lambda: not served.drain.callbacks)
        peer.window(1, 2**16)
        code, text = await status(peer, 1)
        assert (code, text) == ("14", "The gateway is shutting down; subscribe again with last-event-id.")


def _details(peer: Peer) -> list[dict[str, Any]]:
    """Those of the status that came last."""
    packed = peer.headers["grpc-status-details-bin"]
    return details_of([("grpc-status-details-bin", b64decode(packed + "==="))])


async def _unanswered(peer: Peer, stream: int) -> str:
    """The task that is named by a call which is carried out and gets no answer."""
    code, text = await status(peer, stream)
    [info] = _details(peer)
    assert (code, info["reason"]) == ("13", "UNANSWERED")
    assert text.startswith("The call was carried out, but its answer was not taken")
    found: str = info["metadata"]["taskId"]
    return found


async def test_a_call_that_waits_for_its_turn_ends_with_its_deadline_and_with_its_caller() -> None:
    operations = large(2**16)
    async with serving(operations=operations) as served, raw_peer(served.port, window=0) as peer, asyncio.timeout(20):
        peer.send(b"".join(map(asked, range(1, 33, 2))))
        await until(lambda: len(operations.calls) == 16)
        peer.send(asked(33, ("grpc-timeout", "100m")) + asked(35) + frame(RST_STREAM, 0, 35, CANCEL) + asked(37))
        assert (await status(peer, 33)) == ("4", "the deadline has passed")
        peer.send(frame(RST_STREAM, 0, 1, CANCEL))
        await until(lambda: len(operations.calls) == 17)
        await until(lambda: connection_of(served)._streams.keys() == {*range(3, 33, 2), 37})


async def test_a_stream_has_its_turn_until_its_first_events_are_taken() -> None:
    operations, _ = streaming([(1, FIRST)], stays_open=True)
    async with serving(operations=operations) as served, raw_peer(served.port) as peer, asyncio.timeout(20):
        for number in range(1, 41, 2):
            peer.send(headers(number, SUBSCRIBE) + message(number, ASKED))
            assert await peer.next(DATA)


# --- at the end


async def test_calls_that_outlast_the_grace_of_a_drain_end_with_a_status() -> None:
    operations = Waiting()
    async with serving(operations=operations) as served, asyncio.timeout(20):
        call = served.call("SendMessage", SEND)
        await operations.begun.wait()
        _, error = await asyncio.gather(served.server.retire(0), refused(call))
        operations.go.set()
    assert (error.code(), error.details()) == (grpc.StatusCode.UNAVAILABLE, ENDED[1])


async def test_calls_that_run_when_the_server_ends_end_with_a_status() -> None:
    operations = Waiting()
    async with asyncio.timeout(20):
        async with serving(operations=operations) as served:
            reading = raw_peer(served.port)
            peer = await reading.__aenter__()
            peer.send(request(1, SEND_MESSAGE))
            await operations.begun.wait()
        assert await status(peer, 1) == ENDED
        assert await peer.ended()
        await reading.__aexit__(None, None, None)


async def test_a_status_at_the_end_is_no_later_than_what_its_caller_does_not_take() -> None:
    async with serving(operations=large(2**17)) as served, raw_peer(served.port, window=0) as peer, asyncio.timeout(20):
        peer.send(asked(1))
        assert await peer.next(HEADERS)
        async with asyncio.TaskGroup() as group:
            group.create_task(served.server.retire(0))
            assert await peer.next(GOAWAY)
            assert await status(peer, 1) == ENDED


@pytest.mark.parametrize("ends", [2, 60])
async def test_what_was_said_is_not_thrown_away_by_what_its_peer_still_sends(ends: int) -> None:
    """A socket that is closed with something unread takes back what its peer has not read yet."""
    async with (
        serving(operations=large(2**19)) as served,
        raw_peer(served.port, window=2**20) as peer,
        asyncio.timeout(20),
    ):
        peer.window(0, 2**20)
        peer.send(asked(1))
        assert await peer.next(HEADERS)
        async with asyncio.TaskGroup() as group:
            group.create_task(served.server.retire(10))
            for number in range(3, 2 * ends, 2):
                peer.send(asked(number))
            assert await whole(peer, 1) > 2**19


# --- what stays


async def test_nothing_stays_of_calls_that_have_ended_however_they_did() -> None:
    """Not even until the next run of the garbage collector, which may be hours later for what is large."""
    operations = ScriptedOperations()
    async with serving(operations=operations) as served, asyncio.timeout(20):
        gc.collect()
        gc.disable()
        try:
            async with raw_peer(served.port, window=0) as peer:
                peer.send(b"".join(map(asked, range(1, 401, 2))))
                await until(lambda: len(operations.calls) == 16)
                found: list[weakref.ref[Any]] = [weakref.ref(each) for each in served.server._connections]
                found += [weakref.ref(each.context) for each in connection_of(served)._streams.values()]
                peer.send(b"".join(frame(RST_STREAM, 0, number, CANCEL) for number in range(1, 201, 2)))
                await until(lambda: len(connection_of(served)._streams) == 100)
            await until(lambda: not any(each() for each in found))
            assert served.server._held.size == 0
        finally:
            gc.enable()


@pytest.mark.parametrize("end", ["reset", "closed"])
async def test_nothing_stays_of_a_stream_that_is_not_read(end: str) -> None:
    operations, _ = streaming([(1, FIRST)], [(2, SECOND)], stays_open=True)
    async with serving(operations=operations) as served, asyncio.timeout(20):
        with left_behind() as found:
            async with raw_peer(served.port, window=0) as peer:
                peer.send(request(1, STREAM))
                assert await peer.next(HEADERS)
                if end == "reset":
                    peer.send(frame(RST_STREAM, 0, 1, CANCEL))
                    await until(lambda: not connection_of(served)._streams)
            await until(lambda: not served.server._connections)
            calls = [each for each in found() if isinstance(each, StreamedCall | Context | BaseException)]
        assert calls == []
