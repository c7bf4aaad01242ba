"""What a backend refuses for its content costs one answer, and never the conversation. Source: docs/state-model.md, scenario
46b; its golden traces are rows of `test_golden_traces.py` and `test_tool_loop.py`."""

import json
from pathlib import Path

import pytest

from gateway.a2a.limits import Limits
from gateway.a2a.model import Task, TaskState
from gateway.core.agents import Agents
from gateway.ledger.calls import Complete, MarkRefused
from gateway.ledger.documents import Adopt
from gateway.ledger.tasks import Finish
from gateway.ledger.threads import Caller, ThreadRecord
from gateway.ledger.turns import Accept
from gateway.operations.contexts import ContextTransfer
from gateway.ports.adapter import AdapterError, ErrorClass, TextDelta
from gateway.ports.conversation import REFUSED_OUTPUT, HandleKind, OutputItem, Ownership, StorageOwner
from tests.invariants import violations
from tests.scenarios.test_approvals import CAMERA, GATED, PAY, one, open_calls, reply, result, start, yes
from tests.scenarios.test_golden_traces import refused, rejected
from tests.scenarios.test_questions_of_backends import ASKS
from tests.scenarios.test_tool_loop import ALL, BOTH_WAYS, C1, C2, adapter_of, asks, call, say
from tests.support.core import START, Core, error_class, query, running_core, soon
from tests.support.scripted import BR, BS, G, Pause, ScriptedAdapter, says
from tests.support.scripted_tools import ScriptedTools

ROTATING = pytest.mark.parametrize("ownership", [G, BR], ids=["G", "BR"])
TEXTS = {
    ErrorClass.REJECTED: "its content was not accepted",
    ErrorClass.OVERFLOW: "with it, the conversation is too long",
    ErrorClass.POLICY: "its content is against the policy of the backend",
}
LATER = START + 6000


def text_of(task: Task) -> str:
    assert task.status.state is TaskState.FAILED
    assert task.status.message is not None
    return task.status.message.parts[0].text or ""


def users(core: Core) -> list[tuple[int, int]]:
    """Of each message: whether a call refused it, and whether it may go out again."""
    sql = "SELECT refused_in IS NOT NULL, replayable FROM history_item WHERE kind = 'user' ORDER BY position"
    return query(core.path, sql)


@BOTH_WAYS
@pytest.mark.parametrize("kind", TEXTS)
async def test_46b_a_refused_message_is_told_as_such(core: Core, kind: ErrorClass, streaming: bool) -> None:
    core.agent(adapter_of(G, refused(kind)))
    task = await say(core, "1", streaming=streaming)
    assert text_of(task).startswith(f"The agent's backend refused this message: {TEXTS[kind]}.")
    assert (error_class(task), task.metadata) == (kind, {"refused": "message"})


@BOTH_WAYS
async def test_46b_a_refused_tool_result_is_told_as_such(core: Core, streaming: bool) -> None:
    core.agent(adapter_of(BR, asks("r1", C1), refused()), toolset=ScriptedTools({"one": "O"}))
    task = await say(core, "1", streaming=streaming)
    assert text_of(task).startswith("The agent's backend refused the result of a tool: its content was not accepted.")
    assert task.metadata == {"refused": "tool-result"}


@ALL
@pytest.mark.parametrize("kind", [ErrorClass.UNAUTHORISED, ErrorClass.NOT_SERVED, ErrorClass.STORAGE_DISABLED])
async def test_46b_what_is_the_fault_of_the_settings_goes_out_again(
    core: Core, ownership: Ownership, kind: ErrorClass
) -> None:
    adapter = adapter_of(ownership, refused(kind), says("A2", "r2"))
    core.agent(adapter)
    task = await core.send("1", context="c")
    await core.send("2", context="c")
    assert (adapter.sent[1], task.metadata) == ((None, ["U 1", "U 2"]), None)


