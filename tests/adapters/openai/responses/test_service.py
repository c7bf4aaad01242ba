"""Conversations of the Responses adapter, its look-up of calls with unknown outcome, and its deletions."""

import asyncio
import json
from typing import Any

import pytest
from pydantic import ValidationError

from adapters.openai.responses.adapter import factory
from gateway.ports.adapter import (
    Adapter,
    AdapterError,
    CallCompleted,
    CallStarted,
    ErrorClass,
    ServiceRequest,
    TextDelta,
    ToolCallReady,
)
from gateway.ports.capabilities import (
    CanFetch,
    CanForget,
    CanListTail,
    CanProbe,
    Fate,
    Fetched,
    Ongoing,
    ProbeReport,
    Tail,
)
from gateway.ports.conversation import HandleKind, OutputItem, Ownership, StorageOwner
from gateway.testing.adapter_scripts import collect, first_text, request
from tests.adapters.emulator_support import KEY, Build, Start, plays, settings
from tests.adapters.openai.openai_support import finished, judge, output_ids, response_ids
from tests.adapters.raw_server import Exchange, StartRaw
from tests.adapters.raw_server import plain as answer_of
from tests.emulators.responses_dialects import RESPONSES_DIALECTS
from tests.emulators.responses_server import ResponsesServer
from tests.emulators.scripts import Call, Cut, Fail, Incomplete, Item, Pause, Raw, Say, ServerTool, Think


@pytest.fixture
def server() -> ResponsesServer:
    """Refuses requests that violate the vendor's API description, and any other key."""
    return ResponsesServer(plays(Say("Hello")), api_key=KEY, validator=judge())


@pytest.fixture
async def chained(server: ResponsesServer, start: Start, build: Build) -> Adapter:
    return build(factory, await start(server))


@pytest.fixture
async def conversing(server: ResponsesServer, start: Start, build: Build) -> Adapter:
    return build(factory, await start(server), conversation=True)


def user(words: str) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": words}]}


async def fault(adapter: Adapter, asked: ServiceRequest) -> ErrorClass:
    with pytest.raises(AdapterError) as caught:
        await collect(adapter, asked)
    assert KEY not in caught.value.detail
    return caught.value.kind


async def fetch(adapter: Adapter, pending: str) -> Fetched:
    assert isinstance(adapter, CanFetch)
    return await adapter.fetch(Ongoing(pending))


async def tail(adapter: Adapter, asked: ServiceRequest) -> Tail | None:
    assert isinstance(adapter, CanListTail)
    return await adapter.tail(asked)


async def forget(adapter: Adapter, handle: str) -> None:
    assert isinstance(adapter, CanForget)
    await adapter.forget(handle)


async def test_a_response_that_failed_brings_its_tokens(server: ResponsesServer, chained: Adapter) -> None:
    error, tokens = {"code": "server_error", "message": "no"}, {"total_tokens": 7}
    response = {"id": "resp_1", "status": "failed", "error": error, "usage": tokens}
    event = {"type": "response.failed", "response": response}
    server.script = plays(Raw(f"data: {json.dumps(event)}\n\n".encode()))
    with pytest.raises(AdapterError) as caught:
        await collect(chained, request("Hi"))
    assert (caught.value.kind, caught.value.usage) == (ErrorClass.BACKEND_FAILED, tokens)


# --- in a conversation ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kept", [False, True], ids=["a chain", "a conversation"])
async def test_82_a_service_that_counts_its_calls_anew_in_each_response_gets_an_output_for_each(
    kept: bool, server: ResponsesServer, start: Start, build: Build
) -> None:
    adapter = build(factory, await start(server), conversation=kept)
    server.script = plays(Call("f", '{"x":1}', "call_0"))
    first = await finished(adapter, "Hi")
    server.script = plays(Call("f", '{"x":2}', "call_0"))
    items = (OutputItem("call_0", "one"),)
    events = await collect(adapter, request("Hi", handle=first.handle, state=first.state, items=items))
    assert [event.arguments for event in events if isinstance(event, ToolCallReady)] == ['{"x":2}']


