"""The Chat Completions adapter passes the conformance suite; its requests, the events of answers, its errors."""

import json
from typing import Any

import pytest
from pydantic import ValidationError

from adapters.openai.chat.adapter import factory
from adapters.openai.chat.stream import CompletionParser
from adapters.openai.failures import OpenAIFailures
from gateway.a2a.model import Json, Part
from gateway.ports.adapter import (
    Adapter,
    AdapterError,
    AdapterEvent,
    CallCompleted,
    CallStarted,
    ErrorClass,
    ItemReady,
    MessageReady,
    ReasoningDelta,
    TextDelta,
    ToolCallAnnounced,
    ToolCallArguments,
    ToolCallReady,
)
from gateway.ports.conversation import (
    AssistantItem,
    CallItem,
    HandleKind,
    Item,
    OpaqueItem,
    OutputItem,
    Ownership,
    ReasoningItem,
    StorageOwner,
    UserItem,
)
from gateway.ports.tools import ToolDeclaration
from gateway.testing.adapter_scripts import collect, failure, message, request, text
from tests.adapters.emulator_suite import EmulatorSuite
from tests.adapters.emulator_support import KEY, Build, Start, plays, settings
from tests.adapters.openai.openai_support import finished, judge, parts, roles_and_texts, tool_of
from tests.emulators.chat import CHAT_DIALECTS, ChatServer
from tests.emulators.scripts import (
    Call,
    Cut,
    ErrorEvent,
    Fail,
    Html,
    Incomplete,
    NoTerminal,
    Raw,
    Refuse,
    Say,
    Step,
    Think,
    rate_limited,
)
from tests.openapi import openai_validator


@pytest.fixture
def server() -> ChatServer:
    """Refuses requests that violate the vendor's API description, and any other key."""
    return ChatServer(plays(Say("Hello")), api_key=KEY, validator=judge())


@pytest.fixture
async def plain(server: ChatServer, start: Start, build: Build) -> Adapter:
    """An adapter of the default settings in front of `server`."""
    return build(factory, await start(server))


# --- the conformance suite --------------------------------------------------------------------------------------------


class TestConformance(EmulatorSuite):
    """Against a server of OpenAI's own dialect."""

    factory = factory
    emulator = ChatServer

    async def backend_received(self) -> list[list[tuple[str, str]]]:
        return [roles_and_texts(body["messages"]) for body in self.server.requests]

    async def backend_offered(self) -> list[list[ToolDeclaration]]:
        offered = [[tool["function"] for tool in body.get("tools", ())] for body in self.server.requests]
        return [[ToolDeclaration(**tool) for tool in tools] for tools in offered]

    async def backend_outputs(self) -> list[list[tuple[str, str]]]:
        messages = [[each for each in body["messages"] if each["role"] == "tool"] for body in self.server.requests]
        return [[(tool_of(each["tool_call_id"]), each["content"]) for each in answers] for answers in messages]


# --- requests ---------------------------------------------------------------------------------------------------------


def user(words: str) -> Json:
    return {"role": "user", "content": words}


def calling(*calls: tuple[str, str], content: str | None = None) -> Json:
    made = [
        {"id": call_id, "type": "function", "function": {"name": name, "arguments": "{}"}} for call_id, name in calls
    ]
    return {"role": "assistant", "content": content, "tool_calls": made}


def output(call_id: str, content: str) -> Json:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


ONE = UserItem(message("one"))
HELLO = AssistantItem((Part(text="Hello"),))
C1, C2, O1, O2 = (
    CallItem("call_1", "f", "{}"),
    CallItem("call_2", "g", "{}"),
    OutputItem("call_1", "1"),
    OutputItem("call_2", {"n": 2}),
)


async def test_every_request_carries_the_instructions_and_the_whole_conversation(
    server: ChatServer, start: Start, build: Build
) -> None:
    adapter = build(factory, await start(server), instructions="Be brief.")
    await collect(adapter, request("one"))
    await collect(adapter, request("two", earlier=(ONE, HELLO)))
    fixed = {"model": "m", "stream": True, "stream_options": {"include_usage": True}}
    system = {"role": "system", "content": "Be brief."}
    assert server.requests == [
        fixed | {"messages": [system, user("one")]},
        fixed | {"messages": [system, user("one"), {"role": "assistant", "content": "Hello"}, user("two")]},
    ]


