"""Keys that sign what the gateway says, and their public halves as a JSON Web Key Set.

Law: what is published never has a private half; a key is named by its thumbprint (RFC 7638), so that every process gives it the
same name. Source: RFC 7515, 7517 and 7518.
"""

from collections.abc import Iterable

import msgspec
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_pem_public_key
from joserfc import jws
from joserfc.jwk import ECKey, RSAKey

_CURVES = {"secp256r1": "ES256", "secp384r1": "ES384"}
_RSA_BITS = 2048


class SigningKey(msgspec.Struct, frozen=True):
    """`algorithm` is the one name of JWA that the key is used with."""

    key: ECKey | RSAKey
    algorithm: str

    @property
    def is_private(self) -> bool:
        return self.key.is_private

    @property
    def kid(self) -> str:
        return self.key.thumbprint()

    @property
    def public(self) -> dict[str, str | list[str]]:
        """The JSON Web Key of the public half."""
        return {**self.key.as_dict(private=False), "use": "sig", "alg": self.algorithm, "kid": self.kid}

    def sign(self, header: dict[str, str], payload: bytes) -> str:
        """The compact JWS; `header` is protected, besides the names of the algorithm and the key."""
        named = {"alg": self.algorithm, **header, "kid": self.kid}
        return jws.serialize_compact(named, payload, self.key, algorithms=[self.algorithm])


def read_key(pem: str) -> SigningKey:
    """The key in a PEM file, private or public. Raises: ValueError, without the text of the file."""
    data = pem.encode()
    is_public = "-----BEGIN PUBLIC KEY-----" in pem
    try:
        key = load_pem_public_key(data) if is_public else load_pem_private_key(data, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        # The library's text may repeat what it could not read, and an encrypted key is a TypeError.
        raise ValueError("must be a key in PEM (BEGIN PRIVATE KEY or BEGIN PUBLIC KEY), without a passphrase") from None
    match key:
        case ec.EllipticCurvePrivateKey() | ec.EllipticCurvePublicKey() if key.curve.name in _CURVES:
            return SigningKey(ECKey.import_key(data), _CURVES[key.curve.name])
        case rsa.RSAPrivateKey() | rsa.RSAPublicKey() if key.key_size >= _RSA_BITS:
            return SigningKey(RSAKey.import_key(data), "RS256")
        case _:
            raise ValueError(f"must be a key of the curve P-256 or P-384, or of RSA with at least {_RSA_BITS} bits")


def key_set(keys: Iterable[SigningKey]) -> bytes:
    """The JSON Web Key Set of the public halves, each key once."""
    return msgspec.json.encode({"keys": list({key.kid: key.public for key in keys}.values())})
