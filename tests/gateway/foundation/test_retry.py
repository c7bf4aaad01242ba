"""Waits before a retry."""

import pytest

from gateway.foundation.retry import backoff, parse_retry_after, scheduled

NOW = 1_795_168_800_000  # Fri, 20 Nov 2026 10:00:00 GMT


def test_each_wait_is_twice_as_long_up_to_the_longest() -> None:
    assert [backoff(0.5, 4.0, tries) for tries in range(1, 7)] == [0.5, 1.0, 2.0, 4.0, 4.0, 4.0]
    assert backoff(0.5, 4.0, 10_000) == 4.0


def test_jitter_takes_off_up_to_half() -> None:
    assert [backoff(2.0, 8.0, 2, jitter) for jitter in (0.0, 0.5, 1.0)] == [2.0, 3.0, 4.0]


def test_the_last_entry_of_a_table_repeats() -> None:
    assert [scheduled((5, 60, 600), tries, 0.0) for tries in (1, 2, 3, 4, 9)] == [5, 60, 600, 600, 600]
    assert scheduled((5, 60), 2, 0.25) == 75


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("120", 120.0),
        ("0", 0.0),
        (" 2 ", 2.0),
        ("1.5", 1.5),
        ("9" * 400, 999_999_999.0),
        ("Fri, 20 Nov 2026 10:01:00 GMT", 60.0),
        ("Fri, 20 Nov 2026 10:01:00 -0000", 60.0),
        ("Fri, 20 Nov 2026 09:00:00 GMT", 0.0),
        ("soon", None),
        ("-5", None),
        ("", None),
    ],
)
def test_retry_after_is_a_number_of_seconds_or_a_date(value: str, seconds: float | None) -> None:
    assert parse_retry_after({"Retry-After": value}, NOW) == seconds


def test_a_date_counts_from_the_date_of_its_own_response() -> None:
    headers = {"Retry-After": "Mon, 20 Nov 2028 10:00:30 GMT", "Date": "Mon, 20 Nov 2028 10:00:00 GMT"}
    assert parse_retry_after(headers, NOW) == 30.0


def test_without_the_header_there_is_no_wait() -> None:
    assert parse_retry_after({}, NOW) is None
