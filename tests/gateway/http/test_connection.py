"""Slow, incomplete and malformed requests: raw bytes to a real server, which keeps working."""

import asyncio
import logging
import weakref
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.http.host_guard import HostGuard
from gateway.http.reply import Reply
from gateway.http.server import HttpServer, listen
from tests.garbage import left_behind
from tests.gateway.http.peers import GET, Peer, all_is_read, echo, served, told
from tests.running import child_gateways
from tests.support.core import BOUND, soon

SHORT = 0.05
LONGER = 10 * SHORT
"""For what has to arrive in time."""


async def refused(peer: Peer) -> None:
    """Returns when the server accepts no more data on the connection."""
    async with asyncio.timeout(BOUND):
        with suppress(ConnectionError):
            while True:
                await peer.say(b"x")
                await asyncio.sleep(0)


async def test_a_head_that_does_not_arrive_is_refused() -> None:
    async with served(echo, head_seconds=SHORT) as connect:
        peer = await connect()
        await peer.say(b"GET / HTTP/1.1\r\nHost: local")
        assert told(await peer.rest()) == (408, "the head of the request did not arrive within 0.05 s")


async def test_single_bytes_do_not_extend_the_time_limit() -> None:
    async with served(echo, head_seconds=SHORT) as connect:
        peer = await connect()
        await peer.say(b"GET / HTTP/1.1\r\nX: ")

        async def drip() -> None:
            with suppress(ConnectionError):
                while True:
                    await peer.say(b"y")
                    await asyncio.sleep(0)

        async with asyncio.TaskGroup() as group:
            dripping = group.create_task(drip())
            # Data in flight when the connection ends may lose the answer.
            await peer.rest()
            dripping.cancel()


async def test_a_silent_connection_is_closed_without_an_answer() -> None:
    async with served(echo, head_seconds=SHORT) as connect:
        assert await (await connect()).rest() == b""


async def test_an_idle_connection_ends_after_the_gateways_time_and_not_after_uvicorns() -> None:
    async with served(echo, uvicorns=2 * BOUND, idle_seconds=SHORT) as connect:
        peer = await connect()
        await peer.say(GET)
        assert await peer.answer() == (200, 0)
        assert await peer.rest() == b""


async def test_empty_lines_between_requests_keep_no_connection() -> None:
    async with served(echo, head_seconds=LONGER) as connect:
        peer = await connect()
        await peer.say(GET)
        assert await peer.answer() == (200, 0)
        await peer.say(b"\r\n")
        assert await peer.rest() == b""


async def test_the_second_request_of_a_connection_has_no_more_time_than_the_first() -> None:
    async with served(echo, head_seconds=LONGER) as connect:
        peer = await connect()
        await peer.say(GET)
        assert await peer.answer() == (200, 0)
        await peer.say(b"GET / HT")
        assert told(await peer.rest())[0] == 408


