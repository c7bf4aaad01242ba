"""The deliveries of one configuration: in order, at least once, with limited attempts, and without delaying the task."""

import asyncio
import json
from typing import Any

import pytest
from a2a.compat.v0_3.types import Task as Task03

from gateway.a2a.errors import InvalidParams
from gateway.a2a.model import Part
from gateway.foundation.sealing import UnreadableSecret
from gateway.ledger.errors import Conflict, LedgerUnavailable
from gateway.ledger.push import AdvancePush
from gateway.ports.adapter import CallCompleted, DirectReply, Ending, TextDelta
from gateway.push.delivery import RETRY_WAITS, PushLimits
from gateway.push.webhook import Outcome
from tests.support.core import START, Core, logged, query, soon, until
from tests.support.push_harness import OK, PushHarness
from tests.support.rows import change
from tests.support.scripted import BR, Pause, ScriptedAdapter, Step, says

FAILS = Outcome(500)


def answers(*texts: str) -> list[Step]:
    return [*(TextDelta(text) for text in texts), CallCompleted("r")]


async def test_every_event_of_the_log_is_posted_unchanged_and_in_order(core: Core) -> None:
    core.agent(ScriptedAdapter(BR, answers("a", "b", "c")))
    push = PushHarness(core)
    task = await push.send("hello")
    assert await push.deliver() == 1
    assert push.posts.numbers == [1, 2, 3, 4]
    assert push.posts.states == ["COMPLETED"]
    assert len(logged(core.path, task.id)) == 4
    assert push.rows() == [("config-1", "done", 5, None, 0)]


async def test_the_configuration_of_a_message_is_stored_with_it(core: Core) -> None:
    """A caller that knows the task also knows its configuration. Source: docs/state-model.md, C1."""
    core.agent(ScriptedAdapter(BR, says("a")))
    push = PushHarness(core)
    await push.send("hello")
    [accepting] = [unit for unit in core.ledger.units if any(type(point).__name__ == "Accept" for point in unit)]
    assert [type(point).__name__ for point in accepting] == ["Accept", "Prepare", "PutPushConfig"]


async def test_a_turn_without_a_configuration_has_no_additional_commit_point_or_read(core: Core) -> None:
    core.agent(ScriptedAdapter(BR, says("a"), says("b")))
    PushHarness(core)
    task = await core.send("hello")
    core.ledger.reads.clear()
    core.ledger.units.clear()
    await core.send("again", context=task.context_id)
    assert not [read for read in core.ledger.reads if "push" in read]
    assert not [point for unit in core.ledger.units for point in unit if "Push" in type(point).__name__]


async def test_an_event_is_due_with_its_own_commit_and_not_before(core: Core) -> None:
    pause = Pause()
    core.agent(ScriptedAdapter(BR, [TextDelta("a"), pause, TextDelta("b"), CallCompleted("r")]))
    push = PushHarness(core)
    task = await push.send("hello", at_once=True)
    await soon(pause.reached.wait())
    await until(lambda: logged(core.path, task.id))
    await push.deliver()
    assert (push.posts.numbers, push.rows()) == ([1], [("config-1", "active", 2, None, 0)])
    pause.go.set()
    await until(lambda: push.rows()[0][3] == 0)
    await soon(core.runner.idle())
    await push.deliver()
    assert (push.posts.numbers, push.posts.states) == ([1, 2, 3], ["COMPLETED"])


async def test_a_configuration_made_later_gets_later_events(core: Core) -> None:
    pause = Pause()
    core.agent(ScriptedAdapter(BR, [TextDelta("a"), pause, TextDelta("b"), CallCompleted("r")]))
    push = PushHarness(core)
    task = await core.send("hello", at_once=True)
    await soon(pause.reached.wait())
    await until(lambda: logged(core.path, task.id))
    await push.create(task.id)
    pause.go.set()
    await soon(core.runner.idle())
    await push.deliver()
    assert push.posts.numbers == [2, 3]


