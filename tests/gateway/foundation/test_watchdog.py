"""Waits that last too long, and the few timers that it takes to notice."""

import asyncio
from collections.abc import Callable

import pytest

from gateway.foundation.watchdog import Watchdog

SECONDS = 10.0


class Timer:
    def __init__(self, due: float, callback: Callable[[], None]) -> None:
        self.due, self.callback, self.cancelled = due, callback, False

    def cancel(self) -> None:
        self.cancelled = True


class Loop:
    """An event loop whose time the test sets."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.timers: list[Timer] = []
        self.started = 0

    def time(self) -> float:
        return self.now

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        self.started += 1
        self.timers.append(Timer(self.now + seconds, callback))
        return self.timers[-1]

    def run_for(self, seconds: float) -> None:
        end = self.now + seconds
        while due := [timer for timer in self.timers if timer.due <= end]:
            timer = min(due, key=lambda each: each.due)
            self.timers.remove(timer)
            self.now = timer.due
            if not timer.cancelled:
                timer.callback()
        self.now = end


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> Loop:
    loop = Loop()
    monkeypatch.setattr(asyncio, "get_running_loop", lambda: loop)
    return loop


@pytest.fixture
def late() -> list[float]:
    """The times at which a wait was too long."""
    return []


@pytest.fixture
def watchdog(loop: Loop, late: list[float]) -> Watchdog:
    return Watchdog(SECONDS, lambda: late.append(loop.now))


def test_a_wait_that_lasts_is_reported_once_and_not_before_its_time(
    loop: Loop, watchdog: Watchdog, late: list[float]
) -> None:
    watchdog.begin()
    loop.run_for(SECONDS - 0.1)
    assert late == []
    loop.run_for(3 * SECONDS)
    assert late == [1000 + SECONDS]


def test_short_waits_are_never_too_long_however_many_they_are(
    loop: Loop, watchdog: Watchdog, late: list[float]
) -> None:
    for _ in range(50):
        watchdog.begin()
        loop.run_for(SECONDS / 2)
        watchdog.end()
    watchdog.close()
    assert late == []


def test_a_wait_is_measured_from_its_own_beginning(loop: Loop, watchdog: Watchdog, late: list[float]) -> None:
    watchdog.begin()
    loop.run_for(SECONDS / 2)
    watchdog.end()
    watchdog.begin()
    loop.run_for(3 * SECONDS)
    assert late == [1000 + SECONDS / 2 + SECONDS]


def test_nothing_is_reported_between_waits_and_the_next_one_counts(
    loop: Loop, watchdog: Watchdog, late: list[float]
) -> None:
    watchdog.begin()
    watchdog.end()
    loop.run_for(3 * SECONDS)
    assert late == []
    watchdog.begin()
    loop.run_for(SECONDS)
    assert late == [loop.now]


def test_closing_ends_the_wait_and_leaves_no_timer(loop: Loop, watchdog: Watchdog, late: list[float]) -> None:
    watchdog.begin()
    watchdog.close()
    assert all(timer.cancelled for timer in loop.timers)
    loop.run_for(3 * SECONDS)
    assert late == []


def test_a_thousand_waits_make_one_timer(loop: Loop, watchdog: Watchdog) -> None:
    for _ in range(1000):
        watchdog.begin()
        watchdog.end()
    watchdog.close()
    assert loop.started == 1


async def test_the_timer_is_one_of_the_running_loop() -> None:
    late = asyncio.Event()
    watchdog = Watchdog(0.001, late.set)
    watchdog.begin()
    await asyncio.wait_for(late.wait(), 10)
