"""Tokens of an authorization server: requests on the wire, and every answer that brings none."""

import base64
from typing import Any
from urllib.parse import parse_qs

import msgspec
import pytest

from adapters.http.client import HttpClient
from adapters.http.credentials.settings import OAuth2Auth
from adapters.http.credentials.signing import signing_of
from adapters.http.failures import Failures
from adapters.http.settings import Timeouts
from gateway.foundation.route import Proxy, Route
from gateway.ports.adapter import AdapterError, ErrorClass
from tests.adapters.http.conftest import batches
from tests.adapters.raw_server import Exchange, RawServer, Received, StartRaw, plain
from tests.support.forward_proxy import forward_proxy
from tests.support.refusing import refusing_port

_SECRET = "s3cr3t:of the/client"
_JSON = "application/json"


def auth(url: str, **values: Any) -> OAuth2Auth:
    given = {"type": "oauth2", "token_url": f"{url}/token", "client_id": "me+1", "client_secret": _SECRET, **values}
    return OAuth2Auth.model_validate(given)


def _for_token(request: Received) -> bool:
    return request.head.splitlines()[0].endswith("/token HTTP/1.1")


class Service:
    """A service that takes the tokens of its own token endpoint, and sets any of them back."""

    def __init__(self, answer: dict[str, Any] | None = None) -> None:
        self.answer = answer or {"token_type": "bearer", "expires_in": 3600}
        self.given = 0
        self.good: set[str] = set()

    async def __call__(self, exchange: Exchange) -> None:
        if _for_token(exchange.request):
            self.given += 1
            token = f"tok-{self.given}-{'x' * 20}"
            self.good.add(f"Bearer {token}")
            body = msgspec.json.encode({"access_token": token, **self.answer})
            await exchange.send(plain("200 OK", body, Content_Type=_JSON))
        elif exchange.request.header("Authorization") in self.good:
            await exchange.stream(b"data: 1\n\n")
        else:
            await exchange.send(plain("401 Unauthorized", b"unknown token"))


def client(settings: OAuth2Auth, route: Route | None = None, **timeouts: float) -> HttpClient:
    route = route or Route()
    failures = Failures(settings.secrets())
    patient = Timeouts.model_construct(connect=5.0, first_byte=30.0, between_bytes=30.0).model_copy(update=timeouts)
    return HttpClient(patient, failures, {}, route, signing_of(settings, failures, patient, route))


def tokens_asked(server: RawServer) -> list[str]:
    return [request.body.decode() for request in server.requests if _for_token(request)]


async def test_a_token_is_fetched_once_for_many_requests(raw: StartRaw) -> None:
    server = await raw(Service())
    http = client(auth(server.url, scope="a b", parameters={"audience": "x"}))
    for _ in range(3):
        assert await batches(http, server.url) == [[b"1"]]
    await http.aclose()
    [asked] = tokens_asked(server)
    assert parse_qs(asked) == {"grant_type": ["client_credentials"], "scope": ["a b"], "audience": ["x"]}
    request = server.requests[0]
    basic = base64.b64encode(b"me%2B1:s3cr3t%3Aof+the%2Fclient").decode()
    names = ("Authorization", "Content-Type", "Accept")
    assert [request.header(name) for name in names] == [
        f"Basic {basic}",
        "application/x-www-form-urlencoded",
        _JSON,
    ]


async def test_the_credentials_of_the_client_may_be_in_the_body(raw: StartRaw) -> None:
    server = await raw(Service())
    http = client(auth(server.url, client_authentication="body"))
    await batches(http, server.url)
    await http.aclose()
    [asked] = tokens_asked(server)
    assert parse_qs(asked)["client_id"] == ["me+1"]
    assert parse_qs(asked)["client_secret"] == [_SECRET]
    assert server.requests[0].header("Authorization") is None


async def test_a_token_that_the_service_has_revoked_is_renewed_in_the_same_request(raw: StartRaw) -> None:
    service = Service()
    server = await raw(service)
    http = client(auth(server.url))
    await batches(http, server.url)
    service.good.clear()
    assert await batches(http, server.url, b'{"a":1}') == [[b"1"]]
    assert service.given == 2
    assert server.requests[-1].body == b'{"a":1}'
    await http.aclose()


@pytest.mark.parametrize("lifetime", ["3600", 3600.0, None, "soon"])
async def test_the_life_of_a_token_may_be_written_in_any_way(raw: StartRaw, lifetime: Any) -> None:
    service = Service({"expires_in": lifetime})
    server = await raw(service)
    http = client(auth(server.url))
    for _ in range(2):
        await batches(http, server.url)
    assert service.given == 1
    await http.aclose()


