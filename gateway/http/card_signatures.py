"""Signatures of agent cards: JWS over canonical JSON. Law: the JSON that is given is what is signed, without its signatures.

Source: A2A 1.0, section 8.4; RFC 7515; RFC 8785.
"""

import rfc8785

from gateway.a2a.model import AgentCardSignature, Json
from gateway.foundation.signing_keys import SigningKey


class CardSigner:
    """`key` is a private one, `jwks_url` the address of its public half."""

    def __init__(self, key: SigningKey, jwks_url: str) -> None:
        self._key = key
        self._header = {"typ": "JOSE", "jku": jwks_url}

    def sign(self, card: dict[str, Json]) -> AgentCardSignature:
        """Raises: ValueError for a number that canonical JSON does not have."""
        payload = {name: value for name, value in card.items() if name != "signatures"}
        protected, _, signature = self._key.sign(self._header, rfc8785.dumps(payload)).split(".")
        return AgentCardSignature(protected=protected, signature=signature)
