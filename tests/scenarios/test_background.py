"""Calls that continue at the backend without a listener: a turn outlives its stream and its process."""

import asyncio
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import structs

from gateway.a2a.model import Artifact, Part, Task, TaskArtifactUpdateEvent
from gateway.a2a.redaction import json_path
from gateway.a2a.tool_calls import ARTIFACT_CLIENTS, URI, Visibility
from gateway.core.history import INTERRUPTED
from gateway.core.task_record import TurnOutput
from gateway.ledger.calls import RESTARTED
from gateway.ledger.leases import TakeOver
from gateway.ports.adapter import (
    AdapterError,
    ApprovalAsked,
    ArtifactReady,
    CallCompleted,
    CallStarted,
    ErrorClass,
    MessageReady,
    PartReady,
    StartedOver,
    TextDelta,
    ToolCallReady,
    ToolResultReady,
)
from gateway.ports.conversation import Ownership
from gateway.scheduling.leases import LeaseTimes
from tests.invariants import violations
from tests.support.core import (
    START,
    Core,
    FragileLedger,
    Gate,
    answer,
    events,
    frames,
    logged,
    numbers,
    query,
    running_core,
    soon,
    streamed,
    until,
)
from tests.support.resuming_adapter import ResumingAdapter
from tests.support.scripted import BR, BS, G, Pause, Script, ScriptedAdapter, says
from tests.support.scripted_tools import ScriptedTools

LATER = START + 6000
CUT = AdapterError(ErrorClass.INTERRUPTED, "cut")
AWAY: Script = [AdapterError(ErrorClass.UNREACHABLE, "refused")]
BEGUN: Script = [CallStarted("r1"), TextDelta("one "), TextDelta("two ")]
WHOLE: Script = [CallStarted("r1"), TextDelta("one "), TextDelta("two "), TextDelta("three"), CallCompleted("r1")]
COARSE: Script = [CallStarted("r1"), TextDelta("one two three"), CallCompleted("r1")]
REPEATED: Script = [*BEGUN, StartedOver(), *WHOLE[1:]]
OTHER: Script = [
    CallStarted("r1"),
    TextDelta("one "),
    StartedOver(),
    TextDelta("uno "),
    TextDelta("due"),
    CallCompleted("r1"),
]
SHORTER: Script = [CallStarted("r1"), TextDelta("one"), CallCompleted("r1")]
PICTURE = Part(raw="cG5n", media_type="image/png")
TOOL: Script = [ToolCallReady("c1", "look", "{}", handled=True)]
SEEN: Script = [ToolResultReady("c1", "3")]

ENDS: dict[str, tuple[Script, list[Script], str]] = {
    "in the same pieces": (BEGUN, [WHOLE], "one two three"),
    "in other pieces": (BEGUN, [COARSE], "one two three"),
    "begun anew by the backend": (BEGUN, [REPEATED], "one two three"),
    "with another answer": (BEGUN, [OTHER], "uno due"),
    "with less than was shown": (BEGUN, [SHORTER], "one"),
    "of which nothing was shown": (BEGUN[:1], [WHOLE], "one two three"),
    "that is cut again": (BEGUN, [[*BEGUN, TextDelta("th"), CUT], WHOLE], "one two three"),
    "at a backend that has to come back first": (BEGUN, [AWAY, AWAY, AWAY, AWAY, AWAY, WHOLE], "one two three"),
    "with a picture": (
        [*BEGUN, PartReady(PICTURE)],
        [[*BEGUN, PartReady(PICTURE), TextDelta("three"), CallCompleted("r1")]],
        "one two three",
    ),
    "with a tool of the backend's": (
        [*BEGUN, *TOOL],
        [[*BEGUN, *TOOL, *SEEN, TextDelta("three"), CallCompleted("r1")]],
        "one two three",
    ),
}

Died = tuple[str, list[Any]]


