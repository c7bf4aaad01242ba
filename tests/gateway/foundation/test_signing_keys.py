"""Keys in PEM: which are read, how they are named and published."""

import json

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from joserfc import jws
from joserfc.jwk import KeySet

from gateway.foundation.signing_keys import key_set, read_key

EC = ec.generate_private_key(ec.SECP256R1())
RSA = rsa.generate_private_key(65537, 2048)
Private = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey | ed25519.Ed25519PrivateKey


def private(key: Private, form: PrivateFormat = PrivateFormat.PKCS8, passphrase: bytes | None = None) -> str:
    encryption = NoEncryption() if passphrase is None else BestAvailableEncryption(passphrase)
    return key.private_bytes(Encoding.PEM, form, encryption).decode()


def public(key: Private) -> str:
    return key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()


@pytest.mark.parametrize(
    ("key", "algorithm"), [(EC, "ES256"), (ec.generate_private_key(ec.SECP384R1()), "ES384"), (RSA, "RS256")]
)
@pytest.mark.parametrize("form", [PrivateFormat.PKCS8, PrivateFormat.TraditionalOpenSSL])
def test_what_a_key_signs_verifies_with_its_public_half(key: Private, algorithm: str, form: PrivateFormat) -> None:
    signing = read_key(private(key, form))
    token = signing.sign({"typ": "JOSE"}, b"payload")
    verified = jws.deserialize_compact(token, KeySet.import_key_set(json.loads(key_set([signing]))), [algorithm])
    assert verified.payload == b"payload"
    assert verified.headers() == {"alg": algorithm, "typ": "JOSE", "kid": signing.kid}


@pytest.mark.parametrize("key", [EC, RSA])
def test_both_halves_of_a_key_have_one_name_and_only_the_public_one_is_published(key: Private) -> None:
    signing, verifying = read_key(private(key)), read_key(public(key))
    assert (signing.is_private, verifying.is_private) == (True, False)
    assert key_set([signing, verifying]) == key_set([verifying])
    [published] = json.loads(key_set([signing]))["keys"]
    assert not {"d", "p", "q", "dp", "dq", "qi"} & set(published)
    assert (published["kid"], published["use"]) == (signing.kid, "sig")


@pytest.mark.parametrize(
    ("pem", "problem"),
    [
        ("secret words", "in PEM"),
        ("-----BEGIN PUBLIC KEY-----\nsecret\n-----END PUBLIC KEY-----", "in PEM"),
        (private(EC, passphrase=b"word"), "without a passphrase"),
        (private(ec.generate_private_key(ec.SECP521R1())), "P-256 or P-384"),
        (private(ed25519.Ed25519PrivateKey.generate()), "P-256 or P-384"),
        (private(rsa.generate_private_key(65537, 1024)), "2048 bits"),
    ],
    ids=["text", "damaged", "encrypted", "another curve", "another kind", "short"],
)
def test_another_key_is_refused_without_being_repeated(pem: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem) as refused:
        read_key(pem)
    assert "secret" not in str(refused.value)
