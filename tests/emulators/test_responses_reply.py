"""The events and responses of the Responses emulator, judged by the vendor's client and API description."""

import asyncio
import json
from itertools import pairwise
from typing import Any

import openai
import pytest

from tests.emulators.conftest import Connect, collect, data_of, error_of, events_of, response_wire
from tests.emulators.responses_dialects import RESPONSES_DIALECTS
from tests.emulators.responses_server import ResponsesServer
from tests.emulators.scripts import (
    Call,
    Cite,
    Conversation,
    Cut,
    ErrorEvent,
    Fail,
    Html,
    ImageOut,
    Incomplete,
    Item,
    NoTerminal,
    Pause,
    Raw,
    Refuse,
    Restarted,
    Say,
    ServerTool,
    Step,
    Think,
    by_keyword,
    rate_limited,
)
from tests.openapi import openai_event_schemas, openai_validator

WEATHER = Call("get_weather", {"city": "Oslo"}, "call_1")
CITATION = {"type": "url_citation", "url": "https://example.com/", "title": "T", "start_index": 0, "end_index": 1}


def greet(conversation: Conversation) -> list[Step]:
    return [Say(f"Hello {len(conversation.user_texts)} {conversation.user_texts[0]}", chunks=2)]


# Streams


async def test_a_streamed_answer_has_every_event_in_order_and_numbered(connect: Connect) -> None:
    events = await events_of(await connect(ResponsesServer(lambda _: [Say("Hello", chunks=2)])))
    assert [event.type for event in events] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    assert [event.sequence_number for event in events] == list(range(10))
    assert [event.delta for event in events[4:6]] == ["Hel", "lo"]
    assert events[-1].response.output_text == "Hello"
    assert events[-1].response.status == "completed"


async def test_the_clients_stream_helper_adds_up_to_the_same_response(connect: Connect) -> None:
    client = await connect(ResponsesServer(lambda _: [Think("Hm"), Say("Hello", chunks=3), WEATHER]))
    async with client.responses.stream(model="m", input="hi") as stream:
        response = await stream.get_final_response()
    assert [item.type for item in response.output] == ["reasoning", "message", "function_call"]
    assert response.output_text == "Hello"


async def test_neighbouring_texts_share_a_message_even_around_a_pause(connect: Connect) -> None:
    release = asyncio.Event()
    client = await connect(ResponsesServer(lambda _: [Say("one "), Pause(release), Say("two")]))
    stream = await client.responses.create(model="m", input="hi", stream=True)
    texts = []
    async for event in stream:
        if event.type == "response.output_text.delta":
            texts.append(event.delta)
            release.set()
        if event.type == "response.completed":
            assert len(event.response.output) == 1
    assert texts == ["one ", "two"]


def beyond_known_gaps(errors: list[str]) -> list[str]:
    """Without violations by OpenAI itself: it sends null for fields that have no value yet."""
    return [error for error in errors if not error.startswith(("$.response.user: None", "$.response.usage: None"))]


async def test_every_event_satisfies_the_api_description(connect: Connect) -> None:
    validate, schemas = openai_validator(), openai_event_schemas()
    steps: list[Step] = [
        Think("Let me see", chunks=2),
        ServerTool("mcp", "get_weather", {"city": "Oslo"}, "3 degrees"),
        ServerTool("mcp", "get_weather", {"city": "Rome"}, error="no such station"),
        ServerTool("web_search", "search", {"query": "weather"}),
        Say("It is cold", chunks=2),
        Cite(CITATION),
        Refuse("but I must not say why"),
        ImageOut(b"PNG"),
        Item({"type": "mcp_approval_request", "server_label": "s", "name": "n", "arguments": "{}"}),
        WEATHER,
    ]
    endings: dict[str, list[Step]] = {
        "failed": [Fail()],
        "incomplete": [*steps[:5], Incomplete()],
        "error": [ErrorEvent()],
    }
    server = ResponsesServer(by_keyword(endings, otherwise=steps), validator=validate)
    client = await connect(server)
    for ending in ("completed", "failed", "incomplete", "error"):
        text = await response_wire(client, input=ending, include=["reasoning.encrypted_content"])
        for event in data_of(text):
            assert beyond_known_gaps(validate(schemas[event["type"]], event)) == [], event
    assert server.violations == []


