"""The connections of HTTP/2: what peers may do that libraries do not, or only some of them."""

import asyncio
import struct
from collections.abc import Callable
from typing import Any

import pytest
from structlog.testing import capture_logs

from gateway.config.gateway import LimitsConfig
from gateway.grpc import connection, frames
from gateway.http.auth import NoAuthentication
from tests.gateway.grpc.calling import path, serving
from tests.gateway.grpc.raw import (
    ACK,
    CANCEL,
    DATA,
    END_HEADERS,
    END_STREAM,
    ENHANCE_YOUR_CALM,
    GOAWAY,
    HEADERS,
    NO_ERROR,
    PING,
    PREFACE,
    PROTOCOL_ERROR,
    REFUSED_STREAM,
    RST_STREAM,
    WINDOW_UPDATE,
    Frame,
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
from tests.support.core import until

SEND_MESSAGE, STREAM = path("SendMessage"), path("SendStreamingMessage")

NO_GRPC = ("application/json", "application/grpcfoo", "application/grpc-web", "application/grpc+json", "")


async def ends(peer: Peer, stream: int) -> bool:
    """Whether the stream comes to its end."""
    while found := await peer.next(DATA, HEADERS, RST_STREAM):
        if found.stream == stream and (found.kind == RST_STREAM or found.flags & END_STREAM):
            return True
    return False


# --- messages


async def test_messages_that_are_there_at_once_are_one_frame() -> None:
    operations, _ = streaming([(1, FIRST), (2, SECOND), (3, SECOND)])
    async with serving(operations=operations) as served, raw_peer(served.port) as peer, asyncio.timeout(20):
        peer.send(request(1, STREAM))
        found = await peer.next(DATA)
        assert found is not None
        assert len(_messages(found.payload)) == 3
        assert await ends(peer, 1)


def _messages(data: bytes) -> list[bytes]:
    found = []
    while data:
        length = int.from_bytes(data[1:5])
        found.append(data[5 : 5 + length])
        data = data[5 + length :]
    return found


async def test_a_window_of_a_few_bytes_brings_all_in_order() -> None:
    operations, _ = streaming([(1, FIRST), (2, SECOND)], [(3, SECOND)])
    async with serving(operations=operations) as served, asyncio.timeout(20):
        async with raw_peer(served.port) as peer:
            peer.send(request(1, STREAM))
            whole = b""
            while (found := await peer.next(DATA, HEADERS)) and not found.flags & END_STREAM:
                whole += found.payload if found.kind == DATA else b""
        async with raw_peer(served.port, window=0) as peer:
            peer.send(request(1, STREAM))
            pieces = b""
            while len(pieces) < len(whole):
                peer.window(1, 7)
                found = await peer.next(DATA)
                assert found is not None
                assert len(found.payload) < len(whole)
                pieces += found.payload
            assert await ends(peer, 1)
    assert pieces == whole


async def test_a_call_in_single_bytes_is_answered() -> None:
    async with serving() as served, raw_peer(served.port) as peer, asyncio.timeout(20):
        for byte in request(1, SEND_MESSAGE):
            peer.send(bytes((byte,)))
            await asyncio.sleep(0)
        assert await peer.next(DATA)
        assert await ends(peer, 1)


async def test_a_message_that_is_cut_off_is_refused() -> None:
    async with serving() as served, raw_peer(served.port) as peer, asyncio.timeout(20):
        peer.send(headers(1, SEND_MESSAGE) + frame(DATA, END_STREAM, 1, struct.pack(">BI", 0, 20) + b"cut"))
        found = await peer.next(HEADERS)
    assert found is not None
    said = peer.headers
    assert (said["grpc-status"], said["grpc-message"]) == ("3", "the message is cut off")


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        *((headers(1, SEND_MESSAGE, kind=kind), "415") for kind in NO_GRPC),
        (headers(1, SEND_MESSAGE, method="GET"), "405"),
    ],
    ids=[*NO_GRPC, "method"],
)
async def test_a_request_that_is_no_call_has_a_status_of_http(sent: bytes, status: str) -> None:
    async with serving() as served, raw_peer(served.port) as peer, asyncio.timeout(20):
        peer.send(sent)
        found = await peer.next(HEADERS)
    assert found is not None
    assert peer.headers[":status"] == status
    assert found.flags & END_STREAM


