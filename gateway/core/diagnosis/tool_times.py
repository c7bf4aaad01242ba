"""What the calls of a tool usually take, out of samples of several ages. Law: the age at which a tool was quickest counts, so
that one that stays slow does not become the measure of itself."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from gateway.ledger.admin.upkeep import ToolTime

_RARE = 20
"""One of so many calls may take longer than is usual: a tool that is slow more often is so of old, and not only now."""

_ENOUGH = 5
"""Calls of a sample that counts by itself."""

_MEASURED = 3
"""Fewer calls tell nothing, in the largest sample too."""


def usual_times(samples: Iterable[Iterable[ToolTime]]) -> Mapping[tuple[str, str], int]:
    """By agent and tool, the milliseconds within which its calls have usually ended. Tools that were called too seldom are
    left out."""
    taken: defaultdict[tuple[str, str], list[list[int]]] = defaultdict(list)
    for sample in samples:
        of_tool: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
        for time in sample:
            of_tool[time.agent, time.name].append(time.took)
        for tool, took in of_tool.items():
            taken[tool].append(took)
    usual = {tool: _usual(took) for tool, took in taken.items()}
    return {tool: took for tool, took in usual.items() if took is not None}


def _usual(samples: Sequence[Sequence[int]]) -> int | None:
    enough = [took for took in samples if len(took) >= _ENOUGH]
    if enough:
        return min(map(_mostly, enough))
    largest = max(samples, key=len)
    return _mostly(largest) if len(largest) >= _MEASURED else None


def _mostly(took: Sequence[int]) -> int:
    return sorted(took)[-1 - len(took) // _RARE]
