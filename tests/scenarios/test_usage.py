"""The tokens of turns and tasks: in the status update that ends a turn, in the task and in lists, whoever reads and whatever
process runs. Source: docs/state-model.md, scenario 48."""

from pathlib import Path
from typing import Any

import pytest

from gateway.a2a.model import Json, Task, TaskState
from gateway.core.tools.approval_rules import ApprovalRule
from gateway.ledger.calls import RESTARTED
from gateway.ports.adapter import AdapterError, CallCompleted, CallStarted, Ending, ErrorClass, TextDelta
from gateway.ports.conversation import Ownership
from tests.scenarios.test_approvals import one, reply, yes
from tests.scenarios.test_tool_loop import call
from tests.support.core import START, Core, error_class, events, frames, logged, running_core, soon
from tests.support.resuming_adapter import ResumingAdapter
from tests.support.scripted import BR, G, Pause, Script, ScriptedAdapter
from tests.support.scripted_tools import ScriptedTools

LATER = START + 6000
PLACES = 10
"""Where a task is read: in all its lengths, behind its last event, and in lists of all lengths."""

_GATED = (ApprovalRule("box.pay*"),)
BOTH = pytest.mark.parametrize("ownership", [G, BR], ids=["G", "BR"])


def report(tokens: int) -> Json:
    """A report of so many tokens of each kind; of input three times as many."""
    return {
        "input_tokens": 3 * tokens,
        "input_tokens_details": {"cached_tokens": tokens},
        "output_tokens": tokens,
        "output_tokens_details": {"reasoning_tokens": tokens},
        "total_tokens": 4 * tokens,
    }


def numbers(tokens: int) -> dict[str, int]:
    """How a report of `tokens` is shown."""
    shown = {"inputTokens": 3 * tokens, "cachedTokens": tokens, "outputTokens": tokens, "reasoningTokens": tokens}
    return shown | {"totalTokens": 4 * tokens}


def shown(turn: int | None, task: int) -> dict[str, Any]:
    return {"usage": ({} if turn is None else {"turn": numbers(turn)}) | {"task": numbers(task)}}


def answers(tokens: int, handle: str = "r1", ending: Ending = Ending.COMPLETED) -> Script:
    return [TextDelta("A"), CallCompleted(handle, usage=report(tokens), ending=ending)]


def ends(core: Core, task: str) -> list[Any]:
    """The metadata of the updates that ended or paused a turn."""
    updates = [event.status_update for event in events(logged(core.path, task))]
    return [
        update.metadata
        for update in updates
        if update is not None and update.status.state not in (TaskState.WORKING, TaskState.SUBMITTED)
    ]


async def read_everywhere(core: Core, task: str) -> list[Any]:
    """The metadata of the task in each place where it is read."""
    lists = [
        await core.list(history_length=length, include_artifacts=more)
        for length in (None, 0, 1)
        for more in (True, False)
    ]
    listed = [each.metadata for found in lists for each in found.tasks if each.id == task]
    last = logged(core.path, task)[-1][0]
    resumed = events(await frames(await core.subscribe(task, core.call(last=last))))[0].task
    assert resumed is not None
    read = [await core.get(task, history=length) for length in (None, 0, 1)]
    return [each.metadata for each in (*read, resumed)] + listed


async def finished(core: Core, task: str) -> Task:
    await soon(core.runner.idle())
    return await core.get(task)


@BOTH
async def test_48_the_tokens_of_a_turn_are_in_its_last_update_and_in_the_task(core: Core, ownership: Ownership) -> None:
    core.agent(ScriptedAdapter(ownership, answers(5)))
    task = await core.send("1")
    assert task.metadata == shown(5, 5)
    assert ends(core, task.id) == [shown(5, 5)]
    assert await read_everywhere(core, task.id) == [shown(5, 5)] * PLACES


async def test_48_the_calls_of_a_turn_are_summed_those_that_failed_too(core: Core) -> None:
    failed: Script = [AdapterError(ErrorClass.BACKEND_FAILED, "", usage=report(1))]
    rounds: Script = [call("c1", "look"), CallCompleted("r1", usage=report(2))]
    core.agent(ScriptedAdapter(G, failed, rounds, answers(4)), toolset=ScriptedTools({"look": "seen"}))
    task = await core.send("1")
    assert ends(core, task.id) == [shown(7, 7)]
    assert await read_everywhere(core, task.id) == [shown(7, 7)] * PLACES