async def test_31_every_request_names_the_conversation_with_new_input_alone_and_instructions_and_tools_again(
    server: ResponsesServer, start: Start, build: Build
) -> None:
    tools = [{"type": "web_search"}]
    adapter = build(factory, await start(server), conversation=True, instructions="Be brief.", tools=tools)
    first = await finished(adapter, "one")
    [handle] = server.conversations
    assert first == CallCompleted(
        handle,
        usage=server.stored[response_ids(server)[0]].body["usage"],
        state={"last_item": output_ids(server)[0]},
        stored=True,
    )
    second = await finished(adapter, "two", handle=first.handle, state=first.state)
    assert (second.handle, second.state) == (handle, {"last_item": output_ids(server)[0]})
    fixed = {"model": "m", "store": True, "stream": True, "instructions": "Be brief.", "tools": tools}
    assert server.requests == [
        {},
        fixed | {"input": [user("one")], "conversation": handle},
        fixed | {"input": [user("two")], "conversation": handle},
    ]
    assert [item["type"] for item in server.conversations[handle].items] == ["message"] * 4


async def test_35_the_id_of_a_new_conversation_comes_before_any_request_in_it(
    server: ResponsesServer, conversing: Adapter
) -> None:
    events = conversing.call(request("Hi"))
    started = await anext(events)
    [handle] = server.conversations
    assert (started, server.requests, server.stored) == (CallStarted(handle), [{}], {})
    await events.aclose()
    assert server.requests == [{}]


async def test_a_conversation_is_announced_once_in_a_call(server: ResponsesServer, conversing: Adapter) -> None:
    first = await collect(conversing, request("one"))
    [handle] = server.conversations
    second = await collect(conversing, request("two", handle=handle))
    for events in (first, second):
        assert [event for event in events if isinstance(event, CallStarted)] == [CallStarted(handle)]
        assert isinstance(events[0], CallStarted)


async def test_38_outputs_that_a_conversation_waits_for_go_before_the_message(
    server: ResponsesServer, conversing: Adapter
) -> None:
    server.script = plays(Call("lookup", {"q": "x"}, call_id="call_1"))
    first = await finished(conversing)
    server.script = plays(Say("Well."))
    assert await fault(conversing, request("never mind", handle=first.handle)) is ErrorClass.REJECTED
    await finished(conversing, "never mind", earlier=(OutputItem("call_1", "not run"),), handle=first.handle)
    assert server.requests[-1]["input"] == [
        {"type": "function_call_output", "call_id": "call_1", "output": "not run"},
        user("never mind"),
    ]


async def test_a_locked_conversation_is_free_when_its_response_has_ended(
    server: ResponsesServer, conversing: Adapter
) -> None:
    release = asyncio.Event()
    server.script = plays(Say("Hel"), Pause(release), Say("lo"))
    first = conversing.call(request("one"))
    await first_text(first)
    [handle] = server.conversations
    assert await fault(conversing, request("two", handle=handle)) is ErrorClass.LOCKED
    release.set()
    assert [event async for event in first][-1] == CallCompleted(
        handle,
        usage=server.stored[response_ids(server)[0]].body["usage"],
        state={"last_item": output_ids(server)[0]},
        stored=True,
    )
    server.script = plays(Say("Hello"))
    await finished(conversing, "two", handle=handle)


@pytest.mark.parametrize("dialect", ["openai", "ogx", "litellm"])
async def test_a_conversation_that_the_backend_lost_is_an_error_and_never_a_fresh_start(
    start: Start, build: Build, dialect: str
) -> None:
    server = ResponsesServer(plays(Say("Hello")), dialect=RESPONSES_DIALECTS[dialect])
    adapter = build(factory, await start(server), conversation=True)
    asked = request("And?", handle="conv_0123456789abcdef")
    assert await fault(adapter, asked) is ErrorClass.HANDLE_NOT_FOUND


async def test_a_response_that_does_not_name_the_conversation_is_accepted(start: Start, build: Build) -> None:
    server = ResponsesServer(plays(Say("Hello")), dialect=RESPONSES_DIALECTS["ogx"])
    adapter = build(factory, await start(server), conversation=True)
    first = await finished(adapter)
    assert (await finished(adapter, "And?", handle=first.handle)).handle == first.handle


