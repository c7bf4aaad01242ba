"""Signatures of notifications, which receivers check with the gateway's public key. Law: the private key is derived, never
stored; every process of one database has the same key."""

import hashlib

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from joserfc import jwt
from joserfc.jwk import ECKey

from gateway.foundation.sealing import derive_key
from gateway.foundation.signing_keys import SigningKey

_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
"""The order of the curve P-256."""

_LIFETIME = 300


class Signer:
    """`issuer` is the gateway's public URL, below which the gateway serves its public keys."""

    def __init__(self, material: bytes, issuer: str) -> None:
        # 16 bytes more than the order has make all keys equally likely.
        number = int.from_bytes(derive_key(material, b"push signing key", 48)) % (_ORDER - 1) + 1
        private = ec.derive_private_key(number, ec.SECP256R1())
        key = ECKey.import_key(private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        self.key = SigningKey(key, "ES256")
        self._issuer = issuer

    def sign(self, audience: str, message_id: str, task: str, body: bytes, now: int) -> str:
        """A JWT over the digest of the body. `now` is in seconds."""
        claims = {
            "iss": self._issuer,
            "aud": audience,
            "iat": now,
            "exp": now + _LIFETIME,
            "jti": message_id,
            "taskId": task,
            "request_body_sha256": hashlib.sha256(body).hexdigest(),
        }
        return jwt.encode({"alg": self.key.algorithm, "typ": "JWT", "kid": self.key.kid}, claims, self.key.key)
