"""Counters, histograms and gauges in the memory of one process, and their text for Prometheus.

Law: a cell is counted in the event loop alone, so that it needs no lock; labels have bounded values, and a family that would
have too many series counts the rest under `other`.

Source: Prometheus, exposition format 0.0.4; its naming conventions (base units, `_total`).
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence, Sized
from typing import Protocol

from gateway.ports.observer import Labels, Reading

MOST_SERIES = 1000
"""Of one family, with that of `other`."""

_OTHER = "other"
_ESCAPES = str.maketrans({"\\": "\\\\", "\n": "\\n", '"': '\\"'})


class Family(Protocol):
    """Something that has a name, and samples at the time of a scrape."""

    name: str
    help: str
    kind: str

    def samples(self) -> Iterable[tuple[str, str, float]]:
        """The suffix of the name, the labels as text, and the value of each sample."""


class Counter:
    """A number that grows, for each set of label values."""

    kind = "counter"

    def __init__(self, name: str, help: str, *labels: str) -> None:  # noqa: A002 - the word of the format
        self.name, self.help = name, help
        self._labels = labels
        self._values: dict[Labels, float] = {} if labels else {(): 0.0}

    def add(self, *values: str, amount: float = 1.0) -> None:
        known = self._values
        if values in known:
            known[values] += amount
        else:
            values = _bounded(values, known)
            known[values] = known.get(values, 0.0) + amount

    def samples(self) -> Iterator[tuple[str, str, float]]:
        for values, count in self._values.items():
            yield "", _text(self._labels, values), count


class Histogram:
    """How often values were at most each of the `bounds`, for each set of label values."""

    kind = "histogram"

    def __init__(self, name: str, help: str, bounds: Sequence[float], *labels: str) -> None:  # noqa: A002
        self.name, self.help = name, help
        self._bounds = tuple(bounds)
        self._labels = labels
        self._cells: dict[Labels, list[float]] = {} if labels else {(): self._empty()}

    def observe(self, value: float, *values: str) -> None:
        cell = self._cells.get(values)
        if cell is None:
            cell = self._cells.setdefault(_bounded(values, self._cells), self._empty())
        cell[bisect_left(self._bounds, value)] += 1
        cell[-1] += value

    def samples(self) -> Iterator[tuple[str, str, float]]:
        for values, cell in self._cells.items():
            seen = 0.0
            for bound, count in zip((*self._bounds, float("inf")), cell, strict=False):
                seen += count
                yield "_bucket", _text((*self._labels, "le"), (*values, _number(bound))), seen
            labels = _text(self._labels, values)
            yield "_sum", labels, cell[-1]
            yield "_count", labels, seen

    def _empty(self) -> list[float]:
        """A count for each bound and for what is above all of them, then the sum."""
        return [0.0] * (len(self._bounds) + 2)


class Gauge:
    """Values that are read from their owner at each scrape."""

    kind = "gauge"

    def __init__(self, name: str, help: str, read: Reading, *labels: str) -> None:  # noqa: A002
        self.name, self.help = name, help
        self._labels = labels
        self._read = read

    def samples(self) -> Iterator[tuple[str, str, float]]:
        for values, value in self._read():
            yield "", _text(self._labels, values), value


class Counted(Gauge):
    """Numbers that grow, and that their owner counts."""

    kind = "counter"


def render(families: Iterable[Family]) -> bytes:
    """The text of a scrape. A family without samples is left out."""
    lines: list[str] = []
    for family in families:
        samples = [f"{family.name}{suffix}{labels} {_number(value)}" for suffix, labels, value in family.samples()]
        if samples:
            help_text = family.help.replace("\\", "\\\\").replace("\n", "\\n")
            lines += [f"# HELP {family.name} {help_text}", f"# TYPE {family.name} {family.kind}", *samples]
    return ("\n".join(lines) + "\n").encode() if lines else b""


def _bounded(values: Labels, known: Sized) -> Labels:
    return values if len(known) < MOST_SERIES - 1 else (_OTHER,) * len(values)


def _text(names: Sequence[str], values: Sequence[str]) -> str:
    if not names:
        return ""
    pairs = (f'{name}="{value.translate(_ESCAPES)}"' for name, value in zip(names, values, strict=True))
    return "{" + ",".join(pairs) + "}"


def _number(value: float) -> str:
    if value == float("inf"):
        return "+Inf"
    return str(int(value)) if value == int(value) and abs(value) < 2**53 else repr(float(value))
