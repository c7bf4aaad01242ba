"""Keys on the wire, over both bindings: which are accepted, the errors, and what is public."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest

from gateway.config.loader import load
from gateway.config.plugins import Registry
from gateway.ledger.api_keys import ApiKey, IssueKey, RevokeKey, digest_of, new_key, shown
from tests.a2a_client import A2A, a2a_http, user_message
from tests.interaction.harness import Binding, Refusal
from tests.running import Local, child_gateways, local_gateway
from tests.support.core import BOUND
from tests.support.stores import open_store

AGENTS = 'echo: {type: python, ref: "gateway.cli.demo.agent:reply", card: {tenant: acme}}'
ASKED = "auth: {mode: any_of, api_keys: {enabled: true}}"
NO_KEY = Refusal(
    -32600,
    401,
    "UNAUTHENTICATED",
    "UNAUTHENTICATED",
    "this needs an API key, as Authorization: Bearer KEY or as X-API-Key: KEY",
    rpc_http=401,
)
BAD_KEY = Refusal(-32600, 401, "UNAUTHENTICATED", "UNAUTHENTICATED", "the API key is not valid", rpc_http=401)


@dataclass(frozen=True, slots=True)
class Stored:
    """The database of a gateway in another process."""

    database: Path

    def bytes(self) -> bytes:
        """The bytes of the file, its log and all files beside it."""
        return b"".join(file.read_bytes() for file in self.database.parent.iterdir() if file.is_file())


async def issue(
    gateway: Local | Stored, principal: str, *, name: str | None = None, tenant: str = "", admin: bool = False
) -> str:
    """In the way of another process."""
    secret = new_key()
    key = ApiKey(digest_of(secret), name or principal, shown(secret), principal, tenant, admin, 1)
    async with open_store(gateway.database) as ledger:
        await ledger.commit(IssueKey(key))
    return secret


async def revoke(gateway: Local | Stored, name: str) -> None:
    async with open_store(gateway.database) as ledger:
        await ledger.commit(RevokeKey(name, 2))


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Local]:
    async with local_gateway(AGENTS, tmp_path, settings=ASKED) as gateway:
        yield gateway


@pytest.fixture
async def http(gateway: Local) -> AsyncIterator[httpx2.AsyncClient]:
    async with a2a_http(gateway.url) as http:
        yield http


async def ask(
    http: httpx2.AsyncClient, binding: Binding, operation: str, params: dict[str, Any], **headers: str
) -> httpx2.Response:
    exchange = binding.ask(operation, params)
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    if exchange.body:
        sent["content-type"] = "application/json"
    return await http.request(exchange.method, exchange.target, content=exchange.body, headers=sent)


async def test_without_a_key_nothing_is_done_and_the_caller_learns_which_credentials_are_needed(
    http: httpx2.AsyncClient, binding: Binding
) -> None:
    answer = await ask(http, binding, "SendMessage", {"message": user_message("Hello")})
    assert (answer.status_code, answer.json()) == binding.refusal(NO_KEY, identified=False)
    assert answer.headers["www-authenticate"] == 'Bearer realm="a2a-gateway"'


async def test_a_wrong_key_is_refused_without_being_repeated(http: httpx2.AsyncClient, binding: Binding) -> None:
    key = new_key()
    answer = await ask(http, binding, "ListTasks", {}, authorization=f"Bearer {key}")
    assert (answer.status_code, answer.json()) == binding.refusal(BAD_KEY, identified=False)
    assert answer.headers["www-authenticate"] == 'Bearer realm="a2a-gateway", error="invalid_token"'
    assert key[6:].encode() not in answer.content


@pytest.mark.parametrize("target", ["/a2a/nobody", "/a2a/echo/tasks/none", "/a2a/echo/message:send"])
async def test_without_a_key_nothing_is_disclosed(http: httpx2.AsyncClient, target: str) -> None:
    assert (await http.post(target, json={})).status_code in {401, 405}


@pytest.mark.parametrize("header", ["authorization", "x_api_key"])
async def test_a_key_in_either_header_opens_every_operation(
    gateway: Local, http: httpx2.AsyncClient, binding: Binding, header: str
) -> None:
    key = await issue(gateway, "ada")
    value = f"Bearer {key}" if header == "authorization" else key
    sent = await ask(http, binding, "SendMessage", {"message": user_message("Hello")}, **{header: value})
    assert sent.status_code == 200
    assert "task" in (sent.json().get("result") or sent.json())


async def test_a_revoked_key_is_refused_by_a_gateway_that_runs(gateway: Local, http: httpx2.AsyncClient) -> None:
    key = await issue(gateway, "ada")
    headers = {"X-API-Key": key}
    assert (await http.get("/a2a/echo/tasks", headers=headers)).status_code == 200
    await revoke(gateway, "ada")
    async with asyncio.timeout(BOUND):
        while (await http.get("/a2a/echo/tasks", headers=headers)).status_code != 401:
            pass


async def test_a_stream_that_is_open_with_a_key_ends_with_an_error_when_that_is_revoked(
    tmp_path: Path, binding: Binding
) -> None:
    (tmp_path / "held.py").write_text(
        "import asyncio\n\n\nasync def reply(turn):\n    yield 'one'\n    await asyncio.Event().wait()\n"
    )
    agents = "echo: {type: python, ref: './held.py:reply'}"
    async with local_gateway(agents, tmp_path, settings=ASKED) as gateway, a2a_http(gateway.url) as http:
        key, other = await issue(gateway, "ada"), await issue(gateway, "ada", name="another")
        exchange = binding.ask("SendStreamingMessage", {"message": user_message("Hello")})
        headers = {"content-type": "application/json", "X-API-Key": key}
        async with (
            asyncio.timeout(BOUND),
            http.stream(exchange.method, exchange.target, content=exchange.body, headers=headers) as stream,
        ):
            lines = aiter(stream.aiter_lines())
            while "artifactUpdate" not in await anext(lines):
                pass
            await revoke(gateway, "ada")
            rest = [line async for line in lines if line]
        assert rest[0] == "event: error"
        assert "the API key is not valid any more" in rest[1]
        [task] = (await http.get("/a2a/echo/tasks", headers={"X-API-Key": other})).json()["tasks"]
        assert task["status"]["state"] == "TASK_STATE_WORKING"


async def test_cards_and_health_are_public(http: httpx2.AsyncClient) -> None:
    for path in ("/.well-known/agent-card.json", "/a2a/echo/.well-known/agent-card.json", "/a2a", "/livez", "/readyz"):
        assert (await http.get(path)).status_code == 200


@pytest.mark.parametrize("path", ["/", "//a2a/echo", "/A2A/echo", "/a2ab", "/livez/", "/.well-known/x"])
async def test_an_address_of_no_kind_is_not_found_in_json(http: httpx2.AsyncClient, path: str) -> None:
    answer = await http.get(f"{http.base_url}".rstrip("/") + path)
    below = await http.get("/a2a/echo/no/such/address/at/all")
    assert (answer.status_code, answer.headers["content-type"]) == (404, "application/json")
    assert answer.content == below.content


async def test_the_card_says_which_keys_it_takes_in_both_versions(http: httpx2.AsyncClient) -> None:
    card = (await http.get("/.well-known/agent-card.json")).json()
    assert {name: set(scheme) for name, scheme in card["securitySchemes"].items()} == {
        "bearer": {"httpAuthSecurityScheme", "type", "scheme", "description"},
        "apiKey": {"apiKeySecurityScheme", "type", "in", "name", "description"},
    }
    assert card["securityRequirements"] == [
        {"schemes": {"bearer": {"list": []}}},
        {"schemes": {"apiKey": {"list": []}}},
    ]
    assert card["security"] == [{"bearer": []}, {"apiKey": []}]


async def test_the_official_sdk_reads_what_the_card_requires(http: httpx2.AsyncClient) -> None:
    resolver = pytest.importorskip("a2a.client.card_resolver")
    card = resolver.parse_agent_card((await http.get("/.well-known/agent-card.json")).json())
    assert card.security_schemes["bearer"].http_auth_security_scheme.scheme.lower() == "bearer"
    key = card.security_schemes["apiKey"].api_key_security_scheme
    assert (key.location, key.name) == ("header", "X-API-Key")
    assert [set(requirement.schemes) for requirement in card.security_requirements] == [{"bearer"}, {"apiKey"}]


async def test_the_0_3_form_of_the_card_is_what_the_sdk_of_that_version_reads(http: httpx2.AsyncClient) -> None:
    types = pytest.importorskip("a2a.compat.v0_3.types")
    card = (await http.get("/.well-known/agent-card.json")).json()
    schemes = {
        name: types.SecurityScheme.model_validate(scheme).root for name, scheme in card["securitySchemes"].items()
    }
    assert (schemes["bearer"].type, schemes["bearer"].scheme) == ("http", "bearer")
    assert (schemes["apiKey"].type, schemes["apiKey"].in_.value, schemes["apiKey"].name) == (
        "apiKey",
        "header",
        "X-API-Key",
    )


async def test_the_admin_api_needs_an_admin_key(gateway: Local, http: httpx2.AsyncClient) -> None:
    ada, ops = await issue(gateway, "ada"), await issue(gateway, "ops", admin=True)
    requests = [("GET", "/c-1"), ("DELETE", "/c-1"), ("POST", ":import"), ("POST", ":adopt")]
    for method, path in requests:
        target = f"/admin/api/v1/contexts{path}"
        assert (await http.request(method, target, json={})).status_code == 401
        denied = await http.request(method, target, json={}, headers={"X-API-Key": ada})
        assert denied.status_code == 403
        assert denied.json()["error"]["status"] == "PERMISSION_DENIED"
        assert (await http.request(method, target, json={}, headers={"X-API-Key": ops})).status_code in {400, 404}


async def test_an_admin_reaches_only_their_own_contexts(gateway: Local, http: httpx2.AsyncClient) -> None:
    ada, ops = await issue(gateway, "ada"), await issue(gateway, "ops", admin=True)
    http.headers["X-API-Key"] = ada
    await A2A(http, "echo").send("Hello", "c-1")
    foreign = await http.get("/admin/api/v1/contexts/c-1", headers={"X-API-Key": ops})
    unknown = await http.get("/admin/api/v1/contexts/c-2", headers={"X-API-Key": ops})
    assert foreign.status_code == 404
    assert foreign.content.replace(b"c-1", b"c-2") == unknown.content


async def test_guessing_keys_is_slowed_down_and_a_valid_key_passes(
    gateway: Local, http: httpx2.AsyncClient, binding: Binding
) -> None:
    good = await issue(gateway, "ada")
    for _ in range(20):
        await http.get("/a2a/echo/tasks", headers={"X-API-Key": "guess"})
    limited = await ask(http, binding, "ListTasks", {}, x_api_key="guess")
    refusal = Refusal(
        -32603,
        429,
        "RESOURCE_EXHAUSTED",
        "TOO_MANY_REQUESTS",
        "Too many keys from this address were not valid.",
        rpc_http=429,
    )
    assert (limited.status_code, limited.json()) == binding.refusal(refusal, identified=False)
    assert 1 <= int(limited.headers["retry-after"]) <= 3
    assert (await ask(http, binding, "ListTasks", {}, x_api_key=good)).status_code == 200


async def test_authentication_can_be_turned_on_by_a_reload(tmp_path: Path) -> None:
    async with local_gateway(AGENTS, tmp_path) as gateway, a2a_http(gateway.url) as http:
        assert (await http.get("/a2a/echo/tasks")).status_code == 200
        asked = load(
            f"version: 1\n{ASKED}\nagents:\n  {AGENTS}",
            source="test.yaml",
            env={},
            plugins=Registry(),
            base_dir=tmp_path,
            overrides={"server.public_url": gateway.url},
        )
        await gateway.gateway.reload(asked)
        assert (await http.get("/a2a/echo/tasks")).status_code == 401
        assert "securitySchemes" in (await http.get("/.well-known/agent-card.json")).json()


async def test_no_key_is_left_in_a_log_or_in_the_database(tmp_path: Path) -> None:
    async with child_gateways(AGENTS, tmp_path, settings=f"{ASKED}\nserver: {{port: 0}}") as start:
        child = await start()
        stored = Stored(tmp_path / "gateway.db")
        good, revoked = await issue(stored, "ada"), await issue(stored, "bob")
        await revoke(stored, "bob")
        wrong = [revoked, new_key(), good + "x", "hunter2-hunter2-hunter2"]
        async with a2a_http(child.url) as http:
            headers = {"Authorization": f"Bearer {good}"}
            sent = await http.post("/a2a/echo/message:send", json={"message": user_message("Hello")}, headers=headers)
            assert sent.status_code == 200
            for key in wrong:
                assert (await http.get("/a2a/echo/tasks", headers={"X-API-Key": key})).status_code == 401
        await child.kill()
        written = bytes(child.output) + stored.bytes()
    assert written.count(b"auth.failed") == len(wrong)
    assert revoked[:12].encode() in child.output
    assert [key for key in (good, *wrong) if key[12:].encode() in written] == []
