"""Streams of a long log: read in pages as their reader takes them, every event once and in order, and with a clear end."""

from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from gateway.a2a.errors import Busy, InvalidParams
from gateway.a2a.wire.dialect import Dialect
from gateway.a2a.wire.v0_3 import http_json, json_rpc
from gateway.engine.fanout import StreamLimits
from gateway.ledger.errors import LedgerUnavailable
from gateway.ledger.events import Frame
from gateway.ledger.port import Ledger
from gateway.ledger.retention import ExpireTasks
from gateway.operations.call import EventStream
from gateway.ports.adapter import CallCompleted, Ending, TextDelta
from tests.support.core import (
    Core,
    FragileLedger,
    answer,
    events,
    frames,
    logged,
    numbers,
    running_core,
    soon,
    states,
    until,
)
from tests.support.scripted import G, Pause, Script, ScriptedAdapter, says

ASKS: Script = [CallCompleted(ending=Ending.INPUT_REQUIRED)]
_PAGE = 64 * 1024
_PIECE = 8 * 1024
_LONG = 40
"""Pieces in about five pages."""


class _Counted:
    """Wraps a ledger: the bytes of each read of a log."""

    _ledger: Ledger

    def __init__(self) -> None:
        self.reads: list[int] = []

    def around(self, ledger: Ledger) -> "_Counted":
        self._ledger = ledger
        return self

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ledger, name)

    async def events(self, *asked: Any) -> tuple[tuple[int, bytes], ...]:
        found = await self._ledger.events(*asked)
        self.reads.append(sum(len(payload) for _, payload in found))
        return found


@pytest.fixture
async def core(tmp_path: Path) -> AsyncGenerator[Core, None]:
    async with running_core(tmp_path / "ledger.db", limits=StreamLimits(bytes=_PAGE)) as core:
        yield core


class _Stored(Pause):
    """Passes when another unit is stored."""

    def __init__(self, ledger: FragileLedger) -> None:
        super().__init__()
        self._ledger = ledger
        self._seen = 0

    async def pass_by(self) -> None:
        await until(lambda: len(self._ledger.units) > self._seen)
        self._seen = len(self._ledger.units)


def pieces(core: Core, count: int) -> list[TextDelta | Pause]:
    """Each is an event in a row of its own."""
    stored = _Stored(core.ledger)
    return [step for number in range(count) for step in (TextDelta(f"{number} ".ljust(_PIECE, "x")), stored)]


async def resumed(core: Core, task: str, last: int = 0) -> EventStream:
    return await core.subscribe(task, core.call(last=last))


async def rest(reading: AsyncIterator[list[Frame]]) -> list[Frame]:
    return [frame for batch in [batch async for batch in reading] for frame in batch]


async def test_a_stream_of_a_long_log_that_nobody_reads_holds_one_page(tmp_path: Path) -> None:
    counted = _Counted()
    async with running_core(tmp_path / "ledger.db") as core:
        core.agent(ScriptedAdapter(G, [*pieces(core, 400), *says("end")]))
        task = await core.send("1")
        core.ledger.wrap(counted.around)
        stream = await resumed(core, task.id)
        first = await soon(anext(aiter(stream)))
        await stream.aclose()
    most = StreamLimits().bytes
    assert sum(len(payload) for _, payload in logged(core.path, task.id)) > 3 * most
    assert most <= sum(counted.reads) < most * 3 // 2
    assert sum(len(payload) for _, payload in first) < most * 3 // 2


async def test_the_next_page_is_read_when_the_last_one_was_taken(core: Core) -> None:
    core.agent(ScriptedAdapter(G, [*pieces(core, _LONG), *says("end")]))
    task = await core.send("1")
    counted = _Counted()
    core.ledger.wrap(counted.around)
    stream = await resumed(core, task.id)
    reading = aiter(stream)
    assert len(counted.reads) == 1
    await soon(anext(reading))
    assert len(counted.reads) == 1
    await soon(anext(reading))
    assert len(counted.reads) == 2
    await stream.aclose()


async def test_a_short_log_is_read_once(core: Core) -> None:
    core.agent(ScriptedAdapter(G, says("a")))
    task = await core.send("1")
    core.ledger.reads.clear()
    read = await frames(await resumed(core, task.id))
    assert numbers(read) == [None, *range(1, len(read))]
    assert core.ledger.reads.count("events") == 1
    assert "latest_events" not in core.ledger.reads


@pytest.mark.parametrize("last", [0, 3, _LONG - 3])
async def test_every_event_of_an_ended_task_comes_once_and_in_order(core: Core, last: int) -> None:
    core.agent(ScriptedAdapter(G, [*pieces(core, _LONG), *says("end")]))
    task = await core.send("1")
    read = await frames(await resumed(core, task.id, last))
    assert read[1:] == logged(core.path, task.id)[last:]
    [first] = events(read[:1])
    assert first.task is not None
    assert len(answer(first.task)) == last * _PIECE


