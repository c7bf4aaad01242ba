"""The secrets of a push configuration, sealed for the database and for the address of the receiver."""

import msgspec

from gateway.foundation.sealing import Seal, UnreadableSecret


class Secrets(msgspec.Struct, frozen=True, omit_defaults=True):
    """Values that the receiver expects in a request."""

    token: str | None = None
    credentials: str | None = None


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Secrets)


class SecretBox:
    """`material` is the setting `push.encryption_key`, or the ledger's own secret."""

    def __init__(self, material: bytes) -> None:
        self._seal = Seal(material, b"push credentials", b"push key id")

    def seal(self, secrets: Secrets, place: str) -> bytes:
        return self._seal.close(_encoder.encode(secrets), place)

    def open(self, sealed: bytes, place: str) -> Secrets:
        """Raises: UnreadableSecret."""
        plain = self._seal.open(sealed, place)
        try:
            return _decoder.decode(plain)
        except ValueError as error:
            raise UnreadableSecret("not what was sealed for this place") from error
