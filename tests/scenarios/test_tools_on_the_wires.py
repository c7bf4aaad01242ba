"""The tool loop through the real adapters, in front of emulators that refuse unpaired calls, as the services do."""

import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any

import pytest

from adapters.openai.chat import adapter as openai_chat
from adapters.openai.responses import adapter as openai_responses
from gateway.a2a.model import Json, Task, TaskState
from gateway.core.agents import Agent, AgentPolicies
from gateway.core.tools.approval_rules import ApprovalRule
from gateway.core.tools.toolset import OfferedTool
from gateway.ports.adapter import Adapter
from gateway.ports.tools import SourceTool, ToolDeclaration, ToolOutput, ToolRun
from gateway.testing.serving import serve
from tests.emulators.chat import CHAT_DIALECTS, ChatServer
from tests.emulators.responses_server import ResponsesServer
from tests.emulators.scripts import Call, Conversation, Item, Raw, Say, Script, Step, in_rounds
from tests.emulators.server import Emulator
from tests.support.core import CARD, Core, frames, streamed
from tests.support.core import answer as shown


class Weather:
    """One tool, which knows three cities and fails for any other."""

    known: Mapping[str, Json] = {"Oslo": {"degrees": 3}, "Rome": "18C", "Bonn": ""}

    def rules_in_force(self, rules: Sequence[ApprovalRule]) -> Sequence[ApprovalRule]:
        return rules

    async def offered(self) -> Mapping[str, OfferedTool]:
        declaration = ToolDeclaration("weather", "The weather.", {"type": "object", "properties": {}})
        return {"weather": OfferedTool(declaration, "wx.weather", "test:wx", "weather", self, 60, lambda _: None)}

    async def tools(self) -> tuple[SourceTool, ...]:
        return ()

    async def run(self, run: ToolRun) -> ToolOutput:
        city = str(run.arguments.get("city"))
        return ToolOutput(self.known[city]) if city in self.known else ToolOutput("no such city", error=True)

    async def aclose(self) -> None:
        return


WIRES: dict[str, tuple[type[Emulator], Any, dict[str, Any]]] = {
    "chain": (ResponsesServer, openai_responses.factory, {}),
    "conversation": (ResponsesServer, openai_responses.factory, {"conversation": True}),
    "whole": (ResponsesServer, openai_responses.factory, {"history": {"owner": "gateway"}}),
    **{f"chat of {name}": (ChatServer, openai_chat.factory, {"dialect": name}) for name in sorted(CHAT_DIALECTS)},
}


class Wire:
    """An agent with the tool, its core and its emulator."""

    def __init__(self, core: Core, server: Emulator, adapter: Adapter) -> None:
        self.core = core
        self.server = server
        self._adapter = adapter

    def attach(self, **policies: Any) -> None:
        agent = Agent(
            name="wx", card=CARD, adapter=self._adapter, toolset=Weather(), policies=AgentPolicies(**policies)
        )
        self.core.agents.append(agent)
        self.core.default = agent

    async def say(self, text: str, task: Task | None = None) -> Task:
        return await self.core.send(text, context=task.context_id if task else None)

    def bodies(self) -> list[dict[str, Any]]:
        return [body for body in self.server.requests if "model" in body]


@pytest.fixture(params=WIRES)
async def wire(core: Core, request: pytest.FixtureRequest) -> AsyncGenerator[Wire, None]:
    emulator, factory, values = WIRES[request.param]
    options: dict[str, Any] = {"dialect": CHAT_DIALECTS[values["dialect"]]} if "dialect" in values else {}
    server = emulator(lambda _: [], **options)
    rest = {name: value for name, value in values.items() if name != "dialect"}
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(serve(server.app))
        adapter = factory.build(factory.settings.model_validate({"model": "m", "base_url": f"{url}/v1", **rest}))
        stack.push_async_callback(adapter.aclose)
        wire = Wire(core, server, adapter)
        wire.attach()
        yield wire


def call(city: str, call_id: str) -> Call:
    return Call("weather", {"city": city}, call_id)


