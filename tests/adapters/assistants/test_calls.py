"""Calls of the adapter at either service: what is asked of it, and what comes of it."""

import asyncio
import base64
import json
from typing import Any

import pytest
from msgspec import structs

from adapters.assistants.adapter import ThreadsAdapter
from gateway.a2a.model import Part
from gateway.ports.adapter import (
    AdapterError,
    AdapterEvent,
    ApprovalAsked,
    CallCompleted,
    CallStarted,
    ErrorClass,
    MessageReady,
    PartReady,
    TextDelta,
    ToolCallAnnounced,
    ToolCallReady,
    ToolResultReady,
)
from gateway.ports.capabilities import Ongoing
from gateway.ports.conversation import AssistantItem, CallItem, Item, OutputItem, UserItem
from gateway.ports.tools import ToolDeclaration
from gateway.testing.adapter_scripts import collect, completed, message, of_type, request, text
from tests.adapters.assistants.support import KINDS, parts, server
from tests.adapters.emulator_support import KEY, Build, Start, plays
from tests.emulators.assistants import AssistantsServer
from tests.emulators.scripts import (
    Ask,
    Call,
    Cite,
    Conversation,
    ErrorEvent,
    Fail,
    ImageOut,
    Incomplete,
    NoTerminal,
    Pause,
    Raw,
    Refuse,
    Say,
    ServerTool,
    Status,
    Step,
    in_rounds,
    rate_limited,
)
from tests.emulators.scripts import (
    Item as ServiceItem,
)

OSLO = [Call("weather", {"city": "Oslo"}, "call_1")]
TOOL = ToolDeclaration("weather", "The weather of a city.", {"type": "object"})


class Service:
    """An emulator, and an adapter in front of it."""

    def __init__(self, emulator: AssistantsServer, adapter: ThreadsAdapter) -> None:
        self.emulator, self.adapter = emulator, adapter

    async def call(self, *items: Item, after: CallCompleted | None = None, **more: Any) -> list[AdapterEvent]:
        """A call with these items, which goes on after another."""
        going_on = {"handle": after.handle, "state": after.state} if after is not None else {}
        return await collect(self.adapter, request("Hi", **{"items": items, **going_on, **more}))

    async def fails(self, *items: Item, after: CallCompleted | None = None) -> AdapterError:
        with pytest.raises(AdapterError) as caught:
            await self.call(*items, after=after)
        return caught.value


@pytest.fixture(params=KINDS)
async def service(request: pytest.FixtureRequest, start: Start, build: Build) -> Service:
    factory, version = KINDS[request.param]
    emulator = server(version=version)
    adapter = build(factory, await start(emulator))
    assert isinstance(adapter, ThreadsAdapter)
    return Service(emulator, adapter)


def said(words: str) -> UserItem:
    return UserItem(message(words))


# --- runs -------------------------------------------------------------------------------------------------------------


async def test_the_first_call_makes_a_thread_and_tells_it_before_anything_is_sent(service: Service) -> None:
    events = service.adapter.call(request("Hi"))
    first = await anext(events)
    [thread] = service.emulator.threads.values()
    assert first == CallStarted(thread.id)
    assert (thread.messages, thread.runs) == ([], [])
    second = await anext(events)
    assert second == CallStarted(thread.id, thread.runs[0].body["id"])
    await events.aclose()


async def test_a_call_is_one_request_with_its_messages_and_the_next_goes_on_in_the_thread(service: Service) -> None:
    first = completed(await service.call(said("one"), said("two")))
    second = completed(await service.call(said("three"), after=first))
    assert first.handle == second.handle
    sent = [[m["content"][0]["text"] for m in body["additional_messages"]] for body in service.emulator.asked]
    assert sent == [["one", "two"], ["three"]]
    assert service.emulator.violations == []


