"""What a backend refuses for its content costs one answer, and never the conversation. Source: docs/state-model.md, scenario
46b; its golden traces are rows of `test_golden_traces.py` and `test_tool_loop.py`."""

import json
from dataclasses import dataclass
from pathlib import Path

import pytest
from msgspec.structs import replace

from gateway.a2a.limits import Limits
from gateway.a2a.model import Part, SendMessageRequest, Task, TaskState
from gateway.core.agents import Agents
from gateway.ledger.calls import Complete, MarkRefused
from gateway.ledger.documents import Adopt
from gateway.ledger.tasks import Finish
from gateway.ledger.threads import Caller, ThreadRecord
from gateway.ledger.turns import Accept
from gateway.operations.contexts import ContextTransfer
from gateway.ports.adapter import AdapterError, ErrorClass, ServiceRequest, TextDelta
from gateway.ports.conversation import REFUSED_OUTPUT, HandleKind, OutputItem, Ownership, StorageOwner
from tests.invariants import violations
from tests.scenarios.test_approvals import CAMERA, GATED, PAY, one, open_calls, reply, result, start, yes
from tests.scenarios.test_golden_traces import refused, rejected
from tests.scenarios.test_questions_of_backends import ASKS
from tests.scenarios.test_tool_loop import ALL, BOTH_WAYS, C1, C2, adapter_of, asks, call, say
from tests.support.core import START, Core, error_class, message, query, running_core, soon
from tests.support.scripted import BR, BS, G, Pause, Script, ScriptedAdapter, in_words, says
from tests.support.scripted_tools import ScriptedTools