@ALL
async def test_46b_messages_that_wait_behind_a_refused_one_go_without_it(core: Core, ownership: Ownership) -> None:
    pause = Pause()
    adapter = ScriptedAdapter(ownership, [pause, *refused()], says("A2", "c"), says("A3", "c"))
    core.agent(adapter)
    tasks = [await core.send(text, context="c", at_once=True) for text in "123"]
    pause.go.set()
    await soon(core.runner.idle())
    assert [(await core.get(task.id)).status.state.name for task in tasks] == ["FAILED", "COMPLETED", "COMPLETED"]
    assert [items[-1] for _, items in adapter.sent] == ["U 1", "U 2", "U 3"]
    assert "U 1" not in [item for _, items in adapter.sent[1:] for item in items]


@ROTATING
async def test_46b_tries_before_the_refusal_change_nothing(core: Core, ownership: Ownership) -> None:
    busy = [AdapterError(ErrorClass.RATE_LIMITED, "429")]
    adapter = adapter_of(ownership, busy, refused(), says("A2", "r2"))
    core.agent(adapter)
    await core.send("1", context="c")
    await core.send("2", context="c")
    assert adapter.sent == [(None, ["U 1"]), (None, ["U 1"]), (None, ["U 2"])]


@ROTATING
async def test_46b_a_refusal_in_the_middle_of_the_answer_is_one(core: Core, ownership: Ownership) -> None:
    adapter = adapter_of(ownership, rejected(), [TextDelta("par"), *refused(ErrorClass.POLICY)], says("A3", "r3"))
    core.agent(adapter)
    for text in "123":
        await core.send(text, context="c")
    assert adapter.sent[1:] == [(None, ["U 1", "U 2"]), (None, ["U 3"])]


@ALL
async def test_46b_every_message_may_be_refused_and_the_next_one_is_answered(core: Core, ownership: Ownership) -> None:
    adapter = adapter_of(ownership, says("A0", "r0"), *[refused()] * 5, says("A6", "r6"))
    core.agent(adapter)
    states = [(await core.send(str(number), context="c")).status.state.name for number in range(7)]
    assert states == ["COMPLETED", *["FAILED"] * 5, "COMPLETED"]
    assert [len(items) for _, items in adapter.sent][1:] == [3 if ownership is G else 1] * 6
    assert violations(core.path) == []


@ROTATING
async def test_46b_of_messages_that_never_arrived_only_the_one_that_is_refused_is_left_out(
    core: Core, ownership: Ownership
) -> None:
    scripts = [rejected(), rejected(), refused(), refused(), says("A3", "r3"), says("A4", "r4")]
    adapter = adapter_of(ownership, *scripts)
    core.agent(adapter)
    for text in "1234":
        await core.send(text, context="c")
    assert adapter.sent[2:5] == [(None, ["U 1", "U 2", "U 3"]), (None, ["U 2", "U 3"]), (None, ["U 3"])]
    fourth = (None, ["U 1", "U 3", "A A3", "U 4"]) if ownership is G else ("r3", ["U 1", "U 4"])
    assert adapter.sent[5] == fourth
    assert users(core) == [(0, 1), (1, 0), (0, 1), (0, 1)]
    assert violations(core.path) == []


@ROTATING
async def test_46b_the_outcome_of_a_tool_is_the_last_that_is_doubted(core: Core, ownership: Ownership) -> None:
    scripts = [asks("r1", C1), rejected(), rejected(), refused(), says("A3", "r3"), says("A4", "r4")]
    adapter = adapter_of(ownership, *scripts)
    core.agent(adapter, toolset=ScriptedTools({"one": "O"}))
    for text in "1234":
        await core.send(text, context="c")
    before = ["U 1", "C c1 one", "O c1 O"] if ownership is G else ["O c1 O"]
    assert [items for _, items in adapter.sent[3:5]] == [[*before, "U 2", "U 3"], [*before, "U 3"]]
    assert users(core) == [(0, 1), (1, 0), (0, 1), (0, 1)]


# --- the process dies ---


@ALL
async def test_46b_the_next_process_knows_what_was_refused(tmp_path: Path, ownership: Ownership) -> None:
    path = tmp_path / "ledger.db"
    async with running_core(path, prefix="one") as one_:
        one_.agent(adapter_of(ownership, refused()))
        await one_.send("1", context="c")
    async with running_core(path, prefix="two", now=LATER) as two:
        adapter = adapter_of(ownership, says("A2", "r2"))
        two.agent(adapter)
        await two.send("2", context="c")
    assert adapter.sent == [(None, ["U 2"])]


