"""Turns that wait for their caller, for an approval or for the result of a client's tool: each answer counts once, for the
question that it answers, whatever happens meanwhile. Source: docs/state-model.md, scenarios of group I, and 72, 73 and 81."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gateway.a2a.errors import InvalidParams, TaskNotCancelable, TaskNotFound, TooManyRequests, UnsupportedOperation
from gateway.a2a.model import (
    Artifact,
    Json,
    Message,
    Part,
    Role,
    SendMessageConfiguration,
    SendMessageRequest,
    SubscribeToTaskRequest,
    Task,
    TaskState,
)
from gateway.a2a.tool_calls import URI, Visibility
from gateway.core.agents import Agents
from gateway.core.tools.answers import confirmation_of
from gateway.core.tools.approval_rules import ApprovalRule
from gateway.core.tools.tool_call import NOT_RUN
from gateway.engine.paused_turn import EXPIRED, NO_RESULT, REJECTED
from gateway.ledger.errors import LedgerUnavailable
from gateway.ledger.events import Frame
from gateway.ledger.tasks import Finish
from gateway.ledger.tool_calls import ToolEnds, ToolStarts
from gateway.ledger.turns import Decide, Resume
from gateway.maintenance.expiry import QuestionExpiry
from gateway.operations.contexts import Contexts
from gateway.operations.paused_turns import PausedTurns
from gateway.ports.adapter import (
    AdapterError,
    ArtifactReady,
    CallCompleted,
    CallStarted,
    Ending,
    ErrorClass,
    TextDelta,
    ToolResultReady,
)
from gateway.ports.conversation import Ownership
from gateway.ports.tools import ToolDeclaration
from gateway.scheduling.leases import LeaseTimes
from tests.invariants import violations
from tests.scenarios.test_golden_traces import OWNERS, Sent
from tests.scenarios.test_tool_loop import ALL, BOTH_WAYS, adapter_of, asks, call, told
from tests.support import polling
from tests.support.core import (
    START,
    Core,
    answer,
    error_class,
    events,
    frames,
    logged,
    query,
    running_core,
    said,
    soon,
    states,
)
from tests.support.hints import Hints
from tests.support.resuming_adapter import ResumingAdapter
from tests.support.scripted import BR, BS, G, Pause, Script, ScriptedAdapter, says
from tests.support.scripted_tools import Answer, ScriptedTools

GATED = (ApprovalRule("box.pay*"),)
PAY = call("c2", "pay", '{"to": "ada", "sum": 3}')
SAFE = call("c1", "look")
CAMERA = ToolDeclaration("camera", "Takes a picture.", {"type": "object"})


def setup(core: Core, ownership: Ownership, *scripts: Script, **policies: Any) -> tuple[ScriptedAdapter, ScriptedTools]:
    """An agent with a gated tool `pay` and a safe one `look`."""
    adapter = adapter_of(ownership, *scripts)
    tools = ScriptedTools({"look": "seen", "pay": "paid", "pay_more": "paid more"})
    core.agent(adapter, toolset=tools, **({"approvals": GATED} | policies))
    return adapter, tools


# --- what a caller reads and says


def asked(task: Task) -> list[dict[str, Any]]:
    """What the status asks about."""
    assert task.status.state is TaskState.INPUT_REQUIRED
    assert task.status.message is not None
    metadata: Any = task.status.message.metadata
    found: list[dict[str, Any]] = metadata[URI]["approval"]["tools"]
    return found


def one(task: Task) -> str:
    [tool] = asked(task)
    return str(tool["id"])


def open_calls(task: Task) -> dict[str, str]:
    """The calls that its caller has to run, by name."""
    assert task.status.message is not None
    parts: list[Any] = [part for part in task.status.message.parts if isinstance(part.data, dict)]
    ours = [part for part in parts if part.metadata.get(URI, {}).get("origin") == "client"]
    return {part.data["name"]: part.data["id"] for part in ours}


def yes(call_id: str) -> Json:
    return {"approvals": [{"id": call_id, "approved": True}]}


def no(call_id: str, reason: str | None = None) -> Json:
    return {"approvals": [{"id": call_id, "approved": False, "reason": reason}]}


def result(call_id: str, value: Json, name: str = "camera") -> Json:
    return {"id": call_id, "name": name, "response": {"result": value}}


def request(task: str | None, *said_: Json | str, at_once: bool = False, **more: Any) -> SendMessageRequest:
    parts = tuple(Part(text=one_) if isinstance(one_, str) else Part(data=one_) for one_ in said_)
    configuration = SendMessageConfiguration(return_immediately=True) if at_once else None
    message = Message(message_id="a", task_id=task, role=Role.USER, parts=parts, **more)
    return SendMessageRequest(message=message, configuration=configuration)


async def reply(core: Core, task: str | None, *said_: Json | str, streaming: bool = False, **more: Any) -> Task:
    """The task after the answer."""
    call_ = more.pop("call", None) or core.call(key=more.pop("key", None))
    if not streaming:
        sent = await soon(core.operations.send_message(call_, request(task, *said_, **more)))
        assert sent.task is not None
        return sent.task
    stream = await core.operations.send_streaming_message(call_, request(task, *said_, **more))
    first = events(await frames(stream))[0].task
    assert first is not None
    return await core.get(first.id, call_)


async def start(core: Core, text: str = "1", *, streaming: bool = False, **more: Any) -> Task:
    """The task of a message that opens one, in context `c`."""
    return await reply(core, None, text, streaming=streaming, context_id="c", **more)


def outcomes(core: Core) -> list[tuple[str, str]]:
    rows = query(core.path, "SELECT name, status FROM tool_call ORDER BY id")
    return [(name, status) for name, status in rows]


def settled(core: Core) -> None:
    assert violations(core.path) == []


# --- 110: asked


@ALL
@BOTH_WAYS
async def test_110_a_gated_call_is_asked_about_and_not_run(core: Core, ownership: Ownership, streaming: bool) -> None:
    adapter, tools = setup(core, ownership, asks("r1", PAY))
    task = await start(core, streaming=streaming)
    [tool] = asked(task)
    assert (tool["tool"], tool["name"], tool["args"]) == ("box.pay", "pay", {"to": "ada", "sum": 3})
    assert str(tool["id"]).startswith("call_")
    assert (tools.ran, len(adapter.requests)) == ([], 1)
    assert task.status.message is not None
    assert task.status.message.parts[0].text == 'May the tool box.pay with {"to":"ada","sum":3} be used?'
    [row] = query(core.path, "SELECT status, approval_required, digest IS NULL, approval_decision FROM tool_call")
    assert row == ("pending_approval", 1, 0, None)
    assert query(core.path, "SELECT status FROM turn") == [("waiting",)]
    assert query(core.path, "SELECT lease_holder FROM thread") == [(None,)]
    settled(core)


async def test_110_the_question_is_a_call_that_google_adk_knows(core: Core) -> None:
    setup(core, G, asks("r1", PAY))
    task = await start(core)
    assert task.status.message is not None
    part = task.status.message.parts[1]
    assert isinstance(part.data, dict)
    assert part.metadata is not None
    original = {"id": one(task), "name": "pay", "args": {"to": "ada", "sum": 3}}
    assert part.data["name"] == "adk_request_confirmation"
    assert part.data["id"] == confirmation_of(one(task))
    assert part.data["args"]["originalFunctionCall"] == original
    assert part.data["args"]["toolConfirmation"]["confirmed"] is False
    assert (part.metadata["adk_type"], part.metadata["adk_is_long_running"]) == ("function_call", True)


async def test_110_the_phases_of_the_call_say_that_it_waits(core: Core) -> None:
    setup(core, G, asks("r1", PAY))
    task = await start(core)
    metadata = [
        event.status_update.metadata[URI]["phase"]
        for event in events(logged(core.path, task.id))
        if event.status_update is not None and event.status_update.metadata
    ]
    assert metadata == ["awaiting-approval"]


async def test_110_a_stream_ends_with_the_question(core: Core) -> None:
    setup(core, G, asks("r1", PAY))
    read = await frames(await core.stream("1"))
    assert states(read) == ["WORKING", "INPUT_REQUIRED"]


# --- 111: a safe sibling


@ALL
async def test_111_the_safe_sibling_of_a_gated_call_runs_now_and_its_output_goes_with_the_others(
    core: Core, ownership: Ownership
) -> None:
    adapter, tools = setup(core, ownership, asks("r1", SAFE, PAY), says("done", "r2"))
    task = await start(core)
    assert (tools.ran, len(adapter.requests)) == (["look"], 1)
    await reply(core, task.id, yes(one(task)))
    assert tools.ran == ["look", "pay"]
    assert adapter.sent[1][1][-2:] == ["O c1 seen", "O c2 paid"]
    settled(core)


async def test_111_with_hold_nothing_runs_before_the_decision(core: Core) -> None:
    adapter, tools = setup(core, BR, asks("r1", SAFE, PAY), says("done", "r2"), mixed_batch="hold")
    task = await start(core)
    assert tools.ran == []
    await reply(core, task.id, no(one(task)))
    assert tools.ran == ["look"]
    assert adapter.sent[1] == ("r1", ["O c1 seen", f"O c2 {REJECTED}"])
    settled(core)


# --- 112 to 114: decided


@ALL
@BOTH_WAYS
async def test_112_an_approved_call_runs_once_and_is_answered_once(
    core: Core, ownership: Ownership, streaming: bool
) -> None:
    adapter, tools = setup(core, ownership, asks("r1", PAY), says("done", "r2"), says("well", "r3"))
    task = await start(core, streaming=streaming)
    done = await reply(core, task.id, yes(one(task)), streaming=streaming)
    assert (done.status.state, answer(done), tools.ran) == (TaskState.COMPLETED, "done", ["pay"])
    assert told(done)[-2:] == [("pay", "requested"), ("pay", "succeeded")]
    await start(core, "2")
    assert [line for _, sent in adapter.sent for line in sent].count("O c2 paid") == (2 if ownership is G else 1)
    row = query(core.path, "SELECT approval_decision, approval_by, approval_consumed_at FROM tool_call")
    assert row == [("approved", "ada", START)]
    assert len(core.ledger.stored(ToolStarts)) == len(core.ledger.stored(ToolEnds)) == 1
    settled(core)


async def test_112_a_turn_that_goes_on_ends_only_in_the_process_that_has_it(core: Core) -> None:
    """A process that stood still may end it when another one has taken it over."""
    setup(core, G, asks("r1", PAY), says("done"))
    task = await start(core)
    await reply(core, task.id, yes(one(task)))
    [finish] = core.ledger.stored(Finish)
    assert finish.process == core.runner.runtime.holder


@BOTH_WAYS
async def test_113_the_same_decision_again_changes_nothing_whenever_it_comes(core: Core, streaming: bool) -> None:
    _, tools = setup(core, G, asks("r1", PAY, call("c3", "pay_more")), says("done", "r2"))
    task = await start(core)
    first, second = (tool["id"] for tool in asked(task))
    await reply(core, task.id, yes(first))
    again = await reply(core, task.id, yes(first), streaming=streaming)
    assert again.status.state is TaskState.INPUT_REQUIRED
    assert len(core.ledger.stored(Decide)) == 1
    done = await reply(core, task.id, no(second))
    assert done.status.state is TaskState.COMPLETED
    late = await reply(core, task.id, yes(first), streaming=streaming)
    assert late == done
    assert tools.ran == ["pay"]
    settled(core)


async def test_113_another_decision_on_a_decided_call_is_refused(core: Core) -> None:
    _, tools = setup(core, G, asks("r1", PAY, call("c3", "pay_more")), says("done", "r2"))
    task = await start(core)
    first, second = (tool["id"] for tool in asked(task))
    await reply(core, task.id, yes(first))
    with pytest.raises(InvalidParams, match="is decided already"):
        await reply(core, task.id, no(first))
    await reply(core, task.id, yes(second))
    with pytest.raises(UnsupportedOperation):
        await reply(core, task.id, no(first))
    assert tools.ran == ["pay", "pay_more"]


async def test_113_the_repeat_of_a_message_with_its_key_is_answered_as_the_first_one(core: Core) -> None:
    _, tools = setup(core, G, asks("r1", PAY), says("done", "r2"))
    task = await start(core)
    done = await reply(core, task.id, yes(one(task)), key="k")
    assert await reply(core, task.id, yes(one(task)), key="k") == done
    with pytest.raises(InvalidParams, match="another message"):
        await reply(core, task.id, no(one(task)), key="k")
    assert tools.ran == ["pay"]


@ALL
@BOTH_WAYS
async def test_114_a_rejection_reaches_the_model_with_its_reason_and_nothing_runs(
    core: Core, ownership: Ownership, streaming: bool
) -> None:
    adapter, tools = setup(core, ownership, asks("r1", PAY), says("a pity", "r2"))
    task = await start(core)
    done = await reply(core, task.id, no(one(task), "too dear"), streaming=streaming)
    assert (done.status.state, tools.ran) == (TaskState.COMPLETED, [])
    assert adapter.sent[1][1][-1] == f"O c2 {REJECTED} Reason: too dear"
    assert outcomes(core) == [("pay", "rejected")]
    assert told(done)[-1] == ("pay", "rejected")
    assert query(core.path, "SELECT approval_decision, approval_consumed_at FROM tool_call") == [("rejected", None)]
    settled(core)


@pytest.mark.parametrize(
    "dialect",
    [
        yes,
        lambda _: {"decision": "approve"},
        lambda _: {"decision_type": "approve"},
        lambda call_id: {"decision_type": "batch", "decisions": {call_id: "approve"}},
        lambda call_id: {
            "id": confirmation_of(call_id),
            "name": "adk_request_confirmation",
            "response": {"confirmed": True},
        },
    ],
    ids=["ours and kagent's list", "kagenti", "kagent for all", "kagent for each", "google adk"],
)
async def test_112_a_yes_is_understood_in_every_dialect(core: Core, dialect: Any) -> None:
    _, tools = setup(core, G, asks("r1", PAY), says("done", "r2"))
    task = await start(core)
    done = await reply(core, task.id, dialect(one(task)))
    assert (done.status.state, tools.ran) == (TaskState.COMPLETED, ["pay"])


async def test_112_a_turn_that_goes_on_takes_a_place_of_its_principal_and_one_that_waits_has_none(core: Core) -> None:
    pause = Pause()
    _, tools = setup(core, G, asks("r1", PAY), [pause, *says("busy")], says("done", "r2"))
    runs = core.operations._intake.runs
    runs.most = 1
    task = await start(core)
    busy = await reply(core, None, "2", context_id="d", at_once=True)
    await soon(pause.reached.wait())
    with pytest.raises(TooManyRequests):
        await reply(core, task.id, yes(one(task)))
    assert outcomes(core) == [("pay", "pending_approval")]
    pause.go.set()
    await soon(core.runner.idle())
    done = await reply(core, task.id, yes(one(task)))
    assert (done.status.state, tools.ran) == (TaskState.COMPLETED, ["pay"])
    assert (await core.get(busy.id)).status.state is TaskState.COMPLETED
    runs.take(core.call().caller).release()
    settled(core)


# --- 115: forged


async def test_115_another_principal_does_not_even_see_the_task(core: Core) -> None:
    _, tools = setup(core, G, asks("r1", PAY))
    task = await start(core)
    with pytest.raises(TaskNotFound):
        await reply(core, task.id, yes(one(task)), call=core.call("eve"))
    assert tools.ran == []
    assert outcomes(core) == [("pay", "pending_approval")]


async def test_115_the_yes_of_another_context_is_none_here(core: Core) -> None:
    _, tools = setup(core, G, asks("r1", PAY), asks("r1", call("c9", "pay")))
    task = await start(core)
    other = await reply(core, None, "1", context_id="d")
    with pytest.raises(InvalidParams, match="is no call that this task asks about"):
        await reply(core, task.id, yes(one(other)))
    with pytest.raises(InvalidParams, match="is not the context of task"):
        await reply(core, task.id, yes(one(task)), context_id="d")
    assert tools.ran == []
    assert outcomes(core) == [("pay", "pending_approval")] * 2


@pytest.mark.parametrize(
    ("said_", "why"),
    [
        (yes("call_unknown"), "is no call that this task asks about"),
        ({"approvals": [{"id": "call_unknown", "approved": False}]}, "is no call that this task asks about"),
        ({"decision": "yes please"}, "must be approve or reject"),
        ({"id": "call_unknown", "name": "x", "response": {}}, "is no call that this task asks about"),
        ({"name": "adk_request_confirmation", "response": {"confirmed": True}}, "must be the id of a call"),
    ],
)
async def test_115_what_is_not_understood_changes_nothing(core: Core, said_: Json, why: str) -> None:
    _, tools = setup(core, G, asks("r1", PAY))
    task = await start(core)
    with pytest.raises(InvalidParams, match=why):
        await reply(core, task.id, said_)
    assert (await core.get(task.id)) == task
    assert tools.ran == []


async def test_115_a_yes_to_other_arguments_is_refused(core: Core) -> None:
    _, tools = setup(core, G, asks("r1", PAY), says("done"))
    task = await start(core)
    entry = {"id": one(task), "approved": True, "args": {"to": "eve", "sum": 3}}
    with pytest.raises(InvalidParams, match="other arguments"):
        await reply(core, task.id, {"approvals": [entry]})
    assert tools.ran == []
    done = await reply(core, task.id, {"approvals": [entry | {"args": {"sum": 3, "to": "ada"}}]})
    assert done.status.state is TaskState.COMPLETED


async def test_115_yes_and_no_in_one_message_is_refused(core: Core) -> None:
    setup(core, G, asks("r1", PAY))
    task = await start(core)
    with pytest.raises(InvalidParams, match="approved and rejected"):
        await reply(core, task.id, yes(one(task)), no(one(task)))


async def test_115_words_are_no_yes(core: Core) -> None:
    adapter, tools = setup(core, G, asks("r1", PAY), says("fine", "r2"))
    task = await start(core)
    await reply(core, task.id, "yes, approved")
    assert tools.ran == []
    assert outcomes(core) == [("pay", "cancelled")]
    assert adapter.sent[1] == (None, ["U 1", "U yes, approved"])


async def test_115_a_yes_is_not_for_another_tool_of_the_same_name(core: Core) -> None:
    """The operator attaches another source while the caller thinks about it."""
    adapter, tools = setup(core, G, asks("r1", PAY), says("done", "r2"))
    task = await start(core)
    offer = tools._offer
    tools._offer = lambda name: _renamed(offer(name))  # type: ignore[method-assign]
    await reply(core, task.id, yes(one(task)))
    assert tools.ran == []
    assert adapter.sent[1] == (None, ["U 1"])
    assert outcomes(core) == [("pay", "cancelled")]
    settled(core)


def _renamed(tool: Any) -> Any:
    return replace(tool, identity=f"other.{tool.own_name}")


# --- 116, 117: failures around the resume


async def test_116_a_decision_stays_valid_when_the_tools_cannot_be_reached(core: Core) -> None:
    _, tools = setup(core, G, asks("r1", PAY), says("done", "r2"))
    task = await start(core)
    tools.unreachable = "no route"
    await reply(core, task.id, yes(one(task)), at_once=True)
    await soon(core.runner.idle())
    assert outcomes(core) == [("pay", "approved")]
    assert query(core.path, "SELECT status FROM turn") == [("waiting",)]
    tools.unreachable = None
    core.time.now += 60_000
    await expiry(core).sweep()
    await soon(core.runner.idle())
    assert (await core.get(task.id)).status.state is TaskState.COMPLETED
    assert tools.ran == ["pay"]
    settled(core)


async def test_116_a_decision_that_could_not_be_stored_can_be_given_again(core: Core) -> None:
    _, tools = setup(core, G, asks("r1", PAY), says("done", "r2"))
    task = await start(core)
    core.ledger.refuse(Decide)
    with pytest.raises(LedgerUnavailable):
        await reply(core, task.id, yes(one(task)))
    assert (await core.get(task.id)) == task
    done = await reply(core, task.id, yes(one(task)))
    assert (done.status.state, tools.ran) == (TaskState.COMPLETED, ["pay"])


async def test_116_a_turn_that_could_not_be_taken_up_is_taken_up_by_the_same_decision_again(core: Core) -> None:
    _, tools = setup(core, G, asks("r1", PAY), says("done", "r2"))
    task = await start(core)
    core.ledger.refuse(Resume)
    await reply(core, task.id, yes(one(task)), at_once=True)
    await soon(core.runner.idle())
    assert (tools.ran, outcomes(core)) == ([], [("pay", "approved")])
    core.time.now += 60_000
    await expiry(core).sweep()
    await soon(core.runner.idle())
    assert tools.ran == ["pay"]
    settled(core)


async def test_117_after_the_tool_ran_only_its_stored_output_is_sent(core: Core) -> None:
    broken: Script = [AdapterError(ErrorClass.BACKEND_FAILED, "500")]
    adapter, tools = setup(core, BR, asks("r1", PAY), broken, says("well", "r3"))
    task = await start(core)
    failed = await reply(core, task.id, yes(one(task)))
    assert failed.status.state is TaskState.FAILED
    await start(core, "2")
    assert tools.ran == ["pay"]
    assert adapter.sent[1:] == [("r1", ["O c2 paid"]), ("r1", ["O c2 paid", "U 2"])]
    settled(core)


# --- 118: abandoned


@ALL
@BOTH_WAYS
async def test_118_a_message_without_a_decision_ends_the_waiting_turn_and_opens_the_next_one(
    core: Core, ownership: Ownership, streaming: bool
) -> None:
    adapter, tools = setup(core, ownership, asks("r1", SAFE, PAY), says("never mind", "r2"))
    task = await start(core)
    done = await reply(core, task.id, "2", streaming=streaming)
    assert (done.id, done.status.state, answer(done)) == (task.id, TaskState.COMPLETED, "never mind")
    assert tools.ran == ["look"]
    assert outcomes(core) == [("look", "completed"), ("pay", "cancelled")]
    if ownership is G:
        assert adapter.sent[1] == (None, ["U 1", "C c1 look", "O c1 seen", "U 2"])
    else:
        handle = "r1" if ownership is BR else "c"
        assert adapter.sent[1] == (handle, ["O c1 seen", f"O c2 {NOT_RUN}", "U 2"])
    assert query(core.path, "SELECT status FROM turn ORDER BY number") == [("cancelled",), ("completed",)]
    assert [line for line in said(done) if line.startswith("U")] == ["U 1", "U 2"]
    settled(core)


@pytest.mark.parametrize("where", ["new", "another"])
async def test_118b_a_new_task_beside_a_waiting_one_is_refused_and_told_which_it_is(core: Core, where: str) -> None:
    _, tools = setup(
        core, G, [TextDelta("?"), CallCompleted(ending=Ending.INPUT_REQUIRED)], asks("r1", PAY), says("done")
    )
    worded = await start(core, "0")
    task = await start(core)
    with pytest.raises(UnsupportedOperation, match=f"Task '{task.id}' of this context waits") as caught:
        await start(core, "2") if where == "new" else await reply(core, worded.id, "2")
    assert caught.value.metadata == {"taskId": task.id}
    assert (await reply(core, task.id, yes(one(task)))).status.state is TaskState.COMPLETED
    assert tools.ran == ["pay"]


@ALL
async def test_118b_with_supersede_the_waiting_task_is_cancelled_and_the_new_one_runs(
    core: Core, ownership: Ownership
) -> None:
    adapter, tools = setup(core, ownership, asks("r1", PAY), says("new", "r2"), new_task_while_waiting="supersede")
    task = await start(core)
    done = await start(core, "2")
    assert (done.id != task.id, done.status.state) == (True, TaskState.COMPLETED)
    assert (await core.get(task.id)).status.state is TaskState.CANCELED
    assert (tools.ran, outcomes(core)) == ([], [("pay", "cancelled")])
    assert adapter.sent[1][1] == (["U 1", "U 2"] if ownership is G else [f"O c2 {NOT_RUN}", "U 2"])
    settled(core)


async def test_118b_a_message_that_came_before_the_question_waits_for_its_answer(core: Core) -> None:
    pause = Pause()
    _, tools = setup(core, G, [pause, *asks("r1", PAY)], says("done", "r2"), says("second", "r3"))
    task = await start(core, at_once=True)
    await soon(pause.reached.wait())
    second = await start(core, "2", at_once=True)
    pause.go.set()
    waiting = await asked_for(core, task.id)
    done = await reply(core, task.id, yes(one(waiting)))
    await soon(core.runner.idle())
    assert (answer(done), answer(await core.get(second.id)), tools.ran) == ("done", "second", ["pay"])
    settled(core)


async def test_118b_a_message_that_another_process_accepted_waits_for_the_answer_too(tmp_path: Path) -> None:
    path, lease, pause = tmp_path / "gateway.db", LeaseTimes(0.2), Pause()
    async with (
        running_core(path, prefix="a", lease=lease) as first,
        running_core(path, prefix="b", lease=lease) as second,
    ):
        setup(first, G, [pause, *asks("r1", PAY)])
        adapter, _ = setup(second, G, says("done", "r2"), says("second", "r3"))
        task = await start(first, at_once=True)
        await soon(pause.reached.wait())
        behind = await start(second, "2", at_once=True)
        pause.go.set()
        waiting = await asked_for(first, task.id)
        assert (await reply(second, task.id, no(one(waiting)), at_once=True)).status.state is TaskState.WORKING
        await soon(second.runner.idle())
        assert (await first.get(task.id)).status.state is TaskState.COMPLETED
        assert answer(await second.get(behind.id)) == "second"
        assert adapter.sent[-1][1][-2:] == ["A done", "U 2"]
        settled(second)


async def test_118b_a_message_that_another_process_accepted_goes_on_when_that_process_hears_of_the_answer(
    tmp_path: Path,
) -> None:
    path, pause, hints = tmp_path / "gateway.db", Pause(), Hints()
    async with (
        running_core(path, prefix="a", lease=LeaseTimes(100)) as first,
        running_core(path, prefix="b", lease=LeaseTimes(100), before=hints) as second,
    ):
        setup(first, G, [pause, *asks("r1", PAY)], says("done", "r2"))
        setup(second, G, says("second", "r3"))
        task = await start(first, at_once=True)
        await soon(pause.reached.wait())
        looked = second.ledger.slow_read("waiting_task")
        behind = await start(second, "2", at_once=True)
        await soon(looked.reached.wait())
        looked.go.set()
        pause.go.set()
        waiting = await asked_for(first, task.id)
        parked = second.ledger.slow_read("waiting_task")

        def hinted(reached: bool) -> bool:
            """A hint that comes before anybody waits for it is lost."""
            hints.say(task.id)
            return reached

        await polling.until(lambda: hinted(parked.reached.is_set()))
        parked.go.set()
        await reply(first, task.id, no(one(waiting)))
        # Before the next renewal, but perhaps behind one try for the lease that came too early.
        await polling.until(lambda: hinted(not second.runner.own_turns()), seconds=25)
        assert answer(await second.get(behind.id)) == "second"
        settled(second)


async def asked_for(core: Core, task: str) -> Task:
    stream = await core.subscribe(task)
    async for batch in stream:
        for event in events(batch):
            status = event.task.status if event.task else event.status_update.status if event.status_update else None
            if status is not None and status.state is TaskState.INPUT_REQUIRED:
                await stream.aclose()
                return await core.get(task)
    raise AssertionError("nothing was asked")


# --- 119: some, expiry, cancel


@ALL
@BOTH_WAYS
async def test_119_the_task_asks_until_everything_is_decided(core: Core, ownership: Ownership, streaming: bool) -> None:
    adapter, tools = setup(core, ownership, asks("r1", PAY, call("c3", "pay_more")), says("done", "r2"))
    task = await start(core)
    first, second = (tool["id"] for tool in asked(task))
    still = await reply(core, task.id, yes(second), streaming=streaming)
    assert (one(still), tools.ran, len(adapter.requests)) == (first, [], 1)
    done = await reply(core, task.id, no(first), streaming=streaming)
    assert (done.status.state, tools.ran) == (TaskState.COMPLETED, ["pay_more"])
    assert adapter.sent[1][1][-2:] == [f"O c2 {REJECTED}", "O c3 paid more"]
    assert query(core.path, "SELECT ordinal FROM input ORDER BY ordinal") == [(0,), (1,), (2,)]
    settled(core)


@ALL
async def test_119_what_nobody_decides_in_time_is_rejected(core: Core, ownership: Ownership) -> None:
    adapter, tools = setup(core, ownership, asks("r1", PAY), says("a pity", "r2"), approval_timeout=60.0)
    task = await start(core)
    core.time.now += 59_000
    await expiry(core).sweep()
    assert (await core.get(task.id)) == task
    core.time.now += 2_000
    with pytest.raises(InvalidParams, match="the time to decide"):
        await reply(core, task.id, yes(one(task)))
    await expiry(core).sweep()
    await soon(core.runner.idle())
    done = await core.get(task.id)
    assert (done.status.state, tools.ran) == (TaskState.COMPLETED, [])
    assert adapter.sent[1][1][-1] == f"O c2 {EXPIRED}"
    assert query(core.path, "SELECT status, approval_decision, approval_by FROM tool_call") == [
        ("rejected", "expired", None)
    ]
    settled(core)


@ALL
async def test_119_a_cancelled_task_closes_every_call_and_the_next_turn_is_whole(
    core: Core, ownership: Ownership
) -> None:
    adapter, tools = setup(core, ownership, asks("r1", SAFE, PAY), says("new", "r2"))
    task = await start(core)
    watching = await core.subscribe(task.id)
    canceled = await core.cancel(task.id)
    assert canceled.status.state is TaskState.CANCELED
    assert states(await frames(watching))[-1] == "CANCELED"
    assert outcomes(core) == [("look", "completed"), ("pay", "cancelled")]
    assert told(await core.get(task.id))[-1] == ("pay", "cancelled")
    settled(core)
    await start(core, "2")
    whole = ["U 1", "C c1 look", "O c1 seen", "U 2"]
    assert adapter.sent[1][1] == (whole if ownership is G else ["O c1 seen", f"O c2 {NOT_RUN}", "U 2"])
    assert tools.ran == ["look"]
    settled(core)


async def test_119_a_deleted_context_ends_what_waits_in_it(core: Core) -> None:
    setup(core, G, asks("r1", PAY))
    task = await start(core)
    contexts = Contexts(core.ledger, core.runner, core.fanout, core.time.clock, core.drain)
    async with asyncio.timeout(core.runner.patience / 2):  # No other process has it: none is waited for.
        await contexts.delete(core.call().caller, "c")
    with pytest.raises(TaskNotFound):
        await reply(core, task.id, yes(one(task)))


def expiry(core: Core) -> QuestionExpiry:
    ledger: Any = core.ledger
    answering = PausedTurns(ledger, core.runner, core.fanout, core.time.clock)
    latest = {agent.name: agent for agent in core.agents}
    return QuestionExpiry(
        ledger, core.runner, answering, core.time.clock, core.duties, lambda: Agents(tuple(latest.values()))
    )


async def test_119_a_gateway_that_drains_takes_up_nothing_more_and_ends_what_it_is_taking_up(core: Core) -> None:
    _, tools = setup(core, G, asks("r1", PAY), says("a pity", "r2"), approval_timeout=60.0)
    task = await start(core)
    core.time.now += 61_000
    deciding = core.ledger.hold(Decide)
    async with asyncio.TaskGroup() as group:
        group.create_task(expiry(core).sweep())
        await soon(deciding.reached.wait())
        core.runner.retired = True
        drained = group.create_task(core.runner.drained())
        core.ledger.reads.clear()
        await expiry(core).sweep()
        looked, early = list(core.ledger.reads), drained.done()
        core.ledger.let_go()
    assert (looked, early) == (["overdue_turns"], False)
    assert ((await core.get(task.id)).status.state, tools.ran) == (TaskState.COMPLETED, [])


async def test_119_of_two_gateways_one_takes_up_what_nobody_has_answered(core: Core) -> None:
    setup(core, G, asks("r1", PAY), approval_timeout=60.0)
    task = await start(core)
    async with running_core(core.path, prefix="other") as other:
        setup(other, G, says("a pity", "r2"), approval_timeout=60.0)
        for process in (core, other):
            process.time.now += 61_000
        await other.duties.take("expiry")
        core.ledger.reads.clear()
        await expiry(core).sweep()
        assert core.ledger.reads == ["overdue_turns", "duty"]
        await expiry(other).sweep()
        await soon(other.runner.idle())
    assert (await core.get(task.id)).status.state is TaskState.COMPLETED
    settled(core)


async def test_119_what_is_overdue_and_has_no_agent_is_not_written_about(core: Core) -> None:
    setup(core, G, asks("r1", PAY), approval_timeout=60.0)
    await start(core)
    core.time.now += 61_000
    core.agents.clear()
    stored = len(core.ledger.units)
    await expiry(core).sweep()
    assert len(core.ledger.units) == stored


# --- 29: the settings change while a turn waits


FLIPPED = pytest.mark.parametrize(
    ("old", "new"), [(BR, BS), (BS, BR), (G, BR)], ids=["BR to BS", "BS to BR", "G to BR"]
)


@FLIPPED
async def test_29_a_decision_is_refused_where_the_agent_keeps_conversations_in_another_way(
    core: Core, old: Ownership, new: Ownership
) -> None:
    setup(core, old, asks("r1", PAY))
    task = await start(core)
    flipped, tools = setup(core, new, says("wrong", "r2"))
    for said_ in (yes(one(task)), "never mind"):
        with pytest.raises(UnsupportedOperation, match="is now set to"):
            await reply(core, task.id, said_)
    assert (flipped.requests, tools.ran, await core.get(task.id)) == ([], [], task)
    _, tools = setup(core, old, says("done", "r1" if old is BS else "r2"))
    done = await reply(core, task.id, yes(one(task)))
    assert (done.status.state, answer(done), tools.ran) == (TaskState.COMPLETED, "done", ["pay"])
    settled(core)


@FLIPPED
async def test_29_a_turn_that_waited_too_long_ends_and_its_thread_is_left_as_it_was(
    core: Core, old: Ownership, new: Ownership
) -> None:
    setup(core, old, asks("r1", PAY), approval_timeout=60.0)
    task = await start(core)
    flipped, _ = setup(core, new, says("wrong", "r2"))
    core.time.now += 61_000
    await expiry(core).sweep()
    await soon(core.runner.idle())
    assert (error_class(await core.get(task.id)), flipped.requests) == ("owner-conflict", [])
    adapter, _ = setup(core, old, says("back", "r1" if old is BS else "r2"))
    assert (await start(core, "2")).status.state is TaskState.COMPLETED
    assert adapter.sent[0][1][-2:] == [f"O c2 {EXPIRED}", "U 2"]
    settled(core)


# --- 120: restart


async def test_120_a_restart_while_a_turn_waits_loses_nothing(tmp_path: Path) -> None:
    path, lease = tmp_path / "gateway.db", LeaseTimes(0.2)
    async with running_core(path, prefix="a", lease=lease) as first:
        setup(first, BR, asks("r1", SAFE, PAY))
        task = await start(first)
        await first.die()
    async with running_core(path, prefix="b", now=START + 60_000, lease=lease) as second:
        adapter, tools = setup(second, BR, says("done", "r2"))
        assert await second.get(task.id) == task
        done = await reply(second, task.id, yes(one(task)), "and hurry")
        assert (done.status.state, answer(done), tools.ran) == (TaskState.COMPLETED, "done", ["pay"])
        assert adapter.sent == [("r1", ["O c1 seen", "O c2 paid", "U and hurry"])]
        assert query(path, "SELECT round FROM service_call ORDER BY round") == [(0,), (1,)]
        settled(second)


@ALL
async def test_120_what_is_said_beside_the_decision_reaches_the_model_once_behind_the_outputs(
    core: Core, ownership: Ownership
) -> None:
    adapter, _ = setup(core, ownership, asks("r1", SAFE, PAY), says("done", "r2"), says("well", "r3"))
    task = await start(core)
    await reply(core, task.id, yes(one(task)), "and hurry")
    await start(core, "2")
    outputs = ["O c1 seen", "O c2 paid", "U and hurry"]
    if ownership is G:
        first = ["U 1", "C c1 look", "C c2 pay", *outputs]
        assert adapter.sent[1:] == [(None, first), (None, [*first, "A done", "U 2"])]
    else:
        assert [sent for _, sent in adapter.sent[1:]] == [outputs, ["U 2"]]
    settled(core)


@pytest.mark.parametrize("point", [Decide, Resume, ToolStarts, ToolEnds])
async def test_120_a_process_that_dies_around_the_decision_leaves_a_whole_conversation(
    tmp_path: Path, point: type
) -> None:
    path, lease = tmp_path / "gateway.db", LeaseTimes(0.2)
    async with running_core(path, prefix="a", lease=lease) as first:
        setup(first, BR, asks("r1", PAY), says("lost", "r2"))
        task = await start(first)
        lost = first.ledger.refuse(point)
        with suppress(LedgerUnavailable):
            await reply(first, task.id, yes(one(task)), at_once=True)
        await soon(lost.wait())
        await first.die()
    async with running_core(path, prefix="b", now=START + 60_000, lease=lease) as second:
        _, tools = setup(second, BR, says("done", "r2"), says("more", "r3"))
        second.time.now += 60_000
        await expiry(second).sweep()
        await soon(second.runner.idle())
        state = (await second.get(task.id)).status.state
        if point is Decide:
            assert state is TaskState.INPUT_REQUIRED
            assert (await reply(second, task.id, yes(one(task)))).status.state is TaskState.COMPLETED
            assert tools.ran == ["pay"]
        elif point in (Resume, ToolStarts):
            assert (state, tools.ran) == (TaskState.COMPLETED, ["pay"])
        else:
            assert (state, tools.ran) == (TaskState.FAILED, [])
            assert outcomes(second) == [("pay", "interrupted")]
        settled(second)


# --- how it is read


@ALL
async def test_106_a_task_is_read_the_same_while_it_waits_and_behind_every_event(
    core: Core, ownership: Ownership
) -> None:
    setup(core, ownership, [TextDelta("let me see"), *asks("r1", SAFE, PAY)], says("done", "r2"))
    task = await start(core)
    assert await core.get(task.id) == task
    assert answer(task) == "let me see"
    [listed] = (await core.list(include_artifacts=True)).tasks
    assert listed == task
    watching = await core.subscribe(task.id)
    done = await reply(core, task.id, yes(one(task)), "and hurry")
    read = await frames(watching)
    assert states(read) == ["INPUT_REQUIRED", "WORKING", "COMPLETED"]
    assert answer(done) == "let me see\n\ndone"
    assert await core.get(task.id) == done
    lines = said(done)
    assert lines.index("U ? and hurry") > lines.index("U 1")
    log = logged(core.path, task.id)
    for number in range(len(log) + 1):
        stream = await core.operations.subscribe_to_task(core.call(last=number), SubscribeToTaskRequest(id=task.id))
        replayed = await frames(stream)
        assert [payload for _, payload in replayed[1:]] == [payload for _, payload in log[number:]]
        first = events(replayed[:1])[0].task
        assert first is not None
        if number == len(log):
            assert said(first) == said(done)


TEXTS = ("let me see\n\n", "done")
"""The texts of an answer, before a wait and behind it."""


def parts_of(task: Task) -> tuple[str | None, ...]:
    """The texts of the one artifact of a task."""
    [made] = task.artifacts or ()
    return tuple(part.text for part in made.parts)


def joined(*streams: Sequence[Frame]) -> str:
    """The texts of all artifact updates, as a client that only joins texts shows them."""
    updates = [event.artifact_update for read in streams for event in events(read)]
    return "".join(part.text or "" for update in updates if update is not None for part in update.artifact.parts)


@ALL
@pytest.mark.parametrize("tool", [PAY, call("c1", "camera")], ids=["approval", "client tool"])
async def test_106_an_answer_behind_a_wait_is_another_part_of_the_same_artifact(
    core: Core, ownership: Ownership, tool: Any
) -> None:
    setup(core, ownership, [TextDelta("let me see"), *asks("r1", tool)], says("done", "r2"), client_tools=(CAMERA,))
    before = await frames(await core.stream("1", context="c"))
    [task] = (await core.list()).tasks
    said_ = yes(one(task)) if tool == PAY else result(open_calls(task)["camera"], "a cat")
    stream = await core.operations.send_streaming_message(core.call(), request(task.id, said_))
    behind = await frames(stream)
    first = events(behind)[0].task
    assert first is not None
    assert parts_of(first) == ("let me see",)
    assert parts_of(await core.get(task.id)) == TEXTS
    assert joined(before, behind) == "".join(TEXTS)
    settled(core)


@ALL
async def test_106_an_answer_goes_on_in_its_artifact_where_another_process_hears_the_caller(
    tmp_path: Path, ownership: Ownership
) -> None:
    path = tmp_path / "ledger.db"
    async with running_core(path, prefix="one") as first:
        setup(first, ownership, [TextDelta("let me see"), *asks("r1", PAY)])
        task = await start(first)
    async with running_core(path, prefix="two") as second:
        more = [TextDelta("paid"), *asks("r2", call("c3", "pay", "{}"))]
        setup(second, ownership, more, says("done", "r3"))
        asked_again = await reply(second, task.id, yes(one(task)))
        assert parts_of(asked_again) == ("let me see\n\n", "paid")
        done = await reply(second, task.id, yes(one(asked_again)))
        assert parts_of(done) == ("let me see\n\n", "paid\n\n", "done")
        settled(second)


SHOWN = pytest.mark.parametrize("exposure", ["full", "none"], ids=["calls shown", "calls hidden"])


@SHOWN
async def test_106_a_call_behind_a_wait_that_another_process_makes_again_goes_on_in_the_artifact(
    tmp_path: Path, exposure: Any
) -> None:
    path, pause, shown = tmp_path / "ledger.db", Pause(), Visibility(exposure=exposure)
    async with running_core(path, prefix="one") as first:
        setup(first, G, [TextDelta("let me see"), *asks("r1", PAY)], [pause], tool_calls=shown)
        task = await start(first)
        await reply(first, task.id, yes(one(task)), at_once=True)
        await soon(pause.reached.wait())
    async with running_core(path, prefix="two", now=START + 10**7, adapter=adapter_of(G, says("done"))) as second:
        await soon(second.runner.idle())
        done = await second.get(task.id)
        assert (done.status.state, parts_of(done)) == (TaskState.COMPLETED, TEXTS)
        settled(second)


@SHOWN
async def test_106_a_call_behind_a_wait_that_another_process_listens_to_goes_on_where_it_was(
    tmp_path: Path, exposure: Any
) -> None:
    path, pause, shown = tmp_path / "ledger.db", Pause(), Visibility(exposure=exposure)
    async with running_core(path, prefix="one") as first:
        began: Script = [CallStarted("r2"), TextDelta("do"), pause]
        adapter = ResumingAdapter([CallStarted("r1"), TextDelta("let me see"), *asks("r1", PAY)], began)
        first.agent(adapter, toolset=ScriptedTools({"pay": "paid"}), approvals=GATED, tool_calls=shown)
        task = await start(first)
        await reply(first, task.id, yes(one(task)), at_once=True)
        await soon(pause.reached.wait())
        assert parts_of(await first.get(task.id)) == ("let me see\n\n", "do")
    again: Script = [CallStarted("r2"), TextDelta("d"), TextDelta("one"), CallCompleted("r2")]
    async with running_core(path, prefix="two", now=START + 10**7, adapter=ResumingAdapter(again=[again])) as second:
        await soon(second.runner.idle())
        done = await second.get(task.id)
        assert (done.status.state, parts_of(done)) == (TaskState.COMPLETED, TEXTS)
        settled(second)


async def test_106_a_separate_result_is_not_taken_for_the_answer_that_goes_on_behind_a_wait(core: Core) -> None:
    made = ArtifactReady(Artifact(artifact_id="report", parts=(Part(text="a report"),)))
    setup(core, G, [TextDelta("let me see"), made, *asks("r1", PAY)], says("done", "r2"))
    done = await reply(core, (task := await start(core)).id, yes(one(task)))
    assert [tuple(part.text for part in each.parts) for each in done.artifacts or ()] == [TEXTS, ("a report",)]
    settled(core)


async def test_106_an_answer_that_begins_behind_a_wait_is_an_artifact_beside_what_was_shown_before(core: Core) -> None:
    made = ArtifactReady(Artifact(artifact_id="report", parts=(Part(text="a report"),)))
    setup(core, G, [made, *asks("r1", PAY)], says("done", "r2"))
    done = await reply(core, (task := await start(core)).id, yes(one(task)))
    assert [tuple(part.text for part in each.parts) for each in done.artifacts or ()] == [("a report",), ("done",)]
    settled(core)


# --- tools of the client


async def test_81_a_tool_that_is_only_declared_is_asked_of_the_client_and_its_siblings_run_once(core: Core) -> None:
    adapter, tools = setup(core, BR, asks("r1", SAFE, call("c2", "camera")), says("done", "r2"), client_tools=(CAMERA,))
    task = await start(core)
    assert task.status.state is TaskState.INPUT_REQUIRED
    assert tools.ran == ["look"]
    calls = open_calls(task)
    done = await reply(core, task.id, result(calls["camera"], "a cat"))
    assert (done.status.state, tools.ran) == (TaskState.COMPLETED, ["look"])
    assert adapter.sent[1] == ("r1", ["O c1 seen", "O c2 a cat"])
    assert [tool.name for tool in adapter.requests[0].tools] == ["look", "pay", "pay_more", "camera"]
    assert query(core.path, "SELECT executor, status FROM tool_call ORDER BY id") == [
        ("gateway", "completed"),
        ("client", "completed"),
    ]
    settled(core)


@ALL
@BOTH_WAYS
async def test_72_tools_of_the_gateway_and_of_the_client_go_back_together(
    core: Core, ownership: Ownership, streaming: bool
) -> None:
    adapter, tools = setup(core, ownership, asks("r1", call("c1", "camera"), call("c2", "look")), says("done", "r2"))
    metadata = {URI: {"tools": [{"name": "camera", "description": "", "parameters": {"type": "object"}}]}}
    task = await start(core, metadata=metadata, streaming=streaming)
    assert (tools.ran, told(task)) == (
        ["look"],
        [("look", "requested"), ("look", "succeeded"), ("camera", "requested")],
    )
    done = await reply(core, task.id, result(open_calls(task)["camera"], "a cat"), streaming=streaming)
    assert done.status.state is TaskState.COMPLETED
    assert adapter.sent[1][1][-2:] == ["O c1 a cat", "O c2 seen"]
    assert [tool.name for tool in adapter.requests[1].tools][-1] == "camera"
    settled(core)


async def test_72_a_yes_and_a_result_may_come_in_one_message(core: Core) -> None:
    adapter, tools = setup(core, G, asks("r1", PAY, call("c3", "camera")), says("done", "r2"), client_tools=(CAMERA,))
    task = await start(core)
    done = await reply(core, task.id, yes(one(task)), result(open_calls(task)["camera"], "a cat"))
    assert (done.status.state, tools.ran) == (TaskState.COMPLETED, ["pay"])
    assert adapter.sent[1][1][-2:] == ["O c2 paid", "O c3 a cat"]


async def test_72_a_question_that_is_asked_again_has_the_parts_of_the_calls_that_are_still_open(core: Core) -> None:
    setup(core, G, asks("r1", call("c1", "camera"), call("c2", "camera")), client_tools=(CAMERA,))
    task = await start(core)
    assert task.status.message is not None
    first, second = (part for part in task.status.message.parts if isinstance(part.data, dict))
    assert isinstance(first.data, dict)
    still = await reply(core, task.id, result(str(first.data["id"]), 1))
    assert still.status.message is not None
    assert [part for part in still.status.message.parts if isinstance(part.data, dict)] == [second]


async def test_72_all_results_have_to_come(core: Core) -> None:
    adapter, _ = setup(
        core, G, asks("r1", call("c1", "camera"), call("c2", "camera")), says("done", "r2"), client_tools=(CAMERA,)
    )
    task = await start(core)
    assert task.status.message is not None
    first, second = (part.data["id"] for part in task.status.message.parts if isinstance(part.data, dict))
    still = await reply(core, task.id, result(first, 1))
    assert (still.status.state, len(adapter.requests)) == (TaskState.INPUT_REQUIRED, 1)
    again = await reply(core, task.id, result(first, 1))
    assert again == still
    with pytest.raises(InvalidParams, match="has ended already"):
        await reply(core, task.id, result(first, 2))
    done = await reply(core, task.id, {"id": second, "name": "camera", "response": {"error": "dark"}})
    assert done.status.state is TaskState.COMPLETED
    assert adapter.sent[1][1][-2:] == ["O c1 1", "O c2 dark"]
    assert outcomes(core) == [("camera", "completed"), ("camera", "failed")]
    settled(core)


async def test_72_a_result_under_the_name_of_another_tool_is_refused_and_the_calls_wait(core: Core) -> None:
    adapter, _ = setup(core, G, asks("r1", call("c1", "camera")), says("done", "r2"), client_tools=(CAMERA,))
    task = await start(core)
    camera = open_calls(task)["camera"]
    with pytest.raises(InvalidParams, match="is a call of 'camera', not of 'pay'") as caught:
        await reply(core, task.id, result(camera, "a cat", "pay"))
    assert caught.value.violations[0].field == "message.parts[0].data.name"
    assert (await core.get(task.id)) == task
    done = await reply(core, task.id, {"id": camera, "response": "a cat"})
    assert (done.status.state, adapter.sent[1][1][-1]) == (TaskState.COMPLETED, "O c1 a cat")


async def test_72_what_the_client_does_not_answer_is_cancelled_by_its_next_message(core: Core) -> None:
    adapter, _ = setup(core, BR, asks("r1", call("c1", "camera")), says("fine", "r2"), client_tools=(CAMERA,))
    task = await start(core)
    await reply(core, task.id, "never mind")
    assert adapter.sent[1] == ("r1", [f"O c1 {NOT_RUN}", "U never mind"])
    assert outcomes(core) == [("camera", "cancelled")]
    settled(core)


async def test_72_a_client_that_never_answers_is_not_waited_for_for_ever(core: Core) -> None:
    adapter, _ = setup(
        core, BR, asks("r1", call("c1", "camera")), says("fine", "r2"), client_tools=(CAMERA,), approval_timeout=60.0
    )
    task = await start(core)
    core.time.now += 61_000
    await expiry(core).sweep()
    await soon(core.runner.idle())
    assert adapter.sent[1] == ("r1", [f"O c1 {NO_RESULT}"])
    assert (await core.get(task.id)).status.state is TaskState.COMPLETED
    settled(core)


async def test_72_a_client_cannot_take_the_name_of_a_tool_of_the_agents(core: Core) -> None:
    setup(core, G, says("done"))
    with pytest.raises(InvalidParams, match="is a tool of the agent's own"):
        await start(core, metadata={URI: {"tools": [{"name": "pay"}]}})


async def test_72_a_decision_on_the_clients_own_call_and_a_result_of_the_gateways_are_refused(core: Core) -> None:
    setup(core, G, asks("r1", PAY, call("c3", "camera")), client_tools=(CAMERA,))
    task = await start(core)
    with pytest.raises(InvalidParams, match="needs no decision"):
        await reply(core, task.id, yes(open_calls(task)["camera"]))
    with pytest.raises(InvalidParams, match="is not a call that its caller runs"):
        await reply(core, task.id, result(one(task), "paid"))


# --- 73


@ALL
@BOTH_WAYS
async def test_73_a_gated_tool_that_the_backend_already_ran_is_never_asked_about(
    core: Core, ownership: Ownership, streaming: bool
) -> None:
    _, tools = setup(core, ownership, asks("r1", PAY, ToolResultReady("c2", "paid there")))
    task = await start(core, streaming=streaming)
    assert (task.status.state, tools.ran) == (TaskState.COMPLETED, [])
    assert query(core.path, "SELECT executor, approval_required FROM tool_call") == [("backend", 0)]


# --- 137: races


async def test_137_of_two_that_approve_at_once_one_is_stored_and_both_get_the_task(core: Core) -> None:
    _, tools = setup(core, G, asks("r1", PAY), says("done", "r2"))
    task = await start(core)
    both = await asyncio.gather(*(reply(core, task.id, yes(one(task))) for _ in range(3)))
    assert {done.status.state for done in both} == {TaskState.COMPLETED}
    assert (tools.ran, len(core.ledger.stored(Decide))) == (["pay"], 1)
    settled(core)


async def test_137_of_a_yes_and_a_no_at_once_one_wins(core: Core) -> None:
    _, tools = setup(core, G, asks("r1", PAY), says("done", "r2"))
    task = await start(core)
    ways = await asyncio.gather(
        reply(core, task.id, yes(one(task))), reply(core, task.id, no(one(task))), return_exceptions=True
    )
    refused = [way for way in ways if isinstance(way, Exception)]
    assert len(refused) == 1
    assert isinstance(refused[0], InvalidParams | UnsupportedOperation)
    assert len(core.ledger.stored(Decide)) == 1
    assert tools.ran == (["pay"] if isinstance(ways[1], Exception) else [])
    settled(core)


@pytest.mark.parametrize("first", ["approve", "cancel"])
async def test_137_of_an_approval_and_a_cancel_at_once_one_wins(core: Core, first: str) -> None:
    _, tools = setup(core, G, asks("r1", PAY), says("done", "r2"))
    task = await start(core)
    ways = [partial(reply, core, task.id, yes(one(task))), partial(core.cancel, task.id)]
    await asyncio.gather(*(way() for way in (ways if first == "approve" else ways[::-1])), return_exceptions=True)
    await soon(core.runner.idle())
    state = (await core.get(task.id)).status.state
    assert state in (TaskState.CANCELED, TaskState.COMPLETED)
    assert len([point for point in core.ledger.stored(Finish) if point.state is not None]) == 1
    assert (state is TaskState.COMPLETED) <= (tools.ran == ["pay"])
    settled(core)


# --- golden traces


@dataclass(frozen=True)
class Row:
    name: str
    answered: Any
    upstream: dict[str, Sent]
    policies: dict[str, Any] = field(default_factory=dict)
    tools: dict[str, Answer] = field(default_factory=dict)


_CALLED = ["U 1", "C c1 look", "C c2 pay"]
ROWS = [
    Row(
        "safe C1 and gated C2, approved",
        yes,
        {
            "G": [(None, ["U 1"]), (None, [*_CALLED, "O c1 seen", "O c2 paid"])],
            "BR": [(None, ["U 1"]), ("r1", ["O c1 seen", "O c2 paid"])],
            "BS": [(None, ["U 1"]), ("c", ["O c1 seen", "O c2 paid"])],
        },
    ),
    Row(
        "safe C1 and gated C2, rejected",
        no,
        {
            "G": [(None, ["U 1"]), (None, [*_CALLED, "O c1 seen", f"O c2 {REJECTED}"])],
            "BR": [(None, ["U 1"]), ("r1", ["O c1 seen", f"O c2 {REJECTED}"])],
            "BS": [(None, ["U 1"]), ("c", ["O c1 seen", f"O c2 {REJECTED}"])],
        },
    ),
    Row(
        "safe C1 and gated C2, abandoned",
        lambda _: "2",
        {
            "G": [(None, ["U 1"]), (None, ["U 1", "C c1 look", "O c1 seen", "U 2"])],
            "BR": [(None, ["U 1"]), ("r1", ["O c1 seen", f"O c2 {NOT_RUN}", "U 2"])],
            "BS": [(None, ["U 1"]), ("c", ["O c1 seen", f"O c2 {NOT_RUN}", "U 2"])],
        },
    ),
]
CELLS = [(row, owner) for row in ROWS for owner in row.upstream]


@pytest.mark.parametrize(("row", "owner"), CELLS, ids=[f"{row.name} - {owner}" for row, owner in CELLS])
@BOTH_WAYS
async def test_what_is_sent_upstream_follows_from_what_was_answered(
    core: Core, row: Row, owner: str, streaming: bool
) -> None:
    adapter, _ = setup(core, OWNERS[owner], asks("r1", SAFE, PAY), says("done", "r2"))
    task = await start(core, streaming=streaming)
    done = await reply(core, task.id, row.answered(one(task)), streaming=streaming)
    assert adapter.sent == row.upstream[owner]
    assert done.status.state is TaskState.COMPLETED


@pytest.mark.parametrize("ticks", range(6))
@ALL
async def test_137_of_cancel_and_a_turn_that_goes_on_exactly_one_wins(
    core: Core, ownership: Ownership, ticks: int
) -> None:
    _, tools = setup(core, ownership, asks("r1", call("c1", "pay")), says("paid", "r2"), says("next", "r3"))
    waits = await start(core)
    await soon(core.operations.send_message(core.call(), request(waits.id, yes(one(waits)), at_once=True)))
    for _ in range(ticks):
        await asyncio.sleep(0)
    with suppress(TaskNotCancelable):
        await soon(core.cancel(waits.id))
    await soon(core.runner.idle())
    assert (await core.get(waits.id)).status.state in (TaskState.CANCELED, TaskState.COMPLETED)
    [(_, outcome)] = outcomes(core)
    # The stored start of the call decides what a cancellation makes of it.
    started = {("interrupted", 0), ("interrupted", 1), ("completed", 1)}
    assert (outcome, len(tools.ran)) in (started if core.ledger.stored(ToolStarts) else {("cancelled", 0)})
    settled(core)


@ALL
async def test_137_a_cancel_while_the_start_of_a_tool_is_being_stored_interrupts_the_call_and_runs_nothing(
    core: Core, ownership: Ownership
) -> None:
    _, tools = setup(core, ownership, asks("r1", call("c1", "pay")))
    waits = await start(core)
    starting = core.ledger.hold(ToolStarts)
    await soon(core.operations.send_message(core.call(), request(waits.id, yes(one(waits)), at_once=True)))
    await soon(starting.reached.wait())
    async with asyncio.TaskGroup() as group:
        group.create_task(core.cancel(waits.id))
        await asyncio.sleep(0)
        core.ledger.let_go()
    assert (outcomes(core), tools.ran) == ([("pay", "interrupted")], [])
    settled(core)


@ALL
async def test_137_a_cancel_while_a_tool_runs_interrupts_the_call(core: Core, ownership: Ownership) -> None:
    running = Pause()
    tools = ScriptedTools({"pay": running})
    core.agent(adapter_of(ownership, asks("r1", call("c1", "pay"))), toolset=tools, approvals=GATED)
    waits = await start(core)
    await soon(core.operations.send_message(core.call(), request(waits.id, yes(one(waits)), at_once=True)))
    await soon(running.reached.wait())
    await soon(core.cancel(waits.id))
    assert (outcomes(core), tools.ran) == ([("pay", "interrupted")], ["pay"])
    settled(core)
