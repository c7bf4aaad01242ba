"""The Chat Completions emulator and its dialects, judged by the vendor's client and API description."""

import asyncio
import json
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI

from tests.emulators.chat import CHAT_DIALECTS, ChatServer
from tests.emulators.conftest import Connect, collect, data_of, error_of
from tests.emulators.scripts import (
    Call,
    Conversation,
    Cut,
    ErrorEvent,
    Fail,
    Html,
    Incomplete,
    NoTerminal,
    Pause,
    Raw,
    Refuse,
    Say,
    ServerTool,
    Step,
    Think,
    by_keyword,
    rate_limited,
)
from tests.openapi import openai_validator

HI: Any = [{"role": "user", "content": "hi"}]
WEATHER = Call("get_weather", {"city": "Oslo"}, "call_1")
TIME = Call("get_time", {}, "call_2")


async def complete(client: AsyncOpenAI, messages: Any = HI, **options: Any) -> Any:
    return await client.chat.completions.create(model="m", messages=messages, **options)


async def wire_of(client: AsyncOpenAI, **options: Any) -> str:
    """The bytes of a streamed completion as text."""
    create = client.chat.completions.with_streaming_response.create
    async with create(model="m", messages=HI, stream=True, **options) as response:
        wire: bytes = await response.read()
        return wire.decode()


def deltas_of(text: str) -> list[dict[str, Any]]:
    return [chunk["choices"][0]["delta"] for chunk in data_of(text) if chunk["choices"]]


def asked(*names: str) -> dict[str, Any]:
    calls = [{"id": name, "type": "function", "function": {"name": "f", "arguments": "{}"}} for name in names]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def output(name: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": name, "content": f"output of {name}"}


# OpenAI's own wire


async def test_a_streamed_answer_ends_with_its_reason_usage_and_done(connect: Connect) -> None:
    client = await connect(ChatServer(lambda _: [Say("Hello", chunks=2)]))
    text = await wire_of(client, stream_options={"include_usage": True})
    assert deltas_of(text) == [
        {"role": "assistant", "content": "", "refusal": None},
        {"content": "Hel"},
        {"content": "lo"},
        {},
    ]
    *chunks, finish, usage = data_of(text)
    assert finish["choices"][0]["finish_reason"] == "stop"
    assert all(chunk["usage"] is None for chunk in chunks)
    assert (usage["choices"], usage["usage"]["total_tokens"] > 0) == ([], True)
    assert text.endswith("data: [DONE]\n\n")


async def test_usage_is_not_streamed_unless_asked_for(connect: Connect) -> None:
    assert "usage" not in await wire_of(await connect(ChatServer(lambda _: [Say("Hello")])))


async def test_every_chunk_satisfies_the_api_description(connect: Connect) -> None:
    validate = openai_validator()
    server = ChatServer(lambda _: [Say("Hello"), WEATHER, TIME, Refuse("no")], validator=validate)
    for chunk in data_of(await wire_of(await connect(server))):
        # OpenAI sends null logprobs and finish reasons, which the description knows only by a keyword of version 3.0.
        wrong = validate("CreateChatCompletionStreamResponse", chunk)
        assert [error for error in wrong if "None is not" not in error] == [], chunk
    assert server.violations == []


async def test_the_clients_stream_helper_adds_up_parallel_calls(connect: Connect) -> None:
    client = await connect(ChatServer(lambda _: [WEATHER, TIME]))
    async with client.chat.completions.stream(model="m", messages=HI) as stream:
        completion = await stream.get_final_completion()
    (choice,) = completion.choices
    assert choice.finish_reason == "tool_calls"
    assert [(call.id, call.function.name, call.function.arguments) for call in choice.message.tool_calls or ()] == [
        ("call_1", "get_weather", '{"city": "Oslo"}'),
        ("call_2", "get_time", "{}"),
    ]


async def test_an_answer_in_one_piece_is_the_same_as_its_stream(connect: Connect) -> None:
    client = await connect(ChatServer(lambda _: [Say("Hello", chunks=3), WEATHER]))
    completion = await complete(client)
    (choice,) = completion.choices
    assert (choice.message.content, choice.finish_reason) == ("Hello", "tool_calls")
    assert choice.message.tool_calls[0].function.arguments == '{"city": "Oslo"}'
    assert openai_validator()("CreateChatCompletionResponse", completion.to_dict(mode="json")) == []


async def test_a_tool_turn_is_answered_from_the_messages(connect: Connect) -> None:
    def script(conversation: Conversation) -> list[Step]:
        return [Say(text) for text in conversation.tool_outputs.values()] or [WEATHER]

    server = ChatServer(script, validator=openai_validator())
    client = await connect(server)
    first = (await complete(client)).choices[0].message
    messages = [*HI, first.to_dict(), output("call_1")]
    assert (await complete(client, messages)).choices[0].message.content == "output of call_1"
    assert (server.requests[1]["messages"], server.violations) == (messages, [])


async def test_parts_of_a_user_message_are_accepted(connect: Connect) -> None:
    server = ChatServer(lambda conversation: [Say(conversation.text)], validator=openai_validator())
    parts = [
        {"type": "text", "text": "look"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}},
        {"type": "file", "file": {"filename": "a.txt", "file_data": "data:text/plain;base64,AA=="}},
        {"type": "text", "text": " here"},
    ]
    completion = await complete(await connect(server), [{"role": "user", "content": parts}])
    assert completion.choices[0].message.content == "look here"
    assert server.violations == []