@pytest.mark.parametrize(
    ("earlier", "sent"),
    [
        pytest.param((ONE,), [user("one")], id="a turn without an answer"),
        pytest.param((ONE, C1, O1), [user("one"), calling(("call_1", "f")), output("call_1", "1")], id="a tool round"),
        pytest.param(
            (C1, C2, O2, O1),
            [calling(("call_1", "f"), ("call_2", "g")), output("call_1", "1"), output("call_2", '{"n":2}')],
            id="parallel calls, answered in another order",
        ),
        pytest.param(
            (C1, O1, C2, O2),
            [
                calling(("call_1", "f")),
                output("call_1", "1"),
                calling(("call_2", "g")),
                output("call_2", '{"n":2}'),
            ],
            id="two rounds",
        ),
        pytest.param(
            (HELLO, C1, O1, HELLO),
            [
                calling(("call_1", "f"), content="Hello"),
                output("call_1", "1"),
                {"role": "assistant", "content": "Hello"},
            ],
            id="text before and after a call",
        ),
        pytest.param(
            (C1, HELLO, O1),
            [calling(("call_1", "f")), output("call_1", "1"), {"role": "assistant", "content": "Hello"}],
            id="text between a call and its output",
        ),
        pytest.param(
            (C1, O1, ONE, C1, OutputItem("call_1", "again")),
            [
                calling(("call_1", "f")),
                output("call_1", "1"),
                user("one"),
                calling(("call_1_2", "f")),
                output("call_1_2", "again"),
            ],
            id="an id used again",
        ),
        pytest.param(
            (CallItem("", "f", "{}"), CallItem("", "g", "{}"), OutputItem("", "1"), OutputItem("", "2")),
            [calling(("call_1", "f"), ("call_2", "g")), output("call_1", "1"), output("call_2", "2")],
            id="no ids",
        ),
        pytest.param(
            (CallItem("call_1", "f", ""), OutputItem("call_1", "no such file", error=True)),
            [calling(("call_1", "f")), output("call_1", "Error: no such file")],
            id="a tool that failed",
        ),
        pytest.param(
            (AssistantItem((Part(text=""),)), C1, O1),
            [calling(("call_1", "f")), output("call_1", "1")],
            id="an empty text",
        ),
        pytest.param(
            (CallItem("ask_1", "f", "{}", asking="wx"), OutputItem("ask_1", "", approved=True), C1, O1),
            [calling(("call_1", "f")), output("call_1", "1")],
            id="what another backend asked",
        ),
        pytest.param(
            (CallItem("call_1", "f", "{}", opaque={"google": {"thought_signature": "c2ln"}}), O1),
            [
                {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [
                        calling(("call_1", "f"))["tool_calls"][0]
                        | {"extra_content": {"google": {"thought_signature": "c2ln"}}}
                    ],
                },
                output("call_1", "1"),
            ],
            id="what Gemini wants back with a call",
        ),
        pytest.param((HELLO, HELLO), [{"role": "assistant", "content": "Hello\n\nHello"}], id="two messages"),
        pytest.param((ReasoningItem("hm"), OpaqueItem("x", {}), ONE), [user("one")], id="what has no place here"),
    ],
)
async def test_calls_are_followed_by_their_outputs_at_once(
    server: ChatServer, plain: Adapter, earlier: tuple[Item, ...], sent: list[Json]
) -> None:
    await collect(plain, request("two", earlier=earlier))
    assert server.requests[0]["messages"] == [*sent, user("two")]


