"""An event is appended while another gateway looks whether its configuration has more to deliver: whichever of the two commits
first, the delivery becomes due."""

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import psycopg
import pytest
from msgspec.structs import replace

from gateway.ledger.port import Ledger
from gateway.ledger.push import ClaimPush, CompletePush, PushConfig, PutPushConfig
from gateway.ledger.tasks import Append, EventRow
from gateway.testing.ledger_points import ACCEPT
from storage.postgres.ledger import open_ledger
from storage.postgres.settings import PostgresSettings
from tests.support.polling import until

_CONFIG = PushConfig("task-1", "config-1", "1.0", "https://hook.example/a", "hook.example", None, None)
_EVENT = "INSERT INTO event (task, first, last, payload) VALUES ('task-1', 2, 2, '{}')"
_CLAIMED_UNTIL = 5000

_TO_DELIVER, _NOTHING_DUE = (True, 0), (True, None)


@pytest.fixture
async def ledger(database_url: str) -> AsyncGenerator[Ledger]:
    async with open_ledger(PostgresSettings(url=database_url), True) as ledger:
        await ledger.commit(replace(ACCEPT, event=EventRow("task-1", 1, 1, b"{}")))
        yield ledger


def _put(config: PushConfig = _CONFIG) -> PutPushConfig:
    return PutPushConfig(ACCEPT.caller.tenant, ACCEPT.caller.principal, ACCEPT.agent, config, 10, 1)


async def _claimed(ledger: Ledger) -> None:
    """A delivery that has delivered the only event."""
    await ledger.commit(_put())
    await ledger.commit(_put())  # a configuration that is put again is due
    await ledger.commit(ClaimPush("task-1", "config-1", 0, _CLAIMED_UNTIL))


_COMPLETE = CompletePush("task-1", "config-1", _CLAIMED_UNTIL, 2)


@contextmanager
def _in_transaction(url: str, *statements: str) -> Iterator[psycopg.Connection[Any]]:
    """Of another gateway, which has run these and not committed."""
    with psycopg.connect(url) as connection:
        for statement in statements:
            connection.execute(statement.encode())
        yield connection


async def test_a_delivery_that_completes_beside_an_event_that_is_not_committed_becomes_due(
    ledger: Ledger, database_url: str
) -> None:
    await _claimed(ledger)
    with _in_transaction(database_url, _EVENT) as other:
        await ledger.commit(_COMPLETE)
        other.commit()
    assert await ledger.next_push() == _TO_DELIVER


async def test_a_configuration_that_is_made_beside_an_event_that_is_not_committed_is_due(
    ledger: Ledger, database_url: str
) -> None:
    with _in_transaction(database_url, _EVENT) as other:
        await ledger.commit(_put())
        other.commit()
    assert await ledger.next_push() == _TO_DELIVER


async def test_of_two_deliveries_in_one_group_the_one_beside_which_nothing_is_appended_waits_for_the_next_event(
    ledger: Ledger, database_url: str
) -> None:
    await ledger.commit(
        replace(
            ACCEPT,
            context_row="context-2",
            context_public="p-2",
            thread=replace(ACCEPT.thread, id="thread-2", context="context-2"),
            task="task-2",
            turn="turn-2",
            key=None,
            event=EventRow("task-2", 1, 1, b"{}"),
        )
    )
    with _in_transaction(database_url, _EVENT) as other:
        async with asyncio.TaskGroup() as group:
            group.create_task(ledger.commit(_put()))
            group.create_task(ledger.commit(_put(replace(_CONFIG, task="task-2"))))
        due = [found.config.task for found in await ledger.due_pushes(1000, (), 10)]
        other.commit()
    assert due == ["task-1"]


async def test_an_event_that_waits_for_a_completion_makes_its_delivery_due(ledger: Ledger, database_url: str) -> None:
    await _claimed(ledger)
    looks = "SELECT id FROM task WHERE id = 'task-1' FOR UPDATE"
    with _in_transaction(database_url, looks, "UPDATE push_config SET due_at = NULL") as other:
        async with asyncio.TaskGroup() as group:
            group.create_task(ledger.commit(Append(EventRow("task-1", 2, 2, b"{}"))))
            await until(partial(_somebody_waits, database_url))
            other.commit()
    assert await ledger.next_push() == _TO_DELIVER


async def test_a_configuration_that_is_made_with_its_task_waits_for_the_next_event(database_url: str) -> None:
    async with open_ledger(PostgresSettings(url=database_url), True) as ledger:
        await ledger.commit(replace(ACCEPT, event=EventRow("task-1", 1, 1, b"{}")), _put())
        assert await ledger.next_push() == _NOTHING_DUE


async def test_a_delivery_that_completes_beside_nothing_waits_for_the_next_event(ledger: Ledger) -> None:
    await _claimed(ledger)
    await ledger.commit(_COMPLETE)
    assert await ledger.next_push() == _NOTHING_DUE


async def _somebody_waits(url: str) -> bool:
    with psycopg.connect(url) as connection:
        waits = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        return connection.execute(waits).fetchone() is not None