# Ways to end


@pytest.mark.parametrize(("reason", "finish"), [("max_output_tokens", "length"), ("content_filter", "content_filter")])
async def test_limits_are_finish_reasons(connect: Connect, reason: Any, finish: str) -> None:
    client = await connect(ChatServer(lambda _: [Say("Hel"), Incomplete(reason)]))
    assert (await complete(client)).choices[0].finish_reason == finish


@pytest.mark.parametrize("step", [Fail("server_error", "broken"), ErrorEvent("server_error", "broken")])
async def test_a_failure_in_mid_stream_is_an_error_line_under_200(connect: Connect, step: Step) -> None:
    client = await connect(ChatServer(lambda _: [Say("Hel"), step, Say("never")]))
    assert data_of(await wire_of(client))[-1] == {
        "error": {"message": "broken", "type": "server_error", "param": None, "code": "server_error"}
    }
    with pytest.raises(openai.APIError, match="broken"):
        _ = [chunk async for chunk in await complete(client, stream=True)]
    with pytest.raises(openai.InternalServerError, match="broken"):
        await complete(client)


async def test_a_stream_can_end_without_a_finish_reason(connect: Connect) -> None:
    text = await wire_of(await connect(ChatServer(lambda _: [Say("Hel"), NoTerminal()])))
    assert {chunk["choices"][0]["finish_reason"] for chunk in data_of(text)} == {None}
    assert "[DONE]" not in text


async def test_a_cut_arrives_after_the_text_before_it(connect: Connect) -> None:
    client = await connect(ChatServer(lambda _: [Say("Hel"), Cut()]))
    stream, chunks = await complete(client, stream=True), list[Any]()
    with pytest.raises(openai.APIError):
        await collect(stream, chunks)
    assert [chunk.choices[0].delta.content for chunk in chunks] == ["", "Hel"]


async def test_a_pause_holds_back_what_follows(connect: Connect) -> None:
    release = asyncio.Event()
    client = await connect(ChatServer(lambda _: [Say("one"), Pause(release), Say("two")]))
    texts = []
    async for chunk in await complete(client, stream=True):
        texts.append(chunk.choices[0].delta.content)
        if texts[-1] == "one":
            release.set()
    assert texts == ["", "one", "two", None]


async def test_raw_bytes_and_http_errors(connect: Connect) -> None:
    table: dict[str, list[Step]] = {"raw": [Raw(b"data: {broken\n\n")], "limit": [rate_limited(None)]}
    client = await connect(ChatServer(by_keyword(table, otherwise=[Html(200)])))
    with pytest.raises(openai.RateLimitError) as limited:
        await complete(client, [{"role": "user", "content": "limit"}])
    assert "retry-after" not in limited.value.response.headers
    assert "<html>" in await wire_of(client)
    with pytest.raises(json.JSONDecodeError):
        _ = [chunk async for chunk in await complete(client, [{"role": "user", "content": "raw"}], stream=True)]


async def test_a_step_of_the_other_wire_is_a_mistake_of_the_script(connect: Connect) -> None:
    client = await connect(ChatServer(lambda _: [ServerTool("web_search", "search", {})]))
    with pytest.raises(openai.InternalServerError):
        await complete(client)


# Refusals before any script


@pytest.mark.parametrize(
    ("messages", "param"),
    [
        ([*HI, asked("call_1")], "messages.[2].role"),
        ([*HI, asked("call_1"), *HI], "messages.[2].role"),
        ([*HI, asked("call_1", "call_2"), output("call_2")], "messages.[3].role"),
        ([*HI, asked("call_1", "call_2"), output("call_2"), *HI, output("call_1")], "messages.[3].role"),
    ],
)
async def test_every_call_needs_its_output_at_once(connect: Connect, messages: Any, param: str) -> None:
    client = await connect(ChatServer(lambda _: [Say("Hello")]))
    with pytest.raises(openai.BadRequestError) as failure:
        await complete(client, messages)
    assert error_of(failure) == {
        "message": "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
        "'tool_call_id'. The following tool_call_ids did not have response messages: call_1",
        "type": "invalid_request_error",
        "param": param,
        "code": None,
    }