@pytest.mark.parametrize(
    ("given", "content"),
    [
        pytest.param((Part(text="a"), Part(data={"b": [1]})), 'a\n{"b":[1]}', id="text and data"),
        pytest.param(
            (Part(text="a"), Part(raw="aGk=", media_type="image/png"), Part(url="https://x.example/a.jpg")),
            [
                {"type": "text", "text": "a"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}},
                {"type": "image_url", "image_url": {"url": "https://x.example/a.jpg"}},
            ],
            id="pictures",
        ),
        pytest.param(
            (Part(raw="aGk=", media_type="audio/mpeg"), Part(raw="aGk=", media_type="audio/wav")),
            [
                {"type": "input_audio", "input_audio": {"data": "aGk=", "format": "mp3"}},
                {"type": "input_audio", "input_audio": {"data": "aGk=", "format": "wav"}},
            ],
            id="sound",
        ),
        pytest.param(
            (Part(raw="aGk=", filename="a.pdf"), Part(url="https://x.example/b.pdf", filename="b.pdf")),
            [
                {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,aGk="}},
                {"type": "text", "text": "b.pdf: https://x.example/b.pdf"},
            ],
            id="files",
        ),
    ],
)
async def test_every_kind_of_part_is_sent(
    server: ChatServer, plain: Adapter, given: tuple[Part, ...], content: Json
) -> None:
    await collect(plain, request("and this", earlier=(parts(*given),)))
    assert server.requests[0]["messages"][0] == {"role": "user", "content": content}


def test_what_is_sent_here_is_judged_by_the_vendors_description() -> None:
    assert openai_validator()("CreateChatCompletionRequest", {"model": "m", "messages": "none"})
    assert judge() is not None


