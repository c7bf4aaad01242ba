"""One configuration: in order, at least once, tried again as long as that makes sense, and never in a task's way."""

import asyncio
import sqlite3
from contextlib import closing

import pytest

from gateway.a2a.model import Part
from gateway.ledger.errors import Conflict, LedgerUnavailable
from gateway.ledger.push import AdvancePush
from gateway.ports.adapter import CallCompleted, DirectReply, Ending, TextDelta
from gateway.push.delivery import RETRY_WAITS, PushLimits
from gateway.push.secrets import UnreadableSecret
from gateway.push.webhook import Outcome
from tests.support.core import START, Core, logged, query, soon, until
from tests.support.pushing import OK, Pushing
from tests.support.scripted import BR, Pause, ScriptedAdapter, Step, says

FAILS = Outcome(500)


def answers(*texts: str) -> list[Step]:
    return [*(TextDelta(text) for text in texts), CallCompleted("r")]


async def test_every_event_of_the_log_is_posted_as_it_is_in_its_order(core: Core) -> None:
    core.agent(ScriptedAdapter(BR, answers("a", "b", "c")))
    pushing = Pushing(core)
    task = await pushing.send("hello")
    assert await pushing.deliver() == 1
    assert pushing.posts.numbers == [1, 2, 3, 4]
    assert pushing.posts.states == ["COMPLETED"]
    assert len(logged(core.path, task.id)) == 4
    assert pushing.rows() == [("config-1", "done", 5, None, 0)]


async def test_the_configuration_of_a_message_is_stored_with_it(core: Core) -> None:
    """Source: state-model, C1: whoever was told of the task was told of its notifications."""
    core.agent(ScriptedAdapter(BR, says("a")))
    pushing = Pushing(core)
    await pushing.send("hello")
    [accepting] = [unit for unit in core.ledger.units if any(type(point).__name__ == "Accept" for point in unit)]
    assert [type(point).__name__ for point in accepting] == ["Accept", "Prepare", "PutPushConfig"]


async def test_a_turn_without_a_configuration_has_no_commit_point_and_no_read_more(core: Core) -> None:
    core.agent(ScriptedAdapter(BR, says("a"), says("b")))
    Pushing(core)
    task = await core.send("hello")
    core.ledger.reads.clear()
    core.ledger.units.clear()
    await core.send("again", context=task.context_id)
    assert not [read for read in core.ledger.reads if "push" in read]
    assert not [point for unit in core.ledger.units for point in unit if "Push" in type(point).__name__]


async def test_an_event_is_due_with_its_own_commit_and_not_before(core: Core) -> None:
    pause = Pause()
    core.agent(ScriptedAdapter(BR, [TextDelta("a"), pause, TextDelta("b"), CallCompleted("r")]))
    pushing = Pushing(core)
    task = await pushing.send("hello", at_once=True)
    await soon(pause.reached.wait())
    await until(lambda: logged(core.path, task.id))
    await pushing.deliver()
    assert (pushing.posts.numbers, pushing.rows()) == ([1], [("config-1", "active", 2, None, 0)])
    pause.go.set()
    await until(lambda: pushing.rows()[0][3] == 0)
    await soon(core.runner.idle())
    await pushing.deliver()
    assert (pushing.posts.numbers, pushing.posts.states) == ([1, 2, 3], ["COMPLETED"])


async def test_a_configuration_made_later_gets_what_comes_later(core: Core) -> None:
    pause = Pause()
    core.agent(ScriptedAdapter(BR, [TextDelta("a"), pause, TextDelta("b"), CallCompleted("r")]))
    pushing = Pushing(core)
    task = await core.send("hello", at_once=True)
    await soon(pause.reached.wait())
    await until(lambda: logged(core.path, task.id))
    await pushing.create(task.id)
    pause.go.set()
    await soon(core.runner.idle())
    await pushing.deliver()
    assert pushing.posts.numbers == [2, 3]


async def test_one_made_after_the_end_gets_nothing_and_is_not_looked_at_again(core: Core) -> None:
    core.agent(ScriptedAdapter(BR, says("a")))
    pushing = Pushing(core)
    task = await core.send("hello")
    await pushing.create(task.id)
    assert await pushing.deliver() == 0
    assert pushing.rows() == [("config-1", "done", 3, None, 0)]


