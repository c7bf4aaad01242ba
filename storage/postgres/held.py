"""Units whose rows somebody holds. Law: who names a thread or a turn of one of them waits behind it, and nobody else does."""

from storage.postgres.errors import Failure
from storage.postgres.footprint import names
from storage.write.writer import Unit

_MOST = 10
"""Units that wait one after another while the rest of their group waits for them."""


class Held:
    """`units` are in the order in which they came. `why` is the answer to the latest that has waited itself."""

    def __init__(self) -> None:
        self.units: list[Unit] = []
        self.why: Failure | None = None
        self._waited = 0
        self._named: set[tuple[str, str]] = set()

    @property
    def many(self) -> bool:
        return self._waited >= _MOST

    def keeps(self, unit: Unit) -> bool:
        """Whether the unit has to wait behind another one."""
        return bool(self._named) and not self._named.isdisjoint(names(unit))

    def add(self, unit: Unit, why: Failure | None = None) -> None:
        """`why` is what it was told when it has waited itself."""
        self.units.append(unit)
        self._named |= names(unit)
        if why is not None:
            self.why = why
            self._waited += 1


def divided(units: list[Unit], held_before: set[int]) -> tuple[list[Unit], list[Unit]]:
    """The units that may go together, and those that were held before (by identity) with all that wait behind them."""
    free, late = [], Held()
    for unit in units:
        if id(unit) in held_before or late.keeps(unit):
            late.add(unit)
        else:
            free.append(unit)
    return free, late.units
