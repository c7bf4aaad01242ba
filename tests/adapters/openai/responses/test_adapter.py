"""The Responses adapter passes the conformance suite; the events of answers, and its errors."""

import asyncio
import base64
import json
from typing import Any, ClassVar

import pytest

from adapters.openai.responses.adapter import factory
from gateway.a2a.model import Message, Part, Role
from gateway.ports.adapter import (
    Adapter,
    AdapterError,
    AdapterEvent,
    CallCompleted,
    CallStarted,
    ErrorClass,
    ItemReady,
    MessageReady,
    PartReady,
    ReasoningDelta,
    TextDelta,
    ToolCallAnnounced,
    ToolCallArguments,
    ToolCallReady,
    ToolResultReady,
)
from gateway.ports.capabilities import CanNameHandle
from gateway.ports.conversation import ReasoningItem
from gateway.testing.adapter_scripts import collect, failure, request, text
from tests.adapters.emulator_support import KEY, Build, Start, plays
from tests.adapters.openai.openai_support import finished, output_ids, response_ids
from tests.adapters.openai.responses_suite import ResponsesSuite
from tests.adapters.raw_server import Exchange, StartRaw
from tests.emulators.responses_dialects import RESPONSES_DIALECTS
from tests.emulators.responses_server import ResponsesServer
from tests.emulators.scripts import (
    Call,
    Cut,
    ErrorEvent,
    Fail,
    Html,
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
    Think,
    rate_limited,
)


@pytest.fixture
def server() -> ResponsesServer:
    return ResponsesServer(api_key=KEY)


@pytest.fixture
async def plain(server: ResponsesServer, start: Start, build: Build) -> Adapter:
    """An adapter of the default settings in front of `server`."""
    return build(factory, await start(server))


# --- the conformance suite --------------------------------------------------------------------------------------------


class TestBackendKeeps(ResponsesSuite):
    """The backend keeps the conversation."""


class TestGatewayKeeps(ResponsesSuite):
    """The gateway keeps the conversation."""

    values: ClassVar = {"history": {"owner": "gateway"}}


class TestConversation(ResponsesSuite):
    """The backend keeps the conversation, under one id."""

    values: ClassVar = {"conversation": True}


class TestBackground(ResponsesSuite):
    """The backend keeps the conversation, and goes on without a listener."""

    values: ClassVar = {"background": True}

    async def backend_is_released(self) -> None:
        await self.server.listener_left()


class TestBackgroundConversation(TestBackground):
    """The backend keeps the conversation under one id, and goes on without a listener."""

    values: ClassVar = {"conversation": True, "background": True}


# --- answers ----------------------------------------------------------------------------------------------------------


async def test_a_message_is_its_deltas(server: ResponsesServer, plain: Adapter) -> None:
    server.script = plays(Say("Hello world", chunks=2), Refuse(" but no", chunks=2))
    events = await collect(plain, request("Hi"))
    [handle] = response_ids(server)
    usage = server.stored[handle].body["usage"]
    assert events == [
        CallStarted(handle),
        TextDelta("Hello "),
        TextDelta("world"),
        TextDelta(" but"),
        TextDelta(" no"),
        MessageReady("Hello world but no", output_ids(server)[0]),
        CallCompleted(handle, usage=usage, stored=True),
    ]


async def test_reasoning_comes_before_the_answer(server: ResponsesServer, plain: Adapter) -> None:
    server.script = plays(Think("Let me see", chunks=2), Say("Hello"))
    events = await collect(plain, request("Hi"))
    summary = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Let me see"}]}
    assert events[1:-1] == [
        ReasoningDelta("Let m"),
        ReasoningDelta("e see"),
        ItemReady(ReasoningItem("Let me see", summary), output_ids(server)[0]),
        TextDelta("Hello"),
        MessageReady("Hello", output_ids(server)[1]),
    ]


@pytest.mark.parametrize("dialect", ["openai", "ogx", "litellm"])
async def test_a_tool_of_the_backend_is_seen_from_its_start(start: Start, build: Build, dialect: str) -> None:
    through = asyncio.Event()
    script = plays(ServerTool("mcp", "get_weather", {"city": "Oslo"}, "3C", during=Pause(through)), Say("3C."))
    server = ResponsesServer(script, dialect=RESPONSES_DIALECTS[dialect])
    adapter = build(factory, await start(server))
    events: list[AdapterEvent] = []
    async for event in adapter.call(request("weather")):
        events.append(event)
        if isinstance(event, ToolCallReady):
            through.set()
    call = output_ids(server)[1]
    arguments = '{"city": "Oslo"}'
    assert events[1:-1] == [
        ToolCallAnnounced(call, "get_weather", handled=True, server="mcp:emulator"),
        ToolCallArguments(call, arguments),
        ToolCallReady(call, "get_weather", arguments, True, "mcp:emulator", call),
        ToolResultReady(call, "3C"),
        TextDelta("3C."),
        MessageReady("3C.", output_ids(server)[2]),
    ]


