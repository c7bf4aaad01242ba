"""A backend that fails, end to end: the task gives the reason in the gateway's words, and nothing of the backend's words
reaches a caller."""

import asyncio
import json
import re
import signal
from collections.abc import AsyncGenerator
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import httpx2
import pytest

from gateway.core.failures import TURN_TIMEOUT, UNKNOWN_TOOL
from gateway.foundation.clock import Clock
from gateway.foundation.retry import WINDOW
from gateway.ports.adapter import ErrorClass
from gateway.testing.serving import serve
from tests.a2a_client import A2A, a2a_http, failed, streamed_text, text_of, user_message, why
from tests.emulators.responses_server import ResponsesServer
from tests.emulators.scripts import Call, Conversation, Delay, ErrorEvent, Say, Step
from tests.faults.broken_backends import FAULTS, KEY, WIRES, WORDS, Broken, agent_of, broken_backends
from tests.running import AT_ONCE, StartLocal, child_gateways

_CORRELATION = re.compile(r" \(correlation id ([0-9a-f]{16})\)$")
# A vendor that masks a key still shows its ends.
_CANARIES = (KEY.encode(), KEY[:12].encode(), KEY[-8:].encode(), WORDS.encode(), b"postgres://")


@pytest.fixture
async def broken() -> AsyncGenerator[Broken]:
    async with broken_backends() as backends:
        yield backends


def _leaks(content: bytes) -> list[bytes]:
    return [canary for canary in _CANARIES if canary in content]


def _stored(database: Path) -> bytes:
    """Everything that the database has written, its log included."""
    return b"".join(file.read_bytes() for file in database.parent.glob(f"{database.name}*"))


async def _blocking(http: httpx2.AsyncClient, agent: str, text: str) -> tuple[Any, bytes]:
    """The task of a message over HTTP+JSON, and the answer's bytes."""
    response = await http.post(f"/a2a/{agent}/message:send", json={"message": user_message(text)})
    return response.json()["task"], response.content


@pytest.mark.fault("B1", "B3", "B4", "B5", "B6", "B7", "B13")
@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("name", FAULTS)
async def test_a_backend_that_fails_fails_the_task_in_our_words(
    broken: Broken, start_local: StartLocal, wire: str, name: str
) -> None:
    fault, agent = FAULTS[name], agent_of(wire, name)
    # So much time passes that no failure lies near another: the backend is never left alone.
    seldom = Clock(monotonic=partial(next, count(step=WINDOW)))
    gateway = await start_local(broken.agents, clock=seldom, pace=AT_ONCE)
    async with a2a_http(gateway.url) as http:
        caller = A2A(http, agent)
        async with caller.stream(name) as stream:
            frames = await stream.rest()
        opened, last = frames[0].event["task"], frames[-1].event["statusUpdate"]
        stored = await caller.get(opened["id"])
        listed = await caller.tasks(opened["contextId"])
        async with caller.subscribe(opened["id"], after=0) as replay:
            replayed = await replay.rest()
        again, answer = await _blocking(http, agent, name)

    assert not stream.cut
    assert why(last) == why(stored) == why(again) == fault.told
    assert (streamed_text(frames), text_of(stored), text_of(again)) == (fault.heard, fault.heard, fault.heard)
    assert listed == [
        {key: value for key, value in stored.items() if key != "history"} | {"history": stored["history"]}
    ]
    assert [frame.number for frame in frames] == list(range(len(frames)))
    assert replayed[1:] == frames[1:]
    message = last["status"]["message"]
    found = _CORRELATION.search(message["parts"][0]["text"])
    assert found is not None
    refused = {"refused": "message"} if fault.kind.meaning.refuses_content else {}
    asks = {} if fault.wait is None else {"retryAfter": fault.wait}
    assert message["metadata"] == {"correlationId": found[1], "errorClass": fault.kind, **refused, **asks}
    assert _leaks(bytes(caller.seen) + answer) == []
    assert _leaks(_stored(gateway.database)) == []


