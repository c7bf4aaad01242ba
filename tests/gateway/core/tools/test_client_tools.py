"""Tools that a client declares with its message, and those of an agent's settings."""

from typing import Any

import pytest

from gateway.a2a.errors import InvalidParams
from gateway.a2a.model import Json, Message, Part, Role
from gateway.a2a.tool_calls import URI
from gateway.core.tools.client_tools import AG2_SCHEMAS, MOST, declared, offered, with_declarations
from gateway.ports.tools import ToolDeclaration

FIELD = f"message.metadata[{URI!r}].tools"
SCHEMA: dict[str, Json] = {"type": "object", "properties": {"city": {"type": "string"}}}
WEATHER = ToolDeclaration("weather", "Tells the weather.", SCHEMA)


def message(*tools: Json, parts: tuple[Part, ...] = (Part(text="hi"),), **others: Json) -> Message:
    metadata = {URI: {"tools": list(tools), **others}, "mine": 1} if tools or others else None
    return Message(message_id="m", role=Role.USER, parts=parts, metadata=metadata)


def weather(**changed: Json) -> dict[str, Json]:
    return {"name": "weather", "description": "Tells the weather.", "parameters": SCHEMA, **changed}


def complaint(sent: Message, **more: Any) -> str:
    with pytest.raises(InvalidParams) as caught:
        with_declarations(sent, **more)
    return caught.value.violations[0].field


def test_a_message_that_declares_nothing_is_left_as_it_is() -> None:
    sent = message()
    assert with_declarations(sent) is sent
    assert declared(sent) == ()


def test_a_declaration_is_read_from_the_metadata() -> None:
    sent = with_declarations(message(weather()))
    assert declared(sent) == (WEATHER,)
    assert sent.metadata is not None
    assert sent.metadata["mine"] == 1


def test_what_is_left_out_has_a_default() -> None:
    anything: dict[str, Json] = {"type": "object"}
    assert declared(with_declarations(message({"name": "a"}))) == (ToolDeclaration("a", "", anything),)


def test_the_part_of_an_ag2_client_becomes_metadata_and_is_no_part_of_what_is_said() -> None:
    part = Part(data={"tools": [weather()]}, media_type=AG2_SCHEMAS)
    sent = with_declarations(message(parts=(Part(text="hi"), part)))
    assert declared(sent) == (WEATHER,)
    assert sent.parts == (Part(text="hi"),)


def test_a_message_of_nothing_but_a_declaration_says_nothing() -> None:
    part = Part(data={"tools": [weather()]}, media_type=AG2_SCHEMAS)
    assert complaint(message(parts=(part,))) == "message.parts"


@pytest.mark.parametrize(
    ("tool", "field"),
    [
        ("weather", ""),
        ({}, ".name"),
        (weather(name=""), ".name"),
        (weather(name="a b"), ".name"),
        (weather(name="a" * 65), ".name"),
        (weather(description=1), ".description"),
        (weather(description="x" * 4097), ".description"),
        (weather(parameters=[]), ".parameters"),
        (weather(parameters={"x": "x" * 16384}), ".parameters"),
        (weather(parameters={"type": "array"}), ".parameters.type"),
        (weather(parameters={"properties": {"city": {"type": "text"}}}), ".parameters.properties.city.type"),
    ],
)
def test_a_declaration_that_is_too_large_or_broken_names_its_field(tool: Json, field: str) -> None:
    assert complaint(message({"name": "first"}, tool)) == f"{FIELD}[1]{field}"


def test_too_many_tools_are_refused() -> None:
    assert complaint(message(*({"name": f"t{number}"} for number in range(MOST + 1)))) == FIELD


def test_what_is_no_list_is_refused() -> None:
    sent = Message(message_id="m", role=Role.USER, parts=(Part(text="hi"),), metadata={URI: {"tools": {}}})
    assert complaint(sent) == FIELD
    assert declared(sent) == ()
    assert declared(message("weather")) == ()


def test_one_name_twice_is_refused_wherever_it_was_declared() -> None:
    part = Part(data={"tools": [weather()]}, media_type=AG2_SCHEMAS)
    assert complaint(message(weather(), weather())) == f"{FIELD}[1].name"
    assert complaint(message(weather(), parts=(Part(text="hi"), part))) == "message.parts[1].data.tools[0].name"


def test_a_name_that_the_agent_has_is_refused() -> None:
    assert complaint(message(weather()), taken={"weather"}) == f"{FIELD}[0].name"


def test_a_clients_own_tool_goes_before_one_of_the_settings() -> None:
    configured = (ToolDeclaration("weather", "of the settings", SCHEMA), ToolDeclaration("place", "", SCHEMA))
    assert offered(configured, message(weather())) == (WEATHER, configured[1])
    assert offered(configured, message()) == configured
