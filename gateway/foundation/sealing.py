"""Values encrypted for the database. Law: AES-GCM, bound to a place: at another place the ciphertext cannot be opened."""

import os
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_FORMAT = 1
_KEY_ID = 4
_NONCE = 12


class UnreadableSecret(Exception):
    """Sealed with another key, or for another place."""


class Seal:
    """`material` is a setting, or a secret of the ledger. `key` and `key_id` name the purposes of the key and of its id."""

    def __init__(self, material: bytes, key: bytes, key_id: bytes) -> None:
        self._material = material
        self._key = key
        self._key_id = key_id

    def close(self, plain: bytes, place: str) -> bytes:
        """The format, the key id, the nonce, then the ciphertext."""
        nonce = os.urandom(_NONCE)
        return self._head + nonce + self._cipher.encrypt(nonce, plain, self._head + place.encode())

    def open(self, sealed: bytes, place: str) -> bytes:
        """Raises: UnreadableSecret."""
        from cryptography.exceptions import InvalidTag

        head = self._head
        if not sealed.startswith(head):
            raise UnreadableSecret("sealed with another key")
        nonce, rest = sealed[len(head) : len(head) + _NONCE], sealed[len(head) + _NONCE :]
        try:
            return self._cipher.decrypt(nonce, rest, head + place.encode())
        except (InvalidTag, ValueError) as error:
            raise UnreadableSecret("not what was sealed for this place") from error

    @cached_property
    def _cipher(self) -> "AESGCM":
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        return AESGCM(derive_key(self._material, self._key, 32))

    @cached_property
    def _head(self) -> bytes:
        return bytes([_FORMAT]) + derive_key(self._material, self._key_id, _KEY_ID)


def derive_key(material: bytes, purpose: bytes, length: int) -> bytes:
    """A key for one purpose."""
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    return HKDF(SHA256(), length, salt=None, info=b"a2a-gateway " + purpose).derive(material)
