"""Push configurations as rows: the cursor, the claim that allows to move it, and the due time that an event sets."""

import re
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from gateway.ledger.errors import Conflict
from gateway.ledger.push import (
    AdvancePush,
    ClaimPush,
    CompletePush,
    DeletePushConfig,
    DuePush,
    FailPush,
    PushConfig,
    PushState,
    PushStatus,
    PutPushConfig,
    ReplayPush,
)
from gateway.ledger.tasks import Append, EventRow
from storage.schema.open import prepare
from storage.sql import push
from storage.sql.compile import texts
from tests.storage.conversation import ACCEPT, ADA, APPEND, COMPLETE, FINISH, PREPARE, Recorded, recorded

CONFIG = PushConfig(ACCEPT.task, "config-1", "1.0", "https://hook.example/", "hook.example", "Bearer", b"sealed")
PUT = PutPushConfig(ADA.tenant, ADA.principal, ACCEPT.agent, CONFIG, 10, 500)
KEY = (CONFIG.task, CONFIG.id)

SQL = texts(push)


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Recorded]:
    async with recorded(tmp_path / "ledger.db") as database:
        await database.ledger.commit(ACCEPT, PREPARE, PUT)
        yield database


def event(number: int) -> Append:
    return Append(EventRow(CONFIG.task, number, number, b"{}"))


async def first_event(database: Recorded) -> int:
    [status] = await database.ledger.push_statuses(ADA.tenant, ADA.principal)
    return status.next_event


async def due(database: Recorded, now: int = 1000, excluded: tuple[str, ...] = ()) -> list[int]:
    return [found.due_at for found in await database.ledger.due_pushes(now, excluded, 10)]


@pytest.mark.parametrize("name", SQL)
def test_nothing_reads_a_table_from_end_to_end(tmp_path: Path, name: str) -> None:
    prepare(tmp_path / "empty.db", 5000, auto_migrate=True)
    with closing(sqlite3.connect(tmp_path / "empty.db")) as connection:
        sql = SQL[name]
        plan = connection.execute(f"EXPLAIN QUERY PLAN {sql}", dict.fromkeys(re.findall(r":(\w+)", sql))).fetchall()
    scans = [step for *_, step in plan if step.startswith("SCAN")]
    assert [step for step in scans if "VIRTUAL TABLE" not in step and "CONSTANT ROW" not in step] == []


async def test_a_configuration_is_read_as_it_was_put(database: Recorded) -> None:
    assert await database.ledger.push_configs(CONFIG.task) == (CONFIG,)
    assert await database.ledger.push_configs("another") == ()
    number = await first_event(database)
    assert await database.ledger.push_statuses(ADA.tenant, ADA.principal) == (
        PushStatus(CONFIG, ACCEPT.agent, PushState.ACTIVE, number, None, 0, None),
    )
    assert await database.ledger.push_statuses(ADA.tenant, "eve") == ()


async def test_every_appended_event_makes_the_delivery_due_in_its_own_unit(database: Recorded) -> None:
    assert (await due(database), await database.ledger.next_push()) == ([], (True, None))
    number = await first_event(database)
    await database.ledger.commit(event(number))
    assert (await due(database), await database.ledger.next_push()) == ([0], (True, 0))
    assert await database.ledger.due_pushes(1000, (), 10) == (DuePush(CONFIG, number, 0, 0, True),)


async def test_an_event_that_is_not_stored_makes_nothing_due(database: Recorded) -> None:
    number = await first_event(database)
    with pytest.raises(Conflict):
        await database.ledger.commit(event(number), event(number + 5))
    assert await due(database) == []


async def test_busy_hosts_are_skipped(database: Recorded) -> None:
    await database.ledger.commit(event(await first_event(database)))
    assert (await due(database, excluded=("hook.example",)), await due(database, excluded=("other.example",))) == (
        [],
        [0],
    )


async def test_a_claimed_delivery_belongs_to_its_process_until_the_claim_expires(database: Recorded) -> None:
    await database.ledger.commit(event(await first_event(database)))
    await database.ledger.commit(ClaimPush(*KEY, 0, 5000))
    with pytest.raises(Conflict):
        await database.ledger.commit(ClaimPush(*KEY, 0, 6000))
    assert (await due(database, 4999), await due(database, 5000)) == ([], [5000])


