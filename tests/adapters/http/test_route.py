"""The way to a service: authorities, proxies, headers of the operator."""

import asyncio
import base64
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from adapters.http.client import HttpClient
from adapters.http.failures import Failures
from adapters.http.settings import Timeouts
from gateway.config.connections import ConnectionSettings
from gateway.foundation.route import Proxy, Route
from gateway.ports.adapter import AdapterError, ErrorClass
from tests.adapters.http.conftest import batches
from tests.adapters.raw_server import Exchange, RawServer, plain
from tests.support.certificates import certificate, server_context
from tests.support.forward_proxy import forward_proxy

_NOT_TRUSTED = "its certificate is not trusted: self-signed certificate; name a file with the certificate"


@pytest.fixture(scope="module")
def trusted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A server's certificate, which is its own authority, and its key."""
    return certificate(tmp_path_factory.mktemp("authority"), "localhost")


@asynccontextmanager
async def answering(trusted: Path | None = None) -> AsyncIterator[RawServer]:
    """A server of one event for each request, over TLS with `trusted`."""

    async def answer(exchange: Exchange) -> None:
        await exchange.stream(b"data: 1\n\n")

    server = RawServer(answer)
    context = None
    if trusted is not None:
        context = server_context(trusted)
    listener = await asyncio.start_server(server.serve_connection, "127.0.0.1", 0, ssl=context)
    scheme = "http" if trusted is None else "https"
    server.url = f"{scheme}://localhost:{listener.sockets[0].getsockname()[1]}"
    try:
        yield server
    finally:
        await server.stop()
        listener.close()


@asynccontextmanager
async def client(route: Route, headers: dict[str, str] | None = None) -> AsyncIterator[HttpClient]:
    made = HttpClient(Timeouts(), Failures(("secret-of-the-proxy",)), headers, route)
    try:
        yield made
    finally:
        await made.aclose()


async def test_a_certificate_of_an_unknown_authority_is_refused_and_the_reason_is_told(trusted: Path) -> None:
    async with answering(trusted) as server, client(Route()) as http:
        with pytest.raises(AdapterError) as caught:
            await batches(http, server.url)
    assert caught.value.kind is ErrorClass.UNREACHABLE
    assert caught.value.detail.startswith(_NOT_TRUSTED)
    assert server.requests == []


async def test_a_certificate_that_no_authority_mends_is_told_without_advice_to_name_one(tmp_path: Path) -> None:
    expired = certificate(tmp_path, "localhost", days=(-2, -1))
    async with answering(expired) as server, client(Route(expired)) as http:
        with pytest.raises(AdapterError) as caught:
            await batches(http, server.url)
    assert caught.value.kind is ErrorClass.UNREACHABLE
    assert caught.value.detail.startswith("its certificate has expired: the server needs a new one")
    assert "`ca`" not in caught.value.detail


async def test_an_address_that_begins_with_the_wrong_scheme_is_told(trusted: Path) -> None:
    async def complain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(plain("400 Bad Request"))
        writer.close()

    async with answering(trusted) as safe, await asyncio.start_server(complain, "127.0.0.1", 0) as listener:
        port = listener.sockets[0].getsockname()[1]
        for url, scheme, kind in (
            (safe.url.replace("https:", "http:"), "https", ErrorClass.INTERRUPTED),
            (f"https://localhost:{port}", "http", ErrorClass.UNREACHABLE),
        ):
            other = url.partition(":")[0]
            async with client(Route(trusted)) as http:
                with pytest.raises(AdapterError) as caught:
                    await batches(http, url)
            hint = f"; does its address begin with {scheme}:// and not with {other}://?"
            assert caught.value.detail.endswith(hint)
            assert caught.value.kind is kind


async def test_an_authority_of_the_settings_is_trusted(trusted: Path) -> None:
    async with answering(trusted) as server, client(Route(trusted)) as http:
        assert await batches(http, server.url) == [[b"1"]]


@pytest.mark.parametrize("over_tls", [True, False], ids=["https", "http"])
async def test_all_requests_go_through_the_proxy_which_alone_gets_its_credentials(
    trusted: Path, over_tls: bool
) -> None:
    async with answering(trusted if over_tls else None) as server, forward_proxy() as proxy:
        named = proxy.url.replace("://", "://me:p%40ss@")
        async with client(Route(trusted, Proxy.at(named)), {"Authorization": "Bearer key", "X-Key": "key"}) as http:
            assert await batches(http, f"{server.url}/v1") == [[b"1"]]
    [head], [request] = proxy.heads, server.requests
    assert [request.header(name) for name in ("Authorization", "X-Key")] == ["Bearer key", "key"]
    # The proxy reads a request over plain HTTP.
    assert ("key" in head) is not over_tls
    place = server.url.partition("://")[2]
    assert head.startswith(f"CONNECT {place} " if over_tls else f"POST {server.url}/v1 ")
    assert f"Proxy-Authorization: Basic {base64.b64encode(b'me:p@ss').decode()}\r\n" in head
    if over_tls:
        assert request.header("Proxy-Authorization") is None