async def test_all_settings_reach_the_wire(server: ChatServer, start: Start, build: Build) -> None:
    values = {
        "max_tokens": 9,
        "max_completion_tokens": 99,
        "temperature": 0.5,
        "top_p": 0.9,
        "reasoning_effort": "low",
    }
    others = {"include_usage": False, "instructions": "Be brief.", "instructions_role": "developer"}
    adapter = build(factory, await start(server), **values, **others, extra_body={"seed": 7})
    await collect(adapter, request("Hi"))
    developer = {"role": "developer", "content": "Be brief."}
    fixed = {"model": "m", "stream": True, "seed": 7, "messages": [developer, user("Hi")]}
    assert server.requests == [fixed | values]


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"history": {"owner": "backend"}}, "keeps no conversation"),
        ({"extra_body": {"messages": []}}, "extra_body must not set 'messages'"),
        ({"extra_body": {"n": 2}}, "extra_body must not set 'n'"),
        ({"tools": []}, "Extra inputs are not permitted"),
        ({"extra_body": {"tools": {"type": "function"}}}, "extra_body.tools must be a list of objects"),
        (
            {"extra_body": {"tools": [{"name": "f"}, {"function": {"name": "f"}}]}},
            "two of extra_body.tools are called 'f'",
        ),
    ],
)
def test_settings_that_cannot_work_are_refused(values: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        factory.settings.model_validate(settings("https://x.example/v1", **values))


def test_the_gateway_keeps_the_conversation() -> None:
    for history in ({}, {"owner": "gateway"}):
        adapter = factory.build(factory.settings.model_validate({"model": "m", "history": history}))
        assert adapter.ownership == Ownership(StorageOwner.GATEWAY, HandleKind.NONE, repeatable=True)


@pytest.mark.parametrize(
    ("tools", "repeats"),
    [
        ([{"type": "function", "function": {"name": "f"}}], True),
        ([{"type": "custom", "custom": {"name": "f"}}, {"function": {"name": "g"}}], True),
        ([{"type": "function", "function": {"name": "f"}}, {"type": "mcp", "server_label": "s"}], False),
        ([{"type": ["web_search"]}], False),
    ],
    ids=str,
)
def test_a_request_of_unknown_outcome_is_repeated_unless_the_server_runs_a_tool(
    tools: list[Json], repeats: bool
) -> None:
    values = {"model": "m", "extra_body": {"tools": tools}}
    assert factory.build(factory.settings.model_validate(values)).ownership.may_repeat is repeats


# --- answers ----------------------------------------------------------------------------------------------------------


def usage(events: list[AdapterEvent]) -> Json:
    last = events[-1]
    assert isinstance(last, CallCompleted)
    return last.usage


async def test_text_and_refusals_are_deltas_and_usage_comes_in_the_end(plain: Adapter, server: ChatServer) -> None:
    server.script = plays(Say("Hello world", chunks=2), Refuse("But no."))
    events = await collect(plain, request("Hi"))
    assert set(usage(events)) == {"prompt_tokens", "completion_tokens", "total_tokens"}
    assert events == [
        CallStarted(),
        TextDelta("Hello "),
        TextDelta("world"),
        TextDelta("But no."),
        CallCompleted(usage=usage(events)),
    ]


@pytest.mark.parametrize("dialect", ["vllm", "ollama"])
async def test_reasoning_comes_before_the_answer_and_is_kept_apart(start: Start, build: Build, dialect: str) -> None:
    server = ChatServer(plays(Think("Let me see", chunks=2), Say("Hello")), dialect=CHAT_DIALECTS[dialect])
    events = await collect(build(factory, await start(server)), request("Hi"))
    assert events[1:-1] == [
        ReasoningDelta("Let m"),
        ReasoningDelta("e see"),
        ItemReady(ReasoningItem("Let me see")),
        TextDelta("Hello"),
    ]


@pytest.mark.parametrize("dialect", sorted(CHAT_DIALECTS))
async def test_tool_calls_are_the_same_in_every_dialect(start: Start, build: Build, dialect: str) -> None:
    script = plays(Say("Well, "), Call("f", '{"a":1}', "call_1"), Call("g", '{"b":2}', "call_2"))
    server = ChatServer(script, dialect=CHAT_DIALECTS[dialect])
    events = await collect(build(factory, await start(server)), request("Hi"))
    deltas = [event for event in events if isinstance(event, ToolCallArguments)]
    assert {
        call: "".join(event.delta for event in deltas if event.call_id == call) for call in ("call_1", "call_2")
    } == {"call_1": '{"a":1}', "call_2": '{"b":2}'}
    assert [event for event in events if event not in deltas] == [
        CallStarted(),
        TextDelta("Well, "),
        ToolCallAnnounced("call_1", "f"),
        ToolCallAnnounced("call_2", "g"),
        ToolCallReady("call_1", "f", '{"a":1}'),
        ToolCallReady("call_2", "g", '{"b":2}'),
        CallCompleted(usage=usage(events)),
    ]


@pytest.mark.parametrize(("reason", "finish"), [("max_output_tokens", "length"), ("content_filter", "content_filter")])
async def test_an_incomplete_answer_has_the_reason(
    server: ChatServer, plain: Adapter, reason: Any, finish: str
) -> None:
    server.script = plays(Say("Hel"), Incomplete(reason))
    assert (await finished(plain)).finish == finish


# --- failures ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("steps", "kind"),
    [
        ([Say("Hel"), Fail()], ErrorClass.BACKEND_FAILED),
        ([Say("Hel"), ErrorEvent("rate_limit_exceeded")], ErrorClass.RATE_LIMITED),
        ([Raw(b'data: {"error":"no"}\n\n')], ErrorClass.BACKEND_FAILED),
        ([Raw(b'data: {"object":"error","message":"no","code":400}\n\n')], ErrorClass.REJECTED),
        ([Raw(b'data: {"choices":[{"delta":{},"finish_reason":"error"}]}\n\n')], ErrorClass.BACKEND_FAILED),
        ([Say("Hel"), NoTerminal()], ErrorClass.INTERRUPTED),
        ([NoTerminal()], ErrorClass.INTERRUPTED),
        ([Say("Hel"), Raw(b"data: [DONE]\n\n"), NoTerminal()], ErrorClass.INTERRUPTED),
        ([Say("Hel"), Cut()], ErrorClass.INTERRUPTED),
        ([Raw(b"data: {]\n\n")], ErrorClass.CONTRACT_BROKEN),
        ([Raw(b'data: {"choices":7}\n\n')], ErrorClass.CONTRACT_BROKEN),
        ([Raw(b'data: {"choices":[{"delta":{"content":"\xff"}}]}\n\n')], ErrorClass.CONTRACT_BROKEN),
        ([Raw(b'data: {"usage":' + b"[" * 20_000 + b"]" * 20_000 + b"}\n\n")], ErrorClass.CONTRACT_BROKEN),
        ([rate_limited()], ErrorClass.RATE_LIMITED),
        ([Html()], ErrorClass.BACKEND_FAILED),
        ([Html(200)], ErrorClass.CONTRACT_BROKEN),
    ],
)
async def test_a_failure_has_its_class_and_nothing_is_completed(
    server: ChatServer, plain: Adapter, steps: list[Step], kind: ErrorClass
) -> None:
    server.script = plays(*steps)
    assert (await failure(plain)).kind is kind
    server.script = plays(Say("Hello"))
    assert text(await collect(plain, request("Hi"))) == "Hello"