async def test_requests_for_tokens_go_through_the_proxy_without_the_headers_of_the_service(raw: StartRaw) -> None:
    server = await raw(Service())
    async with forward_proxy() as proxy:
        http = client(auth(server.url), Route(proxy=Proxy.at(proxy.url), headers={"X-Service": "key"}))
        assert await batches(http, server.url) == [[b"1"]]
        await http.aclose()
    assert proxy.heads[0].startswith(f"POST {server.url}/token ")
    assert [request.header("X-Service") for request in server.requests] == [None, "key"]


def _error(status: str, code: str, description: str = "") -> bytes:
    body = {"error": code} | ({"error_description": description} if description else {})
    return plain(status, msgspec.json.encode(body), Content_Type=_JSON)


@pytest.mark.parametrize(
    ("wire", "kind", "words"),
    [
        (
            _error("401 Unauthorized", "invalid_client", f"{_SECRET} is not right"),
            ErrorClass.UNAUTHORISED,
            "HTTP 401: invalid_client: *** is not right",
        ),
        (_error("400 Bad Request", "invalid_scope"), ErrorClass.UNAUTHORISED, "HTTP 400: invalid_scope"),
        (_error("200 OK", "invalid_grant"), ErrorClass.UNAUTHORISED, "invalid_grant"),
        (_error("400 Bad Request", "temporarily_unavailable"), ErrorClass.UNREACHABLE, "temporarily_unavailable"),
        (_error("429 Too Many Requests", "slow_down"), ErrorClass.RATE_LIMITED, "slow_down"),
        (plain("503 Service Unavailable", b"down"), ErrorClass.UNREACHABLE, "HTTP 503: down"),
        (plain("200 OK", b"<html>"), ErrorClass.UNAUTHORISED, "answers without an access token"),
        (plain("200 OK", b"[]"), ErrorClass.UNAUTHORISED, "answers without an access token"),
        (plain("200 OK", b'{"access_token":"a\\nb"}'), ErrorClass.UNAUTHORISED, "answers without an access token"),
        (
            plain("200 OK", b'{"access_token":"abcdefgh","token_type":"DPoP"}'),
            ErrorClass.UNAUTHORISED,
            "gives a token of type 'DPoP'",
        ),
        (plain("302 Found", Location="https://elsewhere.invalid"), ErrorClass.UNAUTHORISED, "instead of a token"),
        (plain("200 OK", b"x" * 300_000), ErrorClass.UNAUTHORISED, "an answer of more than 262144 bytes"),
    ],
)
async def test_an_answer_without_a_token_says_why(raw: StartRaw, wire: bytes, kind: ErrorClass, words: str) -> None:
    server = await raw(lambda exchange: exchange.send(wire))
    http = client(auth(server.url))
    with pytest.raises(AdapterError) as caught:
        await batches(http, server.url)
    await http.aclose()
    assert caught.value.kind is kind
    assert caught.value.detail.startswith("no token: ")
    assert words in caught.value.detail
    assert len(server.requests) == 1, "the request itself was sent"
    error: BaseException | None = caught.value
    while error is not None:
        assert _SECRET not in f"{error} {error!r}"
        error = error.__cause__ or error.__context__


async def test_an_endpoint_that_does_not_answer(raw: StartRaw) -> None:
    silent = await raw(Exchange.gone)
    for url in (f"http://127.0.0.1:{refusing_port()}", silent.url):
        http = client(auth(url), first_byte=0.05)
        with pytest.raises(AdapterError) as caught:
            await batches(http, "http://127.0.0.1:1")
        await http.aclose()
        assert caught.value.kind is ErrorClass.UNREACHABLE


async def test_a_service_that_quotes_the_token_shows_none_of_it(raw: StartRaw) -> None:
    service = Service()

    async def answer(exchange: Exchange) -> None:
        if _for_token(exchange.request):
            await service(exchange)
        else:
            quoted = (exchange.request.header("Authorization") or "").encode()
            await exchange.send(plain("403 Forbidden", b"not allowed: " + quoted))

    server = await raw(answer)
    http = client(auth(server.url))
    with pytest.raises(AdapterError) as caught:
        await batches(http, server.url)
    await http.aclose()
    assert caught.value.detail == "HTTP 403: not allowed: Bearer ***"