async def test_48_the_tokens_of_a_try_count_also_where_the_clock_was_set_back_after_it(core: Core) -> None:
    first, core.waits.held = Pause(), Pause()
    failed: Script = [first, AdapterError(ErrorClass.BACKEND_FAILED, "", usage=report(1))]
    core.agent(ScriptedAdapter(G, failed, answers(4)))
    task = await core.send("1", at_once=True)
    await soon(first.reached.wait())
    core.time.now += 60_000
    first.go.set()
    await soon(core.waits.held.reached.wait())
    core.time.now -= 90_000
    core.waits.held.go.set()
    assert (await finished(core, task.id)).metadata == shown(5, 5)
    assert await read_everywhere(core, task.id) == [shown(5, 5)] * PLACES


async def test_48_a_turn_that_failed_shows_what_its_calls_have_cost(core: Core) -> None:
    core.agent(ScriptedAdapter(BR, [TextDelta("par"), AdapterError(ErrorClass.INTERRUPTED, "", usage=report(3))]))
    task = await core.send("1")
    assert (error_class(task), ends(core, task.id)) == (ErrorClass.INTERRUPTED, [shown(3, 3)])
    assert await read_everywhere(core, task.id) == [shown(3, 3)] * PLACES


async def test_48_an_answer_that_breaks_the_contract_has_cost_its_tokens(core: Core) -> None:
    core.agent(ScriptedAdapter(BR, [TextDelta("A"), CallCompleted(None, usage=report(3))]))
    task = await core.send("1")
    assert task.status.state is TaskState.FAILED
    assert await read_everywhere(core, task.id) == [shown(3, 3)] * PLACES


@BOTH
async def test_48_a_task_sums_its_turns(core: Core, ownership: Ownership) -> None:
    asking = Ending.INPUT_REQUIRED
    core.agent(ScriptedAdapter(ownership, answers(1, "r1", asking), answers(2, "r2", asking), answers(4, "r3")))
    task = await core.send("1")
    for text in ("2", "3"):
        task = await core.send(text, task=task.id)
    assert task.metadata == shown(4, 7)
    assert ends(core, task.id) == [shown(1, 1), shown(2, 3), shown(4, 7)]
    assert await read_everywhere(core, task.id) == [shown(4, 7)] * PLACES


async def test_48_a_turn_without_a_report_shows_the_other_turns_of_its_task_only(core: Core) -> None:
    silent: Script = [TextDelta("A"), CallCompleted("r2")]
    core.agent(ScriptedAdapter(BR, answers(1, "r1", Ending.INPUT_REQUIRED), silent))
    task = await core.send("1")
    task = await core.send("2", task=task.id)
    assert ends(core, task.id) == [shown(1, 1), shown(None, 1)]
    assert await read_everywhere(core, task.id) == [shown(None, 1)] * PLACES


async def test_48_without_a_report_there_are_no_metadata(core: Core) -> None:
    core.agent(ScriptedAdapter(G, [TextDelta("A"), CallCompleted()]))
    task = await core.send("1")
    assert ends(core, task.id) == [None]
    assert await read_everywhere(core, task.id) == [None] * PLACES


async def test_48_a_question_shows_the_tokens_so_far_and_the_turn_goes_on_counting(core: Core) -> None:
    first: Script = [call("c1", "pay"), CallCompleted("r1", usage=report(2))]
    core.agent(
        ScriptedAdapter(BR, first, answers(4, "r2")),
        toolset=ScriptedTools({"pay": "paid"}),
        approvals=_GATED,
    )
    task = await core.send("1")
    assert ends(core, task.id) == [shown(2, 2)]
    assert task.metadata == shown(2, 2)
    await reply(core, task.id, yes(one(task)))
    assert ends(core, task.id) == [shown(2, 2), shown(6, 6)]
    assert await read_everywhere(core, task.id) == [shown(6, 6)] * PLACES


