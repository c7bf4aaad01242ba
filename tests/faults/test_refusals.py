"""Backends that refuse a request for what it carries, on each wire and with each owner of the conversation. Like the real
services, the emulators also refuse a request that leaves a tool call without its output."""

import json
from collections.abc import AsyncGenerator, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

import httpx2
import pytest

from gateway.ports.adapter import ErrorClass
from gateway.testing.serving import serve
from tests.a2a_client import A2A, COMPLETED, a2a_http, failed, text_of, why
from tests.emulators.anthropic import MessagesServer
from tests.emulators.chat import ChatServer
from tests.emulators.responses_server import ResponsesServer
from tests.emulators.scripts import Call, Conversation, Json, Say, Status, Step
from tests.emulators.server import Emulator
from tests.running import AT_ONCE, StartLocal

POISON = "arsenic"
"""A word with which a request is refused, in a message or in the output of a tool."""

AGENTS = {
    "chained": "type: openai-responses, base_url: 'RESPONSES/v1'",
    "conversed": "type: openai-responses, base_url: 'RESPONSES/v1', conversation: true",
    "kept": "type: openai-responses, base_url: 'RESPONSES/v1', history: {owner: gateway}",
    "chat": "type: openai-chat, base_url: 'CHAT/v1'",
    "messages": "type: anthropic, base_url: 'MESSAGES'",
}
EACH = pytest.mark.parametrize("agent", AGENTS)
REVERTIBLE = pytest.mark.parametrize("agent", [name for name in AGENTS if name != "conversed"])


@dataclass
class Services:
    """`down`: they answer no request. `takes_outputs`: they take the outputs of tools at all."""

    down: bool = False
    takes_outputs: bool = True
    urls: dict[str, str] = field(default_factory=dict)
    servers: list[Emulator] = field(default_factory=list)

    def script(self, conversation: Conversation) -> Iterator[Step]:
        outputs = conversation.tool_outputs.values()
        if self.down:
            yield Status(401, {"error": {"message": "not now"}})
        elif POISON in json.dumps(conversation.items):
            yield Status(400, {"error": {"message": f"no {POISON}", "type": "invalid_request_error", "code": None}})
        elif conversation.text.startswith("fetch ") and not outputs:
            yield Call("fetch", {"what": conversation.text.removeprefix("fetch ")}, "call_1")
        elif not self.takes_outputs and any(_is_output(item) for item in conversation.items):
            yield Status(422, {"error": {"message": "no outputs today"}})
        else:
            yield Say(" | ".join([*conversation.user_texts, *outputs]))

    @property
    def requests(self) -> list[Json]:
        return [request for server in self.servers for request in server.requests]


def _is_output(item: Json) -> bool:
    return item.get("type") == "function_call_output" or item.get("role") == "tool"


@pytest.fixture
async def services() -> AsyncGenerator[Services]:
    world = Services()
    world.servers = [ResponsesServer(world.script), ChatServer(world.script), MessagesServer(world.script)]
    async with AsyncExitStack() as stack:
        for name, server in zip(("RESPONSES", "CHAT", "MESSAGES"), world.servers, strict=True):
            world.urls[name] = await stack.enter_async_context(serve(server.app))
        yield world


@pytest.fixture
async def http(services: Services, start_local: StartLocal, tmp_path: Path) -> AsyncGenerator[httpx2.AsyncClient]:
    (tmp_path / "box.py").write_text(f"def fetch(what: str) -> str:\n    return what.replace('a', '{POISON}')\n")
    agents = "".join(f"{name}: {{model: m, tools: [box], {settings}}}\n" for name, settings in AGENTS.items())
    for name, url in services.urls.items():
        agents = agents.replace(name, url)
    gateway = await start_local(agents, settings="tools: {box: {type: python, ref: './box.py:fetch'}}", pace=AT_ONCE)
    async with a2a_http(gateway.url) as client:
        yield client


