"""Who waits until nothing arrives any more is told when the last has arrived."""

import asyncio

import pytest

from gateway.foundation.in_flight import InFlight
from tests.support.core import soon


async def test_where_nothing_arrives_nobody_waits() -> None:
    arrivals = InFlight()
    with arrivals.now:
        pass
    await soon(arrivals.wait_zero())


async def test_all_that_arrive_are_waited_for_also_those_who_come_meanwhile() -> None:
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


async def test_who_asks_for_those_on_their_way_does_not_wait_for_those_who_come_later() -> None:
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


async def test_who_asks_later_waits_for_the_earlier_ones_too_that_have_not_arrived() -> None:
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


async def test_those_of_every_wave_are_waited_for_at_the_end() -> None:
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


async def test_what_fails_has_arrived_too() -> None:
    arrivals = InFlight()
    with pytest.raises(KeyError), arrivals.now:
        raise KeyError
    await soon(arrivals.wait_zero())
