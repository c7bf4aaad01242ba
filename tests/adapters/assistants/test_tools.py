"""Tools of the gateway and of the service, and questions of the service, at either service."""

import asyncio
import json
from typing import Any

import pytest

from adapters.assistants.adapter import ThreadsAdapter
from gateway.ports.adapter import (
    ApprovalAsked,
    CallCompleted,
    CallStarted,
    ErrorClass,
    MessageReady,
    TextDelta,
    ToolCallAnnounced,
    ToolCallReady,
    ToolResultReady,
)
from gateway.ports.conversation import OutputItem
from gateway.testing.adapter_scripts import collect, completed, of_type, request, text
from tests.adapters.assistants.support import KINDS, OSLO, TOOL, Service, said, server
from tests.adapters.emulator_support import Build, Start, plays
from tests.emulators.scripts import (
    Ask,
    Call,
    Conversation,
    Pause,
    Raw,
    Say,
    ServerTool,
    Step,
    in_rounds,
)
from tests.emulators.scripts import (
    Item as ServiceItem,
)

# --- tools of the gateway ---------------------------------------------------------------------------------------------


async def test_two_calls_get_their_outcomes_in_one_submission_to_the_waiting_run(service: Service) -> None:
    service.emulator.script = in_rounds([*OSLO, Call("height", "{}", "call_2")], [Say("3 C")])
    events = await service.call(said("Hi"), tools=(TOOL,))
    waiting = completed(events)
    calls = of_type(events, ToolCallReady)
    assert [(call.call_id, call.name, call.arguments) for call in calls] == [
        ("call_1", "weather", '{"city": "Oslo"}'),
        ("call_2", "height", "{}"),
    ]
    assert waiting.usage is None
    answered = await service.call(
        OutputItem("call_1", {"degrees": 3}), OutputItem("call_2", "none", error=True), after=waiting
    )
    assert service.emulator.asked[-1]["tool_outputs"] == [
        {"tool_call_id": "call_1", "output": '{"degrees":3}'},
        {"tool_call_id": "call_2", "output": "Error: none"},
    ]
    assert text(answered) == "3 C"
    assert of_type(answered, ToolCallReady) == []
    [run] = service.emulator.runs
    assert answered[0] == CallStarted(waiting.handle, f"{run.body['id']}/{run.steps[0]['id']}")
    assert completed(answered).usage is not None


async def test_tools_of_a_run_are_put_beside_those_of_its_assistant(start: Start, build: Build) -> None:
    factory, version = KINDS["assistants"]
    own = ({"type": "code_interpreter"}, {"type": "function", "function": {"name": "weather", "parameters": {}}})
    emulator = server(version=version, tools=own)
    adapter = build(factory, await start(emulator))
    await collect(adapter, request("Hi", tools=(TOOL,)))
    await collect(adapter, request("Hi"))
    described = {"name": "weather", "description": TOOL.description, "parameters": TOOL.parameters}
    offered = [body["tools"] for body in emulator.asked]
    assert offered == [[{"type": "code_interpreter"}, {"type": "function", "function": described}], None]


def talks_on(conversation: Conversation) -> list[Step]:
    """A call, whose outcome is talked about without an end, and an answer to the message after."""
    if conversation.tool_outputs:
        return [Say("So "), Pause(asyncio.Event())]
    return [Say("Very well.")] if len(conversation.user_texts) > 1 else [*OSLO]


async def test_a_message_beside_open_calls_ends_the_run_that_waits_and_is_answered_by_another(
    service: Service,
) -> None:
    service.emulator.script = talks_on
    waiting = completed(await service.call(said("Hi")))
    events = await service.call(OutputItem("call_1", "not run"), said("Never mind"), after=waiting)
    assert text(events) == "Very well."
    first, second = service.emulator.runs
    assert (first.body["status"], second.body["status"]) == ("cancelled", "completed")
    assert first.steps[0]["step_details"]["tool_calls"][0]["function"]["output"] == "not run"
    assert [m["content"][0]["text"] for m in service.emulator.asked[-1]["additional_messages"]] == ["Never mind"]


