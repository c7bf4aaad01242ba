"""The part of the conformance suite on push notifications and API keys. Law: it knows no store."""

import pytest
from msgspec.structs import replace

from gateway.ledger.api_keys import ApiKey, EndSessions, IssueKey, RevokeKey, digest_of, new_key, shown
from gateway.ledger.backlog import Backlog
from gateway.ledger.errors import Conflict
from gateway.ledger.port import Ledger
from gateway.ledger.push import (
    AdvancePush,
    ClaimPush,
    CompletePush,
    DeletePushConfig,
    DuePush,
    FailPush,
    PushState,
    PushStatus,
    ReplayPush,
)
from gateway.ledger.retention import MoveDeletion
from gateway.ledger.tasks import Append, EventRow
from gateway.ledger.threads import DeleteOrphan
from gateway.testing.checks import same
from gateway.testing.ledger_points import ACCEPT, ADA, APPEND, COMPLETE, FINISH, PREPARE, PUT

_CONFIG = PUT.config
_KEY = ("task-1", "config-1")
_SECRET = new_key()
_API_KEY = ApiKey(
    digest_of(_SECRET), "bot", shown(_SECRET), "ada", "acme", admin=True, created_at=1000, expires_at=9000
)


def _event(number: int) -> Append:
    return Append(EventRow("task-1", number, number, b"{}"))


async def _first(ledger: Ledger) -> int:
    """Commits a task with the configuration. Returns the number of the first event that is to be delivered."""
    await ledger.commit(ACCEPT, PREPARE, PUT)
    return await _cursor(ledger)


async def _cursor(ledger: Ledger) -> int:
    [status] = await ledger.push_statuses(ADA.tenant, ADA.principal)
    return status.next_event


async def _due(ledger: Ledger, now: int = 1000, excluded: tuple[str, ...] = ()) -> list[int]:
    return [found.due_at for found in await ledger.due_pushes(now, excluded, 10)]