async def left_behind(path: Path, *script: Any) -> Died:
    """The task whose process died at the end of the script, and the frames of its stream."""
    pause = Pause()
    async with running_core(path, prefix="one") as core:
        core.agent(ResumingAdapter([*script, pause]))
        task = await core.send("1", context="x", at_once=True)
        await soon(pause.reached.wait())
        await core.get(task.id)
        return task.id, logged(path, task.id)


def survivor(path: Path, adapter: ResumingAdapter, **more: Any) -> AbstractAsyncContextManager[Core]:
    """A process that starts when the lease of the dead one has run out, and knows the agent from the beginning."""
    return running_core(path, prefix="two", now=LATER, adapter=adapter, **more)


def calls_of(task: Task) -> list[str]:
    """The events of tool calls, as kind and id."""
    told = []
    for message in task.history or ():
        for part in message.parts:
            if isinstance(part.data, dict):
                told.append(f"{(part.metadata or {})['type']} {part.data['id']}")
    return told


@pytest.mark.parametrize("case", ENDS)
async def test_122_a_stream_that_breaks_off_is_listened_to_again(core: Core, case: str) -> None:
    begun, again, text = ENDS[case]
    adapter = ResumingAdapter([*begun, CUT], says("next", "r2"), again=again)
    core.agent(adapter)
    read = await frames(await core.stream("1", context="x"))
    [(task_id,)] = query(core.path, "SELECT id FROM task")
    task = await core.get(task_id)
    assert (task.status.state.name, answer_of(task)) == ("COMPLETED", text)
    assert folded(read, task) == text
    assert adapter.resumed == ["r1"] * len(again)
    assert len(calls_of(task)) == len(set(calls_of(task)))
    await core.send("2", context="x")
    assert adapter.sent == [(None, ["U 1"]), ("r1", ["U 2"])]
    assert violations(core.path) == []


SEEN_SO_FAR: dict[str, tuple[Script, Script]] = {
    "in the middle of a text": (BEGUN, BEGUN[:2]),
    "before it has said anything": (BEGUN, BEGUN[:1]),
    "between two messages": ([CallStarted("r1"), TextDelta("one"), MessageReady("one"), TextDelta("two ")], BEGUN[:1]),
    "when it has said all of it": (BEGUN, BEGUN),
}


@pytest.mark.parametrize("case", SEEN_SO_FAR)
async def test_94_an_answer_that_is_cancelled_while_it_is_repeated_has_said_all_that_was_shown(
    core: Core, case: str
) -> None:
    begun, again = SEEN_SO_FAR[case]
    pause = Pause()
    adapter = ResumingAdapter([*begun, CUT], says("next", "r2"), again=[[*again, pause]])
    core.agent(adapter)
    task = await core.send("1", context="x", at_once=True)
    await soon(pause.reached.wait())
    await core.cancel(task.id)
    shown = answer(await core.get(task.id))
    await core.send("2", context="x")
    assert adapter.sent[-1] == (None, ["U 1", f"U {INTERRUPTED}{shown}", "U 2"])


@pytest.mark.parametrize("case", ENDS)
async def test_109d_a_turn_goes_on_in_another_process_when_its_own_died(tmp_path: Path, case: str) -> None:
    path = tmp_path / "ledger.db"
    begun, again, text = ENDS[case]
    task_id, before = await left_behind(path, *begun)
    adapter = ResumingAdapter(says("next", "r2"), again=again)
    async with survivor(path, adapter) as core:
        await soon(core.runner.idle())
        task = await core.get(task_id)
        assert (task.status.state.name, answer_of(task)) == ("COMPLETED", text)
        after = logged(path, task_id)
        assert after[: len(before)] == before
        assert numbers(after) == list(range(1, len(after) + 1))
        assert len(calls_of(task)) == len(set(calls_of(task)))
        for last in range(len(after) + 1):
            read = await frames(await core.subscribe(task_id, core.call(last=last)))
            assert read[1:] == after[last:]
        await core.send("2", context="x")
    assert adapter.resumed == ["r1"] * len(again)
    assert adapter.sent == [("r1", ["U 2"])]
    assert query(path, "SELECT status, handle_out FROM service_call ORDER BY id") == [
        ("completed", "r1"),
        ("completed", "r2"),
    ]
    assert violations(path) == []


