"""Agents whose adapter takes no tap: recorded and replayed by the events of the port."""

import asyncio
from contextlib import aclosing
from pathlib import Path

import msgspec
import pytest

from gateway.foundation.clock import Clock
from gateway.ports.adapter import (
    Adapter,
    AdapterError,
    AdapterEvent,
    CallCompleted,
    CallStarted,
    ErrorClass,
    ServiceRequest,
    TextDelta,
    ToolCallReady,
)
from gateway.ports.capabilities import CanFetch, CanNameHandle
from gateway.ports.wire import End
from gateway.recording.agents import tapped_agent
from gateway.recording.player import Replay
from gateway.recording.recorder import Recording
from gateway.recording.recordings import Recordings
from gateway.testing.adapter_scripts import request
from tests.gateway.recording.support import at
from tests.support.scripted import BR, Pause, Script, ScriptedAdapter

EVENTS: list[AdapterEvent] = [
    CallStarted("h"),
    TextDelta("It is\n"),
    ToolCallReady("c", "look", '{"a": 1}'),
    CallCompleted("h", usage={"input_tokens": 3}),
]


async def events_of(adapter: Adapter, asked: ServiceRequest) -> list[AdapterEvent]:
    async with aclosing(adapter.call(asked)) as events:
        return [event async for event in events]


async def recorded(folder: Path, script: Script) -> list[AdapterEvent]:
    with at(agent="mine"), Recording(folder, Clock()) as recording:
        return await events_of(tapped_agent(ScriptedAdapter(BR, script), "mine", recording.tap("mine")), request("Hi"))


def replayed(folder: Path) -> Adapter:
    return tapped_agent(ScriptedAdapter(BR), "mine", Replay(folder, 0).tap("mine"))


async def test_a_call_is_replayed_without_the_agent(tmp_path: Path) -> None:
    with at(agent="mine"):
        assert await recorded(tmp_path, EVENTS) == EVENTS
        assert await events_of(replayed(tmp_path), request("Hi")) == EVENTS


async def test_a_failure_is_the_same_failure(tmp_path: Path) -> None:
    failure = AdapterError(ErrorClass.RATE_LIMITED, "too much", retry_after=2.5)
    with at(agent="mine"):
        with pytest.raises(AdapterError):
            await recorded(tmp_path, [TextDelta("a"), failure])
        with pytest.raises(AdapterError) as caught:
            await events_of(replayed(tmp_path), request("Hi"))
    assert (caught.value.kind, caught.value.detail, caught.value.retry_after) == (failure.kind, "too much", 2.5)


async def test_another_message_is_missing(tmp_path: Path) -> None:
    with at(agent="mine"):
        await recorded(tmp_path, EVENTS)
        with pytest.raises(AdapterError) as caught:
            await events_of(replayed(tmp_path), request("Hello"))
    assert caught.value.kind is ErrorClass.REPLAY_MISSING


async def test_a_call_that_was_cancelled_waits_to_be_cancelled(tmp_path: Path) -> None:
    pause = Pause()
    with at(agent="mine"):
        adapter = ScriptedAdapter(BR, [TextDelta("a"), pause])
        with Recording(tmp_path, Clock()) as recording:
            tapped = tapped_agent(adapter, "mine", recording.tap("mine"))
            reading = asyncio.get_running_loop().create_task(events_of(tapped, request("Hi")))
            await adapter.paused.wait()
            reading.cancel()
            await asyncio.wait({reading})
        [exchange] = Recordings(tmp_path).all()
        assert exchange.end.how is End.CANCELLED
        async with aclosing(replayed(tmp_path).call(request("Hi"))) as events:
            assert await anext(events) == TextDelta("a")
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(anext(events), 0.01)


async def test_an_adapter_keeps_its_abilities_where_it_is_recorded(tmp_path: Path) -> None:
    class Able(ScriptedAdapter):
        async def fetch(self, call: object) -> str:
            return "found"

        def named_handle(self, message: object) -> str:
            return "h"

    with Recording(tmp_path, Clock()) as recording:
        adapter = tapped_agent(Able(BR, EVENTS), "mine", recording.tap("mine"))
        assert isinstance(adapter, CanFetch)
        assert await adapter.fetch(msgspec.UNSET) == "found"  # type: ignore[arg-type,comparison-overlap]
        with at(agent="mine"):
            await events_of(adapter, request("Hi"))
    again = tapped_agent(Able(BR), "mine", Replay(tmp_path, 0).tap("mine"))
    assert isinstance(again, CanNameHandle)
    assert not isinstance(again, CanFetch)
    assert not isinstance(replayed(tmp_path), CanNameHandle)


async def test_an_event_that_was_spoilt_by_hand_breaks_the_contract(tmp_path: Path) -> None:
    with at(agent="mine"):
        await recorded(tmp_path, EVENTS)
        file = tmp_path / "mine" / "c01" / "0001.yaml"
        file.write_text(file.read_text().replace("TextDelta", "TextDelter"))
        with pytest.raises(AdapterError, match="TextDelter"):
            await events_of(replayed(tmp_path), request("Hi"))


async def test_the_adapter_is_closed(tmp_path: Path) -> None:
    adapter = ScriptedAdapter(BR)
    with Recording(tmp_path, Clock()) as recording:
        await tapped_agent(adapter, "mine", recording.tap("mine")).aclose()
    assert adapter.closed