async def test_a_task_that_waits_for_its_caller_goes_on_with_the_next_turn(core: Core) -> None:
    asks: list[Step] = [TextDelta("which?"), CallCompleted("r", Ending.INPUT_REQUIRED)]
    core.agent(ScriptedAdapter(BR, asks, says("a")))
    pushing = Pushing(core)
    task = await pushing.send("hello")
    await pushing.deliver()
    assert (pushing.posts.states, pushing.rows()) == (["INPUT_REQUIRED"], [("config-1", "active", 3, None, 0)])
    await core.send("that", task=task.id)
    await pushing.deliver()
    assert pushing.posts.states == ["INPUT_REQUIRED", "WORKING", "COMPLETED"]
    assert pushing.rows()[0][:2] == ("config-1", "done")


async def test_cancelling_a_task_that_waits_is_told_too(core: Core) -> None:
    core.agent(ScriptedAdapter(BR, [CallCompleted("r", Ending.INPUT_REQUIRED)]))
    pushing = Pushing(core)
    task = await pushing.send("hello")
    await core.cancel(task.id)
    await pushing.deliver()
    assert pushing.posts.states == ["INPUT_REQUIRED", "CANCELED"]


async def test_many_events_go_in_pieces_and_none_is_left(core: Core) -> None:
    core.agent(ScriptedAdapter(BR, answers(*map(str, range(450)))))
    pushing = Pushing(core)
    await pushing.send("hello")
    assert await pushing.deliver() > 1
    assert pushing.posts.numbers == list(range(1, 452))


# --- failures ---------------------------------------------------------------------------------------------------------


async def test_the_next_event_waits_until_the_one_before_is_delivered(core: Core) -> None:
    core.agent(ScriptedAdapter(BR, answers("a", "b")))
    pushing = Pushing(core)
    pushing.posts.answers.extend([OK, FAILS, FAILS])
    await pushing.send("hello")
    await pushing.deliver()
    assert pushing.rows() == [("config-1", "active", 2, START + 5_000, 1)]
    core.time.now += 5_000
    await pushing.deliver()
    assert pushing.rows() == [("config-1", "active", 2, START + 5_000 + 300_000, 2)]
    core.time.now += 300_000
    await pushing.deliver()
    assert pushing.posts.numbers == [1, 2, 2, 2, 3]
    assert pushing.rows() == [("config-1", "done", 4, None, 0)]


async def test_it_is_tried_for_75_hours_and_then_stopped_where_it_stands(core: Core) -> None:
    core.agent(ScriptedAdapter(BR, answers("a")))
    pushing = Pushing(core)
    pushing.posts.answers.extend([FAILS] * 20)
    await pushing.send("hello")
    while pushing.rows()[0][3] is not None:
        await pushing.deliver()
        core.time.now = pushing.rows()[0][3] or core.time.now
    assert pushing.posts.numbers == [1] * (len(RETRY_WAITS) + 1)
    assert core.time.now - START == sum(RETRY_WAITS) * 1000 == 272_105_000
    assert pushing.rows() == [("config-1", "stopped", 1, None, 10)]
    [status] = await pushing.pushes.statuses(core.call().caller)
    assert status.last_error == "HTTP 500"


@pytest.mark.parametrize(
    ("retry_after", "wait"), [(None, 5_000), (1.0, 5_000), (60.0, 60_000), (10.0**9, 24 * 3600 * 1000)]
)
async def test_a_receiver_may_ask_for_more_time_but_not_for_more_than_a_day(
    core: Core, retry_after: float | None, wait: int
) -> None:
    core.agent(ScriptedAdapter(BR, answers("a")))
    pushing = Pushing(core)
    pushing.posts.answers.append(Outcome(429, "", retry_after))
    await pushing.send("hello")
    await pushing.deliver()
    assert pushing.rows() == [("config-1", "active", 1, START + wait, 1)]