async def test_a_configuration_made_after_the_end_gets_nothing_and_is_not_read_again(core: Core) -> None:
    core.agent(ScriptedAdapter(BR, says("a")))
    push = PushHarness(core)
    task = await core.send("hello")
    await push.create(task.id)
    assert await push.deliver() == 0
    assert push.rows() == [("config-1", "done", 3, None, 0)]


async def test_deliveries_of_a_task_that_waits_for_its_caller_continue_with_the_next_turn(core: Core) -> None:
    asks: list[Step] = [TextDelta("which?"), CallCompleted("r", Ending.INPUT_REQUIRED)]
    core.agent(ScriptedAdapter(BR, asks, says("a")))
    push = PushHarness(core)
    task = await push.send("hello")
    await push.deliver()
    assert (push.posts.states, push.rows()) == (["INPUT_REQUIRED"], [("config-1", "active", 3, None, 0)])
    await core.send("that", task=task.id)
    await push.deliver()
    assert push.posts.states == ["INPUT_REQUIRED", "WORKING", "COMPLETED"]
    assert push.rows()[0][:2] == ("config-1", "done")


async def test_the_cancellation_of_a_waiting_task_is_delivered_too(core: Core) -> None:
    core.agent(ScriptedAdapter(BR, [CallCompleted("r", Ending.INPUT_REQUIRED)]))
    push = PushHarness(core)
    task = await push.send("hello")
    await core.cancel(task.id)
    await push.deliver()
    assert push.posts.states == ["INPUT_REQUIRED", "CANCELED"]


async def test_many_events_are_delivered_in_batches(core: Core) -> None:
    core.agent(ScriptedAdapter(BR, answers(*map(str, range(450)))))
    push = PushHarness(core)
    await push.send("hello")
    assert await push.deliver() > 1
    assert push.posts.numbers == list(range(1, 452))


# --- failures ---------------------------------------------------------------------------------------------------------


async def test_the_next_event_waits_until_the_one_before_is_delivered(core: Core) -> None:
    core.agent(ScriptedAdapter(BR, answers("a", "b")))
    push = PushHarness(core)
    push.posts.answers.extend([OK, FAILS, FAILS])
    await push.send("hello")
    await push.deliver()
    assert push.rows() == [("config-1", "active", 2, START + 5_000, 1)]
    core.time.now += 5_000
    await push.deliver()
    assert push.rows() == [("config-1", "active", 2, START + 5_000 + 300_000, 2)]
    core.time.now += 300_000
    await push.deliver()
    assert push.posts.numbers == [1, 2, 2, 2, 3]
    assert push.rows() == [("config-1", "done", 4, None, 0)]


async def test_attempts_take_75_hours_and_then_the_delivery_stops_at_its_event(core: Core) -> None:
    core.agent(ScriptedAdapter(BR, answers("a")))
    push = PushHarness(core)
    push.posts.answers.extend([FAILS] * 20)
    await push.send("hello")
    while push.rows()[0][3] is not None:
        await push.deliver()
        core.time.now = push.rows()[0][3] or core.time.now
    assert push.posts.numbers == [1] * (len(RETRY_WAITS) + 1)
    assert core.time.now - START == sum(RETRY_WAITS) * 1000 == 272_105_000
    assert push.rows() == [("config-1", "stopped", 1, None, 10)]
    [status] = await push.configs.statuses(core.call().caller)
    assert status.last_error == "HTTP 500"


@pytest.mark.parametrize(
    ("retry_after", "wait"), [(None, 5_000), (1.0, 5_000), (60.0, 60_000), (10.0**9, 24 * 3600 * 1000)]
)
async def test_a_receiver_may_ask_for_more_time_but_not_for_more_than_a_day(
    core: Core, retry_after: float | None, wait: int
) -> None:
    core.agent(ScriptedAdapter(BR, answers("a")))
    push = PushHarness(core)
    push.posts.answers.append(Outcome(429, "", retry_after))
    await push.send("hello")
    await push.deliver()
    assert push.rows() == [("config-1", "active", 1, START + wait, 1)]


