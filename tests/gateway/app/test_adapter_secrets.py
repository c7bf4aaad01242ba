"""The key of adapters' secrets: that of the configuration, or one of the database."""

from pathlib import Path

from pydantic import SecretStr
from structlog.testing import capture_logs

from gateway.app.build import adapter_secrets
from gateway.config.storage import StorageCommon
from gateway.ledger.threads import ThreadRecord
from gateway.ports.conversation import HandleKind, StorageOwner
from tests.support.stores import open_store

MINE, OTHER = (StorageCommon(encryption_key=SecretStr(letter * 32)) for letter in "mo")


def thread(secret: str | None) -> ThreadRecord:
    owner = StorageOwner.BACKEND, HandleKind.STATIC
    return ThreadRecord("thread", "c", "echo", 1, *owner, "h", 0, None, adapter_secret=secret)


async def test_a_secret_is_read_with_the_key_that_sealed_it_and_with_no_other(tmp_path: Path) -> None:
    async with open_store(tmp_path / "gateway.db") as ledger:
        for config in (MINE, StorageCommon()):
            sealed = (await adapter_secrets(config, ledger)).seal({"token": "canary"}, "thread")
            assert "canary" not in (sealed or "")
            assert (await adapter_secrets(config, ledger)).open(thread(sealed)) == {"token": "canary"}
            with capture_logs() as logs:
                assert (await adapter_secrets(OTHER, ledger)).open(thread(sealed)) is None
            assert [(line["event"], line["reason"]) for line in logs] == [
                ("thread.secret-unreadable", "sealed with another key")
            ]


async def test_no_secret_is_none_without_a_key(tmp_path: Path) -> None:
    async with open_store(tmp_path / "gateway.db") as ledger:
        secrets = await adapter_secrets(MINE, ledger)
        assert (secrets.seal(None, "thread"), secrets.open(thread(None))) == (None, None)
