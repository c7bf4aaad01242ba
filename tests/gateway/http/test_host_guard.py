"""Host names and origins that a gateway on a loopback address accepts, and the size limit of a request's head."""

import msgspec
import pytest
from starlette.types import Message, Receive, Scope, Send

from gateway.http.host_guard import HostGuard, allowed_hosts
from gateway.http.reply import Reply
from tests.interaction import asgi

LOCAL = allowed_hosts("127.0.0.1", "https://agents.example:8443/base")


async def ask(guard: HostGuard, *headers: tuple[str, str], target: str = "/a2a") -> int:
    answer = await asgi.request(guard, "GET", target, headers)
    if answer.status != 200:
        assert msgspec.json.decode(answer.body)["error"]["code"] == answer.status
    return answer.status


@pytest.fixture
def guard() -> HostGuard:
    return HostGuard(Reply(b"{}"), LOCAL)


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "localhost:8080",
        "LOCALHOST:1",
        "127.0.0.1:8080",
        "[::1]:8080",
        "[::1]",
        "agents.example",
        "agents.example:8443",
        "AGENTS.example.",
        "agents.example.:8443",
    ],
)
async def test_the_machine_s_own_names_pass_on_any_port(guard: HostGuard, host: str) -> None:
    assert await ask(guard, ("host", host)) == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8080",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "user@evil.example",
        "evil.example#localhost",
        "[::1",
        "",
        ":8080",
        "192.168.0.1",
        "lokälhost",
    ],
)
async def test_a_foreign_host_is_misdirected(guard: HostGuard, host: str) -> None:
    assert await ask(guard, ("host", host)) == 421


async def test_a_refusal_says_which_setting_admits_the_name(guard: HostGuard) -> None:
    for headers in ([("host", "evil.example")], [("host", "localhost"), ("origin", "https://evil.example")]):
        answer = await asgi.request(guard, "GET", "/a2a", headers)
        message = msgspec.json.decode(answer.body)["error"]["message"]
        assert "server.public_url" in message
        assert "evil" not in message


@pytest.mark.parametrize(
    ("public_url", "remedy"),
    [
        ("http://127.0.0.1:8080", "needs server.public_url to be set to the address that clients use"),
        (
            "https://agents.example:8443",
            "answers to agents.example, as server.public_url says: a proxy in front of it must pass",
        ),
        (
            "https://agents.example.",
            "answers to agents.example, as server.public_url says: a proxy in front of it must pass",
        ),
    ],
)
async def test_a_refusal_of_a_host_names_those_that_pass_where_a_public_url_is_set(
    public_url: str, remedy: str
) -> None:
    guard = HostGuard(Reply(b"{}"), allowed_hosts("127.0.0.1", public_url))
    answer = await asgi.request(guard, "GET", "/a2a", [("host", "a2a_gateway")])
    assert answer.status == 421
    assert remedy in msgspec.json.decode(answer.body)["error"]["message"]


async def test_exactly_one_host_is_expected(guard: HostGuard) -> None:
    assert await ask(guard) == 400
    assert await ask(guard, ("host", "localhost"), ("host", "localhost")) == 400


@pytest.mark.parametrize("origin", ["http://localhost:3000", "http://127.0.0.1", "https://agents.example"])
async def test_pages_of_the_same_machine_pass(guard: HostGuard, origin: str) -> None:
    assert await ask(guard, ("host", "localhost"), ("origin", origin)) == 200


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://localhost.evil.example", "localhost", ""])
async def test_a_foreign_page_is_forbidden(guard: HostGuard, origin: str) -> None:
    assert await ask(guard, ("host", "localhost"), ("origin", origin)) == 403


@pytest.mark.parametrize("bind", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_a_loopback_address_answers_to_its_own_names_only(bind: str) -> None:
    assert allowed_hosts(bind, "http://gateway.example") == frozenset(
        {"localhost", "127.0.0.1", "::1", bind, "gateway.example"}
    )


@pytest.mark.parametrize("bind", ["0.0.0.0", "::", "192.168.0.1", "gateway.example"])
async def test_a_public_address_answers_to_every_name(bind: str) -> None:
    guard = HostGuard(Reply(b"{}"), allowed_hosts(bind, "http://gateway.example"))

    assert await ask(guard, ("host", "any.example"), ("origin", "https://other.example")) == 200


async def test_the_head_of_a_request_has_a_size(guard: HostGuard) -> None:
    host = ("host", "localhost")

    assert await ask(guard, host, *[("x", "y")] * 99) == 200
    assert await ask(guard, host, *[("x", "y")] * 100) == 431
    assert await ask(guard, host, ("x", "y" * 32_768)) == 431
    assert await ask(guard, host, target="/" + "x" * 8191) == 200
    assert await ask(guard, host, target="/" + "x" * 8192) == 414
    assert await ask(guard, host, target="/?" + "x" * 8192) == 414


async def test_what_is_not_http_passes(guard: HostGuard) -> None:
    seen = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(scope["type"])

    async def nothing(*_: object) -> None:
        raise AssertionError

    await HostGuard(app, LOCAL)({"type": "lifespan"}, nothing, nothing)  # type: ignore[arg-type]

    assert seen == ["lifespan"]


async def test_also_a_public_address_expects_exactly_one_host() -> None:
    guard = HostGuard(Reply(b"{}"), allowed_hosts("0.0.0.0", "http://gateway.example"))

    assert await ask(guard) == 400
    assert await ask(guard, ("host", "a.example"), ("host", "a.example")) == 400
    assert await ask(guard, ("host", "a.example")) == 200


async def test_a_health_check_of_http_1_0_needs_no_host() -> None:
    guard = HostGuard(Reply(b"{}"), None)
    scope = {**asgi.scope_of("GET", "/livez", ()), "http_version": "1.0"}
    sent: list[int] = []

    async def receive() -> Message:
        raise AssertionError

    async def send(message: Message) -> None:
        sent.append(message.get("status", 0))

    await guard(scope, receive, send)

    assert sent[0] == 200
