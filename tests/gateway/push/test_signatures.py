"""Signatures of notifications verify with the published keys, and with no others."""

import hashlib
import json

import pytest
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet

from gateway.foundation.signing_keys import key_set
from gateway.push.signatures import Signer

BODY = b'{"statusUpdate":{}}'


def signer(material: bytes = b"m" * 32) -> Signer:
    return Signer(material, "https://gateway.example")


def published(by: Signer) -> bytes:
    return key_set([by.key])


def signed(by: Signer) -> str:
    return by.sign("https://hook.example", "msg_1", "task-1", BODY, 1_795_000_000)


def test_a_receiver_verifies_issuer_audience_time_and_body_with_the_published_key() -> None:
    keys = KeySet.import_key_set(json.loads(published(signer())))
    token = jwt.decode(signed(signer()), keys, algorithms=["ES256"])
    assert token.header["typ"] == "JWT"
    assert token.claims == {
        "iss": "https://gateway.example",
        "aud": "https://hook.example",
        "iat": 1_795_000_000,
        "exp": 1_795_000_300,
        "jti": "msg_1",
        "taskId": "task-1",
        "request_body_sha256": hashlib.sha256(BODY).hexdigest(),
    }


def test_only_the_public_half_of_the_key_is_published() -> None:
    [key] = json.loads(published(signer()))["keys"]
    assert sorted(key) == ["alg", "crv", "kid", "kty", "use", "x", "y"]


def test_every_process_of_one_database_has_the_same_key_and_no_other_has_it() -> None:
    assert published(signer()) == published(signer())
    assert published(signer()) != published(signer(b"n" * 32))


def test_a_signature_with_another_key_is_refused() -> None:
    keys = KeySet.import_key_set(json.loads(published(signer())))
    with pytest.raises((JoseError, ValueError)):
        jwt.decode(signed(signer(b"n" * 32)), keys, algorithms=["ES256"])
