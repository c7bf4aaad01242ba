"""The audit log: a line for everything that somebody does to the gateway or with it. Law: a line is written before its action
is answered, in one piece behind all others, and on disk within a second; a line that could not be written is missing in the
numbers of its process, which shows.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import structlog
from pydantic import SecretStr

from gateway.foundation.clock import Clock, timestamp
from gateway.ports.observer import AuditEntry, Observer
from gateway.telemetry.audit_chain import Chain
from gateway.telemetry.audit_places import place_at

log = structlog.get_logger("gateway.telemetry.audit")

_SYNC_INTERVAL = 1.0

_LONGEST = 1024
"""Characters of a name in a line: what is refused may have any length."""


@contextmanager
def audit_log(path: Path | None, key: SecretStr | None, clock: Clock) -> Iterator["AuditLog"]:
    """An audit log, while the block runs. Raises: OSError where the file cannot be opened."""
    secret = None if key is None else key.get_secret_value().encode()
    audit = AuditLog(path, clock.row_id(), clock.now, secret)
    try:
        yield audit
    finally:
        audit.close()


class AuditLog(Observer):
    """Appends to a file, which several processes may share, or to standard output where there is no `path`. `now` gives
    milliseconds since 1970. Raises: OSError where the file cannot be opened."""

    audits = True

    def __init__(self, path: Path | None, process: str, now: Callable[[], int], key: bytes | None = None) -> None:
        self._now = now
        self._place = place_at(path, Chain(process, key))
        self._written = False
        self._failing = False

    def audited(self, entry: AuditEntry) -> None:
        facts = {
            "action": entry.action,
            "outcome": entry.outcome,
            "actor": msgspec.to_builtins(entry.actor),
            "target": {name: _short(value) for name, value in msgspec.to_builtins(entry.target).items()},
        }
        try:
            self._place.append(timestamp(self._now()), facts)
        except OSError as error:
            self._tell(str(error))
            return
        self._written, self._failing = True, False

    def reopen(self) -> None:
        """Goes on in the file that has the name now, whose predecessor was moved away. Raises: OSError."""
        self._place.reopen()

    async def run(self) -> None:
        """Never returns. Brings what was written to the disk."""
        while True:
            await asyncio.sleep(_SYNC_INTERVAL)
            if self._written:
                self._written = False
                try:
                    await asyncio.to_thread(self._place.sync)
                except OSError as error:
                    self._tell(str(error))

    def close(self) -> None:
        self._place.close()

    def _tell(self, why: str) -> None:
        """Once for each time that it begins to fail."""
        if not self._failing:
            self._failing = True
            log.error("audit.not-written", error=why)


def _short(value: str | bool) -> str | bool:
    return f"{value[:_LONGEST]}…" if isinstance(value, str) and len(value) > _LONGEST else value
