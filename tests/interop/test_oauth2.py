"""An agent whose service takes the tokens of a real authorization server."""

from pathlib import Path
from typing import Any

import httpx2
import pytest
from joserfc import jwt
from joserfc.jwk import KeySet

from adapters.http.client import HttpClient
from adapters.http.credentials.settings import OAuth2Auth
from adapters.http.credentials.signing import signing_of
from adapters.http.failures import Failures
from adapters.http.settings import Timeouts
from tests.adapters.conftest import raw
from tests.adapters.raw_server import Exchange, StartRaw, plain
from tests.interop import peer_processes

__all__ = ["raw"]


@pytest.mark.parametrize("client_authentication", ["basic", "body"])
async def test_a_service_finds_the_tokens_of_the_server_good(
    raw: StartRaw, tmp_path: Path, client_authentication: str
) -> None:
    claims: list[dict[str, Any]] = []

    with peer_processes.authorization_server(tmp_path) as server:
        async with httpx2.AsyncClient(trust_env=False) as http:
            keys = KeySet.import_key_set((await http.get(f"{server.origin}/jwks")).json())

        async def answer(exchange: Exchange) -> None:
            token = (exchange.request.header("Authorization") or "").removeprefix("Bearer ")
            claims.append(jwt.decode(token, keys, algorithms=["RS256"]).claims)
            await exchange.send(plain("200 OK", b"{}"))

        service = await raw(answer)
        auth = OAuth2Auth.model_validate(
            {
                "type": "oauth2",
                "token_url": server.url,
                "client_id": "gateway",
                "client_secret": "secret",
                "scope": "models",
                "client_authentication": client_authentication,
            }
        )
        failures = Failures(auth.secrets())
        client = HttpClient(Timeouts(), failures, signing=signing_of(auth, failures, Timeouts()))
        for _ in range(2):
            assert await client.request_json("GET", service.url) == {}
        await client.aclose()
    assert [each["scope"] for each in claims] == ["models", "models"]
    assert claims[0] == claims[1], "a second token was fetched"