async def test_27_an_answer_in_another_conversation_breaks_the_contract(
    server: ResponsesServer, conversing: Adapter
) -> None:
    first = await finished(conversing)
    renamed = {"type": "response.in_progress", "response": {"id": "resp_1", "conversation": {"id": "conv_other"}}}
    server.script = plays(Raw(f"data: {json.dumps(renamed)}\n\n".encode()), Say("Hello"))
    assert await fault(conversing, request("And?", handle=first.handle)) is ErrorClass.CONTRACT_BROKEN


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (answer_of("404 Not Found"), ErrorClass.NOT_SERVED),
        (answer_of("200 OK", b"{}"), ErrorClass.NOT_SERVED),
        (answer_of("200 OK", b'{"id": ""}'), ErrorClass.NOT_SERVED),
        (answer_of("200 OK", b"<html>"), ErrorClass.NOT_SERVED),
        (answer_of("204 No Content"), ErrorClass.NOT_SERVED),
        (answer_of("302 Found", Location="https://elsewhere.example/"), ErrorClass.NOT_SERVED),
        (answer_of("401 Unauthorized", f'{{"error": {{"message": "no {KEY}"}}}}'.encode()), ErrorClass.UNAUTHORISED),
        (answer_of("429 Too Many Requests"), ErrorClass.RATE_LIMITED),
        (answer_of("500 Internal Server Error"), ErrorClass.UNREACHABLE),
    ],
)
async def test_without_a_conversation_no_response_is_requested(
    raw: StartRaw, build: Build, reply: bytes, kind: ErrorClass
) -> None:
    server = await raw(lambda exchange: exchange.send(reply))
    adapter = build(factory, f"{server.url}/v1", conversation=True)
    assert await fault(adapter, request("Hi")) is kind
    [asked] = server.requests
    assert asked.head.startswith("POST /v1/conversations HTTP/1.1")
    assert (asked.body, asked.header("accept")) == (b"{}", "application/json")


# --- settings ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"history": {"owner": "gateway"}}, "'history.owner: gateway'"),
        ({"verify_chain": True}, "'verify_chain'"),
        ({"extra_body": {"previous_response_id": "resp_1"}}, "'extra_body.previous_response_id'"),
    ],
)
def test_20_a_conversation_beside_another_continuation_is_refused(values: dict[str, Any], named: str) -> None:
    with pytest.raises(ValidationError, match=f"'conversation: true' and {named} exclude each other"):
        factory.settings.model_validate(settings("https://x.example/v1", conversation=True, **values))


def test_the_setting_decides_the_kind_of_handle_and_the_abilities(chained: Adapter, conversing: Adapter) -> None:
    assert conversing.ownership == Ownership(StorageOwner.BACKEND, HandleKind.STATIC)
    assert [isinstance(adapter, CanFetch) for adapter in (chained, conversing)] == [True, False]
    assert [isinstance(adapter, CanListTail) for adapter in (chained, conversing)] == [False, True]
    assert [isinstance(adapter, CanForget) for adapter in (chained, conversing)] == [True, True]


# --- the fate of a response -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "steps",
    [
        (Say("Hello"),),
        (Think("hm"), ServerTool("mcp", "f", {"a": 1}, "3"), Say("3")),
        (Call("f", "{}", "call_1"),),
        (Say("Hel"), Incomplete()),
    ],
)
async def test_51_a_response_that_completed_is_fetched_as_the_call_would_have_given_it(
    server: ResponsesServer, chained: Adapter, steps: Any
) -> None:
    server.script = plays(*steps)
    given = await collect(chained, request("Hi"))
    [handle] = response_ids(server)
    found = await fetch(chained, handle)
    assert found.fate is Fate.COMPLETED
    assert (found.events[0], found.events[-1]) == (CallStarted(handle), given[-1])
    whole = [event for event in given if type(event).__name__.endswith("Ready")]
    assert [event for event in found.events if type(event).__name__.endswith("Ready")] == whole
    streamed = "".join(event.text for event in given if isinstance(event, TextDelta))
    assert [event.text for event in found.events if isinstance(event, TextDelta)] == ([streamed] if streamed else [])