async def test_a_proxy_that_asks_for_credentials_of_a_plain_request_is_told_from_the_service() -> None:
    async with (
        forward_proxy("407 Proxy Authentication Required") as proxy,
        client(Route(proxy=Proxy.at(proxy.url))) as http,
    ):
        with pytest.raises(AdapterError) as caught:
            await batches(http, "http://127.0.0.1:1/v1")
    assert (caught.value.kind, caught.value.detail) == (
        ErrorClass.UNREACHABLE,
        f"the proxy {proxy.url} answers HTTP 407",
    )


@pytest.mark.parametrize("status", ["407 Proxy Authentication Required", "502 Bad Gateway"])
async def test_a_proxy_that_refuses_is_told_from_the_service(trusted: Path, status: str) -> None:
    async with forward_proxy(status) as proxy:
        named = proxy.url.replace("://", "://me:secret-of-the-proxy@")
        async with client(Route(trusted, Proxy.at(named))) as http:
            with pytest.raises(AdapterError) as caught:
                await batches(http, "https://127.0.0.1:1/v1")
    assert (caught.value.kind, caught.value.detail) == (
        ErrorClass.UNREACHABLE,
        f"the proxy {proxy.url} answers HTTP {status[:3]}",
    )
    error: BaseException | None = caught.value
    while error is not None:
        assert "secret-of-the-proxy" not in f"{error} {error!r}"
        error = error.__cause__ or error.__context__


async def test_headers_of_the_operator_take_the_place_of_our_own() -> None:
    given = {"X-Team": "red", "authorization": "Basic abc", "USER-AGENT": "mine"}
    async with answering() as server, client(Route(headers=given), {"Authorization": "Bearer key"}) as http:
        await batches(http, server.url)
    [request] = server.requests
    lines = [line.lower() for line in request.head.splitlines()]
    assert [line for line in lines if line.startswith(("authorization", "user-agent", "x-team"))] == [
        "x-team: red",
        "authorization: basic abc",
        "user-agent: mine",
    ]


_ASK = """
import asyncio, sys
from adapters.http.client import HttpClient
from adapters.http.failures import Failures
from adapters.http.settings import Timeouts

async def ask():
    http = HttpClient(Timeouts(), Failures(()))
    async with http.stream(sys.argv[1], b"{}") as stream:
        print([batch async for batch in stream])
    await http.aclose()

asyncio.run(ask())
"""


async def test_an_authority_of_the_environment_is_trusted(trusted: Path) -> None:
    async with answering(trusted) as server:
        child = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            _ASK,
            server.url,
            env={**os.environ, "SSL_CERT_FILE": str(trusted)},
            stdout=asyncio.subprocess.PIPE,
        )
        out, _ = await child.communicate()
    assert out.decode().strip() == "[[b'1']]"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"ca": "missing.pem"}, "cannot be read: no such file or directory"),
        ({"ca": "empty.pem"}, "holds no certificates in PEM"),
        ({"proxy": "proxy:3128"}, "must be the address of a proxy"),
        ({"proxy": "socks5://proxy:1080"}, "must be the address of an HTTP proxy.*SOCKS proxies are not supported"),
        ({"proxy": "SOCKS5H://me:secret@proxy:1080"}, "SOCKS proxies are not supported"),
        ({"proxy": "http://proxy:3128/path"}, "must be the address of a proxy"),
        ({"headers": {"X-Team": "a\nb"}}, "must be one line of visible ASCII characters"),
        ({"headers": {"content-length": "5"}}, "is decided by the gateway"),
    ],
    ids=str,
)
def test_settings_that_cannot_work_are_refused_when_they_are_read(
    tmp_path: Path, given: dict[str, Any], words: str
) -> None:
    (tmp_path / "empty.pem").touch()
    with pytest.raises(ValidationError, match=words):
        ConnectionSettings.model_validate(given, context={"base_dir": tmp_path})


def test_no_text_quotes_a_secret_of_the_settings(trusted: Path) -> None:
    read = ConnectionSettings.model_validate(
        {"ca": str(trusted), "proxy": "http://me:secret@proxy:3128", "headers": {"X-Key": "hidden"}}
    )
    assert set(read.connection_secrets()) == {"secret", "me:secret", "hidden"}
    shown = f"{read!r} {read.route!r} {read.model_dump_json()}"
    assert "secret" not in shown
    assert "hidden" not in shown
