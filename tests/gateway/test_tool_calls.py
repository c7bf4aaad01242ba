"""How a tool call looks on the wire: `data` strictly as Google's ADK reads it, the rest in metadata."""

import msgspec
import pytest

from gateway.model import Json, Part
from gateway.tool_calls import URI, CallFacts, answered, metadata, requested

CALL = CallFacts("call_1", "get_weather", 0, 2, "backend", None, "2026-11-20T10:00:00.000Z")
FACTS = {
    "callId": "call_1",
    "name": "get_weather",
    "round": 0,
    "index": 2,
    "origin": "backend",
    "startedAt": "2026-11-20T10:00:00.000Z",
    "exposure": "full",
    "redacted": [],
}


def _json(part: Part) -> Json:
    return msgspec.json.decode(msgspec.json.encode(part))


def _labels(kind: str) -> dict[str, str]:
    return {"adk_type": kind, "type": kind, "kagent_type": kind}


def test_a_call_is_shown_whole_with_its_arguments() -> None:
    assert _json(requested(CALL, '{"city": "Paris"}')) == {
        "data": {"id": "call_1", "name": "get_weather", "args": {"city": "Paris"}},
        "metadata": {**_labels("function_call"), URI: {"phase": "requested", **FACTS}},
    }


def test_the_server_is_named_where_it_is_known() -> None:
    call = CallFacts("call_1", "get_weather", 0, 2, "backend", "mcp:weather", "2026-11-20T10:00:00.000Z")
    assert metadata(call, "executing") == {"phase": "executing", **FACTS, "server": "mcp:weather"}


def test_a_phase_brings_its_own_facts() -> None:
    assert metadata(CALL, "args-delta", delta='{"ci') == {"phase": "args-delta", **FACTS, "delta": '{"ci'}


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        ("", {}),
        ("  ", {}),
        ("{}", {}),
        ('{"a": null}', {"a": None}),
        ("[1]", {"value": [1]}),
        ("null", {"value": None}),
        ('{"a": ', {"raw": '{"a": '}),
        ("Paris", {"raw": "Paris"}),
    ],
)
def test_arguments_are_always_an_object(arguments: str, shown: Json) -> None:
    assert _json(requested(CALL, arguments))["data"]["args"] == shown


@pytest.mark.parametrize(
    ("output", "shown"),
    [
        ("sunny", {"result": "sunny"}),
        ("", {"result": ""}),
        ('{"sky": "blue"}', {"sky": "blue"}),
        ("[1]", {"result": "[1]"}),
        ("3", {"result": "3"}),
        ({"sky": "blue"}, {"sky": "blue"}),
        ([1], {"result": [1]}),
        (0, {"result": 0}),
        (False, {"result": False}),
        (None, {"result": None}),
    ],
)
def test_an_outcome_is_always_an_object(output: Json, shown: Json) -> None:
    assert _json(answered(CALL, output, "succeeded")) == {
        "data": {"id": "call_1", "name": "get_weather", "response": shown},
        "metadata": {**_labels("function_response"), URI: {"phase": "succeeded", **FACTS}},
    }


@pytest.mark.parametrize("phase", ["failed", "interrupted"])
@pytest.mark.parametrize(("output", "words"), [("no such city", "no such city"), ({"code": 4}, '{"code":4}')])
def test_what_went_wrong_is_an_error_with_the_phase_for_its_code(phase: str, output: Json, words: str) -> None:
    part = _json(answered(CALL, output, phase))
    assert part["data"]["response"] == {"error": {"code": phase, "message": words}}
    assert part["metadata"][URI]["phase"] == phase