async def test_a_receiver_that_is_gone_is_not_asked_again(core: Core) -> None:
    core.agent(ScriptedAdapter(BR, answers("a")))
    push = PushHarness(core)
    push.posts.answers.append(Outcome(410))
    await push.send("hello")
    await push.deliver()
    assert push.rows() == [("config-1", "gone", 1, None, 1)]


async def test_attempts_are_counted_for_each_event(core: Core) -> None:
    core.agent(ScriptedAdapter(BR, answers("a", "b")))
    push = PushHarness(core, PushLimits(attempts=2))
    push.posts.answers.extend([FAILS, OK, FAILS, OK])
    await push.send("hello")
    for _ in range(3):
        await push.deliver()
        core.time.now += 5_000
    assert push.rows() == [("config-1", "done", 4, None, 0)]


async def test_a_replayed_configuration_continues_at_the_event_where_it_stopped(core: Core) -> None:
    core.agent(ScriptedAdapter(BR, answers("a", "b")))
    push = PushHarness(core, PushLimits(attempts=1))
    push.posts.answers.extend([OK, FAILS])
    task = await push.send("hello")
    await push.deliver()
    assert push.rows() == [("config-1", "stopped", 2, None, 1)]
    assert await push.configs.replay(core.call().caller, task.id, None) == 1
    await push.deliver()
    assert push.posts.numbers == [1, 2, 2, 3]
    assert push.rows() == [("config-1", "done", 4, None, 0)]


async def test_events_of_a_stopped_configuration_wake_nothing(core: Core) -> None:
    core.agent(ScriptedAdapter(BR, [CallCompleted("r", Ending.INPUT_REQUIRED)], says("a")))
    push = PushHarness(core, PushLimits(attempts=1))
    push.posts.answers.append(FAILS)
    task = await push.send("hello")
    await push.deliver()
    await core.send("that", task=task.id)
    assert await push.deliver() == 0
    await push.configs.replay(core.call().caller, task.id, "config-1")
    await push.deliver()
    assert push.posts.states == ["INPUT_REQUIRED", "INPUT_REQUIRED", "WORKING", "COMPLETED"]


async def test_an_event_that_can_never_be_posted_stops_its_configuration(core: Core) -> None:
    core.agent(ScriptedAdapter(BR, answers("a")))
    push = PushHarness(core)
    push.posts.answers.append(UnreadableSecret("x"))
    await push.send("hello")
    await push.deliver()
    [status] = await push.configs.statuses(core.call().caller)
    assert (status.state.value, "decrypted" in (status.last_error or "")) == ("stopped", True)


async def test_a_configuration_of_a_version_that_is_not_known_here_is_stopped(core: Core) -> None:
    core.agent(ScriptedAdapter(BR, answers("a")))
    push = PushHarness(core)
    await push.send("hello", version="7.0")
    await push.deliver()
    [status] = await push.configs.statuses(core.call().caller)
    assert (status.state.value, status.last_error) == ("stopped", "A2A 7.0 is not spoken here")
    assert push.posts.posted == []


async def test_a_receiver_of_the_1_1_draft_gets_every_event_with_its_generation(core: Core) -> None:
    core.agent(ScriptedAdapter(BR, answers("a", "b")))
    push = PushHarness(core)
    task = await push.send("hello", version="1.1")
    await push.deliver()

    posted = [content for _, _, body in push.posts.posted for content in body.values()]
    assert [content.pop("generation") for content in posted] == ["2", "3", "4"]
    stored = [json.loads(payload) for _, payload in logged(core.path, task.id)]
    assert posted == [content for event in stored for content in event.values()]


# --- a receiver of A2A 0.3