def report(conversation: Conversation) -> list[Step]:
    return [Say(" | ".join(conversation.tool_outputs.values()))]


ROUNDS: Script = in_rounds(
    [call("Oslo", "c1"), call("Rome", "c2")], [Say("One more. "), call("Bonn", "c3"), call("Nowhere", "c4")], report
)
REPORT = '{"degrees":3} | 18C |  | Error: no such city'


async def test_rounds_of_parallel_calls_pair_and_the_ids_may_come_again_in_the_next_turn(wire: Wire) -> None:
    wire.server.script = ROUNDS
    first = await wire.say("weather?")
    second = await wire.say("and now?", first)
    assert [shown(task) for task in (first, second)] == [f"One more. {REPORT}"] * 2
    assert [len(body["tools"]) for body in wire.bodies()] == [1] * 6


async def test_what_is_streamed_is_the_same(wire: Wire) -> None:
    wire.server.script = ROUNDS
    assert streamed(await frames(await wire.core.stream("weather?"))) == f"One more. {REPORT}"


async def test_a_last_call_without_tools_is_taken_and_answers(wire: Wire) -> None:
    wire.attach(tool_rounds=1)
    wire.server.script = in_rounds([call("Oslo", "c1"), call("Rome", "c2")], report)
    task = await wire.say("weather?")
    assert shown(await wire.say("and now?", task)) == shown(task) == '{"degrees":3} | 18C'
    assert ["tools" in body for body in wire.bodies()] == [True, False] * 2


async def test_calls_that_are_never_run_are_answered_before_the_next_message(wire: Wire) -> None:
    """The first turn ends with the limit and open calls: nothing could be said on its chain any more without outputs."""
    wire.attach(tool_rounds=0, round_limit_action="fail")
    wire.server.script = in_rounds([call("Oslo", "c1"), call("Rome", "c2")])
    failed = await wire.say("weather?")
    wire.server.script = in_rounds([Say("Hello")])
    after = await wire.say("never mind", failed)
    assert (failed.status.state, after.status.state) == (TaskState.FAILED, TaskState.COMPLETED)
    assert shown(after) == "Hello"


async def test_a_model_that_names_no_call_gets_the_outputs_of_each(wire: Wire) -> None:
    if not isinstance(wire.server, ChatServer):
        pytest.skip("on a chain the backend's id is all that can be answered")
    asked = [json.dumps({"city": city}) for city in ("Oslo", "Rome")]
    made = [{"index": index, "function": {"name": "weather", "arguments": given}} for index, given in enumerate(asked)]
    chunk = {"choices": [{"index": 0, "delta": {"tool_calls": made}, "finish_reason": None}]}
    nameless = Raw(f"data: {json.dumps(chunk)}\n\n".encode())
    wire.server.script = in_rounds([nameless], [nameless], report)
    task = await wire.say("weather?")
    assert shown(task) == '{"degrees":3} | 18C | {"degrees":3} | 18C'
    ids = [each["id"] for message in wire.bodies()[-1]["messages"] for each in message.get("tool_calls", ())]
    assert len(set(ids)) == 4


async def test_a_call_that_the_backend_answered_is_not_run_and_its_output_not_sent_to_it(wire: Wire) -> None:
    if not isinstance(wire.server, ResponsesServer):
        pytest.skip("on this wire a backend does not answer calls")
    handled = {"type": "function_call", "call_id": "c9", "name": "weather", "arguments": "{}", "status": "completed"}
    answered = {"type": "function_call_output", "call_id": "c9", "output": "by the backend", "status": "completed"}
    wire.server.script = in_rounds([Item(handled), Item(answered), call("Oslo", "c1")], report)
    task = await wire.say("weather?")
    assert task.status.state is TaskState.COMPLETED
    sent = [item["call_id"] for item in wire.bodies()[-1]["input"] if item["type"] == "function_call_output"]
    assert sent == (["c9", "c1"] if wire.bodies()[-1]["store"] is False else ["c1"])
