"""Who waits until nothing arrives any more is told when the last has arrived."""

import asyncio

import pytest

from gateway.arrivals import Arrivals
from tests.gateway.core import soon


async def test_where_nothing_arrives_nobody_waits() -> None:
    arrivals = Arrivals()
    with arrivals:
        pass
    await soon(arrivals.over())


async def test_all_that_arrive_are_waited_for_also_those_who_come_meanwhile() -> None:
    arrivals, order = Arrivals(), []

    async def over() -> None:
        await arrivals.over()
        order.append("over")

    async with asyncio.TaskGroup() as group:
        first, second = Arrivals.__enter__, Arrivals.__exit__
        first(arrivals)
        group.create_task(over())
        await asyncio.sleep(0)
        first(arrivals)
        second(arrivals)
        await asyncio.sleep(0)
        order.append("one is left")
        second(arrivals)
        first(arrivals)
        await asyncio.sleep(0)
        order.append("another came")
        second(arrivals)
    assert order == ["one is left", "another came", "over"]


async def test_what_fails_has_arrived_too() -> None:
    arrivals = Arrivals()
    with pytest.raises(KeyError), arrivals:
        raise KeyError
    await soon(arrivals.over())