@pytest.mark.parametrize(
    ("ending", "kinds"),
    [
        (Fail("server_error", "broken"), ["response.failed"]),
        (ErrorEvent("server_error", "broken"), ["error"]),
        (
            Incomplete("content_filter"),
            [
                "response.output_text.done",
                "response.content_part.done",
                "response.output_item.done",
                "response.incomplete",
            ],
        ),
        (NoTerminal(), []),
    ],
)
async def test_ways_to_end_without_success(connect: Connect, ending: Step, kinds: list[str]) -> None:
    text = await response_wire(await connect(ResponsesServer(lambda _: [Say("Hel"), ending, Say("never")])))
    assert [event["type"] for event in data_of(text)[5:]] == kinds


async def test_each_event_is_named_on_the_line_before_its_data(connect: Connect) -> None:
    text = await response_wire(await connect(ResponsesServer(greet)))
    blocks = [block.split("\n") for block in text.strip().split("\n\n")]
    assert [name for name, _ in blocks] == [f"event: {event['type']}" for event in data_of(text)]


async def test_an_error_event_is_flat(connect: Connect) -> None:
    text = await response_wire(await connect(ResponsesServer(lambda _: [ErrorEvent("server_error", "broken")])))
    assert text.endswith(
        'event: error\ndata: {"type":"error","sequence_number":2,"code":"server_error","message":"broken",'
        '"param":null}\n\n'
    )


async def test_raw_bytes_are_written_as_they_are(connect: Connect) -> None:
    client = await connect(ResponsesServer(lambda _: [Raw(b"data: {broken\n\n"), NoTerminal()]))
    assert (await response_wire(client)).endswith("data: {broken\n\n")


async def test_a_cut_arrives_after_the_text_before_it(connect: Connect) -> None:
    client = await connect(ResponsesServer(lambda _: [Say("Hel"), Cut()]))
    stream = await client.responses.create(model="m", input="hi", stream=True)
    events: list[Any] = []
    with pytest.raises(openai.APIError):
        await collect(stream, events)
    assert events[-1].type == "response.output_text.delta"


async def test_restarting_announces_progress_again_and_forgets_the_output(connect: Connect) -> None:
    script: list[Step] = [WEATHER, Restarted(), Say("again")]
    events = await events_of(await connect(ResponsesServer(lambda _: script)))
    assert [event.type for event in events].count("response.in_progress") == 2
    assert [item.type for item in events[-1].response.output] == ["message"]


async def test_padding_of_deltas_can_be_turned_off(connect: Connect) -> None:
    client = await connect(ResponsesServer(greet))
    assert "obfuscation" in await response_wire(client)
    assert "obfuscation" not in await response_wire(client, stream_options={"include_obfuscation": False})


# Answers that are not streamed


async def test_an_answer_in_one_piece(connect: Connect) -> None:
    client = await connect(ResponsesServer(greet))
    response = await client.responses.create(model="m", input="hi", instructions="Be brief")
    assert (response.output_text, response.instructions) == ("Hello 1 hi", "Be brief")
    assert response.usage is not None


async def test_a_failure_without_a_stream_is_a_response_with_status_failed(connect: Connect) -> None:
    client = await connect(ResponsesServer(lambda _: [Fail("server_error", "broken")]))
    response = await client.responses.create(model="m", input="hi")
    assert response.status == "failed"
    assert response.error is not None
    assert response.error.message == "broken"


async def test_an_error_event_without_a_stream_is_a_500(connect: Connect) -> None:
    client = await connect(ResponsesServer(lambda _: [ErrorEvent("server_error", "broken")]))
    with pytest.raises(openai.InternalServerError, match="broken"):
        await client.responses.create(model="m", input="hi")


