"""How the ledger fails those who read and write."""


class Conflict(Exception):
    """A commit point did not find the rows as it expected them. Nothing of its unit was stored."""


class LedgerUnavailable(Exception):
    """The database cannot take or give anything now. `trouble` is why, in a word: full, locked, read-only, ..."""

    def __init__(self, text: str, trouble: str = "unavailable") -> None:
        super().__init__(text)
        self.trouble = trouble


class CorruptRecord(Exception):
    """What is stored of one thread or task, which the text names, cannot be read. Others are not affected."""