async def test_an_output_needs_its_call(connect: Connect) -> None:
    client = await connect(ChatServer(lambda _: [Say("Hello")]))
    with pytest.raises(openai.BadRequestError, match="must be a response to a preceeding message with 'tool_calls'"):
        await complete(client, [*HI, output("call_1")])


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"messages": HI}, "you must provide a model parameter"),
        ({"model": "m"}, "Missing required parameter: 'messages'"),
        ({"model": "m", "messages": "hi"}, "Invalid type for 'messages'"),
        ({"model": "m", "messages": []}, "Invalid 'messages': empty array"),
        ({"model": "m", "messages": HI, "stream_options": {"include_usage": True}}, "'stream_options' parameter"),
    ],
)
async def test_bodies_without_sense_are_refused(connect: Connect, body: dict[str, Any], message: str) -> None:
    client = await connect(ChatServer())
    with pytest.raises(openai.BadRequestError, match=message):
        await client.post("/chat/completions", body=body, cast_to=object)


async def test_models_are_listed_and_others_refused(connect: Connect) -> None:
    client = await connect(ChatServer(models=("gpt-5.5",)))
    assert [model.id async for model in client.models.list()] == ["gpt-5.5"]
    with pytest.raises(openai.NotFoundError, match="The model `m` does not exist"):
        await complete(client)


async def test_a_body_that_violates_the_description_is_refused_and_recorded(connect: Connect) -> None:
    server = ChatServer(validator=openai_validator())
    with pytest.raises(openai.BadRequestError, match="The body violates CreateChatCompletionRequest"):
        await complete(await connect(server), [{"role": "user", "content": [{"type": "input_text", "text": "hi"}]}])
    assert len(server.violations) == 1


# Dialects


async def calls_in(connect: Connect, dialect: str) -> str:
    server = ChatServer(lambda _: [WEATHER, TIME], dialect=CHAT_DIALECTS[dialect])
    return await wire_of(await connect(server))


async def test_openai_sends_the_head_of_a_call_once(connect: Connect) -> None:
    deltas = deltas_of(await calls_in(connect, "openai"))
    first = {"name": "get_weather", "arguments": ""}
    assert deltas[1] == {"tool_calls": [{"index": 0, "id": "call_1", "type": "function", "function": first}]}
    assert deltas[2] == {"tool_calls": [{"index": 0, "function": {"arguments": '{"city":'}}]}
    assert [delta["tool_calls"][0]["index"] for delta in deltas[1:-1]] == [0, 0, 0, 1, 1, 1]


async def test_ollama_sends_whole_calls_at_index_zero_and_stops(connect: Connect) -> None:
    text = await calls_in(connect, "ollama")
    calls = [delta["tool_calls"][0] for delta in deltas_of(text) if "tool_calls" in delta]
    assert [(call["index"], call["id"], call["function"]["arguments"]) for call in calls] == [
        (0, "call_1", '{"city": "Oslo"}'),
        (0, "call_2", "{}"),
    ]
    assert data_of(text)[-1]["choices"][0]["finish_reason"] == "stop"


async def test_llama_cpp_repeats_the_head_on_every_fragment(connect: Connect) -> None:
    deltas = deltas_of(await calls_in(connect, "llama-cpp"))
    function = {"name": "get_weather", "arguments": '{"city":'}
    assert deltas[1] == {
        "role": None,
        "content": None,
        "function_call": function,
        "tool_calls": [{"index": 0, "id": "call_1", "type": "function", "function": function}],
    }
    assert [delta["tool_calls"][0]["id"] for delta in deltas[1:-1]] == ["call_1", "call_1", "call_2", "call_2"]


async def test_transformers_ends_with_usage_in_the_finish_chunk_and_no_done_line(connect: Connect) -> None:
    text = await calls_in(connect, "transformers")
    last = data_of(text)[-1]
    assert last["choices"][0]["finish_reason"] == "tool_calls"
    assert last["usage"]["total_tokens"] > 0
    assert "[DONE]" not in text


@pytest.mark.parametrize(
    ("dialect", "field"), [("openai", None), ("vllm", "reasoning_content"), ("ollama", "reasoning")]
)
async def test_reasoning_has_a_field_of_its_own_or_none(connect: Connect, dialect: str, field: str | None) -> None:
    server = ChatServer(lambda _: [Think("Let me see"), Say("Hello")], dialect=CHAT_DIALECTS[dialect])
    deltas = deltas_of(await wire_of(await connect(server)))
    assert deltas[1:-1] == [*([{field: "Let me see"}] if field else []), {"content": "Hello"}]
