"""The drain calls every callback once, also those added after it began; a waiter for work in flight misses no last piece."""

import asyncio

import pytest

from gateway.foundation.shutdown import Drain, DrainOver, InFlight
from tests.support.core import soon


def test_every_callback_is_called() -> None:
    drain, told = Drain(), []
    with drain.on_set(lambda: told.append("a")), drain.on_set(lambda: told.append("b")):
        assert told == []
        drain.set()
    assert sorted(told) == ["a", "b"]
    assert drain.is_set()


def test_a_late_callback_is_called_at_once() -> None:
    drain, told = Drain(), []
    drain.set()
    with drain.on_set(lambda: told.append("late")):
        assert told == ["late"]


def test_a_callback_is_not_called_after_its_block() -> None:
    drain, told = Drain(), []
    with drain.on_set(lambda: told.append("gone")):
        pass
    drain.set()
    assert told == []


def test_a_callback_that_ends_another_block_does_not_disturb_the_others() -> None:
    drain, told = Drain(), []
    with drain.on_set(lambda: told.append("stays")):

        def leave() -> None:
            told.append("leaves")
            leaving.__exit__(None, None, None)

        leaving = drain.on_set(leave)
        leaving.__enter__()
        drain.set()
    assert sorted(told) == ["leaves", "stays"]


async def test_what_is_waited_for_is_given_up_when_the_drain_is_over() -> None:
    drain, slow = Drain(), asyncio.get_running_loop().create_future()
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(_given_up(drain, slow))
        await asyncio.sleep(0)
        drain.set()
        await asyncio.sleep(0)
        assert not waiting.done()
        drain.over.set()
        await soon(waiting)
        await soon(_given_up(drain, slow))
    assert not slow.cancelled()


async def _given_up(drain: Drain, future: asyncio.Future[str]) -> None:
    with pytest.raises(DrainOver):
        await drain.before_over(future)


async def test_what_is_there_when_the_drain_is_over_is_given() -> None:
    drain, future = Drain(), asyncio.get_running_loop().create_future()
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(drain.before_over(future))
        await asyncio.sleep(0)
        drain.over.set()
        future.set_result("done")
    assert waiting.result() == await drain.before_over(future) == "done"


async def test_a_waiter_that_leaves_does_not_cancel_what_others_wait_for() -> None:
    drain, future = Drain(), asyncio.get_running_loop().create_future()
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(drain.before_over(future))
        await asyncio.sleep(0)
        waiting.cancel()
    assert waiting.cancelled()
    assert not future.cancelled()


async def test_without_work_nothing_waits() -> None:
    arrivals = InFlight()
    with arrivals.now:
        pass
    await soon(arrivals.wait_zero())


async def test_work_that_begins_during_the_wait_is_waited_for() -> None:
    arrivals, order = InFlight(), []

    async def over() -> None:
        await arrivals.wait_zero()
        order.append("over")

    async with asyncio.TaskGroup() as group:
        with arrivals.now:
            group.create_task(over())
            await asyncio.sleep(0)
            with arrivals.now:
                await asyncio.sleep(0)
            order.append("one is left")
        with arrivals.now:
            await asyncio.sleep(0)
            order.append("another came")
    assert order == ["one is left", "another came", "over"]


async def test_waiting_for_current_work_does_not_wait_for_later_work() -> None:
    arrivals = InFlight()
    async with asyncio.TaskGroup() as group:
        with arrivals.now:
            passed = group.create_task(arrivals.wait_current())
            await asyncio.sleep(0)
            later = arrivals.now
            later.__enter__()
            assert not passed.done()
        await soon(passed)
        later.__exit__()


async def test_a_later_wait_includes_earlier_unfinished_work() -> None:
    arrivals = InFlight()
    async with asyncio.TaskGroup() as group:
        with arrivals.now:
            first = group.create_task(arrivals.wait_current())
            await asyncio.sleep(0)
            second = group.create_task(arrivals.wait_current())
            await asyncio.sleep(0)
            assert not second.done()
        await soon(first)
        await soon(second)


async def test_the_final_wait_includes_every_wave() -> None:
    arrivals = InFlight()
    async with asyncio.TaskGroup() as group:
        first = arrivals.now
        with first:
            passed = group.create_task(arrivals.wait_current())
            await asyncio.sleep(0)
            with arrivals.now:
                over = group.create_task(arrivals.wait_zero())
                await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert not over.done()
        await soon(over)
        await soon(passed)


async def test_failed_work_is_over() -> None:
    arrivals = InFlight()
    with pytest.raises(KeyError), arrivals.now:
        raise KeyError
    await soon(arrivals.wait_zero())
