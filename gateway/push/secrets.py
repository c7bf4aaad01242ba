"""The secrets of a push configuration, encrypted for the database. Law: AES-GCM, bound to the address of the receiver: with
another address the ciphertext cannot be opened."""

import os
from functools import cached_property
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_FORMAT = 1
_KEY_ID = 4
_NONCE = 12


class UnreadableSecret(Exception):
    """Sealed with another key, or for another place."""


class Secrets(msgspec.Struct, frozen=True, omit_defaults=True):
    """Values that the receiver expects in a request."""

    token: str | None = None
    credentials: str | None = None


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Secrets)


class SecretBox:
    """`material` is the setting `push.encryption_key`, or the ledger's own secret."""

    def __init__(self, material: bytes) -> None:
        self._material = material

    def seal(self, secrets: Secrets, place: str) -> bytes:
        """The format, the key id, the nonce, then the ciphertext."""
        head = bytes([_FORMAT]) + self._key_id
        nonce = os.urandom(_NONCE)
        return head + nonce + self._cipher.encrypt(nonce, _encoder.encode(secrets), head + place.encode())

    def open(self, sealed: bytes, place: str) -> Secrets:
        """Raises: UnreadableSecret."""
        from cryptography.exceptions import InvalidTag

        head = bytes([_FORMAT]) + self._key_id
        if not sealed.startswith(head):
            raise UnreadableSecret("sealed with another key")
        nonce, rest = sealed[len(head) : len(head) + _NONCE], sealed[len(head) + _NONCE :]
        try:
            return _decoder.decode(self._cipher.decrypt(nonce, rest, head + place.encode()))
        except (InvalidTag, ValueError) as error:
            raise UnreadableSecret("not what was sealed for this place") from error

    @cached_property
    def _cipher(self) -> "AESGCM":
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        return AESGCM(derive_key(self._material, b"push credentials", 32))

    @cached_property
    def _key_id(self) -> bytes:
        return derive_key(self._material, b"push key id", _KEY_ID)


def derive_key(material: bytes, purpose: bytes, length: int) -> bytes:
    """A key for one purpose."""
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    return HKDF(SHA256(), length, salt=None, info=b"a2a-gateway " + purpose).derive(material)
