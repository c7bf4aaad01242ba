"""The errors of the ledger."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Conflict(Exception):
    """A commit point did not find its rows as it expected them. Nothing of its unit was stored."""


class LedgerUnavailable(Exception):
    """The database cannot read or write now. `trouble` is the cause in one word: full, locked, read-only, removed, ..."""

    def __init__(self, text: str, trouble: str = "unavailable") -> None:
        super().__init__(text)
        self.trouble = trouble


class CorruptRecord(Exception):
    """A stored row of the thread or task that the text names cannot be read. Others are not affected."""


@contextmanager
def skip_failures(log: Any, event: str) -> Iterator[None]:
    """Logs what fails in one round of a background job, so that the next round tries again."""
    try:
        yield
    except LedgerUnavailable as error:
        log.warning(event, error=str(error))
    except Exception:  # a defect here must not end the gateway
        log.exception(event)
