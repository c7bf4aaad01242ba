"""Detection of a clock that was set, by comparison with the monotonic one."""

import pytest
from structlog.testing import capture_logs

from gateway.foundation.clock import Clock
from gateway.foundation.clock_steps import ClockSteps


class Hands:
    """Both clocks of a machine, in milliseconds."""

    def __init__(self) -> None:
        self.wall = 1_795_168_800_000
        self.steady = 1_000_000
        self.clock = Clock(now=lambda: self.wall, monotonic=lambda: self.steady / 1000)

    def pass_by(self, milliseconds: int) -> None:
        self.wall += milliseconds
        self.steady += milliseconds


def test_passing_time_is_no_step_however_long() -> None:
    hands = Hands()
    steps = ClockSteps(hands.clock, 1.0)
    for milliseconds in (1700, 10, 3_600_000, 0):
        hands.pass_by(milliseconds)
        assert not steps.recent()


def test_a_gradual_correction_is_no_step() -> None:
    hands = Hands()
    steps = ClockSteps(hands.clock, 1.0)
    for _ in range(100):
        hands.pass_by(1700)
        hands.wall -= 900
        assert not steps.recent()


@pytest.mark.parametrize("step", [400 * 86_400_000, -7_200_000, 1001])
def test_a_step_counts_for_some_rounds_and_is_logged_once(step: int) -> None:
    hands = Hands()
    steps = ClockSteps(hands.clock, 1.0)
    hands.wall += step
    with capture_logs() as logs:
        assert [steps.recent() for _ in range(5)] == [True, True, True, False, False]
    assert [(line["event"], line["seconds"]) for line in logs] == [("clock.set", round(step / 1000, 1))]


def test_another_step_starts_the_count_again() -> None:
    hands = Hands()
    steps = ClockSteps(hands.clock, 1.0)
    hands.wall += 5000
    assert [steps.recent(), steps.recent()] == [True, True]
    hands.wall -= 5000
    assert [steps.recent() for _ in range(4)] == [True, True, True, False]