@pytest.mark.fault("B3", "B4", "B5", "B6", "B7")
@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("name", ["403", "429", "500", "malformed", "cut in the text", "stalled"])
async def test_after_a_fault_the_next_message_brings_the_one_that_was_not_answered(
    broken: Broken, start_local: StartLocal, wire: str, name: str
) -> None:
    gateway = await start_local(broken.agents, pace=AT_ONCE)
    async with a2a_http(gateway.url) as http:
        caller = A2A(http, agent_of(wire, name))
        failed = await caller.send(name)
        second = await caller.send("go on", failed["contextId"])

    assert (why(failed)[0], text_of(second)) == ("TASK_STATE_FAILED", "all is well")
    *repeated, second_body = broken.servers[wire].requests
    first_body = repeated[0]
    assert repeated == [first_body] * _tries(name)
    said = "input" if wire == "openai-responses" else "messages"
    assert second_body[said][: len(first_body[said])] == first_body[said]
    assert [item["role"] for item in second_body[said]] == ["user", "user"]
    assert "previous_response_id" not in second_body


@pytest.mark.fault("B6", "B13")
@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("name", ["400", "413", "422", "too long", "filtered"])
async def test_after_a_refusal_the_next_message_goes_without_the_refused_one(
    broken: Broken, start_local: StartLocal, wire: str, name: str
) -> None:
    gateway = await start_local(broken.agents, pace=AT_ONCE)
    async with a2a_http(gateway.url) as http:
        caller = A2A(http, wire)
        refused = await caller.send(name)
        second = await caller.send("go on", refused["contextId"])

    assert (why(refused)[0], text_of(second)) == ("TASK_STATE_FAILED", "all is well")
    assert refused["metadata"] == {"refused": "message"}
    assert "refused this message" in refused["status"]["message"]["parts"][0]["text"]
    said = "input" if wire == "openai-responses" else "messages"
    texts = [[name], ["go on"]]
    assert [texts_of(body[said]) for body in broken.servers[wire].requests] == texts


def texts_of(items: list[dict[str, Any]]) -> list[str]:
    """The texts of a request's messages."""
    contents = [item["content"] for item in items]
    return [content if isinstance(content, str) else content[0]["text"] for content in contents]


def _tries(name: str) -> int:
    """A request is made again, also when it is not known what became of it, as long as nothing of its answer was shown."""
    return 3 if name in ("429", "500") else 1


@pytest.mark.fault("B3", "B4", "B6")
async def test_a_fault_of_one_context_leaves_the_others_alone(broken: Broken, start_local: StartLocal) -> None:
    gateway = await start_local(broken.agents, pace=AT_ONCE)
    async with a2a_http(gateway.url) as http:
        caller = A2A(http, "openai-responses")
        texts = ["stalled", "well?", "cut in the text", "well?", "no byte", "well?", "500", "well?"]
        tasks = await asyncio.gather(*(caller.send(text) for text in texts))

    assert [why(task)[0] for task in tasks] == ["TASK_STATE_FAILED", "TASK_STATE_COMPLETED"] * 4


@pytest.mark.fault("B10")
async def test_a_turn_that_goes_on_for_ever_ends_at_its_deadline(start_local: StartLocal) -> None:
    def chatters(_: Conversation) -> Any:
        while True:
            yield Say("and ")
            yield Delay(0.02)

    async with serve(ResponsesServer(chatters).app) as url:
        gateway = await start_local(
            f"endless: {{type: openai-responses, model: m, base_url: '{url}/v1'}}",
            settings="limits: {turn_timeout: 2s}",
        )
        async with a2a_http(gateway.url) as http:
            caller = A2A(http, "endless")
            async with caller.stream("begin") as stream:
                frames = await stream.rest()
            task = await caller.get(frames[0].event["task"]["id"])

    assert why(task) == failed(TURN_TIMEOUT)
    assert text_of(task) == streamed_text(frames)
    assert text_of(task).startswith("and and ")


