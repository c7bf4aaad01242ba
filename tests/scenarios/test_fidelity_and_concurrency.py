"""Stored data is read back unchanged, and many turns at once. Source: docs/state-model.md, scenarios of groups K to M."""

import asyncio
from typing import Any

import pytest

from gateway.a2a.errors import Busy, TaskNotCancelable
from gateway.a2a.model import Artifact, Message, Part, Role, SendMessageRequest, TaskState
from gateway.ports.adapter import ArtifactReady, CallCompleted, Ending, ItemReady, PartReady, ServiceRequest, TextDelta
from gateway.ports.conversation import OpaqueItem, Ownership
from tests.support.core import Core, answer, frames, query, said, soon
from tests.support.scripted import BR, G, Pause, Script, ScriptedAdapter, says

BOTH = pytest.mark.parametrize("ownership", [G, BR], ids=["G", "BR"])
G_OPAQUE = Ownership(G.owner, G.handle, opaque_replay=True)


def echo(request: ServiceRequest) -> Script:
    text = request.message.parts[0].text
    return [None, *says(f"re {text}", f"r-{text}")]


# --- K. serialisation ---


async def test_129_what_nobody_here_knows_comes_back_as_it_was(core: Core) -> None:
    unknown = OpaqueItem("future_item", {"id": None, "nested": [{"ü": 1e-9}], "big": 2**64})
    adapter = ScriptedAdapter(G_OPAQUE, [ItemReady(unknown, "fi_1"), *says("A1")], says("A2"))
    core.agent(adapter)
    await core.send("1", context="c")
    await core.send("2", context="c")
    assert adapter.requests[1].items[1] == unknown


VALUES: dict[str, Any] = {
    "unicode": "ü€😀 \u202e \u2028\u2029\u0085 ﷽ \u0300",
    "controls": "".join(map(chr, range(1, 32))) + '"\\/',
    "big integer": 10**20 - 1,
    "negative": -(10**20) + 1,
    "float": 1e308,
    "tiny": 5e-324,
    "null": None,
    "empty": {"": "", "a": [], "b": {}, "c": None, "d": [None]},
    "order": {"z": 1, "a": 2, "m": {"2": 0, "10": 0, "1": 0}},
    "booleans": [True, False, 0, 1, 0.0],
}


@pytest.mark.parametrize("kind", VALUES)
async def test_131_what_is_stored_is_what_came(core: Core, kind: str) -> None:
    value = VALUES[kind]
    adapter = ScriptedAdapter(
        G,
        [
            PartReady(Part(data=value)),
            ArtifactReady(Artifact(artifact_id="a", parts=(Part(data=value),), metadata={"v": value})),
            CallCompleted(state={"v": value}),
        ],
        says("A2"),
    )
    core.agent(adapter)
    sent = Message(
        message_id="m", context_id="c", role=Role.USER, parts=(Part(data=value),), metadata={"v": value, "": value}
    )
    answered = await core.operations.send_message(core.call(), SendMessageRequest(message=sent))
    task = await core.get("id-0001")
    assert answered.task == task
    assert task.history is not None
    assert repr(task.history[0].parts[0].data) == repr(value)
    assert repr(task.history[0].metadata) == repr({"v": value, "": value})
    assert [repr(part.data) for made in task.artifacts or () for part in made.parts] == [repr(value)] * 2
    assert [listed.id for listed in (await core.list(include_artifacts=True)).tasks] == [task.id]
    await core.send("2", context="c")
    assert repr(adapter.requests[1].state) == repr({"v": value})
    assert adapter.requests[1].items[0] == adapter.requests[0].items[0]
    resumed = await frames(await core.subscribe(task.id, core.call(last=0)))
    assert len(resumed) == 4


async def test_131_a_part_that_is_null_is_not_one_that_is_missing(core: Core) -> None:
    core.agent(ScriptedAdapter(G, [PartReady(Part(data=None)), PartReady(Part(text="")), CallCompleted()]))
    task = await core.get((await core.send("1")).id)
    assert task.artifacts is not None
    assert task.artifacts[0].parts == (Part(data=None), Part(text=""))


# --- L. concurrency ---


@BOTH
async def test_133_two_messages_at_once_are_both_accepted_and_run_one_after_the_other(
    core: Core, ownership: Ownership
) -> None:
    pause = Pause()
    adapter = ScriptedAdapter(ownership, [pause, *says("A1", "r1")], says("A2", "r2"))
    core.agent(adapter)
    first = await core.send("1", context="c", at_once=True)
    second = await core.send("2", context="c", at_once=True)
    assert [task.status.state for task in (first, second)] == [TaskState.WORKING, TaskState.SUBMITTED]
    assert len(adapter.requests) == 1
    pause.go.set()
    await soon(core.runner.idle())
    assert adapter.sent[1] == (("r1", ["U 2"]) if ownership is BR else (None, ["U 1", "A A1", "U 2"]))


