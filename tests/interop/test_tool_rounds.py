"""Rounds of tools that the gateway runs, with real servers on both OpenAI wires, one call of an adapter at a time."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from adapters.openai.chat import adapter as openai_chat
from adapters.openai.responses import adapter as openai_responses
from gateway.a2a.model import Json, Task
from gateway.core.agents import Agent
from gateway.ports.adapter import Adapter, AdapterEvent, AdapterFactory, ToolCallReady
from gateway.ports.conversation import CallItem, Item, OutputItem, StorageOwner, UserItem
from gateway.ports.tools import ToolDeclaration
from gateway.testing.adapter_scripts import collect, completed, message, of_type, request, request_with_outputs, text
from tests.interop.peer_processes import Aimock, Peer
from tests.interop.recording_proxy import RecordingProxy
from tests.interop.responses_bodies import output, steps, user
from tests.support.core import CARD, running_core
from tests.support.core import answer as shown
from tests.support.scripted_tools import ScriptedTools

_OBJECT: dict[str, Json] = {"type": "object", "properties": {}}
TOOLS = tuple(ToolDeclaration(name, f"The {name}.", _OBJECT) for name in ("route", "day"))
TRIP = UserItem(message("trip"))


@asynccontextmanager
async def _built(factory: AdapterFactory[Any], url: str, **values: Any) -> AsyncIterator[Adapter]:
    adapter = factory.build(factory.settings.model_validate({"base_url": url, "model": "gpt-4", **values}))
    try:
        yield adapter
    finally:
        await adapter.aclose()


async def _rounds(adapter: Adapter) -> list[list[AdapterEvent]]:
    """What each call of the turn gave, until one has no calls."""
    asked = request("trip", items=(TRIP,), tools=TOOLS)
    given = [await collect(adapter, asked)]
    while calls := of_type(given[-1], ToolCallReady):
        answers = [f"{call.name} of {call.arguments}" for call in calls]
        asked = request_with_outputs(adapter, given[-1], answers, before=asked.items, tools=TOOLS)
        given.append(await collect(adapter, asked))
    return given


def _calls(events: list[AdapterEvent]) -> list[tuple[str, str, Any, bool | None]]:
    calls = of_type(events, ToolCallReady)
    return [(call.call_id, call.name, json.loads(call.arguments), call.handled) for call in calls]


def _check(given: list[list[AdapterEvent]]) -> None:
    assert [_calls(events) for events in given] == [
        [("call_t1", "route", {"from": "Oslo"}, None), ("call_t2", "route", {"from": "Rome"}, None)],
        [("call_t3", "day", {}, None)],
        [],
    ]
    assert [text(events) for events in given] == ["", "And when?", "By train, on Monday."]


FIRST, SECOND = ("call_t1", 'route of {"from":"Oslo"}'), ("call_t2", 'route of {"from":"Rome"}')
THIRD = ("call_t3", "day of {}")


async def test_rounds_on_chat_completions(aimock_peer: Aimock) -> None:
    async with _built(openai_chat.factory, aimock_peer.url) as adapter:
        _check(await _rounds(adapter))
    last = aimock_peer.journal()[-1]["body"]
    assert [tool["function"]["name"] for tool in last["tools"]] == ["route", "day"]
    roles = [message["role"] for message in last["messages"]]
    assert roles == ["user", "assistant", "tool", "tool", "assistant", "tool"]
    answers = [(each["tool_call_id"], each["content"]) for each in last["messages"] if each["role"] == "tool"]
    assert answers == [FIRST, SECOND, THIRD]


async def test_rounds_on_a_chain_send_outputs_alone(ogx_proxy: RecordingProxy) -> None:
    async with _built(openai_responses.factory, ogx_proxy.url, model="openai/gpt-4") as adapter:
        given = await _rounds(adapter)
    _check(given)
    ids = [completed(events).handle for events in given]
    assert steps(ogx_proxy) == [
        (None, [user("trip")]),
        (ids[0], [output(*FIRST), output(*SECOND)]),
        (ids[1], [output(*THIRD)]),
    ]
    tools = [[tool["name"] for tool in exchange.body["tools"]] for exchange in ogx_proxy.exchanges]
    assert tools == [["route", "day"]] * 3


async def test_rounds_with_the_whole_conversation_on_responses(ogx_proxy: RecordingProxy, aimock_peer: Aimock) -> None:
    values = {"model": "openai/gpt-4", "history": {"owner": "gateway"}}
    async with _built(openai_responses.factory, ogx_proxy.url, **values) as adapter:
        _check(await _rounds(adapter))
    kinds = [item["type"] for item in ogx_proxy.exchanges[-1].body["input"]]
    calls, outputs = ["function_call"], ["function_call_output"]
    assert kinds == ["message", *calls * 2, *outputs * 2, *calls, *outputs]
    told = aimock_peer.journal()[-1]["body"]["messages"]
    assert [each["tool_call_id"] for each in told if each["role"] == "tool"] == ["call_t1", "call_t2", "call_t3"]


async def test_rounds_in_a_conversation(ogx_peer: Peer) -> None:
    values = {"model": "openai/gpt-4", "conversation": True}
    async with _built(openai_responses.factory, ogx_peer.url, **values) as adapter:
        given = await _rounds(adapter)
        _check(given)
        assert len({completed(events).handle for events in given}) == 1
        await adapter.forget(completed(given[0]).handle)  # type: ignore[attr-defined]


@pytest.mark.parametrize("owner", list(StorageOwner))
async def test_outputs_and_a_message_go_together_and_a_last_call_needs_no_tools(
    ogx_proxy: RecordingProxy, owner: StorageOwner
) -> None:
    values = {"model": "openai/gpt-4", "history": {"owner": str(owner)}}
    async with _built(openai_responses.factory, ogx_proxy.url, **values) as adapter:
        first = await collect(adapter, request("trip", items=(TRIP,), tools=TOOLS))
        kept = owner is StorageOwner.BACKEND
        calls = [CallItem(call.call_id, call.name, call.arguments) for call in of_type(first, ToolCallReady)]
        outputs = [OutputItem(call.call_id, "not run") for call in calls]
        whole: tuple[Item, ...] = () if kept else (TRIP, *calls)
        items = (*whole, *outputs, UserItem(message("Never mind")))
        events = await collect(adapter, request("Never mind", items=items, handle=completed(first).handle))
    assert text(events) == "Hello from aimock, a longer reply so that several chunks are streamed."
    assert "tools" not in ogx_proxy.exchanges[-1].body


# --- the core's own loop ----------------------------------------------------------------------------------------------


async def _turn(path: Path, adapter: Adapter) -> tuple[Task, list[str]]:
    """A whole turn, and the tools that ran in it."""
    box = ScriptedTools({"route": {"hours": 7}, "day": "Monday"})
    async with running_core(path) as core:
        core.default = Agent(name="travel", card=CARD, adapter=adapter, toolset=box)
        core.agents.append(core.default)
        return await core.send("trip"), box.ran


@pytest.mark.parametrize("values", [{}, {"history": {"owner": "gateway"}}, {"conversation": True}], ids=str)
async def test_a_turn_with_rounds_ends_with_its_answer_on_responses(
    ogx_peer: Peer, tmp_path: Path, values: dict[str, Any]
) -> None:
    async with _built(openai_responses.factory, ogx_peer.url, model="openai/gpt-4", **values) as adapter:
        task, ran = await _turn(tmp_path / "ledger.db", adapter)
    assert (shown(task), sorted(ran)) == ("And when?\n\nBy train, on Monday.", ["day", "route", "route"])


async def test_a_turn_with_rounds_ends_with_its_answer_on_chat_completions(aimock_peer: Aimock, tmp_path: Path) -> None:
    async with _built(openai_chat.factory, aimock_peer.url) as adapter:
        task, ran = await _turn(tmp_path / "ledger.db", adapter)
    assert (shown(task), sorted(ran)) == ("And when?\n\nBy train, on Monday.", ["day", "route", "route"])
    answers = [each["content"] for each in aimock_peer.journal()[-1]["body"]["messages"] if each["role"] == "tool"]
    assert answers == ['{"hours":7}', '{"hours":7}', "Monday"]
