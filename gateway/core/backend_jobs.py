"""When a job at a backend is attempted, and whether an attempt is under way. Law: pure; times are milliseconds of the ledger's
clock."""

from typing import Final

from gateway.foundation.retry import scheduled

RETRIES = (60, 5 * 60, 30 * 60, 2 * 3600, 6 * 3600, 12 * 3600, 24 * 3600)
"""Seconds from one attempt to the next. The attempt after the last wait is the last one."""

CLAIM: Final = 10.0
"""Seconds for which a withdrawal is claimed: longer than an attempt takes, and shorter than any wait between two."""

_JITTER = 0.2


def next_attempt(attempts: int, now: int, chance: float) -> int:
    """The time of the attempt after so many. `chance` is from 0 to 1."""
    return now + int(scheduled(RETRIES, attempts, _JITTER * chance) * 1000)


def claimed_until(now: int) -> int:
    """The end of a claim that begins now."""
    return now + int(CLAIM * 1000)


def is_under_way(due_at: int, now: int) -> bool:
    """Whether a withdrawal that is next due at `due_at` may be claimed by somebody. One that is due so soon anyway counts too:
    whoever waits for its time loses little."""
    return now < due_at <= claimed_until(now)
