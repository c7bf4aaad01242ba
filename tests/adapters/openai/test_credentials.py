"""Agents that authenticate by `auth:`: their requests, their conversations, and settings that contradict each other."""

from typing import Any

import msgspec
import pytest
from pydantic import ValidationError

from adapters.openai.chat.adapter import factory as chat
from adapters.openai.responses.adapter import factory as responses
from gateway.ports.adapter import AnyAdapterFactory
from gateway.ports.capabilities import HasBackend
from tests.adapters.emulator_support import KEY, Build, Start, settings
from tests.adapters.openai.openai_support import finished
from tests.adapters.raw_server import Exchange, StartRaw, plain
from tests.emulators.chat import ChatServer
from tests.emulators.responses_server import ResponsesServer

_KEY = {"type": "api_key", "header": "api-key", "key": "key-of-azure"}


@pytest.mark.parametrize(
    ("factory", "server"), [(responses, ResponsesServer), (chat, ChatServer)], ids=["responses", "chat"]
)
class TestRequests:
    async def test_a_key_goes_in_a_header_of_its_own(
        self, factory: AnyAdapterFactory, server: Any, start: Start, build: Build
    ) -> None:
        emulator = server()
        await finished(build(factory, await start(emulator), api_key=None, auth=_KEY))
        assert emulator.headers[0]["api-key"] == "key-of-azure"
        assert "authorization" not in emulator.headers[0]

    async def test_a_token_is_fetched_for_the_first_turn_and_used_for_the_next(
        self, factory: AnyAdapterFactory, server: Any, raw: StartRaw, start: Start, build: Build
    ) -> None:
        async def grant(exchange: Exchange) -> None:
            body = msgspec.json.encode({"access_token": "token-of-server", "token_type": "Bearer", "expires_in": 3600})
            await exchange.send(plain("200 OK", body))

        emulator, tokens = server(), await raw(grant)
        auth = {"type": "oauth2", "token_url": f"{tokens.url}/token", "client_id": "c", "client_secret": "secret"}
        adapter = build(factory, await start(emulator), api_key=None, auth=auth)
        for _ in range(2):
            await finished(adapter)
        assert [headers["authorization"] for headers in emulator.headers] == ["Bearer token-of-server"] * 2
        assert len(tokens.requests) == 1

    def test_a_request_has_one_credential(self, factory: AnyAdapterFactory, server: Any) -> None:
        with pytest.raises(ValidationError, match="'api_key' and 'auth' exclude each other"):
            factory.settings.model_validate(settings("http://localhost", api_key=KEY, auth=_KEY))

    def test_agents_with_other_credentials_have_accounts_of_their_own(
        self, factory: AnyAdapterFactory, server: Any
    ) -> None:
        accounts = set()
        for key in ("one-key", "other-key"):
            given = settings("http://localhost", api_key=None, auth=_KEY | {"key": key})
            adapter = factory.build(factory.settings.model_validate(given))
            assert isinstance(adapter, HasBackend)
            accounts.add(adapter.backend)
        assert len(accounts) == 2
