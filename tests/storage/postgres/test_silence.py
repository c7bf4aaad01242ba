"""A server that takes connections and says nothing: whoever waits for it waits for one bound, whoever comes later is refused at
once, and all goes on when it answers again."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial

import pytest

from gateway.ledger.port import Ledger
from gateway.testing.ledger_points import ACCEPT, ADA
from storage.postgres import ledger as postgres_ledger
from tests.storage.postgres.test_failures import context, event, numbers, opened, outcome
from tests.support.polling import until
from tests.support.postgres import postgres_server

_MARGIN = 3.0
_BOUND = 1.0 + _MARGIN
_READY = 1.0
_SOON = 0.5
"""Seconds that a loaded machine may take."""

SHORT = {"statement_timeout": "1s", "connect_timeout": "1s"}


@pytest.fixture(autouse=True)
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_ledger, "MARGIN", _MARGIN)
    monkeypatch.setattr(postgres_ledger, "_READY", _READY)


async def timed(asked: Awaitable[object]) -> tuple[str, float]:
    """What becomes of it, and the seconds that it took."""
    began = time.monotonic()
    return await outcome(asked), time.monotonic() - began


def questions(ledger: Ledger) -> tuple[Callable[[], Awaitable[object]], ...]:
    return (
        partial(ledger.task, ADA, "echo", "task-1"),
        partial(numbers, ledger),
        partial(ledger.commit, context(3)),
    )


async def refusals(ledger: Ledger, rounds: int) -> list[tuple[str, float]]:
    """Of all questions, a round each 0.1 s."""
    async with asyncio.TaskGroup() as group:
        asked = []
        for _ in range(rounds):
            asked += [group.create_task(timed(ask())) for ask in questions(ledger)]
            await asyncio.sleep(0.1)  # each in a trip of its own
    return [each.result() for each in asked]


async def is_ready(ledger: Ledger) -> bool:
    return await outcome(ledger.ready()) == "stored"


async def test_whoever_waits_for_a_silent_server_waits_once_and_who_comes_later_is_refused_at_once() -> None:
    with postgres_server() as server:
        async with opened(server.url(), **SHORT) as ledger:
            await ledger.commit(ACCEPT)
            assert await numbers(ledger) == [1]
            with server.frozen():
                told = await refusals(ledger, 30)
                assert {word for word, _ in told} == {"unavailable"}
                assert max(took for _, took in told) < _BOUND + _SOON
                for ask in (*questions(ledger), ledger.ready):
                    word, took = await timed(ask())
                    assert (word, took < _SOON) == ("unavailable", True)
            await until(partial(is_ready, ledger))
            await ledger.commit(event(2))
            assert await numbers(ledger) == [1, 2]


async def test_readiness_does_not_wait_for_a_silent_server_and_others_learn_from_it() -> None:
    with postgres_server() as server:
        async with opened(server.url(), **SHORT | {"statement_timeout": "30s"}) as ledger:
            await ledger.commit(ACCEPT)
            await ledger.ready()
            with server.frozen():
                for _ in range(3):
                    word, took = await timed(ledger.ready())
                    assert (word, took < _READY + _SOON) == ("unavailable", True)
                for ask in (*questions(ledger), ledger.ready):
                    word, took = await timed(ask())
                    assert (word, took < _SOON) == ("unavailable", True)
            await until(partial(is_ready, ledger))
            await ledger.commit(event(2))


async def test_a_server_that_is_silent_when_nobody_is_connected_is_refused_after_one_attempt() -> None:
    with postgres_server() as server:
        async with opened(server.url(), **SHORT) as ledger:
            await ledger.commit(ACCEPT)
            server.stop("immediate")
            assert await outcome(numbers(ledger)) == "unavailable"
            server.start()
            with server.frozen():
                told = await refusals(ledger, 20)
                assert {word for word, _ in told} == {"unavailable"}
                assert max(took for _, took in told) < _BOUND + _SOON
            await until(partial(is_ready, ledger))