async def test_a_connection_can_be_dropped_before_any_answer(connect: Connect) -> None:
    client = await connect(ResponsesServer(lambda _: [Cut()]))
    with pytest.raises(openai.APIConnectionError):
        await client.responses.create(model="m", input="hi")


async def test_a_body_can_be_malformed(connect: Connect) -> None:
    client = await connect(ResponsesServer(lambda _: [Raw(b"{broken")]))
    answer = await client.responses.with_raw_response.create(model="m", input="hi")
    assert await answer.http_response.aread() == b"{broken"


async def test_http_errors_come_before_any_stream_and_store_nothing(connect: Connect) -> None:
    server = ResponsesServer(by_keyword({"limit": [rate_limited(7)]}, otherwise=[Html()]))
    client = await connect(server)
    with pytest.raises(openai.RateLimitError) as limited:
        await events_of(client, "the Limit")
    assert limited.value.response.headers["retry-after"] == "7"
    assert error_of(limited)["code"] == "rate_limit_exceeded"
    with pytest.raises(openai.InternalServerError) as page:
        await events_of(client, "other")
    assert page.value.response.headers["content-type"].startswith("text/html")
    assert server.stored == {}


# Tools of the server


async def test_an_mcp_call_is_streamed_with_its_outcome_and_its_tools_are_listed_once(connect: Connect) -> None:
    tool = ServerTool("mcp", "get_weather", {"city": "Oslo"}, "Oslo: 3 degrees, light rain")
    client = await connect(ResponsesServer(lambda _: [tool, Say("Rain")]))
    events = await events_of(client, "What is the weather?")
    first = events[-1].response
    assert [item.type for item in first.output] == ["mcp_list_tools", "mcp_call", "message"]
    call = first.output[1]
    assert (call.name, json.loads(call.arguments), call.output) == (
        "get_weather",
        {"city": "Oslo"},
        "Oslo: 3 degrees, light rain",
    )
    second = await client.responses.create(model="m", input="weather", previous_response_id=first.id)
    assert [item.type for item in second.output] == ["mcp_call", "message"]


async def test_a_server_tool_can_be_watched_while_it_runs(connect: Connect) -> None:
    release = asyncio.Event()
    tool = ServerTool("web_search", "search", {"query": "x"}, during=Pause(release))
    client = await connect(ResponsesServer(lambda _: [tool]))
    stream = await client.responses.create(model="m", input="hi", stream=True)
    kinds = []
    async for event in stream:
        kinds.append(event.type)
        if event.type == "response.web_search_call.searching":
            release.set()
    assert kinds[-3:] == ["response.web_search_call.completed", "response.output_item.done", "response.completed"]


# Dialects


async def test_ogx_names_no_events_repeats_an_index_and_skips_numbers(connect: Connect) -> None:
    tool = ServerTool("mcp", "get_weather", {"city": "Oslo"}, "3")
    client = await connect(ResponsesServer(lambda _: [tool, Say("cold")], dialect=RESPONSES_DIALECTS["ogx"]))
    text = await response_wire(client)
    events = data_of(text)
    assert "event:" not in text
    assert {event["output_index"] for event in events if "output_index" in event} == {0}
    assert all(after["sequence_number"] - before["sequence_number"] == 2 for before, after in pairwise(events))
    kinds = [event["type"] for event in events]
    assert "response.output_text.done" not in kinds
    assert kinds.index("response.function_call_arguments.delta") < kinds.index("response.mcp_call.in_progress")
    with pytest.raises(openai.NotFoundError) as failure:
        await client.responses.create(model="m", input="hi", previous_response_id="resp_x")
    assert failure.value.response.json() == {"detail": "Response 'resp_x' not found."}


async def test_litellm_has_long_ids_no_numbers_a_done_line_and_no_memory(connect: Connect) -> None:
    client = await connect(ResponsesServer(greet, dialect=RESPONSES_DIALECTS["litellm"]))
    text = await response_wire(client, previous_response_id="resp_x")
    assert text.endswith("data: [DONE]\n\n")
    response = data_of(text)[-1]["response"]
    assert "sequence_number" not in text
    assert len(response["id"]) > 420
    assert response["previous_response_id"] is None