async def test_a_tool_of_the_backend_fails(server: ResponsesServer, plain: Adapter) -> None:
    server.script = plays(ServerTool("mcp", "f", {}, error="no such city"), Say("Sorry."))
    [result] = [event for event in await collect(plain, request("Hi")) if isinstance(event, ToolResultReady)]
    error = {"type": "mcp_tool_execution_error", "content": [{"type": "text", "text": "no such city"}]}
    assert result == ToolResultReady(output_ids(server)[1], error, error=True)


async def test_a_web_search_is_a_tool_call_too(server: ResponsesServer, plain: Adapter) -> None:
    server.script = plays(ServerTool("web_search", "web_search", {"query": "x"}), Say("Found."))
    events = await collect(plain, request("Hi"))
    call = output_ids(server)[0]
    assert events[1:-1] == [
        ToolCallAnnounced(call, "web_search", handled=True, server="web_search"),
        ToolCallReady(call, "web_search", '{"type":"search","query":"x"}', True, "web_search", call),
        ToolResultReady(call, {"status": "completed"}),
        TextDelta("Found."),
        MessageReady("Found.", output_ids(server)[1]),
    ]


async def test_a_generated_picture_is_a_part_of_the_answer(server: ResponsesServer, plain: Adapter) -> None:
    server.script = plays(ImageOut(b"png"), Say("There."))
    events = await collect(plain, request("Hi"))
    call = output_ids(server)[0]
    assert events[1:-1] == [
        ToolCallAnnounced(call, "image_generation", handled=True, server="image_generation"),
        ToolCallReady(call, "image_generation", '{"prompt":null}', True, "image_generation", call),
        ToolResultReady(call, {"status": "completed"}),
        PartReady(Part(raw=base64.b64encode(b"png").decode(), media_type="image/png")),
        TextDelta("There."),
        MessageReady("There.", output_ids(server)[1]),
    ]


@pytest.mark.parametrize("dialect", ["openai", "ogx"])
async def test_parallel_calls_for_the_client_keep_apart(start: Start, build: Build, dialect: str) -> None:
    script = plays(Call("f", '{"a":1}', "call_1"), Call("g", '{"b":2}', "call_2", chunks=1))
    server = ResponsesServer(script, dialect=RESPONSES_DIALECTS[dialect])
    events = await collect(build(factory, await start(server)), request("Hi"))
    first, second = output_ids(server)
    assert events[1:-1] == [
        ToolCallAnnounced("call_1", "f"),
        ToolCallArguments("call_1", '{"a"'),
        ToolCallArguments("call_1", ":1}"),
        ToolCallReady("call_1", "f", '{"a":1}', provider_id=first),
        ToolCallAnnounced("call_2", "g"),
        ToolCallArguments("call_2", '{"b":2}'),
        ToolCallReady("call_2", "g", '{"b":2}', provider_id=second),
    ]


@pytest.mark.parametrize("reason", ["max_output_tokens", "content_filter"])
async def test_an_incomplete_answer_can_be_continued_and_has_the_reason(
    server: ResponsesServer, plain: Adapter, reason: Any
) -> None:
    server.script = plays(Say("Hel"), Incomplete(reason))
    first = await finished(plain)
    assert (first.handle, first.finish) == (response_ids(server)[0], reason)
    server.script = plays(Say("lo"))
    assert (await finished(plain, "go on", handle=first.handle)).finish is None


