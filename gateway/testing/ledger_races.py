"""The part of the conformance suite on two processes with one database: of two that want the same thing, one has it, and both
see the same afterwards. Law: it knows no store."""

import asyncio
from collections.abc import Awaitable, Sequence

import pytest
from msgspec.structs import replace

from gateway.ledger.api_keys import ApiKey, IssueKey, RevokeKey
from gateway.ledger.duties import HeldDuty, LeaveDuty, TakeDuty
from gateway.ledger.errors import Conflict
from gateway.ledger.leases import (
    LONGEST_LEASE,
    Claim,
    CountTries,
    Fence,
    Heartbeat,
    RequestCancel,
    TakeOver,
    TakeTriesBack,
)
from gateway.ledger.points import CommitPoint
from gateway.ledger.port import Ledger
from gateway.ledger.push import ClaimPush
from gateway.ledger.quotas import CallerUse, ReportedUse, ReportUse, WithdrawUse
from gateway.ledger.retention import EndDeletion, MoveDeletion
from gateway.ledger.tasks import Append, EventRow
from gateway.ledger.threads import DeleteOrphan
from gateway.ledger.tool_calls import ToolStarts
from gateway.ports.conversation import UserItem
from gateway.testing.checks import bounded, require, same
from gateway.testing.ledger_points import (
    ACCEPT,
    ADA,
    COMPLETE,
    FINISH,
    FOLLOW_UP,
    PREPARE,
    PUT,
    everything,
    numbered,
    says,
)

_BEGUN = replace(PREPARE, event=None)
_CLAIM = Claim("turn-1", "process-1", "process-2", 9001)
_DUTY = TakeDuty("retention", "process-1", 9000, 1000)
_USE = ReportUse("process-1", 9000, (CallerUse("ada", "acme", 40, 3, 2), CallerUse("böb", "", 0, 1)), 1000)
_KEY = ApiKey(b"1" * 32, "bot", "a2agw_1", "ada", "acme", admin=False, created_at=1000)


