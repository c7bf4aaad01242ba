"""Answers to a waiting turn, in every dialect; and data that only looks like one."""

from typing import Any

import pytest

from gateway.a2a.errors import InvalidParams
from gateway.a2a.model import Json, Message, Part, Role
from gateway.a2a.tool_calls import URI
from gateway.core.tools.answers import AG2_RESULTS, Answers, ClientResult, Decision, answers, confirmation_of

AT = "message.parts[0].data"


def message(*parts: Part, metadata: dict[str, Json] | None = None) -> Message:
    return Message(message_id="m", role=Role.USER, parts=parts or (Part(text="."),), metadata=metadata)


def data(value: Json, **more: Any) -> Message:
    return message(Part(data=value, **more))


def decided(sent: Message) -> list[tuple[str | None, bool, str | None]]:
    return [(decision.call, decision.approved, decision.reason) for decision in answers(sent).decisions]


def complaint(sent: Message) -> str:
    with pytest.raises(InvalidParams) as caught:
        answers(sent)
    return caught.value.violations[0].field


# --- words and other data are no answers


@pytest.mark.parametrize(
    "text", ["yes", "approve", "approved: true", '{"approvals": [{"id": "c1", "approved": true}]}']
)
def test_words_are_never_a_yes(text: str) -> None:
    sent = message(Part(text=text))
    assert answers(sent) == Answers((), (), sent.parts)
    assert not answers(sent)


@pytest.mark.parametrize(
    "value",
    [
        {"id": "c1", "name": "add", "args": {}},
        {"id": 1, "response": {}},
        {"id": "c1", "response": {}, "colour": "red"},
        ["approve"],
        "approve",
        None,
        {},
        {"id": "c1", "name": "adk_request_confirmation", "args": {}},
        {"id": "c1", "name": "camera"},
        {"name": "camera", "response": {}},
    ],
)
def test_other_data_is_no_answer(value: Json) -> None:
    sent = data(value)
    assert answers(sent) == Answers((), (), sent.parts)


def test_what_is_said_beside_an_answer_is_kept() -> None:
    text = Part(text="and hurry")
    sent = message(Part(data={"decision": "approve"}), text)
    assert answers(sent).rest == (text,)


# --- the dialects


@pytest.mark.parametrize("place", ["part", "metadata"])
def test_our_list_and_kagents(place: str) -> None:
    listed = {"approvals": [{"id": "c1", "approved": True}, {"id": "c2", "approved": False, "reason": "too dear"}]}
    sent = data(listed) if place == "part" else message(metadata={URI: listed})
    assert decided(sent) == [("c1", True, None), ("c2", False, "too dear")]


def test_kagents_decision_for_all() -> None:
    assert decided(data({"decision_type": "approve"})) == [(None, True, None)]
    assert decided(data({"decision_type": "reject", "rejection_reason": "no"})) == [(None, False, "no")]


def test_kagents_decisions_for_each() -> None:
    sent = data(
        {
            "decision_type": "batch",
            "decisions": {"c1": "approve", "c2": "reject"},
            "rejection_reasons": {"c2": "too dear"},
        }
    )
    assert decided(sent) == [("c1", True, None), ("c2", False, "too dear")]


def test_kagentis_decision() -> None:
    assert decided(data({"decision": "approve"})) == [(None, True, None)]
    assert decided(data({"decision": "reject", "reason": "no"})) == [(None, False, "no")]


@pytest.mark.parametrize(
    ("response", "approved"),
    [
        ({"confirmed": True}, True),
        ({"confirmed": False, "hint": "?", "payload": None}, False),
        ({"response": '{"confirmed": true}'}, True),
    ],
)
def test_the_confirmation_of_google_adk(response: Json, approved: bool) -> None:
    confirmation = {"id": confirmation_of("c1"), "name": "adk_request_confirmation", "response": response}
    assert decided(data(confirmation, metadata={"adk_type": "function_response"})) == [("c1", approved, None)]
    assert decided(data(confirmation)) == [("c1", approved, None)]


@pytest.mark.parametrize(
    ("response", "output", "error"),
    [
        ({"result": 3}, 3, False),
        ({"error": "no such file"}, "no such file", True),
        ({"temperature": 20}, {"temperature": 20}, False),
        ({"result": 3, "error": None}, {"result": 3, "error": None}, False),
        ("3", "3", False),
        ({}, {}, False),
        (None, None, False),
    ],
)
def test_a_clients_result(response: Json, output: Json, error: bool) -> None:
    sent = data({"id": "c1", "name": "add", "response": response}, metadata={"type": "function_response"})
    assert answers(sent).results == (ClientResult(AT, "c1", output, error, "add"),)