async def test_a_receiver_of_0_3_gets_the_whole_task_whenever_its_status_changes(core: Core) -> None:
    asks: list[Step] = [TextDelta("which?"), CallCompleted("r", Ending.INPUT_REQUIRED)]
    core.agent(ScriptedAdapter(BR, asks, answers("a", "b")))
    push = PushHarness(core)
    task = await push.send("hello", version="0.3")
    await push.deliver()
    await core.send("that", task=task.id)
    await push.deliver()

    posted = [Task03.model_validate(body) for _, _, body in push.posts.posted]
    assert [each.status.state.value for each in posted] == ["input-required", "working", "completed"]
    assert {each.id for each in posted} == {task.id}
    said = [[texts_of(each.history or []), texts_of(each.artifacts or [])] for each in posted]
    assert said == [[["hello"], ["which?"]], [["hello", "that"], ["which?"]], [["hello", "that"], ["which?", "ab"]]]
    assert push.rows()[0][:2] == ("config-1", "done")


async def test_a_post_of_0_3_is_repeated_with_the_task_as_it_was(core: Core) -> None:
    asks: list[Step] = [TextDelta("which?"), CallCompleted("r", Ending.INPUT_REQUIRED)]
    core.agent(ScriptedAdapter(BR, asks, answers("a")))
    push = PushHarness(core)
    push.posts.answers.append(FAILS)
    task = await push.send("hello", version="0.3")
    await push.deliver()
    await core.send("that", task=task.id)
    core.time.now += 10_000
    await push.deliver()

    states = [(number, body["status"]["state"]) for _, number, body in push.posts.posted]
    assert states == [(2, "input-required"), (2, "input-required"), (3, "working"), (5, "completed")]


async def test_a_message_with_one_configuration_too_many_is_refused_with_the_reason(core: Core) -> None:
    asks: list[Step] = [CallCompleted("r", Ending.INPUT_REQUIRED)]
    core.agent(ScriptedAdapter(BR, *[asks] * 11))
    push = PushHarness(core)
    task = await push.send("hello", config=None)
    for _ in range(9):
        await push.send("that", config=None, task=task.id)
    with pytest.raises(InvalidParams, match="the task has 10 push notification configurations; delete one first"):
        await push.send("that", config=None, task=task.id)


async def test_a_configuration_of_0_3_without_an_id_takes_the_place_of_an_earlier_one(core: Core) -> None:
    asks: list[Step] = [TextDelta("which?"), CallCompleted("r", Ending.INPUT_REQUIRED)]
    core.agent(ScriptedAdapter(BR, *[asks] * 12, answers("a")))
    push = PushHarness(core)
    task = await push.send("hello", version="0.3", config=None)
    for _ in range(12):
        await push.send("that", version="0.3", config=None, task=task.id)
    assert [row[0] for row in push.rows()] == [task.id]
    await push.deliver()
    assert len({number for _, number, _ in push.posts.posted}) == len(push.posts.posted)


def texts_of(holders: list[Any]) -> list[str]:
    return ["".join(part.root.text for part in holder.parts) for holder in holders]


async def test_a_defect_of_the_gateway_counts_as_an_attempt_and_does_not_repeat_for_ever(core: Core) -> None:
    core.agent(ScriptedAdapter(BR, answers("a")))
    push = PushHarness(core, PushLimits(attempts=2))
    push.posts.answers.extend([RuntimeError("broken")] * 2)
    await push.send("hello")
    await push.deliver()
    core.time.now += 5_000
    await push.deliver()
    assert push.rows() == [("config-1", "stopped", 1, None, 2)]


async def test_an_unreadable_event_stops_only_the_configurations_of_its_task(core: Core) -> None:
    core.agent(ScriptedAdapter(BR, answers("a"), answers("b")))
    push = PushHarness(core)
    broken, other = await push.send("hello"), await push.send("hello")
    change(core.path, "UPDATE event SET payload = payload || ? WHERE task = ?", "\n", broken.id)
    await push.deliver()
    states = dict(query(core.path, "SELECT task, state FROM push_config"))
    assert states == {broken.id: "stopped", other.id: "done"}


# --- two processes, and one that dies -----------------------------------------------------------------------------------


