"""What the calls of a tool usually take."""

import random
from collections.abc import Sequence

import pytest

from gateway.core.diagnosis.tool_times import usual_times
from gateway.ledger.admin.upkeep import ToolTime

QUICK, LONG = [90, 100, 110] * 10, [19_000, 20_000, 21_000] * 10
SEARCH = ("echo", "search")


def usual(*samples: Sequence[int]) -> int | None:
    """`samples` begin with the latest."""
    return usual_times([[ToolTime(*SEARCH, took) for took in sample] for sample in samples]).get(SEARCH)


def test_a_tool_that_was_quick_at_some_age_and_stays_slow_since_is_still_measured_against_that() -> None:
    assert usual(LONG, LONG, LONG, QUICK, QUICK) == 110
    assert usual(LONG, LONG, LONG, LONG, QUICK) == 110


def test_a_tool_that_is_slow_at_every_age_is_so_as_usual() -> None:
    assert usual(LONG, LONG, LONG, LONG, LONG) == 21_000


@pytest.mark.parametrize("share", [0.2, 0.5, 0.8])
def test_a_tool_with_quick_and_long_calls_usually_takes_long(share: float) -> None:
    chance = random.Random(7)  # the same times in each run
    samples = [[20_000 if chance.random() < share else 100 for _ in range(100)] for _ in range(5)]
    assert usual(*samples) == 20_000


def test_one_long_call_in_twenty_is_not_usual_and_a_second_one_is() -> None:
    assert usual([100] * 19 + [20_000]) == 100
    assert usual([100] * 18 + [20_000] * 2) == 20_000


def test_a_sample_of_few_calls_does_not_count_beside_one_of_more() -> None:
    assert usual([300] * 5, [100] * 4) == 300
    assert usual([300] * 5, [100] * 5) == 100


def test_of_small_samples_the_largest_counts_from_three_calls_on() -> None:
    assert usual([300, 100, 200, 250], [100]) == 300
    assert usual([300, 100, 200], [300, 100, 200]) == 300
    assert usual([300, 100], [300, 100], [300]) is None
    assert usual() is None


def test_tools_are_told_apart_by_name_and_agent() -> None:
    tools = [("echo", "search"), ("other", "search"), ("echo", "add")]
    sample = [ToolTime(*tool, 100 + at) for at, tool in enumerate(tools) for _ in range(5)]
    assert usual_times([sample]) == {("echo", "search"): 100, ("other", "search"): 101, ("echo", "add"): 102}
