"""How late the event loop comes back."""

import asyncio

from gateway.ports.observer import Observer
from gateway.telemetry.loop_lag import watch_loop


class Heard(Observer):
    def __init__(self) -> None:
        self.lags: list[float] = []
        self.told = asyncio.Event()

    def loop_lagged(self, seconds: float) -> None:
        self.lags.append(seconds)
        self.told.set()


async def test_the_time_beyond_the_sleep_is_told() -> None:
    heard, times = Heard(), iter([10.0, 12.5])
    async with asyncio.TaskGroup() as group:
        task = group.create_task(watch_loop(heard, lambda: next(times, 0.0)))
        await asyncio.wait_for(heard.told.wait(), 30)
        task.cancel()
    assert heard.lags[0] == 2.25