async def test_a_body_that_the_application_has_given_up_ends_the_connection() -> None:
    async with served(Reply(b"1", 413), body_seconds=SHORT) as connect:
        peer = await connect()
        await peer.say(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\nx")
        assert await peer.answer() == (413, 1)
        assert await peer.rest() == b""


@pytest.mark.parametrize(
    ("framing", "rest"),
    [(b"Content-Length: 10\r\n\r\nx", b"y" * 9), (b"Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n", b"0\r\n\r\n")],
    ids=["with a length", "in chunks"],
)
async def test_a_connection_whose_body_came_after_its_answer_ends_without_a_next_request(
    framing: bytes, rest: bytes
) -> None:
    async with served(Reply(b"1", 404), idle_seconds=SHORT) as connect:
        peer = await connect()
        await peer.say(b"POST / HTTP/1.1\r\nHost: localhost\r\n" + framing)
        assert await peer.answer() == (404, 1)
        await peer.say(rest)
        assert await peer.rest() == b""


async def test_a_body_after_its_answer_is_followed_by_the_next_request() -> None:
    async with served(Reply(b"1", 404)) as connect:
        peer = await connect()
        for _ in range(2):
            await peer.say(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\nx")
            assert await peer.answer() == (404, 1)
            await peer.say(b"y" * 9)


LAST = [b"POST / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n", b"POST / HTTP/1.0\r\n"]
"""Requests whose answer is the last of their connection."""


@pytest.mark.parametrize("head", LAST, ids=["closing", "HTTP/1.0"])
async def test_a_client_that_sends_its_whole_body_first_gets_an_early_answer(head: bytes) -> None:
    async with served(Reply(b"1", 413)) as connect:
        peer = await connect()
        await peer.say(head + b"Content-Length: 8388608\r\n\r\n" + b"x" * 8 * 1024 * 1024)
        assert await peer.answer() == (413, 1)
        assert await peer.rest() == b""


@pytest.mark.parametrize("head", LAST, ids=["closing", "HTTP/1.0"])
async def test_data_after_a_last_answer_has_no_more_time_than_a_body(head: bytes) -> None:
    async with served(Reply(b"1", 413), body_seconds=SHORT) as connect:
        peer = await connect()
        await peer.say(head + b"Content-Length: 8388608\r\n\r\n")
        assert await peer.answer() == (413, 1)
        await refused(peer)


CHUNKED = b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
NO_CHUNK = b"ZZ\r\n"


@pytest.mark.parametrize("before", [b"", GET], ids=["alone", "behind another"])
async def test_a_malformed_body_ends_the_connection_at_once(before: bytes) -> None:
    async with served(Reply(b"1")) as connect:
        peer = await connect()
        await peer.say(before + CHUNKED + NO_CHUNK)
        await refused(peer)


@pytest.mark.parametrize(
    "begin", [b"GET / HTTP/1.1\r\nX : y\r\n", b"hello\r\n\r\n", b"\x16\x03\x01\x02\0\1", CHUNKED + NO_CHUNK]
)
async def test_a_client_that_still_sends_what_cannot_be_read_gets_the_answer(begin: bytes) -> None:
    async with served(echo) as connect:
        peer = await connect()
        await peer.say(begin + b"y" * 8 * 1024 * 1024)
        status, message = told(await peer.rest())
    assert status == 400
    assert message.startswith("this is no request of HTTP")


async def test_an_application_writes_nothing_behind_the_refusal_of_its_body() -> None:
    async def insists(scope: Scope, receive: Receive, send: Send) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        await Reply(b"1")(scope, receive, send)

    async with served(insists) as connect:
        peer = await connect()
        await peer.say(CHUNKED)
        await peer.say(NO_CHUNK)
        assert (await peer.rest()).count(b"HTTP/1.1 ") == 1


async def test_an_application_sees_the_disconnect_of_a_malformed_body_at_once() -> None:
    told_ = asyncio.Event()

    async def waits(scope: Scope, receive: Receive, send: Send) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        told_.set()

    async with served(waits) as connect:
        peer = await connect()
        await peer.say(CHUNKED)
        await peer.say(NO_CHUNK)
        await soon(told_.wait())


async def test_a_broken_answer_before_the_end_of_the_body_ends_the_connection_at_once() -> None:
    async def gives_up(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"x", "more_body": True})

    async with served(gives_up) as connect:
        peer = await connect()
        await peer.say(LAST[0] + b"Content-Length: 8388608\r\n\r\n")
        await refused(peer)


async def test_an_early_answer_to_a_gone_client_does_not_disturb_the_application() -> None:
    answered = asyncio.Event()

    async def early(scope: Scope, receive: Receive, send: Send) -> None:
        await Reply(b"1", 413)(scope, receive, send)
        answered.set()

    async with served(early) as connect:
        peer = await connect()
        await peer.say(LAST[0] + b"Content-Length: 10\r\n\r\nx")
        peer.leave()
        await soon(answered.wait())


async def test_a_request_after_a_last_answer_is_not_served() -> None:
    asked: list[str] = []

    async def once(scope: Scope, receive: Receive, send: Send) -> None:
        asked.append(scope["path"])
        await Reply(b"1", 413)(scope, receive, send)

    async with served(once) as connect:
        peer = await connect()
        await peer.say(LAST[0] + b"Content-Length: 1\r\n\r\n")
        assert await peer.answer() == (413, 1)
        await peer.say(b"x" + GET)
        assert await peer.rest() == b""
    assert asked == ["/"]


@pytest.mark.parametrize("leave", [Peer.leave, Peer.reset])
async def test_a_closed_connection_needs_no_garbage_collector(leave: Callable[[Peer], None]) -> None:
    served_: list[weakref.ref[object]] = []

    async def known(scope: Scope, receive: Receive, send: Send) -> None:
        served_.append(weakref.ref(receive.__self__))  # type: ignore[attr-defined]
        await Reply(b"1")(scope, receive, send)

    async with served(known) as connect:
        peer = await connect()
        await peer.say(GET)
        assert await peer.answer() == (200, 1)
        with left_behind():
            leave(peer)
            async with asyncio.timeout(BOUND):
                while served_[0]() is not None:  # noqa: ASYNC110
                    await asyncio.sleep(0)


async def test_an_answer_may_take_as_long_as_it_likes() -> None:
    asked, ready = asyncio.Event(), asyncio.Event()

    async def late(scope: Scope, receive: Receive, send: Send) -> None:
        asked.set()
        await ready.wait()
        await Reply(b"1")(scope, receive, send)

    async with served(late, head_seconds=LONGER, body_seconds=LONGER) as connect:
        peer = await connect()
        await peer.say(GET)
        await soon(asked.wait())
        for _ in range(2):
            # Two time limits for silent connections pass meanwhile.
            assert await (await connect()).rest() == b""
        ready.set()
        assert await peer.answer() == (200, 1)


async def test_an_endless_head_is_refused() -> None:
    async with served(echo) as connect:
        peer = await connect()
        await peer.say(b"GET / HTTP/1.1\r\nHost: localhost\r\nX: ")
        await all_is_read(connect)
        await peer.say(b"y" * 66_000)
        assert told(await peer.rest()) == (431, "the fields in the head of the request are too large")


async def test_a_client_that_still_sends_an_endless_head_gets_the_answer() -> None:
    async with served(echo) as connect:
        peer = await connect()
        await peer.say(b"GET / HTTP/1.1\r\nX: " + b"y" * 8 * 1024 * 1024)
        assert told(await peer.rest())[0] == 431


async def test_a_large_body_is_no_large_head() -> None:
    async with served(echo) as connect:
        peer = await connect()
        await peer.say(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 300000\r\n\r\n" + b"x" * 300_000)
        assert await peer.answer() == (200, 300_000)
        await peer.say(GET)
        assert await peer.answer() == (200, 0)


async def test_a_head_that_begins_after_a_large_body_is_no_large_head(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.http.connection._HEAD_BYTES", 1000)
    async with served(Reply(b"1", 404)) as connect:
        peer = await connect()
        await peer.say(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10000\r\n\r\n")
        assert await peer.answer() == (404, 1)
        await peer.say(b"x" * 10_000 + b"GET / HTTP/1.1\r\n")
        await all_is_read(connect)
        await peer.say(b"Host: localhost\r\n\r\n")
        assert await peer.answer() == (404, 1)


async def test_two_requests_in_one_piece_are_both_answered() -> None:
    async with served(echo) as connect:
        peer = await connect()
        await peer.say(GET + GET)
        assert [await peer.answer(), await peer.answer()] == [(200, 0), (200, 0)]


async def test_a_bad_request_after_a_good_one_is_answered_after_it() -> None:
    async with served(echo) as connect:
        peer = await connect()
        await peer.say(GET)
        assert await peer.answer() == (200, 0)
        await peer.say(b"hello\r\n\r\n")
        assert b" 400 " in (await peer.rest()).split(b"\r\n", 1)[0]


async def _begins_to_answer(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"9")]})
    await send({"type": "http.response.body", "body": b"begun", "more_body": True})
    while (await receive())["type"] != "http.disconnect":
        pass


@pytest.mark.parametrize("behind", [b"hello\r\n\r\n", CHUNKED + NO_CHUNK])
async def test_a_bad_request_writes_nothing_into_the_answer_of_an_earlier_one(behind: bytes) -> None:
    async with served(_begins_to_answer) as connect:
        peer = await connect()
        await peer.say(GET)
        await peer.line()
        await peer.say(behind)
        assert await peer.rest() == b"begun"


class Held:
    """Answers as `echo` does, but not before `go_on` is set."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.go_on = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.begun.set()
        await self.go_on.wait()
        await echo(scope, receive, send)


@pytest.mark.parametrize("behind", [b"hello\r\n\r\n", b"}", GET + CHUNKED + NO_CHUNK])
async def test_a_bad_request_is_answered_behind_the_earlier_ones(behind: bytes) -> None:
    held = Held()
    async with served(held) as connect:
        peer = await connect()
        await peer.say(GET + behind)
        await soon(held.begun.wait())
        held.go_on.set()
        assert [await peer.answer() for _ in range(1 + behind.count(GET))] == [(200, 0)] * (1 + behind.count(GET))
        assert told(await peer.rest())[0] == 400


async def test_a_bad_request_is_answered_behind_an_earlier_one_also_where_the_client_sends_nothing_more() -> None:
    held = Held()
    async with served(held) as connect:
        peer = await connect()
        await peer.say(GET + b"hello\r\n\r\n")
        peer.end()
        await soon(held.begun.wait())
        held.go_on.set()
        assert await peer.answer() == (200, 0)
        assert told(await peer.rest())[0] == 400


async def test_no_more_than_a_hundred_requests_wait_on_a_connection() -> None:
    held = Held()
    async with served(held) as connect:
        peer = await connect()
        await peer.say(GET * 5000)
        await soon(held.begun.wait())
        held.go_on.set()
        assert [await peer.answer() for _ in range(101)] == [(200, 0)] * 101
        assert told(await peer.rest()) == (429, "more than 100 requests wait on this connection for their answers")


async def test_many_requests_in_a_row_are_answered_where_few_of_them_wait() -> None:
    async with served(echo) as connect:
        peer = await connect()
        for _ in range(5):
            await peer.say(GET * 100)
            assert [await peer.answer() for _ in range(100)] == [(200, 0)] * 100


@pytest.mark.parametrize("piece", [b"x" * 5000, b"a: b\r\n" * 1000])
async def test_endless_fields_behind_a_body_are_refused(piece: bytes) -> None:
    async with served(echo) as connect:
        peer = await connect()
        await peer.say(CHUNKED + b"5\r\nhello\r\n0\r\na: " + piece)
        for _ in range(30):
            await all_is_read(connect)
            await peer.say(piece)
        assert told(await peer.rest()) == (431, "the fields behind the body of the request are too large")


async def test_a_body_of_many_small_chunks_is_no_large_field() -> None:
    async with served(echo) as connect:
        peer = await connect()
        await peer.say(CHUNKED)
        for _ in range(100):
            await peer.say(b"1\r\nx\r\n" * 200)
            await all_is_read(connect)
        await peer.say(b"0\r\n\r\n")
        assert await peer.answer() == (200, 20_000)


@pytest.mark.parametrize("leave", [Peer.leave, Peer.reset])
async def test_an_application_sees_the_disconnect_although_another_request_waits_behind_its_own(
    leave: Callable[[Peer], None],
) -> None:
    begun, gone = asyncio.Event(), asyncio.Event()

    async def waits(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        begun.set()
        while (await receive())["type"] != "http.disconnect":
            pass
        gone.set()

    async with served(waits, half_closed_seconds=SHORT) as connect:
        peer = await connect()
        await peer.say(GET + GET)
        await soon(begun.wait())
        leave(peer)
        await soon(gone.wait())


async def test_a_body_that_cannot_be_read_is_a_bad_request() -> None:
    async with served(echo) as connect:
        peer = await connect()
        await peer.say(CHUNKED + NO_CHUNK)
        assert b" 400 " in (await peer.rest()).split(b"\r\n", 1)[0]


async def test_a_client_that_expects_100_continue_gets_it() -> None:
    async with served(echo) as connect:
        peer = await connect()
        await peer.say(b"POST / HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n")
        assert await peer.line() == b"HTTP/1.1 100 Continue\r\n\r\n"
        await peer.say(b"abc")
        assert await peer.answer() == (200, 3)


async def test_an_answer_is_whole_before_its_connection_ends() -> None:
    async with served(echo) as connect:
        peer = await connect()
        await peer.say(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert (await peer.rest()).endswith(b"\r\n\r\n0")


@pytest.mark.parametrize(
    "head",
    [
        b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX : y\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\n X: folded\r\n\r\n",
        b"hello\r\n\r\n",
    ],
)
async def test_an_ambiguous_request_is_refused(head: bytes) -> None:
    async with served(HostGuard(Reply(b"1"), None)) as connect:
        peer = await connect()
        await peer.say(head)
        assert b" 400 " in (await peer.rest()).split(b"\r\n", 1)[0]


async def test_a_started_gateway_refuses_an_endless_head(tmp_path: Path) -> None:
    async with child_gateways('a: {type: python, ref: "gateway.cli.demo.agent:reply"}', tmp_path) as start:
        child = await start()
        reader, writer = await asyncio.open_connection("127.0.0.1", int(child.url.rsplit(":", 1)[1]))
        peer = Peer(reader, writer)
        await peer.say(b"GET / HTTP/1.1\r\nX: " + b"y" * 1024 * 1024)
        assert told(await peer.rest())[0] == 431
        peer.leave()


# --- those who take nothing ---

_LARGE = 32 * 1024 * 1024
_STOP = _LARGE // 16


async def _says_a_lot(scope: Scope, receive: Receive, send: Send) -> None:
    await Reply(b"x" * _LARGE)(scope, receive, send)


async def _streams_a_lot_and_gives_up(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"x" * _LARGE, "more_body": True})


@pytest.mark.parametrize("app", [_says_a_lot, _streams_a_lot_and_gives_up])
@pytest.mark.parametrize("request_", [GET, GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")])
async def test_a_client_that_reads_nothing_loses_the_connection(app: ASGIApp, request_: bytes) -> None:
    async with served(app, blocked_seconds=SHORT) as connect:
        peer = await connect()
        peer.stop_reading()
        await peer.say(request_)
        await peer.dropped()


async def test_a_slow_reader_gets_the_whole_answer() -> None:
    async with served(_says_a_lot, blocked_seconds=2 * LONGER) as connect:
        peer = await connect()
        await peer.say(GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        taken = 0
        async with asyncio.timeout(BOUND):
            while piece := await peer.take(_LARGE):
                if taken // _STOP != (taken := taken + len(piece)) // _STOP:
                    await asyncio.sleep(3 * SHORT)
        assert taken > _LARGE


# --- a retiring process


@asynccontextmanager
async def _serving(app: ASGIApp) -> AsyncIterator[tuple[HttpServer, Peer]]:
    with listen("127.0.0.1", 0) as bound:
        server = HttpServer(app, bound)
        async with asyncio.timeout(BOUND), asyncio.TaskGroup() as group:
            group.create_task(server.serve())
            peer = Peer(*await asyncio.open_connection(*bound.getsockname()))
            try:
                yield server, peer
            finally:
                peer.leave()
                server.stop()


async def test_the_answer_of_a_request_in_flight_is_the_last_of_a_retiring_process() -> None:
    asked, ready = asyncio.Event(), asyncio.Event()

    async def late(scope: Scope, receive: Receive, send: Send) -> None:
        asked.set()
        await ready.wait()
        await Reply(b"1")(scope, receive, send)

    async with _serving(late) as (server, peer):
        await peer.say(GET)
        await soon(asked.wait())
        server.retire()
        ready.set()
        assert b"connection: close" in (await peer.rest()).lower()


async def test_the_answer_of_a_later_request_is_the_last_of_a_retiring_process() -> None:
    async with _serving(echo) as (server, peer):
        await peer.say(GET)
        assert await peer.answer() == (200, 0)
        server.retire()
        await peer.say(GET)
        assert b"connection: close" in (await peer.rest()).lower()


async def test_an_early_answer_keeps_the_connection_of_a_retiring_process_until_the_next_request() -> None:
    """Closing a connection with unread data would lose the answer."""
    async with _serving(Reply(b"1", 413)) as (server, peer):
        server.retire()
        for _ in range(2):
            await peer.say(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\nx")
            assert await peer.answer() == (413, 1)
            await peer.say(b"y" * 9)
        await peer.say(GET)
        assert b"connection: close" in (await peer.rest()).lower()


async def test_a_retiring_process_does_not_wait_for_data_after_a_last_answer() -> None:
    async with _serving(Reply(b"1", 413)) as (server, peer):
        server.retire()
        await peer.say(LAST[0] + b"Content-Length: 8388608\r\n\r\n")
        assert await peer.answer() == (413, 1)
        await refused(peer)


async def test_an_ending_process_drops_a_peer_that_reads_nothing_and_logs_no_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    begun = asyncio.Event()

    async def goes_on(scope: Scope, receive: Receive, send: Send) -> None:
        await _streams_a_lot_and_gives_up(scope, receive, send)
        begun.set()
        await send({"type": "http.response.body", "body": b"x"})

    async with _serving(goes_on) as (server, peer):
        peer.stop_reading()
        await peer.say(GET)
        await soon(begun.wait())
        server.stop()
        await peer.dropped()
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []
