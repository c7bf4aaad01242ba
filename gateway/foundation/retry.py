"""Waits before a retry: back-off schedules, and the `Retry-After` that a server asks for.

Law: pure. Each caller keeps its own figures, and supplies its own random number.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

_DOUBLINGS = 30
_DIGITS = 9


def backoff(first: float, longest: float, tries: int, jitter: float = 1.0) -> float:
    """Seconds before the next try after `tries` failed ones: `first`, doubled after each, at most `longest`.

    `jitter` is from 0 to 1 and takes off up to half, so that clients do not retry in step.
    """
    return min(first * 2.0 ** min(tries - 1, _DOUBLINGS), longest) * (1 + jitter) / 2


def scheduled(waits: Sequence[float], tries: int, jitter: float) -> float:
    """Seconds before the next try, from a table; its last entry repeats. `jitter` is a fraction of the entry."""
    return waits[min(tries, len(waits)) - 1] * (1 + jitter)


def parse_retry_after(headers: Mapping[str, str], now: int) -> float | None:
    """Seconds, None where the header is absent or malformed. `now` is in milliseconds since the epoch.

    A date counts from the response's own `Date`, as the two clocks may differ. Source: RFC 9110, section 10.2.3.
    """
    text = headers.get("Retry-After", "").strip()
    if text.isascii() and text.replace(".", "", 1).isdigit():
        return float(text[:_DIGITS])
    until = _date(text)
    if until is None:
        return None
    sent = _date(headers.get("Date", ""))
    return max(0.0, until.timestamp() - (now / 1000 if sent is None else sent.timestamp()))


def _date(text: str) -> datetime | None:
    try:
        moment = parsedate_to_datetime(text)
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
