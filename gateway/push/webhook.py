"""The headers of a webhook request, and the outcome of a post. Law: pure; every attempt for one event has the same id.

Source: A2A 1.0, sections 4.3.3 and 13.2; Standard Webhooks 1.0.
"""

import hashlib
from base64 import b64encode
from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from gateway.foundation.addresses import origin
from gateway.ledger.push import PushConfig
from gateway.push.secrets import SecretBox, Secrets

if TYPE_CHECKING:
    from gateway.push.signatures import Signer

CONTENT_TYPES: Mapping[str, str] = {
    "1.0": "application/a2a+json",
    "1.1": "application/a2a+json",
    "0.3": "application/json",
}
"""The content type of the bodies of each version of A2A."""


class Outcome(msgspec.Struct, frozen=True):
    """The result of a post. When `status` is None, there was no response, and `error` is the reason. `retry_after` is
    in seconds."""

    status: int | None
    error: str = ""
    retry_after: float | None = None

    @property
    def delivered(self) -> bool:
        return self.status is not None and 200 <= self.status < 300

    @property
    def unwanted(self) -> bool:
        return self.status == 410

    def __str__(self) -> str:
        return self.error or f"HTTP {self.status}"


class WebhookRequests(msgspec.Struct, frozen=True):
    """Builds the headers of notifications."""

    box: SecretBox
    signer: "Signer | None" = None

    def headers(self, config: PushConfig, number: int, body: bytes, now: int) -> dict[str, str]:
        """`now` is in seconds. Raises: UnreadableSecret."""
        secrets = self.box.open(config.sealed, config.url) if config.sealed is not None else Secrets()
        message_id = webhook_id(config, number)
        headers = {
            "Content-Type": CONTENT_TYPES[config.version],
            "A2A-Version": config.version,
            "webhook-id": message_id,
            "webhook-timestamp": str(now),
        }
        if secrets.token is not None:
            headers["X-A2A-Notification-Token"] = secrets.token
        if config.scheme is not None and secrets.credentials is not None:
            credentials = secrets.credentials
            if config.scheme.lower() == "basic" and ":" in credentials:
                # Plain `user:password`: base64 has no colon.
                credentials = b64encode(credentials.encode()).decode()
            headers["Authorization"] = f"{config.scheme} {credentials}"
        if self.signer is not None:
            audience = origin(config.url)
            signature = self.signer.sign(audience, message_id, config.task, body, now)
            headers["X-A2A-Notification-Signature"] = signature
            if (config.scheme or "").lower() == "bearer":
                headers.setdefault("Authorization", f"Bearer {signature}")
        return headers


def webhook_id(config: PushConfig, number: int) -> str:
    """The same for every attempt, and in every process."""
    named = "\n".join((config.task, config.id, str(number)))
    return f"msg_{hashlib.sha256(named.encode()).hexdigest()[:32]}"