@ALL
async def test_46b_the_mark_is_stored_with_the_end_of_the_turn(core: Core, ownership: Ownership) -> None:
    core.agent(adapter_of(ownership, refused()))
    await core.send("1", context="c")
    [unit] = [unit for unit in core.ledger.units if any(isinstance(point, MarkRefused) for point in unit)]
    assert any(isinstance(point, Finish) for point in unit)


@ROTATING
async def test_46b_a_process_that_dies_before_it_has_stored_the_refusal_wedges_nothing(
    tmp_path: Path, ownership: Ownership
) -> None:
    path = tmp_path / "ledger.db"
    async with running_core(path, prefix="one") as one_:
        one_.agent(adapter_of(ownership, says("A0", "r0"), refused()))
        await one_.send("0", context="c")
        lost = one_.ledger.refuse(MarkRefused)
        await one_.send("1", context="c", at_once=True)
        await soon(lost.wait())
    async with running_core(path, prefix="two", now=LATER) as two:
        adapter = adapter_of(ownership, refused(), says("A2", "r2"))
        two.agent(adapter)
        task = await two.send("2", context="c")
    assert task.status.state is TaskState.COMPLETED
    assert adapter.sent[0][1][-2:] == ["U 1", "U 2"]
    assert adapter.sent[1][1][-1] == "U 2"
    assert "U 1" not in adapter.sent[1][1]
    assert violations(path) == []


async def test_46b_what_is_only_in_doubt_is_refused_with_the_answer_that_shows_it(core: Core) -> None:
    core.agent(adapter_of(BR, rejected(), refused(), says("A2", "r2")))
    for text in "12":
        await core.send(text, context="c")
    [unit] = [unit for unit in core.ledger.units if any(isinstance(point, MarkRefused) for point in unit)]
    assert [type(point) for point in unit if isinstance(point, MarkRefused | Complete)] == [MarkRefused, Complete]


# --- tools, decisions, results of clients ---


@ALL
async def test_46b_all_outcomes_of_a_refused_round_are_replaced(core: Core, ownership: Ownership) -> None:
    adapter = adapter_of(ownership, asks("r1", C1, C2), refused(), says("A2", "r2"))
    core.agent(adapter, toolset=ScriptedTools({"one": "O", "two": "P"}))
    for text in "12":
        await core.send(text, context="c")
    assert adapter.sent[2][1][-3:] == [f"O c1 {REFUSED_OUTPUT}", f"O c2 {REFUSED_OUTPUT}", "U 2"]
    assert query(core.path, "SELECT outcome FROM tool_call ORDER BY sequence") == [('"O"',), ('"P"',)]


@ALL
async def test_46b_the_outcome_of_an_earlier_round_stays_as_it_is(core: Core, ownership: Ownership) -> None:
    adapter = adapter_of(ownership, asks("r1", C1), asks("r2", C2), refused(), says("A2", "r3"))
    core.agent(adapter, toolset=ScriptedTools({"one": "O", "two": "P"}))
    for text in "12":
        await core.send(text, context="c")
    last = [f"O c2 {REFUSED_OUTPUT}", "U 2"]
    expected = ["U 1", "C c1 one", "O c1 O", "C c2 two", *last] if ownership is G else last
    assert adapter.sent[3] == ({G: None, BR: "r2", BS: "c"}[ownership], expected)


@pytest.mark.parametrize("ownership", [BR, BS], ids=["BR", "BS"])
async def test_46b_a_refused_yes_to_a_question_of_the_backend_becomes_a_no(core: Core, ownership: Ownership) -> None:
    adapter = adapter_of(ownership, ASKS, refused(), says("A2", "r2"))
    core.agent(adapter)
    task = await start(core)
    assert text_of(await reply(core, task.id, yes(one(task)))).startswith("The agent's backend refused")
    await core.send("2", context="c")
    [decision] = [item for item in adapter.requests[2].items if isinstance(item, OutputItem)]
    assert (decision.call_id, decision.approved, decision.output) == ("q1", False, REFUSED_OUTPUT)


