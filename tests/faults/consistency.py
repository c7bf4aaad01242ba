"""Decides whether the observations of several clients fit one order of turns, each of which appends its message and reads all
earlier ones. Law: knows no gateway; it judges invocations, results and their times.

Source: the list-append workload of Elle (Kingsbury, Alvaro: "Elle: Inferring Isolation Anomalies", 2020).
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import combinations


@dataclass(frozen=True, slots=True)
class Turn:
    """`read` is None for an unknown result: the turn may have happened or not. All times are of one clock.

    `acked`: the gateway has said that it has the message.
    """

    context: str
    appended: str
    invoked: float
    returned: float
    read: tuple[str, ...] | None
    acked: bool = True


def anomalies(turns: Iterable[Turn]) -> list[str]:
    by_context: defaultdict[str, list[Turn]] = defaultdict(list)
    for turn in turns:
        by_context[turn.context].append(turn)
    return [f"{name}: {found}" for name, own in by_context.items() for found in _in_context(own)]


def _in_context(turns: list[Turn]) -> Iterator[str]:
    reads = sorted((turn.read for turn in turns if turn.read is not None), key=len)
    order = reads[-1] if reads else ()
    invoked = {turn.appended for turn in turns}
    yield from (f"{text!r} was said {times} times" for text, times in Counter(order).items() if times > 1)
    yield from (f"{text!r} was never sent" for text in order if text not in invoked)
    yield from (f"{read} is no beginning of {order}" for read in reads if order[: len(read)] != read)
    for turn in turns:
        if turn.read is not None and (not turn.read or turn.read[-1] != turn.appended):
            yield f"the answer to {turn.appended!r} is of another moment: {turn.read}"
    yield from _out_of_time(turns, {text: place for place, text in enumerate(order)})


def _out_of_time(turns: list[Turn], places: dict[str, int]) -> Iterator[str]:
    """What had returned before something else was invoked comes before it."""
    done = sorted((turn for turn in turns if turn.read is not None), key=lambda turn: turn.invoked)
    for earlier, later in combinations(done, 2):
        if earlier.returned < later.invoked and places.get(earlier.appended, -1) > places.get(later.appended, -1):
            yield f"{later.appended!r} came before {earlier.appended!r}, which had been answered"


def lost(turns: Iterable[Turn], last: dict[str, tuple[str, ...]]) -> list[str]:
    """What was acknowledged and is not in the last read of its context."""
    return [turn.appended for turn in turns if turn.acked and turn.appended not in last[turn.context]]
