"""What has begun in this process and not ended, by a name of the configuration: for gauges, which are read at a scrape, and
for the health of agents."""

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count

from gateway.ports.observer import Labels


class UnderWay:
    __slots__ = ("_monotonic", "_numbers", "_open")

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._numbers = count()
        self._open: dict[int, tuple[str, float]] = {}

    def begin(self, name: str) -> int:
        """The number by which this one is heard of and ended."""
        number = next(self._numbers)
        self._open[number] = name, self._monotonic()
        return number

    def heard(self, number: int) -> None:
        """Something of it has come: its silence begins again."""
        self._open[number] = self._open[number][0], self._monotonic()

    def end(self, number: int) -> None:
        del self._open[number]

    def numbers(self) -> Iterator[tuple[Labels, float]]:
        """How many are open, by name."""
        for name, number in Counter(name for name, _ in self._open.values()).items():
            yield (name,), number

    def silences(self, name: str) -> tuple[float, ...]:
        """The seconds since each one of this name began, or was heard of."""
        now = self._monotonic()
        return tuple([now - since for each, since in self._open.values() if each == name])

    def longest(self) -> Iterator[tuple[Labels, float]]:
        """The seconds since the one of each name that has been silent longest began, or was heard of."""
        earliest: dict[str, float] = {}
        for name, since in self._open.values():
            earliest[name] = min(since, earliest.get(name, since))
        now = self._monotonic()
        for name, since in earliest.items():
            yield (name,), now - since