async def test_of_two_processes_that_see_the_same_delivery_one_makes_it(core: Core) -> None:
    core.agent(ScriptedAdapter(BR, answers("a")))
    push = PushHarness(core)
    await push.send("hello")
    [due] = await core.ledger.due_pushes(core.time.now, (), 10)
    results = await asyncio.gather(push.delivery(due).run(), push.delivery(due).run(), return_exceptions=True)
    assert sorted(type(result).__name__ for result in results) == ["Conflict", "NoneType"]
    assert push.posts.numbers == [1, 2]


async def test_a_delivery_whose_process_died_after_the_post_is_made_again_when_the_claim_ends(core: Core) -> None:
    """A duplicate is allowed, with the same webhook-id. Source: docs/state-model.md, K11."""
    core.agent(ScriptedAdapter(BR, answers("a")))
    push = PushHarness(core, PushLimits(timeout=10.0))
    await push.send("hello")
    core.ledger.refuse(AdvancePush)
    [due] = await core.ledger.due_pushes(core.time.now, (), 10)
    with pytest.raises(LedgerUnavailable):
        await push.delivery(due).run()
    assert await push.deliver() == 0
    core.time.now += 12_000
    await push.deliver()
    assert push.posts.numbers == [1, 1, 2]


async def test_a_process_that_stops_gives_up_its_claim_at_once(core: Core) -> None:
    core.agent(ScriptedAdapter(BR, answers("a")))
    push = PushHarness(core)
    await push.send("hello")
    [due] = await core.ledger.due_pushes(core.time.now, (), 10)
    push.posts.answers.append(asyncio.CancelledError())
    with pytest.raises(asyncio.CancelledError):
        await push.delivery(due).run()
    await until(lambda: push.rows() == [("config-1", "active", 1, 0, 0)])
    await push.deliver()
    assert push.posts.numbers == [1, 1, 2]


async def test_a_configuration_that_was_replaced_or_deleted_meanwhile_does_not_advance(core: Core) -> None:
    core.agent(ScriptedAdapter(BR, answers("a", "b")))
    push = PushHarness(core)
    task = await push.send("hello")
    [due] = await core.ledger.due_pushes(core.time.now, (), 10)
    delivery = push.delivery(due)

    async def replaced(config: object, number: int, body: bytes) -> Outcome:
        await push.create(task.id, url="https://other.example/")
        return OK

    delivery.post = replaced
    with pytest.raises(Conflict):
        await delivery.run()
    await push.deliver()
    assert push.posts.numbers == [1, 2, 3]


# --- tasks that nobody may know of ---------------------------------------------------------------------------------------


async def test_a_bare_answer_makes_no_task_and_is_not_delivered(core: Core) -> None:
    core.agent(ScriptedAdapter(BR, [DirectReply((Part(text="hi"),))]), direct_replies=True)
    push = PushHarness(core)
    with pytest.raises(AssertionError):
        await push.send("hello")
    await push.deliver()
    assert (push.posts.posted, push.rows()[0][1]) == ([], "done")


async def test_nothing_is_delivered_while_the_agent_may_still_answer_with_a_bare_message(core: Core) -> None:
    first, second = Pause(), Pause()
    core.agent(
        ScriptedAdapter(BR, [first, TextDelta("a"), CallCompleted("r")], [second, TextDelta("b"), CallCompleted("r")]),
        direct_replies=True,
    )
    push = PushHarness(core)
    async with asyncio.TaskGroup() as group:
        opening = group.create_task(core.send("hello", context="c-1"))
        await soon(first.reached.wait())
        waiting = group.create_task(push.send("again", context="c-1"))
        await until(lambda: push.rows())
        first.go.set()
        await soon(second.reached.wait())
        await push.deliver()
        assert (push.posts.posted, push.rows()) == ([], [("config-1", "active", 1, None, 0)])
        second.go.set()
        await soon(asyncio.gather(opening, waiting))
    await push.deliver()
    assert (push.posts.states, push.posts.numbers) == (["WORKING", "COMPLETED"], [1, 2, 3])
