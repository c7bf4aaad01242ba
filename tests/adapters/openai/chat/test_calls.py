"""Tool calls of Chat Completions, fragment by fragment, as servers really send them."""

import json
import re

import pytest

from adapters.openai.chat.stream import CompletionParser
from adapters.openai.failures import OpenAIFailures
from gateway.a2a.model import Json
from gateway.ports.adapter import (
    AdapterEvent,
    CallCompleted,
    TextDelta,
    ToolCallAnnounced,
    ToolCallArguments,
    ToolCallReady,
)

_MADE_UP = re.compile(r"call_[0-9a-f]{24}")


def chunk(finish_reason: str | None = None, **delta: Json) -> Json:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}]}


STOP = chunk("stop")


def read(*stream: Json | bytes) -> list[AdapterEvent]:
    reading = CompletionParser(OpenAIFailures(()))
    events: list[AdapterEvent] = []
    for data in stream:
        events.extend(reading.receive(data if isinstance(data, bytes) else json.dumps(data).encode()))
    return [*events, *reading.finish()]


def fragment(index: int | None = None, call_id: str | None = None, **function: Json) -> Json:
    fields = {"index": index, "id": call_id, "function": function}
    return chunk(tool_calls=[{name: value for name, value in fields.items() if value is not None}])


def ready(*fragments: Json) -> list[tuple[str, str, str]]:
    """The calls, with `?` for an id that the server did not give. Their deltas must join to their arguments."""
    events = read(*fragments, STOP)
    calls = [event for event in events if isinstance(event, ToolCallReady)]
    assert len({call.call_id for call in calls}) == len(calls)
    for call in calls:
        deltas = [e.delta for e in events if isinstance(e, ToolCallArguments) and e.call_id == call.call_id]
        assert "".join(deltas) == call.arguments
        assert call.handled is None
    announced = [(event.call_id, event.name) for event in events if isinstance(event, ToolCallAnnounced)]
    assert sorted(announced) == sorted((call.call_id, call.name) for call in calls)
    return [("?" if _MADE_UP.fullmatch(call.call_id) else call.call_id, call.name, call.arguments) for call in calls]


def test_llama_cpp_repeats_id_and_name() -> None:
    function = {"name": "get_weather", "arguments": "{"}
    call = {"index": 0, "id": "call__0_get_weather_cmpl-a656", "type": "function", "function": function}
    first = chunk(role=None, content=None, function_call=function, tool_calls=[call])
    rest = {"name": "get_weather", "arguments": "}"}
    second = chunk(role=None, content=None, function_call=rest, tool_calls=[call | {"function": rest}])
    assert ready(first, second) == [("call__0_get_weather_cmpl-a656", "get_weather", "{}")]


def test_what_gemini_gives_with_a_call_comes_back_with_it() -> None:
    thoughts: Json = {"google": {"thought_signature": "c2ln"}}
    function: Json = {"name": "f", "arguments": "{}"}
    first: Json = {"index": 0, "id": "a", "type": "function", "function": function, "extra_content": thoughts}
    second: Json = {"index": 1, "id": "b", "type": "function", "function": function}
    calls = [event for event in read(chunk(tool_calls=[first, second]), STOP) if isinstance(event, ToolCallReady)]
    assert [call.opaque for call in calls] == [thoughts, None]


def test_aimock_streams_parallel_calls() -> None:
    assert ready(
        chunk(role="assistant", content=None),
        fragment(0, "call_w1", name="get_weather", arguments=""),
        fragment(0, arguments='{"city":"Oslo"}'),
        fragment(1, "call_w2", name="get_weather", arguments=""),
        fragment(1, arguments='{"city":"Rome"}'),
        chunk("tool_calls"),
        {"choices": [], "usage": {"total_tokens": 17}},
        b"[DONE]",
    ) == [("call_w1", "get_weather", '{"city":"Oslo"}'), ("call_w2", "get_weather", '{"city":"Rome"}')]