async def test_tokens_and_the_reason_of_an_early_end_come_with_the_end(service: Service) -> None:
    service.emulator.script = plays(Say("par"), Incomplete())
    ended = completed(await service.call(said("Hi")))
    assert ended.finish == "max_output_tokens"
    assert ended.usage == {"prompt_tokens": 20, "completion_tokens": 1, "total_tokens": 21}


async def test_a_refusal_of_the_model_is_its_answer(service: Service) -> None:
    service.emulator.script = plays(Refuse("I cannot say.", chunks=2))
    assert text(await service.call(said("Hi"))) == "I cannot say."


ENDS: dict[str, tuple[Any, str]] = {
    "a run that failed": (Fail("server_error", "Sorry."), "error in the stream: server_error: Sorry."),
    "a run at a limit": (
        Fail("rate_limit_exceeded", "Slow down."),
        "error in the stream: rate_limit_exceeded: Slow down.",
    ),
    "an error of the stream": (
        ErrorEvent("server_error", "Broken."),
        "error in the stream: server_error, server_error: Broken.",
    ),
}


@pytest.mark.parametrize("case", ENDS)
async def test_what_a_run_reports_was_processed_because_its_message_is_in_the_thread(
    service: Service, case: str
) -> None:
    step, detail = ENDS[case]
    service.emulator.script = plays(Say("par"), step)
    error = await service.fails(said("Hi"))
    assert (error.kind, error.detail) == (ErrorClass.BACKEND_FAILED, detail)


async def test_the_tokens_of_a_run_that_failed_come_with_the_error(service: Service) -> None:
    service.emulator.script = plays(Say("par"), Fail())
    assert (await service.fails(said("Hi"))).usage == {
        "prompt_tokens": 20,
        "completion_tokens": 1,
        "total_tokens": 21,
    }


async def test_a_stream_that_ends_before_its_run_is_interrupted(service: Service) -> None:
    service.emulator.script = plays(Say("par"), NoTerminal())
    error = await service.fails(said("Hi"))
    assert (error.kind, error.detail) == (ErrorClass.INTERRUPTED, "the stream ended before the run did")


async def test_a_limit_before_a_run_leaves_nothing_in_the_thread(service: Service) -> None:
    first = completed(await service.call(said("one")))
    service.emulator.script = plays(rate_limited(7))
    error = await service.fails(said("two"), after=first)
    assert (error.kind, error.retry_after) == (ErrorClass.RATE_LIMITED, 7)
    [thread] = service.emulator.threads.values()
    assert [m["role"] for m in thread.messages] == ["user", "assistant"]


async def test_a_thread_that_is_not_there_is_a_handle_that_was_lost(service: Service) -> None:
    first = completed(await service.call(said("one")))
    service.emulator.threads.clear()
    assert (await service.fails(said("two"), after=first)).kind is ErrorClass.HANDLE_NOT_FOUND


async def test_an_assistant_that_is_not_there_is_no_fault_of_the_conversation(start: Start, build: Build) -> None:
    factory, version = KINDS["assistants"]
    emulator = server(version=version)
    adapter = build(factory, await start(emulator), assistant_id="asst_2")
    with pytest.raises(AdapterError) as caught:
        await collect(adapter, request("Hi"))
    assert caught.value.kind is ErrorClass.NOT_SERVED


async def test_a_thread_in_use_is_locked(service: Service) -> None:
    never = Pause(asyncio.Event())
    first = completed(await service.call(said("one")))
    service.emulator.script = plays(Say("par"), never)
    running = service.adapter.call(request("two", handle=first.handle, state=first.state))
    async for event in running:
        if isinstance(event, TextDelta):
            break
    assert (await service.fails(said("three"), after=first)).kind is ErrorClass.LOCKED
    await running.aclose()
    [thread] = service.emulator.threads.values()
    assert thread.runs[-1].body["status"] == "in_progress"


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
        ErrorClass.BACKEND_FAILED,
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


# --- files ------------------------------------------------------------------------------------------------------------

PNG = base64.b64encode(b"png").decode()