class PushTests:
    """A part of `LedgerSuite`."""

    async def test_a_configuration_is_read_as_it_was_put(self, ledger: Ledger) -> None:
        number = await _first(ledger)
        same(await ledger.push_configs("task-1"), (_CONFIG,))
        same(await ledger.push_configs("another"), ())
        status = PushStatus(_CONFIG, "echo", PushState.ACTIVE, number, None, 0, None)
        same(await ledger.push_statuses(ADA.tenant, ADA.principal), (status,))
        same(await ledger.push_statuses(ADA.tenant, "eve"), ())

    async def test_every_appended_event_makes_the_delivery_due_in_its_own_unit(self, ledger: Ledger) -> None:
        number = await _first(ledger)
        same((await _due(ledger), await ledger.next_push()), ([], (True, None)))
        with pytest.raises(Conflict):
            await ledger.commit(_event(number), _event(number + 5))
        same(await _due(ledger), [])
        await ledger.commit(_event(number))
        same((await _due(ledger), await ledger.next_push()), ([0], (True, 0)))
        same(await ledger.due_pushes(1000, (), 10), (DuePush(_CONFIG, number, 0, 0, True),))
        same((await _due(ledger, excluded=("hook.example",)), await _due(ledger, excluded=("other",))), ([], [0]))

    async def test_what_is_owed_to_receivers_and_backends_is_counted(self, ledger: Ledger) -> None:
        same(await ledger.backlog(), Backlog(0, 0, 0, 0, 0))
        number = await _first(ledger)
        await ledger.commit(_event(number), DeleteOrphan("thread-1", "echo", "resp-1", 1300))
        same(await ledger.backlog(), Backlog(1, 0, 1, 0, 0))
        [job] = await ledger.deletions(10)
        await ledger.commit(MoveDeletion(job.job, job.due_at, None, 8))
        await ledger.commit(ClaimPush(*_KEY, 0, 5000))
        await ledger.commit(FailPush(*_KEY, 5000, 9000, PushState.ACTIVE, 1, "HTTP 500"))
        same(await ledger.backlog(), Backlog(0, 1, 1, 1, 0))

    async def test_a_claimed_delivery_belongs_to_its_process_until_the_claim_expires(self, ledger: Ledger) -> None:
        number = await _first(ledger)
        await ledger.commit(_event(number))
        with pytest.raises(Conflict):
            await ledger.commit(AdvancePush(*_KEY, 5000, number + 1, 6000))
        await ledger.commit(ClaimPush(*_KEY, 0, 5000))
        with pytest.raises(Conflict):
            await ledger.commit(ClaimPush(*_KEY, 0, 6000))
        same((await _due(ledger, 4999), await _due(ledger, 5000)), ([], [5000]))
        await ledger.commit(AdvancePush(*_KEY, 5000, number + 1, 6000))
        same((await _cursor(ledger), await _due(ledger, 6000)), (number + 1, [6000]))

    async def test_a_complete_delivery_is_idle_or_due_when_events_came_meanwhile(self, ledger: Ledger) -> None:
        number = await _first(ledger)
        await ledger.commit(_event(number))
        await ledger.commit(ClaimPush(*_KEY, 0, 5000))
        await ledger.commit(_event(number + 1))
        same(await _due(ledger), [])
        await ledger.commit(CompletePush(*_KEY, 5000, number + 1))
        same(await _due(ledger), [0])
        await ledger.commit(CompletePush(*_KEY, 0, number + 2))
        same((await _due(ledger), (await ledger.next_push())[0]), ([], True))

    async def test_it_is_done_when_its_task_has_ended_and_all_is_delivered(self, ledger: Ledger) -> None:
        await _first(ledger)
        await ledger.commit(COMPLETE, APPEND, FINISH)
        [found] = await ledger.due_pushes(0, (), 10)
        events = await ledger.push_events("task-1", found.next_event)
        await ledger.commit(CompletePush(*_KEY, 0, events[-1][0] + 1))
        same(await ledger.next_push(), (False, None))
        same(await ledger.push_statuses(ADA.tenant, ADA.principal), ())

    async def test_a_failure_stores_its_time_and_reason_and_what_was_stopped_can_go_on(self, ledger: Ledger) -> None:
        number = await _first(ledger)
        await ledger.commit(_event(number))
        await ledger.commit(FailPush(*_KEY, 0, 9000, PushState.ACTIVE, 1, "HTTP 500"))
        [status] = await ledger.push_statuses(ADA.tenant, ADA.principal)
        same((status.due_at, status.attempts, status.last_error), (9000, 1, "HTTP 500"))
        await ledger.commit(FailPush(*_KEY, 9000, None, PushState.STOPPED, 2, "HTTP 502"))
        same(await ledger.next_push(), (False, None))
        await ledger.commit(_event(number + 1))
        same(await _due(ledger), [])
        await ledger.commit(ReplayPush(*_KEY))
        with pytest.raises(Conflict):
            await ledger.commit(ReplayPush(*_KEY))
        same(await _due(ledger), [0])

    async def test_a_place_that_is_not_there_or_has_no_room_takes_none(self, ledger: Ledger) -> None:
        await _first(ledger)
        for wrong in (
            replace(PUT, principal="eve"),
            replace(PUT, tenant="other"),
            replace(PUT, agent="other"),
            replace(PUT, config=replace(_CONFIG, task="none")),
            replace(PUT, config=replace(_CONFIG, id="config-2"), most=1),
        ):
            with pytest.raises(Conflict):
                await ledger.commit(wrong)
        await ledger.commit(replace(PUT, config=replace(_CONFIG, url="https://other.example/"), most=1))
        same([config.url for config in await ledger.push_configs("task-1")], ["https://other.example/"])
        for _ in range(2):
            await ledger.commit(DeletePushConfig(*_KEY))
        same(await ledger.push_configs("task-1"), ())

    async def test_events_are_read_from_the_cursor_on_in_their_order(self, ledger: Ledger) -> None:
        number = await _first(ledger)
        await ledger.commit(Append(EventRow("task-1", number, number + 2, b"1\n2\n3")))
        same(await ledger.push_events("task-1", number + 1), ((number + 1, b"2"), (number + 2, b"3")))

    async def test_a_task_is_hidden_that_was_answered_bare(self, ledger: Ledger) -> None:
        await _first(ledger)
        same(await ledger.is_hidden("task-1"), False)
        await ledger.commit(COMPLETE, APPEND, replace(FINISH, visible=False))
        same(await ledger.is_hidden("task-1"), True)

    # --- API keys

    async def test_a_key_is_found_by_its_digest_and_nothing_else(self, ledger: Ledger) -> None:
        await ledger.commit(IssueKey(_API_KEY))
        same(await ledger.api_key(_API_KEY.digest), _API_KEY)
        same([await ledger.api_key(other) for other in (digest_of(new_key()), b"")], [None, None])

    async def test_a_revoked_key_stays_so_and_its_name_may_be_given_again(self, ledger: Ledger) -> None:
        other = replace(_API_KEY, digest=digest_of(new_key()), created_at=1001)
        await ledger.commit(IssueKey(_API_KEY))
        with pytest.raises(Conflict):
            await ledger.commit(IssueKey(other))
        await ledger.commit(RevokeKey("bot", 2000))
        for late in (RevokeKey("bot", 3000), RevokeKey("nobody", 3000)):
            with pytest.raises(Conflict):
                await ledger.commit(late)
        await ledger.commit(IssueKey(other))
        same(await ledger.api_keys(), (replace(_API_KEY, revoked_at=2000), other))

    async def test_the_sessions_of_one_key_are_ended(self, ledger: Ledger) -> None:
        other = replace(_API_KEY, digest=digest_of(new_key()), name="other")
        await ledger.commit(IssueKey(_API_KEY), IssueKey(other))
        await ledger.commit(EndSessions(_API_KEY.digest, 2000))
        same(await ledger.api_key(_API_KEY.digest), replace(_API_KEY, sessions_ended_at=2000))
        same(await ledger.api_key(other.digest), other)
        with pytest.raises(Conflict):
            await ledger.commit(EndSessions(digest_of(new_key()), 2000))
