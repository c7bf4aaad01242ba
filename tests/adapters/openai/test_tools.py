"""Tools and calls on both OpenAI wires."""

import json

import pytest

from adapters.openai.chat import adapter as openai_chat
from adapters.openai.chat.messages import encode_tool as chat_tool
from adapters.openai.encoding import CallIds, ToolOffer, arguments_text, function_name, output_text
from adapters.openai.failures import OpenAIFailures
from adapters.openai.responses import adapter as openai_responses
from adapters.openai.responses.request import encode_tool as responses_tool
from gateway.a2a.model import Json
from gateway.ports.adapter import AdapterError, ErrorClass
from gateway.ports.conversation import CallItem, OutputItem, UserItem
from gateway.ports.tools import ToolDeclaration
from gateway.testing.adapter_scripts import collect, completed, message, request, text
from tests.adapters.emulator_support import Build, Start, calls_in
from tests.adapters.openai.openai_support import judge
from tests.emulators.chat import ChatServer
from tests.emulators.responses_server import ResponsesServer

SCHEMA: dict[str, Json] = {"type": "object", "properties": {"city": {"type": "string"}}}
WEATHER = ToolDeclaration("weather", "The weather of a city.", SCHEMA)
CLOCK = ToolDeclaration("clock", "", {"type": "object"})
SEARCH: dict[str, Json] = {"type": "web_search"}


def offer(**fields: Json) -> ToolOffer:
    return ToolOffer({"model": "m", **fields}, responses_tool, OpenAIFailures(()))


def test_a_tool_is_what_each_wire_calls_one() -> None:
    described = {"name": "weather", "description": "The weather of a city.", "parameters": SCHEMA}
    assert chat_tool(WEATHER) == {"type": "function", "function": described}
    assert responses_tool(WEATHER) == {"type": "function", **described, "strict": False}


def test_tools_come_after_those_of_the_settings() -> None:
    assert offer(tools=(SEARCH,), tool_choice="auto").fields((WEATHER, CLOCK)) == {
        "model": "m",
        "tool_choice": "auto",
        "tools": [SEARCH, responses_tool(WEATHER), responses_tool(CLOCK)],
    }


@pytest.mark.parametrize("tools", [(), []])
def test_without_tools_no_field_is_about_them(tools: Json) -> None:
    assert offer(tools=tools, tool_choice="required", parallel_tool_calls=False, seed=7).fields() == {
        "model": "m",
        "seed": 7,
    }


def test_tools_of_the_settings_stay_when_no_others_are_offered() -> None:
    fixed = {"tools": [SEARCH], "tool_choice": "required"}
    assert offer(**fixed).fields() == {"model": "m", **fixed}


@pytest.mark.parametrize(
    "own", [(), ({"type": "function", "name": "weather"},), ({"type": "function", "function": {"name": "weather"}},)]
)
def test_a_name_that_two_tools_have_is_an_error_before_anything_is_sent(own: Json) -> None:
    tools = (WEATHER,) if own else (WEATHER, CLOCK, WEATHER)
    with pytest.raises(AdapterError, match="two tools are called 'weather'") as caught:
        offer(tools=own).fields(tools)
    assert caught.value.kind is ErrorClass.NOT_SERVED


async def test_the_vendor_describes_them_like_this(start: Start, build: Build) -> None:
    """Both servers refuse violations of the API description, if it is available."""
    script = calls_in([("weather", {"city": "Oslo"})])
    chat, responses = ChatServer(script, validator=judge()), ResponsesServer(script, validator=judge())
    for factory, server in ((openai_chat.factory, chat), (openai_responses.factory, responses)):
        adapter = build(factory, await start(server), extra_body={"parallel_tool_calls": False})
        first = completed(await collect(adapter, request("Hi", tools=(WEATHER, CLOCK))))
        whole = first.handle is None
        made = (UserItem(message("Hi")), CallItem("call_0_0_weather", "weather", "{}")) if whole else ()
        answered = (*made, OutputItem("call_0_0_weather", {"degrees": 3}))
        last = await collect(adapter, request("Hi", items=answered, handle=first.handle))
        assert text(last) == "Done"
        assert [body.keys() & {"tools", "parallel_tool_calls"} for body in server.requests] == [
            {"tools", "parallel_tool_calls"},
            set(),
        ]


def test_every_call_has_an_id_of_its_own_and_its_output_has_the_same() -> None:
    ids, given = CallIds(), ["a", "", "a", "a_2", "", "x" * 65, "x" * 65]
    calls = [ids.of_call(each) for each in given]
    assert len(set(calls)) == len(calls)
    assert calls[0] == "a"
    assert all(0 < len(each) <= 64 for each in calls)
    assert [ids.of_output(each) for each in given] == calls


def test_an_output_without_its_call_answers_what_the_backend_keeps() -> None:
    assert [CallIds().of_output(given) for given in ("call_1", "x" * 300)] == ["call_1", "x" * 300]


@pytest.mark.parametrize(
    ("arguments", "sent"),
    [
        ('{"a": 1}', '{"a": 1}'),
        ("", "{}"),
        (" \n", "{}"),
        ("{broken", '{"raw":"{broken"}'),
        ("[1]", '{"raw":"[1]"}'),
        ("[" * 20_000, json.dumps({"raw": "[" * 20_000}, separators=(",", ":"))),
    ],
)
def test_arguments_are_an_object_wherever_they_are_sent(arguments: str, sent: str) -> None:
    assert arguments_text(arguments) == sent


@pytest.mark.parametrize(
    ("item", "text"),
    [
        (OutputItem("a", "found"), "found"),
        (OutputItem("a", ""), ""),
        (OutputItem("a", None), "null"),
        (OutputItem("a", False), "false"),
        (OutputItem("a", []), "[]"),
        (OutputItem("a", {"n": [1]}), '{"n":[1]}'),
        (OutputItem("a", "no such file", error=True), "Error: no such file"),
        (OutputItem("a", "Error: no such file", error=True), "Error: no such file"),
        (OutputItem("a", {"code": 7}, error=True), 'Error: {"code":7}'),
        (OutputItem("a", "", error=True), "Error: "),
    ],
)
def test_an_output_is_text_and_marks_a_failed_tool(item: OutputItem, text: str) -> None:
    assert output_text(item) == text


@pytest.mark.parametrize(("name", "sent"), [("a.b/c", "a_b_c"), ("a-b_c", "a-b_c"), ("", "_")])
def test_a_name_has_only_what_both_wires_take(name: str, sent: str) -> None:
    assert function_name(name) == sent
