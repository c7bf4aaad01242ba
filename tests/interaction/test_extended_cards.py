"""The extended card on the wire, over both bindings: who gets it, what it says, and its signature."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from textwrap import indent
from typing import Any

import httpx2
import jwt
import pytest
from a2a.client.card_resolver import parse_agent_card
from a2a.utils.signing import create_signature_verifier
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from gateway.config.loader import load
from gateway.config.plugins import Registry
from tests.a2a_client import a2a_http
from tests.interaction.harness import Binding, Refusal
from tests.interaction.test_keys import ASKED, BAD_KEY, NO_KEY, ask, issue
from tests.running import Local, local_gateway

PLAIN = "echo: {type: python, ref: 'gateway.cli.demo.agent:reply'}"
AGENTS = """\
echo:
  type: python
  ref: gateway.cli.demo.agent:reply
  card:
    skills: [{id: ask, name: Ask, description: Answers, tags: [t]}]
    extended:
      skills:
        - {id: refund, name: Refund, description: Pays back, tags: [t], principals: ["staff-*"]}
        - {id: order, name: Order, description: Orders, tags: [t]}
"""
CARD = "/a2a/echo/.well-known/agent-card.json"
EXTENDED = "/a2a/echo/extendedAgentCard"


def key_file(folder: Path, name: str) -> ec.EllipticCurvePrivateKey:
    key = ec.generate_private_key(ec.SECP256R1())
    (folder / name).write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    (folder / f"public-{name}").write_bytes(public)
    return key


def signing(*files: str) -> str:
    keys = ", ".join(f"'${{file:{file}}}'" for file in files)
    return f"{ASKED}\ncards: {{signing: {{keys: [{keys}]}}}}"


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Local]:
    key_file(tmp_path, "key.pem")
    async with local_gateway(AGENTS, tmp_path, settings=signing("key.pem")) as gateway:
        yield gateway


@pytest.fixture
async def http(gateway: Local) -> AsyncIterator[httpx2.AsyncClient]:
    async with a2a_http(gateway.url) as http:
        yield http


async def verify(http: httpx2.AsyncClient, card: dict[str, Any]) -> None:
    """As a client does that trusts this gateway. Raises: InvalidSignaturesError."""
    published = {key["kid"]: jwt.PyJWK(key) for key in (await http.get("/.well-known/jwks.json")).json()["keys"]}

    def provide(kid: str | None, jku: str | None) -> jwt.PyJWK:
        assert jku == f"{http.base_url}".rstrip("/") + "/.well-known/jwks.json"
        return published[kid or ""]

    create_signature_verifier(provide, ["ES256"])(parse_agent_card(json.loads(json.dumps(card))))


def skills(card: dict[str, Any]) -> list[str]:
    return [skill["id"] for skill in card["skills"]]


async def extended(http: httpx2.AsyncClient, binding: Binding, key: str) -> dict[str, Any]:
    answer = await ask(http, binding, "GetExtendedAgentCard", {}, x_api_key=key, a2a_version="1.0")
    card: dict[str, Any] = answer.json().get("result") or answer.json()
    return card


@pytest.mark.parametrize(("principal", "seen"), [("ada", ["ask", "order"]), ("staff-1", ["ask", "refund", "order"])])
async def test_each_principal_gets_a_signed_card_with_its_skills(
    gateway: Local, http: httpx2.AsyncClient, binding: Binding, principal: str, seen: list[str]
) -> None:
    public = (await http.get(CARD)).json()
    card = await extended(http, binding, await issue(gateway, principal))
    assert (skills(public), public["capabilities"]["extendedAgentCard"]) == (["ask"], True)
    assert (skills(card), card["capabilities"]) == (seen, public["capabilities"])
    await verify(http, public)
    await verify(http, card)
    # One signature for those who know the members of A2A 1.0 alone, and one for those who take the card as it is.
    assert [len(each["signatures"]) for each in (public, card)] == [2, 2]


async def test_without_credentials_there_is_no_extended_card(http: httpx2.AsyncClient, binding: Binding) -> None:
    for headers, refusal in (({}, NO_KEY), ({"x_api_key": "wrong"}, BAD_KEY)):
        answer = await ask(http, binding, "GetExtendedAgentCard", {}, a2a_version="1.0", **headers)
        assert (answer.status_code, answer.json()) == binding.refusal(refusal, identified=False)


async def test_credentials_change_nothing_about_public_documents(gateway: Local, http: httpx2.AsyncClient) -> None:
    headers = {"x-api-key": await issue(gateway, "staff-1")}
    for target in (CARD, "/a2a", "/.well-known/agent-card.json", "/.well-known/jwks.json"):
        public, known = await http.get(target), await http.get(target, headers=headers)
        assert known.content == public.content
        assert known.headers["cache-control"] == "public, max-age=300"
        assert "vary" not in known.headers


async def test_an_extended_card_is_revalidated_for_each_caller(gateway: Local, http: httpx2.AsyncClient) -> None:
    ada, staff = [{"x-api-key": await issue(gateway, name), "a2a-version": "1.0"} for name in ("ada", "staff-1")]
    card = await http.get(EXTENDED, headers=ada)
    assert (card.headers["cache-control"], card.headers["vary"]) == (
        "private, no-cache",
        "authorization, x-api-key, a2a-version, accept",
    )
    assert card.headers["etag"].startswith("W/")  # a signature is another one each time
    known = {"if-none-match": card.headers["etag"]}
    assert (await http.get(EXTENDED, headers=ada | known)).status_code == 304
    assert (await http.get(EXTENDED, headers=staff | known)).status_code == 200


async def test_a_new_key_signs_after_a_reload_and_the_old_one_still_verifies(tmp_path: Path) -> None:
    key_file(tmp_path, "old.pem")
    key_file(tmp_path, "new.pem")
    async with local_gateway(AGENTS, tmp_path, settings=signing("old.pem")) as gateway, a2a_http(gateway.url) as http:
        old = (await http.get(CARD)).json()
        text = f"version: 1\n{signing('new.pem', 'public-old.pem')}\nagents:\n{indent(AGENTS, '  ')}"
        overrides = {"server.public_url": gateway.url}
        await gateway.gateway.reload(
            load(text, source="t.yaml", env={}, plugins=Registry(), base_dir=tmp_path, overrides=overrides)
        )
        new = (await http.get(CARD)).json()
        assert old["signatures"][0]["protected"] != new["signatures"][0]["protected"]
        await verify(http, old)
        await verify(http, new)


async def test_without_one_the_public_card_says_so_and_the_operation_is_not_supported(
    tmp_path: Path, binding: Binding
) -> None:
    async with local_gateway(PLAIN, tmp_path, settings=ASKED) as gateway, a2a_http(gateway.url) as http:
        public = (await http.get(CARD)).json()
        key = await issue(gateway, "ada")
        answer = await ask(http, binding, "GetExtendedAgentCard", {}, x_api_key=key, a2a_version="1.0")
    assert public["capabilities"]["extendedAgentCard"] is False
    text = "The agent 'echo' has no extended card."
    refusal = Refusal(-32004, 400, "FAILED_PRECONDITION", "UNSUPPORTED_OPERATION", text)
    assert (answer.status_code, answer.json()) == binding.refusal(refusal)


async def test_without_one_a_caller_of_a2a_0_3_hears_that_none_is_configured(tmp_path: Path) -> None:
    async with local_gateway(PLAIN, tmp_path, settings=ASKED) as gateway, a2a_http(gateway.url) as http:
        headers = {"x-api-key": await issue(gateway, "ada"), "a2a-version": "0.3"}
        body = {"jsonrpc": "2.0", "id": 1, "method": "agent/getAuthenticatedExtendedCard"}
        answer = await http.post("/a2a/echo", json=body, headers=headers)
        by_rest = await http.get("/a2a/echo/v1/card", headers=headers)
    assert answer.json()["error"]["code"] == -32007
    assert (by_rest.status_code, by_rest.json()["code"]) == (404, -32007)


async def test_an_extended_card_needs_callers_who_say_who_they_are(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"agents\.echo: card\.extended .* auth\.mode is none"):
        async with local_gateway(AGENTS, tmp_path):
            raise AssertionError("it started")
