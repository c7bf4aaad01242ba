"""The secrets of adapters between two service calls. Law: a secret is sealed before it becomes part of a record, for its thread
alone, and opened only for the request of a call."""

from base64 import b64decode, b64encode

import msgspec
import structlog

from gateway.a2a.model import Json
from gateway.foundation.sealing import Seal, UnreadableSecret
from gateway.ledger.threads import ThreadRecord
from gateway.ports.adapter import AdapterError, ErrorClass

log = structlog.get_logger("gateway.engine.adapter_secrets")


class AdapterSecrets:
    """`material` is the setting `storage.encryption_key`, or a secret of the ledger."""

    def __init__(self, material: bytes) -> None:
        self._seal = Seal(material, b"adapter secrets", b"adapter secrets key id")

    def seal(self, secret: Json, thread: str) -> str | None:
        """For the record of this thread; None for no secret. Raises: AdapterError (CONTRACT_BROKEN) for what is no JSON."""
        if secret is None:
            return None
        try:
            plain = msgspec.json.encode(secret)
        except (TypeError, ValueError) as error:
            raise AdapterError(ErrorClass.CONTRACT_BROKEN, "the secret of the adapter is no JSON") from error
        return b64encode(self._seal.close(plain, thread)).decode()

    def open(self, thread: ThreadRecord) -> Json:
        """None also for a secret that cannot be opened any more: the adapter does without, as after an import."""
        if thread.adapter_secret is None:
            return None
        try:
            found: Json = msgspec.json.decode(self._seal.open(b64decode(thread.adapter_secret), thread.id))
        except (UnreadableSecret, ValueError) as error:
            log.warning("thread.secret-unreadable", agent=thread.agent, thread=thread.id, reason=str(error))
            return None
        return found