ROTATING = pytest.mark.parametrize("ownership", [G, BR], ids=["G", "BR"])
TEXTS = {
    ErrorClass.REJECTED: "The agent's backend refused this message: its content was not accepted.",
    ErrorClass.OVERFLOW: "The agent's backend refused this message: with it, the conversation is too long.",
    ErrorClass.POLICY: "The agent's backend refused this message: its content is against the policy of the backend.",
    ErrorClass.UNSENDABLE: "The gateway did not send this message: the agent's backend cannot take its content.",
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
    assert text_of(task).startswith(TEXTS[kind])
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
    # From the second on, each is also tried without what the gateway's conversation holds.
    lengths = [3, *[3, 1] * 4, 3] if ownership is G else [1] * 6
    adapter = adapter_of(ownership, says("A0", "r0"), *[refused()] * (len(lengths) - 1), says("A6", "r6"))
    core.agent(adapter)
    ends = [(await core.send(str(number), context="c")).status.state.name for number in range(7)]
    assert ends == ["COMPLETED", *["FAILED"] * 5, "COMPLETED"]
    assert [len(items) for _, items in adapter.sent][1:] == lengths
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


async def test_46b_a_conversation_that_takes_no_outcome_of_a_call_in_any_form_goes_on_without_it(core: Core) -> None:
    """It may not have the call: a service keeps what it likes of an answer that is not whole."""
    adapter = adapter_of(BS, asks("c", C1), refused(), refused(), says("A2", "c"), says("A3", "c"))
    core.agent(adapter, toolset=ScriptedTools({"one": "O"}))
    tasks = [await core.send(text, context="c") for text in "123"]
    assert [task.status.state for task in tasks] == [TaskState.FAILED, TaskState.COMPLETED, TaskState.COMPLETED]
    assert adapter.sent[2:] == [("c", [f"O c1 {REFUSED_OUTPUT}", "U 2"]), ("c", ["U 2"]), ("c", ["U 3"])]
    assert query(core.path, "SELECT outcome FROM tool_call") == [('"O"',)]


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
    failed = await reply(core, task.id, yes(one(task)), "and be quick")
    assert adapter.sent[1][1][-2:] == ["O c2 paid", "U and be quick"]
    assert text_of(failed).startswith("The agent's backend refused the result of a tool and the message beside it: ")
    assert "Both are left out of the conversation from now on." in text_of(failed)
    for told in (failed, await core.get(task.id), (await core.list()).tasks[0]):
        assert told.metadata == {"refused": "tool-result-and-message"}
    await core.send("2", context="c")
    assert adapter.sent[2][1][-2:] == [f"O c2 {REFUSED_OUTPUT}", "U 2"]
    assert "U and be quick" not in adapter.sent[2][1]


async def test_46b_words_beside_an_outcome_that_are_refused_with_a_later_message_are_told_as_such(core: Core) -> None:
    down: Script = [AdapterError(ErrorClass.UNAUTHORISED, "401")]
    adapter = adapter_of(BR, asks("r1", PAY), down, refused(), says("A2", "r2"))
    core.agent(adapter, toolset=ScriptedTools({"pay": "paid"}), approvals=GATED)
    task = await start(core)
    assert (await reply(core, task.id, yes(one(task)), "and be quick")).metadata is None
    assert (await core.send("2", context="c")).status.state is TaskState.COMPLETED
    assert (await core.get(task.id)).metadata == {"refused": "tool-result-and-message"}


@ALL
async def test_46b_a_refused_result_of_a_client_is_replaced(core: Core, ownership: Ownership) -> None:
    camera = CAMERA.name
    adapter = adapter_of(ownership, asks("r1", call("c9", camera)), refused(), says("A2", "r2"))
    core.agent(adapter, client_tools=(CAMERA,))
    task = await start(core)
    await reply(core, task.id, result(open_calls(task)[camera], "x" * 100))
    await core.send("2", context="c")
    assert adapter.sent[2][1][-2:] == [f"O c9 {REFUSED_OUTPUT}", "U 2"]


# --- what the backend had accepted before ---


@dataclass
class Censor:
    """A backend that takes no request with one of these `words` in it, or with a file if it takes no `files`."""

    words: tuple[str, ...] = ()
    files: bool = True
    kind: ErrorClass = ErrorClass.REJECTED
    refused: int = 0

    def __call__(self, request: ServiceRequest) -> Script:
        told = [in_words(item) for item in request.items]
        if any(word in text for word in self.words for text in told) or (
            not self.files and any(text.endswith("?") for text in told)
        ):
            self.refused += 1
            return [AdapterError(self.kind, "400")]
        return says(f"to {told[-1].removeprefix('U ')}")

    def adapter(self, *calls: Script) -> ScriptedAdapter:
        return ScriptedAdapter(G, *calls, otherwise=self)


async def states(core: Core, *texts: str) -> list[str]:
    return [(await core.send(text, context="c")).status.state.name for text in texts]


def carried(adapter: ScriptedAdapter) -> list[str]:
    """The messages of the caller in the last request."""
    return [text.removeprefix("U ") for text in adapter.sent[-1][1] if text.startswith("U ")]


@pytest.mark.parametrize("kind", [ErrorClass.REJECTED, ErrorClass.POLICY])
async def test_46b_an_answer_that_is_refused_later_costs_one_answer(core: Core, kind: ErrorClass) -> None:
    censor = Censor(kind=kind)
    adapter = censor.adapter(says("A0"), says("I say X"))
    core.agent(adapter)
    assert await states(core, "0", "1") == ["COMPLETED"] * 2
    censor.words = ("X",)
    assert await states(core, "2", "3", "4") == ["FAILED", "COMPLETED", "COMPLETED"]
    assert adapter.sent[-1] == (None, ["U 0", "A A0", "U 3", "A to 3", "U 4"])
    assert censor.refused == 2
    assert violations(core.path) == []


async def test_46b_what_is_no_text_and_is_refused_later_costs_one_answer_and_is_looked_for_first(core: Core) -> None:
    censor = Censor()
    adapter = censor.adapter()
    core.agent(adapter)
    see = message("see", context="c")
    data = Part(data={"png": "x"})
    await core.operations.send_message(core.call(), SendMessageRequest(message=replace(see, parts=(*see.parts, data))))
    await states(core, "1", "2")
    censor.files = False
    assert await states(core, "3", "4", "5") == ["FAILED", "COMPLETED", "COMPLETED"]
    assert carried(adapter) == ["1", "2", "4", "5"]
    assert censor.refused == 2


async def test_46b_an_outcome_that_is_refused_later_costs_one_answer(core: Core) -> None:
    censor = Censor()
    adapter = censor.adapter(says("A0"), asks("", C1))
    core.agent(adapter, toolset=ScriptedTools({"one": "X"}))
    await states(core, "0", "1")
    censor.words = ("X",)
    assert await states(core, "2", "3", "4") == ["FAILED", "COMPLETED", "COMPLETED"]
    assert adapter.sent[-1] == (None, ["U 0", "A A0", "U 3", "A to 3", "U 4"])
    assert violations(core.path) == []


async def test_46b_of_several_earlier_turns_each_that_is_refused_later_is_found(core: Core) -> None:
    censor = Censor()
    adapter = censor.adapter()
    core.agent(adapter)
    await states(core, "a X", "b", "c Y", "d")
    censor.words = ("X", "Y")
    assert await states(core, "5", "6", "7", "8") == ["FAILED", "COMPLETED", "COMPLETED", "COMPLETED"]
    assert carried(adapter) == ["b", "d", "6", "7", "8"]


async def test_46b_of_a_long_conversation_what_was_left_out_with_the_refused_turn_comes_back(core: Core) -> None:
    censor = Censor()
    adapter = censor.adapter()
    core.agent(adapter)
    await states(core, "0 X", *[str(number) for number in range(1, 20)])
    censor.words = ("X",)
    assert await states(core, "20", "21") == ["FAILED", "COMPLETED"]
    assert carried(adapter) == ["16", "17", "18", "19", "21"][4:]
    before = censor.refused
    assert set(await states(core, *[str(number) for number in range(22, 32)])) == {"COMPLETED"}
    assert carried(adapter) == [str(number) for number in range(1, 32) if number != 20]
    assert censor.refused - before <= 10
    assert violations(core.path) == []


async def test_46b_a_message_that_is_refused_costs_no_more_requests_than_one_before_it_is_known_to_be_stuck(
    core: Core,
) -> None:
    censor = Censor(("X",))
    adapter = censor.adapter()
    core.agent(adapter)
    await states(core, "0", "1")
    assert await states(core, "2 X") == ["FAILED"]
    assert (censor.refused, len(adapter.requests)) == (1, 3)


@pytest.mark.parametrize("before", [0, 1, 5, 30])
async def test_46b_messages_that_are_refused_in_a_row_are_tried_seven_times_at_most_and_take_nothing_along(
    core: Core, before: int
) -> None:
    censor = Censor(("X",))
    adapter = censor.adapter()
    core.agent(adapter)
    said = [str(number) for number in range(before)]
    await states(core, *said)
    for text in ("X a", "X b", "X c"):
        refused_before = censor.refused
        assert await states(core, text) == ["FAILED"]
        assert censor.refused - refused_before <= 7
    assert await states(core, "last") == ["COMPLETED"]
    assert carried(adapter) == [*said, "last"]


async def test_46b_messages_that_never_arrived_and_a_later_refusal_of_an_answer_leave_the_conversation_usable(
    core: Core,
) -> None:
    censor = Censor()
    adapter = censor.adapter(says("A0"), says("I say X"), *[rejected()] * 6)
    core.agent(adapter)
    await states(core, "0", "1", *"abcdef")
    censor.words = ("X",)
    assert await states(core, "2", "3", "4", "5") == ["FAILED", "COMPLETED", "COMPLETED", "COMPLETED"]
    assert carried(adapter) == ["0", *"abcdef", "3", "4", "5"]
    assert violations(core.path) == []


async def test_46b_an_outcome_that_was_replaced_stays_so_in_a_turn_that_is_left_out_and_comes_back(core: Core) -> None:
    censor = Censor(("X",))
    adapter = censor.adapter(says("A0"), asks("", C1))
    core.agent(adapter, toolset=ScriptedTools({"one": "X"}))
    assert await states(core, "0", "1", *"2345", "6 Y") == ["COMPLETED", "FAILED", *["COMPLETED"] * 5]
    censor.words = ("X", "Y")
    before = ["U 1", "C c1 one", f"O c1 {REFUSED_OUTPUT}", "U 2"]
    await states(core, *"78")
    censor.words = ("X", "A0")
    await states(core, *[str(number) for number in range(9, 20)])
    assert adapter.sent[-1][1][:4] == before
    assert violations(core.path) == []


async def test_46b_a_conversation_that_is_too_long_loses_nothing_by_itself(core: Core) -> None:
    censor = Censor(kind=ErrorClass.OVERFLOW)
    adapter = censor.adapter(says("A0"), says("X"))
    core.agent(adapter)
    await states(core, "0", "1")
    censor.words = ("X",)
    assert await states(core, "2", "3") == ["FAILED"] * 2
    censor.words = ()
    assert await states(core, "4") == ["COMPLETED"]
    assert carried(adapter) == ["0", "1", "4"]


async def test_46b_only_what_the_window_takes_is_doubted(core: Core) -> None:
    censor = Censor()
    adapter = censor.adapter()
    core.agent(adapter, history_messages=5)
    await states(core, *[str(number) for number in range(8)], "X")
    censor.words = ("X",)
    assert await states(core, "9", "10") == ["FAILED", "COMPLETED"]
    assert query(
        core.path, "SELECT count(*) FROM history_item WHERE refused_in IS NOT NULL AND sent_in IS NOT NULL"
    ) == [(2,)]


async def test_46b_the_next_process_gives_back_what_was_left_out_together(tmp_path: Path) -> None:
    path, censor = tmp_path / "ledger.db", Censor()
    async with running_core(path, prefix="one") as one_:
        one_.agent(censor.adapter())
        await states(one_, "0 X", *"1234567")
        censor.words = ("X",)
        await states(one_, "8", "9")
        document = await ContextTransfer(one_.ledger, one_.time.clock).export(Caller("ada"), "c")
    async with running_core(path, prefix="two", now=LATER) as two:
        adapter = censor.adapter()
        two.agent(adapter)
        assert set(await states(two, *"abcd")) == {"COMPLETED"}
        assert carried(adapter) == [*"1234567", "9", *"abcd"]
    async with running_core(tmp_path / "three.db", prefix="three") as three:
        adapter = censor.adapter()
        three.agent(adapter)
        transfer = ContextTransfer(three.ledger, three.time.clock)
        await transfer.import_document(Caller("ada"), Agents(tuple(three.agents)), json.loads(document), Limits())
        assert set(await states(three, *"abcd")) == {"COMPLETED"}
        assert carried(adapter) == [*"1234567", "9", *"abcd"]
    assert violations(path) == []


# --- what a task says of it ---


@ROTATING
async def test_46b_a_task_whose_message_is_refused_with_a_later_one_says_so(core: Core, ownership: Ownership) -> None:
    core.agent(adapter_of(ownership, rejected(), rejected(), refused(), says("A3", "r3"), says("A4", "r4")))
    tasks = [await core.send(text, context="c") for text in "1234"]
    again = [await core.get(task.id) for task in tasks]
    assert [task.metadata for task in again] == [{"refused": "message"}, None, None, None]
    assert [task.status for task in again] == [task.status for task in tasks]
    assert [task.metadata for task in (await core.list()).tasks][::-1] == [task.metadata for task in again]


async def test_46b_a_task_whose_turn_was_accepted_and_is_refused_later_says_so_as_long_as_it_is_left_out(
    core: Core,
) -> None:
    censor = Censor()
    core.agent(censor.adapter())
    tasks = [await core.send(text, context="c") for text in ("0 X", *"123456")]
    censor.words = ("X",)
    await states(core, *"78")
    said = [(await core.get(task.id)).metadata for task in tasks]
    assert said == [*[{"refused": "turn"}] * 3, *[None] * 4]
    await states(core, *"abc")
    said = [(await core.get(task.id)).metadata for task in tasks]
    assert said == [{"refused": "turn"}, *[None] * 6]


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