async def test_a_response_that_went_on_from_another_is_fetched_too(server: ResponsesServer, chained: Adapter) -> None:
    first = await finished(chained)
    second = await finished(chained, "And?", handle=first.handle)
    assert second.handle is not None
    assert (await fetch(chained, second.handle)).events[-1] == second


async def test_a_response_that_still_runs_and_one_that_was_cut_have_their_fates(
    server: ResponsesServer, chained: Adapter
) -> None:
    server.script = plays(Say("Hel"), Pause(asyncio.Event()))
    events = chained.call(request("Hi"))
    await first_text(events)
    [handle] = response_ids(server)
    assert await fetch(chained, handle) == Fetched(Fate.RUNNING)
    await events.aclose()
    server.script = plays(Say("Hel"), Cut())
    with pytest.raises(AdapterError):
        await collect(chained, request("Hi"))
    assert await fetch(chained, response_ids(server)[1]) == Fetched(Fate.RUNNING)


async def test_a_response_that_failed_or_is_gone_has_its_fate(server: ResponsesServer, chained: Adapter) -> None:
    server.script = plays(Say("Hel"), Fail())
    with pytest.raises(AdapterError):
        await collect(chained, request("Hi"))
    [handle] = response_ids(server)
    assert await fetch(chained, handle) == Fetched(Fate.FAILED)
    server.stored.clear()
    assert await fetch(chained, handle) == Fetched(Fate.GONE)


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (answer_of("200 OK", b"[]"), ErrorClass.CONTRACT_BROKEN),
        (answer_of("200 OK", b'{"status": "odd"}'), ErrorClass.CONTRACT_BROKEN),
        (answer_of("200 OK", b'{"status": ["completed"]}'), ErrorClass.CONTRACT_BROKEN),
        (answer_of("200 OK", b'{"status": "completed", "output": 7}'), ErrorClass.CONTRACT_BROKEN),
        (answer_of("200 OK", b'{"status": "comp'), ErrorClass.CONTRACT_BROKEN),
        (answer_of("401 Unauthorized"), ErrorClass.UNAUTHORISED),
        (answer_of("503 Service Unavailable"), ErrorClass.BACKEND_FAILED),
    ],
)
async def test_an_answer_without_the_fate_of_a_response_is_an_error(
    raw: StartRaw, build: Build, reply: bytes, kind: ErrorClass
) -> None:
    server = await raw(lambda exchange: exchange.send(reply))
    with pytest.raises(AdapterError) as caught:
        await fetch(build(factory, f"{server.url}/v1"), "resp_1")
    assert caught.value.kind is kind
    assert server.requests[0].head.startswith("GET /v1/responses/resp_1 HTTP/1.1")


# --- the tail of a conversation ---------------------------------------------------------------------------------------


async def test_51_a_call_of_unknown_outcome_is_found_in_the_conversation(
    server: ResponsesServer, conversing: Adapter
) -> None:
    first = await finished(conversing, "Hi")
    again = request("Hi", handle=first.handle, state=first.state)
    assert await tail(conversing, again) == Tail(0)
    server.script = plays(Call("f", "{}", "call_1"), Say("Hello again"))
    given = await collect(conversing, again)
    found = await tail(conversing, again)
    assert found is not None
    assert found.held == 1
    completed = given[-1]
    assert isinstance(completed, CallCompleted)
    assert found.answer[-1] == CallCompleted(completed.handle, state=completed.state)
    assert [e for e in found.answer if isinstance(e, TextDelta)] == [e for e in given if isinstance(e, TextDelta)]
    after = request("Hi", handle=first.handle, state=completed.state)
    assert await tail(conversing, after) == Tail(0)


async def test_what_came_since_is_not_taken_for_what_landed(server: ResponsesServer, conversing: Adapter) -> None:
    first = await finished(conversing, "one")
    lost = request("two", handle=first.handle, state=first.state)
    await collect(conversing, lost)
    next_one = request("three", earlier=lost.items, handle=first.handle, state=first.state)
    found = await tail(conversing, next_one)
    assert found is not None
    assert (found.held, len(next_one.items)) == (1, 2)


