"""Generations of tasks for callers of the 1.1 draft: the same in every answer, and a guard for messages."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway.a2a.errors import A2AError, InvalidParams, TaskGenerationMismatch, TaskNotFound, UnsupportedOperation
from gateway.a2a.model import Json, Message, Part, Role, Task, TaskState
from gateway.a2a.tool_calls import URI
from gateway.a2a.wire import v1_1
from gateway.core.tools.approval_rules import ApprovalRule
from gateway.ledger.events import Frame
from gateway.ledger.turns import Accept, Decide
from gateway.ports.adapter import CallCompleted, Ending, ServiceRequest, TextDelta, ToolCallReady
from gateway.scheduling.leases import LeaseTimes
from tests.support.core import Core, answer, frames, logged, message, query, running_core, soon, until
from tests.support.deletions import DAY, retention
from tests.support.draft_1_1 import conditional, draft, generation_of, send_if
from tests.support.scripted import G, Pause, Script, ScriptedAdapter, says
from tests.support.scripted_tools import ScriptedTools

ASKS = [CallCompleted("r1", Ending.INPUT_REQUIRED, (Part(text="which?"),))]
PAYS: Script = [ToolCallReady("c1", "pay", "{}"), CallCompleted("r1")]


def echo(request: ServiceRequest) -> Script:
    return says(f"re {request.message.parts[0].text}")


def latest(core: Core, task: str) -> int:
    """The generation that the log says."""
    return 1 + max((number or 0 for number, _ in logged(core.path, task)), default=0)


def generations(read: list[Frame]) -> list[int]:
    """What a client of the draft reads of a stream."""
    events = [msgspec.json.decode(v1_1.event(number, payload)) for number, payload in read]
    return [int(content["generation"]) for event in events for content in event.values()]


async def refused(sending: Any) -> A2AError:
    with pytest.raises(TaskGenerationMismatch) as caught:
        await soon(sending)
    return caught.value


async def outcome(sending: Any) -> Task | str:
    try:
        task: Task = await sending
    except A2AError as error:
        return type(error).__name__
    return task


@pytest.fixture
async def both(tmp_path: Path) -> AsyncIterator[tuple[Core, Core]]:
    """Two processes on one file."""
    path = tmp_path / "ledger.db"
    async with (
        running_core(path, prefix="one", lease=LeaseTimes(5.0, 500)) as one,
        running_core(path, prefix="two", lease=LeaseTimes(5.0, 500)) as other,
    ):
        yield one, other


# --- the generation of a task


async def test_every_answer_says_the_same_generation(core: Core) -> None:
    core.agent(ScriptedAdapter(G, otherwise=echo))
    call = draft(core)
    sent = await core.send("hi", call)
    [listed] = (await core.list(call)).tasks
    read = await core.get(sent.id, call)
    assert latest(core, sent.id) == 3
    assert [generation_of(task) for task in (sent, listed, read)] == [3, 3, 3]


async def test_a_new_task_is_in_generation_1(core: Core) -> None:
    core.agent(ScriptedAdapter(G, [Pause()]))
    assert generation_of(await core.send("hi", draft(core), at_once=True)) == 1


async def test_a_stream_counts_without_a_gap(core: Core) -> None:
    core.agent(ScriptedAdapter(G, [TextDelta("a"), None, TextDelta("b"), CallCompleted()]))
    read = await frames(await core.stream("hi", draft(core)))
    assert generations(read) == list(range(1, len(read) + 1))


async def test_a_resumed_stream_counts_from_where_it_was(core: Core) -> None:
    core.agent(ScriptedAdapter(G, [TextDelta("a"), None, TextDelta("b"), CallCompleted()]))
    task = await core.send("hi")
    whole = latest(core, task.id)
    for last in range(whole):
        read = await frames(await core.subscribe(task.id, draft(core, last=last)))
        assert generations(read) == list(range(last + 1, whole + 1))


async def test_a_stream_of_a_running_and_of_a_waiting_task_begins_with_the_generation_of_its_task(core: Core) -> None:
    pause = Pause()
    core.agent(ScriptedAdapter(G, [TextDelta("a"), pause, *ASKS], says("done")))
    task = await core.send("hi", draft(core), at_once=True)
    await soon(pause.reached.wait())
    await until(lambda: logged(core.path, task.id))
    running = await core.subscribe(task.id, draft(core))
    pause.go.set()
    await soon(core.runner.idle())
    waiting = await core.subscribe(task.id, draft(core))
    await core.send("blue", task=task.id)
    whole = latest(core, task.id)
    assert generations(await frames(running)) == list(range(2, whole + 1))
    assert generations(await frames(waiting)) == list(range(3, whole + 1))


async def test_a_list_says_where_a_running_and_a_waiting_task_are(core: Core) -> None:
    pause = Pause()
    tools = ScriptedTools({"pay": "paid"})
    core.agent(ScriptedAdapter(G, [TextDelta("a"), pause], PAYS), toolset=tools, approvals=(ApprovalRule("box.pay"),))
    running = await core.send("hi", draft(core), at_once=True)
    await soon(pause.reached.wait())
    await until(lambda: logged(core.path, running.id))
    waiting = await core.send("pay", draft(core))
    assert waiting.status.state is TaskState.INPUT_REQUIRED
    shown = {task.id: generation_of(task) for task in (await core.list(draft(core))).tasks}
    assert shown == {task.id: latest(core, task.id) for task in (running, waiting)}
    assert generation_of(await core.get(waiting.id, draft(core))) == generation_of(waiting) == shown[waiting.id]


async def test_a_cancelled_task_says_where_it_ended(core: Core) -> None:
    pause = Pause()
    core.agent(ScriptedAdapter(G, [pause], ASKS))
    running = await core.send("hi", at_once=True)
    await soon(pause.reached.wait())
    waiting = await core.send("ho")
    for task in (running, waiting):
        assert generation_of(await core.cancel(task.id, draft(core))) == latest(core, task.id)


async def test_a_task_whose_log_was_deleted_keeps_its_generation(core: Core) -> None:
    core.agent(ScriptedAdapter(G, says("a")))
    task = await core.send("hi")
    whole = latest(core, task.id)
    core.time.now += 8 * DAY
    await retention(core).sweep()
    assert logged(core.path, task.id) == []
    assert generation_of(await core.get(task.id, draft(core))) == whole
    assert [generation_of(each) for each in (await core.list(draft(core))).tasks] == [whole]
    read = await frames(await core.subscribe(task.id, draft(core, last=1)))
    assert generations(read) == [whole]


async def test_a_caller_of_1_0_gets_none(core: Core) -> None:
    core.agent(ScriptedAdapter(G, otherwise=echo))
    sent = await core.send("hi")
    found = [sent, await core.get(sent.id), *(await core.list()).tasks]
    assert [type(task) for task in found] == [Task] * 3
    for read in (await core.stream("ho"), await core.subscribe(sent.id, core.call(last=1))):
        assert all(b"generation" not in payload for _, payload in await frames(read))


# --- messages for one generation


async def test_a_message_for_the_current_generation_is_taken(core: Core) -> None:
    core.agent(ScriptedAdapter(G, ASKS, otherwise=echo))
    asked = await core.send("paint", draft(core))
    done = await send_if(core, generation_of(asked), "blue", task=asked.id)
    assert answer(done) == "re blue"
    assert generation_of(done) == latest(core, asked.id)


@pytest.mark.parametrize("off", [-3, -1, 1, 2**40])
async def test_a_message_for_another_generation_is_refused_and_changes_nothing(core: Core, off: int) -> None:
    core.agent(ScriptedAdapter(G, ASKS, otherwise=echo))
    asked = await core.send("paint", draft(core))
    current = generation_of(asked)
    error = await refused(send_if(core, current + off, "blue", task=asked.id))
    assert error.message == f"Task generation mismatch: expected {current + off} but current generation is {current}"
    assert error.metadata == {
        "taskId": asked.id,
        "expectedGeneration": str(current + off),
        "currentGeneration": str(current),
    }
    assert await core.get(asked.id, draft(core)) == asked
    assert query(core.path, "SELECT count(*) FROM turn") == [(1,)]


async def test_a_stream_is_refused_in_the_same_way(core: Core) -> None:
    core.agent(ScriptedAdapter(G, ASKS))
    asked = await core.send("paint", draft(core))
    request = conditional(message("blue", task=asked.id), 1)
    await refused(core.operations.send_streaming_message(draft(core), request))
    assert core.fanout.streams == 0


async def test_a_task_that_goes_on_or_has_ended_is_first_of_all_in_another_generation(core: Core) -> None:
    pause = Pause()
    core.agent(ScriptedAdapter(G, ASKS, [pause, *says("done")]))
    asked = await core.send("paint", draft(core))
    old = generation_of(asked)
    await core.send("blue", task=asked.id, at_once=True)
    await soon(pause.reached.wait())
    await refused(send_if(core, old, "red", task=asked.id))
    with pytest.raises(UnsupportedOperation, match="still at work"):
        await send_if(core, latest(core, asked.id), "red", task=asked.id)
    pause.go.set()
    await soon(core.runner.idle())
    await refused(send_if(core, old, "red", task=asked.id))
    with pytest.raises(UnsupportedOperation, match="has ended"):
        await send_if(core, latest(core, asked.id), "red", task=asked.id)


async def test_a_new_task_has_no_generation_to_compare(core: Core) -> None:
    core.agent(ScriptedAdapter(G, otherwise=echo))
    assert answer(await send_if(core, 7, "hi")) == "re hi"
    assert answer(await send_if(core, 7, "hi", context="c")) == "re hi"


async def test_the_task_of_another_caller_is_not_found_whatever_its_generation(core: Core) -> None:
    core.agent(ScriptedAdapter(G, ASKS))
    asked = await core.send("paint", draft(core))
    for generation in (generation_of(asked), 99):
        with pytest.raises(TaskNotFound):
            await send_if(core, generation, "blue", draft(core, "bob"), task=asked.id)
    with pytest.raises(TaskNotFound):
        await send_if(core, 1, "blue", task="unknown")


async def test_a_repeat_under_its_key_is_answered_as_the_first_one(core: Core) -> None:
    core.agent(ScriptedAdapter(G, ASKS, otherwise=echo))
    asked = await core.send("paint", draft(core))
    call = draft(core, key="k")
    first = await send_if(core, generation_of(asked), "blue", call, task=asked.id)
    assert await send_if(core, generation_of(asked), "blue", call, task=asked.id) == first
    with pytest.raises(InvalidParams, match="was used for another message"):
        await send_if(core, generation_of(asked), "red", call, task=asked.id)


async def test_of_two_messages_for_one_generation_one_wins(core: Core) -> None:
    core.agent(ScriptedAdapter(G, ASKS, otherwise=echo))
    asked = await core.send("paint", draft(core))
    current = generation_of(asked)
    gate = core.ledger.hold(Accept)
    async with asyncio.TaskGroup() as group:
        texts = ("blue", "red")
        sending = [group.create_task(outcome(send_if(core, current, text, task=asked.id))) for text in texts]
        await until(lambda: len(gate.waiting) == 2)
        core.ledger.let_go()
    assert sorted(type(each.result()).__name__ for each in sending) == ["NumberedTask", "str"]
    assert "TaskGenerationMismatch" in [each.result() for each in sending]
    assert query(core.path, "SELECT count(*) FROM turn") == [(2,)]


async def test_a_message_behind_a_question_that_came_after_the_look_is_refused(core: Core) -> None:
    core.agent(ScriptedAdapter(G, ASKS, ASKS, says("done")))
    asked = await core.send("paint", draft(core))
    look = core.ledger.slow_read("latest_events")
    async with asyncio.TaskGroup() as group:
        late = group.create_task(outcome(send_if(core, generation_of(asked), "red", task=asked.id)))
        await soon(look.reached.wait())
        again = await send_if(core, generation_of(asked), "blue", task=asked.id)
        assert again.status.state is TaskState.INPUT_REQUIRED
        look.go.set()
    assert late.result() == "TaskGenerationMismatch"
    assert await core.get(asked.id, draft(core)) == again


@pytest.mark.parametrize("first", [0, 1])
async def test_of_two_messages_to_two_processes_one_wins(both: tuple[Core, Core], first: int) -> None:
    for core in both:
        core.agent(ScriptedAdapter(G, *([ASKS] if core is both[0] else []), otherwise=echo))
    asked = await both[0].send("paint", draft(both[0]))
    current = generation_of(asked)
    gates = [core.ledger.hold(Accept) for core in both]
    async with asyncio.TaskGroup() as group:
        sending = [group.create_task(outcome(send_if(core, current, "blue", task=asked.id))) for core in both]
        await until(lambda: all(gate.waiting for gate in gates))
        both[first].ledger.let_go()
        await soon(asyncio.wait([sending[first]]))
        both[1 - first].ledger.let_go()
    assert isinstance(sending[first].result(), Task)
    assert sending[1 - first].result() == "TaskGenerationMismatch"
    assert query(both[0].path, "SELECT count(*) FROM turn") == [(2,)]


async def test_of_many_clients_of_two_processes_one_is_taken_in_each_generation(both: tuple[Core, Core]) -> None:
    for core in both:
        core.agent(ScriptedAdapter(G, otherwise=lambda _: ASKS))
    asked = await both[0].send("paint", draft(both[0]))
    taken: list[int] = []
    lost: set[str] = set()

    async def client(core: Core) -> None:
        for _ in range(5):
            current = generation_of(await core.get(asked.id, draft(core)))
            result = await outcome(send_if(core, current, "blue", task=asked.id))
            if isinstance(result, Task):
                taken.append(current)
            else:
                lost.add(result)

    async with asyncio.TaskGroup() as group:
        for core in (*both, *both, *both):
            group.create_task(client(core))
    assert len(set(taken)) == len(taken) > 0
    assert lost <= {"TaskGenerationMismatch", "UnsupportedOperation", "Busy"}
    assert query(both[0].path, "SELECT count(*) FROM turn") == [(1 + len(taken),)]


# --- answers to a turn that waits


def pays(core: Core, *more: Script) -> None:
    tools = ScriptedTools({"pay": "paid"})
    core.agent(ScriptedAdapter(G, PAYS, *more), toolset=tools, approvals=(ApprovalRule("box.pay"),))


def decision(task: Task, *, approved: bool) -> Message:
    assert task.status.message is not None
    metadata: Any = task.status.message.metadata
    [asked] = metadata[URI]["approval"]["tools"]
    data: Json = {"approvals": [{"id": asked["id"], "approved": approved}]}
    return Message(message_id="a", task_id=task.id, role=Role.USER, parts=(Part(data=data),))


async def answered(core: Core, said: Message, generation: int) -> Task:
    sent = await core.operations.send_message(draft(core), conditional(said, generation))
    assert sent.task is not None
    return sent.task


async def test_of_two_decisions_on_one_question_one_wins(core: Core) -> None:
    pays(core, says("done"))
    asked = await core.send("pay", draft(core))
    current = generation_of(asked)
    gate = core.ledger.hold(Decide)

    said = [decision(asked, approved=approved) for approved in (True, False)]
    async with asyncio.TaskGroup() as group:
        deciding = [group.create_task(outcome(answered(core, each, current))) for each in said]
        await until(lambda: len(gate.waiting) == 2)
        core.ledger.let_go()
    assert sorted(type(each.result()).__name__ for each in deciding) == ["NumberedTask", "str"]
    assert "TaskGenerationMismatch" in [each.result() for each in deciding]


async def test_a_decision_on_an_earlier_question_is_refused(core: Core) -> None:
    pays(core, PAYS, says("done"))
    first = await core.send("pay", draft(core))
    yes = decision(first, approved=True)
    second = await answered(core, yes, generation_of(first))
    assert second.status.state is TaskState.INPUT_REQUIRED
    await refused(answered(core, yes, generation_of(first)))
    assert await core.get(first.id, draft(core)) == second


@pytest.mark.parametrize("words", [True, False], ids=["words", "a decision"])
async def test_a_question_that_comes_between_the_look_and_the_answer_is_not_answered(core: Core, words: bool) -> None:
    pays(core, PAYS, says("done"))
    first = await core.send("pay", draft(core))
    said = message("never mind", task=first.id) if words else decision(first, approved=True)
    look = core.ledger.slow_read("latest_events")
    async with asyncio.TaskGroup() as group:
        late = group.create_task(outcome(answered(core, said, generation_of(first))))
        await soon(look.reached.wait())
        second = await answered(core, decision(first, approved=True), generation_of(first))
        assert second.status.state is TaskState.INPUT_REQUIRED
        look.go.set()
    assert late.result() == "TaskGenerationMismatch"
    assert await core.get(first.id, draft(core)) == second


async def test_words_to_a_waiting_turn_are_for_one_generation_too(core: Core) -> None:
    pays(core, says("then not"))
    asked = await core.send("pay", draft(core))
    await refused(send_if(core, generation_of(asked) - 1, "never mind", task=asked.id))
    done = await send_if(core, generation_of(asked), "never mind", task=asked.id)
    assert done.status.state is TaskState.COMPLETED
    assert generation_of(done) == latest(core, asked.id)
