"""Signed cards: the official SDK's verifier and one that takes the document as it is both accept them, and no changed one."""

import base64
import json
from collections.abc import Callable
from typing import Any

import jwt
import pytest
import rfc8785
from a2a.client.card_resolver import parse_agent_card
from a2a.utils.signing import InvalidSignaturesError, create_signature_verifier
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from joserfc import jws
from joserfc.errors import BadSignatureError
from joserfc.jwk import KeySet

from gateway.config.agents import CardConfig, ExtensionConfig, SkillConfig
from gateway.config.gateway import ProviderConfig
from gateway.core.agents import Agent, Agents
from gateway.foundation.signing_keys import SigningKey, key_set, read_key
from gateway.http.card_signatures import CardSigner
from gateway.http.cards import Cards, build_card, signed
from tests.gateway.http.test_documents import STARTED
from tests.interaction import asgi
from tests.interaction.harness import URL, Unused

Json = dict[str, Any]
JWKS = f"{URL}/.well-known/jwks.json"
CARD = CardConfig(
    name="Zoë \u2028 \U0001f600",
    description='Says "it" again.\n',
    documentation_url="https://d.example",
    icon_url="https://i.example",
    tenant="acme",
    skills=(
        SkillConfig(id="s", name="S", description="Does", tags=("t",), examples=("ä",), input_modes=("image/png",)),
    ),
    extensions=(
        ExtensionConfig(
            uri="https://e.example",
            params={
                "b": 1,
                "a": [0.1, 1e21, 5e-324, -0.0, 3.0, True],
                "\u20ac": {"n": "\u20ac"},
                "\U0001f600": 2,
            },
        ),
    ),
)


def new_key() -> SigningKey:
    private = ec.generate_private_key(ec.SECP256R1())
    return read_key(private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode())


KEY, OTHER = new_key(), new_key()


async def served(key: SigningKey, *, api_keys: bool = False, target: str = "/") -> asgi.Answer:
    signer = CardSigner(key, JWKS)
    provider = ProviderConfig(organization="O", url="https://o.example")
    card = build_card("a", CARD, URL, provider=provider, api_keys=api_keys)
    cards = Cards(Agents((Agent("a", signed(card, signer), Unused()),)), URL, STARTED)
    return await asgi.request(cards if target == "/" else cards.serve_list, "GET", target)


def sdk_verifies(card: Json, *keys: SigningKey) -> None:
    """Raises: InvalidSignaturesError. As a2a-sdk's card resolver does it."""
    published = {key.kid: jwt.PyJWK(dict(key.public)) for key in keys}

    def provide(kid: str | None, jku: str | None) -> jwt.PyJWK:
        assert jku == JWKS
        if kid not in published:
            raise jwt.PyJWTError("unknown key")
        return published[kid]

    create_signature_verifier(provide, ["ES256"])(parse_agent_card(json.loads(json.dumps(card))))


def verifies_as_it_is(card: Json, key: SigningKey) -> bool:
    """For a verifier that knows nothing of the members of a card."""
    payload = rfc8785.dumps({name: value for name, value in card.items() if name != "signatures"})
    encoded = base64.urlsafe_b64encode(payload).rstrip(b"=").decode()
    keys = KeySet.import_key_set(json.loads(key_set([key])))
    for one in card["signatures"]:
        try:
            jws.deserialize_compact(f"{one['protected']}.{encoded}.{one['signature']}", keys, ["ES256"])
        except BadSignatureError:
            continue
        return True
    return False


@pytest.mark.parametrize("api_keys", [False, True])
async def test_a_signed_card_verifies(api_keys: bool) -> None:
    card = (await served(KEY, api_keys=api_keys)).json
    sdk_verifies(card, KEY)
    assert verifies_as_it_is(card, KEY)


CHANGES: list[Callable[[Json], Any]] = [
    lambda card: card.update(name="Another"),
    lambda card: card.update(iconUrl="https://another.example"),
    lambda card: card.pop("provider"),
    lambda card: card["supportedInterfaces"][0].update(url="https://another.example"),
    lambda card: card["supportedInterfaces"].reverse(),
    lambda card: card["capabilities"].update(pushNotifications=True),
    lambda card: card["capabilities"].pop("pushNotifications"),
    lambda card: card["skills"].append({"id": "x", "name": "X", "description": "X", "tags": ["x"]}),
    lambda card: card["capabilities"]["extensions"][1]["params"].update(b=2),
    lambda card: card["securitySchemes"].pop("bearer"),
    lambda card: card["securitySchemes"]["apiKey"]["apiKeySecurityScheme"].update(name="X"),
]


@pytest.mark.parametrize("change", CHANGES)
async def test_a_changed_card_does_not_verify(change: Callable[[Json], Any]) -> None:
    card = (await served(KEY, api_keys=True)).json
    change(card)
    for scheme in card["securitySchemes"].values():
        # Else the SDK reads the form of 0.3, which did not change.
        scheme.pop("type")
    with pytest.raises(InvalidSignaturesError):
        sdk_verifies(card, KEY)
    assert not verifies_as_it_is(card, KEY)


async def test_a_key_that_is_not_the_gateways_does_not_verify() -> None:
    card = (await served(KEY)).json
    with pytest.raises(InvalidSignaturesError):
        sdk_verifies(card, OTHER)


async def test_a_signature_names_its_algorithm_its_key_and_where_that_is() -> None:
    signatures = (await served(KEY, api_keys=True)).json["signatures"]
    for signature in signatures:
        protected = json.loads(base64.urlsafe_b64decode(signature["protected"] + "=="))
        assert protected == {"alg": "ES256", "typ": "JOSE", "jku": JWKS, "kid": KEY.kid}
        assert sorted(signature) == ["protected", "signature"]
    assert len(signatures) == 2


async def test_the_members_of_0_3_are_signed_for_who_reads_them() -> None:
    card = (await served(KEY, api_keys=True)).json
    card["security"].pop()
    sdk_verifies(card, KEY)
    assert not verifies_as_it_is(card, KEY)


async def test_what_an_old_key_has_signed_verifies_while_that_key_is_published() -> None:
    old = (await served(OTHER)).json
    sdk_verifies(old, KEY, OTHER)


@pytest.mark.parametrize("target", ["/", "/a2a"])
async def test_two_processes_name_one_card_alike_and_that_of_another_key_otherwise(target: str) -> None:
    one, two, other = [await served(key, target=target) for key in (KEY, KEY, OTHER)]
    assert one.body != two.body
    assert one.header("etag") == two.header("etag") != other.header("etag")


async def test_the_cards_in_the_list_are_signed() -> None:
    [card] = (await served(KEY, target="/a2a")).json["agents"]
    sdk_verifies(card, KEY)


def test_a_number_without_a_canonical_form_is_an_error_of_the_configuration() -> None:
    extension = ExtensionConfig(uri="https://e.example", params={"n": 2**60})
    with pytest.raises(ValueError, match="safe"):
        signed(build_card("a", CardConfig(extensions=(extension,)), URL), CardSigner(KEY, JWKS))