async def test_a_call_that_did_not_complete_left_nothing(server: ResponsesServer, conversing: Adapter) -> None:
    server.script = plays(Say("Hel"), Cut())
    events = conversing.call(request("Hi"))
    await anext(events)
    with pytest.raises(AdapterError):
        _ = [event async for event in events]
    [handle] = server.conversations
    assert await tail(conversing, request("Hi", handle=handle)) == Tail(0)


async def test_a_conversation_that_was_never_made_holds_nothing(server: ResponsesServer, conversing: Adapter) -> None:
    assert await tail(conversing, request("Hi")) == Tail(0)
    assert server.requests == []


@pytest.mark.parametrize("dialect", ["openai", "ogx"])
async def test_the_tail_of_a_conversation_that_is_gone_is_an_error(start: Start, build: Build, dialect: str) -> None:
    adapter = build(factory, await start(ResponsesServer(dialect=RESPONSES_DIALECTS[dialect])), conversation=True)
    with pytest.raises(AdapterError) as caught:
        await tail(adapter, request("Hi", handle="conv_1", state={"last_item": "msg_1"}))
    assert caught.value.kind is ErrorClass.HANDLE_NOT_FOUND


async def test_a_list_that_does_not_reach_the_last_completed_call_gives_no_tail(
    server: ResponsesServer, conversing: Adapter
) -> None:
    first = await finished(conversing)
    assert await tail(conversing, request("Hi", handle=first.handle, state={"last_item": "msg_other"})) is None
    server.script = plays(*(Item({"type": "note"}) for _ in range(100)))
    await finished(conversing, "many", handle=first.handle)
    assert await tail(conversing, request("Hi", handle=first.handle, state=first.state)) is None
    assert await tail(conversing, request("Hi", handle=first.handle)) is None


@pytest.mark.parametrize("body", [b"[]", b'{"data": 7}', b'{"data": [7]}', b"no"])
async def test_items_that_are_no_list_break_the_contract(raw: StartRaw, build: Build, body: bytes) -> None:
    server = await raw(lambda exchange: exchange.send(answer_of("200 OK", body)))
    with pytest.raises(AdapterError) as caught:
        await tail(build(factory, f"{server.url}/v1", conversation=True), request("Hi", handle="conv_1"))
    assert caught.value.kind is ErrorClass.CONTRACT_BROKEN


# --- deletion ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", ["openai", "ogx"])
@pytest.mark.parametrize("conversation", [False, True])
async def test_139_a_handle_is_deleted_as_what_it_is_and_once_is_enough(
    start: Start, build: Build, dialect: str, conversation: bool
) -> None:
    server = ResponsesServer(plays(Say("Hello")), dialect=RESPONSES_DIALECTS[dialect])
    url = await start(server)
    handles = [(await finished(build(factory, url, conversation=mode))).handle for mode in (False, True)]
    # Of threads from before the settings changed, too.
    adapter = build(factory, url, conversation=conversation)
    for handle in [*handles, *handles]:
        assert handle is not None
        await forget(adapter, handle)
    assert handles[0] not in server.stored
    assert server.conversations == {}


async def test_139_the_items_of_a_conversation_are_deleted_before_it(
    server: ResponsesServer, conversing: Adapter
) -> None:
    """A service that deletes a conversation without its items."""
    server.script = plays(*(Item({"type": "note"}) for _ in range(119)), Say("Hello"))
    handle = (await finished(conversing)).handle
    assert handle is not None
    conversation = server.conversations[handle]
    assert len(conversation.items) == 121
    await forget(conversing, handle)
    assert (conversation.items, server.conversations) == ([], {})