# --- failures ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("steps", "kind"),
    [
        ([Say("Hel"), Fail()], ErrorClass.BACKEND_FAILED),
        ([Fail("rate_limit_exceeded", "slow down")], ErrorClass.RATE_LIMITED),
        ([Say("Hel"), ErrorEvent()], ErrorClass.BACKEND_FAILED),
        ([ErrorEvent("rate_limit_exceeded")], ErrorClass.RATE_LIMITED),
        ([ErrorEvent(None, "?")], ErrorClass.BACKEND_FAILED),
        ([Say("Hel"), NoTerminal()], ErrorClass.INTERRUPTED),
        ([NoTerminal()], ErrorClass.INTERRUPTED),
        ([Say("Hel"), Raw(b"data: [DONE]\n\n"), NoTerminal()], ErrorClass.INTERRUPTED),
        ([Say("Hel"), Cut()], ErrorClass.INTERRUPTED),
        ([Say("Hel"), Raw(b'data: {"type":"response.outp')], ErrorClass.CONTRACT_BROKEN),
        ([Raw(b"data: {}}\n\n")], ErrorClass.CONTRACT_BROKEN),
        ([Raw(b"data: 7\n\n")], ErrorClass.CONTRACT_BROKEN),
        ([Raw(b'data: {"type":7}\n\n')], ErrorClass.CONTRACT_BROKEN),
        ([Raw(b'data: {"type":"response.completed"}\n\n')], ErrorClass.CONTRACT_BROKEN),
        ([Raw(b'data: {"type":"response.completed","response":"no"}\n\n')], ErrorClass.CONTRACT_BROKEN),
        ([Raw(b'data: {"type":"response.output_text.delta","delta":"\xff"}\n\n')], ErrorClass.CONTRACT_BROKEN),
        ([Raw(b'data: {"delta":' + b"[" * 20_000 + b"]" * 20_000 + b"}\n\n")], ErrorClass.CONTRACT_BROKEN),
        ([Raw(b'data: {"error":{"message":"no","code":"conversation_locked"}}\n\n')], ErrorClass.LOCKED),
        ([rate_limited()], ErrorClass.RATE_LIMITED),
        ([Html()], ErrorClass.BACKEND_FAILED),
        ([Html(200)], ErrorClass.CONTRACT_BROKEN),
        ([Status(401, {"error": {"message": f"Bad key {KEY}"}})], ErrorClass.UNAUTHORISED),
    ],
)
async def test_a_failure_has_its_class_and_nothing_is_completed(
    server: ResponsesServer, plain: Adapter, steps: list[Step], kind: ErrorClass
) -> None:
    server.script = plays(*steps)
    error = await failure(plain)
    assert error.kind is kind
    assert KEY not in error.detail


async def test_after_every_failure_the_next_call_works(server: ResponsesServer, plain: Adapter) -> None:
    for steps in ([Cut()], [NoTerminal()], [Fail()], [Html()]):
        server.script = plays(Say("Hel"), *steps) if not isinstance(steps[0], Html) else plays(*steps)
        await failure(plain)
    server.script = plays(Say("Hello"))
    assert text(await collect(plain, request("Hi"))) == "Hello"


@pytest.mark.parametrize("dialect", ["openai", "ogx", "litellm"])
async def test_a_chain_that_the_backend_lost_is_an_error_and_never_a_fresh_start(
    start: Start, build: Build, dialect: str
) -> None:
    server = ResponsesServer(plays(Say("Hello")), dialect=RESPONSES_DIALECTS[dialect])
    adapter = build(factory, await start(server))
    first = await finished(adapter)
    server.stored.clear()
    with pytest.raises(AdapterError) as caught:
        await collect(adapter, request("And?", handle=first.handle))
    assert caught.value.kind is ErrorClass.HANDLE_NOT_FOUND


async def test_the_check_of_the_predecessor_can_be_switched_off(start: Start, build: Build) -> None:
    server = ResponsesServer(plays(Say("Hello")), dialect=RESPONSES_DIALECTS["litellm"])
    adapter = build(factory, await start(server), verify_chain=False)
    await finished(adapter, handle="resp_unknown")


async def test_secrets_of_tools_are_masked_too(raw: StartRaw, build: Build) -> None:
    tool = {"type": "mcp", "require_approval": "never", "authorization": "t0ken-of-mcp", "headers": {"X-Key": "h3ader"}}
    body = json.dumps({"error": {"message": "bad tool with t0ken-of-mcp and h3ader"}}).encode()

    async def answer(exchange: Exchange) -> None:
        await exchange.send(b"HTTP/1.1 400 No\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))

    adapter = build(factory, (await raw(answer)).url, tools=[tool])
    assert (await failure(adapter)).detail == "HTTP 400: bad tool with *** and ***"


@pytest.mark.parametrize(
    ("metadata", "named"),
    [
        ({"previous_response_id": "resp_1"}, "resp_1"),
        ({"conversation": "conv_1"}, "conv_1"),
        ({"conversation": "about sales"}, None),
        ({"previous_response_id": None, "conversation": {"id": "conv_1"}}, None),
        ({"other": "resp_1"}, None),
        (None, None),
    ],
)
def test_a_conversation_that_a_caller_names_in_the_words_of_the_service_is_seen(
    build: Build, metadata: dict[str, Any] | None, named: str | None
) -> None:
    adapter = build(factory, "http://127.0.0.1:1")
    assert isinstance(adapter, CanNameHandle)
    message = Message(message_id="m", role=Role.USER, parts=(Part(text="hi"),), metadata=metadata)
    assert adapter.named_handle(message) == named
