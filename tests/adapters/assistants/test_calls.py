"""Calls of the adapter at either service: runs, their ends and their errors."""

import asyncio
from typing import Any

import pytest
from msgspec import structs

from adapters.assistants.adapter import ThreadsAdapter
from gateway.a2a.model import Part
from gateway.ports.adapter import (
    AdapterError,
    CallStarted,
    ErrorClass,
    TextDelta,
)
from gateway.ports.capabilities import Description, Ongoing
from gateway.ports.conversation import AssistantItem, CallItem, Item, OutputItem
from gateway.testing.adapter_scripts import collect, completed, message, of_type, request, text
from tests.adapters.assistants.support import KINDS, OSLO, TOOL, Service, said, server
from tests.adapters.emulator_support import KEY, Build, Start, plays
from tests.emulators.assistants import AssistantsServer
from tests.emulators.scripts import (
    ErrorEvent,
    Fail,
    Incomplete,
    NoTerminal,
    Pause,
    Refuse,
    Say,
    Status,
    in_rounds,
    rate_limited,
)


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


# --- a lost thread that is told again ---------------------------------------------------------------------------------


async def test_a_conversation_is_told_again_in_a_new_thread(service: Service) -> None:
    earlier: list[Item] = [
        said("What is the weather?"),
        CallItem("call_1", "weather", "{}"),
        OutputItem("call_1", "3 C"),
        AssistantItem((Part(text="Cold."), Part(text=""), Part(raw="cG5n", filename="a.png"))),
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


async def test_a_run_that_waits_gets_the_outcomes_that_there_are_before_it_is_withdrawn(service: Service) -> None:
    service.emulator.script = in_rounds(OSLO)
    asked = await service.call(tools=(TOOL,))
    [run] = service.emulator.runs
    names = Ongoing(run.body["thread_id"], of_type(asked, CallStarted)[-1].run)
    for _ in range(2):
        await service.adapter.withdraw(names, [OutputItem("call_1", "cold")])
    assert run.body["status"] == "cancelled"
    assert [body["tool_outputs"][0]["output"] for body in service.emulator.asked if "tool_outputs" in body] == ["cold"]


@pytest.mark.parametrize("outcomes", [[], [OutputItem("call_9", "of another run")]])
async def test_a_run_that_waits_is_withdrawn_without_the_outcomes_too(
    service: Service, outcomes: list[OutputItem]
) -> None:
    service.emulator.script = in_rounds(OSLO)
    asked = await service.call(tools=(TOOL,))
    [run] = service.emulator.runs
    await service.adapter.withdraw(Ongoing(run.body["thread_id"], of_type(asked, CallStarted)[-1].run), outcomes)
    assert run.body["status"] == "cancelled"


async def test_a_run_that_has_ended_has_nothing_to_withdraw(service: Service) -> None:
    asked = await service.call()
    [run] = service.emulator.runs
    await service.adapter.withdraw(Ongoing(run.body["thread_id"], of_type(asked, CallStarted)[-1].run), ())
    assert run.body["status"] == "completed"


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


async def test_other_credentials_go_in_the_place_of_a_key(start: Start, build: Build) -> None:
    factory, version = KINDS["foundry-classic"]
    emulator = server(version=version)
    auth = {"type": "api_key", "key": KEY}
    await collect(build(factory, await start(emulator), api_key=None, auth=auth), request("Hi"))
    seen = {(headers.get("api-key"), headers["authorization"]) for headers in emulator.headers}
    assert seen == {(None, f"Bearer {KEY}")}


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


async def test_an_agent_is_described_as_the_service_describes_its_assistant(service: Service) -> None:
    assert await service.adapter.describe() == Description(name="Ada", description="Answers.")
    service.emulator.assistant |= {"name": None, "description": ""}
    assert await service.adapter.describe() == Description()


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
