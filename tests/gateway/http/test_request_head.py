"""Heads that uvicorn takes as they are: raw bytes to a real server. RFC 9110, 2.5 and 10.1.1; RFC 9112, 3.2 and 6.1."""

import asyncio
from typing import Any

import msgspec
import pytest
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.http.host_guard import HostGuard
from gateway.http.reply import Reply
from gateway.http.request_head import HeadRefused, read_target
from tests.gateway.http.peers import GET, Peer, served, told

HOSTS = frozenset({"localhost", "127.0.0.1"})
H2C = b"Connection: Upgrade\r\nUpgrade: h2c\r\n"


async def tell(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers with what was asked, and under which host."""
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message["body"], message["more_body"]
    hosts = [value.decode() for name, value in scope["headers"] if name == b"host"]
    target = [scope["path"], scope["raw_path"].decode(), scope["query_string"].decode()]
    await Reply(msgspec.json.encode([*target, hosts, body.decode()]))(scope, receive, send)


async def ask(data: bytes, app: ASGIApp = tell, hosts: frozenset[str] | None = HOSTS) -> tuple[int, Any]:
    async with served(HostGuard(app, hosts)) as connect:
        peer = await connect()
        await peer.say(data)
        return await peer.answer()


async def refused(data: bytes) -> tuple[int, str]:
    """Status and text of the only answer, behind which the connection ends; nothing else of the data is a request."""
    async with served(HostGuard(tell, HOSTS)) as connect:
        peer = await connect()
        await peer.say(data + GET)
        return told(await peer.rest())


def post(target: bytes, *lines: bytes, version: bytes = b"HTTP/1.1", host: bytes = b"Host: localhost\r\n") -> bytes:
    head = b"POST %b %b\r\n%b" % (target, version, host) + b"".join(line + b"\r\n" for line in lines)
    return head + b"Content-Length: 1\r\n\r\nx"


# --- the target


@pytest.mark.parametrize("more", [[], [b"Connection: Upgrade", b"Upgrade: h2c"]], ids=["", "upgrade"])
@pytest.mark.parametrize("host", [b"localhost", b"evil.example", b"localhost:1"])
@pytest.mark.parametrize(
    ("target", "path", "raw_path", "query", "authority"),
    [
        (b"http://localhost/a2a/b", "/a2a/b", "/a2a/b", "", "localhost"),
        (b"http://localhost:8080/a2a/b?c=d&e", "/a2a/b", "/a2a/b", "c=d&e", "localhost:8080"),
        (b"HTTP://LOCALHOST/a%2fb", "/a/b", "/a%2fb", "", "LOCALHOST"),
        (b"https://127.0.0.1/a2a", "/a2a", "/a2a", "", "127.0.0.1"),
        (b"http://localhost", "/", "/", "", "localhost"),
        (b"http://localhost?a=b", "/", "/", "a=b", "localhost"),
        (b"http://localhost/?u=http://evil.example/@x", "/", "/", "u=http://evil.example/@x", "localhost"),
    ],
)
async def test_a_whole_address_as_the_target_is_served_as_its_path_and_takes_the_place_of_host(
    target: bytes, path: str, raw_path: str, query: str, authority: str, host: bytes, more: list[bytes]
) -> None:
    asked = post(target, *more, host=b"Host: %b\r\n" % host)
    assert await ask(asked) == (200, [path, raw_path, query, [authority], "x"])


@pytest.mark.parametrize(
    "target",
    [
        b"http://evil.example/a2a",
        b"http://evil.example:8080",
        b"http://localhost.evil.example/",
        b"https://evil.example/",
    ],
)
async def test_the_name_in_the_target_is_checked_and_not_that_in_host(target: bytes) -> None:
    status, answer = await ask(post(target))
    assert (status, answer["error"]["code"]) == (421, 421)


@pytest.mark.parametrize("host", [b"", b"Host: localhost\r\nHost: localhost\r\n"], ids=["none", "two"])
async def test_a_whole_address_as_the_target_needs_exactly_one_host_besides(host: bytes) -> None:
    assert (await ask(post(b"http://localhost/", host=host)))[0] == 400


@pytest.mark.parametrize(
    "target",
    [
        b"http:///a2a",
        b"http://me@localhost/a2a",
        b"http://me:secret@localhost/a2a",
        b"ftp://localhost/a2a",
        b"localhost/a2a",
        b"a2a",
    ],
)
async def test_any_other_target_is_refused_and_the_connection_ends(target: bytes) -> None:
    async with served(HostGuard(tell, HOSTS)) as connect:
        peer = await connect()
        await peer.say(post(target) + GET)
        data = await peer.rest()
    assert b" 400 " in data.split(b"\r\n", 1)[0]
    assert data.count(b"HTTP/1.1 ") == 1
    assert b"secret" not in data


async def test_a_tunnel_to_a_whole_address_is_no_request() -> None:
    async with served(HostGuard(tell, HOSTS)) as connect:
        peer = await connect()
        await peer.say(b"CONNECT localhost:80 HTTP/1.1\r\nHost: localhost\r\n\r\n" + GET)
        assert told(await peer.rest())[0] == 501


async def test_the_asterisk_stays_what_it_is() -> None:
    assert await ask(post(b"*")) == (200, ["*", "*", "", ["localhost"], "x"])


@pytest.mark.parametrize("target", [b"", b"x://y", b"http://", b"https://", b"http:/x", b"HTTP://?", b"http://@x"])
def test_a_target_that_is_neither_a_path_nor_an_address_is_refused(target: bytes) -> None:
    with pytest.raises(HeadRefused) as caught:
        read_target(target)
    assert (caught.value.status, caught.value.name) == (400, "INVALID_ARGUMENT")


@pytest.mark.parametrize("target", [b"/", b"//x", b"/http://x", b"/a#b", b"/\xff", b"*"])
def test_a_path_stays_as_it_is(target: bytes) -> None:
    assert read_target(target) == (target, None)


# --- the version


@pytest.mark.parametrize("version", [b"HTTP/2.0", b"HTTP/3.0", b"HTTP/0.9", b"HTTP/1.2", b"HTTP/2.1", b"HTTP/9.9"])
async def test_another_version_of_http_is_told_as_such(version: bytes) -> None:
    status, message = await refused(post(b"/", version=version))
    assert status == 505
    assert message == f"this server speaks HTTP/1.1 and HTTP/1.0, not {version.decode()}"


@pytest.mark.parametrize("version", [b"HTTP/2", b"HTTP/1", b"HTTP/11.0", b"HTTP/1.10", b"HTPT/1.1", b"http/1.1"])
async def test_what_is_no_version_of_http_is_a_bad_request(version: bytes) -> None:
    async with served(HostGuard(tell, HOSTS)) as connect:
        peer = await connect()
        await peer.say(post(b"/", version=version) + GET)
        assert b" 400 " in (await peer.rest()).split(b"\r\n", 1)[0]


async def test_a_request_of_another_version_is_refused_behind_the_answer_to_an_earlier_one() -> None:
    async with served(tell) as connect:
        peer = await connect()
        await peer.say(GET + post(b"/", version=b"HTTP/2.0"))
        assert (await peer.answer())[0] == 200
        assert told(await peer.rest())[0] == 505


async def test_each_refusal_is_told_to_the_log() -> None:
    seen: list[int] = []
    async with served(tell, told=staticmethod(lambda status, _: seen.append(status))) as connect:
        for data in (post(b"/", version=b"HTTP/2.0"), post(b"ftp://x/"), CHUNKED % b"gzip, chunked"):
            peer = await connect()
            await peer.say(data)
            await peer.rest()
    assert seen == [505, 400, 501]


# --- the transfer coding

CHUNKED = b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: %b\r\n\r\n1\r\nx\r\n0\r\n\r\n"


@pytest.mark.parametrize("coding", [b"chunked", b"CHUNKED", b" chunked ", b", chunked"])
async def test_a_body_in_chunks_is_read(coding: bytes) -> None:
    assert (await ask(CHUNKED % coding))[0] == 200


@pytest.mark.parametrize(
    "coding",
    [
        b"gzip, chunked",
        b"gzip,chunked",
        b"identity, chunked",
        b"deflate\r\nTransfer-Encoding: chunked",
        b"x;q=1, chunked",
    ],
)
@pytest.mark.parametrize("more", [b"", H2C], ids=["", "upgrade"])
async def test_a_transfer_coding_that_is_not_read_is_told_as_such(coding: bytes, more: bytes) -> None:
    data = (CHUNKED % coding).replace(b"\r\n\r\n", b"\r\n" + more + b"\r\n", 1)
    assert await refused(data) == (501, "this server reads no Transfer-Encoding but chunked")


@pytest.mark.parametrize(
    "coding",
    [
        b"chunked, chunked",
        b"chunked\r\nTransfer-Encoding: chunked",
        b"chunked, gzip",
        b"chunked, identity",
        b"gzip",
        b"identity",
        b"chunked\r\nTransfer-Encoding: gzip",
    ],
)
async def test_a_body_whose_end_the_transfer_coding_does_not_tell_is_a_bad_request(coding: bytes) -> None:
    async with served(HostGuard(tell, HOSTS)) as connect:
        peer = await connect()
        await peer.say(CHUNKED % coding + GET)
        data = await peer.rest()
    assert b" 400 " in data.split(b"\r\n", 1)[0]
    assert data.count(b"HTTP/1.1 ") == 1


async def test_a_request_of_http_1_0_has_no_transfer_coding() -> None:
    data = (CHUNKED % b"chunked").replace(b"HTTP/1.1", b"HTTP/1.0", 1)
    assert await refused(data) == (400, "a request of HTTP/1.0 has no Transfer-Encoding")


# --- what is expected


async def _first_and_rest(peer: Peer) -> tuple[bytes, bytes]:
    return (await peer.line()).split(b"\r\n", 1)[0], await peer.rest()


@pytest.mark.parametrize("more", [[], [b"Connection: Upgrade", b"Upgrade: h2c"]], ids=["", "upgrade"])
async def test_a_client_of_http_1_0_gets_no_response_before_the_response(more: list[bytes]) -> None:
    head, body = post(b"/", b"Expect: 100-continue", *more, version=b"HTTP/1.0")[:-1], b"x"
    async with served(HostGuard(tell, HOSTS)) as connect:
        peer = await connect()
        await peer.say(head)
        await asyncio.sleep(0)
        await peer.say(body)
        first, _ = await _first_and_rest(peer)
    assert first == b"HTTP/1.1 200 OK"