async def test_133_beyond_the_bound_a_message_is_refused(core: Core) -> None:
    pause = Pause()
    core.agent(ScriptedAdapter(G, [pause, *says("a")], otherwise=echo), queued_turns=1)
    for text in "12":
        await core.send(text, context="c", at_once=True)
    with pytest.raises(Busy):
        await core.send("3", context="c")
    pause.go.set()
    await soon(core.runner.idle())


async def test_133_reject_refuses_the_second(core: Core) -> None:
    pause = Pause()
    core.agent(ScriptedAdapter(G, [pause, *says("a")], otherwise=echo), busy_context="reject")
    await core.send("1", context="c", at_once=True)
    with pytest.raises(Busy):
        await core.send("2", context="c")
    pause.go.set()
    await soon(core.runner.idle())
    assert (await core.list()).total_size == 1


@BOTH
async def test_134_two_first_messages_of_a_context_make_one_thread_and_one_conversation(
    core: Core, ownership: Ownership
) -> None:
    adapter = ScriptedAdapter(ownership, otherwise=echo)
    core.agent(adapter)
    async with asyncio.TaskGroup() as group:
        both = [group.create_task(core.send(text, context="c")) for text in "12"]
    assert [answer(task.result()) for task in both] == ["re 1", "re 2"]
    assert query(core.path, "SELECT count(*) FROM thread") == [(1,)]
    assert adapter.sent[0][0] is None
    if ownership is BR:
        assert adapter.sent[1][0] == f"r-{adapter.requests[0].message.parts[0].text}"
    else:
        assert len(adapter.sent[1][1]) == 3


@pytest.mark.parametrize("ticks", range(12))
@BOTH
async def test_137_of_cancel_and_completion_exactly_one_wins(core: Core, ownership: Ownership, ticks: int) -> None:
    first: Script = [TextDelta("a"), None, None, *says("b", "r1")]
    # At first the turn may not have asked its backend anything.
    adapter = ScriptedAdapter(
        ownership, otherwise=lambda asked: first if asked.message.parts[0].text == "1" else says("c", "r2")
    )
    core.agent(adapter)
    stream = await core.stream("1", context="c")
    for _ in range(ticks):
        await asyncio.sleep(0)
    try:
        told = (await core.cancel("id-0001")).status.state
    except TaskNotCancelable:
        told = TaskState.COMPLETED
    await soon(core.runner.idle())
    task = await core.get("id-0001")
    assert task.status.state is told
    assert query(core.path, "SELECT state, last_event FROM task") == [(told, (await frames(stream))[-1][0])]
    assert query(core.path, "SELECT lease_holder FROM thread") == [(None,)]
    assert query(core.path, "SELECT handle FROM thread") == [
        ("r1" if ownership is BR and told is TaskState.COMPLETED else None,)
    ]
    assert answer(await core.send("2", context="c")) == "c"


async def test_138_contexts_run_beside_each_other_and_reads_see_what_is_committed(core: Core) -> None:
    pauses = {str(number): Pause() for number in range(8)}
    script = lambda request: [TextDelta("a"), pauses[request.context_id], *says("b")]  # noqa: E731
    core.agent(ScriptedAdapter(G, otherwise=script))
    async with asyncio.TaskGroup() as group:
        sending = {context: group.create_task(core.send("hi", context=context)) for context in pauses}
        for pause in pauses.values():
            await soon(pause.reached.wait())
        listed = (await core.list()).tasks
        assert {task.status.state for task in listed} == {TaskState.WORKING}
        assert {answer(await core.get(task.id)) for task in listed} == {"a"}
        for context, pause in reversed(pauses.items()):
            pause.go.set()
            assert answer(await soon(sending[context])) == "ab"


async def test_138_all_subscribers_see_one_order(core: Core) -> None:
    pause = Pause()
    core.agent(ScriptedAdapter(G, [pause, *(TextDelta(f"{n} ") for n in range(50)), CallCompleted()]))
    task = await core.send("hi", at_once=True)
    await soon(pause.reached.wait())
    streams = [await core.subscribe(task.id) for _ in range(5)]
    pause.go.set()
    read = [await frames(stream) for stream in streams]
    assert all(one == read[0] for one in read)
    assert len(read[0]) == 52


# --- M. lists ---


async def test_142_lists_hold_only_the_callers_own(core: Core) -> None:
    core.agent(ScriptedAdapter(G, [CallCompleted(ending=Ending.INPUT_REQUIRED)], otherwise=echo))
    for principal, text in (("ada", "1"), ("bob", "2"), ("ada", "3")):
        await core.send(text, core.call(principal), context="same")
    for principal, own in (("ada", ["U 3", "U 1"]), ("bob", ["U 2"]), ("eve", [])):
        found = await core.list(core.call(principal), context_id="same")
        assert sorted(said(task)[0] for task in found.tasks) == sorted(own)
        assert found.total_size == len(own)
