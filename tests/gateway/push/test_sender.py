"""Posts to a real receiver: their outcomes, and addresses that are never connected to."""

import asyncio
import socket
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from ipaddress import ip_network
from pathlib import Path

import pytest

from gateway.foundation.addresses import TargetRules
from gateway.foundation.clock import Clock
from gateway.foundation.resolver import Resolver
from gateway.foundation.route import DIRECT, Proxy, Route
from gateway.push.sender import Sender
from gateway.push.webhook import Outcome
from tests.adapters.raw_server import Exchange, RawServer, plain
from tests.receiver import RESET, STALL, Answer, Receiver, receiving
from tests.support.certificates import certificate
from tests.support.core import START, soon
from tests.support.forward_proxy import forward_proxy

RULES = TargetRules(http=True, ports=(), networks=(ip_network("127.0.0.0/8"),))
HEADERS = {"Content-Type": "application/a2a+json", "webhook-id": "msg_1"}

Answers = Callable[[str, int], Awaitable[list[str]]]


@asynccontextmanager
async def sending(
    rules: TargetRules = RULES, answers: Answers | None = None, seconds: float = 20.0, route: Route = DIRECT
) -> AsyncGenerator[Sender]:
    lookup = Resolver(rules.permit, answers)
    sender = Sender(rules, lookup, seconds, Clock(now=lambda: START), route)
    try:
        yield sender
    finally:
        await sender.aclose()
        lookup.close()


def always(*addresses: str) -> Answers:
    async def answers(host: str, port: int) -> list[str]:
        return list(addresses)

    return answers


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with receiving() as receiver:
        yield receiver


async def test_a_post_carries_body_and_headers_and_neither_cookie_nor_compression(receiver: Receiver) -> None:
    receiver.answers.append(Answer(204, {"set-cookie": "a=b"}))
    async with sending() as sender:
        for _ in range(2):
            assert (await soon(sender.post(f"{receiver.url}/hook?a=b", HEADERS, b"body"))).delivered
    first, second = receiver.letters
    assert (first.path, first.body, first.headers["webhook-id"]) == ("/hook", b"body", "msg_1")
    assert first.headers["accept-encoding"] == "identity"
    assert "cookie" not in second.headers


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
async def test_success_of_any_kind_is_delivered(receiver: Receiver, status: int) -> None:
    receiver.answers.append(Answer(status))
    async with sending() as sender:
        assert (await soon(sender.post(receiver.url, HEADERS, b"{}"))).delivered


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_a_failure_and_is_not_followed(receiver: Receiver, status: int) -> None:
    receiver.answers.append(Answer(status, {"location": f"{receiver.url}/elsewhere"}))
    async with sending() as sender:
        assert await soon(sender.post(receiver.url, HEADERS, b"{}")) == Outcome(status)
    assert len(receiver.letters) == 1


@pytest.mark.parametrize(
    ("value", "seconds"),
    [("120", 120.0), ("0", 0.0), ("Thu, 20 Nov 2036 10:00:00 GMT", None), ("soon", None), ("-5", None), ("", None)],
)
async def test_retry_after_is_read_as_seconds_or_as_a_date(
    receiver: Receiver, value: str, seconds: float | None
) -> None:
    receiver.answers.append(Answer(429, {"retry-after": value}))
    async with sending() as sender:
        outcome = await soon(sender.post(receiver.url, HEADERS, b"{}"))
    if "GMT" in value:
        assert outcome.retry_after is not None
        assert outcome.retry_after > 300_000_000
    else:
        assert outcome == Outcome(429, "", seconds)


async def test_a_huge_answer_is_not_read_to_its_end(receiver: Receiver) -> None:
    receiver.answers.append(Answer(200, body=b"x" * 32 * 1024 * 1024))
    async with sending() as sender:
        assert (await soon(sender.post(receiver.url, HEADERS, b"{}"))).delivered
        assert (await soon(sender.post(receiver.url, HEADERS, b"{}"))).delivered


async def test_a_large_event_is_posted_whole(receiver: Receiver) -> None:
    body = b"x" * (3 * 1024 * 1024)
    async with sending() as sender:
        assert (await soon(sender.post(receiver.url, HEADERS, body))).delivered
    assert receiver.letters[0].body == body


async def test_a_receiver_that_does_not_answer_in_time_is_a_failure(receiver: Receiver) -> None:
    receiver.answers.append(STALL)
    async with sending(seconds=0.2) as sender:
        assert await soon(sender.post(receiver.url, HEADERS, b"{}")) == Outcome(None, "timed out")


async def test_a_connection_that_breaks_is_a_failure(receiver: Receiver) -> None:
    receiver.answers.append(RESET)
    async with sending() as sender:
        outcome = await soon(sender.post(receiver.url, HEADERS, b"{}"))
    assert outcome == Outcome(None, "the connection broke, or what came was no HTTP")


async def test_a_refused_connection_is_a_failure() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        async with sending() as sender:
            outcome = await soon(sender.post(f"http://127.0.0.1:{port}/", HEADERS, b"{}"))
    assert outcome == Outcome(None, "could not connect")


async def test_a_server_without_tls_is_a_failure_of_https(receiver: Receiver) -> None:
    async with sending() as sender:
        outcome = await soon(sender.post(receiver.url.replace("http:", "https:"), HEADERS, b"{}"))
    hint = "does its address begin with http:// and not with https://?"
    assert outcome == Outcome(None, f"it does not answer in TLS; {hint}")


async def test_a_response_that_is_no_http_is_a_failure() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"220 mail.example ESMTP\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    async with server, sending() as sender:
        port = server.sockets[0].getsockname()[1]
        outcome = await soon(sender.post(f"http://127.0.0.1:{port}/", HEADERS, b"{}"))
    assert outcome == Outcome(None, "the connection broke, or what came was no HTTP")


