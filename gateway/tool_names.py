"""What models call the tools of several sources. Law: pure; the same tools have the same names, in any order."""

import hashlib
import re
from collections import Counter
from collections.abc import Sequence

_LONGEST = 64
_FOREIGN = re.compile(r"[^a-zA-Z0-9_-]")


def offered_names(tools: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    """One name of 1 to 64 of a-z, A-Z, 0-9, _ and - for each (source, own name), no two the same.

    It is the tool's own name, and `source_tool` for every party of a collision.
    """
    candidates = [_candidates(source, own) for source, own in tools]
    steps = [0] * len(tools)
    while True:
        names = [each[step] for each, step in zip(candidates, steps, strict=True)]
        taken = Counter(names)
        # Of those that share a name, the ones that still have their plainest give way.
        lowest = {name: min(step for other, step in zip(names, steps, strict=True) if other == name) for name in taken}
        moving = [
            index
            for index, name in enumerate(names)
            if taken[name] > 1 and steps[index] == lowest[name] and steps[index] + 1 < len(candidates[index])
        ]
        if not moving:
            return tuple(names)
        for index in moving:
            steps[index] += 1


def _candidates(source: str, own: str) -> tuple[str, str, str]:
    mark = hashlib.sha256(f"{source}.{own}".encode(errors="replace")).hexdigest()[:8]
    both = f"{source}_{own}"
    return _valid(own or source, mark), _valid(both, mark), f"{_valid(both, mark)[: _LONGEST - 9]}_{mark}"


def _valid(name: str, mark: str) -> str:
    name = _FOREIGN.sub("_", name)
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST - 9]}_{mark}"