async def test_files_are_stored_at_the_service_and_named_in_the_message(service: Service) -> None:
    given = parts(
        Part(text="Look"),
        Part(data={"n": 1}),
        Part(raw=PNG, media_type="image/png"),
        Part(raw=PNG, filename='re"port.pdf'),
        Part(raw=PNG, filename="table.csv"),
        Part(url="https://files.example/a.png", media_type="image/png"),
        Part(url="https://files.example/a.pdf", filename="a.pdf"),
    )
    await service.call(given)
    assert service.emulator.violations == []
    [sent] = service.emulator.asked[-1]["additional_messages"]
    image, report, table = service.emulator.files
    assert sent["content"] == [
        {"type": "text", "text": "Look"},
        {"type": "text", "text": '{"n":1}'},
        {"type": "image_file", "image_file": {"file_id": image, "detail": "auto"}},
        {"type": "image_url", "image_url": {"url": "https://files.example/a.png", "detail": "auto"}},
        {"type": "text", "text": "a.pdf: https://files.example/a.pdf"},
    ]
    assert sent["attachments"] == [
        {"file_id": report, "tools": [{"type": "file_search"}]},
        {"file_id": table, "tools": [{"type": "code_interpreter"}]},
    ]
    assert list(service.emulator.files.values()) == [
        ("file.png", b"png"),
        ("re%22port.pdf", b"png"),
        ("table.csv", b"png"),
    ]


async def test_the_files_of_a_refused_request_are_taken_back(service: Service) -> None:
    service.emulator.script = plays(rate_limited())
    await service.fails(parts(Part(raw=PNG, media_type="image/png")))
    assert service.emulator.files == {}


async def test_files_and_marks_of_an_answer_come_behind_its_text(service: Service) -> None:
    where = {"start_index": 0, "end_index": 3}
    service.emulator.files = {"file-1": ("law.pdf", b""), "file-2": ("/mnt/data/out.csv", b"1,2")}
    service.emulator.script = plays(
        Say("[0] and [1], in sandbox:/mnt/data/out.csv"),
        Cite({"type": "file_citation", "text": "[0]", "file_citation": {"file_id": "file-1"}} | where),
        Cite(
            {"type": "url_citation", "text": "[1]", "url_citation": {"url": "https://a.example", "title": "A"}} | where
        ),
        Cite({"type": "file_path", "text": "sandbox:/mnt/data/out.csv", "file_path": {"file_id": "file-2"}} | where),
        ImageOut(b"png"),
    )
    events = await service.call(said("Hi"))
    assert [event.part for event in of_type(events, PartReady)] == [
        Part(raw=PNG, filename="plot.png", media_type="image/png"),
        Part(raw=base64.b64encode(b"1,2").decode(), filename="out.csv", media_type="text/csv"),
        Part(
            data={
                "citations": [
                    {"text": "[0]", "file": "law.pdf"},
                    {"text": "[1]", "url": "https://a.example", "title": "A"},
                ]
            },
            media_type="application/json",
        ),
    ]


async def test_an_answer_does_not_fail_for_a_file_that_cannot_be_had(service: Service) -> None:
    service.emulator.script = plays(
        Say("See."), Cite({"type": "file_path", "text": "x", "file_path": {"file_id": "file-9"}})
    )
    events = await service.call(said("Hi"))
    [part] = of_type(events, PartReady)
    assert part.part == Part(text="[file-9: this file could not be read]")
    completed(events)


async def test_a_thread_that_is_forgotten_takes_its_own_files_with_it(service: Service) -> None:
    service.emulator.files = {"file-1": ("of another.pdf", b"")}
    image, report = Part(raw=PNG, media_type="image/png"), Part(raw=PNG, filename="a.pdf")
    first = completed(await service.call(parts(Part(text="Look"), image, report)))
    assert len(service.emulator.files) == 3
    assert first.handle is not None
    await service.adapter.forget(first.handle)
    assert (service.emulator.threads, list(service.emulator.files)) == ({}, ["file-1"])
    await service.adapter.forget(first.handle)