def answer_of(task: Task) -> str:
    return answer(task).replace("?", "")


def folded(read: Any, task: Task) -> str:
    """What a client has that follows the stream: a new version of an artifact takes the place of the old one."""
    output = TurnOutput((task.history or ())[0])
    for event in events(read):
        update = event.artifact_update or event.status_update
        if update is not None:
            output.apply(update)
    return "".join(part.text or "" for growing in output.artifacts.values() for part in growing.whole().parts)


@pytest.mark.parametrize(
    "error", [AdapterError(ErrorClass.BACKEND_FAILED, "gone"), AdapterError(ErrorClass.UNAUTHORISED, "401")]
)
async def test_109d_what_the_backend_has_lost_fails_the_turn(tmp_path: Path, error: AdapterError) -> None:
    path = tmp_path / "ledger.db"
    task_id, _ = await left_behind(path, *BEGUN)
    adapter = ResumingAdapter(says("next", "r2"), again=[[error]])
    async with survivor(path, adapter) as core:
        await soon(core.runner.idle())
        task = await core.get(task_id)
        assert task.status.state.name == "FAILED"
        assert task.status.message is not None
        assert (task.status.message.metadata or {})["errorClass"] == error.kind
        assert answer(task) == "one two "
        await core.send("2", context="x")
    assert adapter.sent == [(None, ["U 1", "U 2"])]
    assert query(path, "SELECT handle FROM delete_job") == [("r1",)]
    assert violations(path) == []


@pytest.mark.parametrize("begun", [BEGUN, BEGUN[:1]], ids=["with output", "without output"])
async def test_109_a_response_that_was_listened_to_again_and_failed_is_not_asked_for_again(
    core: Core, begun: Script
) -> None:
    gone: Script = [AdapterError(ErrorClass.BACKEND_FAILED, "gone")]
    adapter = ResumingAdapter([*begun, CUT], again=[gone], ownership=replace(BR, repeatable=True))
    core.agent(adapter)
    task = await core.send("1", context="x")
    assert (task.status.state.name, len(adapter.requests)) == ("FAILED", 1)
    assert answer_of(task) == ("one two " if begun is BEGUN else "")