async def test_the_cursor_moves_only_for_the_process_with_the_claim(database: Recorded) -> None:
    number = await first_event(database)
    await database.ledger.commit(event(number))
    with pytest.raises(Conflict):
        await database.ledger.commit(AdvancePush(*KEY, 5000, number + 1, 6000))
    await database.ledger.commit(ClaimPush(*KEY, 0, 5000))
    await database.ledger.commit(AdvancePush(*KEY, 5000, number + 1, 6000))
    assert (await first_event(database), await due(database, 6000)) == (number + 1, [6000])


async def test_a_complete_delivery_is_idle_or_due_when_events_came_meanwhile(database: Recorded) -> None:
    number = await first_event(database)
    await database.ledger.commit(event(number))
    await database.ledger.commit(ClaimPush(*KEY, 0, 5000))
    await database.ledger.commit(event(number + 1))
    assert await due(database) == []
    await database.ledger.commit(CompletePush(*KEY, 5000, number + 1))
    assert await due(database) == [0]
    await database.ledger.commit(CompletePush(*KEY, 0, number + 2))
    assert (await due(database), (await database.ledger.next_push())[0]) == ([], True)


async def test_it_is_done_when_its_task_has_ended_and_all_is_delivered(database: Recorded) -> None:
    await database.ledger.commit(COMPLETE, APPEND, FINISH)
    [found] = await database.ledger.due_pushes(0, (), 10)
    events = await database.ledger.push_events(CONFIG.task, found.next_event)
    await database.ledger.commit(CompletePush(*KEY, 0, events[-1][0] + 1))
    assert await database.ledger.next_push() == (False, None)
    assert await database.ledger.push_statuses(ADA.tenant, ADA.principal) == ()
    with closing(sqlite3.connect(database.path)) as connection:
        assert connection.execute("SELECT state FROM push_config").fetchall() == [("done",)]


async def test_a_failure_stores_its_time_and_reason(database: Recorded) -> None:
    await database.ledger.commit(event(await first_event(database)))
    await database.ledger.commit(FailPush(*KEY, 0, 9000, PushState.ACTIVE, 1, "HTTP 500"))
    [status] = await database.ledger.push_statuses(ADA.tenant, ADA.principal)
    assert (status.due_at, status.attempts, status.last_error) == (9000, 1, "HTTP 500")
    await database.ledger.commit(FailPush(*KEY, 9000, None, PushState.STOPPED, 2, "HTTP 502"))
    assert await database.ledger.next_push() == (False, None)
    await database.ledger.commit(event(await first_event(database) + 1))
    assert await due(database) == []
    await database.ledger.commit(ReplayPush(*KEY))
    with pytest.raises(Conflict):
        await database.ledger.commit(ReplayPush(*KEY))
    assert await due(database) == [0]


async def test_a_place_that_is_not_there_or_has_no_room_takes_none(database: Recorded) -> None:
    for wrong in (
        replace(PUT, principal="eve"),
        replace(PUT, tenant="other"),
        replace(PUT, agent="other"),
        replace(PUT, config=replace(CONFIG, task="none")),
        replace(PUT, config=replace(CONFIG, id="config-2"), most=1),
    ):
        with pytest.raises(Conflict):
            await database.ledger.commit(wrong)
    await database.ledger.commit(replace(PUT, config=replace(CONFIG, url="https://other.example/"), most=1))
    [config] = await database.ledger.push_configs(CONFIG.task)
    assert config.url == "https://other.example/"


async def test_one_that_is_dropped_is_not_there_and_can_be_dropped_again(database: Recorded) -> None:
    await database.ledger.commit(DeletePushConfig(*KEY))
    await database.ledger.commit(DeletePushConfig(*KEY))
    assert await database.ledger.push_configs(CONFIG.task) == ()


async def test_events_are_read_from_the_cursor_on_in_their_order(database: Recorded) -> None:
    number = await first_event(database)
    await database.ledger.commit(Append(EventRow(CONFIG.task, number, number + 2, b"1\n2\n3")))
    assert await database.ledger.push_events(CONFIG.task, number + 1) == ((number + 1, b"2"), (number + 2, b"3"))


async def test_a_task_is_hidden_that_was_answered_bare(database: Recorded) -> None:
    assert not await database.ledger.is_hidden(CONFIG.task)
    await database.ledger.commit(COMPLETE, APPEND, replace(FINISH, visible=False))
    assert await database.ledger.is_hidden(CONFIG.task)