# --- a lost thread that is told again ---------------------------------------------------------------------------------


async def test_a_conversation_is_told_again_in_a_new_thread(service: Service) -> None:
    earlier: list[Item] = [
        said("What is the weather?"),
        CallItem("call_1", "weather", "{}"),
        OutputItem("call_1", "3 C"),
        AssistantItem((Part(text="Cold."), Part(raw=PNG, filename="a.png"))),
        said("And now?"),
    ]
    await service.call(*earlier)
    messages = service.emulator.asked[-1]["additional_messages"]
    assert [(m["role"], m["content"]) for m in messages] == [
        ("user", [{"type": "text", "text": "What is the weather?"}]),
        ("assistant", "[weather({}): 3 C]"),
        ("assistant", "Cold.\n\n[a.png]"),
        ("user", [{"type": "text", "text": "And now?"}]),
    ]


# --- the rest ---------------------------------------------------------------------------------------------------------


async def test_a_run_is_cancelled_by_its_name_and_one_that_has_ended_counts_as_cancelled(service: Service) -> None:
    service.emulator.script = in_rounds([*OSLO], [Say("3 C")])
    waiting = completed(await service.call(said("Hi")))
    [run] = service.emulator.runs
    names = Ongoing(waiting.handle, run.body["id"])
    assert await service.adapter.cancel(names)
    assert run.body["status"] == "cancelled"
    assert await service.adapter.cancel(names)


async def test_the_key_goes_where_the_service_wants_it(service: Service) -> None:
    await service.call(said("Hi"))
    assert {headers.get("api-key") for headers in service.emulator.headers} == {KEY}


async def test_without_a_version_the_key_is_a_bearer_token(start: Start, build: Build) -> None:
    factory, _ = KINDS["assistants"]
    emulator = AssistantsServer(api_key=KEY)
    await collect(build(factory, await start(emulator), api_version=None), request("Hi"))
    seen = [(headers["authorization"], headers["openai-beta"]) for headers in emulator.headers]
    assert seen == [(f"Bearer {KEY}", "assistants=v2")] * 2


async def test_settings_of_every_run_go_with_each(start: Start, build: Build) -> None:
    factory, version = KINDS["assistants"]
    emulator = server(version=version)
    more = {"additional_instructions": "In verse.", "extra_body": {"temperature": 0.5}}
    await collect(build(factory, await start(emulator), **more), request("Hi"))
    [body] = emulator.asked
    assert (body["additional_instructions"], body["temperature"]) == ("In verse.", 0.5)


def test_only_the_id_of_a_thread_names_one(service: Service) -> None:
    named = [
        service.adapter.named_handle(structs.replace(message("Hi"), metadata=metadata))
        for metadata in (None, {"thread_id": "thread_abc"}, {"thread_id": "42"}, {"thread_id": 42})
    ]
    assert named == [None, "thread_abc", None, None]


async def test_a_probe_looks_at_the_assistant_and_leaves_nothing(service: Service) -> None:
    report = await service.adapter.probe()
    assert report.notes == (
        "it has the assistant 'Ada', on the model 'm'",
        "it refuses a thread that it does not know",
    )
    assert service.emulator.threads == {}


async def test_a_probe_without_its_assistant_fails(start: Start, build: Build) -> None:
    factory, version = KINDS["foundry-classic"]
    adapter = build(factory, await start(server(version=version)), agent_id="asst_2")
    assert isinstance(adapter, ThreadsAdapter)
    with pytest.raises(AdapterError, match="no assistant 'asst_2'") as caught:
        await adapter.probe()
    assert caught.value.kind is ErrorClass.NOT_SERVED


async def test_a_status_of_a_proxy_says_that_the_backend_is_down(service: Service) -> None:
    service.emulator.script = plays(Status(503, "upstream connect error"))
    error = await service.fails(said("Hi"))
    assert (error.kind, error.backend_down) == (ErrorClass.BACKEND_FAILED, True)