@EACH
@pytest.mark.fault("B6", "B13")
async def test_a_refused_message_is_not_sent_again(services: Services, http: httpx2.AsyncClient, agent: str) -> None:
    caller = A2A(http, agent)
    first = await caller.send("one")
    refused = await caller.send(f"two {POISON}", first["contextId"])
    third = await caller.send("three", first["contextId"])
    fourth = await caller.send("four", first["contextId"])

    assert why(refused) == failed(ErrorClass.REJECTED)
    assert [why(task) for task in (first, third, fourth)] == [COMPLETED] * 3
    assert text_of(fourth) == "one | three | four"
    assert sum(POISON in json.dumps(request) for request in services.requests) == 1


@EACH
@pytest.mark.fault("B6", "B13")
async def test_a_refused_first_message_leaves_its_context_open(http: httpx2.AsyncClient, agent: str) -> None:
    caller = A2A(http, agent)
    refused = await caller.send(POISON)
    again = await caller.send(f"{POISON} again", refused["contextId"])
    third = await caller.send("three", refused["contextId"])

    assert [why(refused), why(again)] == [failed(ErrorClass.REJECTED)] * 2
    assert (why(third), text_of(third)) == (COMPLETED, "three")


@EACH
@pytest.mark.fault("B6", "B14")
async def test_a_refused_tool_result_is_answered_with_another_text(
    services: Services, http: httpx2.AsyncClient, agent: str
) -> None:
    caller = A2A(http, agent)
    first = await caller.send("one")
    refused = await caller.send("fetch a", first["contextId"])
    third = await caller.send("three", first["contextId"])
    fourth = await caller.send("fetch b", first["contextId"])

    assert (why(refused)[0], refused["metadata"]["refused"]) == ("TASK_STATE_FAILED", "tool-result")
    assert "the result of a tool" in why(refused)[1]
    assert (why(third), text_of(third)) == (COMPLETED, "one | fetch a | three")
    assert (why(fourth), text_of(fourth)) == (COMPLETED, "one | fetch a | three | fetch b | b")
    assert sum(POISON in json.dumps(request) for request in services.requests) == 1


@REVERTIBLE
@pytest.mark.fault("B6", "B14")
async def test_a_backend_that_takes_no_result_at_all_goes_on_without_the_turn(
    services: Services, http: httpx2.AsyncClient, agent: str
) -> None:
    caller = A2A(http, agent)
    first = await caller.send("one")
    services.takes_outputs = False
    refused = await caller.send("fetch b", first["contextId"])
    third = await caller.send("three", first["contextId"])
    fourth = await caller.send("four", first["contextId"])

    assert why(refused)[0] == "TASK_STATE_FAILED"
    assert (why(third), text_of(third)) == (COMPLETED, "one | three")
    assert (why(fourth), text_of(fourth)) == (COMPLETED, "one | three | four")


@EACH
@pytest.mark.fault("B6", "B13")
async def test_an_outage_before_a_refusal_loses_nothing_else(
    services: Services, http: httpx2.AsyncClient, agent: str
) -> None:
    caller = A2A(http, agent)
    first = await caller.send("one")
    services.down = True
    lost = await caller.send("two", first["contextId"])
    services.down = False
    refused = await caller.send(f"three {POISON}", first["contextId"])
    fourth = await caller.send("four", first["contextId"])

    assert [why(lost)[0], why(refused)[0]] == ["TASK_STATE_FAILED"] * 2
    assert (why(fourth), text_of(fourth)) == (COMPLETED, "one | two | four")


@EACH
@pytest.mark.fault("B6", "B13")
async def test_a_message_that_would_be_refused_and_did_not_arrive_costs_no_answer(
    services: Services, http: httpx2.AsyncClient, agent: str
) -> None:
    caller = A2A(http, agent)
    first = await caller.send("one")
    services.down = True
    await caller.send(f"two {POISON}", first["contextId"])
    services.down = False
    third = await caller.send("three", first["contextId"])
    fourth = await caller.send("four", first["contextId"])

    assert (why(third), text_of(third)) == (COMPLETED, "one | three")
    assert (why(fourth), text_of(fourth)) == (COMPLETED, "one | three | four")
