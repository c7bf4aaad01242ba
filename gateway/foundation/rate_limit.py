"""How often something may happen: a bucket of tokens for each key. Law: no timer, and bounded memory."""

from collections.abc import Callable, Hashable

_MOST = 10_000
"""Keys that are remembered; beyond it, the least recently used ones are dropped."""


class TokenBuckets:
    """Each key has `size` tokens at first, and gains `per_second` up to that size."""

    def __init__(self, size: float, per_second: float, monotonic: Callable[[], float]) -> None:
        self._size = size
        self._per_second = per_second
        self._monotonic = monotonic
        self._levels: dict[Hashable, tuple[float, float]] = {}

    def take(self, key: Hashable) -> float:
        """0 when a token was taken; otherwise the seconds until there is one."""
        now = self._monotonic()
        level, at = self._levels.pop(key, (self._size, now))
        level = min(self._size, level + (now - at) * self._per_second)
        taken = level >= 1.0
        self._levels[key] = (level - taken, now)
        if len(self._levels) > _MOST:
            self._drop_full(now)
        return 0.0 if taken else (1.0 - level) / self._per_second

    def _drop_full(self, now: float) -> None:
        """The keys stand in the order of their last use, so the full buckets come first."""
        refilled = now - self._size / self._per_second
        while self._levels:
            oldest = next(iter(self._levels))
            if len(self._levels) <= _MOST and self._levels[oldest][1] > refilled:
                return
            del self._levels[oldest]
