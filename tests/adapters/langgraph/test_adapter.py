"""The adapter in front of an Agent Server: what it asks for, what it takes for an end, and how it finds a run again."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any

import pytest
from starlette.types import Message as Event
from starlette.types import Receive, Scope, Send

from adapters.langgraph.adapter import LangGraphAdapter, factory
from gateway.a2a.model import Part
from gateway.ports.adapter import (
    AdapterError,
    AdapterEvent,
    ApprovalAsked,
    CallStarted,
    ErrorClass,
    ServiceRequest,
    ToolCallReady,
    ToolResultReady,
)
from gateway.ports.capabilities import CanForget, Description, Fate, Ongoing, Tail
from gateway.ports.conversation import OutputItem, UserItem
from gateway.testing.adapter_scripts import collect, completed, message, of_type, only, request, text
from gateway.testing.serving import serve
from tests.adapters.emulator_support import KEY, plays
from tests.emulators.langgraph_runs import Run
from tests.emulators.langgraph_server import ASSISTANT, LangGraphServer
from tests.emulators.scripts import (
    Ask,
    Conversation,
    Cut,
    ErrorEvent,
    Item,
    NoTerminal,
    Pause,
    Say,
    ServerTool,
    Status,
    Step,
)
from tests.garbage import left_behind
from tests.support.core import until

Build = Callable[..., LangGraphAdapter]
UNKNOWN = "00000000-0000-4000-8000-000000000000"
ACTION = {"action_request": {"action": "send", "args": {}}, "config": {"allow_accept": True, "allow_respond": True}}


def runs_of(server: LangGraphServer) -> list[dict[str, Any]]:
    return [body for body in server.requests if "assistant_id" in body]


async def fault(adapter: LangGraphAdapter, asked: ServiceRequest) -> AdapterError:
    with pytest.raises(AdapterError) as caught:
        await collect(adapter, asked)
    assert KEY not in caught.value.detail
    return caught.value


def names(events: list[AdapterEvent], handle: str | None = None) -> Ongoing:
    started = of_type(events, CallStarted)
    made = next((event.handle for event in started if event.handle), handle)
    return Ongoing(made, [event.run for event in started if event.run][-1])


async def until_failed(adapter: LangGraphAdapter, asked: ServiceRequest) -> tuple[list[AdapterEvent], AdapterError]:
    events: list[AdapterEvent] = []

    async def read() -> None:
        async for event in adapter.call(asked):
            events.append(event)  # the events before the error count

    with pytest.raises(AdapterError) as caught:
        await read()
    return events, caught.value


async def listened(events: AsyncGenerator[AdapterEvent, None]) -> list[AdapterEvent]:
    return [event async for event in events]


def decided(events: list[AdapterEvent], words: str = "", *, approved: bool = True) -> ServiceRequest:
    """The next request, with the decision on the only question, and words beside it."""
    asked, end = only(events, ApprovalAsked), completed(events)
    decision = OutputItem(asked.call_id, {"approved": True} if approved else "no", not approved, approved)
    said = (UserItem(message(words)),) if words else ()
    return request(words or "x", handle=end.handle, state=end.state, items=(decision, *said))


# --- what is asked for


async def test_a_run_can_be_listened_to_again_and_refuses_to_share_its_thread(
    server: LangGraphServer, adapter: LangGraphAdapter
) -> None:
    await collect(adapter, request("hi"))
    [made, body] = server.requests
    assert made == {"thread_id": next(iter(server.threads)), "if_exists": "do_nothing"}
    given = body.pop("input")
    assert [(each["role"], each["content"]) for each in given["messages"]] == [("user", "hi")]
    assert body == {
        "assistant_id": "agent",
        "metadata": {"a2a_gateway_context": "context-1"},
        "stream_mode": ["messages-tuple", "updates", "custom"],
        "stream_subgraphs": False,
        "stream_resumable": True,
        "on_disconnect": "continue",
        "multitask_strategy": "reject",
        "if_not_exists": "reject",
    }
    assert server.headers[-1]["x-api-key"] == KEY
    assert server.violations == []


async def test_settings_go_with_every_thread_and_every_run(server: LangGraphServer, build: Build) -> None:
    adapter = build(
        config={"recursion_limit": 9, "configurable": {"tone": "dry"}},
        metadata={"team": "a"},
        durability="sync",
        subgraphs=True,
        thread_ttl="2h",
    )
    await collect(adapter, request("hi"))
    made, body = server.requests
    assert (made["metadata"], made["ttl"]) == ({"team": "a"}, {"strategy": "delete", "ttl": 120})
    assert {name: body[name] for name in ("config", "metadata", "durability", "stream_subgraphs")} == {
        "config": {"recursion_limit": 9, "configurable": {"tone": "dry"}},
        "metadata": {"team": "a", "a2a_gateway_context": "context-1"},
        "durability": "sync",
        "stream_subgraphs": True,
    }
    assert server.violations == []


async def test_a_context_is_for_the_graph(server: LangGraphServer, build: Build) -> None:
    await collect(build(context={"tone": "dry"}), request("hi"))
    assert runs_of(server)[0]["context"] == {"tone": "dry"}


async def test_an_assistant_may_be_named_by_its_id(build: Build) -> None:
    assert text(await collect(build(assistant=ASSISTANT), request("hi"))) == "Hello."


async def test_other_credentials_take_the_place_of_the_key(server: LangGraphServer, build: Build) -> None:
    server._api_key = None
    adapter = build(api_key=None, auth={"type": "api_key", "key": "token-0123456789"})
    await collect(adapter, request("hi"))
    sent = server.headers[-1]
    assert (sent.get("x-api-key"), sent["authorization"]) == (None, "Bearer token-0123456789")


async def test_the_thread_is_known_before_it_gets_a_message(server: LangGraphServer, adapter: LangGraphAdapter) -> None:
    events = adapter.call(request("hi"))
    assert await anext(events) == CallStarted(next(iter(server.threads)))
    assert runs_of(server) == []
    started = await anext(events)
    assert started == CallStarted(run=server.runs[0].id)
    await events.aclose()


async def test_a_call_leaves_nothing_to_the_garbage_collector(
    server: LangGraphServer, adapter: LangGraphAdapter
) -> None:
    server.script = plays(Say("I look. "), ServerTool("mcp", "look", {}, "3"), Say("Three."))
    await collect(adapter, request("hi"))
    with left_behind() as found:
        await collect(adapter, request("again"))
        assert [each for each in found() if type(each).__module__.startswith("adapters.langgraph")] == []


# --- what is refused


async def test_an_unknown_thread_an_unknown_graph_and_an_unknown_assistant_are_told_apart(
    build: Build, adapter: LangGraphAdapter
) -> None:
    handle = completed(await collect(adapter, request("one"))).handle
    faults = [
        await fault(adapter, request("hi", handle=UNKNOWN)),
        await fault(build(assistant="nothing"), request("hi", handle=handle)),
        await fault(build(assistant=UNKNOWN), request("hi", handle=handle)),
        await fault(build(thread_ttl="1h"), request("hi", handle=UNKNOWN)),
    ]
    assert [each.kind for each in faults] == [
        ErrorClass.HANDLE_NOT_FOUND,
        ErrorClass.NOT_SERVED,
        ErrorClass.NOT_SERVED,
        ErrorClass.HANDLE_EXPIRED,
    ]


async def test_a_thread_that_is_in_use_is_locked(server: LangGraphServer, adapter: LangGraphAdapter) -> None:
    handle = completed(await collect(adapter, request("one"))).handle
    assert handle is not None
    server.threads[handle].status = "busy"
    assert (await fault(adapter, request("two", handle=handle))).kind is ErrorClass.LOCKED
    with pytest.raises(AdapterError) as caught:
        await adapter.tail(request("two", handle=handle))
    assert caught.value.kind is ErrorClass.LOCKED


async def test_a_wrong_key_is_named_as_such(build: Build) -> None:
    assert (await fault(build(api_key="another-key-0"), request("hi"))).kind is ErrorClass.UNAUTHORISED


async def test_what_nothing_waits_for_is_not_sent(server: LangGraphServer, adapter: LangGraphAdapter) -> None:
    handle = completed(await collect(adapter, request("one"))).handle
    late = request("x", handle=handle, items=(OutputItem("run/i/0", {}, approved=True),))
    assert (await fault(adapter, late)).kind is ErrorClass.UNSENDABLE
    assert len(runs_of(server)) == 1


async def test_a_graph_that_keeps_no_messages_is_found_with_the_first_turn(build: Build) -> None:
    kinds = [(await fault(build(input_key="chat"), request("hi"))).kind]
    assert kinds == [ErrorClass.CONTRACT_BROKEN]
    assert text(await collect(build(input_key="chat", verify_thread=False), request("hi"))) == "Hello."


@pytest.mark.parametrize("handle", ["conv_123", "thread", "", UNKNOWN[:-1]])
def test_only_a_uuid_can_be_a_thread(adapter: LangGraphAdapter, handle: str) -> None:
    with pytest.raises(ValueError, match="UUID"):
        adapter.check_handle(handle)
    adapter.check_handle(UNKNOWN)


# --- the end of a run


async def test_a_failed_run_under_a_good_status_has_failed(server: LangGraphServer, adapter: LangGraphAdapter) -> None:
    server.script = plays(Say("Hel"), ErrorEvent("ValueError", f"no {KEY}"))
    failed = await fault(adapter, request("hi"))
    assert (failed.kind, failed.detail) == (ErrorClass.BACKEND_FAILED, "the run failed: ValueError: no ***")


async def test_the_end_of_a_stream_is_not_the_end_of_its_run(
    server: LangGraphServer, adapter: LangGraphAdapter
) -> None:
    server.script = plays(Say("Hel"), NoTerminal())
    assert (await fault(adapter, request("hi"))).kind is ErrorClass.INTERRUPTED


async def test_a_run_that_somebody_else_has_cancelled_has_failed(
    server: LangGraphServer, adapter: LangGraphAdapter
) -> None:
    server.script = plays(Say("Hel"), Pause(asyncio.Event()))
    stream = adapter.call(request("hi"))
    begun = [await anext(stream), await anext(stream), await anext(stream)]
    assert await adapter.cancel(names(begun))
    with pytest.raises(AdapterError) as caught:
        await listened(stream)
    assert (caught.value.kind, caught.value.detail) == (ErrorClass.BACKEND_FAILED, "the run has ended: interrupted")


async def test_a_run_whose_name_a_proxy_takes_away_names_itself(server: LangGraphServer) -> None:
    async def without_names(scope: Scope, receive: Receive, send: Send) -> None:
        async def send_less(event: Event) -> None:
            kept = [each for each in event.get("headers", ()) if each[0].lower() != b"content-location"]
            await send({**event, "headers": kept} if "headers" in event else event)

        await server.app(scope, receive, send_less)

    async with serve(without_names) as url:
        adapter = factory.build(factory.settings.model_validate({"url": url, "api_key": KEY}))
        events = await collect(adapter, request("hi"))
        await adapter.aclose()
    assert names(events).run == server.runs[0].id
    assert text(events) == "Hello."


# --- runs that are found again


async def test_a_run_gives_its_events_again_and_a_look_at_it_the_same(
    server: LangGraphServer, adapter: LangGraphAdapter
) -> None:
    server.script = plays(Say("I look. "), ServerTool("mcp", "look", {}, "3"), Say("Three."))
    events = await collect(adapter, request("hi"))
    again = await listened(adapter.resume(request("hi"), names(events)))
    assert again == [event for event in events if not isinstance(event, CallStarted) or event.run]
    found = await adapter.fetch(names(events))
    assert (found.fate, list(found.events)) == (Fate.COMPLETED, again[1:])


async def test_a_run_whose_events_are_gone_is_read_off_its_thread(
    server: LangGraphServer, adapter: LangGraphAdapter
) -> None:
    first = completed(await collect(adapter, request("one")))
    server.script = plays(Say("I look. "), ServerTool("mcp", "look", {"a": 1}, "3"), Say("Three."))
    asked = request("two", handle=first.handle, state=first.state)
    events = await collect(adapter, asked)
    server.runs[-1].forget_events()
    call = names(events, first.handle)
    again = await listened(adapter.resume(asked, call))
    assert (text(again), completed(again)) == (text(events), completed(events))
    assert (only(again, ToolCallReady).arguments, only(again, ToolResultReady).output) == ('{"a":1}', "3")
    assert text((await adapter.fetch(call)).events) == text(events)


async def test_the_rest_of_a_run_whose_beginning_is_gone_is_not_taken_for_the_whole(
    server: LangGraphServer, adapter: LangGraphAdapter
) -> None:
    server.script = plays(Say("Hello", chunks=5))
    events = await collect(adapter, request("hi"))
    server.runs[-1].forget_events(3)
    assert text(await listened(adapter.resume(request("hi"), names(events)))) == "Hello"


async def test_a_first_message_larger_than_other_answers_may_be_is_found_in_its_thread(
    adapter: LangGraphAdapter,
) -> None:
    sent = message("look")
    picture = Part(raw="aGk0" * 1_100_000, media_type="image/png")
    said = UserItem(type(sent)(message_id="m", role=sent.role, parts=(*sent.parts, picture)))
    assert text(await collect(adapter, request("look", items=(said,)))) == "Hello."


async def test_a_question_of_a_run_whose_events_are_gone_is_still_open(
    server: LangGraphServer, adapter: LangGraphAdapter
) -> None:
    server.script = plays(Ask("pay", {"to": "a"}))
    events = await collect(adapter, request("hi"))
    server.runs[-1].forget_events()
    again = await listened(adapter.resume(request("hi"), names(events)))
    assert of_type(again, ApprovalAsked) == of_type(events, ApprovalAsked)
    assert completed(again).state["calls"][0]["id"] == completed(events).state["calls"][0]["id"]


@pytest.mark.parametrize(("steps", "fate"), [((ErrorEvent(),), Fate.FAILED), ((Say("Hi"),), Fate.COMPLETED)])
async def test_a_run_of_unknown_end_is_looked_up(
    server: LangGraphServer, adapter: LangGraphAdapter, steps: tuple[Step, ...], fate: Fate
) -> None:
    server.script = plays(Cut(), *steps)
    events, failed = await until_failed(adapter, request("hi"))
    assert failed.kind is ErrorClass.INTERRUPTED
    await server.runs[0].ended.wait()
    assert (await adapter.fetch(names(events))).fate is fate


async def test_a_run_that_is_not_there_is_gone(server: LangGraphServer, adapter: LangGraphAdapter) -> None:
    handle = completed(await collect(adapter, request("one"))).handle
    call = Ongoing(handle, UNKNOWN)
    assert (await adapter.fetch(call)).fate is Fate.GONE
    assert await adapter.cancel(call) is True
    with pytest.raises(AdapterError) as caught:
        await listened(adapter.resume(request("two", handle=handle), call))
    assert caught.value.kind is ErrorClass.BACKEND_FAILED


async def test_a_question_behind_which_the_thread_has_gone_on_is_not_withdrawn(
    server: LangGraphServer, adapter: LangGraphAdapter
) -> None:
    server.script = plays(Item({"interrupt": "Which?"}))
    first = await collect(adapter, request("one"))
    handle, state = completed(first).handle, completed(first).state
    await collect(adapter, request("two", handle=handle, state=state, task_id="another"))
    await adapter.withdraw(names(first), ())
    [thread] = server.threads.values()
    assert len(thread.interrupts) == 1


async def test_a_question_is_not_withdrawn_while_a_run_works(
    server: LangGraphServer, adapter: LangGraphAdapter
) -> None:
    server.script = plays(Item({"interrupt": "Which?"}))
    asked = await collect(adapter, request("one"))
    server.faults["POST /threads/{thread}/state"] = 409
    with pytest.raises(AdapterError) as error:
        await adapter.withdraw(names(asked), ())
    assert error.value.kind is ErrorClass.LOCKED


async def test_a_thread_that_is_gone_has_nothing_to_withdraw(
    server: LangGraphServer, adapter: LangGraphAdapter
) -> None:
    server.script = plays(Item({"interrupt": "Which?"}))
    asked = await collect(adapter, request("one"))
    server.forget_everything()
    with pytest.raises(AdapterError) as error:
        await adapter.withdraw(names(asked), ())
    assert error.value.kind is ErrorClass.HANDLE_NOT_FOUND


async def test_a_call_without_a_run_is_neither_cancelled_nor_found(adapter: LangGraphAdapter) -> None:
    handle = completed(await collect(adapter, request("one"))).handle
    assert await adapter.cancel(Ongoing(handle)) is False
    with pytest.raises(AdapterError) as caught:
        await adapter.fetch(Ongoing(handle))
    assert caught.value.kind is ErrorClass.BACKEND_FAILED


LOOK_UPS = [
    f"GET /threads/{{thread}}{rest}" if rest != "/history" else "POST /threads/{thread}/history"
    for rest in ("/runs/{run}/stream", "/runs/{run}", "", "/history")
]


@pytest.mark.parametrize("status", [500, 503, 429])
@pytest.mark.parametrize("look_up", LOOK_UPS)
async def test_a_server_that_fails_to_look_a_run_up_says_nothing_of_the_run(
    server: LangGraphServer, adapter: LangGraphAdapter, look_up: str, status: int
) -> None:
    events = await collect(adapter, request("hi"))
    server.runs[-1].forget_events()
    server.faults[look_up] = status
    with pytest.raises(AdapterError) as caught:
        await listened(adapter.resume(request("hi"), names(events)))
    assert (caught.value.kind, server.faults) == (ErrorClass.INTERRUPTED, {})
    assert text(await listened(adapter.resume(request("hi"), names(events)))) == "Hello."


@pytest.mark.parametrize("look_up", LOOK_UPS)
async def test_a_look_at_a_run_that_is_cut_may_be_repeated(
    server: LangGraphServer, adapter: LangGraphAdapter, look_up: str
) -> None:
    events = await collect(adapter, request("hi"))
    server.runs[-1].forget_events()
    server.faults[look_up] = 0
    with pytest.raises(AdapterError) as caught:
        await listened(adapter.resume(request("hi"), names(events)))
    assert caught.value.kind in {ErrorClass.INTERRUPTED, ErrorClass.UNREACHABLE}


async def test_an_end_that_cannot_be_looked_up_leaves_the_call_of_unknown_end(
    server: LangGraphServer, adapter: LangGraphAdapter
) -> None:
    server.faults["GET /threads/{thread}/runs/{run}"] = 500
    events, failed = await until_failed(adapter, request("hi"))
    assert (text(events), failed.kind) == ("Hello.", ErrorClass.INTERRUPTED)


async def test_a_run_that_is_looked_up_without_a_key_is_refused(
    server: LangGraphServer, adapter: LangGraphAdapter
) -> None:
    events = await collect(adapter, request("hi"))
    server.faults["GET /threads/{thread}/runs/{run}/stream"] = 401
    with pytest.raises(AdapterError) as caught:
        await listened(adapter.resume(request("hi"), names(events)))
    assert caught.value.kind is ErrorClass.UNAUTHORISED


# --- runs without a name


async def until_unnamed(server: LangGraphServer, adapter: LangGraphAdapter, asked: ServiceRequest) -> Run:
    """The run of a call that was left before the server has named the run."""
    server.script, known = plays(Pause(asyncio.Event())), len(server.runs)
    server.named.clear()
    async with asyncio.TaskGroup() as group:
        call = group.create_task(collect(adapter, asked))
        await until(lambda: len(server.runs) > known)
        call.cancel()
    return server.runs[-1]


async def test_a_run_of_the_context_that_nobody_has_named_is_ended_by_the_next_message(
    server: LangGraphServer, adapter: LangGraphAdapter
) -> None:
    first = completed(await collect(adapter, request("one")))
    asked = request("two", handle=first.handle, state=first.state)
    run = await until_unnamed(server, adapter, asked)
    with pytest.raises(AdapterError) as caught:
        await adapter.tail(asked)
    assert caught.value.kind is ErrorClass.LOCKED
    await run.ended.wait()
    assert run.status == "interrupted"
    assert await adapter.tail(asked) == Tail(1)


async def test_a_run_of_another_context_or_of_another_client_is_left_alone(
    server: LangGraphServer, adapter: LangGraphAdapter
) -> None:
    first = completed(await collect(adapter, request("one")))
    asked = request("two", handle=first.handle, state=first.state)
    run = await until_unnamed(server, adapter, asked)
    for metadata in ({"a2a_gateway_context": "context-2"}, {}):
        run.metadata = metadata
        with pytest.raises(AdapterError) as caught:
            await adapter.tail(asked)
        assert (caught.value.kind, run.status) == (ErrorClass.LOCKED, "running")
    run.stop()


# --- how much a thread holds


async def test_a_thread_that_has_taken_nothing_holds_nothing(adapter: LangGraphAdapter) -> None:
    first = completed(await collect(adapter, request("one")))
    assert await adapter.tail(request("two", handle=first.handle, state=first.state)) == Tail(0)
    assert await adapter.tail(request("two")) == Tail(0)


async def test_a_thread_that_has_answered_tells_its_answer(adapter: LangGraphAdapter) -> None:
    first = completed(await collect(adapter, request("one")))
    asked = request("two", handle=first.handle, state=first.state)
    events = await collect(adapter, asked)
    found = await adapter.tail(asked)
    assert found is not None
    assert (found.held, text(found.answer)) == (1, "Hello.")
    assert completed(found.answer) == completed(events)


async def test_a_thread_whose_run_has_failed_holds_the_message_without_an_answer(
    server: LangGraphServer, adapter: LangGraphAdapter
) -> None:
    first = completed(await collect(adapter, request("one")))
    server.script = plays(Say("Hel"), ErrorEvent())
    asked = request("two", handle=first.handle, state=first.state)
    await fault(adapter, asked)
    assert await adapter.tail(asked) == Tail(1)


async def test_a_decision_that_the_graph_has_taken_is_held(server: LangGraphServer, adapter: LangGraphAdapter) -> None:
    server.script = plays(Ask("pay", {"to": "a"}))
    asked = await collect(adapter, request("hi"))
    following = decided(asked)
    assert await adapter.tail(following) == Tail(0)
    server.script = plays(Say("Paid."))
    await collect(adapter, following)
    found = await adapter.tail(following)
    assert found is not None
    assert (found.held, text(found.answer)) == (1, "Paid.")


async def test_an_answer_that_the_graph_has_taken_is_held(server: LangGraphServer, adapter: LangGraphAdapter) -> None:
    server.script = plays(Item({"interrupt": "Which?"}))
    end = completed(await collect(adapter, request("hi")))
    sent = message("Oslo")
    said = UserItem(type(sent)(message_id="m", role=sent.role, parts=sent.parts, task_id="task-1"))
    following = request("Oslo", handle=end.handle, state=end.state, items=(said,))
    assert await adapter.tail(following) == Tail(0)
    server.script = plays(Say("Fine."))
    await collect(adapter, following)
    found = await adapter.tail(following)
    assert found is not None
    assert (found.held, text(found.answer)) == (1, "Fine.")


# --- a decision and words beside it


def first_the_decision(*steps: Step) -> Callable[[Conversation], list[Step]]:
    """The run of the decision says "Paid.", the one of the words has these steps."""
    return lambda conversation: [Say("Paid.")] if "command" in conversation.request else list(steps)


async def test_a_call_with_two_runs_is_named_by_both_and_found_again_by_them(
    server: LangGraphServer, adapter: LangGraphAdapter
) -> None:
    server.script = plays(Ask("pay", {"to": "a"}))
    following = decided(await collect(adapter, request("hi")), "thanks")
    server.script = first_the_decision(Say("Gladly."))
    events = await collect(adapter, following)
    _, decision, words = (run.id for run in server.runs)
    assert [event.run for event in of_type(events, CallStarted)] == [f"{decision},", f"{decision},{words}"]
    again = await listened(adapter.resume(following, names(events, following.handle)))
    assert again[1:] == [event for event in events if not isinstance(event, CallStarted)]
    assert text((await adapter.fetch(names(events, following.handle))).events) == "Paid.Gladly."


async def test_a_call_that_was_left_between_its_runs_goes_on_with_the_second(
    server: LangGraphServer, adapter: LangGraphAdapter
) -> None:
    server.script = plays(Ask("pay", {"to": "a"}))
    following = decided(await collect(adapter, request("hi")), "thanks")
    server.script = first_the_decision(Say("Gladly."))
    stream = adapter.call(following)
    call = names([await anext(stream)], following.handle)
    await stream.aclose()
    await server.runs[1].ended.wait()
    assert (await adapter.fetch(call)).fate is Fate.FAILED
    found = await adapter.tail(following)
    assert found is not None
    assert found.held == 1
    assert text(await listened(adapter.resume(following, call))) == "Paid.Gladly."


async def test_a_second_run_that_is_refused_leaves_the_call_of_unknown_end(
    server: LangGraphServer, adapter: LangGraphAdapter
) -> None:
    server.script = plays(Ask("pay", {"to": "a"}))
    following = decided(await collect(adapter, request("hi")), "thanks")
    server.script = first_the_decision(Status(429, {"detail": "slow down"}))
    _, failed = await until_failed(adapter, following)
    assert failed.kind is ErrorClass.INTERRUPTED


async def test_words_wait_while_the_graph_asks_again(server: LangGraphServer, adapter: LangGraphAdapter) -> None:
    server.script = plays(Item({"interrupt": ACTION}))
    following = decided(await collect(adapter, request("hi")), "thanks")
    server.script = plays(Item({"interrupt": ACTION}))
    again = await collect(adapter, following)
    server.script = first_the_decision(Say("Gladly."))
    events = await collect(adapter, decided(again))
    assert text(events) == "Paid.Gladly."
    assert [each["content"] for each in runs_of(server)[-1]["input"]["messages"]] == ["thanks"]


# --- the rest


async def test_the_card_may_say_what_the_server_says_of_the_assistant(build: Build) -> None:
    for name in ("agent", ASSISTANT):
        assert await build(assistant=name).describe() == Description("Helper", "Helps.", "3")


async def test_a_thread_is_deleted_and_what_is_none_counts_as_deleted(
    server: LangGraphServer, adapter: LangGraphAdapter
) -> None:
    handle = completed(await collect(adapter, request("one"))).handle
    assert isinstance(adapter, CanForget)
    for name in (handle, handle, "conv_1"):
        await adapter.forget(str(name))
    assert server.threads == {}


def test_threads_that_are_to_stay_are_not_deleted(build: Build) -> None:
    assert not isinstance(build(delete_threads=False), CanForget)


async def test_the_server_and_its_graph_are_found_without_a_trace(server: LangGraphServer, build: Build) -> None:
    for name in ("agent", ASSISTANT):
        assert (await build(assistant=name).probe()).notes == ("it is version 0.16.7 of langgraph-api",)
    for name in ("nothing", UNKNOWN):
        with pytest.raises(AdapterError) as caught:
            await build(assistant=name).probe()
        assert caught.value.kind is ErrorClass.NOT_SERVED
    assert server.threads == {}
