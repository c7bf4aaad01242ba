"""The tool loop through the real adapters, in front of emulators that refuse unpaired calls, as the services do."""

import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any

import pytest

from adapters.anthropic import adapter as anthropic
from adapters.openai.chat import adapter as openai_chat
from adapters.openai.responses import adapter as openai_responses
from gateway.a2a.model import Json, Task, TaskState
from gateway.core.agents import Agent, AgentPolicies
from gateway.core.tools.approval_rules import ApprovalRule
from gateway.core.tools.toolset import OfferedTool
from gateway.ports.adapter import Adapter
from gateway.ports.tools import SourceTool, ToolDeclaration, ToolOutput, ToolRun
from gateway.testing.serving import serve
from tests.emulators.anthropic import MessagesServer
from tests.emulators.chat import CHAT_DIALECTS, ChatServer
from tests.emulators.responses_server import ResponsesServer
from tests.emulators.scripts import Call, Conversation, Cut, Incomplete, Item, Raw, Say, Script, Step, Think, in_rounds
from tests.emulators.server import Emulator
from tests.support.core import CARD, Core, frames, streamed
from tests.support.core import answer as shown
from tests.support.core import events as read_events


class Weather:
    """One tool, which knows three cities and fails for any other. `asked` are the cities of all its runs."""

    known: Mapping[str, Json] = {"Oslo": {"degrees": 3}, "Rome": "18C", "Bonn": ""}

    def __init__(self) -> None:
        self.asked: list[str] = []

    def rules_in_force(self, rules: Sequence[ApprovalRule]) -> Sequence[ApprovalRule]:
        return rules

    async def offered(self) -> Mapping[str, OfferedTool]:
        declaration = ToolDeclaration("weather", "The weather.", {"type": "object", "properties": {}})
        return {"weather": OfferedTool(declaration, "wx.weather", "test:wx", "weather", self, 60, lambda *_: None)}

    async def tools(self) -> tuple[SourceTool, ...]:
        return ()

    async def run(self, run: ToolRun) -> ToolOutput:
        city = str(run.arguments.get("city"))
        self.asked.append(city)
        return ToolOutput(self.known[city]) if city in self.known else ToolOutput("no such city", error=True)

    async def aclose(self) -> None:
        return


WIRES: dict[str, tuple[type[Emulator], Any, dict[str, Any]]] = {
    "chain": (ResponsesServer, openai_responses.factory, {}),
    "conversation": (ResponsesServer, openai_responses.factory, {"conversation": True}),
    "whole": (ResponsesServer, openai_responses.factory, {"history": {"owner": "gateway"}}),
    "messages": (MessagesServer, anthropic.factory, {}),
    **{f"chat of {name}": (ChatServer, openai_chat.factory, {"dialect": name}) for name in sorted(CHAT_DIALECTS)},
}


