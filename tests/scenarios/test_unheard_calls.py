"""A service call of unknown outcome is looked up before the next request. Source: docs/state-model.md, scenario 51 and its
golden traces."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gateway.core.history import INTERRUPTED
from gateway.ledger.calls import Complete
from gateway.ports.adapter import AdapterError, CallCompleted, CallStarted, ErrorClass, TextDelta, ToolCallReady
from gateway.ports.capabilities import Fate, Fetched, Tail
from tests.invariants import violations
from tests.support.core import START, Core, query, running_core, soon
from tests.support.scripted import Pause, Script, ScriptedAdapter, in_words, says
from tests.support.unknown_calls import FetchingAdapter, TailAdapter

LATER = START + 6000
CUT = AdapterError(ErrorClass.INTERRUPTED, "cut")
LOST: Script = [TextDelta("par"), CUT]
NO_OUTPUT: Script = [AdapterError(ErrorClass.REJECTED, "No tool output found for function call c1.")]
LOCKED: Script = [AdapterError(ErrorClass.LOCKED, "locked")]
BUSY: Script = [AdapterError(ErrorClass.RATE_LIMITED, "429")]
NOTHING = Tail(0)
REFUSED = "O c1 This tool is not available."

Sent = list[tuple[str | None, list[str]]]


def cut(handle: str) -> Script:
    """The stream ends in the middle."""
    return [CallStarted(handle), *LOST]


def made(*script: Any) -> Script:
    """A first call in a conversation that it makes."""
    return [CallStarted("c"), *script]


def landed(held: int, text: str = "A2", handle: str = "c") -> Tail:
    return Tail(held, tuple(says(text, handle)))  # type: ignore[arg-type]


def whole(text: str, handle: str, *before: Any) -> Fetched:
    return Fetched(Fate.COMPLETED, (CallStarted(handle), *before, TextDelta(text), CallCompleted(handle)))


@dataclass(frozen=True)
class Row:
    """`script`: the output of each service call, `found`: what the backend reports of the one that broke off."""

    name: str
    script: list[Script]
    found: Sequence[Any]
    upstream: Sent
    tasks: str
    deleted: Sequence[str] = ()


CALLS: Script = [ToolCallReady("c1", "add", "{}"), CallCompleted("c")]

ROWS = [
    Row(
        "call 1 fails, new message, tail listed first: nothing is there",
        [made(*LOST), says("A2", "c"), says("A3", "c")],
        [NOTHING],
        [(None, ["U 1"]), ("c", ["U 1", "U 2"]), ("c", ["U 3"])],
        "FAILED COMPLETED COMPLETED",
    ),
    Row(
        "call 1 fails, new message, tail listed first: all of it is there",
        [made(*LOST), says("A2", "c"), says("A3", "c")],
        [landed(1, "A1")],
        [(None, ["U 1"]), ("c", ["U 2"]), ("c", ["U 3"])],
        "FAILED COMPLETED COMPLETED",
    ),
    Row(
        "call 2 fails, new message, tail listed first: nothing is there",
        [made(*says("A1", "c")), LOST, says("A3", "c"), says("A4", "c")],
        [NOTHING],
        [(None, ["U 1"]), ("c", ["U 2"]), ("c", ["U 2", "U 3"]), ("c", ["U 4"])],
        "COMPLETED FAILED COMPLETED COMPLETED",
    ),
    Row(
        "call 2 fails, new message, tail listed first: all of it is there",
        [made(*says("A1", "c")), LOST, says("A3", "c"), says("A4", "c")],
        [landed(1)],
        [(None, ["U 1"]), ("c", ["U 2"]), ("c", ["U 3"]), ("c", ["U 4"])],
        "COMPLETED FAILED COMPLETED COMPLETED",
    ),
    Row(
        "call 2 fails and lands behind the look at the tail, whose calls refuse the new message",
        [made(*says("A1", "c")), LOST, NO_OUTPUT, says("A3", "c"), says("A4", "c")],
        [NOTHING, Tail(1, (ToolCallReady("c1", "add", "{}"), CallCompleted("c")))],
        [
            (None, ["U 1"]),
            ("c", ["U 2"]),
            ("c", ["U 2", "U 3"]),
            ("c", ["O c1 This call was not run.", "U 3"]),
            ("c", ["U 4"]),
        ],
        "COMPLETED FAILED COMPLETED COMPLETED",
    ),
    Row(
        "call 2 fails, and is not there when the new message is refused: it is left out of the next request",
        [made(*says("A1", "c")), LOST, NO_OUTPUT, NO_OUTPUT, says("A3", "c"), says("A4", "c")],
        [NOTHING, NOTHING, NOTHING],
        [(None, ["U 1"]), ("c", ["U 2"]), ("c", ["U 2", "U 3"]), ("c", ["U 2", "U 3"]), ("c", ["U 3"]), ("c", ["U 4"])],
        "COMPLETED FAILED COMPLETED COMPLETED",
    ),
    Row(
        "call 2 of a tool round fails, new message, tail listed first: nothing is there",
        [made(*CALLS), LOST, says("A2", "c")],
        [NOTHING],
        [(None, ["U 1"]), ("c", [REFUSED]), ("c", [REFUSED, "U 2"])],
        "FAILED COMPLETED",
    ),
    Row(
        "call 2 of a tool round fails, new message, tail listed first: all of it is there",
        [made(*CALLS), LOST, says("A2", "c")],
        [landed(1)],
        [(None, ["U 1"]), ("c", [REFUSED]), ("c", ["U 2"])],
        "FAILED COMPLETED",
    ),
    Row(
        "stream of call 2 fails after created(r2), its response is complete",
        [says("A1", "r1"), cut("r2"), says("A3", "r3"), says("A4", "r4")],
        [whole("A2", "r2")],
        [(None, ["U 1"]), ("r1", ["U 2"]), ("r2", ["U 3"]), ("r3", ["U 4"])],
        "COMPLETED FAILED COMPLETED COMPLETED",
    ),
    *(
        Row(
            f"stream of call 2 fails after created(r2), its response is {fate}",
            [says("A1", "r1"), cut("r2"), says("A3", "r3"), says("A4", "r4")],
            [Fetched(fate)],
            [(None, ["U 1"]), ("r1", ["U 2"]), ("r1", ["U 2", "U 3"]), ("r3", ["U 4"])],
            "COMPLETED FAILED COMPLETED COMPLETED",
            ["r2"],
        )
        for fate in (Fate.RUNNING, Fate.FAILED, Fate.GONE)
    ),
]


def adapter_of(row: Row) -> ScriptedAdapter:
    if isinstance(row.found[0], Fetched):
        return FetchingAdapter(*row.script, found=row.found)
    return TailAdapter(*row.script, found=row.found)


def deletions(path: Path) -> list[str]:
    return [handle for (handle,) in query(path, "SELECT handle FROM delete_job ORDER BY handle")]


def state(path: Path) -> str:
    [(found,)] = query(path, "SELECT state FROM thread")
    return str(found)


async def said_in(core: Core) -> list[str]:
    [(thread,)] = query(core.path, "SELECT id FROM thread")
    return [
        in_words(record.item) for record in await core.ledger.history(thread, unsent_only=False) if record.replayable
    ]


@pytest.mark.parametrize("row", ROWS, ids=[row.name for row in ROWS])
async def test_51_what_is_sent_next_follows_from_what_the_backend_says_of_it(core: Core, row: Row) -> None:
    adapter = adapter_of(row)
    core.agent(adapter)
    tasks = row.tasks.split()
    states = [(await core.send(str(number + 1), context="x")).status.state.name for number in range(len(tasks))]
    assert adapter.sent == row.upstream
    assert states == tasks
    assert deletions(core.path) == list(row.deleted)
    assert state(core.path) == "open"
    assert violations(core.path) == []


@pytest.mark.parametrize(
    "row", [row for row in ROWS if row.tasks.startswith("COMPLETED FAILED")], ids=lambda row: row.name
)
async def test_51_a_crash_is_as_good_as_a_stream_that_was_cut(tmp_path: Path, row: Row) -> None:
    path = tmp_path / "ledger.db"
    dying = [step for step in row.script[1] if step is not CUT]
    pause = Pause()
    async with running_core(path, prefix="one") as one:
        one.agent(ScriptedAdapter(adapter_of(row).ownership, row.script[0], [*dying, pause]))
        await one.send("1", context="x")
        lost = await one.send("2", context="x", at_once=True)
        await soon(pause.reached.wait())
        await one.get(lost.id)
    async with running_core(path, prefix="two", now=LATER) as two:
        adapter = adapter_of(Row(row.name, row.script[2:], row.found, [], ""))
        two.agent(adapter)
        assert state(path) == "unsynced"
        states = [(await two.send(text, context="x")).status.state.name for text in "34"]
        assert (await two.get(lost.id)).status.state.name == "FAILED"
    assert states == ["COMPLETED", "COMPLETED"]
    assert adapter.sent == row.upstream[2:]
    assert deletions(path) == list(row.deleted)
    assert state(path) == "open"
    assert violations(path) == []


async def test_51_what_is_adopted_becomes_history_of_the_turn_that_failed(core: Core) -> None:
    core.agent(FetchingAdapter(says("A1", "r1"), cut("r2"), says("A3", "r3"), found=[whole("A2", "r2")]))
    tasks = [await core.send(text, context="x") for text in "123"]
    again = await core.get(tasks[1].id)
    assert again == tasks[1]
    assert again.status.state.name == "FAILED"
    assert await said_in(core) == ["U 1", "A A1", "U 2", "A A2", "U 3", "A A3"]
    assert query(core.path, "SELECT status, handle_in, handle_out FROM service_call ORDER BY id") == [
        ("completed", None, "r1"),
        ("completed", "r1", "r2"),
        ("completed", "r2", "r3"),
    ]


async def test_51_tool_calls_that_are_adopted_are_closed_as_not_run(core: Core) -> None:
    found = Fetched(Fate.COMPLETED, (CallStarted("r2"), ToolCallReady("c1", "pay", "{}"), CallCompleted("r2")))
    adapter = FetchingAdapter(says("A1", "r1"), cut("r2"), says("A3", "r3"), found=[found])
    core.agent(adapter)
    for text in "123":
        await core.send(text, context="x")
    assert adapter.sent[2] == ("r2", ["O c1 This call was not run.", "U 3"])
    assert query(core.path, "SELECT status FROM tool_call") == [("cancelled",)]
    assert violations(core.path) == []


async def test_51_with_per_turn_it_is_left_out_and_deleted(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    pause = Pause()
    async with running_core(path, prefix="one") as one:
        one.agent(
            FetchingAdapter(says("A1", "r1"), [CallStarted("r2"), TextDelta("par"), pause]), persistence="per_turn"
        )
        await one.send("1", context="x")
        lost = await one.send("2", context="x", at_once=True)
        await soon(pause.reached.wait())
        await one.get(lost.id)
    async with running_core(path, prefix="two", now=LATER) as two:
        adapter = FetchingAdapter(says("A3", "r3"), found=[whole("A2", "r2")])
        two.agent(adapter, persistence="per_turn")
        await two.send("3", context="x")
        assert adapter.sent == [("r1", ["U 3"])]
    assert deletions(path) == ["r2"]
    assert violations(path) == []


async def test_51_where_nobody_can_tell_the_conversation_goes_on_as_before(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    pause = Pause()
    async with running_core(path, prefix="one") as one:
        one.agent(FetchingAdapter([CallStarted("r1"), pause]))
        lost = await one.send("1", context="x", at_once=True)
        await soon(pause.reached.wait())
        await one.get(lost.id)
    async with running_core(path, prefix="two", now=LATER) as two:
        adapter = FetchingAdapter(says("A2", "r2"), found=[AdapterError(ErrorClass.REJECTED, "no such endpoint")])
        two.agent(adapter)
        await two.send("2", context="x")
        assert adapter.sent == [(None, ["U 1", "U 2"])]
    assert deletions(path) == ["r1"]


async def test_51_a_backend_that_is_away_fails_the_turn_and_is_asked_again_by_the_next_one(core: Core) -> None:
    away = [AdapterError(ErrorClass.UNREACHABLE, "refused")] * 3
    adapter = FetchingAdapter(says("A1", "r1"), cut("r2"), says("A4", "r3"), found=[*away, whole("A2", "r2")])
    core.agent(adapter)
    states = [(await core.send(text, context="x")).status.state.name for text in "1234"]
    assert states == ["COMPLETED", "FAILED", "FAILED", "COMPLETED"]
    assert adapter.sent == [(None, ["U 1"]), ("r1", ["U 2"]), ("r2", ["U 3", "U 4"])]
    assert adapter.fetched == ["r2"] * 4
    assert violations(core.path) == []


async def test_51_a_conversation_that_is_still_locked_is_listed_again_before_anything_is_sent_again(core: Core) -> None:
    adapter = TailAdapter(
        made(*says("A1", "c")), LOST, LOCKED, LOCKED, says("A3", "c"), found=[NOTHING, NOTHING, landed(1)]
    )
    core.agent(adapter)
    states = [(await core.send(text, context="x")).status.state.name for text in "123"]
    assert states == ["COMPLETED", "FAILED", "COMPLETED"]
    assert adapter.sent[2:] == [("c", ["U 2", "U 3"]), ("c", ["U 2", "U 3"]), ("c", ["U 3"])]
    assert [request.handle for request in adapter.asked] == ["c"] * 3
    assert await said_in(core) == ["U 1", "A A1", "U 2", "A A2", "U 3", "A A3"]
    assert violations(core.path) == []


async def test_51_a_first_call_is_listed_again_while_the_conversation_that_it_made_is_locked(core: Core) -> None:
    adapter = TailAdapter(made(*LOST), LOCKED, says("A2", "c"), says("A3", "c"), found=[NOTHING, landed(1, "A1")])
    core.agent(adapter)
    states = [(await core.send(text, context="x")).status.state.name for text in "123"]
    assert states == ["FAILED", "COMPLETED", "COMPLETED"]
    assert adapter.sent[1:] == [("c", ["U 1", "U 2"]), ("c", ["U 2"]), ("c", ["U 3"])]
    assert await said_in(core) == ["U 1", "A A1", "U 2", "A A2", "U 3", "A A3"]
    assert violations(core.path) == []


async def test_51_a_call_of_a_first_answer_that_lands_late_is_answered(core: Core) -> None:
    adapter = TailAdapter(made(*LOST), LOCKED, says("A2", "c"), found=[NOTHING, Tail(1, tuple(CALLS))])  # type: ignore[arg-type]
    core.agent(adapter)
    for text in "12":
        await core.send(text, context="x")
    assert adapter.sent[1:] == [("c", ["U 1", "U 2"]), ("c", ["O c1 This call was not run.", "U 2"])]
    assert violations(core.path) == []


@pytest.mark.parametrize(
    ("earlier", "failing"),
    [([], [LOCKED] * 4), ([says("A0", "c")], [LOCKED] * 4), ([says("A0", "c")], [BUSY] * 3)],
    ids=["the first call, locked", "a later call, locked", "a later call, too many requests"],
)
async def test_51_a_message_that_fails_before_an_earlier_answer_lands_leaves_the_look_to_the_next_one(
    core: Core, earlier: list[Script], failing: list[Script]
) -> None:
    cut_off = LOST if earlier else made(*LOST)
    first = [made(*script) for script in earlier]
    found = [NOTHING] * len(failing) + [landed(1, "A1")]
    adapter = TailAdapter(*first, cut_off, *failing, says("A3", "c"), found=found)
    core.agent(adapter)
    before = [(await core.send("0", context="x")).status.state.name for _ in earlier]
    states = [(await core.send(text, context="x")).status.state.name for text in "123"]
    assert (before, states) == (["COMPLETED"] * len(earlier), ["FAILED", "FAILED", "COMPLETED"])
    assert adapter.sent[-1] == ("c", ["U 2", "U 3"])
    assert violations(core.path) == []


async def test_51_a_message_that_is_refused_before_an_earlier_answer_lands_leaves_the_look_to_the_next_one(
    core: Core,
) -> None:
    refused: Script = [AdapterError(ErrorClass.REJECTED, "400 No tool output found")]
    adapter = TailAdapter(
        made(*says("A1", "c")),
        LOST,
        refused,
        refused,
        refused,
        says("A4", "c"),
        found=[NOTHING, NOTHING, NOTHING, Tail(1, tuple(CALLS))],  # type: ignore[arg-type]
    )
    core.agent(adapter)
    states = [(await core.send(text, context="x")).status.state.name for text in "1234"]
    assert states == ["COMPLETED", "FAILED", "FAILED", "COMPLETED"]
    assert adapter.sent[-1] == ("c", ["O c1 This call was not run.", "U 4"])
    assert violations(core.path) == []


async def test_51_what_lands_behind_the_look_that_is_recorded_is_seen_before_the_request(core: Core) -> None:
    adapter = TailAdapter(
        made(*says("A1", "c")), LOST, says("A3", "c"), found=[NOTHING, landed(1), landed(1)], moves=True
    )
    core.agent(adapter)
    states = [(await core.send(text, context="x")).status.state.name for text in "123"]
    assert states == ["COMPLETED", "FAILED", "COMPLETED"]
    assert adapter.sent == [(None, ["U 1"]), ("c", ["U 2"]), ("c", ["U 3"])]
    assert violations(core.path) == []


async def test_51_an_accepted_message_ends_the_looks(core: Core) -> None:
    adapter = TailAdapter(made(*says("A1", "c")), LOST, says("A3", "c"), *[BUSY] * 3, says("A5", "c"), found=[NOTHING])
    core.agent(adapter)
    states = [(await core.send(text, context="x")).status.state.name for text in "12345"]
    assert states == ["COMPLETED", "FAILED", "COMPLETED", "FAILED", "COMPLETED"]
    assert len(adapter.asked) == 1


@pytest.mark.parametrize(
    "found", [None, AdapterError(ErrorClass.HANDLE_NOT_FOUND, "404")], ids=["it does not reach back", "gone"]
)
async def test_51_a_list_that_does_not_tell_leads_to_the_request_itself(
    core: Core, found: Tail | AdapterError | None
) -> None:
    adapter = TailAdapter(made(*says("A1", "c")), LOST, says("A3", "c"), found=[found])
    core.agent(adapter)
    for text in "123":
        await core.send(text, context="x")
    assert adapter.sent[2] == ("c", ["U 2", "U 3"])


@pytest.mark.parametrize("found", [None, AdapterError(ErrorClass.CONTRACT_BROKEN, "no list")], ids=["none", "unusable"])
@pytest.mark.parametrize("turn", [1, 2])
async def test_51_a_call_that_the_backend_has_named_is_not_sent_again(
    core: Core, found: AdapterError | None, turn: int
) -> None:
    named: Script = [CallStarted("c", "run"), CUT]
    scripts = [made(named[0], CUT)] if turn == 1 else [made(*says("A1", "c")), named]
    adapter = TailAdapter(*scripts, says("A3", "c"), found=[found])
    core.agent(adapter)
    for text in "123"[2 - turn :]:
        await core.send(text, context="x")
    assert adapter.sent[-1] == ("c", ["U 3"])
    assert violations(core.path) == []


async def test_51_a_name_that_comes_late_makes_no_output_undone(core: Core) -> None:
    refused = AdapterError(ErrorClass.REJECTED, "400")
    late: Script = [TextDelta("par"), CallStarted("c", "run"), refused]
    adapter = TailAdapter(made(*says("A1", "c")), LOST, late, says("A4", "c"), found=[NOTHING])
    core.agent(adapter)
    states = [(await core.send(text, context="x")).status.state.name for text in "123"]
    assert states == ["COMPLETED", "FAILED", "FAILED"]
    assert len(adapter.sent) == 3


async def test_51_a_named_call_of_a_conversation_that_is_gone_is_sent_in_a_new_one(core: Core) -> None:
    gone = AdapterError(ErrorClass.HANDLE_EXPIRED, "gone")
    adapter = TailAdapter(made(CallStarted("c", "run"), CUT), made(*says("A2", "c")), found=[gone])
    core.agent(adapter)
    for text in "12":
        await core.send(text, context="x")
    assert adapter.sent[-1] == (None, ["U 1", "U 2"])


async def cancelled_after_a_part(core: Core, found: Sequence[Any], *scripts: Script, **policies: Any) -> TailAdapter:
    """The second turn of a conversation was cancelled when the caller had seen "par"; then the third message came."""
    pause = Pause()
    adapter = TailAdapter(made(*says("A1", "c")), [TextDelta("par"), pause], *scripts, found=found)
    core.agent(adapter, **policies)
    await core.send("1", context="x")
    going = await core.send("2", context="x", at_once=True)
    await soon(pause.reached.wait())
    assert (await core.cancel(going.id)).status.state.name == "CANCELED"
    await core.send("3", context="x")
    return adapter


@pytest.mark.parametrize("shadow", ["items", "text", "none"])
async def test_51_what_was_cancelled_in_a_conversation_and_landed_there_is_not_told_again(
    core: Core, shadow: str
) -> None:
    adapter = await cancelled_after_a_part(core, [landed(1, "part")], says("A3", "c"), shadow_history=shadow)
    assert adapter.sent[2] == ("c", ["U 3"])
    if shadow != "none":
        assert await said_in(core) == ["U 1", "A A1", "U 2", "A part", "U 3", "A A3"]
    assert violations(core.path) == []


@pytest.mark.parametrize("found", [Tail(1), NOTHING, None], ids=["its message has", "nothing has", "it does not tell"])
async def test_51_what_was_cancelled_and_of_whose_answer_nothing_landed_is_told_as_a_note(
    core: Core, found: Tail | None
) -> None:
    adapter = await cancelled_after_a_part(core, [found], says("A3", "c"))
    message = [] if found is not None and found.held else ["U 2"]
    assert adapter.sent[2] == ("c", [*message, f"U {INTERRUPTED}par", "U 3"])


async def test_51_a_cancelled_answer_that_lands_while_the_conversation_is_locked_is_not_told_again(core: Core) -> None:
    adapter = await cancelled_after_a_part(core, [NOTHING, landed(1, "part")], LOCKED, says("A3", "c"))
    assert adapter.sent[2:] == [("c", ["U 2", f"U {INTERRUPTED}par", "U 3"]), ("c", ["U 3"])]
    assert violations(core.path) == []


async def test_51_a_call_that_landed_behind_a_cancelled_part_without_its_words_leaves_the_note(core: Core) -> None:
    calls = Tail(1, (ToolCallReady("c1", "add", "{}"), CallCompleted("c")))
    adapter = await cancelled_after_a_part(core, [calls], says("A3", "c"))
    assert adapter.sent[2] == ("c", ["O c1 This call was not run.", f"U {INTERRUPTED}par", "U 3"])


async def test_51_what_a_backend_refused_is_not_looked_up(core: Core) -> None:
    refused: Script = [CallStarted("r2"), AdapterError(ErrorClass.REJECTED, "400")]
    adapter = FetchingAdapter(says("A1", "r1"), refused, says("A3", "r3"))
    core.agent(adapter)
    for text in "123":
        await core.send(text, context="x")
    assert adapter.fetched == []
    assert deletions(core.path) == ["r2"]


async def test_51_two_processes_adopt_it_once(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    async with running_core(path, prefix="one") as one, running_core(path, prefix="two") as two:
        first = FetchingAdapter(says("A1", "r1"), cut("r2"), says("A3", "r3"), found=[whole("A2", "r2")])
        second = FetchingAdapter(says("A4", "r4"), says("A4", "r4"), found=[whole("A2", "r2")])
        one.agent(first)
        two.agent(second)
        for text in "12":
            await one.send(text, context="x")
        second.held = Pause()
        waiting = await two.send("4", context="x", at_once=True)
        await soon(second.held.reached.wait())
        await one.send("5", context="y")
        second.held.go.set()
        await soon(two.runner.idle())
        assert (await two.get(waiting.id)).status.state.name == "COMPLETED"
        await one.send("3", context="x")
        adopted = [p for core in (one, two) for p in core.ledger.stored(Complete) if p.handle_out == "r2"]
        assert len(adopted) == 1
        assert first.fetched == []
        assert first.sent[-1] == ("r4", ["U 3"])
    assert violations(path) == []


async def test_a_thread_that_is_in_sync_costs_no_read_of_its_own(core: Core) -> None:
    core.agent(FetchingAdapter(says("A1", "r1"), says("A2", "r2")))
    for text in "12":
        await core.send(text, context="x")
    assert "unknown_call" not in core.ledger.reads
