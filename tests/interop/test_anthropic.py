"""The gateway in front of foreign servers of the Messages API: aimock, llmock, and OGX over aimock."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from adapters.anthropic.adapter import factory
from gateway.a2a.model import Json
from gateway.ports.adapter import Adapter, AdapterError, AdapterEvent, ErrorClass, ToolCallReady
from gateway.ports.capabilities import CanProbe, ProbeReport
from gateway.ports.conversation import UserItem
from gateway.ports.tools import ToolDeclaration
from gateway.testing.adapter_scripts import collect, message, of_type, request, request_with_outputs, text
from tests.a2a_client import A2A, COMPLETED, a2a_http, failed, streamed_text, text_of, why
from tests.adapters.anthropic.anthropic_support import unmarked
from tests.anthropic_types import violations
from tests.interop.peer_processes import Aimock, Llmock, Peer
from tests.running import StartLocal

_HELLO = "Hello from aimock, a longer reply so that several chunks are streamed."
_OBJECT: dict[str, Json] = {"type": "object", "properties": {}}
_TOOLS = tuple(ToolDeclaration(name, f"The {name}.", _OBJECT) for name in ("route", "day", "get_weather"))
_PEERS = {"aimock": "gpt-4", "ogx": "openai/gpt-4"}


@pytest.fixture(params=_PEERS)
def peer(request: pytest.FixtureRequest) -> tuple[str, str]:
    """Address and model of each."""
    found: Peer = request.getfixturevalue(f"{request.param}_peer")
    return found.origin, _PEERS[request.param]


def _agent(origin: str, name: str = "gpt-4", more: str = "unknown_tool: error_result") -> str:
    return f"claude: {{type: anthropic, model: '{name}', base_url: '{origin}', instructions: Be brief., {more}}}"


@asynccontextmanager
async def _built(origin: str, name: str, **values: Any) -> AsyncIterator[Adapter]:
    adapter = factory.build(factory.settings.model_validate({"base_url": origin, "model": name, **values}))
    try:
        yield adapter
    finally:
        await adapter.aclose()


# --- conversations ----------------------------------------------------------------------------------------------------


async def test_each_request_brings_the_whole_conversation(
    peer: tuple[str, str], aimock_peer: Aimock, start_local: StartLocal
) -> None:
    gateway = await start_local(_agent(*peer))
    async with a2a_http(gateway.url) as http:
        claude = A2A(http, "claude")
        first = await claude.send("one")
        async with claude.stream("two", first["contextId"]) as stream:
            frames = await stream.rest()
        third = await claude.send("three", first["contextId"])

    assert (text_of(first), streamed_text(frames), text_of(third)) == (_HELLO, _HELLO, _HELLO)
    # aimock shows a request in the form of Chat Completions.
    said = [(m["role"], m["content"]) for m in aimock_peer.journal()[-1]["body"]["messages"]]
    told = [("user", "one"), ("assistant", _HELLO), ("user", "two"), ("assistant", _HELLO), ("user", "three")]
    assert said == [("system", "Be brief."), *told]


async def test_messages_at_once_run_one_after_another_and_other_contexts_beside_them(
    peer: tuple[str, str], start_local: StartLocal
) -> None:
    gateway = await start_local(_agent(*peer))
    async with a2a_http(gateway.url) as http:
        claude = A2A(http, "claude")
        context = (await claude.send("first"))["contextId"]
        tasks = await asyncio.gather(*(claude.send(words, context) for words in ("slow", "two", "three")))
        elsewhere = await claude.send("four")
    assert [why(task) for task in (*tasks, elsewhere)] == [COMPLETED] * 4


async def test_rounds_of_parallel_calls_pair(peer: tuple[str, str]) -> None:
    """OGX begins the block of a second call before that of the first has ended."""
    origin, name = peer
    async with _built(origin, name) as adapter:
        asked = request("trip", items=(UserItem(message("trip")),), tools=_TOOLS)
        given: list[list[AdapterEvent]] = [await collect(adapter, asked)]
        while calls := of_type(given[-1], ToolCallReady):
            answers = [f"{call.name} of {call.arguments}" for call in calls]
            asked = request_with_outputs(adapter, given[-1], answers, before=asked.items, tools=_TOOLS)
            given.append(await collect(adapter, asked))
    made = [[(c.call_id, c.name, json.loads(c.arguments)) for c in of_type(events, ToolCallReady)] for events in given]
    assert made == [
        [("call_t1", "route", {"from": "Oslo"}), ("call_t2", "route", {"from": "Rome"})],
        [("call_t3", "day", {})],
        [],
    ]
    assert [text(events) for events in given] == ["", "And when?", "By train, on Monday."]


async def test_a_tool_that_is_not_attached_fails_the_task_and_its_calls_are_answered(
    peer: tuple[str, str], start_local: StartLocal
) -> None:
    gateway = await start_local(_agent(*peer, more="unknown_tool: fail"))
    async with a2a_http(gateway.url) as http:
        claude = A2A(http, "claude")
        asked = await claude.send("weather")
        second = await claude.send("two", asked["contextId"])
    assert (why(asked)[0], text_of(second)) == ("TASK_STATE_FAILED", _HELLO)


async def test_a_rate_limit_fails_the_task_and_is_asked_about_again(
    peer: tuple[str, str], start_local: StartLocal
) -> None:
    gateway = await start_local(_agent(*peer))
    async with a2a_http(gateway.url) as http:
        claude = A2A(http, "claude")
        limited = await claude.send("limit")
        elsewhere = await claude.send("two")
    assert (limited["status"]["message"]["metadata"]["errorClass"], text_of(elsewhere)) == ("rate-limited", _HELLO)


async def test_text_arrives_while_the_model_still_writes_and_a_cancel_ends_it(
    peer: tuple[str, str], start_local: StartLocal
) -> None:
    gateway = await start_local(_agent(*peer))
    async with a2a_http(gateway.url) as http:
        claude = A2A(http, "claude")
        async with claude.stream("slow") as stream:
            early = list(await stream.read(3))
            task = early[0].event["task"]
            running = await claude.get(task["id"])
            canceled = await claude.call("CancelTask", id=task["id"])
        second = await claude.send("two", task["contextId"])
    assert running["status"]["state"] == "TASK_STATE_WORKING"
    assert canceled["status"]["state"] == "TASK_STATE_CANCELED"
    assert text_of(second) == _HELLO


async def test_signed_thinking_goes_back_as_aimock_has_sent_it(aimock_peer: Aimock, start_local: StartLocal) -> None:
    gateway = await start_local(_agent(aimock_peer.origin, more="thinking: {type: enabled, budget_tokens: 1024}"))
    async with a2a_http(gateway.url) as http:
        claude = A2A(http, "claude")
        async with claude.stream("think") as stream:
            frames = await stream.rest()
        second = await claude.send("two", frames[0].event["task"]["contextId"])
    thoughts = [
        part["text"]
        for frame in frames
        for part in frame.event.get("statusUpdate", {}).get("status", {}).get("message", {}).get("parts", ())
    ]
    assert thoughts == ["Let me think step by step about it."]
    assert (streamed_text(frames), text_of(second)) == ("Thought answer.", _HELLO)


async def test_bodies_are_those_of_the_vendors_types(aimock_peer: Aimock) -> None:
    """What no journal shows: the request itself, as this adapter makes it for a server that it does not know."""
    async with _built(aimock_peer.origin, "gpt-4", thinking={"type": "adaptive"}) as adapter:
        first = await collect(adapter, request("weather", tools=_TOOLS))
        asked = request_with_outputs(
            adapter, first, ["3C", "18C"], before=(UserItem(message("weather")),), tools=_TOOLS
        )
        body = adapter._body.of(asked)  # type: ignore[attr-defined]
    assert violations("", body) == []
    assert [m["role"] for m in unmarked(body["messages"])] == ["user", "assistant", "user"]


# --- faults -----------------------------------------------------------------------------------------------------------

_FAULTS: dict[str, tuple[dict[str, Any], ErrorClass]] = {
    "truncated": ({"type": "stream_fault", "kind": "truncate", "after_chunks": 4}, ErrorClass.INTERRUPTED),
    "disconnected": ({"type": "stream_fault", "kind": "disconnect", "after_chunks": 4}, ErrorClass.INTERRUPTED),
    "stalled": ({"type": "stream_fault", "kind": "stall", "after_chunks": 4}, ErrorClass.TIMED_OUT),
    "malformed": ({"type": "stream_fault", "kind": "malformed", "after_chunks": 4}, ErrorClass.CONTRACT_BROKEN),
    "rate limit": ({"type": "fail", "status": 429, "retry_after": 3, "times": 1}, ErrorClass.RATE_LIMITED),
    "overloaded": ({"type": "fail", "status": 529, "times": 1}, ErrorClass.RATE_LIMITED),
    "server error": ({"type": "fail", "status": 500, "times": 1}, ErrorClass.BACKEND_FAILED),
    "unauthorised": ({"type": "fail", "status": 401, "times": 1}, ErrorClass.UNAUTHORISED),
}


@pytest.mark.parametrize("fault", _FAULTS)
async def test_a_fault_is_outlived_or_fails_the_task_for_its_reason_and_the_next_message_works(
    llmock_peer: Llmock, start_local: StartLocal, fault: str
) -> None:
    behaviour, kind = _FAULTS[fault]
    origin = f"{llmock_peer.origin}/anthropic"
    gateway = await start_local(_agent(origin, "claude-opus-4-6", "timeouts: {first_byte: 30s, between_bytes: 300ms}"))
    llmock_peer.play(behaviour)
    async with a2a_http(gateway.url) as http:
        claude = A2A(http, "claude")
        first = await claude.send("hi")
        verdict = llmock_peer.verdict()
        second = await claude.send("again", first["contextId"])

    outlived = kind is ErrorClass.RATE_LIMITED or fault == "server error"
    assert why(first) == (COMPLETED if outlived else failed(kind))
    assert why(second) == COMPLETED
    assert verdict["faults_injected"] == 1
    errors = {finding["code"] for finding in verdict["findings"] if finding["severity"] == "error"}
    # It takes every client that does not repeat a truncated stream for one that was content with it; ours failed.
    assert errors == ({"truncated_stream_accepted"} if fault == "truncated" and not outlived else set())


# --- before the first use ---------------------------------------------------------------------------------------------


async def _probed(origin: str, name: str) -> ProbeReport:
    async with _built(origin, name) as adapter:
        assert isinstance(adapter, CanProbe)
        return await adapter.probe()


async def test_a_probe_finds_the_model_of_each(peer: tuple[str, str], llmock_peer: Llmock) -> None:
    assert await _probed(*peer) == ProbeReport(model=True, streams=True)
    assert await _probed(f"{llmock_peer.origin}/anthropic", "claude-opus-4-6") == ProbeReport(model=True, streams=True)


async def test_a_probe_of_a_model_that_ogx_does_not_have_fails(ogx_peer: Peer) -> None:
    with pytest.raises(AdapterError) as caught:
        await _probed(ogx_peer.origin, "nope/nope")
    assert caught.value.kind is ErrorClass.NOT_SERVED