@ALL
async def test_46b_words_beside_a_decision_are_refused_with_the_outcome(core: Core, ownership: Ownership) -> None:
    adapter = adapter_of(ownership, asks("r1", PAY), refused(), says("A2", "r2"))
    core.agent(adapter, toolset=ScriptedTools({"pay": "paid"}), approvals=GATED)
    task = await start(core)
    await reply(core, task.id, yes(one(task)), "and be quick")
    assert adapter.sent[1][1][-2:] == ["O c2 paid", "U and be quick"]
    await core.send("2", context="c")
    assert adapter.sent[2][1][-2:] == [f"O c2 {REFUSED_OUTPUT}", "U 2"]
    assert "U and be quick" not in adapter.sent[2][1]


@ALL
async def test_46b_a_refused_result_of_a_client_is_replaced(core: Core, ownership: Ownership) -> None:
    camera = CAMERA.name
    adapter = adapter_of(ownership, asks("r1", call("c9", camera)), refused(), says("A2", "r2"))
    core.agent(adapter, client_tools=(CAMERA,))
    task = await start(core)
    await reply(core, task.id, result(open_calls(task)[camera], "x" * 100))
    await core.send("2", context="c")
    assert adapter.sent[2][1][-2:] == [f"O c9 {REFUSED_OUTPUT}", "U 2"]


# --- windows, documents, adopted conversations ---


async def test_46b_a_refused_message_takes_no_place_in_a_window(core: Core) -> None:
    adapter = adapter_of(G, says("A0"), refused(ErrorClass.OVERFLOW), says("A2"))
    core.agent(adapter, history_tokens=100)
    for text in ("0", "x" * 10_000, "2"):
        await core.send(text, context="c")
    assert adapter.sent[2] == (None, ["U 0", "A A0", "U 2"])


async def test_46b_a_refused_outcome_takes_the_place_of_its_replacement_in_a_window(core: Core) -> None:
    adapter = adapter_of(G, says("A0"), asks("", C1), refused(ErrorClass.OVERFLOW), says("A2"))
    core.agent(adapter, history_tokens=200, toolset=ScriptedTools({"one": "x" * 10_000}))
    for text in "012":
        await core.send(text, context="c")
    assert adapter.sent[3] == (None, ["U 0", "A A0", "U 1", "C c1 one", f"O c1 {REFUSED_OUTPUT}", "U 2"])


@ALL
async def test_46b_an_export_tells_it_and_an_import_keeps_it(tmp_path: Path, ownership: Ownership) -> None:
    async with running_core(tmp_path / "one.db", prefix="one") as one_:
        one_.agent(adapter_of(ownership, asks("r1", C1), refused()), toolset=ScriptedTools({"one": "O"}))
        await one_.send("1", context="c")
        document = await ContextTransfer(one_.ledger, one_.time.clock).export(Caller("ada"), "c")
    assert document.count(b'"refusedIn"') == 1
    async with running_core(tmp_path / "two.db", prefix="two") as two:
        adapter = adapter_of(ownership, says("A2", "r2"))
        two.agent(adapter)
        transfer = ContextTransfer(two.ledger, two.time.clock)
        await transfer.import_document(Caller("ada"), Agents(tuple(two.agents)), json.loads(document), Limits())
        await two.send("2", context="c")
    assert adapter.sent[0][1][-2:] == [f"O c1 {REFUSED_OUTPUT}", "U 2"]


async def test_46b_a_refused_message_to_an_adopted_conversation_leaves_it_where_it_is(core: Core) -> None:
    adapter = adapter_of(BR, refused(), says("A2", "r2"))
    core.agent(adapter)
    rotating = (StorageOwner.BACKEND, HandleKind.ROTATING)
    thread = ThreadRecord("t", "x", "echo", 1, *rotating, "r0", 0, None)
    await core.ledger.commit(Adopt(Caller("ada"), "c", thread, START))
    for text in "12":
        await core.send(text, context="c")
    assert adapter.sent == [("r0", ["U 1"]), ("r0", ["U 2"])]


async def test_46b_a_repeat_under_its_key_gets_the_refused_task(core: Core) -> None:
    adapter = adapter_of(G, refused())
    core.agent(adapter)
    first = await core.send("1", core.call(key="k"), context="c")
    assert await core.send("1", core.call(key="k"), context="c") == first
    assert (len(adapter.requests), len(core.ledger.stored(Accept))) == (1, 1)