async def test_109d_a_call_that_never_got_a_name_is_not_taken_over(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    task_id, _ = await left_behind(path)
    adapter = ResumingAdapter()
    async with survivor(path, adapter) as core:
        task = await core.get(task_id)
        assert task.status.message is not None
        assert (task.status.message.metadata or {})["errorClass"] == RESTARTED
    assert adapter.resumed == []
    assert violations(path) == []


async def test_109d_a_round_behind_tools_of_the_gateway_goes_on_behind_what_was_shown_before(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    pause = Pause()
    calls: Script = [CallStarted("r1"), TextDelta("let me see "), ToolCallReady("c1", "add", "{}"), CallCompleted("r1")]
    async with running_core(path, prefix="one") as one:
        one.agent(ResumingAdapter(calls, [CallStarted("r2"), TextDelta("it is "), pause]))
        task = await one.send("1", context="x", at_once=True)
        await soon(pause.reached.wait())
        await one.get(task.id)
    adapter = ResumingAdapter(again=[[CallStarted("r2"), TextDelta("it "), TextDelta("is 3"), CallCompleted("r2")]])
    async with survivor(path, adapter) as two:
        await soon(two.runner.idle())
        after = await two.get(task.id)
    assert (after.status.state.name, answer(after)) == ("COMPLETED", "let me see it is 3")
    assert query(path, "SELECT round, handle_in, handle_out FROM service_call ORDER BY id") == [
        (0, None, "r1"),
        (1, "r1", "r2"),
    ]
    assert violations(path) == []


async def test_109d_an_artifact_of_the_agent_is_not_taken_for_the_answer_of_a_turn_that_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    begun: Script = [CallStarted("r1"), ArtifactReady(Artifact(artifact_id="plot", parts=(PICTURE,)))]
    task_id, _ = await left_behind(path, *begun)
    adapter = ResumingAdapter(again=[[*begun, TextDelta("three"), CallCompleted("r1")]])
    async with survivor(path, adapter) as core:
        await soon(core.runner.idle())
        made = (await core.get(task_id)).artifacts or ()
    assert [each.parts for each in made] == [(PICTURE,), (Part(text="three"),)]


async def test_136_a_message_that_waits_meanwhile_is_answered_behind_it(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    task_id, _ = await left_behind(path, *BEGUN)
    adapter = ResumingAdapter(says("next", "r2"), again=[WHOLE])
    async with running_core(path, prefix="two", now=START + 1000, adapter=adapter, lease=LeaseTimes(0.03)) as core:
        waiting = await core.send("2", context="x", at_once=True)
        assert waiting.status.state.name == "SUBMITTED"
        core.time.now = LATER
        await soon(core.runner.idle())
        assert answer(await core.get(task_id)) == "one two three"
        assert answer(await core.get(waiting.id)) == "next"
    assert adapter.sent == [("r1", ["U 2"])]
    assert violations(path) == []


async def test_135_two_processes_do_not_take_over_the_same_turn(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    task_id, _ = await left_behind(path, *BEGUN)
    pause = Pause()
    first = ResumingAdapter(again=[[*BEGUN, pause, *WHOLE[3:]]])
    second = ResumingAdapter()
    async with survivor(path, first) as two:
        await soon(pause.reached.wait())
        async with running_core(path, prefix="three", now=LATER, adapter=second) as three:
            assert (await three.get(task_id)).status.state.name == "WORKING"
        pause.go.set()
        await soon(two.runner.idle())
        assert answer(await two.get(task_id)) == "one two three"
    assert (first.resumed, second.resumed) == (["r1"], [])
    assert violations(path) == []


async def test_135_a_process_that_was_only_suspended_spoils_nothing_of_the_turn_that_was_taken_over(
    tmp_path: Path,
) -> None:
    path = tmp_path / "ledger.db"
    pause = Pause()
    async with running_core(path, prefix="one") as one:
        one.agent(ResumingAdapter([*BEGUN, pause, *WHOLE[3:]]))
        task_id = (await one.send("1", context="x", at_once=True)).id
        await soon(pause.reached.wait())
        await one.get(task_id)
        adapter = ResumingAdapter(says("next", "r2"), again=[WHOLE])
        async with survivor(path, adapter) as two:
            await soon(two.runner.idle())
            assert answer(await two.get(task_id)) == "one two three"
            pause.go.set()
            await soon(one.runner.idle())
            await two.send("2", context="x")
            assert answer(await two.get(task_id)) == "one two three"
    assert adapter.sent == [("r1", ["U 2"])]
    assert query(path, "SELECT handle FROM delete_job") == []
    assert violations(path) == []


async def test_135_what_a_suspended_process_shows_before_its_turn_is_taken_over_costs_nobody_the_turn(
    tmp_path: Path,
) -> None:
    path = tmp_path / "ledger.db"
    wakes = Pause()
    ledgers: list[FragileLedger] = []
    gates: list[Gate] = []

    def holds(ledger: FragileLedger) -> None:
        ledgers.append(ledger)
        gates.append(ledger.hold(TakeOver))

    adapter = ResumingAdapter(again=[WHOLE])

    async def takes_over() -> None:
        async with survivor(path, adapter, before=holds) as two:
            await soon(two.runner.idle())

    async with running_core(path, prefix="one") as one:
        one.agent(ResumingAdapter([*BEGUN[:2], wakes, BEGUN[2], Pause()]))
        task = await one.send("1", context="x", at_once=True)
        await soon(wakes.reached.wait())
        async with asyncio.TaskGroup() as group:
            group.create_task(takes_over())
            await until(lambda: bool(gates))
            await soon(gates[0].reached.wait())
            shown = len(logged(path, task.id))
            wakes.go.set()
            await until(lambda: len(logged(path, task.id)) > shown)
            ledgers[0].let_go()
        assert answer(await one.get(task.id)) == "one two three"
        assert numbers(logged(path, task.id)) == list(range(1, len(logged(path, task.id)) + 1))
    assert violations(path) == []


async def test_109d_dying_again_and_again_loses_and_doubles_nothing(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    task_id, _ = await left_behind(path, *BEGUN)
    # Who dies of it at once is followed by two more that listen: what is behind that is in test_quarantine.
    for number in range(2):
        pause = Pause()
        adapter = ResumingAdapter(again=[[*BEGUN, TextDelta("three "[: number + 1]), pause]])
        now = LATER * (number == 0) or LATER + number * 6000
        async with running_core(path, prefix=f"try{number}", now=now, adapter=adapter) as core:
            await soon(pause.reached.wait())
            await core.get(task_id)
    async with running_core(path, prefix="last", now=LATER + 18000, adapter=ResumingAdapter(again=[WHOLE])) as core:
        await soon(core.runner.idle())
        assert answer(await core.get(task_id)) == "one two three"
    assert violations(path) == []


# --- cancelling


@pytest.mark.parametrize(
    ("confirms", "told"),
    [
        (True, True),
        (False, False),
        (AdapterError(ErrorClass.UNREACHABLE, "refused"), False),
    ],
    ids=["confirmed", "refused", "away"],
)
async def test_137_who_cancels_is_told_whether_the_backend_has_ended(
    core: Core, confirms: bool | AdapterError, told: bool
) -> None:
    pause = Pause()
    adapter = ResumingAdapter([*BEGUN, pause], confirms=confirms)
    core.agent(adapter)
    stream = await core.stream("1", context="x")
    await soon(pause.reached.wait())
    [(task_id,)] = query(core.path, "SELECT id FROM task")
    assert (await core.cancel(task_id)).status.state.name == "CANCELED"
    last = events(await frames(stream))[-1].status_update
    assert last is not None
    assert last.metadata == {"backendCancelled": told}
    assert last.status.message is not None
    assert last.status.message.metadata == {"backendCancelled": told}
    task = await core.get(task_id)
    assert (task.metadata, task.status) == (last.metadata, last.status)
    [listed] = (await core.list(context_id="x")).tasks
    assert (listed.metadata, listed.status) == (last.metadata, last.status)
    assert adapter.cancelled == ["r1"]
    assert query(core.path, "SELECT handle FROM delete_job") == [("r1",)]


async def test_137_who_waits_too_long_is_told_whether_the_backend_has_ended(core: Core) -> None:
    adapter = ResumingAdapter([*BEGUN, Pause()], confirms=False)
    core.agent(adapter, turn_timeout=1)
    task = await core.send("1", context="x")
    assert task.status.message is not None
    told = task.status.message.metadata or {}
    assert (told["errorClass"], told["backendCancelled"]) == ("turn-timeout", False)
    assert task.metadata == {"backendCancelled": False}


async def test_137_a_turn_that_was_taken_over_can_be_cancelled(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    task_id, _ = await left_behind(path, *BEGUN)
    pause = Pause()
    adapter = ResumingAdapter(again=[[*BEGUN, pause]])
    async with survivor(path, adapter) as core:
        await soon(pause.reached.wait())
        assert (await core.cancel(task_id)).status.state.name == "CANCELED"
    assert adapter.cancelled == ["r1"]
    assert violations(path) == []


async def test_a_stopped_process_leaves_its_turn_to_the_next_one(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    task_id, _ = await left_behind(path, *BEGUN)
    async with survivor(path, ResumingAdapter(again=[WHOLE])) as core:
        stream = await core.subscribe(task_id)
        assert streamed(await frames(stream)) == "one two three"


# --- calls of the backend's own tools that were shown before the stream was cut

LOOK: Script = [CallStarted("r1"), ToolCallReady("c1", "look", '{"n":1}', handled=True)]
LOOKED: Script = [*LOOK, ToolResultReady("c1", "3")]
MAY_IT: Script = [CallStarted("r1"), ApprovalAsked("q1", "look", "{}", "files")]
OWN: Script = [CallStarted("r1"), ToolCallReady("c1", "add", "{}")]
FAILS: Script = [AdapterError(ErrorClass.BACKEND_FAILED, "gone")]
DONE: Script = [TextDelta("done"), CallCompleted("r1")]

SHOWN: dict[str, tuple[Script, Script, list[str]]] = {
    "before it is told again": (LOOK, LOOK[:1], ["requested", "interrupted"]),
    "when it was told again": (LOOK, LOOK, ["requested", "interrupted"]),
    "with its outcome, before it is told again": (LOOKED, LOOK[:1], ["requested", "succeeded"]),
    "with its outcome, when only the call was told again": (LOOKED, LOOK, ["requested", "succeeded"]),
    "with its outcome, when all was told again": (LOOKED, LOOKED, ["requested", "succeeded"]),
    "as a question, before it is asked again": (MAY_IT, MAY_IT[:1], ["requested", "cancelled"]),
    "as a question, when it was asked again": (MAY_IT, MAY_IT, ["requested", "cancelled"]),
    "of the gateway's, before it is told again": (OWN, OWN[:1], ["requested", "cancelled"]),
    "of the gateway's, when it was told again": (OWN, OWN, ["requested", "cancelled"]),
}
CHANNELS = pytest.mark.parametrize("channel", ["status", "artifact"])


def told_of_calls(path: Path, task: str) -> list[str]:
    """The parts of tool calls in the log of a task: the number of the call, in order of appearance, where there are several."""
    ids: list[str] = []
    told = []
    for event in events(logged(path, task)):
        update = event.artifact_update or event.status_update
        assert update is not None
        if isinstance(update, TaskArtifactUpdateEvent):
            parts = update.artifact.parts
        else:
            parts = update.status.message.parts if update.status.message is not None else ()
        for fact in [(part.metadata or {}).get(URI) for part in parts]:
            if isinstance(fact, dict):
                ids = ids if fact["callId"] in ids else [*ids, str(fact["callId"])]
                told.append((ids.index(str(fact["callId"])), str(fact["phase"])))
    return [phase if len(ids) == 1 else f"{phase} {number}" for number, phase in told]


def looking(core: Core, adapter: ResumingAdapter, channel: Any, **more: Any) -> None:
    core.agent(adapter, toolset=ScriptedTools({"add": "3"}), tool_calls=Visibility(channel=channel), **more)


@CHANNELS
@pytest.mark.parametrize("case", SHOWN)
async def test_48_a_call_that_was_shown_has_one_outcome_when_its_turn_is_cancelled_while_it_is_repeated(
    core: Core, case: str, channel: str
) -> None:
    begun, again, told = SHOWN[case]
    pause = Pause()
    looking(core, ResumingAdapter([*begun, CUT], again=[[*again, pause]]), channel)
    task = await core.send("1", context="x", at_once=True)
    await soon(pause.reached.wait())
    await core.cancel(task.id)
    assert told_of_calls(core.path, task.id) == told
    assert violations(core.path) == []


@CHANNELS
@pytest.mark.parametrize("case", SHOWN)
async def test_48_a_call_that_was_shown_has_one_outcome_when_its_turn_fails_while_it_is_repeated(
    core: Core, case: str, channel: str
) -> None:
    begun, again, told = SHOWN[case]
    looking(core, ResumingAdapter([*begun, CUT], again=[[*again, *FAILS]]), channel)
    task = await core.send("1", context="x")
    assert (task.status.state.name, told_of_calls(core.path, task.id)) == ("FAILED", told)
    assert violations(core.path) == []


@CHANNELS
@pytest.mark.parametrize("case", SHOWN)
async def test_48_a_call_that_was_shown_has_one_outcome_when_a_message_interrupts_its_turn_while_it_is_repeated(
    core: Core, case: str, channel: str
) -> None:
    begun, again, told = SHOWN[case]
    pause = Pause()
    adapter = ResumingAdapter([*begun, CUT], says("next", "r2"), again=[[*again, pause]])
    looking(core, adapter, channel, busy_context="interrupt")
    task = await core.send("1", context="x", at_once=True)
    await soon(pause.reached.wait())
    assert answer(await core.send("2", context="x")) == "next"
    assert told_of_calls(core.path, task.id) == told
    assert violations(core.path) == []


@CHANNELS
@pytest.mark.parametrize("case", [case for case in SHOWN if "question" not in case])
@pytest.mark.parametrize("ends", ["cancel", "failure"])
async def test_48_a_call_that_a_dead_process_had_shown_has_one_outcome_when_its_turn_ends_in_another_one(
    tmp_path: Path, case: str, channel: Any, ends: str
) -> None:
    path = tmp_path / "ledger.db"
    begun, again, told = SHOWN[case]
    pause, lost = Pause(), Pause()
    async with running_core(path, prefix="one") as core:
        looking(core, ResumingAdapter([*begun, lost]), channel)
        task = await core.send("1", context="x", at_once=True)
        await soon(lost.reached.wait())
        await core.get(task.id)
    adapter = ResumingAdapter(again=[[*again, pause] if ends == "cancel" else [*again, *FAILS]])
    rest = {"toolset": ScriptedTools({"add": "3"}), "tool_calls": Visibility(channel=channel)}
    async with survivor(path, adapter, **rest) as core:
        if ends == "cancel":
            await soon(pause.reached.wait())
            await core.cancel(task.id)
        await soon(core.runner.idle())
    assert told_of_calls(path, task.id) == told
    assert violations(path) == []


OTHERWISE: dict[str, tuple[Script, list[Script], list[str]]] = {
    "is not made again": (LOOK, [[CallStarted("r1"), *DONE]], ["requested", "interrupted"]),
    "is not made again after its outcome": (LOOKED, [[CallStarted("r1"), *DONE]], ["requested", "succeeded"]),
    "is made again without its outcome": (LOOKED, [[*LOOK, *DONE]], ["requested", "succeeded"]),
    "is another with other arguments": (
        LOOK,
        [[CallStarted("r1"), ToolCallReady("c2", "look", '{"n":2}', handled=True), ToolResultReady("c2", "4"), *DONE]],
        ["requested 0", "requested 1", "succeeded 1", "interrupted 0"],
    ),
    "is a call of another tool": (
        LOOK,
        [[CallStarted("r1"), ToolCallReady("c2", "find", '{"n":1}', handled=True), ToolResultReady("c2", "4"), *DONE]],
        ["requested 0", "requested 1", "succeeded 1", "interrupted 0"],
    ),
    "comes behind another one": (
        LOOK,
        [
            [
                CallStarted("r1"),
                ToolCallReady("c0", "find", "{}", handled=True),
                ToolResultReady("c0", "4"),
                *LOOKED[1:],
                *DONE,
            ]
        ],
        ["requested 0", "requested 1", "succeeded 1", "succeeded 0"],
    ),
    "is the gateway's, and runs": (
        OWN,
        [[*OWN, CallCompleted("r1")]],
        ["requested", "succeeded"],
    ),
    "is not the gateway's any more": (OWN, [[CallStarted("r1"), *DONE]], ["requested", "cancelled"]),
}


@CHANNELS
@pytest.mark.parametrize("case", OTHERWISE)
async def test_48_a_call_that_was_shown_has_one_outcome_when_its_answer_is_repeated_otherwise(
    core: Core, case: str, channel: str
) -> None:
    begun, again, told = OTHERWISE[case]
    looking(core, ResumingAdapter([*begun, CUT], says("done", "r2"), again=again), channel)
    task = await core.send("1", context="x")
    assert (task.status.state.name, answer_of(task)[-4:]) == ("COMPLETED", "done")
    assert told_of_calls(core.path, task.id) == told
    assert violations(core.path) == []


async def test_48_a_call_that_is_not_made_again_has_its_outcome_when_a_paused_turn_is_cancelled(core: Core) -> None:
    asks: Script = [*MAY_IT, CallCompleted("r1")]
    looking(core, ResumingAdapter([*LOOK, CUT], again=[asks]), "status")
    task = await core.send("1", context="x")
    assert task.status.state.name == "INPUT_REQUIRED"
    await core.cancel(task.id)
    told = [each for each in told_of_calls(core.path, task.id) if each.startswith(("interrupted", "cancelled"))]
    assert sorted(told) == ["cancelled 1", "interrupted 0"]
    assert violations(core.path) == []


@pytest.mark.parametrize("ownership", [G, BR, BS], ids=["G", "BR", "BS"])
@pytest.mark.parametrize("ends", ["cancel", "failure", "interrupt"])
async def test_48_a_call_that_was_shown_has_one_outcome_when_its_answer_breaks_off(
    core: Core, ownership: Ownership, ends: str
) -> None:
    pause = Pause()
    rest = [CUT] if ends == "failure" else [pause]
    core.agent(ScriptedAdapter(ownership, [*LOOK, *rest], says("next", "r2")), busy_context="interrupt")
    task = await core.send("1", context="x", at_once=True)
    if ends == "cancel":
        await soon(pause.reached.wait())
        await core.cancel(task.id)
    elif ends == "interrupt":
        await soon(pause.reached.wait())
        await core.send("2", context="x")
    await soon(core.runner.idle())
    assert told_of_calls(core.path, task.id) == ["requested", "interrupted"]


MASKED = Visibility(redact=(json_path("$.args.n"),))
NEGOTIATED = Visibility(when="negotiated")
ASKS: dict[str, tuple[Visibility, frozenset[str], bool]] = {
    "with masks": (MASKED, frozenset(), False),
    "as artifacts": (MASKED, ARTIFACT_CLIENTS, True),
    "only to those that ask for it": (NEGOTIATED, frozenset({URI}), False),
}


def outcomes_of_calls(path: Path, task: str) -> list[bool]:
    """The outcomes of tool calls in the log of a task: whether each is an artifact."""
    found = []
    for event in events(logged(path, task)):
        update = event.artifact_update or event.status_update
        if update is not None and b'"function_response"' in msgspec.json.encode(update):
            found.append(isinstance(update, TaskArtifactUpdateEvent))
    return found


@pytest.mark.parametrize("known", [True, False], ids=["the agent is known", "the agent is gone"])
@pytest.mark.parametrize("case", ASKS)
async def test_48_a_call_ends_as_it_began_when_its_process_died(tmp_path: Path, case: str, known: bool) -> None:
    path = tmp_path / "ledger.db"
    visibility, named, artifact = ASKS[case]
    pause = Pause()
    async with running_core(path, prefix="one") as core:
        core.agent(ScriptedAdapter(G, [*LOOK, pause]), tool_calls=visibility)
        task = await core.send("1", structs.replace(core.call(), named=named), context="x", at_once=True)
        await soon(pause.reached.wait())
        await core.get(task.id)
    rest: Any = {"adapter": ScriptedAdapter(G), "tool_calls": visibility} if known else {}
    async with running_core(path, prefix="two", now=LATER, **rest) as core:
        await soon(core.runner.idle())
    assert told_of_calls(path, task.id) == ["requested", "interrupted"]
    assert outcomes_of_calls(path, task.id) == [artifact]
    assert violations(path) == []


@pytest.mark.parametrize("case", ASKS)
async def test_48_a_call_that_waits_ends_as_it_began_when_another_request_cancels_it(core: Core, case: str) -> None:
    visibility, named, artifact = ASKS[case]
    core.agent(ScriptedAdapter(BR, [*MAY_IT, CallCompleted("r1")]), tool_calls=visibility)
    task = await core.send("1", structs.replace(core.call(), named=named), context="x")
    assert task.status.state.name == "INPUT_REQUIRED"
    await core.cancel(task.id)
    assert told_of_calls(core.path, task.id) == ["requested", "cancelled"]
    assert outcomes_of_calls(core.path, task.id) == [artifact]
    assert violations(core.path) == []
