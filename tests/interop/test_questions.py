"""A real Responses server asks whether it may run a tool of its own MCP server, and gets an answer."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from adapters.openai.responses.adapter import factory
from gateway.a2a.model import Part
from gateway.ports.adapter import Adapter, AdapterEvent, ApprovalAsked, ToolCallReady, ToolResultReady
from gateway.ports.conversation import AssistantItem, CallItem, Item, OutputItem, UserItem
from gateway.testing.adapter_scripts import collect, completed, message, of_type, request, text
from tests.interop.peer_processes import Peer

_REPORT = "Oslo 3C, Rome 18C."
_HELLO = "Hello from aimock, a longer reply so that several chunks are streamed."
WEATHER = UserItem(message("weather"))


@pytest.fixture(params=["backend", "gateway"])
async def adapter(ogx_peer: Peer, mcp_peer: Peer, request: pytest.FixtureRequest) -> AsyncIterator[Adapter]:
    """OGX in front of an MCP server whose tools need an approval; the owner of the history."""
    tool = {"type": "mcp", "server_label": "wx", "server_url": mcp_peer.url, "require_approval": "always"}
    common = {"model": "openai/gpt-4", "base_url": ogx_peer.url, "service_tools": [tool]}
    built = factory.build(factory.settings.model_validate({**common, "history": {"owner": request.param}}))
    yield built
    await built.aclose()


async def _asked(adapter: Adapter) -> tuple[str | None, list[ApprovalAsked]]:
    events = await collect(adapter, request("weather", items=(WEATHER,)))
    questions = of_type(events, ApprovalAsked)
    found = [(asked.name, json.loads(asked.arguments), asked.server) for asked in questions]
    assert found == [("get_weather", {"city": city}, "wx") for city in ("Oslo", "Rome")]
    assert not of_type(events, ToolCallReady)
    assert text(events) == ""
    return completed(events).handle, questions


async def _answer(
    adapter: Adapter, handle: str | None, questions: list[ApprovalAsked], *answers: bool, words: str = ""
) -> list[AdapterEvent]:
    decisions: tuple[Item, ...] = tuple(
        OutputItem(asked.call_id, "" if yes else "not now", approved=yes)
        for asked, yes in zip(questions, answers, strict=False)
    )
    asked = [CallItem(each.call_id, each.name, each.arguments, asking=each.server) for each in questions]
    whole = (WEATHER, *asked[: len(answers)]) if handle is None else ()
    said = (UserItem(message(words)),) if words else ()
    return await collect(adapter, request(words or "weather", items=(*whole, *decisions, *said), handle=handle))


def _ran(events: list[AdapterEvent]) -> list[tuple[str, str | None, Any]]:
    results = {result.call_id: result.output for result in of_type(events, ToolResultReady)}
    return [(call.name, call.server, results[call.call_id]) for call in of_type(events, ToolCallReady) if call.handled]


OSLO, ROME = (("get_weather", "mcp:wx", f"{city}: 3C") for city in ("Oslo", "Rome"))


async def test_what_is_approved_runs_and_the_answer_follows(adapter: Adapter) -> None:
    events = await _answer(adapter, *await _asked(adapter), True, True)
    assert (_ran(events), of_type(events, ApprovalAsked)) == ([OSLO, ROME], [])
    assert text(events) == _REPORT


async def test_what_is_rejected_does_not_run(adapter: Adapter) -> None:
    events = await _answer(adapter, *await _asked(adapter), False, False)
    assert (_ran(events), of_type(events, ApprovalAsked)) == ([], [])
    completed(events)


async def test_of_two_one_may_be_approved_and_one_rejected(adapter: Adapter) -> None:
    events = await _answer(adapter, *await _asked(adapter), False, True)
    assert (_ran(events), of_type(events, ApprovalAsked)) == ([ROME], [])


async def test_a_question_without_an_answer_is_asked_again_under_another_id(adapter: Adapter) -> None:
    """OGX alone lets that pass: OpenAI refuses what does not answer all."""
    handle, questions = await _asked(adapter)
    events = await _answer(adapter, handle, questions, True)
    again = of_type(events, ApprovalAsked)
    assert [json.loads(asked.arguments) for asked in again] == [{"city": "Rome"}]
    assert again[0].call_id not in {asked.call_id for asked in questions}
    assert _ran(events) == [OSLO]


async def test_a_message_instead_of_a_yes_goes_with_the_rejections(adapter: Adapter) -> None:
    handle, questions = await _asked(adapter)
    events = await _answer(adapter, handle, questions, False, False, words="never mind")
    assert (_ran(events), of_type(events, ApprovalAsked)) == ([], [])
    assert text(events) == _HELLO


async def test_a_yes_that_was_heard_is_said_once_where_the_gateway_keeps_the_conversation(adapter: Adapter) -> None:
    """On a chain OGX itself takes an old yes for the same call again; a view without it makes it ask."""
    handle, questions = await _asked(adapter)
    events = await _answer(adapter, handle, questions, True, True)
    if handle is not None:
        later = await collect(adapter, request("weather", items=(WEATHER,), handle=completed(events).handle))
        assert (_ran(later), of_type(later, ApprovalAsked)) == ([OSLO, ROME], [])
        return
    said = [CallItem(each.call_id, each.name, each.arguments, asking=each.server) for each in questions]
    heard = [OutputItem(each.call_id, "", approved=True) for each in questions]
    items = (WEATHER, *said, *heard, AssistantItem((Part(text=_REPORT),)), UserItem(message("weather")))
    later = await collect(adapter, request("weather", items=items))
    assert (_ran(later), len(of_type(later, ApprovalAsked))) == ([], 2)
