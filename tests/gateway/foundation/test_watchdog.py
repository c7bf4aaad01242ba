"""Waits that last too long, and how few timers it takes to know."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from gateway.foundation.watchdog import Watchdog

SECONDS = 0.01


class Late:
    def __init__(self) -> None:
        self.times = 0
        self._told = asyncio.Event()

    def __call__(self) -> None:
        self.times += 1
        self._told.set()

    async def told(self) -> None:
        await asyncio.wait_for(self._told.wait(), 10)


async def passing(seconds: float, each_step: Callable[[], None] = lambda: None) -> None:
    """The loop runs on for so long, and does this in each of its steps."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while loop.time() < end:
        each_step()
        await asyncio.sleep(0)


async def test_a_wait_that_lasts_is_told_once_and_not_before_its_time() -> None:
    late, loop = Late(), asyncio.get_running_loop()
    began = loop.time()
    watchdog = Watchdog(SECONDS, late)
    watchdog.begin()
    await late.told()
    assert loop.time() - began >= SECONDS
    await passing(3 * SECONDS)
    assert late.times == 1


async def test_short_waits_are_never_too_long_however_many_they_are() -> None:
    late = Late()
    watchdog = Watchdog(0.5, late)

    def wait_anew() -> None:
        watchdog.end()
        watchdog.begin()

    await passing(0.8, wait_anew)
    watchdog.close()
    assert late.times == 0


async def test_a_wait_is_measured_from_its_own_beginning() -> None:
    late, loop = Late(), asyncio.get_running_loop()
    watchdog = Watchdog(0.1, late)
    watchdog.begin()
    await passing(0.05)
    watchdog.end()
    watchdog.begin()
    began = loop.time()
    await late.told()
    assert loop.time() - began >= 0.1


async def test_nothing_is_told_between_waits_and_the_next_one_counts() -> None:
    late = Late()
    watchdog = Watchdog(SECONDS, late)
    watchdog.begin()
    watchdog.end()
    await passing(3 * SECONDS)
    assert late.times == 0
    watchdog.begin()
    await late.told()


async def test_closing_ends_the_wait() -> None:
    late = Late()
    watchdog = Watchdog(SECONDS, late)
    watchdog.begin()
    watchdog.close()
    await passing(3 * SECONDS)
    assert late.times == 0


async def test_a_thousand_waits_make_one_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    loop, timers = asyncio.get_running_loop(), []
    later = loop.call_later

    def counted(*arguments: Any, **options: Any) -> asyncio.TimerHandle:
        timers.append(arguments)
        return later(*arguments, **options)

    monkeypatch.setattr(loop, "call_later", counted)
    watchdog = Watchdog(60, Late())
    for _ in range(1000):
        watchdog.begin()
        watchdog.end()
    watchdog.close()
    assert len(timers) == 1