class Wire:
    """An agent with the tool, its core and its emulator."""

    def __init__(self, core: Core, server: Emulator, adapter: Adapter) -> None:
        self.core = core
        self.server = server
        self._adapter = adapter
        self.tool = Weather()

    def attach(self, **policies: Any) -> None:
        agent = Agent(
            name="wx", card=CARD, adapter=self._adapter, toolset=self.tool, policies=AgentPolicies(**policies)
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


def may_call(body: dict[str, Any]) -> bool:
    """Whether the request lets the model call tools. The Messages API wants tools beside earlier calls in any case."""
    return bool(body.get("tools")) and body.get("tool_choice") != {"type": "none"}


async def test_a_last_call_without_tools_is_taken_and_answers(wire: Wire) -> None:
    wire.attach(tool_rounds=1)
    wire.server.script = in_rounds([call("Oslo", "c1"), call("Rome", "c2")], report)
    task = await wire.say("weather?")
    assert shown(await wire.say("and now?", task)) == shown(task) == '{"degrees":3} | 18C'
    assert [may_call(body) for body in wire.bodies()] == [True, False] * 2


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


# --- calls that are reported again, and calls of an answer that is not whole


def reported_again(wire: Wire) -> list[Step]:
    """One call, told three times: its item again, and another item of its id."""
    function = {"name": "weather", "arguments": json.dumps({"city": "Oslo"})}
    if isinstance(wire.server, ChatServer):
        made = [{"index": index, "id": "c1", "function": function} for index in (0, 0, 1)]
        chunk = {"choices": [{"index": 0, "delta": {"tool_calls": made}, "finish_reason": None}]}
        return [Raw(f"data: {json.dumps(chunk)}\n\n".encode())]
    item = {"type": "function_call", "call_id": "c1", "status": "completed", **function}
    return [Item(item | {"id": name}) for name in ("fc_1", "fc_1", "fc_2")]


async def test_a_call_that_is_reported_again_runs_once_and_its_output_goes_out_once(wire: Wire) -> None:
    if isinstance(wire.server, MessagesServer):
        pytest.skip("on this wire a call is told once")
    wire.server.script = in_rounds(reported_again(wire), report)
    first = await wire.say("weather?")
    assert shown(first) == '{"degrees":3}'
    assert wire.tool.asked == ["Oslo"]
    wire.server.script = in_rounds([Say("Hello")])
    assert shown(await wire.say("thanks", first)) == "Hello"
    outputs = [
        item.get("call_id") or item.get("tool_call_id")
        for item in wire.bodies()[1].get("input") or wire.bodies()[1]["messages"]
        if item.get("type") == "function_call_output" or item.get("role") == "tool"
    ]
    assert outputs == ["c1"]


def streamed_only(item: dict[str, Json]) -> Raw:
    """The end of an item that the backend does not keep."""
    return Raw(f"data: {json.dumps({'type': 'response.output_item.done', 'item': item})}\n\n".encode())


async def test_a_call_of_the_response_before_is_not_run_again_where_the_backend_keeps_it(wire: Wire) -> None:
    if not isinstance(wire.server, ResponsesServer):
        pytest.skip("only a chain takes one output for an id")
    item = {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "weather", "status": "completed"}
    item["arguments"] = json.dumps({"city": "Oslo"})
    wire.server.script = in_rounds([Item(item)], [streamed_only(item), Say("It is 3 degrees.")])
    first = await wire.say("weather?")
    if wire.bodies()[0]["store"] is False:
        pytest.skip("the backend keeps nothing")
    assert (first.status.state, shown(first)) == (TaskState.COMPLETED, "It is 3 degrees.")
    assert wire.tool.asked == ["Oslo"]
    wire.server.script = in_rounds([Say("Hello")])
    assert shown(await wire.say("thanks", first)) == "Hello"
    assert [each.get("call_id") for body in wire.bodies()[1:] for each in body["input"]] == ["c1", None]


def weather_item(name: str, city: str) -> Item:
    """A call with the id `c1`."""
    arguments = json.dumps({"city": city})
    item = {"type": "function_call", "id": name, "call_id": "c1", "name": "weather", "status": "completed"}
    return Item(item | {"arguments": arguments})


async def say_on_a_chain(wire: Wire, *rounds: list[Step]) -> Task:
    if not isinstance(wire.server, ResponsesServer):
        pytest.skip("only a chain takes one output for an id")
    wire.server.script = in_rounds(*rounds)
    task = await wire.say("weather?")
    if wire.bodies()[0]["store"] is False or "conversation" in wire.bodies()[0]:
        pytest.skip("the backend keeps no calls, or those of an answer that has failed, too")
    return task


async def test_of_two_calls_under_one_id_none_runs_and_the_chain_goes_on(wire: Wire) -> None:
    failed = await say_on_a_chain(wire, [weather_item("fc_1", "Oslo"), weather_item("fc_2", "Rome")])
    assert (failed.status.state, wire.tool.asked, len(wire.bodies())) == (TaskState.FAILED, [], 1)
    wire.server.script = in_rounds([Say("Hello")])
    assert shown(await wire.say("never mind", failed)) == "Hello"


async def test_behind_a_response_with_nothing_but_an_answered_call_the_chain_goes_on(wire: Wire) -> None:
    failed = await say_on_a_chain(wire, [weather_item("fc_1", "Oslo")], [weather_item("fc_2", "Oslo")])
    assert (failed.status.state, wire.tool.asked, len(wire.bodies())) == (TaskState.FAILED, ["Oslo"], 2)
    wire.server.script = in_rounds([Say("Hello")])
    assert shown(await wire.say("never mind", failed)) == "Hello"
    # The output goes out with the next message again, which continues the response that holds its call.
    assert [each.get("call_id") for body in wire.bodies()[1:] for each in body["input"]] == ["c1", "c1", None]


async def test_no_tool_runs_for_a_call_that_the_backend_gives_no_id_and_the_chain_goes_on(wire: Wire) -> None:
    if not isinstance(wire.server, ResponsesServer):
        pytest.skip("only a chain waits for an output under its own id")
    function = {"name": "weather", "arguments": json.dumps({"city": "Oslo"})}
    nameless = {"type": "function_call", "id": "fc_1", "call_id": "", "status": "completed", **function}
    wire.server.script = in_rounds([streamed_only(nameless)], [Say("It is 3 degrees.")])
    failed = await wire.say("weather?")
    if wire.bodies()[0]["store"] is False:
        pytest.skip("the gateway makes the id")
    assert (failed.status.state, wire.tool.asked, len(wire.bodies())) == (TaskState.FAILED, [], 1)
    wire.server.script = in_rounds([Say("Hello")])
    assert shown(await wire.say("never mind", failed)) == "Hello"


async def test_the_calls_of_an_answer_that_is_not_whole_do_not_run_and_the_conversation_goes_on(wire: Wire) -> None:
    wire.server.script = in_rounds([Say("Let me check."), call("Oslo", "c1"), Incomplete()])
    first = await wire.say("weather?")
    assert (first.status.state, shown(first), wire.tool.asked) == (TaskState.COMPLETED, "Let me check.", [])
    assert first.status.message is not None
    reason = (first.status.message.metadata or {})["finishReason"]
    assert reason in ("max_output_tokens", "length", "max_tokens")
    assert (first.metadata or {})["finishReason"] == reason
    wire.server.script = in_rounds([Say("Hello")])
    assert shown(await wire.say("and now?", first)) == "Hello"
    assert len(wire.bodies()) == 2


# --- several messages of one answer


def texts_of(task: Task) -> list[str]:
    return [part.text or "" for artifact in task.artifacts or () for part in artifact.parts]


def sent_texts(body: dict[str, Any]) -> list[str]:
    """The texts of the model in a request that has the whole conversation."""
    items = body.get("messages") or body["input"]
    contents = [item["content"] for item in items if item.get("role") == "assistant"]
    return [each if isinstance(each, str) else "".join(block.get("text", "") for block in each) for each in contents]


async def test_what_came_of_two_messages_before_their_answer_was_cut_off_is_shown(wire: Wire) -> None:
    if not isinstance(wire.server, ResponsesServer):
        pytest.skip("an answer is one message")
    pieces = [(0, "It is "), (1, "Take "), (0, "3 degrees."), (1, "a coat.")]
    deltas = [
        {"type": "response.output_text.delta", "item_id": f"msg_{index}", "output_index": index, "delta": text}
        for index, text in pieces
    ]
    wire.server.script = in_rounds([*(Raw(f"data: {json.dumps(delta)}\n\n".encode()) for delta in deltas), Cut()])
    failed = await wire.say("weather?")
    assert (failed.status.state, texts_of(failed)) == (TaskState.FAILED, ["It is 3 degrees.\n\n", "Take a coat."])


async def test_the_answer_behind_a_tool_is_another_part_and_the_model_gets_its_own_words(wire: Wire) -> None:
    wire.server.script = in_rounds([Say("Let me check."), call("Oslo", "c1")], [Say("It is 3 degrees.")])
    streaming = await wire.core.stream("weather?")
    assert streamed(await frames(streaming)) == "Let me check.\n\nIt is 3 degrees."
    task = await wire.say("weather?")
    assert texts_of(task) == ["Let me check.\n\n", "It is 3 degrees."]
    assert texts_of(await wire.core.get(task.id)) == texts_of(task)
    wire.server.script = in_rounds([Say("Hello")])
    await wire.say("thanks", task)
    if wire.bodies()[-1].get("store") is not True:
        assert sent_texts(wire.bodies()[-1]) == ["Let me check.", "It is 3 degrees."]


def events(*events: dict[str, Any]) -> Raw:
    return Raw(b"".join(f"data: {json.dumps(event)}\n\n".encode() for event in events))


def message(name: str, text: str) -> dict[str, Any]:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    return {"type": "message", "id": name, "role": "assistant", "status": "completed", "content": content}


def delta(name: str, text: str) -> dict[str, Any]:
    return {"type": "response.output_text.delta", "item_id": name, "delta": text}


def done(name: str, text: str) -> dict[str, Any]:
    return {"type": "response.output_item.done", "item": message(name, text)}


IN_PROGRESS = {"type": "response.in_progress", "response": {"status": "in_progress"}}

TOLD: dict[str, tuple[list[Step], list[str]]] = {
    "one after the other": ([Say("First."), Think("hm"), Say("Second.")], ["First.", "Second."]),
    "in turns": (
        [
            events(delta("a", "Fir"), delta("b", "Sec"), delta("a", "st."), delta("b", "ond.")),
            events(done("b", "Second."), done("a", "First.")),
        ],
        ["First.", "Second."],
    ),
    "again in progress": ([events(delta("a", "Fir"), IN_PROGRESS, delta("a", "st."), done("a", "First."))], ["First."]),
    "not as it was streamed": ([events(delta("a", "Firs"), delta("a", "y"), done("a", "First."))], ["First."]),
    "twice, and changed": (
        [events(done("a", "Fist."), done("b", "Second."), done("a", "First."))],
        ["First.", "Second."],
    ),
}


@pytest.mark.parametrize("case", TOLD)
async def test_the_messages_of_one_answer_are_the_same_for_callers_and_for_the_model(wire: Wire, case: str) -> None:
    if not isinstance(wire.server, ResponsesServer):
        pytest.skip("an answer on this wire is one message")
    steps, expected = TOLD[case]
    wire.server.script = lambda _: steps
    streaming = await frames(await wire.core.stream("tell"))
    whole = "\n\n".join(expected)
    task = await wire.say("tell")
    assert (folded(streaming), "".join(texts_of(task)), len(texts_of(task))) == (whole, whole, len(expected))
    wire.server.script = in_rounds([Say("Hello")])
    await wire.say("thanks", task)
    if wire.bodies()[-1]["store"] is False:
        assert sent_texts(wire.bodies()[-1]) == expected


def folded(read: Any) -> str:
    """The answer of a client that follows the stream: an update that does not append takes the place of all before it."""
    text = ""
    for event in read_events(read):
        if event.artifact_update is not None:
            new = "".join(part.text or "" for part in event.artifact_update.artifact.parts)
            text = text + new if event.artifact_update.append else new
    return text