@pytest.mark.parametrize("offered", [answer_of("404 Not Found"), answer_of("405 Method Not Allowed")])
@pytest.mark.parametrize("lists", [True, False])
async def test_139_a_service_without_deletion_of_items_still_deletes_the_conversation(
    raw: StartRaw, build: Build, offered: bytes, lists: bool
) -> None:
    async def answer(exchange: Exchange) -> None:
        if lists and exchange.request.head.startswith("GET"):
            # A list that always claims a further page.
            await exchange.send(answer_of("200 OK", b'{"data": [{"id": "msg_1"}, {"id": "msg_2"}], "has_more": true}'))
        else:
            await exchange.send(
                answer_of("204 No Content") if " /v1/conversations/conv_1 " in exchange.request.head else offered
            )

    server = await raw(answer)
    await forget(build(factory, f"{server.url}/v1", conversation=True), "conv_1")
    assert server.requests[-1].head.startswith("DELETE /v1/conversations/conv_1 HTTP/1.1")


async def test_139_a_conversation_whose_items_could_not_be_deleted_now_is_left_for_later(
    raw: StartRaw, build: Build
) -> None:
    server = await raw(lambda exchange: exchange.send(answer_of("503 Service Unavailable")))
    with pytest.raises(AdapterError):
        await forget(build(factory, f"{server.url}/v1", conversation=True), "conv_1")
    assert [sent.head.split()[0] for sent in server.requests] == ["GET"]


@pytest.mark.parametrize(
    ("values", "handle", "path"),
    [
        ({}, "resp_1", "/v1/responses/resp_1"),
        ({}, "caresp_1", "/v1/responses/caresp_1"),
        ({}, "conv_1", "/v1/conversations/conv_1"),
        ({}, "odd/one?a", "/v1/responses/odd%2Fone%3Fa"),
        ({"conversation": True}, "odd", "/v1/conversations/odd"),
        ({"conversation": True}, "resp_1", "/v1/responses/resp_1"),
    ],
)
async def test_the_form_of_a_handle_decides_what_is_deleted_else_the_settings(
    raw: StartRaw, build: Build, values: dict[str, Any], handle: str, path: str
) -> None:
    server = await raw(lambda exchange: exchange.send(answer_of("204 No Content")))
    await forget(build(factory, f"{server.url}/v1", **values), handle)
    assert server.requests[-1].head.partition(" HTTP/")[0] == f"DELETE {path}"


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (answer_of("400 Bad Request", b'{"error": {"message": "in flight"}}'), ErrorClass.REJECTED),
        (answer_of("405 Method Not Allowed"), ErrorClass.NOT_SERVED),
        (answer_of("401 Unauthorized"), ErrorClass.UNAUTHORISED),
        (answer_of("500 Internal Server Error"), ErrorClass.BACKEND_FAILED),
    ],
)
async def test_a_deletion_that_was_not_done_is_an_error(
    raw: StartRaw, build: Build, reply: bytes, kind: ErrorClass
) -> None:
    server = await raw(lambda exchange: exchange.send(reply))
    with pytest.raises(AdapterError) as caught:
        await forget(build(factory, f"{server.url}/v1"), "resp_1")
    assert caught.value.kind is kind


async def test_a_deletion_without_an_answer_is_an_error(raw: StartRaw, build: Build) -> None:
    async def hangs_up(exchange: Exchange) -> None:
        exchange.writer.close()

    server = await raw(hangs_up)
    with pytest.raises(AdapterError) as caught:
        await forget(build(factory, f"{server.url}/v1"), "resp_1")
    assert caught.value.kind is ErrorClass.INTERRUPTED


# --- a probe ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dialect", "note"),
    [
        ("openai", "it refuses one that it does not know"),
        ("ogx", "it refuses one that it does not know"),
        ("litellm", "it refuses one that it does not know"),
    ],
)
async def test_a_probe_makes_a_conversation_and_leaves_none(
    start: Start, build: Build, dialect: str, note: str
) -> None:
    server = ResponsesServer(plays(Say("Hello")), dialect=RESPONSES_DIALECTS[dialect])
    adapter = build(factory, await start(server), conversation=True)
    assert isinstance(adapter, CanProbe)
    assert await adapter.probe() == ProbeReport(streams=True, notes=("it keeps conversations", note))
    assert (server.stored, server.conversations) == ({}, {})