async def test_a_receiver_that_is_gone_is_not_asked_again(core: Core) -> None:
    core.agent(ScriptedAdapter(BR, answers("a")))
    pushing = Pushing(core)
    pushing.posts.answers.append(Outcome(410))
    await pushing.send("hello")
    await pushing.deliver()
    assert pushing.rows() == [("config-1", "gone", 1, None, 1)]


async def test_attempts_are_counted_for_each_event(core: Core) -> None:
    core.agent(ScriptedAdapter(BR, answers("a", "b")))
    pushing = Pushing(core, PushLimits(attempts=2))
    pushing.posts.answers.extend([FAILS, OK, FAILS, OK])
    await pushing.send("hello")
    for _ in range(3):
        await pushing.deliver()
        core.time.now += 5_000
    assert pushing.rows() == [("config-1", "done", 4, None, 0)]


async def test_what_was_stopped_goes_on_where_it_stands_when_it_is_replayed(core: Core) -> None:
    core.agent(ScriptedAdapter(BR, answers("a", "b")))
    pushing = Pushing(core, PushLimits(attempts=1))
    pushing.posts.answers.extend([OK, FAILS])
    task = await pushing.send("hello")
    await pushing.deliver()
    assert pushing.rows() == [("config-1", "stopped", 2, None, 1)]
    assert await pushing.pushes.replay(core.call().caller, task.id, None) == 1
    await pushing.deliver()
    assert pushing.posts.numbers == [1, 2, 2, 3]
    assert pushing.rows() == [("config-1", "done", 4, None, 0)]


async def test_events_of_a_stopped_one_wake_nobody(core: Core) -> None:
    core.agent(ScriptedAdapter(BR, [CallCompleted("r", Ending.INPUT_REQUIRED)], says("a")))
    pushing = Pushing(core, PushLimits(attempts=1))
    pushing.posts.answers.append(FAILS)
    task = await pushing.send("hello")
    await pushing.deliver()
    await core.send("that", task=task.id)
    assert await pushing.deliver() == 0
    await pushing.pushes.replay(core.call().caller, task.id, "config-1")
    await pushing.deliver()
    assert pushing.posts.states == ["INPUT_REQUIRED", "INPUT_REQUIRED", "WORKING", "COMPLETED"]


@pytest.mark.parametrize(
    ("error", "why"), [(UnreadableSecret("x"), "decrypted"), (KeyError("0.2"), "A2A 1.0 is not spoken")]
)
async def test_what_can_never_be_posted_is_stopped_at_once(core: Core, error: Exception, why: str) -> None:
    core.agent(ScriptedAdapter(BR, answers("a")))
    pushing = Pushing(core)
    pushing.posts.answers.append(error)
    await pushing.send("hello")
    await pushing.deliver()
    [status] = await pushing.pushes.statuses(core.call().caller)
    assert (status.state.value, why in (status.last_error or "")) == ("stopped", True)


async def test_a_fault_of_ours_counts_as_an_attempt_and_does_not_go_on_for_ever(core: Core) -> None:
    core.agent(ScriptedAdapter(BR, answers("a")))
    pushing = Pushing(core, PushLimits(attempts=2))
    pushing.posts.answers.extend([RuntimeError("broken")] * 2)
    await pushing.send("hello")
    await pushing.deliver()
    core.time.now += 5_000
    await pushing.deliver()
    assert pushing.rows() == [("config-1", "stopped", 1, None, 2)]


async def test_an_event_that_cannot_be_read_stops_its_own_configurations_alone(core: Core) -> None:
    core.agent(ScriptedAdapter(BR, answers("a"), answers("b")))
    pushing = Pushing(core)
    broken, other = await pushing.send("hello"), await pushing.send("hello")
    with closing(sqlite3.connect(core.path)) as database, database:
        database.execute("UPDATE event SET payload = payload || char(10) WHERE task = ?", (broken.id,))
    await pushing.deliver()
    states = dict(query(core.path, "SELECT task, state FROM push_config"))
    assert states == {broken.id: "stopped", other.id: "done"}


# --- two processes, and one that dies -----------------------------------------------------------------------------------