@pytest.mark.parametrize(
    "kind", ["application/grpc", "application/grpc+proto", "application/grpc;charset=utf-8", "Application/GRPC"]
)
async def test_a_call_says_that_it_is_one(kind: str) -> None:
    async with serving() as served, raw_peer(served.port) as peer, asyncio.timeout(20):
        peer.send(headers(1, SEND_MESSAGE, kind=kind) + message(1))
        assert (await status(peer, 1))[0] == "0"


# --- ends


async def test_a_call_that_is_refused_before_its_message_has_come_is_ended_for_both() -> None:
    async with serving() as served, raw_peer(served.port) as peer, asyncio.timeout(20):
        peer.send(headers(1, "/none/of/these"))
        assert await peer.next(RST_STREAM) == Frame(RST_STREAM, 0, 1, NO_ERROR)
        peer.send(message(1) + request(3, SEND_MESSAGE))
        assert await ends(peer, 3)


@pytest.mark.parametrize(
    "late",
    [
        frame(RST_STREAM, 0, 1, NO_ERROR),
        frame(WINDOW_UPDATE, 0, 1, (5).to_bytes(4)),
    ],
    ids=["reset", "window"],
)
async def test_what_comes_for_a_call_that_has_ended_leaves_the_others(late: bytes) -> None:
    async with serving() as served, raw_peer(served.port) as peer, asyncio.timeout(20):
        peer.send(request(1, SEND_MESSAGE))
        assert await ends(peer, 1)
        peer.send(late + request(3, SEND_MESSAGE) + late)
        assert await ends(peer, 3)
        peer.send(late + request(5, SEND_MESSAGE))
        assert await ends(peer, 5)


async def test_a_peer_that_opens_no_more_calls_gets_the_answers_of_those_that_it_has() -> None:
    operations, stream = streaming([(1, FIRST)], stays_open=True)
    async with serving(operations=operations) as served, raw_peer(served.port) as peer, asyncio.timeout(20):
        peer.send(request(1, STREAM))
        assert await peer.next(DATA)
        peer.send(frame(GOAWAY, 0, 0, bytes(8)) + frame(PING, 0, 0, b"still on"))
        assert await peer.next(PING) == Frame(PING, ACK, 0, b"still on")
        assert not stream.closed.is_set()
        served.drain.set()
        assert await ends(peer, 1)
        assert await peer.ended()


async def test_a_server_that_retires_says_so_and_refuses_what_is_new() -> None:
    operations, _ = streaming([(1, FIRST)], stays_open=True)
    async with serving(operations=operations) as served, raw_peer(served.port) as peer, asyncio.timeout(20):
        peer.send(request(1, STREAM))
        assert await peer.next(DATA)
        async with asyncio.TaskGroup() as group:
            group.create_task(served.server.retire(10))
            found = await peer.next(GOAWAY)
            assert found == Frame(GOAWAY, 0, 0, (1).to_bytes(4) + NO_ERROR)
            peer.send(request(3, STREAM))
            assert await peer.next(RST_STREAM) == Frame(RST_STREAM, 0, 3, REFUSED_STREAM)
            served.drain.set()
            assert await ends(peer, 1)
            assert await peer.ended()


async def test_the_status_of_a_call_comes_behind_the_message_that_its_caller_has_not_taken_yet() -> None:
    operations, stream = streaming([(1, FIRST)], stays_open=True)
    async with serving(operations=operations) as served, raw_peer(served.port, window=0) as peer, asyncio.timeout(20):
        peer.send(request(1, STREAM))
        assert await peer.next(HEADERS)
        served.drain.set()
        await stream.closed.wait()
        peer.window(1, 2**16)
        found = [await peer.next(DATA, HEADERS, RST_STREAM) for _ in range(2)]
    assert [each and each.kind for each in found] == [DATA, HEADERS]