async def test_it_is_locked_as_long_as_the_run_that_was_cancelled_works(start: Start, build: Build) -> None:
    factory, version = KINDS["assistants"]
    emulator = server(talks_on, version=version, cancels="later")
    adapter = build(factory, await start(emulator))
    assert isinstance(adapter, ThreadsAdapter)
    service = Service(emulator, adapter)
    waiting = completed(await service.call(said("Hi")))
    both = (OutputItem("call_1", "not run"), said("Never mind"))
    assert (await service.fails(*both, after=waiting)).kind is ErrorClass.LOCKED
    emulator.end_cancelled()
    completed(await service.call(*both, after=waiting))
    assert [body.get("tool_outputs") for body in emulator.asked] == [
        None,
        [{"tool_call_id": "call_1", "output": "not run"}],
        None,
    ]


async def test_an_answer_to_the_outcomes_that_is_quicker_than_its_end_does_no_harm(service: Service) -> None:
    service.emulator.script = in_rounds([*OSLO], [Say("3 C")])
    waiting = completed(await service.call(said("Hi")))
    completed(await service.call(OutputItem("call_1", "not run"), said("Never mind"), after=waiting))
    assert [run.body["status"] for run in service.emulator.runs] == ["completed", "requires_action"]


async def test_outcomes_that_come_too_late_fail_and_the_next_message_goes_on_without_them(service: Service) -> None:
    service.emulator.script = in_rounds([*OSLO], [Say("3 C")])
    waiting = completed(await service.call(said("Hi")))
    service.emulator.expire()
    error = await service.fails(OutputItem("call_1", "3"), after=waiting)
    what = "the run waits no more for the outcomes of its calls: it is expired"
    assert (error.kind, error.detail) == (ErrorClass.BACKEND_FAILED, what)
    service.emulator.script = plays(Say("Hello"))
    assert text(await service.call(OutputItem("call_1", "3"), said("Still there?"), after=waiting)) == "Hello"


async def test_a_missing_outcome_is_refused_for_what_the_request_holds(service: Service) -> None:
    service.emulator.script = in_rounds([*OSLO, Call("height", "{}", "call_2")], [Say("3 C")])
    waiting = completed(await service.call(said("Hi")))
    error = await service.fails(OutputItem("call_1", "3"), after=waiting)
    assert error.kind is ErrorClass.REJECTED


async def test_outcomes_that_the_service_does_not_take_do_not_hold_a_message_up(service: Service) -> None:
    service.emulator.script = in_rounds([*OSLO, Call("height", "{}", "call_2")], [Say("3 C")])
    waiting = completed(await service.call(said("Hi")))
    service.emulator.script = plays(Say("Very well."))
    assert text(await service.call(OutputItem("call_1", "3"), said("Next"), after=waiting)) == "Very well."
    assert [run.body["status"] for run in service.emulator.runs] == ["cancelled", "completed"]


async def test_a_call_that_only_its_own_client_can_answer_fails(service: Service) -> None:
    action = {
        "type": "submit_tool_outputs",
        "submit_tool_outputs": {"tool_calls": [{"id": "call_1", "type": "computer"}]},
    }
    run = b'{"id":"run_1","status":"requires_action","required_action":' + json.dumps(action).encode() + b"}"
    service.emulator.script = plays(Raw(b"event: thread.run.requires_action\ndata: " + run + b"\n\n"))
    error = await service.fails(said("Hi"))
    assert (error.kind, error.detail) == (
        ErrorClass.CONTRACT_BROKEN,
        "the run waits for a call of the type 'computer', which no caller can answer",
    )


# --- approvals and tools of the service -------------------------------------------------------------------------------

ASKED = [Ask("lookup", {"q": 1}, "call_1")]


async def test_a_question_of_the_service_goes_to_the_caller_and_a_yes_runs_the_call(service: Service) -> None:
    found = ServerTool("mcp", "lookup", {}, "found", question="call_1")
    service.emulator.script = in_rounds(ASKED, [found, Say("There.")])
    events = await service.call(said("Hi"))
    assert of_type(events, ApprovalAsked) == [ApprovalAsked("call_1", "lookup", '{"q": 1}', "wx", "call_1")]
    answered = await service.call(OutputItem("call_1", "", approved=True), after=completed(events))
    body = service.emulator.asked[-1]
    assert body["tool_approvals"] == [{"tool_call_id": "call_1", "approve": True}]
    assert body["tool_outputs"] == []
    [ready] = of_type(answered, ToolCallReady)
    assert (ready.call_id, ready.question, ready.server) == ("call_1/run", "call_1", "mcp:wx")
    assert of_type(answered, ToolResultReady) == [ToolResultReady("call_1/run", "found")]
    assert text(answered) == "There."


