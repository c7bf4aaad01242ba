"""A server that goes away, that waits, or that has lost something: what was acknowledged is there, what was refused is not."""

import asyncio
import gc
import secrets
from collections.abc import AsyncGenerator, Awaitable, Iterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

import psycopg
import pytest
from msgspec.structs import replace

from gateway.ledger.calls import NameCall
from gateway.ledger.errors import Conflict, LedgerUnavailable
from gateway.ledger.leases import Fence, Renew
from gateway.ledger.points import CommitPoint
from gateway.ledger.port import Ledger
from gateway.ledger.tasks import Append, EventRow, PageLimits, TaskFilter
from gateway.ledger.threads import DeleteOrphan, KeepHandle
from gateway.ledger.turns import Accept
from gateway.testing.ledger_points import ACCEPT, ADA, PREPARE, THREAD
from storage.postgres import groups, session
from storage.postgres.errors import Failure
from storage.postgres.ledger import open_ledger
from storage.postgres.settings import PostgresSettings
from storage.postgres.text import bound, plain
from tests.storage.postgres.cutting_proxy import Cut, cutting_proxy
from tests.support.polling import until
from tests.support.pooler import pooled
from tests.support.postgres import Server, postgres_server


def opened(url: str, **settings: Any) -> Any:
    return open_ledger(PostgresSettings(url=url, **settings), True)


def context(number: int) -> Accept:
    """The first message of a context of its own."""
    row, thread, task = f"context-{number}", f"thread-{number}", f"task-{number}"
    return replace(
        ACCEPT,
        context_row=row,
        context_public=f"public-{number}",
        thread=replace(THREAD, id=thread, context=row),
        task=task,
        turn=f"turn-{number}",
        key=None,
        event=EventRow(task, 1, 1, b"{}"),
    )


def event(number: int) -> Append:
    return Append(EventRow("task-1", number, number, b"{}"))


async def outcome(commit: Awaitable[object]) -> str:
    """'stored', or the trouble."""
    try:
        await commit
    except LedgerUnavailable as error:
        return error.trouble
    return "stored"


def submitted(ledger: Ledger, point: CommitPoint) -> asyncio.Future[str]:
    """'stored', or the trouble, of a point of a running turn."""
    told: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def done(error: Exception | None) -> None:
        told.set_result(error.trouble if isinstance(error, LedgerUnavailable) else str(error or "stored"))

    ledger.submit((point,), done)
    return told


async def numbers(ledger: Ledger) -> list[int]:
    return [number for number, _ in await ledger.events("task-1", 0)]


def run(url: str, sql: str, *values: object) -> list[tuple[Any, ...]]:
    with psycopg.connect(url, autocommit=True) as connection:
        found = connection.execute(sql.encode(), values)
        return found.fetchall() if found.description else []


def cut_off(url: str) -> None:
    """Ends all connections to this database."""
    run(
        url,
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()",
    )


# --- connections


async def test_connections_that_the_server_has_closed_are_replaced_without_a_failure(database_url: str) -> None:
    async with opened(database_url) as ledger:
        await ledger.commit(ACCEPT)
        for number in range(2, 5):
            await asyncio.to_thread(cut_off, database_url)
            await ledger.commit(event(number))
            await asyncio.to_thread(cut_off, database_url)
            assert await numbers(ledger) == [*range(1, number + 1)]
        await ledger.ready()


@pytest.mark.parametrize("cut", [Cut.BEFORE, Cut.BEHIND])
@pytest.mark.parametrize("patient", [True, False])
async def test_a_commit_whose_answer_is_lost_is_stored_once_and_acknowledged(
    database_url: str, cut: Cut, patient: bool
) -> None:
    """A point of a running turn, and a message: the one may wait, the other may not."""
    async with cutting_proxy(database_url) as (proxy, url), opened(url) as ledger:
        await ledger.commit(ACCEPT)
        for number in range(2, 6):
            proxy.next = cut
            stored = submitted(ledger, event(number)) if patient else outcome(ledger.commit(context(number)))
            assert await stored == "stored"
        assert proxy.cuts == 4
        found = await asyncio.to_thread(run, database_url, "SELECT task, last FROM event ORDER BY task, last")
        expected = [("task-1", number) for number in range(1, 6 if patient else 2)]
        assert found == expected + ([] if patient else [(f"task-{number}", 1) for number in range(2, 6)])


