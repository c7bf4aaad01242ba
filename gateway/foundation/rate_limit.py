"""How often something may happen: a bucket of tokens for each key. Law: no timer, and bounded memory."""

from collections.abc import Callable, Hashable

_MOST = 10_000
"""Keys that are remembered; beyond it, the least recently used ones are dropped."""


class TokenBuckets:
    """Each key has `size` tokens at first, and gains `per_second` up to that size. It may owe some."""

    def __init__(self, size: float, per_second: float, monotonic: Callable[[], float]) -> None:
        self._size = size
        self._per_second = per_second
        self._monotonic = monotonic
        self._levels: dict[Hashable, tuple[float, float]] = {}

    def take(self, key: Hashable) -> float:
        """0 when a token was taken; otherwise the seconds until there is one."""
        level = self._level(key)
        taken = level >= 1.0
        self._keep(key, level - taken)
        return 0.0 if taken else (1.0 - level) / self._per_second

    def charge(self, key: Hashable, tokens: int) -> None:
        """Takes tokens that were used elsewhere: those that the key does not have it owes."""
        self._keep(key, self._level(key) - tokens)

    def is_full(self, key: Hashable) -> bool:
        return self._level(key) == self._size

    def _level(self, key: Hashable) -> float:
        level, at = self._levels.get(key, (self._size, 0.0))
        return min(self._size, level + (self._monotonic() - at) * self._per_second)

    def _keep(self, key: Hashable, level: float) -> None:
        now = self._monotonic()
        self._levels.pop(key, None)
        self._levels[key] = (level, now)
        if len(self._levels) > _MOST:
            self._drop_full(now)

    def _drop_full(self, now: float) -> None:
        """The keys stand in the order of their last use, so the full buckets come first."""
        refilled = now - self._size / self._per_second
        while self._levels:
            oldest = next(iter(self._levels))
            if len(self._levels) <= _MOST and self._levels[oldest][1] > refilled:
                return
            del self._levels[oldest]