@pytest.mark.fault("B11")
async def test_a_chain_that_is_lost_in_a_stream_under_200_is_told_as_lost(start_local: StartLocal) -> None:
    def forgets(conversation: Conversation) -> list[Step]:
        previous = conversation.request.get("previous_response_id")
        if previous is None:
            return [Say("hello")]
        # As OGX tells it to a client that asked for a stream.
        return [ErrorEvent("404", f"Response '{previous}' not found.")]

    server = ResponsesServer(forgets)
    async with serve(server.app) as url:
        agent = f"forgetful: {{type: openai-responses, model: m, base_url: '{url}/v1'}}"
        gateway = await start_local(agent, pace=AT_ONCE)
        async with a2a_http(gateway.url) as http:
            caller = A2A(http, "forgetful")
            first = await caller.send("one")
            lost = [await caller.send(text, first["contextId"]) for text in ("two", "three")]

    assert [why(task) for task in lost] == [failed(ErrorClass.HANDLE_NOT_FOUND), failed(ErrorClass.HANDLE_EXPIRED)]
    # The backend had begun before it said so: it is not asked once more, and later messages do not go there at all.
    handles = [request.get("previous_response_id") for request in server.requests]
    assert handles == [None, next(iter(server.stored))]


@pytest.mark.fault("B14")
async def test_a_call_of_a_tool_that_is_not_attached_is_answered_with_the_next_message(
    start_local: StartLocal,
) -> None:
    def calls(conversation: Conversation) -> list[Step]:
        if conversation.text == "call":
            return [Call("get_weather", {"city": "Oslo"}, "call_1"), Call("get_weather", {"city": "Rome"}, "call_2")]
        return [Say(" ".join(conversation.user_texts))]

    server = ResponsesServer(calls)
    async with serve(server.app) as url:
        gateway = await start_local(
            f"calling: {{type: openai-responses, model: m, base_url: '{url}/v1', unknown_tool: fail}}"
        )
        async with a2a_http(gateway.url) as http:
            caller = A2A(http, "calling")
            first = await caller.send("one")
            called = await caller.send("call", first["contextId"])
            third = await caller.send("three", first["contextId"])

    assert why(called) == failed(UNKNOWN_TOOL)
    # The emulator, as the real service, refuses a request that leaves a call without an output.
    assert text_of(third) == "one call three"
    outputs = [
        {"type": "function_call_output", "call_id": call, "output": "Error: This tool is not available."}
        for call in ("call_1", "call_2")
    ]
    assert server.requests[2]["input"][:2] == outputs
    assert [item.get("role") for item in server.requests[2]["input"]] == [None, None, "user"]
    assert server.requests[2]["previous_response_id"] == list(server.stored)[1]


async def test_the_log_of_a_process_tells_each_fault_but_never_the_key(broken: Broken, tmp_path: Path) -> None:
    async with child_gateways(broken.agents, tmp_path) as start:
        child = await start()
        async with a2a_http(child.url) as http:
            cells = [(agent_of(wire, name), name) for wire in WIRES for name in FAULTS]
            tasks = await asyncio.gather(*(A2A(http, agent).send(name) for agent, name in cells))
        await child.kill()

    assert [why(task) for task in tasks] == [FAULTS[name].told for _, name in cells]
    assert KEY.encode() not in child.output
    logged = {
        line["correlation_id"]: (line["event"], line["agent"], line["failure"])
        for line in map(json.loads, re.findall(rb"^\{.*\}$", child.output, re.MULTILINE))
        if "correlation_id" in line
    }
    told = {
        task["status"]["message"]["metadata"]["correlationId"]: ("turn.failed", agent, FAULTS[name].kind)
        for task, (agent, name) in zip(tasks, cells, strict=True)
    }
    assert logged == told


async def test_a_log_that_nobody_reads_any_more_ends_no_turn(broken: Broken, tmp_path: Path) -> None:
    async with child_gateways(broken.agents, tmp_path) as start:
        child = await start()
        child.stop_listening()
        async with a2a_http(child.url) as http:
            tasks = [await A2A(http, "openai-chat").send(text) for text in ("500", "well?", "500", "well?")]
        child.signal(signal.SIGTERM)
        code = await child.ended()

    assert [why(task)[0] for task in tasks] == ["TASK_STATE_FAILED", "TASK_STATE_COMPLETED"] * 2
    assert code == 0
