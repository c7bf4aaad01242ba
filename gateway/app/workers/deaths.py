"""When a worker that has ended is started again. Law: pure; as long as one worker serves, nobody gives up."""

from collections import Counter

from gateway.foundation.retry import backoff

_STEADY = 10.0
"""Seconds after which a worker that serves has started well."""

_FIRST_WAIT, _LONGEST_WAIT = 0.5, 30.0

_MOST = 5
"""Deaths of each worker, soon after its start, after which nothing will help."""


class Deaths:
    """Of all workers, in a row."""

    def __init__(self, workers: int, first_wait: float = _FIRST_WAIT) -> None:
        self._most = _MOST * workers
        self._first_wait = first_wait
        self._soon: Counter[int] = Counter()

    def wait(self, worker: int, served: float, *, others_serve: bool) -> float | None:
        """Seconds until this worker is started again, which has served for so many seconds; None to give up."""
        if served >= _STEADY:
            self._soon.clear()
        self._soon[worker] += 1
        if not others_serve and self._soon.total() >= self._most:
            return None
        before = self._soon[worker] - 1
        return backoff(self._first_wait, _LONGEST_WAIT, before) if before else 0.0
