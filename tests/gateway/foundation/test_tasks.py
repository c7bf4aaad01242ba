"""The first of several ends a wait. A cancelled task ends, or is abandoned."""

import asyncio
from contextlib import suppress

import pytest

from gateway.foundation.tasks import first_of, stop
from tests.support.core import soon


class Stubborn:
    """Ignores cancellations until the event is set."""

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


async def test_a_finished_task_and_one_that_accepts_its_cancellation_have_ended() -> None:
    waits = asyncio.get_running_loop().create_task(asyncio.Event().wait())
    await asyncio.sleep(0)
    assert await stop(waits)
    assert (waits.cancelled(), await stop(waits)) == (True, True)


async def test_a_task_that_ignores_its_cancellation_is_abandoned() -> None:
    stubborn = Stubborn()
    task = started(stubborn)
    await asyncio.sleep(0)
    assert not await soon(stop(task))
    assert (stubborn.cancels, task in asyncio.all_tasks()) == (1, False)
    stubborn.go.set()
    assert await task == "done"


async def test_a_cancelled_stop_abandons_the_task() -> None:
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


def test_a_loop_ends_in_spite_of_an_abandoned_task() -> None:
    left: list[Stubborn] = []

    async def main() -> None:
        left.append(Stubborn())
        task = started(left[0])
        await asyncio.sleep(0)
        with suppress(asyncio.CancelledError):
            assert not await stop(task)

    asyncio.run(main())
    assert left[0].cancels == 1


async def test_the_first_of_several_ends_the_wait_and_cancels_the_others() -> None:
    never, ended = asyncio.Event(), asyncio.Event()

    async def cancelled() -> None:
        try:
            await never.wait()
        finally:
            ended.set()

    await first_of(asyncio.sleep(0), cancelled())
    assert ended.is_set()


async def test_a_task_of_another_group_is_not_cancelled() -> None:
    go_on = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(_ended(go_on))
        await first_of(asyncio.sleep(0), task)
        go_on.set()
    assert not task.cancelled()


async def _ended(event: asyncio.Event) -> None:
    await event.wait()