@pytest.mark.parametrize("elsewhere", [False, True], ids=["here", "in another process"])
async def test_every_event_of_a_running_task_comes_once_and_in_order(
    core: Core, tmp_path: Path, elsewhere: bool
) -> None:
    """Far more comes while its reader pauses than may wait for one."""
    one, two = Pause(), Pause()
    script: Script = [*pieces(core, _LONG), one, *pieces(core, _LONG), two, *says("end")]
    core.agent(ScriptedAdapter(G, script))
    async with running_core(tmp_path / "ledger.db", prefix="two", limits=StreamLimits(bytes=_PAGE)) as other:
        other.agent(ScriptedAdapter(G))
        task = await core.send("1", at_once=True)
        await soon(one.reached.wait())
        stream = await resumed(other if elsewhere else core, task.id, 1)
        reading = aiter(stream)
        read = await soon(anext(reading))
        one.go.set()
        await soon(two.reached.wait())
        read += await soon(anext(reading))
        two.go.set()
        read += await soon(rest(reading))
        await stream.aclose()
    assert numbers(read) == [None, *range(2, len(logged(core.path, task.id)) + 1)]
    assert read[1:] == logged(core.path, task.id)[1:]


async def test_a_stream_that_has_caught_up_is_told_of_events_by_the_process_itself(core: Core) -> None:
    pause, other = Pause(), Pause()
    core.agent(ScriptedAdapter(G, [*pieces(core, _LONG), pause, TextDelta("a"), other, *says("end")]))
    task = await core.send("1", at_once=True)
    await soon(pause.reached.wait())
    stream = await resumed(core, task.id)
    reading = aiter(stream)
    read: list[Frame] = []
    while numbers(read)[-1:] != [len(logged(core.path, task.id))]:
        read += await soon(anext(reading))
    pause.go.set()
    read += await soon(anext(reading))
    await soon(other.reached.wait())
    other.go.set()
    read += await soon(rest(reading))
    await stream.aclose()
    assert read[1:] == logged(core.path, task.id)


async def test_a_stream_that_ends_with_its_turn_replays_the_turns_before_it(core: Core) -> None:
    asks: Script = [*pieces(core, _LONG), CallCompleted(ending=Ending.INPUT_REQUIRED)]
    core.agent(ScriptedAdapter(G, asks, asks))
    task = await core.send("1")
    await core.send("2", task=task.id)
    read = await frames(await core.subscribe(task.id, replace(core.call(last=0), version="0.3")))
    assert read[1:] == logged(core.path, task.id)


@pytest.mark.parametrize(
    ("dialect", "update"),
    [(json_rpc.DIALECT, None), (http_json.DIALECT, "statusUpdate")],
    ids=["JSON-RPC", "HTTP+JSON"],
)
@pytest.mark.parametrize("answers", [says("done"), ASKS], ids=["and the task has ended", "and the task asks again"])
async def test_a_question_that_was_answered_is_not_final_for_a_client_of_0_3(
    core: Core, answers: Script, dialect: Dialect, update: str | None
) -> None:
    core.agent(ScriptedAdapter(G, ASKS, answers))
    task = await core.send("1")
    await core.send("2", task=task.id)
    stream = await core.subscribe(task.id, replace(core.call(last=0), version="0.3"))
    event = dialect.translation(stream.may_end_at)
    assert event is not None
    told = [msgspec.json.decode(event(number, payload)) for number, payload in await frames(stream)]
    finals = [(one[update] if update and update in one else one).get("final", False) for one in told]
    assert finals == [False] * (len(told) - 1) + [True]


async def test_a_log_that_is_deleted_between_two_pages_ends_its_stream_with_an_error(core: Core) -> None:
    core.agent(ScriptedAdapter(G, [*pieces(core, _LONG), *says("end")]))
    task = await core.send("1")
    stream = await resumed(core, task.id)
    reading = aiter(stream)
    read = await soon(anext(reading))
    await core.ledger.commit(ExpireTasks((task.id,), records=False))
    with pytest.raises(Busy, match="deleted"):
        await soon(anext(reading))
    await stream.aclose()
    assert not core.runner.log_tail.streams
    [number] = numbers(read[-1:])
    again = await frames(await resumed(core, task.id, number or 0))
    assert states(again) == ["COMPLETED"]


async def test_a_log_that_is_deleted_before_the_event_to_resume_from_is_reached_gives_the_result(core: Core) -> None:
    core.agent(ScriptedAdapter(G, [*pieces(core, _LONG), *says("end")]))
    task = await core.send("1")
    last = len(logged(core.path, task.id)) - 1
    first = await core.ledger.events(task.id, 0, _PAGE)
    await core.ledger.commit(ExpireTasks((task.id,), records=False))
    core.ledger.answer_read("events", first)
    read = await frames(await resumed(core, task.id, last))
    assert (states(read), len(read)) == (["COMPLETED"], 1)


async def test_an_event_beyond_a_long_log_cannot_be_resumed_from(core: Core) -> None:
    core.agent(ScriptedAdapter(G, [*pieces(core, _LONG), *says("end")]))
    task = await core.send("1")
    latest = len(logged(core.path, task.id))
    with pytest.raises(InvalidParams, match=f"{latest + 1} is beyond the task's last event, {latest}"):
        await resumed(core, task.id, latest + 1)
    assert core.fanout.streams == 0


async def test_a_page_that_cannot_be_read_ends_its_stream_with_an_error(core: Core) -> None:
    core.agent(ScriptedAdapter(G, [*pieces(core, _LONG), *says("end")]))
    task = await core.send("1")
    stream = await resumed(core, task.id)
    reading = aiter(stream)
    await soon(anext(reading))
    core.ledger.fail_reads("events")
    with pytest.raises(LedgerUnavailable):
        await soon(anext(reading))
    await stream.aclose()
