"""A task that is cancelled ends, or is left behind."""

import asyncio
from contextlib import suppress

import pytest

from gateway.foundation.tasks import stop
from tests.support.core import soon


class Stubborn:
    """Goes on whatever it is told, until it is let go."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.cancels = 0

    async def run(self) -> str:
        while not self.go.is_set():
            try:
                await self.go.wait()
            except asyncio.CancelledError:
                self.cancels += 1
        return "done"


def started(stubborn: Stubborn) -> asyncio.Task[str]:
    return asyncio.get_running_loop().create_task(stubborn.run())


async def test_what_has_ended_and_what_heeds_its_cancellation_has_ended() -> None:
    waits = asyncio.get_running_loop().create_task(asyncio.Event().wait())
    await asyncio.sleep(0)
    assert await stop(waits)
    assert (waits.cancelled(), await stop(waits)) == (True, True)


async def test_what_does_not_is_left_to_itself_and_the_loop_does_not_wait_for_it() -> None:
    stubborn = Stubborn()
    task = started(stubborn)
    await asyncio.sleep(0)
    assert not await soon(stop(task))
    assert (stubborn.cancels, task in asyncio.all_tasks()) == (1, False)
    stubborn.go.set()
    assert await task == "done"


async def test_who_is_cancelled_meanwhile_waits_no_longer() -> None:
    stubborn = Stubborn()
    task = started(stubborn)
    await asyncio.sleep(0)
    stopping = asyncio.get_running_loop().create_task(stop(task))
    while not stubborn.cancels:  # noqa: ASYNC110
        await asyncio.sleep(0)
    stopping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stopping
    assert task not in asyncio.all_tasks()
    stubborn.go.set()
    await task


def test_a_loop_ends_beside_what_was_left() -> None:
    left: list[Stubborn] = []

    async def main() -> None:
        left.append(Stubborn())
        task = started(left[0])
        await asyncio.sleep(0)
        with suppress(asyncio.CancelledError):
            assert not await stop(task)

    asyncio.run(main())
    assert left[0].cancels == 1