async def test_of_two_that_see_the_same_delivery_one_makes_it(core: Core) -> None:
    core.agent(ScriptedAdapter(BR, answers("a")))
    pushing = Pushing(core)
    await pushing.send("hello")
    [due] = await core.ledger.due_pushes(core.time.now, (), 10)
    results = await asyncio.gather(pushing.delivery(due).run(), pushing.delivery(due).run(), return_exceptions=True)
    assert sorted(type(result).__name__ for result in results) == ["Conflict", "NoneType"]
    assert pushing.posts.numbers == [1, 2]


async def test_who_dies_behind_the_post_leaves_it_to_be_made_again_when_its_time_is_over(core: Core) -> None:
    """Source: reliability, K11: a duplicate is allowed, under the same webhook-id."""
    core.agent(ScriptedAdapter(BR, answers("a")))
    pushing = Pushing(core, PushLimits(timeout=10.0))
    await pushing.send("hello")
    core.ledger.refuse(AdvancePush)
    [due] = await core.ledger.due_pushes(core.time.now, (), 10)
    with pytest.raises(LedgerUnavailable):
        await pushing.delivery(due).run()
    assert await pushing.deliver() == 0
    core.time.now += 12_000
    await pushing.deliver()
    assert pushing.posts.numbers == [1, 1, 2]


async def test_who_is_stopped_in_mid_delivery_gives_it_back_at_once(core: Core) -> None:
    core.agent(ScriptedAdapter(BR, answers("a")))
    pushing = Pushing(core)
    await pushing.send("hello")
    [due] = await core.ledger.due_pushes(core.time.now, (), 10)
    pushing.posts.answers.append(asyncio.CancelledError())
    with pytest.raises(asyncio.CancelledError):
        await pushing.delivery(due).run()
    await until(lambda: pushing.rows() == [("config-1", "active", 1, 0, 0)])
    await pushing.deliver()
    assert pushing.posts.numbers == [1, 1, 2]


async def test_one_that_was_replaced_or_deleted_meanwhile_is_not_moved_on(core: Core) -> None:
    core.agent(ScriptedAdapter(BR, answers("a", "b")))
    pushing = Pushing(core)
    task = await pushing.send("hello")
    [due] = await core.ledger.due_pushes(core.time.now, (), 10)
    delivery = pushing.delivery(due)

    async def replaced(config: object, number: int, body: bytes) -> Outcome:
        await pushing.create(task.id, url="https://other.example/")
        return OK

    delivery._post = replaced
    with pytest.raises(Conflict):
        await delivery.run()
    await pushing.deliver()
    assert pushing.posts.numbers == [1, 2, 3]


# --- tasks that nobody may know of ---------------------------------------------------------------------------------------


async def test_a_bare_answer_is_no_task_and_is_not_told_of(core: Core) -> None:
    core.agent(ScriptedAdapter(BR, [DirectReply((Part(text="hi"),))]), direct_replies=True)
    pushing = Pushing(core)
    with pytest.raises(AssertionError):
        await pushing.send("hello")
    await pushing.deliver()
    assert (pushing.posts.posted, pushing.rows()[0][1]) == ([], "done")


async def test_while_an_agent_may_still_answer_with_a_bare_message_nothing_is_told(core: Core) -> None:
    first, second = Pause(), Pause()
    core.agent(
        ScriptedAdapter(BR, [first, TextDelta("a"), CallCompleted("r")], [second, TextDelta("b"), CallCompleted("r")]),
        direct_replies=True,
    )
    pushing = Pushing(core)
    async with asyncio.TaskGroup() as group:
        opening = group.create_task(core.send("hello", context="c-1"))
        await soon(first.reached.wait())
        waiting = group.create_task(pushing.send("again", context="c-1"))
        await until(lambda: pushing.rows())
        first.go.set()
        await soon(second.reached.wait())
        await pushing.deliver()
        assert (pushing.posts.posted, pushing.rows()) == ([], [("config-1", "active", 1, None, 0)])
        second.go.set()
        await soon(asyncio.gather(opening, waiting))
    await pushing.deliver()
    assert (pushing.posts.states, pushing.posts.numbers) == (["WORKING", "COMPLETED"], [1, 2, 3])
