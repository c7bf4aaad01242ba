"""The sections that change only with a restart, and digests by which processes tell that they have read the same. Law: a digest
shows no value."""

from hashlib import sha256
from pathlib import Path

import msgspec
from pydantic import BaseModel, Secret, SecretBytes, SecretStr

from gateway.config.gateway import GatewayConfig

FIXED = ("server", "storage", "push", "logs", "audit", "metrics", "tracing")


def digests(config: GatewayConfig) -> dict[str, str]:
    """Of the values of each section."""
    return {section: _digest(getattr(config, section)) for section in FIXED}


def digest(config: GatewayConfig) -> str:
    """Of the whole configuration, secrets included; it shows none of them."""
    return _digest(config)


def _digest(section: BaseModel) -> str:
    return sha256(msgspec.json.encode(dict(section), enc_hook=_plain, order="deterministic")).hexdigest()


def _plain(value: object) -> object:
    match value:
        case BaseModel():
            return dict(value)
        case SecretStr() | SecretBytes() | Secret():
            return value.get_secret_value()
        case Path():
            return str(value)
        case _:
            return repr(value)