async def test_48_a_question_that_is_cancelled_keeps_its_tokens(core: Core) -> None:
    first: Script = [call("c1", "pay"), CallCompleted("r1", usage=report(2))]
    core.agent(ScriptedAdapter(BR, first), toolset=ScriptedTools({"pay": "paid"}), approvals=_GATED)
    task = await core.send("1")
    await core.cancel(task.id)
    assert ends(core, task.id) == [shown(2, 2)] * 2
    assert await read_everywhere(core, task.id) == [shown(2, 2)] * PLACES


async def test_48_tokens_of_a_turn_at_work_are_in_its_task(core: Core) -> None:
    pause = Pause()
    rounds: Script = [call("c1", "look"), CallCompleted("r1", usage=report(2))]
    core.agent(ScriptedAdapter(BR, rounds, [pause, *answers(4, "r2")]), toolset=ScriptedTools({"look": "seen"}))
    task = await core.send("1", at_once=True)
    await soon(pause.reached.wait())
    assert (await core.get(task.id)).metadata == shown(2, 2)
    pause.go.set()
    assert (await finished(core, task.id)).metadata == shown(6, 6)


async def test_48_tokens_survive_a_takeover(tmp_path: Path) -> None:
    path, pause = tmp_path / "ledger.db", Pause()
    rounds: Script = [CallStarted("r1"), call("c1", "look"), CallCompleted("r1", usage=report(2))]
    tools = ScriptedTools({"look": "seen"})
    async with running_core(path, prefix="one") as core:
        core.agent(ResumingAdapter(rounds, [CallStarted("r2"), TextDelta("A"), pause]), toolset=tools)
        task = await core.send("1", at_once=True)
        await soon(pause.reached.wait())
        await core.get(task.id)
    adapter = ResumingAdapter(again=[[CallStarted("r2"), *answers(4, "r2")]])
    async with running_core(path, prefix="two", now=LATER, adapter=adapter) as core:
        assert (await finished(core, task.id)).status.state is TaskState.COMPLETED
        assert ends(core, task.id) == [shown(6, 6)]
        assert await read_everywhere(core, task.id) == [shown(6, 6)] * PLACES


async def test_48_tokens_of_a_turn_whose_process_died_are_in_its_end(tmp_path: Path) -> None:
    path, pause = tmp_path / "ledger.db", Pause()
    rounds: Script = [call("c1", "look"), CallCompleted("r1", usage=report(2))]
    async with running_core(path, prefix="one") as core:
        core.agent(ScriptedAdapter(BR, rounds, [pause]), toolset=ScriptedTools({"look": "seen"}))
        task = await core.send("1", at_once=True)
        await soon(pause.reached.wait())
        await core.get(task.id)
    async with running_core(path, prefix="two", now=LATER, adapter=ScriptedAdapter(BR)) as core:
        assert error_class(await finished(core, task.id)) == RESTARTED
        assert ends(core, task.id) == [shown(2, 2)]
        assert await read_everywhere(core, task.id) == [shown(2, 2)] * PLACES


async def test_48_a_report_in_no_known_form_harms_nothing(core: Core) -> None:
    usages: list[Json] = ["many", [1], {"input_tokens": -1}, {"input_tokens": "1", "more": [{}]}]
    scripts: list[Script] = [[TextDelta("A"), CallCompleted(usage=each)] for each in usages]
    core.agent(ScriptedAdapter(G, *scripts))
    for _ in usages:
        task = await core.send("1")
        assert (task.status.state, (await core.get(task.id)).metadata) == (TaskState.COMPLETED, None)


async def test_48_a_report_that_is_nested_too_deep_is_not_kept_with_a_failure(core: Core) -> None:
    deep: Json = 1
    for _ in range(900):
        deep = [deep]
    core.agent(ScriptedAdapter(BR, [AdapterError(ErrorClass.INTERRUPTED, "", usage={"total_tokens": 1, "more": deep})]))
    task = await core.send("1")
    assert error_class(task) == ErrorClass.INTERRUPTED
    assert await read_everywhere(core, task.id) == [None] * PLACES