@pytest.mark.parametrize(
    ("fragments", "calls"),
    [
        pytest.param(
            [fragment(0, "a", name="f", arguments="1"), fragment(0, "b", name="g", arguments="2")],
            [("a", "f", "1"), ("b", "g", "2")],
            id="a new id at a used index",
        ),
        pytest.param(
            [
                fragment(0, "a", name="f"),
                fragment(1, "b", name="g"),
                fragment(0, arguments="1"),
                fragment(1, arguments="2"),
            ],
            [("a", "f", "1"), ("b", "g", "2")],
            id="fragments mixed",
        ),
        pytest.param(
            [fragment(0, name="f", arguments="{"), fragment(0, arguments="}"), fragment(1, name="g", arguments="{}")],
            [("?", "f", "{}"), ("?", "g", "{}")],
            id="no ids",
        ),
        pytest.param(
            [fragment(0, "", name="f", arguments="{"), fragment(0, "", arguments="}")],
            [("?", "f", "{}")],
            id="an empty id",
        ),
        pytest.param(
            [fragment(0, name="f", arguments="{}"), fragment(0, name="g", arguments="{}")],
            [("?", "f", "{}"), ("?", "g", "{}")],
            id="no ids and one index",
        ),
        pytest.param(
            [fragment(0, name="f", arguments="{"), fragment(0, name="f", arguments="}")],
            [("?", "f", "{}")],
            id="no ids and the name repeated",
        ),
        pytest.param(
            [fragment(None, "a", name="f", arguments="{"), fragment(arguments="}")],
            [("a", "f", "{}")],
            id="no index",
        ),
        pytest.param(
            [fragment(None, "a", name="f", arguments="{}"), fragment(None, "b", name="g", arguments="{}")],
            [("a", "f", "{}"), ("b", "g", "{}")],
            id="no indexes and two ids",
        ),
        pytest.param(
            [fragment(0, "a", name="f", arguments="{}"), fragment(1, "a", name="f", arguments='{"x":1}')],
            [("a", "f", "{}"), ("?", "f", '{"x":1}')],
            id="one id for two calls",
        ),
        pytest.param(
            [fragment(0, "a", name="f", arguments="{}"), fragment(1, "a", name="f"), fragment(1, arguments="{}")],
            [("a", "f", "{}")],
            id="a call reported again at another index",
        ),
        pytest.param([fragment(0, "a", name="f", arguments="{}")] * 2, [("a", "f", "{}")], id="a chunk repeated"),
        pytest.param(
            [fragment(0, "a", name="f", arguments="{}"), chunk(function_call={"name": "f", "arguments": "{}"})],
            [("a", "f", "{}")],
            id="both wires",
        ),
        pytest.param(
            [fragment(0, name="f", arguments="{"), fragment(0, "a", arguments="}"), fragment(0, "a", arguments=" ")],
            [("?", "f", "{} ")],
            id="the id behind the name",
        ),
        pytest.param(
            [fragment(0, arguments="{"), fragment(0, "a", name="f", arguments="}")],
            [("a", "f", "{}")],
            id="the id and the name late",
        ),
        pytest.param([fragment(0, "a", arguments="{}"), fragment(0, name="f")], [("a", "f", "{}")], id="the name late"),
        pytest.param([fragment(0, "a", name="f")], [("a", "f", "")], id="no arguments"),
        pytest.param([fragment(0, "a", name="f", arguments={"x": 1})], [("a", "f", '{"x":1}')], id="arguments as JSON"),
        pytest.param(
            [chunk(function_call={"name": "f", "arguments": "{"}), chunk(function_call={"arguments": "}"})],
            [("?", "f", "{}")],
            id="the old function_call",
        ),
    ],
)
def test_fragments_find_their_call(fragments: list[Json], calls: list[tuple[str, str, str]]) -> None:
    assert ready(*fragments) == calls


@pytest.mark.parametrize("reason", ["stop", "tool_calls", "function_call", "eos_token", "tool_use", "TOOL_CALL"])
def test_whatever_the_end_is_called_calls_are_calls(reason: str) -> None:
    assert read(chunk(content="Well."), fragment(0, "a", name="f", arguments="{}"), chunk(reason)) == [
        TextDelta("Well."),
        ToolCallAnnounced("a", "f"),
        ToolCallArguments("a", "{}"),
        ToolCallReady("a", "f", "{}"),
        CallCompleted(),
    ]


def test_an_answer_that_is_cut_in_the_middle_of_a_call_has_the_reason() -> None:
    *_, made, end = read(fragment(0, "a", name="f", arguments='{"x'), chunk("length"))
    assert (made, end) == (ToolCallReady("a", "f", '{"x'), CallCompleted(finish="length"))


def test_a_call_that_is_cut_before_its_arguments_is_one_of_an_answer_that_is_not_whole() -> None:
    first = fragment(0, "a", name="f", arguments="")
    assert read(first, fragment(1, "b", name="g", arguments=" "), chunk("length")) == [
        ToolCallAnnounced("a", "f"),
        ToolCallAnnounced("b", "g"),
        ToolCallArguments("b", " "),
        ToolCallReady("a", "f", ""),
        ToolCallReady("b", "g", " "),
        CallCompleted(finish="length"),
    ]