async def test_a_status_that_its_caller_does_not_take_is_not_waited_for() -> None:
    limits = LimitsConfig.model_construct(stream_blocked=0.2)
    operations, _ = streaming([(1, FIRST)], stays_open=True)
    async with (
        serving(operations=operations, limits=limits) as served,
        raw_peer(served.port, window=0) as peer,
        asyncio.timeout(20),
    ):
        peer.send(request(1, STREAM))
        assert await peer.next(HEADERS)
        served.drain.set()
        assert (await status(peer, 1))[0] == "13"


@pytest.mark.parametrize("said", ["1x", "S", "-1S", "123456789S", ""], ids=repr)
async def test_a_call_with_a_deadline_that_cannot_be_read_is_refused(said: str) -> None:
    async with serving() as served, raw_peer(served.port) as peer, asyncio.timeout(20):
        peer.send(request(1, SEND_MESSAGE, ("grpc-timeout", said)) + request(3, SEND_MESSAGE))
        code, text = await status(peer, 1)
        assert await ends(peer, 3)
    assert (code, text.partition(" is ")[0]) == ("3", "the header 'grpc-timeout'")


async def test_a_deadline_ends_a_call_whose_caller_takes_nothing() -> None:
    operations, stream = streaming([(1, FIRST)], stays_open=True)
    async with serving(operations=operations) as served, raw_peer(served.port, window=0) as peer, asyncio.timeout(20):
        peer.send(request(1, STREAM, ("grpc-timeout", "100m")))
        assert (await status(peer, 1)) == ("4", "the deadline has passed")
        await stream.closed.wait()


# --- peers that ask for much, or for nothing


@pytest.mark.parametrize(
    "flood",
    [
        frame(PING, 0, 0, bytes(8)),
        frame(WINDOW_UPDATE, 0, 0, (1).to_bytes(4)),
        frame(4, 0, 0),
    ],
    ids=["pings", "windows", "settings"],
)
async def test_a_flood_ends_its_connection_and_no_other(flood: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "_PER_SECOND", 0.0)
    async with serving() as served, raw_peer(served.port) as peer, asyncio.timeout(20):
        peer.send(flood * 6000)
        found = await peer.next(GOAWAY)
        assert found is not None
        assert int.from_bytes(found.payload[4:]) == ENHANCE_YOUR_CALM
        assert await peer.ended()
        await served.call("GetTask", {"id": "task-1"})