def test_a_connection_whose_answers_were_not_all_read_is_not_used_again(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next reader would get the rest of them."""

    def fails(_: bytes) -> str:
        raise MemoryError

    made = session.Session(PostgresSettings(url=database_url).conninfo(options=True), 5.0, 30.0, prepares=True)
    monkeypatch.setitem(session._DECODERS, 25, fails)
    with pytest.raises(MemoryError):
        made.run([bound(plain("SELECT CAST('of one' AS text)"), {}), bound(plain("SELECT 1"), {})])
    assert not made.usable


async def test_a_group_in_doubt_waits_until_the_server_can_say(database_url: str) -> None:
    async with cutting_proxy(database_url) as (proxy, url), opened(url) as ledger:
        await ledger.commit(ACCEPT)
        proxy.next, proxy.closed = Cut.BEHIND, True
        doubted = asyncio.ensure_future(outcome(ledger.commit(context(2))))  # noqa: TID251
        await until(lambda: proxy.cuts == 1)
        assert await outcome(ledger.commit(context(3))) == "unavailable"
        assert not doubted.done()
        proxy.closed = False
        assert await doubted == "stored"
        assert await outcome(ledger.commit(context(4))) == "stored"
        assert await ledger.task(ADA, "echo", "task-2") is not None
        assert await ledger.task(ADA, "echo", "task-3") is None


async def test_a_closing_ledger_does_not_wait_for_a_server_that_is_gone(database_url: str) -> None:
    async with asyncio.timeout(30), cutting_proxy(database_url) as (proxy, url):
        async with opened(url) as ledger:
            await ledger.commit(ACCEPT)
            proxy.next, proxy.closed = Cut.BEHIND, True
            doubted = asyncio.ensure_future(outcome(ledger.commit(event(2))))  # noqa: TID251
            await until(lambda: proxy.cuts == 1)
        assert await doubted == "unavailable"


async def test_reads_fail_while_the_server_is_gone_and_come_back_by_themselves(database_url: str) -> None:
    async with cutting_proxy(database_url) as (proxy, url), opened(url) as ledger:
        await ledger.commit(ACCEPT)
        proxy.closed = True
        proxy.cut_all()
        with pytest.raises(LedgerUnavailable, match="the database could not be read"):
            await ledger.task(ADA, "echo", "task-1")
        with pytest.raises(LedgerUnavailable):
            await ledger.ready()
        proxy.closed = False
        assert await ledger.task(ADA, "echo", "task-1") is not None
        await ledger.ready()


# --- crashes


async def test_a_server_that_crashes_again_and_again_keeps_what_was_acknowledged_and_nothing_else() -> None:
    with postgres_server({"fsync": "on"}) as server:
        told: dict[int, str] = {}
        async with opened(server.url()) as ledger:
            crashes = asyncio.ensure_future(crash_again_and_again(server))  # noqa: TID251
            number = 0
            while not crashes.done():
                some = range(number + 1, number + 9)
                number = some[-1]
                told |= zip(
                    some, await asyncio.gather(*(outcome(ledger.commit(context(each))) for each in some)), strict=True
                )
            await crashes
            await until(partial(is_stored, ledger, number + 1), 30)
            told[number + 1] = "stored"
            stored = {number for (number,) in await asyncio.to_thread(run, server.url(), _NUMBERS)}
        assert stored == {number for number, became in told.items() if became == "stored"}
        assert {*told.values()} >= {"stored", "unavailable"}


_NUMBERS = "SELECT CAST(substr(id, 6) AS integer) FROM task"


async def crash_again_and_again(server: Server) -> None:
    for _ in range(3):
        await asyncio.sleep(0.3)  # the load runs meanwhile
        await asyncio.to_thread(server.stop, "immediate")
        await asyncio.to_thread(server.start)


async def is_stored(ledger: Ledger, number: int) -> bool:
    return await outcome(ledger.commit(context(number))) == "stored"


async def test_points_of_a_running_turn_wait_for_a_server_that_restarts() -> None:
    with postgres_server({"fsync": "on"}) as server:
        async with opened(server.url()) as ledger:
            await ledger.commit(ACCEPT)
            await asyncio.to_thread(server.stop, "immediate")
            assert await outcome(ledger.commit(context(2))) == "unavailable"
            waiting = submitted(ledger, replace(PREPARE, event=None))
            await asyncio.to_thread(server.start)
            assert await waiting == "stored"


async def test_a_server_that_lacks_what_it_confirmed_is_neither_written_to_nor_read(database_url: str) -> None:
    """As a standby that had not received all: that something is not there would be a wrong answer."""
    async with opened(database_url) as ledger:
        await ledger.commit(ACCEPT)
        await asyncio.to_thread(run, database_url, "UPDATE ledger_writer SET number = number - 1")
        await asyncio.to_thread(cut_off, database_url)
        for _ in range(2):
            with pytest.raises(LedgerUnavailable, match="lacks what it has confirmed") as caught:
                await ledger.commit(event(2))
            assert caught.value.trouble == "behind"
        for read in (ledger.ready, partial(numbers, ledger)):
            with pytest.raises(LedgerUnavailable, match="lacks what it has confirmed") as caught:
                await read()
            assert caught.value.trouble == "behind"
        await asyncio.to_thread(run, database_url, "UPDATE ledger_writer SET number = number + 1")
        await ledger.ready()
        await ledger.commit(event(2))
        assert await numbers(ledger) == [1, 2]


async def test_behind_a_pooler_such_a_server_is_noticed_without_a_lost_connection(database_url: str) -> None:
    with pooled(database_url) as url:
        async with opened(url) as ledger:
            await ledger.commit(ACCEPT)
            await asyncio.to_thread(run, database_url, "UPDATE ledger_writer SET number = number - 1")
            for _ in range(2):
                assert await outcome(ledger.commit(event(2))) == "behind"
            await asyncio.to_thread(run, database_url, "UPDATE ledger_writer SET number = number + 1")
            await ledger.commit(event(2))
            assert await numbers(ledger) == [1, 2]


@pytest.fixture
def no_garbage_collection() -> Iterator[None]:
    """Of a gateway it is rare."""
    gc.disable()
    yield
    gc.enable()


async def test_a_group_that_counts_after_all_does_not_lend_its_number_to_another(database_url: str) -> None:
    """The answer to a COMMIT is lost, a server that lacks it takes over, and the first one comes back."""
    async with cutting_proxy(database_url) as (proxy, url), opened(url) as ledger:
        await ledger.commit(ACCEPT)
        proxy.next, proxy.closed = Cut.BEHIND, True
        doubted = asyncio.ensure_future(outcome(ledger.commit(context(2))))  # noqa: TID251
        await until(lambda: proxy.cuts == 1)
        await asyncio.to_thread(run, database_url, "UPDATE ledger_writer SET number = number - 2")
        proxy.closed = False
        assert await doubted == "behind"
        await asyncio.to_thread(run, database_url, "UPDATE ledger_writer SET number = number + 2")
        proxy.next = Cut.BEFORE
        assert await outcome(ledger.commit(context(3))) == "stored"
        assert proxy.cuts == 2
        assert await ledger.task(ADA, "echo", "task-3") is not None


@pytest.mark.parametrize("cut", [True, False])
async def test_a_gateway_that_wrote_nothing_for_so_long_that_its_row_was_deleted_goes_on(
    database_url: str, monkeypatch: pytest.MonkeyPatch, cut: bool
) -> None:
    async with opened(database_url) as ledger:
        await ledger.commit(ACCEPT)
        monkeypatch.setattr(groups, "_OLD", -1)
        async with opened(database_url):
            rows = await asyncio.to_thread(run, database_url, "SELECT count(*) FROM ledger_writer WHERE number > 0")
        assert rows == [(0,)]
        if cut:
            await asyncio.to_thread(cut_off, database_url)
        assert await numbers(ledger) == [1]
        await ledger.commit(event(2))
        await ledger.commit(event(3))
        assert await numbers(ledger) == [1, 2, 3]


async def test_a_connection_that_cannot_tell_what_counts_is_not_left_open(
    database_url: str, no_garbage_collection: None
) -> None:
    """The answer to a COMMIT is lost, and the row that says whether it counts is held."""
    async with cutting_proxy(database_url) as (proxy, url), opened(url, lock_timeout="100ms") as ledger:
        await ledger.commit(ACCEPT)
        proxy.next, proxy.closed = Cut.BEFORE, True
        doubted = submitted(ledger, replace(PREPARE, event=None))
        await until(lambda: proxy.cuts == 1)
        async with held(database_url, "SELECT 1 FROM ledger_writer FOR UPDATE"):
            proxy.closed = False
            for number in range(2, 8):
                assert await outcome(ledger.commit(context(number))) in {"locked", "unavailable"}
            named = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = %s"
            [(connections,)] = await asyncio.to_thread(run, database_url, named, "a2a-gateway")
            assert connections <= 2
        assert await doubted == "stored"


async def test_a_long_handle_is_deleted_like_any_other_and_its_group_is_stored(database_url: str) -> None:
    """An index of the server takes no more than 2,700 bytes that cannot be compressed."""
    handle = secrets.token_hex(4000)
    async with opened(database_url) as ledger:
        await ledger.commit(ACCEPT)
        told = await asyncio.gather(
            outcome(ledger.commit(context(2))),
            outcome(
                ledger.commit(DeleteOrphan("thread-1", "echo", handle, 1), DeleteOrphan("thread-1", "echo", "r", 1))
            ),
            outcome(ledger.commit(context(3))),
        )
        assert {*told} == {"stored"}
        assert {deletion.handle for deletion in await ledger.deletions(10)} == {handle, "r"}
        await ledger.commit(KeepHandle("thread-1", handle))
        assert [deletion.handle for deletion in await ledger.deletions(10)] == ["r"]


async def test_a_value_that_no_index_takes_fails_alone(database_url: str) -> None:
    async with opened(database_url) as ledger:
        await ledger.commit(ACCEPT)
        unfit = ledger.commit(replace(context(2), context_public=secrets.token_hex(4000)))
        told = await asyncio.gather(
            outcome(ledger.commit(context(3))), unfit, outcome(ledger.commit(context(4))), return_exceptions=True
        )
        assert [told[0], told[2]] == ["stored", "stored"]
        assert isinstance(told[1], Failure)
        await ledger.ready()


# --- rows that others hold


@asynccontextmanager
async def held(url: str, sql: str) -> AsyncGenerator[psycopg.AsyncConnection[Any], None]:
    """Another session has run this and not yet ended its transaction."""
    async with await psycopg.AsyncConnection.connect(url) as connection:
        await connection.execute(sql.encode())
        yield connection
        await connection.rollback()


_HOLD = "SELECT 1 FROM thread FOR UPDATE"


async def test_a_request_that_waits_for_a_row_too_long_is_refused_as_locked(database_url: str) -> None:
    async with opened(database_url, lock_timeout="100ms") as ledger:
        await ledger.commit(ACCEPT)
        async with held(database_url, _HOLD):
            assert (
                await outcome(
                    ledger.commit(
                        replace(
                            context(2), context_public=None, context_row="context-1", thread=THREAD, new_thread=False
                        )
                    )
                )
                == "locked"
            )
        await ledger.commit(context(2))
        await ledger.ready()


async def test_a_point_of_a_running_turn_waits_for_a_row_longer_than_one_timeout(database_url: str) -> None:
    async with opened(database_url, lock_timeout="100ms") as ledger:
        await ledger.commit(ACCEPT)
        async with held(database_url, _HOLD):
            waiting = submitted(ledger, replace(PREPARE, event=None))
            await until(partial(asyncio.to_thread, waited_in_vain, database_url))
            assert not waiting.done()
        assert await waiting == "stored"
        await ledger.commit(NameCall("call-1", "resp-1"))


async def test_a_row_that_somebody_holds_keeps_only_those_waiting_who_need_it(database_url: str) -> None:
    async with opened(database_url, lock_timeout="100ms") as ledger:
        await ledger.commit(ACCEPT)
        async with held(database_url, "SELECT 1 FROM thread WHERE id = 'thread-1' FOR UPDATE"):
            running = submitted(ledger, replace(PREPARE, event=None))
            following = submitted(ledger, event(2))
            told = await asyncio.gather(*(outcome(ledger.commit(context(number))) for number in range(2, 6)))
            assert told == ["stored"] * 4
            assert await outcome(ledger.commit(Fence("thread-1", 0, 1000))) == "locked"
            assert await outcome(ledger.commit(context(6))) == "stored"
            await ledger.ready()
            assert not running.done()
            assert not following.done()
        assert [await running, await following] == ["stored", "stored"]
        assert await numbers(ledger) == [1, 2]


async def test_whoever_waits_for_a_row_waits_alone(database_url: str) -> None:
    """A message waits for as long as `lock_timeout` says, and nobody waits with it."""
    async with opened(database_url) as ledger:
        await ledger.commit(ACCEPT)
        async with held(database_url, _HOLD):
            again = replace(context(2), context_public=None, context_row="context-1", thread=THREAD, new_thread=False)
            waiting = asyncio.ensure_future(outcome(ledger.commit(again)))  # noqa: TID251
            async with asyncio.timeout(3):
                for number in range(3, 6):
                    assert await outcome(ledger.commit(context(number))) == "stored"
            assert not waiting.done()
        assert await waiting == "stored"


@pytest.mark.parametrize("row", ["task WHERE id = 'task-1'", "thread WHERE id = 'thread-1'"])
async def test_a_row_that_somebody_holds_keeps_no_lease_from_being_renewed(database_url: str, row: str) -> None:
    async with opened(database_url) as ledger:
        await ledger.commit(ACCEPT, context(2))
        await asyncio.to_thread(run, database_url, "UPDATE thread SET lease_holder = 'process-1', lease_until = 1")
        async with held(database_url, f"SELECT 1 FROM {row} FOR UPDATE"):
            running = submitted(ledger, replace(PREPARE, event=None))
            following = submitted(ledger, event(2))
            async with asyncio.timeout(3):
                for until_ in (1000, 2000):
                    renewal = Renew(("thread-1", "thread-2"), "process-1", until_)
                    assert await outcome(ledger.commit(renewal)) == "stored"
            leases = await asyncio.to_thread(run, database_url, "SELECT id, lease_until FROM thread")
            assert ("thread-2", 2000) in leases
        assert [await running, await following] == ["stored", "stored"]


async def test_what_waits_for_a_row_ends_with_the_ledger(database_url: str) -> None:
    async with opened(database_url) as other:
        await other.commit(ACCEPT)
    async with held(database_url, _HOLD):
        async with opened(database_url, lock_timeout="100ms") as ledger:
            waiting = submitted(ledger, replace(PREPARE, event=None))
            stored = submitted(ledger, context(2))
        assert [await waiting, await stored] == ["locked", "stored"]


async def test_lists_that_take_long_keep_no_stream_from_its_events(database_url: str) -> None:
    async with opened(database_url, readers=2) as ledger:
        await ledger.commit(ACCEPT)
        async with held(database_url, "LOCK TABLE task"):
            lists = [
                asyncio.ensure_future(outcome(ledger.tasks(ADA, "echo", TaskFilter(), PageLimits(10, 1000))))  # noqa: TID251
                for _ in range(3)
            ]
            await until(partial(waits_for_a_row, database_url))
            async with asyncio.timeout(3):
                assert await numbers(ledger) == [1]
        assert await asyncio.gather(*lists) == ["stored"] * 3


@pytest.mark.parametrize("limit", ["statement_timeout", "lock_timeout"])
async def test_what_a_writer_holds_that_falls_silent_is_free_soon_and_its_group_is_not_stored_behind_another(
    database_url: str, limit: str
) -> None:
    """As a process that stands still between its statements and their COMMIT."""
    async with (
        cutting_proxy(database_url) as (proxy, url),
        opened(url, **{limit: "2s"}) as silent,
        opened(database_url) as other,
    ):
        await silent.commit(ACCEPT)
        proxy.next = Cut.SWALLOWED
        late = asyncio.ensure_future(silent.commit(event(2)))  # noqa: TID251
        await until(lambda: proxy.cuts == 1)
        await other.commit(event(2))
        with pytest.raises(Conflict):
            await late
        await silent.commit(event(3))
        assert await numbers(silent) == [1, 2, 3]


async def test_what_a_writer_holds_that_falls_silent_keeps_no_other_from_its_rows_for_as_long_as_a_lock_may_last(
    database_url: str,
) -> None:
    """As a process that stands still while it renews its leases: whoever takes its turns over renews leases of its own."""
    async with (
        cutting_proxy(database_url) as (proxy, url),
        opened(url) as silent,
        opened(database_url, lock_timeout="4s") as other,
    ):
        await silent.commit(ACCEPT)
        proxy.next = Cut.SWALLOWED
        late = asyncio.ensure_future(silent.commit(Renew(("thread-1",), "process-1", 1000)))  # noqa: TID251
        await until(lambda: proxy.cuts == 1)
        assert await outcome(other.commit(Fence("thread-1", 0, 1000))) == "stored"
        await late


async def test_events_of_two_writers_of_one_task_never_overlap(database_url: str) -> None:
    """As one that stood still between its events and their COMMIT, wakes, and goes on behind another that took over."""
    async with cutting_proxy(database_url) as (proxy, url), opened(url) as late, opened(database_url) as other:
        await late.commit(ACCEPT)
        proxy.next = Cut.HELD
        several = asyncio.ensure_future(late.commit(Append(EventRow("task-1", 2, 4, b"{}\n{}\n{}"))))  # noqa: TID251
        await until(lambda: proxy.cuts == 1)
        following = asyncio.ensure_future(other.commit(event(2)))  # noqa: TID251
        await until(partial(asyncio.to_thread, waits_for_a_row, database_url))
        proxy.let_go.set()
        await several
        with pytest.raises(Conflict):
            await following
        assert await numbers(other) == [1, 2, 3, 4]


async def test_two_writers_that_wait_for_each_other_are_both_served(database_url: str) -> None:
    """The server ends one of them, which is tried again."""
    async with opened(database_url) as ledger, await psycopg.AsyncConnection.connect(database_url) as other:
        await ledger.commit(ACCEPT)
        await ledger.commit(context(2))
        await other.execute("SELECT 1 FROM task WHERE id = 'task-2' FOR UPDATE")
        crossing = replace(
            context(2),
            context_public=None,
            new_thread=False,
            new_task=False,
            last_event=2,
            turn="turn-3",
            event=EventRow("task-2", 2, 2, b"{}"),
        )
        waiting = asyncio.ensure_future(outcome(ledger.commit(crossing)))  # noqa: TID251
        await until(partial(asyncio.to_thread, waits_for_a_row, database_url))
        with suppress(psycopg.errors.DeadlockDetected):
            await other.execute("SELECT 1 FROM thread WHERE id = 'thread-2' FOR UPDATE")
        await other.rollback()
        assert await waiting == "stored"


def waited_in_vain(url: str) -> bool:
    """A transaction has been rolled back."""
    return run(url, "SELECT xact_rollback > 0 FROM pg_stat_database WHERE datname = current_database()") == [(True,)]


def waits_for_a_row(url: str) -> bool:
    waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    return run(url, waits) != [(0,)]


# --- what the server refuses


async def test_a_server_that_only_reads_is_named_so(database_url: str) -> None:
    async with opened(database_url) as ledger:
        await ledger.commit(ACCEPT)
        name = database_url.rpartition("/")[2]
        await asyncio.to_thread(run, database_url, f"ALTER DATABASE {name} SET default_transaction_read_only = on")
        await asyncio.to_thread(cut_off, database_url)
        assert await outcome(ledger.commit(event(2))) == "read-only"
        assert await numbers(ledger) == [1]


async def test_a_gateway_that_nobody_writes_to_knows_that_its_server_only_reads_and_when_it_writes_again(
    database_url: str,
) -> None:
    """The second change counts for new connections alone, as the first one does."""
    name = database_url.rpartition("/")[2]
    async with opened(database_url) as ledger:
        await ledger.commit(ACCEPT)
        await ledger.ready()
        written = await asyncio.to_thread(run, database_url, _WRITTEN)
        await asyncio.to_thread(run, database_url, f"ALTER DATABASE {name} SET default_transaction_read_only = on")
        await asyncio.to_thread(cut_off, database_url)
        for _ in range(2):
            assert await outcome(ledger.ready()) == "read-only"
        assert await asyncio.to_thread(run, database_url, _WRITTEN) == written
        assert await outcome(ledger.commit(event(2))) == "read-only"
        assert await outcome(ledger.ready()) == "read-only"
        writes = f"{database_url}?options=-c%20default_transaction_read_only%3Doff"
        await asyncio.to_thread(run, writes, f"ALTER DATABASE {name} RESET default_transaction_read_only")
        await ledger.ready()
        await ledger.commit(event(2))
        assert await numbers(ledger) == [1, 2]


_WRITTEN = "SELECT id, number FROM ledger_writer ORDER BY id"


@pytest.mark.parametrize("change", ["postgres:wrong-word@", "nobody-there:wrong-word@"])
async def test_a_wrong_password_is_refused_without_being_told(database_url: str, change: str) -> None:
    scheme, _, rest = database_url.partition("://")
    url = f"{scheme}://{change}{rest.rpartition('@')[2]}"
    with pytest.raises(LedgerUnavailable, match="does not open") as caught:
        async with opened(url):
            pass
    assert "wrong-word" not in str(caught.value)


async def test_a_server_that_is_not_there_is_named(database_url: str) -> None:
    with pytest.raises(LedgerUnavailable, match="refused"):
        async with opened("postgresql://ada@127.0.0.1:1/ledger"):
            pass


async def test_a_schema_with_other_tables_is_left_alone(empty_database_url: str) -> None:
    await asyncio.to_thread(run, empty_database_url, "CREATE TABLE invoice (id integer)")
    with pytest.raises(LedgerUnavailable, match="tables of something else"):
        async with opened(empty_database_url):
            pass
    async with opened(empty_database_url, database_schema="gateway") as ledger:
        await ledger.commit(ACCEPT)
        await ledger.ready()


async def test_without_leave_to_make_the_schema_an_empty_database_is_refused(empty_database_url: str) -> None:
    with pytest.raises(LedgerUnavailable, match="auto_migrate is off"):
        async with open_ledger(PostgresSettings(url=empty_database_url), False):
            pass
    assert await asyncio.to_thread(
        run, empty_database_url, "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'"
    ) == [(0,)]


async def test_gateways_that_start_at_once_make_one_schema(empty_database_url: str) -> None:
    async def start() -> None:
        async with opened(empty_database_url) as ledger:
            await ledger.ready()

    await asyncio.gather(*(start() for _ in range(4)))
    assert await asyncio.to_thread(run, empty_database_url, "SELECT count(*) FROM alembic_version") == [(1,)]


async def test_a_database_of_another_encoding_is_refused(database_url: str) -> None:
    run(database_url, "CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
    try:
        with pytest.raises(LedgerUnavailable, match="encoding LATIN1"):
            async with opened(database_url.rpartition("/")[0] + "/latin"):
                pass
    finally:
        run(database_url, "DROP DATABASE latin")
