"""Calls that continue at the backend without a listener: a turn outlives its stream and its process."""

from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gateway.a2a.model import Artifact, Part, Task
from gateway.core.history import INTERRUPTED
from gateway.core.task_record import TurnOutput
from gateway.ledger.calls import RESTARTED
from gateway.ports.adapter import (
    AdapterError,
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
from gateway.scheduling.leases import LeaseTimes
from tests.invariants import violations
from tests.support.core import START, Core, answer, events, frames, logged, numbers, query, running_core, soon, streamed
from tests.support.resuming_adapter import ResumingAdapter
from tests.support.scripted import BR, Pause, Script, says

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
    assert query(path, "SELECT status, handle_out FROM service_call ORDER BY rowid") == [
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
    assert query(path, "SELECT round, handle_in, handle_out FROM service_call ORDER BY rowid") == [
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
    assert adapter.cancelled == ["r1"]
    assert query(core.path, "SELECT handle FROM delete_job") == [("r1",)]


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
