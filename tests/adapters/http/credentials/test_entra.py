"""Tokens of Microsoft Entra ID: each identity against an emulated endpoint, and every answer that brings none."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import msgspec
import pytest

from adapters.http.client import HttpClient
from adapters.http.credentials.settings import EntraAuth
from adapters.http.credentials.signing import signing_of
from adapters.http.failures import Failures
from adapters.http.settings import Timeouts
from gateway.foundation.route import Proxy, Route
from gateway.ports.adapter import AdapterError, ErrorClass
from tests.adapters.http.conftest import batches
from tests.adapters.raw_server import Answer, Exchange, RawServer, StartRaw, plain
from tests.support.certificates import certificate, server_context
from tests.support.forward_proxy import forward_proxy
from tests.support.refusing import refusing_port

pytest.importorskip("azure.identity")

_SECRET = "Qw~8Q~hidden-secret-of-the-application"
_TENANT = "00000000-0000-0000-0000-00000000000a"
_SCOPE = "https://ai.azure.com/.default"
_TOKEN = "eyJ0eXAi.of-entra"
_APPLICATION = {"identity": "client_secret", "tenant_id": _TENANT, "client_id": "app", "client_secret": _SECRET}
_VARIABLES = (
    *("AZURE_TENANT_ID", "AZURE_CLIENT_ID", "AZURE_FEDERATED_TOKEN_FILE", "AZURE_AUTHORITY_HOST"),
    *("IDENTITY_ENDPOINT", "IDENTITY_HEADER", "MSI_ENDPOINT", "AZURE_POD_IDENTITY_AUTHORITY_HOST"),
)


@pytest.fixture(autouse=True)
def _outside_of_azure(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in _VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="module")
def trusted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return certificate(tmp_path_factory.mktemp("authority"), "localhost")


@pytest.fixture
async def service(raw: StartRaw) -> RawServer:
    """Takes the token of the emulators."""

    async def answer(exchange: Exchange) -> None:
        if exchange.request.header("Authorization") == f"Bearer {_TOKEN}":
            await exchange.stream(b"data: 1\n\n")
        else:
            await exchange.send(plain("401 Unauthorized", b"unknown token"))

    return await raw(answer)


@asynccontextmanager
async def entra(trusted: Path, answer: Answer) -> AsyncIterator[RawServer]:
    """The library wants TLS of an authority."""
    server = RawServer(answer)
    listener = await asyncio.start_server(server.serve_connection, "127.0.0.1", 0, ssl=server_context(trusted))
    server.url = f"https://localhost:{listener.sockets[0].getsockname()[1]}"
    try:
        yield server
    finally:
        await server.stop()
        listener.close()


def _json(status: str, **body: Any) -> bytes:
    return plain(status, msgspec.json.encode(body), Content_Type="application/json; charset=utf-8")


async def _grant(exchange: Exchange) -> None:
    await exchange.send(_json("200 OK", token_type="Bearer", expires_in=3599, access_token=_TOKEN))


@asynccontextmanager
async def client(route: Route, **values: Any) -> AsyncIterator[HttpClient]:
    settings = EntraAuth.model_validate({"type": "entra", "scope": _SCOPE, **values})
    failures = Failures(settings.secrets())
    timeouts = Timeouts.model_construct(connect=5.0, first_byte=30.0, between_bytes=30.0)
    http = HttpClient(timeouts, failures, {}, Route(), signing_of(settings, failures, timeouts, route))
    try:
        yield http
    finally:
        await http.aclose()


class TestIdentities:
    """Who asks for a token, and where."""

    async def test_an_application_with_a_secret(self, trusted: Path, service: RawServer) -> None:
        async with (
            entra(trusted, _grant) as server,
            client(Route(trusted), **_APPLICATION, authority=server.url) as http,
        ):
            for _ in range(2):
                assert await batches(http, service.url) == [[b"1"]]
        [request] = server.requests
        assert request.head.splitlines()[0] == f"POST /{_TENANT}/oauth2/v2.0/token HTTP/1.1"
        assert parse_qs(request.body.decode()) == {
            "client_id": ["app"],
            "client_secret": [_SECRET],
            "grant_type": ["client_credentials"],
            "scope": [_SCOPE],
        }

    async def test_the_workload_identity_of_a_pod_as_its_environment_names_it(
        self, trusted: Path, service: RawServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "token").write_text("assertion-of-kubernetes")
        async with entra(trusted, _grant) as server:
            monkeypatch.setenv("AZURE_TENANT_ID", _TENANT)
            monkeypatch.setenv("AZURE_CLIENT_ID", "pod")
            monkeypatch.setenv("AZURE_FEDERATED_TOKEN_FILE", str(tmp_path / "token"))
            monkeypatch.setenv("AZURE_AUTHORITY_HOST", server.url)
            async with client(Route(trusted), identity="workload") as http:
                assert await batches(http, service.url) == [[b"1"]]
        form = parse_qs(server.requests[0].body.decode())
        assert (form["client_id"], form["client_assertion"]) == (["pod"], ["assertion-of-kubernetes"])

    async def test_the_settings_come_before_the_environment_of_a_workload(
        self, trusted: Path, service: RawServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "mine").write_text("mine")
        monkeypatch.setenv("AZURE_TENANT_ID", "other")
        monkeypatch.setenv("AZURE_CLIENT_ID", "other")
        given = {"tenant_id": _TENANT, "client_id": "mine", "token_file": str(tmp_path / "mine")}
        async with (
            entra(trusted, _grant) as server,
            client(Route(trusted), identity="workload", authority=server.url, **given) as http,
        ):
            assert await batches(http, service.url) == [[b"1"]]
        assert server.requests[0].head.startswith(f"POST /{_TENANT}/")
        assert parse_qs(server.requests[0].body.decode())["client_id"] == ["mine"]

    @pytest.mark.parametrize("client_id", [None, "user-assigned"])
    async def test_the_managed_identity_of_a_machine(
        self, raw: StartRaw, service: RawServer, monkeypatch: pytest.MonkeyPatch, client_id: str | None
    ) -> None:
        async def answer(exchange: Exchange) -> None:
            assert exchange.request.header("Metadata") == "true"
            await exchange.send(
                _json("200 OK", token_type="Bearer", expires_in="3599", access_token=_TOKEN, resource="r")
            )

        server = await raw(answer)
        monkeypatch.setenv("AZURE_POD_IDENTITY_AUTHORITY_HOST", server.url)
        given = {} if client_id is None else {"client_id": client_id}
        async with client(Route(), identity="managed", **given) as http:
            assert await batches(http, service.url) == [[b"1"]]
        path, _, query = server.requests[0].head.split()[1].partition("?")
        assert path == "/metadata/identity/oauth2/token"
        sent = parse_qs(query)
        assert (sent["resource"], sent.get("client_id")) == (["https://ai.azure.com"], client_id and [client_id])

    async def test_the_managed_identity_of_an_app_service_is_asked_for_without_the_proxy(
        self, raw: StartRaw, service: RawServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def answer(exchange: Exchange) -> None:
            assert exchange.request.header("X-IDENTITY-HEADER") == "h"
            await exchange.send(_json("200 OK", expires_on="9999999999", access_token=_TOKEN, resource="r"))

        server = await raw(answer)
        monkeypatch.setenv("IDENTITY_ENDPOINT", f"{server.url}/msi/token")
        monkeypatch.setenv("IDENTITY_HEADER", "h")
        async with forward_proxy() as proxy, client(Route(proxy=Proxy.at(proxy.url)), identity="managed") as http:
            assert await batches(http, service.url) == [[b"1"]]
        assert (len(server.requests), proxy.heads) == (1, [])

    async def test_other_identities_go_through_the_proxy(self, trusted: Path, service: RawServer) -> None:
        async with entra(trusted, _grant) as server, forward_proxy() as proxy:
            route = Route(trusted, Proxy.at(proxy.url), {"X-Service": "key"})
            async with client(route, **_APPLICATION, authority=server.url) as http:
                assert await batches(http, service.url) == [[b"1"]]
        assert proxy.heads[0].startswith("CONNECT localhost:")
        assert server.requests[0].header("X-Service") is None

    async def test_a_refused_token_is_fetched_again_and_not_from_a_cache_of_the_library(
        self, trusted: Path, service: RawServer
    ) -> None:
        tokens = ["stale-token-of-entra", _TOKEN]

        async def answer(exchange: Exchange) -> None:
            await exchange.send(_json("200 OK", expires_in=3599, access_token=tokens.pop(0)))

        async with (
            entra(trusted, answer) as server,
            client(Route(trusted), **_APPLICATION, authority=server.url) as http,
        ):
            assert await batches(http, service.url) == [[b"1"]]
        assert len(server.requests) == 2


class TestWithoutToken:
    """What is missing, wrong or down."""

    def test_a_workload_that_its_environment_does_not_name_is_refused_when_the_agent_is_built(self) -> None:
        settings = EntraAuth(type="entra", scope=_SCOPE, identity="workload", client_id="c")
        with pytest.raises(ValueError, match="needs `tenant_id` or AZURE_TENANT_ID, `token_file` or AZURE_FEDERATED"):
            signing_of(settings, Failures(()), Timeouts())

    def test_an_authority_without_tls_is_refused_when_the_agent_is_built(self) -> None:
        settings = EntraAuth.model_validate(
            {"type": "entra", "scope": _SCOPE, **_APPLICATION, "authority": "http://localhost"}
        )
        with pytest.raises(ValueError, match="must be a TLS protected"):
            signing_of(settings, Failures(()), Timeouts())

    async def test_a_token_file_that_is_not_there(self, tmp_path: Path) -> None:
        given = {"tenant_id": _TENANT, "client_id": "c", "token_file": str(tmp_path / "none")}
        async with client(Route(), identity="workload", **given) as http:
            with pytest.raises(AdapterError) as caught:
                await batches(http, "http://127.0.0.1:1")
        assert caught.value.kind is ErrorClass.UNAUTHORISED
        assert "No such file or directory" in caught.value.detail

    @pytest.mark.parametrize(
        ("wire", "kind", "words"),
        [
            (
                _json(
                    "401 Unauthorized",
                    error="invalid_client",
                    error_description=f"AADSTS7000215: {_SECRET} is wrong\r\n",
                ),
                ErrorClass.UNAUTHORISED,
                "AADSTS7000215: *** is wrong",
            ),
            (_json("400 Bad Request", error="unauthorized_client"), ErrorClass.UNAUTHORISED, "unauthorized_client"),
            (_json("429 Too Many Requests", error="throttled"), ErrorClass.RATE_LIMITED, "HTTP 429: throttled"),
            (_json("503 Service Unavailable", error="down"), ErrorClass.UNREACHABLE, "HTTP 503: down"),
            (plain("502 Bad Gateway", b"<html>"), ErrorClass.UNREACHABLE, "HTTP 502"),
            (plain("200 OK", b"<html>", Content_Type="text/html"), ErrorClass.UNAUTHORISED, "Entra: "),
            (_json("200 OK", token_type="Bearer"), ErrorClass.UNAUTHORISED, "Entra: "),
            (_json("200 OK", expires_in="soon", access_token=_TOKEN), ErrorClass.UNAUTHORISED, "Entra: "),
            (plain("200 OK", b"[1]", Content_Type="application/json"), ErrorClass.UNAUTHORISED, "Entra: "),
            (plain("200 OK", b"", Content_Type="application/json"), ErrorClass.UNAUTHORISED, "Entra: "),
        ],
    )
    async def test_an_answer_without_a_token_says_why_and_shows_no_secret(
        self, trusted: Path, caplog: pytest.LogCaptureFixture, wire: bytes, kind: ErrorClass, words: str
    ) -> None:
        caplog.set_level(logging.DEBUG)
        async with (
            entra(trusted, lambda exchange: exchange.send(wire)) as server,
            client(Route(trusted), **_APPLICATION, authority=server.url) as http,
        ):
            with pytest.raises(AdapterError) as caught:
                await batches(http, "http://127.0.0.1:1")
        assert (caught.value.kind, caught.value.detail[:10]) == (kind, "no token: ")
        assert words in caught.value.detail
        assert len(server.requests) == 1, "repeated by the library"
        error: BaseException | None = caught.value
        while error is not None:
            assert _SECRET not in f"{error} {error!r}"
            error = error.__cause__ or error.__context__
        assert not [record for record in caplog.records if record.name.startswith(("azure", "msal"))]

    async def test_an_authority_that_does_not_answer(self) -> None:
        async with client(Route(), **_APPLICATION, authority=f"https://localhost:{refusing_port()}") as http:
            with pytest.raises(AdapterError) as caught:
                await batches(http, "http://127.0.0.1:1")
        assert caught.value.kind is ErrorClass.UNREACHABLE
        assert "Cannot connect to host localhost" in caught.value.detail

    async def test_a_machine_without_the_identity(self, raw: StartRaw, monkeypatch: pytest.MonkeyPatch) -> None:
        server = await raw(
            lambda exchange: exchange.send(_json("400 Bad Request", error="invalid_request", error_description="none"))
        )
        monkeypatch.setenv("AZURE_POD_IDENTITY_AUTHORITY_HOST", server.url)
        async with client(Route(), identity="managed") as http:
            with pytest.raises(AdapterError) as caught:
                await batches(http, "http://127.0.0.1:1")
        assert caught.value.kind is ErrorClass.UNAUTHORISED
        assert "assigned to this resource" in caught.value.detail
