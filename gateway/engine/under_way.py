"""What has begun in this process and not ended, by a name of the configuration: for gauges, which are read at a scrape, and
for the health of agents."""

from collections import Counter
from collections.abc import Callable, Iterator

from gateway.ports.observer import Labels


class Begun:
    """One that has not ended, and since when it is silent. It is heard of with every event of an answer: that has to cost
    next to nothing."""

    __slots__ = ("_monotonic", "name", "since")

    def __init__(self, name: str, monotonic: Callable[[], float]) -> None:
        self.name, self.since, self._monotonic = name, monotonic(), monotonic

    def heard(self) -> None:
        """Something of it has come: its silence begins again."""
        self.since = self._monotonic()


class UnderWay:
    __slots__ = ("_monotonic", "_open")

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._open: set[Begun] = set()

    def begin(self, name: str) -> Begun:
        begun = Begun(name, self._monotonic)
        self._open.add(begun)
        return begun

    def end(self, begun: Begun) -> None:
        self._open.remove(begun)

    def numbers(self) -> Iterator[tuple[Labels, float]]:
        """How many are open, by name."""
        for name, number in Counter(each.name for each in self._open).items():
            yield (name,), number

    def silences(self, name: str) -> tuple[float, ...]:
        """The seconds since each one of this name began, or was heard of."""
        now = self._monotonic()
        return tuple([now - each.since for each in self._open if each.name == name])

    def longest(self) -> Iterator[tuple[Labels, float]]:
        """The seconds since the one of each name that has been silent longest began, or was heard of."""
        earliest: dict[str, float] = {}
        for each in self._open:
            earliest[each.name] = min(each.since, earliest.get(each.name, each.since))
        now = self._monotonic()
        for name, since in earliest.items():
            yield (name,), now - since