async def test_a_failure_brings_the_tokens_that_were_reported_before_it(server: ChatServer, plain: Adapter) -> None:
    reported = chunk(content="Hel") | {"usage": {"total_tokens": 7}}
    server.script = plays(Raw(f"data: {json.dumps(reported)}\n\n".encode()), Cut())
    error = await failure(plain)
    assert (error.kind, error.usage) == (ErrorClass.INTERRUPTED, {"total_tokens": 7})


# --- chunk by chunk ---------------------------------------------------------------------------------------------------


def chunk(finish_reason: str | None = None, **delta: Json) -> Json:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}]}


STOP = chunk("stop")


def read(*stream: Json | bytes) -> list[AdapterEvent]:
    reading = CompletionParser(OpenAIFailures(()))
    events: list[AdapterEvent] = []
    for data in stream:
        events.extend(reading.receive(data if isinstance(data, bytes) else json.dumps(data).encode()))
    return [*events, *reading.finish()]


def test_transformers_ends_with_the_finish_chunk() -> None:
    last = chunk("length") | {"object": "chat.completion.chunk", "usage": {"total_tokens": 21}}
    assert read(chunk(content="Hi"), last) == [
        TextDelta("Hi"),
        CallCompleted(usage={"total_tokens": 21}, finish="length"),
    ]