@pytest.mark.parametrize(
    "reset",
    [
        frame(RST_STREAM, 0, 0, CANCEL),
        frame(WINDOW_UPDATE, 0, 0, (2**31 - 1).to_bytes(4)),
        message(0) + frame(DATA, 0, 0, bytes(300)),
    ],
    ids=["reset", "window", "data"],
)
async def test_calls_without_end_that_are_reset_at_once_end_their_connection(
    reset: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the peer, or by what it makes the gateway reset them for."""
    monkeypatch.setattr(frames, "_BURST", 600)
    monkeypatch.setattr(frames, "_PER_SECOND", 0.0)
    with capture_logs() as logs:
        async with serving(operations=Waiting()) as served, raw_peer(served.port) as peer, asyncio.timeout(20):
            for begin in range(1, 30_000, 100):
                for stream in range(begin, begin + 100, 2):
                    peer.send(headers(stream, SEND_MESSAGE) + _on(stream, reset))
                # What calls earn counts when they are taken, so they come in parts.
                peer.send(frame(PING, 0, 0, bytes(8)))
                if await peer.next(PING) is None:
                    break
            assert await peer.ended()
            await served.call("GetTask", {"id": "task-1"})
    assert _ends(logs) == [("127.0.0.1", "flood of resets")]


def _on(stream: int, sent: bytes) -> bytes:
    """The same frames on this stream."""
    found = b""
    while sent:
        size = 9 + int.from_bytes(sent[:3])
        found += sent[:5] + stream.to_bytes(4) + sent[9:size]
        sent = sent[size:]
    return found


def _ends(logs: Any) -> list[tuple[str, str]]:
    """Whose connections the log says were ended, and why."""
    return [(line["peer"], line["reason"]) for line in logs if line["event"] == "connection.ended"]


@pytest.mark.parametrize(
    "call",
    [
        lambda stream: headers(stream, "/no.such/Method"),
        lambda stream: request(stream, "/no.such/Method"),
        lambda stream: headers(stream, SEND_MESSAGE, ("X", "upper case")) + frame(RST_STREAM, 0, stream, CANCEL),
        lambda stream: headers(stream, SEND_MESSAGE, kind="text/plain"),
    ],
    ids=["method", "method with a message", "name", "type"],
)
async def test_calls_that_end_without_their_message_are_a_flood(
    call: Callable[[int], bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frames, "_BURST", 600)
    monkeypatch.setattr(frames, "_PER_SECOND", 0.0)
    with capture_logs() as logs:
        async with serving() as served, raw_peer(served.port) as peer, asyncio.timeout(20):
            peer.send(b"".join(call(stream) for stream in range(1, 1401, 2)))
            found = await peer.next(GOAWAY)
            assert found is not None
            assert int.from_bytes(found.payload[4:]) == ENHANCE_YOUR_CALM
            assert await peer.ended()
            await served.call("GetTask", {"id": "task-1"})
    assert _ends(logs) == [("127.0.0.1", "flood of resets")]


async def test_what_a_peer_sends_at_once_is_served_in_turns_with_others() -> None:
    async with (
        serving() as served,
        raw_peer(served.port) as peer,
        raw_peer(served.port) as other,
        asyncio.timeout(20),
    ):
        for each in (peer, other):
            each.send(frame(PING, 0, 0, bytes(8)))
            assert await each.next(PING)
        [greedy, _] = served.server._connections
        if greedy._transport.get_extra_info("peername") != peer.name:
            [_, greedy] = served.server._connections
        greedy.data_received(b"".join(headers(number, "/no.such/Method") for number in range(1, 2001, 2)))
        other.send(request(1, SEND_MESSAGE))
        assert await ends(other, 1)
        assert greedy._frames.rest
        answered = [number for number in range(1, 2001, 2) if await ends(peer, number)]
        peer.send(request(2001, SEND_MESSAGE))
        assert await ends(peer, 2001)
    assert len(answered) == 1000


async def test_what_waits_to_be_read_comes_in_order_and_is_answered_once() -> None:
    async with serving() as served, raw_peer(served.port) as peer, asyncio.timeout(30):
        peer.send(b"".join(request(number, SEND_MESSAGE) for number in range(1, 801, 2)))
        found: list[int] = []
        while len(found) < 400:
            each = await peer.next(HEADERS)
            assert each is not None
            if each.flags & END_STREAM:
                found.append(each.stream)
        peer.send(frame(PING, 0, 0, bytes(8)))
        assert await peer.next(HEADERS, RST_STREAM, PING) == Frame(PING, ACK, 0, bytes(8))
    assert sorted(found) == list(range(1, 801, 2))
    assert len(served.operations.calls) == 400


async def test_the_end_of_a_connection_behind_what_waits_to_be_read_ends_its_calls() -> None:
    async with serving(operations=Waiting()) as served, asyncio.timeout(20):
        async with raw_peer(served.port) as peer:
            peer.send(b"".join(request(number, SEND_MESSAGE) for number in range(1, 801, 2)))
        await until(lambda: not served.server._connections)


async def test_an_empty_window_ends_its_call_and_no_other() -> None:
    operations, stream = streaming([(1, FIRST)], stays_open=True)
    async with serving(operations=operations) as served, raw_peer(served.port) as peer, asyncio.timeout(20):
        peer.send(request(1, STREAM))
        assert await peer.next(DATA)
        peer.send(request(3, SEND_MESSAGE) + frame(WINDOW_UPDATE, 0, 1, bytes(4)) + request(5, SEND_MESSAGE))
        assert await peer.next(RST_STREAM) == Frame(RST_STREAM, 0, 1, PROTOCOL_ERROR)
        await stream.closed.wait()
        assert await ends(peer, 5)
        peer.send(frame(WINDOW_UPDATE, 0, 0, bytes(4)))
        found = await peer.next(GOAWAY)
        assert found is not None
        assert found.payload[4:8] == PROTOCOL_ERROR


async def test_a_thousand_cancelled_calls_leave_their_connection() -> None:
    operations, stream = streaming([(1, FIRST)], stays_open=True)
    async with serving(operations=operations) as served, raw_peer(served.port) as peer, asyncio.timeout(20):
        peer.send(request(1, STREAM))
        assert await peer.next(DATA)
        for number in range(3, 2003, 2):
            peer.send(request(number, SEND_MESSAGE) + frame(RST_STREAM, 0, number, CANCEL))
        peer.send(request(2003, SEND_MESSAGE))
        assert await ends(peer, 2003)
        assert not stream.closed.is_set()


@pytest.mark.parametrize("where", [SEND_MESSAGE, "/no.such/Method"])
async def test_what_was_sent_of_calls_that_are_cancelled_at_once_may_be_sent_again(where: str) -> None:
    """More in all than the window of the connection."""
    part, number, room = bytes(16000), -1, 65535
    async with serving() as served, raw_peer(served.port) as peer, asyncio.timeout(20):
        for _ in range(300):
            while room < len(part):
                found = await peer.next(WINDOW_UPDATE)
                assert found is not None
                room += int.from_bytes(found.payload) if found.stream == 0 else 0
            number += 2
            room -= len(part)
            peer.send(headers(number, where) + frame(DATA, 0, number, part) + frame(RST_STREAM, 0, number, CANCEL))
        peer.send(request(number + 2, SEND_MESSAGE))
        assert await ends(peer, number + 2)


async def test_what_ends_a_connection_is_said_behind_all_that_its_peer_still_sends() -> None:
    """Closing at once would have the system throw away what the peer has not read yet."""
    async with serving() as served, raw_peer(served.port) as peer, asyncio.timeout(20):
        peer.send(frame(PING, 0, 0, bytes(8)) * 200_000)
        assert await peer.next(GOAWAY)


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n" + bytes(9), "no HTTP/2"),
        (PREFACE + (2**24 - 1).to_bytes(3) + bytes(6), "a frame that is too large"),
        (PREFACE + frame(HEADERS, END_HEADERS, 1, b"\xff\xff\xff\xff"), "protocol: ProtocolError"),
    ],
    ids=["http", "size", "hpack"],
)
async def test_a_connection_that_cannot_be_read_is_ended_with_a_line_in_the_log(sent: bytes, reason: str) -> None:
    with capture_logs() as logs:
        async with serving() as served, asyncio.timeout(20):
            reading, writing = await asyncio.open_connection("127.0.0.1", served.port)
            writing.write(sent)
            await reading.read()
            writing.close()
    assert _ends(logs) == [("127.0.0.1", reason)]


async def test_a_peer_that_does_not_read_its_socket_loses_its_connection() -> None:
    limits = LimitsConfig.model_construct(stream_blocked=0.3)
    big = b'{"artifactUpdate":{"taskId":"t","artifact":{"artifactId":"a","parts":[{"text":"%b"}]}}}' % (b"x" * 2**20)
    operations, stream = streaming([(number, big) for number in range(1, 33)], stays_open=True)
    with capture_logs() as logs:
        async with (
            serving(operations=operations, limits=limits) as served,
            raw_peer(served.port, window=2**31 - 1) as peer,
            asyncio.timeout(20),
        ):
            peer.window(0, 2**30)
            peer.send(request(1, STREAM))
            await stream.closed.wait()
            await until(lambda: not served.server._connections)
    assert _ends(logs) == [("127.0.0.1", "the socket is not read")]


@pytest.mark.parametrize("said", [b"", PREFACE[:10]], ids=["nothing", "half"])
async def test_a_peer_that_does_not_say_what_it_speaks_is_not_waited_for(
    said: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "BEGIN_SECONDS", 0.1)
    with capture_logs() as logs:
        async with serving() as served, asyncio.timeout(20):
            reading, writing = await asyncio.open_connection("127.0.0.1", served.port)
            writing.write(said)
            while await _more(reading):
                pass
            writing.close()
    assert _ends(logs) == [("127.0.0.1", "nothing was said")]


async def _more(reading: asyncio.StreamReader) -> bytes:
    try:
        return await reading.read(2**16)
    except ConnectionError:
        return b""


async def test_a_silent_peer_is_asked_and_then_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "_ANSWER_SECONDS", 0.1)
    with capture_logs() as logs:
        async with serving(keepalive=0.1) as served, raw_peer(served.port) as peer, asyncio.timeout(20):
            assert await peer.next(PING)
            assert await peer.ended()
    assert _ends(logs) == [("127.0.0.1", "a ping is not answered")]


async def test_a_peer_that_answers_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "_ANSWER_SECONDS", 5)
    async with serving(keepalive=0.05) as served, raw_peer(served.port) as peer, asyncio.timeout(20):
        for _ in range(3):
            found = await peer.next(PING)
            assert found is not None
            peer.send(frame(PING, ACK, 0, found.payload))


async def test_a_connection_without_calls_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "_IDLE_SECONDS", 0)
    async with serving(keepalive=0.05) as served, raw_peer(served.port) as peer, asyncio.timeout(20):
        assert await peer.next(GOAWAY)
        assert await peer.ended()


async def test_a_message_in_pieces_larger_than_the_window_arrives() -> None:
    async with serving(limits=LimitsConfig.model_construct(request_body=2**22)) as served, asyncio.timeout(30):
        text = "x" * (3 * 2**20)
        await served.call("SendMessage", {"message": {**SEND["message"], "parts": [{"text": text}]}})
    [(_, _, sent)] = served.operations.calls
    assert sent.message.parts[0].text == text  # type: ignore[attr-defined]  # a SendMessageRequest


class Undecided(NoAuthentication):
    """Never says who a caller is."""

    async def authenticate(self, headers: Any, peer: str) -> Any:
        await asyncio.Event().wait()


async def test_a_caller_that_is_not_admitted_sends_no_more_than_a_window() -> None:
    async with serving(auth=Undecided()) as served, raw_peer(served.port) as peer, asyncio.timeout(20):
        peer.send(headers(1, SEND_MESSAGE) + frame(DATA, 0, 1, bytes(16384)) * 20)
        found = await peer.next(RST_STREAM, GOAWAY)
        assert found is not None


async def test_a_connection_that_ends_ends_its_calls() -> None:
    operations, stream = streaming([(1, FIRST)], stays_open=True)
    async with serving(operations=operations) as served, asyncio.timeout(20):
        async with raw_peer(served.port) as peer:
            peer.send(request(1, STREAM))
            assert await peer.next(DATA)
        await stream.closed.wait()
        await until(lambda: not served.server._connections)


async def test_a_call_more_than_there_may_be_is_refused_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "_CALLS", 1)
    operations, stream = streaming([(1, FIRST)], stays_open=True)
    async with serving(operations=operations) as served, raw_peer(served.port) as peer, asyncio.timeout(20):
        peer.send(request(1, STREAM))
        assert await peer.next(DATA)
        peer.send(request(3, STREAM))
        assert await peer.next(RST_STREAM, GOAWAY) == Frame(RST_STREAM, 0, 3, REFUSED_STREAM)
        assert not stream.closed.is_set()
        peer.send(frame(RST_STREAM, 0, 1, CANCEL) + request(5, STREAM))
        found = await peer.next(DATA)
        assert found is not None
        assert found.stream == 5