async def test_a_no_leaves_no_call(service: Service) -> None:
    service.emulator.script = in_rounds(ASKED, [Say("Then not.")])
    waiting = completed(await service.call(said("Hi")))
    answered = await service.call(OutputItem("call_1", "why", approved=False), after=waiting)
    assert service.emulator.asked[-1]["tool_approvals"] == [{"tool_call_id": "call_1", "approve": False}]
    assert [type(event) for event in answered] == [CallStarted, TextDelta, MessageReady, CallCompleted]


async def test_a_run_that_waits_for_a_decision_nobody_will_bring_is_ended(service: Service) -> None:
    """Its question was lost, such as with the process that had it; the gateway does not know that the run waits."""
    first = completed(await service.call(said("one")))
    service.emulator.script = in_rounds(ASKED, [Say("There.")])
    await service.call(said("two"), after=first)
    assert (await service.fails(said("three"), after=first)).kind is ErrorClass.LOCKED
    assert [run.body["status"] for run in service.emulator.runs] == ["completed", "cancelled"]
    completed(await service.call(said("three"), after=first))


async def test_a_run_of_another_client_that_waits_is_left_alone(service: Service) -> None:
    service.emulator.script = in_rounds([*OSLO], [Say("3 C")])
    first = completed(await service.call(said("one")))
    [run] = service.emulator.runs
    run.body["metadata"].clear()
    assert (await service.fails(said("two"), after=CallCompleted(first.handle))).kind is ErrorClass.LOCKED
    assert run.body["status"] == "requires_action"


SERVER_TOOLS: dict[str, tuple[dict[str, Any], tuple[str, str, str, Any]]] = {
    "code": (
        {"type": "code_interpreter", "code_interpreter": {"input": "1+1", "outputs": [{"type": "logs", "logs": "2"}]}},
        ("code_interpreter", '{"code":"1+1"}', "code_interpreter", [{"type": "logs", "logs": "2"}]),
    ),
    "search": (
        {"type": "file_search", "file_search": {"results": [{"file_name": "a.txt", "score": 0.9}]}},
        ("file_search", "{}", "file_search", [{"file_name": "a.txt", "score": 0.9}]),
    ),
    "search that shows nothing": (
        {"type": "file_search", "file_search": {}},
        ("file_search", "{}", "file_search", {"status": "completed"}),
    ),
    "an MCP server": (
        {"type": "mcp", "name": "lookup", "arguments": "{}", "output": "", "server_label": "wx"},
        ("lookup", "{}", "mcp:wx", ""),
    ),
    "an API": (
        {"type": "openapi", "function": {"name": "get_rate", "arguments": '{"of":"EUR"}', "output": "1.1"}},
        ("get_rate", '{"of":"EUR"}', "openapi", "1.1"),
    ),
    "Bing": (
        {"type": "bing_grounding", "bing_grounding": {"requesturl": "https://api.bing.example"}},
        ("bing_grounding", "{}", "bing_grounding", {"requesturl": "https://api.bing.example"}),
    ),
}


@pytest.mark.parametrize("case", SERVER_TOOLS)
async def test_a_tool_that_the_service_runs_is_shown_with_its_outcome(service: Service, case: str) -> None:
    body, (name, arguments, where, output) = SERVER_TOOLS[case]
    service.emulator.script = plays(ServiceItem({"id": "call_1", **body}), Say("So."))
    events = await service.call(said("Hi"))
    assert of_type(events, ToolCallAnnounced) == [ToolCallAnnounced("call_1", name, True, where)]
    assert of_type(events, ToolCallReady) == [ToolCallReady("call_1", name, arguments, True, where, "call_1")]
    assert of_type(events, ToolResultReady) == [ToolResultReady("call_1", output)]
