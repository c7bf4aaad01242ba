"""A tool call on the wire: `data` strictly as Google's ADK reads it, the rest in metadata."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from gateway.a2a.model import Json
from gateway.a2a.redaction import json_path
from gateway.a2a.tool_calls import ENDS, GOOD_ENDS, URI, CallFacts, Phase, Place, Rendering, requested, update
from tests.tool_call_vectors import Vector, as_event, faults, valid, vectors

CALL = CallFacts("call_1", "get_weather", 0, 2, "backend", None, "2026-11-20T10:00:00.000Z")
LATER = "2026-11-20T10:00:01.000Z"


def shown(phase: str, detail: Json = None, call: CallFacts = CALL, **rendering: Any) -> Any:
    """The event as JSON, checked against the schema."""
    made = update(call, phase, detail, Rendering(**rendering), Place("t", "c", LATER, lambda: "m"))
    if made is None:
        return None
    event = as_event(made)
    assert faults(event) == []
    return event


def data(phase: str, detail: Json = None, **rendering: Any) -> Any:
    return part_of(shown(phase, detail, **rendering))["data"]


def part_of(event: Any) -> Any:
    body = event.get("statusUpdate", event.get("artifactUpdate"))
    [part] = body["artifact"]["parts"] if "artifact" in body else body["status"]["message"]["parts"]
    return part


def facts_of(event: Any) -> Any:
    bare = event.get("statusUpdate", {}).get("metadata")
    return (bare or part_of(event)["metadata"])[URI]


# --- the golden vectors -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("vector", vectors(), ids=lambda vector: vector.name)
def test_a_golden_vector_comes_out_as_it_is_written_and_fits_the_schema(vector: Vector) -> None:
    assert vector.rendered() == vector.update
    assert vector.update is None or faults(vector.update) == []


def test_every_phase_channel_and_exposure_has_a_golden_vector() -> None:
    given = [vector.given for vector in vectors()]
    assert {each["phase"] for each in given} == set(Phase)
    assert {each.get("rendering", {}).get("exposure", "full") for each in given} == {"none", "names", "args", "full"}
    assert {each.get("rendering", {}).get("channel", "status") for each in given} == {"status", "artifact"}


# --- parts ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("channel", ["status", "artifact"])
def test_only_the_request_and_the_end_have_a_part(channel: str) -> None:
    kinds = {}
    for phase in Phase:
        event = shown(phase, "x", channel=channel)
        bare = "metadata" in event.get("statusUpdate", {})
        kinds[phase] = None if bare else part_of(event)["metadata"]["adk_type"]
    assert kinds == dict.fromkeys(Phase) | {Phase.REQUESTED: "function_call"} | dict.fromkeys(ENDS, "function_response")


@pytest.mark.parametrize("phase", sorted(set(Phase) - ENDS - {Phase.REQUESTED}))
def test_what_happens_between_is_metadata_of_a_bare_status_update_on_every_channel(phase: str) -> None:
    assert shown(phase, "x", channel="artifact") == shown(phase, "x", channel="status")
    assert "message" not in shown(phase, "x")["statusUpdate"]["status"]


@pytest.mark.parametrize(
    ("arguments", "args"),
    [
        ("", {}),
        ("  ", {}),
        ("{}", {}),
        ('{"a": null}', {"a": None}),
        ("[1]", {"value": [1]}),
        ("null", {"value": None}),
        ('{"a": ', {"raw": '{"a": '}),
        ("Paris", {"raw": "Paris"}),
        ("[" * 5000, {"raw": "[" * 5000}),
    ],
)
def test_arguments_are_always_an_object(arguments: str, args: Json) -> None:
    assert data("requested", arguments) == {"id": "call_1", "name": "get_weather", "args": args}


@pytest.mark.parametrize("phase", ["succeeded", "replayed"])
@pytest.mark.parametrize(
    ("output", "response"),
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
def test_an_outcome_is_always_an_object(phase: str, output: Json, response: Json) -> None:
    assert data(phase, output) == {"id": "call_1", "name": "get_weather", "response": response}


@pytest.mark.parametrize("phase", sorted(ENDS - GOOD_ENDS))
@pytest.mark.parametrize(("output", "words"), [("no such city", "no such city"), ({"code": 4}, '{"code":4}')])
def test_what_went_wrong_is_an_error_with_the_phase_for_its_code(phase: str, output: Json, words: str) -> None:
    assert data(phase, output)["response"] == {"error": {"code": phase, "message": words}}


def test_the_server_is_named_where_it_is_known() -> None:
    call = CallFacts("call_1", "get_weather", 0, 2, "backend", "mcp:weather", "2026-11-20T10:00:00.000Z")
    assert facts_of(shown("executing", call=call))["server"] == "mcp:weather"
    assert "server" not in facts_of(shown("executing"))


def test_the_part_of_a_call_can_stand_in_a_question() -> None:
    part = requested(CALL, '{"a": 1}')
    assert part.data == {"id": "call_1", "name": "get_weather", "args": {"a": 1}}


# --- who sees what ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("phase", list(Phase))
def test_nothing_of_a_call_is_shown_to_who_may_see_none(phase: str) -> None:
    assert shown(phase, "x", exposure="none") is None


@pytest.mark.parametrize("phase", sorted(set(Phase) - {Phase.ARGS_DELTA}))
def test_who_may_see_names_gets_nothing_that_the_model_or_the_tool_said(phase: str) -> None:
    assert "s3cret" not in str(shown(phase, '{"s3cret": "s3cret"}', exposure="names"))


def test_a_caller_that_sees_only_names_gets_no_pieces_of_arguments() -> None:
    assert shown("args-delta", '{"ci', exposure="names") is None


@pytest.mark.parametrize("phase", [*sorted(ENDS), "progress"])
def test_who_may_see_arguments_gets_nothing_that_the_tool_said(phase: str) -> None:
    assert "s3cret" not in str(shown(phase, '{"s3cret": "s3cret"}', exposure="args"))


def test_who_may_see_arguments_gets_them() -> None:
    assert data("requested", '{"a": 1}', exposure="args")["args"] == {"a": 1}
    assert facts_of(shown("args-delta", "{", exposure="args"))["delta"] == "{"


@pytest.mark.parametrize(
    ("phase", "detail", "path"),
    [
        ("requested", '{"s3cret": 1}', "$.args"),
        ("requested", '{"a": "s3cret"}', "$.args.a"),
        ("requested", '{"a": {"b": ["s3cret"]}}', "$..b[*]"),
        ("requested", '{"a": "s3cret', "$.args.a"),
        ("requested", '["s3cret"]', "$.args.value[0]"),
        ("succeeded", {"rows": [{"email": "s3cret"}]}, "$.response.rows[*].email"),
        ("succeeded", '[{"email": "s3cret"}]', "$..email"),
        ("succeeded", {"content": [{"text": '{"email": "s3cret"}'}]}, "$..email"),
        ("succeeded", "s3cret", "$.response.result"),
        ("failed", "s3cret", "$.response.error.message"),
        ("failed", "s3cret", "$..*"),
    ],
)
def test_what_a_path_points_at_is_masked_and_the_shape_stays(phase: str, detail: Json, path: str) -> None:
    event = shown(phase, detail, redact=(json_path(path),))
    assert "s3cret" not in str(event)
    assert part_of(event)["data"]["id"] == "call_1"
    assert part_of(event)["data"]["name"] == "get_weather"


ANSWERS: dict[str, Json] = {
    "an object": {"token": "s3cret", "id": 1},
    "its text": '{"token": "s3cret", "id": 1}',
    "a list": [{"token": "s3cret"}],
    "its text in a list": [{"type": "text", "text": '{"token": "s3cret"}'}, {"type": "text", "text": "more"}],
    "lines": '{"id": 1}\n{"token": "s3cret"}',
    "words": "token: s3cret",
}
WRAPPED: dict[str, Callable[[Json], Json]] = {
    "bare": lambda answer: answer,
    "with its status": lambda answer: {"status": 404, "answer": answer},
    "in the error of an MCP server": lambda answer: {"type": "mcp_tool_execution_error", "content": [{"text": answer}]},
}


FORMS = [(phase, "bare") for phase in sorted(GOOD_ENDS)] + [
    (p, form) for p in sorted(ENDS - GOOD_ENDS) for form in WRAPPED
]


@pytest.mark.parametrize(("phase", "form"), FORMS)
@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
def test_a_path_to_a_member_of_the_result_leads_there_whatever_the_outcome(phase: str, form: str, answer: Json) -> None:
    event = shown(phase, WRAPPED[form](answer), redact=(json_path("$.response.token"),))
    assert "s3cret" not in str(event)
    assert facts_of(event)["redacted"] == ["$.response.token"]


def test_a_path_to_a_member_of_the_result_masks_no_other_place_of_an_object() -> None:
    output = {"token": "s3cret", "page": {"token": "next"}}
    for detail in (output, json.dumps(output)):
        response = data("succeeded", detail, redact=(json_path("$.response.token"),))["response"]
        assert response == {"token": "[redacted]", "page": {"token": "next"}}


@pytest.mark.parametrize("phase", sorted(ENDS))
@pytest.mark.parametrize(
    "words", ['{"a": "s3cret"}', '{"result": 1, "a": "s3cret"}', '[{"a": "s3cret"}]', "s3cret", '"s3cret']
)
def test_all_that_a_tool_said_in_words_has_one_path(phase: str, words: str) -> None:
    event = shown(phase, words, redact=(json_path("$.response.result"),))
    assert "s3cret" not in str(event)
    assert facts_of(event)["redacted"] == ["$.response.result"]


def test_an_object_that_is_no_text_has_no_result() -> None:
    redact = (json_path("$.response.result"),)
    assert data("succeeded", {"a": 1}, redact=redact)["response"] == {"a": 1}
    assert data("succeeded", {"a": 1, "result": 2}, redact=redact)["response"] == {"a": 1, "result": "[redacted]"}


@pytest.mark.parametrize(
    "arguments",
    ['[{"pin": "s3cret"}]', '[[{"pin": ["s3cret"]}]]', '{"to": [{"pin": "s3cret"}]}', '"{\\"pin\\": \\"s3cret\\"}"'],
)
def test_a_path_to_an_argument_leads_through_lists(arguments: str) -> None:
    path = "$.args.to.pin" if '"to"' in arguments else "$.args.pin"
    event = shown("requested", arguments, redact=(json_path(path),))
    assert "s3cret" not in str(event)
    assert facts_of(event)["redacted"] == [path]


@pytest.mark.parametrize("phase", ["args-delta", "progress"])
def test_pieces_of_text_that_no_path_can_judge_are_not_shown_beside_masks(phase: str) -> None:
    assert "s3cret" not in str(shown(phase, "s3cret", redact=(json_path("$.args.a"),)))


def test_the_paths_that_masked_something_are_reported() -> None:
    paths = (json_path("$.args.a"), json_path("$.args.b"))
    assert facts_of(shown("requested", '{"a": 1}', redact=paths))["redacted"] == ["$.args.a"]


@pytest.mark.parametrize(
    ("phase", "output", "response"),
    [
        ("succeeded", "12345678", None),
        ("succeeded", "123456789", {"result": "12345678"}),
        ("succeeded", "1234567é", {"result": "1234567"}),
        ("succeeded", {"a": 1}, None),
        ("succeeded", {"a": 123456789}, {"result": '{"a":123'}),
        ("succeeded", {"result": [1, 2, 3]}, {"result": '{"result'}),
        ("failed", "no such city", {"error": {"code": "failed", "message": "no such "}}),
    ],
)
def test_a_result_over_the_limit_is_cut_and_says_so(phase: str, output: Json, response: Json) -> None:
    event = shown(phase, output, max_result=8)
    whole = data(phase, output)["response"]
    assert part_of(event)["data"]["response"] == (whole if response is None else response)
    assert facts_of(event).get("truncated") == (None if response is None else True)


# --- how it travels ---------------------------------------------------------------------------------------------------


def test_call_and_outcome_are_artifacts_of_their_own_so_that_neither_takes_the_place_of_the_other() -> None:
    events = [shown("requested", "{}", channel="artifact"), shown("succeeded", "x", channel="artifact")]
    updates = [event["artifactUpdate"] for event in events]
    assert [update["artifact"]["artifactId"] for update in updates] == ["tool-call:call_1", "tool-result:call_1"]
    assert [(update.get("append"), update["lastChunk"]) for update in updates] == [(None, True), (None, True)]


@pytest.mark.parametrize(("active", "extensions"), [(True, [URI]), (False, None)])
def test_the_extension_is_named_to_who_asked_for_it(active: bool, extensions: list[str] | None) -> None:
    message = shown("requested", "{}", active=active)["statusUpdate"]["status"]["message"]
    artifact = shown("requested", "{}", active=active, channel="artifact")["artifactUpdate"]["artifact"]
    assert (message.get("extensions"), artifact.get("extensions")) == (extensions, extensions)


# --- the schema -------------------------------------------------------------------------------------------------------


def test_the_schema_refuses_what_google_adk_would_drop() -> None:
    event = shown("requested", "{}")
    part_of(event)["data"]["extra"] = 1
    assert faults(event)
    event = shown("succeeded", {})
    part_of(event)["data"]["response"] = "text"
    assert faults(event)


@pytest.mark.parametrize(
    ("definition", "value"),
    [
        ("declaration", {"exposure": "full", "approvals": False, "clientTools": True}),
        (
            "approval",
            {
                "approval": {
                    "requestId": "r",
                    "tools": [{"id": "c", "name": "n", "args": {}}],
                    "expiresAt": LATER,
                }
            },
        ),
        ("consent", {"consent": {"requestId": "r", "links": [{"id": "c", "url": "https://a.example/?s=1"}]}}),
        (
            "consent",
            {
                "consent": {
                    "requestId": "r",
                    "links": [{"id": "c", "url": "http://localhost/", "server": "mcp:mail", "text": "To read it."}],
                    "expiresAt": LATER,
                }
            },
        ),
        ("approvals", {"approvals": [{"id": "c", "approved": True}, {"id": "d", "approved": False, "reason": "no"}]}),
        ("tools", {"tools": [{"name": "clock", "description": "The time.", "parameters": {"type": "object"}}]}),
        ("clientResult", {"data": {"id": "c", "response": {"result": 1}}, "metadata": {"type": "function_response"}}),
    ],
)
def test_the_schema_defines_the_other_shapes_of_the_extension(definition: str, value: Any) -> None:
    assert valid(definition, value)
    assert not valid(definition, {})