class RaceTests:
    """A part of `LedgerSuite`."""

    # --- of two, one has it

    async def test_of_many_that_accept_at_once_one_makes_the_context(self, ledger: Ledger, other: Ledger) -> None:
        points = [replace(numbered(n)[0], context_public="public-1") for n in range(20)]
        await _one_wins(ledger, other, points)
        context = await other.context(ADA, "public-1", "echo")
        require(context is not None and context.thread is not None, f"found {context!r}, not the context of the winner")

    async def test_an_idempotency_key_makes_one_task(self, ledger: Ledger, other: Ledger) -> None:
        points = [replace(numbered(n)[0], key=ACCEPT.key, digest=f"digest-{n}") for n in range(20)]
        winner = await _one_wins(ledger, other, points)
        require(ACCEPT.key is not None, "the key is missing")
        for each in (ledger, other):
            found = await each.replay(ADA, "echo", ACCEPT.key) if ACCEPT.key else None
            require(
                found is not None and found.task == f"task-{winner}", f"the key leads to {found!r}, not to {winner}"
            )

    async def test_turns_that_two_processes_add_have_a_number_each(self, ledger: Ledger, other: Ledger) -> None:
        """A process may be told to try again, as admission does."""
        await ledger.commit(ACCEPT)
        points = [replace(FOLLOW_UP, turn=f"turn-{n}", message=says(str(n)), event=None) for n in range(2, 22)]
        outcomes = await _at_once(ledger, other, points)
        accepted = {point.turn for point, outcome in zip(points, outcomes, strict=True) if outcome is None}
        require(bool(accepted), "no turn was accepted")
        history = await ledger.history("thread-1", unsent_only=False)
        same([record.turn for record in history], [*range(1, len(accepted) + 2)])
        same({record.turn_id for record in history}, accepted | {"turn-1"})
        require(all(isinstance(record.item, UserItem) for record in history), f"found {history!r}, not messages only")
        same(await other.history("thread-1", unsent_only=False), history)

    async def test_one_event_has_a_number(self, ledger: Ledger, other: Ledger) -> None:
        await ledger.commit(ACCEPT)
        winner = await _one_wins(ledger, other, [Append(EventRow("task-1", 2, 2, b"%d" % n)) for n in range(8)])
        same(await other.events("task-1", 1), ((2, b"%d" % winner),))

    async def test_of_rows_of_events_that_begin_alike_one_is_stored(self, ledger: Ledger, other: Ledger) -> None:
        """However many events each of them has."""
        await ledger.commit(ACCEPT)
        rows = [EventRow("task-1", 2, 2 + n % 3, b"\n".join([b"%d" % n] * (1 + n % 3))) for n in range(8)]
        winner = await _one_wins(ledger, other, [Append(row) for row in rows])
        numbers = range(2, rows[winner].last + 1)
        same(await other.events("task-1", 1), tuple((number, b"%d" % winner) for number in numbers))

    async def test_a_process_whose_turn_another_has_taken_over_appends_nothing(
        self, ledger: Ledger, other: Ledger
    ) -> None:
        await ledger.commit(ACCEPT, _BEGUN)
        await ledger.commit(Append(EventRow("task-1", 2, 2, b"2"), "process-1"))
        await other.commit(TakeOver("thread-1", 1, "process-2", 20_000, "turn-1", 9001))
        with pytest.raises(Conflict):
            await ledger.commit(Append(EventRow("task-1", 3, 3, b"late"), "process-1"))
        await other.commit(Append(EventRow("task-1", 3, 3, b"3"), "process-2"))
        same(await ledger.events("task-1", 1), ((2, b"2"), (3, b"3")))

    async def test_one_process_gets_the_lease_of_a_dead_one(self, ledger: Ledger, other: Ledger) -> None:
        await ledger.commit(ACCEPT, _BEGUN)
        points = [TakeOver("thread-1", 1, f"process-{n}", 20_000, "turn-1", 9001) for n in range(2, 8)]
        winner = await _one_wins(ledger, other, points)
        same(await other.process_of("turn-1"), points[winner].holder)
        same([left.turn for left in await ledger.unfinished_turns(9001, points[winner].holder)], ["turn-1"])

    async def test_one_process_claims_a_turn_that_waited_in_a_dead_one(self, ledger: Ledger, other: Ledger) -> None:
        await ledger.commit(ACCEPT, Heartbeat("process-1", 9000, 0))
        points = [replace(_CLAIM, process=f"process-{n}") for n in range(2, 8)]
        winner = await _one_wins(ledger, other, points)
        same(await ledger.process_of("turn-1"), points[winner].process)
        await other.commit(replace(_BEGUN, holder=points[winner].process))

    async def test_a_lease_is_fenced_off_once(self, ledger: Ledger, other: Ledger) -> None:
        await ledger.commit(ACCEPT, _BEGUN)
        await _one_wins(ledger, other, [Fence("thread-1", 1, 9001)] * 4)

    async def test_a_try_counts_once(self, ledger: Ledger, other: Ledger) -> None:
        await ledger.commit(ACCEPT, _BEGUN)
        await _one_wins(ledger, other, [CountTries("turn-1", 0, 1)] * 4)
        [left] = await other.unfinished_turns(9001)
        same(left.tries, 1)

    async def test_a_try_that_is_taken_back_leaves_those_of_others(self, ledger: Ledger, other: Ledger) -> None:
        await ledger.commit(ACCEPT, _BEGUN)
        await ledger.commit(CountTries("turn-1", 0, 1))
        await other.commit(CountTries("turn-1", 1, 2))
        for process, left in ((ledger, 1), (other, 0), (other, 0)):
            await process.commit(TakeTriesBack("turn-1", 1))
            same([found.tries for found in await ledger.unfinished_turns(9001)], [left])

    async def test_no_more_tries_are_taken_back_than_were_counted(self, ledger: Ledger) -> None:
        await ledger.commit(ACCEPT, _BEGUN, CountTries("turn-1", 0, 3))
        for number, left in ((2, 1), (2, 0)):
            await ledger.commit(TakeTriesBack("turn-1", number))
            same([found.tries for found in await ledger.unfinished_turns(9001)], [left])

    async def test_one_process_delivers_to_a_webhook(self, ledger: Ledger, other: Ledger) -> None:
        await ledger.commit(ACCEPT, PUT)
        await ledger.commit(Append(EventRow("task-1", 2, 2, b"{}")))
        [due] = await other.due_pushes(1000, (), 10)
        until = [5000 + n for n in range(6)]
        winner = await _one_wins(ledger, other, [ClaimPush("task-1", "config-1", due.due_at, each) for each in until])
        same([found.due_at for found in await other.due_pushes(9000, (), 10)], [until[winner]])

    async def test_one_process_deletes_a_handle_at_its_backend(self, ledger: Ledger, other: Ledger) -> None:
        await ledger.commit(ACCEPT, DeleteOrphan("thread-1", "echo", "resp-1", 1300))
        [job] = await other.deletions(10)
        until = [9000 + n for n in range(6)]
        winner = await _one_wins(ledger, other, [MoveDeletion(job.job, job.due_at, each, 1) for each in until])
        same(await other.deletions(10), (replace(job, due_at=until[winner], attempts=1),))
        await _one_wins(ledger, other, [EndDeletion(job.job, until[winner])] * 4)
        same(await other.deletions(10), ())

    async def test_a_name_has_one_key_in_force(self, ledger: Ledger, other: Ledger) -> None:
        keys = [replace(_KEY, digest=bytes([n]) * 32) for n in range(6)]
        winner = await _one_wins(ledger, other, [IssueKey(key) for key in keys])
        same(await other.api_keys(), (keys[winner],))

    async def test_a_secret_is_made_once_for_each_name(self, ledger: Ledger, other: Ledger) -> None:
        both = (ledger, other)
        same_name = await bounded(asyncio.gather(*(both[n % 2].secret("one") for n in range(10))), "reading a secret")
        require(
            len(set(same_name)) == 1 and len(same_name[0]) == 32,
            f"found {len(set(same_name))} secrets, not one of 32 bytes",
        )
        require(await other.secret("other") != same_name[0], "two names have the same secret")

    # --- what one process does for all

    async def test_a_duty_has_one_holder(self, ledger: Ledger, other: Ledger) -> None:
        points = [TakeDuty("retention", f"process-{n}", 9000 + n, 1000) for n in range(6)]
        winner = await _one_wins(ledger, other, points)
        for each in (ledger, other):
            same(await each.duty("retention"), HeldDuty(f"process-{winner}", 9000 + winner))
        same(await other.duty("expiry"), None)
        await other.commit(TakeDuty("expiry", "process-9", 9000, 1000))

    async def test_a_holder_keeps_its_duty(self, ledger: Ledger, other: Ledger) -> None:
        await ledger.commit(_DUTY)
        await ledger.commit(replace(_DUTY, until=12_000, now=5000))
        with pytest.raises(Conflict):
            await other.commit(replace(_DUTY, holder="process-2", until=20_000, now=9001))
        same(await other.duty("retention"), HeldDuty("process-1", 12_000))

    async def test_a_duty_that_lapsed_is_taken_over_once(self, ledger: Ledger, other: Ledger) -> None:
        await ledger.commit(_DUTY)
        with pytest.raises(Conflict):
            await other.commit(replace(_DUTY, holder="process-2", until=20_000, now=9000))
        points = [replace(_DUTY, holder=f"process-{n}", until=20_000 + n, now=9001) for n in range(2, 8)]
        winner = await _one_wins(ledger, other, points)
        with pytest.raises(Conflict):
            await ledger.commit(replace(_DUTY, until=20_000, now=9002))
        same(await ledger.duty("retention"), HeldDuty(points[winner].holder, points[winner].until))

    async def test_a_duty_that_ends_later_than_this_clock_would_say_counts_as_lapsed(
        self, ledger: Ledger, other: Ledger
    ) -> None:
        await ledger.commit(replace(_DUTY, until=LONGEST_LEASE + 1001))
        await other.commit(replace(_DUTY, holder="process-2"))
        same(await ledger.duty("retention"), HeldDuty("process-2", 9000))

    async def test_only_its_holder_leaves_a_duty_and_then_it_is_free(self, ledger: Ledger, other: Ledger) -> None:
        await ledger.commit(_DUTY)
        await other.commit(LeaveDuty("retention", "process-2"))
        same(await other.duty("retention"), HeldDuty("process-1", 9000))
        await ledger.commit(LeaveDuty("retention", "process-1"))
        same(await other.duty("retention"), None)
        await other.commit(replace(_DUTY, holder="process-2"))

    # --- limits that count over all processes

    async def test_a_process_hears_what_the_callers_of_others_use_and_not_its_own(
        self, ledger: Ledger, other: Ledger
    ) -> None:
        await ledger.commit(_USE)
        await other.commit(ReportUse("process-2", 9000, (), 1000))
        same(await other.reported_use("process-2", 1000), (ReportedUse("process-1", _USE.callers),))
        same(await ledger.reported_use("process-1", 1000), (ReportedUse("process-2", ()),))
        both = (ReportedUse("process-1", _USE.callers), ReportedUse("process-2", ()))
        same(await other.reported_use("process-3", 1000), both)

    async def test_a_report_of_use_replaces_the_one_before(self, ledger: Ledger, other: Ledger) -> None:
        await ledger.commit(_USE)
        callers = (CallerUse("bob", streams=1),)
        await ledger.commit(replace(_USE, until=12_000, callers=callers))
        same(await other.reported_use("process-2", 12_000), (ReportedUse("process-1", callers),))

    async def test_a_report_of_use_lapses_and_is_deleted_with_the_next_one_of_any_process(
        self, ledger: Ledger, other: Ledger
    ) -> None:
        await ledger.commit(_USE)
        same(await other.reported_use("process-2", 9000), (ReportedUse("process-1", _USE.callers),))
        same(await other.reported_use("process-2", 9001), ())
        await other.commit(ReportUse("process-2", 12_000, (), 9001))
        same(await other.reported_use("process-3", 9000), (ReportedUse("process-2", ()),))

    async def test_a_report_of_use_that_ends_later_than_this_clock_would_say_counts_as_lapsed(
        self, ledger: Ledger, other: Ledger
    ) -> None:
        await ledger.commit(replace(_USE, until=LONGEST_LEASE + 1001))
        same(await other.reported_use("process-2", 1000), ())

    async def test_a_process_withdraws_its_own_report_of_use(self, ledger: Ledger, other: Ledger) -> None:
        await ledger.commit(_USE)
        await other.commit(WithdrawUse("process-2"))
        same(await other.reported_use("process-2", 1000), (ReportedUse("process-1", _USE.callers),))
        await ledger.commit(WithdrawUse("process-1"))
        same(await other.reported_use("process-2", 1000), ())

    # --- the holder that lost its lease

    async def test_a_holder_that_was_fenced_off_changes_nothing_any_more(self, ledger: Ledger, other: Ledger) -> None:
        await ledger.commit(ACCEPT, replace(FOLLOW_UP, process="process-2", event=None), _BEGUN)
        taken = replace(_BEGUN, generation=1, holder="process-2", turn="turn-2", service_call="call-2", now=9001)
        with pytest.raises(Conflict):
            await other.commit(taken)
        ended = replace(FINISH, status="failed", state=None, events=EventRow("task-1", 2, 2, b"{}"), last_event=2)
        await other.commit(Fence("thread-1", 1, 9001), ended)
        with pytest.raises(Conflict):
            await ledger.commit(COMPLETE)
        await other.commit(replace(taken, generation=2))
        stored = await everything(other)
        with pytest.raises(Conflict):
            await ledger.commit(COMPLETE)
        same(await everything(ledger), stored)
        await other.commit(replace(COMPLETE, generation=3, turn="turn-2", service_call="call-2"))

    async def test_no_tool_starts_behind_a_fence_that_has_seen_it_not_started(
        self, ledger: Ledger, other: Ledger
    ) -> None:
        """Recovery tells the model that such a call was not run, so its old holder must not run it."""

        async def fence(number: int) -> str:
            await other.commit(Fence(f"thread-{number}", 2, 9001))
            [call] = await other.open_tool_calls(f"turn-{number}")
            return call.status

        async def start(number: int) -> bool:
            try:
                await ledger.commit(ToolStarts(f"thread-{number}", 2, f"tool-{number}", 1300))
            except Conflict:
                return False
            return True

        for number in range(24):
            await ledger.commit(*numbered(number))
            seen, started = await bounded(asyncio.gather(fence(number), start(number)), "a fence and a start")
            require((seen == "running") is started, f"the fence has seen the call {seen}, and it started: {started}")

    # --- what another process sees

    async def test_what_one_process_commits_the_other_reads_at_once(self, ledger: Ledger, other: Ledger) -> None:
        for number, (first, second) in enumerate([(ledger, other), (other, ledger)] * 5):
            accept, prepare, complete = numbered(number)
            await first.commit(accept)
            same(await second.thread(f"thread-{number}"), accept.thread)
            await second.commit(prepare, complete)
            found = await first.thread(f"thread-{number}")
            same(found, replace(accept.thread, generation=2, handle="resp-1", adapter_state={"seen": 1}))

    async def test_a_process_finds_the_turns_of_a_dead_one_and_none_of_a_living_one(
        self, ledger: Ledger, other: Ledger
    ) -> None:
        await ledger.commit(ACCEPT, replace(FOLLOW_UP, event=None), _BEGUN, Heartbeat("process-1", 9000, 0))
        same(await other.unfinished_turns(9000), ())
        same([left.turn for left in await other.unfinished_turns(9001)], ["turn-1", "turn-2"])
        await other.commit(replace(_CLAIM, turn="turn-2"), TakeOver("thread-1", 1, "process-2", 20_000, "turn-1", 9001))
        for refused in (COMPLETE, replace(FINISH, events=None, process="process-1")):
            with pytest.raises(Conflict):
                await ledger.commit(refused)
        same([await ledger.process_of(turn) for turn in ("turn-1", "turn-2")], ["process-2", "process-2"])

    async def test_a_cancel_that_one_process_asks_for_the_other_hears(self, ledger: Ledger, other: Ledger) -> None:
        await ledger.commit(ACCEPT, PREPARE)
        await other.commit(RequestCancel(("turn-1", "turn-9")))
        same(await ledger.cancel_requests("process-1"), ("task-1",))
        same(await ledger.cancel_requests("process-2"), ())

    async def test_a_key_that_one_process_revokes_is_not_in_force_at_the_other(
        self, ledger: Ledger, other: Ledger
    ) -> None:
        await ledger.commit(IssueKey(_KEY))
        same(await other.api_key(_KEY.digest), _KEY)
        await other.commit(RevokeKey("bot", 2000))
        same(await ledger.api_key(_KEY.digest), replace(_KEY, revoked_at=2000))


async def _at_once(one: Ledger, other: Ledger, points: Sequence[CommitPoint]) -> list[BaseException | None]:
    """Commits each point by itself, by turns in the two processes. Raises: what is no Conflict."""
    commits: list[Awaitable[None]] = [(one, other)[n % 2].commit(point) for n, point in enumerate(points)]
    outcomes = await bounded(
        asyncio.gather(*commits, return_exceptions=True), f"{len(points)} commits of two processes"
    )
    for outcome in outcomes:
        if outcome is not None and not isinstance(outcome, Conflict):
            raise outcome
    return outcomes


async def _one_wins(one: Ledger, other: Ledger, points: Sequence[CommitPoint]) -> int:
    """The index of the only point that was stored."""
    outcomes = await _at_once(one, other, points)
    stored = [index for index, outcome in enumerate(outcomes) if outcome is None]
    require(len(stored) == 1, f"{len(stored)} of {len(points)} were stored, not one")
    return stored[0]