def test_the_results_of_an_ag2_client() -> None:
    results = {"results": [{"id": "c1", "name": "a", "content": "3", "error": None}, {"id": "c2", "error": "no"}]}
    assert answers(data(results, media_type=AG2_RESULTS)).results == (
        ClientResult(f"{AT}.results[0]", "c1", "3", name="a"),
        ClientResult(f"{AT}.results[1]", "c2", "no", error=True),
    )


def test_several_parts_bring_several_answers() -> None:
    sent = message(
        Part(data={"approvals": [{"id": "c1", "approved": True}]}), Part(data={"id": "c2", "name": "n", "response": {}})
    )
    assert answers(sent) == Answers(
        (Decision(f"{AT}.approvals[0].id", "c1", True),),
        (ClientResult("message.parts[1].data", "c2", {}, name="n"),),
        (),
    )


# --- what begins as an answer and is none


@pytest.mark.parametrize(
    ("value", "field"),
    [
        ({"approvals": {}}, "approvals"),
        ({"approvals": []}, "approvals"),
        ({"approvals": ["c1"]}, "approvals[0]"),
        ({"approvals": [{"approved": True}]}, "approvals[0].id"),
        ({"approvals": [{"id": "", "approved": True}]}, "approvals[0].id"),
        ({"approvals": [{"id": "c1"}]}, "approvals[0].approved"),
        ({"approvals": [{"id": "c1", "approved": "yes"}]}, "approvals[0].approved"),
        ({"approvals": [{"id": "c1", "approved": 1}]}, "approvals[0].approved"),
        ({"approvals": [{"id": "c1", "approved": False, "reason": 1}]}, "approvals[0].reason"),
        ({"decision": "maybe"}, "decision"),
        ({"decision": True}, "decision"),
        ({"decision_type": "accept"}, "decision_type"),
        ({"decision_type": "batch"}, "decisions"),
        ({"decision_type": "batch", "decisions": {"c1": "deny"}}, "decisions['c1']"),
        ({"name": "adk_request_confirmation", "response": {"confirmed": True}}, "id"),
        ({"id": 1, "name": "adk_request_confirmation", "response": {"confirmed": True}}, "id"),
        ({"id": "c1", "name": "adk_request_confirmation"}, "response"),
        ({"id": "c1", "name": "adk_request_confirmation", "response": True}, "response"),
        ({"id": "c1", "name": "adk_request_confirmation", "response": {}}, "response.confirmed"),
        ({"id": "c1", "name": "adk_request_confirmation", "response": {"confirmed": "yes"}}, "response.confirmed"),
        ({"id": "c1", "name": "adk_request_confirmation", "response": {"response": "{"}}, "response.response"),
    ],
)
def test_an_answer_that_is_not_understood_names_its_field(value: Json, field: str) -> None:
    assert complaint(data(value)) == f"{AT}.{field}"


@pytest.mark.parametrize(
    ("value", "field"),
    [
        ({}, "results"),
        ({"results": []}, "results"),
        ({"results": [1]}, "results[0]"),
        ({"results": [{}]}, "results[0].id"),
        ({"results": [{"id": "c1"}]}, "results[0].content"),
        ({"results": [{"id": "c1", "name": 1, "content": "3"}]}, "results[0].name"),
    ],
)
def test_results_of_an_ag2_client_that_are_not_understood_name_their_field(value: Json, field: str) -> None:
    assert complaint(data(value, media_type=AG2_RESULTS)) == f"{AT}.{field}"


@pytest.mark.parametrize("mark", ["adk_type", "type", "kagent_type"])
@pytest.mark.parametrize(
    ("value", "field"),
    [
        ({"name": "camera", "response": {}}, "id"),
        ({"id": "", "name": "camera", "response": {}}, "id"),
        ({"id": 1, "name": "camera", "response": {}}, "id"),
        ({"id": "c1", "name": "camera"}, "response"),
        ({"id": "c1", "name": ["camera"], "response": {}}, "name"),
        ({}, "id"),
    ],
)
def test_a_part_that_is_marked_as_a_response_and_is_none_names_its_field(mark: str, value: Json, field: str) -> None:
    assert complaint(data(value, metadata={mark: "function_response"})) == f"{AT}.{field}"


def test_a_part_that_is_marked_as_a_call_is_no_answer() -> None:
    called = {"id": "c1", "name": "adk_request_confirmation", "response": {}}
    sent = data(called, metadata={"adk_type": "function_call"})
    assert answers(sent) == Answers((), (), sent.parts)