async def test_an_unknown_host_is_a_failure() -> None:
    async def nobody(host: str, port: int) -> list[str]:
        raise OSError("no such host")

    async with sending(answers=nobody) as sender:
        assert await soon(sender.post("https://hook.example/", HEADERS, b"{}")) == Outcome(
            None, "the host is not known"
        )


# --- where a connection never goes ------------------------------------------------------------------------------------


async def test_the_connection_goes_to_the_checked_address_under_the_given_name(
    receiver: Receiver,
) -> None:
    port = receiver.url.rpartition(":")[2]
    async with sending(answers=always("127.0.0.1")) as sender:
        assert (await soon(sender.post(f"http://hook.example:{port}/", HEADERS, b"{}"))).delivered
    assert receiver.letters[0].headers["host"] == f"hook.example:{port}"


async def test_a_name_that_has_become_a_private_address_is_not_connected_to(receiver: Receiver) -> None:
    strict = TargetRules(http=True, ports=())
    port = receiver.url.rpartition(":")[2]
    async with sending(strict, always("8.8.8.8", "127.0.0.1")) as sender:
        outcome = await soon(sender.post(f"http://hook.example:{port}/", HEADERS, b"{}"))
    assert outcome == Outcome(None, "the address must not lead to an address that is this machine")
    assert receiver.letters == []


async def test_each_connection_is_checked_again(receiver: Receiver) -> None:
    strict = TargetRules(http=True, ports=(), networks=(ip_network("127.0.0.1/32"),))
    port = receiver.url.rpartition(":")[2]
    found = [["127.0.0.1"], ["127.0.0.2"]]

    async def rebinding(host: str, port: int) -> list[str]:
        return found.pop(0)

    receiver.answers.append(Answer(200, {"connection": "close"}))
    async with sending(strict, rebinding) as sender:
        assert (await soon(sender.post(f"http://hook.example:{port}/", HEADERS, b"{}"))).delivered
        assert not (await soon(sender.post(f"http://hook.example:{port}/", HEADERS, b"{}"))).delivered
    assert len(receiver.letters) == 1


async def test_a_literal_address_is_checked_without_a_look_up(receiver: Receiver) -> None:
    async with sending(TargetRules(http=True, ports=())) as sender:
        outcome = await soon(sender.post(receiver.url, HEADERS, b"{}"))
    assert outcome == Outcome(None, "the address must not lead to 127.0.0.1 that is this machine")
    assert receiver.letters == []


async def test_proxies_of_the_environment_are_not_used(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    async with sending() as sender:
        assert (await soon(sender.post(receiver.url, HEADERS, b"{}"))).delivered


async def test_tls_names_the_given_host_and_trusts_no_self_signedcertificate(tmp_path: Path) -> None:
    named: list[str | None] = []
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate(tmp_path, "hook.example"))

    def sni(_: ssl.SSLObject, name: str | None, __: ssl.SSLContext) -> None:
        named.append(name)

    context.sni_callback = sni
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0, ssl=context)
    async with server, sending(answers=always("127.0.0.1")) as sender:
        port = server.sockets[0].getsockname()[1]
        outcome = await soon(sender.post(f"https://hook.example:{port}/", HEADERS, b"{}"))
    remedy = "name a file with the certificate itself in `ca` of `push`, or in SSL_CERT_FILE"
    told = Outcome(None, f"its certificate is not trusted: self-signed certificate; {remedy}")
    assert (outcome, named) == (told, ["hook.example"])


async def test_tls_trusts_the_authority_of_the_settings(tmp_path: Path) -> None:
    file = certificate(tmp_path, "hook.example")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)

    async def answer(exchange: Exchange) -> None:
        await exchange.send(plain("204 No Content"))

    raw = RawServer(answer)
    server = await asyncio.start_server(raw.serve_connection, "127.0.0.1", 0, ssl=context)
    async with server, sending(answers=always("127.0.0.1"), route=Route(file, headers={"X-From": "us"})) as sender:
        port = server.sockets[0].getsockname()[1]
        outcome = await soon(sender.post(f"https://hook.example:{port}/", HEADERS, b"{}"))
        await raw.stop()
    assert outcome == Outcome(204, "")
    assert [(request.header("X-From"), request.header("webhook-id")) for request in raw.requests] == [("us", "msg_1")]


async def test_posts_go_through_the_proxy_of_the_settings(receiver: Receiver) -> None:
    async with forward_proxy() as proxy, sending(route=Route(proxy=Proxy.at(proxy.url))) as sender:
        assert (await soon(sender.post(f"{receiver.url}/hook", HEADERS, b"{}"))).delivered
    [head] = proxy.heads
    assert head.startswith(f"POST {receiver.url}/hook ")


async def test_a_proxy_gets_no_post_to_a_host_that_is_known_to_be_private() -> None:
    async with forward_proxy() as proxy:
        route = Route(proxy=Proxy.at(proxy.url))
        async with sending(answers=always("10.0.0.1"), route=route) as sender:
            outcome = await soon(sender.post("http://hook.example/", HEADERS, b"{}"))
    assert (outcome.status, proxy.heads) == (None, [])


async def test_a_host_that_only_the_proxy_knows_is_left_to_it() -> None:
    async def unknown(host: str, port: int) -> list[str]:
        raise OSError("no such host")

    async with forward_proxy("502 Bad Gateway") as proxy:
        route = Route(proxy=Proxy.at(proxy.url))
        async with sending(answers=unknown, route=route) as sender:
            assert (
                await soon(sender.post("https://hook.example/", HEADERS, b"{}"))
            ).error == "the proxy answers HTTP 502"
    assert len(proxy.heads) == 1