TOKENS = {"prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13}
REPORTS = {
    "a chunk of its own": [STOP, {"choices": [], "usage": TOKENS}],
    "Groq": [chunk(content="") | {"x_groq": {"id": "req_1"}}, STOP | {"x_groq": {"id": "req_1", "usage": TOKENS}}],
    "Groq, in both places": [STOP | {"x_groq": {"usage": {"total_tokens": 1}}}, {"choices": [], "usage": TOKENS}],
    "Moonshot": [{"choices": [{"index": 0, "delta": {}, "finish_reason": "stop", "usage": TOKENS}], "usage": None}],
    "vLLM, first without and then with details": [
        STOP | {"usage": {"total_tokens": 13}},
        {"choices": [], "usage": TOKENS},
    ],
    "something else by Groq's name": [{"choices": [], "usage": TOKENS}, STOP | {"x_groq": "?"}],
}


@pytest.mark.parametrize("last", REPORTS.values(), ids=REPORTS)
def test_tokens_are_found_where_each_service_puts_them(last: list[Json]) -> None:
    assert read(chunk(content="Hi"), *last) == [TextDelta("Hi"), CallCompleted(usage=TOKENS)]


def test_reasoning_without_an_answer_is_kept_too() -> None:
    both = {"reasoning": "hm", "reasoning_content": "hm"}
    assert read(chunk(**both), STOP) == [ReasoningDelta("hm"), ItemReady(ReasoningItem("hm")), CallCompleted()]


def test_only_the_first_choice_counts_and_what_follows_the_last_word_does_not() -> None:
    other = {"choices": [{"index": 1, "delta": {"content": "other"}}]}
    nothing: tuple[Json, ...] = (
        {},
        {"choices": None},
        chunk(content=""),
        {"choices": [{"index": 0, "finish_reason": None}]},
    )
    assert read(*nothing, other, chunk(content="Hi"), STOP, b"[DONE]", chunk(content="more"), b"garbage") == [
        TextDelta("Hi"),
        CallCompleted(),
    ]


def test_a_finish_reason_of_another_kind_is_passed_on() -> None:
    assert read(chunk("insufficient_system_resource")) == [CallCompleted(finish="insufficient_system_resource")]


def test_a_finish_reason_quotes_no_secret() -> None:
    reading = CompletionParser(OpenAIFailures(("hdrsecret777",)))
    reading.receive(json.dumps(chunk("error hdrsecret777")).encode())
    assert reading.finish()[-1] == CallCompleted(finish="error ***")


def test_no_finish_reason_is_no_end() -> None:
    with pytest.raises(AdapterError) as caught:
        read(chunk(content="Hi"), b"[DONE]")
    assert caught.value.kind is ErrorClass.INTERRUPTED


# --- messages in the place of deltas


def whole(finish: str | None = None, **said: Json) -> Json:
    return {"choices": [{"index": 0, "message": {"role": "assistant", **said}, "finish_reason": finish}]}


WHOLES: dict[str, list[Json]] = {
    "at once": [whole("stop", content="Hello there")],
    "with an end of its own": [whole(content="Hello there"), STOP],
    "in pieces": [whole(content="Hello"), whole(content=" there"), whole("stop", content="")],
    "as it grows": [whole(content="Hello"), whole("stop", content="Hello there")],
    "beside an empty delta": [
        {"choices": [{"index": 0, "delta": None, "message": {"content": "Hello there"}, "finish_reason": "stop"}]}
    ],
    "as a refusal": [whole("stop", content=None, refusal="Hello there")],
}


@pytest.mark.parametrize("stream", WHOLES.values(), ids=WHOLES)
def test_a_message_in_the_place_of_a_delta_is_the_answer(stream: list[Json]) -> None:
    assert read(*stream) == [MessageReady("Hello there"), CallCompleted()]


def test_a_message_behind_its_deltas_is_the_same_answer() -> None:
    assert read(chunk(content="Hello"), chunk(content=" there"), whole("stop", content="Hello there")) == [
        TextDelta("Hello"),
        TextDelta(" there"),
        MessageReady("Hello there"),
        CallCompleted(),
    ]


LOOK: Json = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"n":1}'}}
LOOKED = [ToolCallAnnounced("c1", "look"), ToolCallArguments("c1", '{"n":1}')]


def test_the_calls_of_a_message_in_the_place_of_a_delta_are_calls() -> None:
    called = [*LOOKED, ToolCallReady("c1", "look", '{"n":1}'), CallCompleted()]
    assert read(whole("tool_calls", content=None, tool_calls=[LOOK])) == called
    assert read(whole(tool_calls=[LOOK]), whole("tool_calls", tool_calls=[LOOK])) == called


@pytest.mark.parametrize("call", [LOOK, {"function": {"name": "look", "arguments": '{"n":1}'}}], ids=["id", "no id"])
def test_the_calls_of_a_message_behind_its_deltas_are_no_others(call: Json) -> None:
    first = {"index": 0, "id": "c1", "function": {"name": "look", "arguments": '{"n"'}}
    pieces = [first, {"index": 0, "function": {"arguments": ":1}"}}]
    stream = [*(chunk(tool_calls=[piece]) for piece in pieces), whole("tool_calls", tool_calls=[call])]
    ready = [event for event in read(*stream) if isinstance(event, ToolCallReady)]
    assert ready == [ToolCallReady("c1", "look", '{"n":1}')]


@pytest.mark.parametrize("message", ["Hello", {"content": [{"type": "text", "text": "Hello"}]}], ids=["text", "parts"])
def test_a_message_that_cannot_be_read_fails_and_is_never_an_empty_answer(message: Json) -> None:
    with pytest.raises(AdapterError) as caught:
        read({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]})
    assert caught.value.kind is ErrorClass.CONTRACT_BROKEN
