"""The commands of a turn: stored before they are seen, in one order for all readers."""

import asyncio
from collections.abc import AsyncIterator
from typing import TypeVar

import pytest

from gateway.a2a.errors import InvalidParams, UnsupportedOperation
from gateway.a2a.model import Artifact, Part
from gateway.ledger.tasks import Append
from gateway.ports.adapter import AdapterError, ArtifactReady, CallCompleted, ErrorClass, TextDelta
from gateway.ports.conversation import Ownership
from tests.support.core import Core, answer, frames, logged, numbers, query, soon, streamed
from tests.support.scripted import BR, G, Pause, Script, ScriptedAdapter, says

T = TypeVar("T")
BOTH = pytest.mark.parametrize("ownership", [G, BR], ids=["G", "BR"])


async def following_of(batches: AsyncIterator[T]) -> T:
    return await anext(batches)


async def _watch(core: Core, last: int | None) -> list[tuple[int | None, bytes]]:
    """Nothing, for a subscription that came too late or too early."""
    try:
        stream = await core.subscribe("id-0001", core.call(last=last))
    except (UnsupportedOperation, InvalidParams):  # it has just ended, or the event is not stored yet
        return []
    return await frames(stream)


@pytest.mark.parametrize("broken", [AdapterError(ErrorClass.INTERRUPTED, "cut"), RuntimeError("bug")])
@BOTH
async def test_output_before_a_failure_is_kept_for_the_caller_and_never_shown_to_the_model(
    core: Core, ownership: Ownership, broken: Exception
) -> None:
    adapter = ScriptedAdapter(ownership, [TextDelta("par"), broken], says("b", "r1"))
    core.agent(adapter)
    task = await core.send("1", context="c")
    assert answer(task) == "par"
    await core.send("2", context="c")
    assert adapter.sent[1] == (None, ["U 1", "U 2"])
    assert query(core.path, "SELECT kind, replayable FROM history_item ORDER BY position") == [
        ("user", 1),
        ("assistant", 0),
        ("user", 1),
        ("assistant", 1),
    ]


async def test_the_texts_of_an_artifact_become_one_however_they_came(core: Core) -> None:
    def report(text: str, *, append: bool) -> ArtifactReady:
        return ArtifactReady(Artifact(artifact_id="report", parts=(Part(text=text),)), append=append)

    adapter = ScriptedAdapter(G, [report("a", append=False), None, report("b", append=True), None, *says("see")])
    core.agent(adapter)
    task = await core.send("hi")
    report_, answer_ = task.artifacts or ()
    assert (report_.artifact_id, report_.parts) == ("report", (Part(text="ab"),))
    assert answer_.parts == (Part(text="see"),)
    assert await core.get(task.id) == task


@BOTH
async def test_no_reader_sees_an_event_that_is_not_in_the_database(core: Core, ownership: Ownership) -> None:
    core.agent(
        ScriptedAdapter(ownership, [*(step for n in range(50) for step in (TextDelta(f"{n} "), None)), *says("!")])
    )
    stream = await core.stream("hi", context="c")
    seen = []
    async for batch in stream:
        seen += [frame for frame in batch if frame[0]]
        assert logged(core.path, "id-0001")[: len(seen)] == seen
    await stream.aclose()
    assert logged(core.path, "id-0001") == seen


async def test_events_that_are_not_stored_yet_are_not_shown(core: Core) -> None:
    pause = Pause()
    core.agent(ScriptedAdapter(G, [TextDelta("a"), pause, *says("b")]))
    gate = core.ledger.hold(Append)
    stream = await core.stream("hi", context="c")
    batches = aiter(stream)
    assert numbers(await soon(anext(batches))) == [0]
    await soon(gate.reached.wait())
    async with asyncio.TaskGroup() as group:
        following = group.create_task(following_of(batches))
        reading = group.create_task(core.get("id-0001"))
        watching = group.create_task(core.subscribe("id-0001"))
        await soon(asyncio.wait([following, reading, watching], timeout=0.01))
        assert not following.done()
        assert not reading.done()
        assert not watching.done()
        core.ledger.let_go()
    assert numbers(following.result()) == [1]
    assert answer(reading.result()) == "a"
    pause.go.set()
    assert streamed(await frames(watching.result())) == "ab"
    await stream.aclose()


async def test_subscribers_that_come_at_any_moment_see_every_event_once_and_in_order(core: Core) -> None:
    text = [f"{n} " for n in range(120)]
    script: Script = [step for word in text for step in (TextDelta(word), None)]
    core.agent(ScriptedAdapter(G, [*script, CallCompleted()]))
    async with asyncio.TaskGroup() as group:
        readers = [group.create_task(frames(await core.stream("hi", context="c")))]
        while (work := core.runner.run_of("id-0001")) is not None:
            last = work.live.journal.number // 2
            readers.append(group.create_task(_watch(core, None)))
            readers.append(group.create_task(_watch(core, last)))
            for _ in range(7):
                await asyncio.sleep(0)
    whole = logged(core.path, "id-0001")
    assert len(readers) > 20
    for read in filter(None, (reader.result() for reader in readers)):
        assert streamed(read) == "".join(text)
        rest = read[1:]
        assert rest == whole[len(whole) - len(rest) :]
        assert read[0][0] in {None, len(whole) - len(rest)}
