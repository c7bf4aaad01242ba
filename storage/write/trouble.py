"""Whether a store can be written to, as far as its latest groups show. Law: where there was no room, what needs little room
shows nothing, and only the probe shows that there is some again.
"""

from collections.abc import Iterable

from storage import compiled
from storage.write.writer import Unit


class Trouble:
    def __init__(self) -> None:
        self.present = False
        self._full = False

    def refused(self, word: str) -> None:
        """A group could not be written; `word` says why, as in `LedgerUnavailable.trouble`."""
        self.present = True
        self._full |= word == "full"

    def stored(self, units: Iterable[Unit]) -> None:
        """These units were written, as all that are tried with them."""
        if not self._full or any(statement is compiled.PROBE for unit in units for statement, _ in unit.steps):
            self.present = self._full = False
