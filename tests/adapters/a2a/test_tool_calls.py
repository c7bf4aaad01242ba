"""Tool calls of other agents: in the form of a gateway, each phase of it, and in that of Google ADK."""

from typing import Any

import pytest

from adapters.a2a.state import Asked
from adapters.a2a.tool_calls import ToolCallReader
from gateway.a2a.model import Json, Part
from gateway.a2a.tool_calls import URI
from gateway.ports.adapter import AdapterEvent, ApprovalAsked, ToolCallAnnounced, ToolCallReady, ToolResultReady


def facts(phase: str, call: str = "c1", **more: Json) -> dict[str, Json]:
    return {"phase": phase, "callId": call, "name": "pay", "round": 0, "index": 0, "origin": "gateway", **more}


def called(args: dict[str, Json], call: str = "c1", told: dict[str, Json] | None = None) -> Part:
    about = {} if told is None else {URI: told}
    return Part(data={"id": call, "name": "pay", "args": args}, metadata={"adk_type": "function_call", **about})


def answered(response: Json, call: str = "c1", told: dict[str, Json] | None = None) -> Part:
    about = {} if told is None else {URI: told}
    return Part(data={"id": call, "name": "pay", "response": response}, metadata={"type": "function_response", **about})


def reader(*asked: Asked) -> ToolCallReader:
    return ToolCallReader({each.id: each for each in asked})


def begun(call: str = "c1", arguments: str = "{}", server: str | None = None, **more: Any) -> list[AdapterEvent]:
    return [
        ToolCallAnnounced(call, "pay", handled=True, server=server),
        ToolCallReady(call, "pay", arguments, handled=True, server=server, **more),
    ]


@pytest.mark.parametrize(
    "part",
    [
        Part(text="Hi"),
        Part(data={"id": "c1", "name": "pay", "args": {}}),
        Part(data=[1], metadata={"type": "function_call"}),
        Part(data={"id": 1, "name": "pay", "args": {}}, metadata={"type": "function_call"}),
        Part(data={"id": "c1", "name": "pay", "args": {}}, metadata={"type": "poem"}),
    ],
)
def test_any_other_part_is_left_to_the_answer(part: Part) -> None:
    assert reader().part(part) is None


def test_a_call_and_its_outcome_in_the_form_of_google_adk() -> None:
    used = reader()
    assert used.part(called({"eur": 3})) == begun(arguments='{"eur":3}')
    assert used.part(answered({"result": "paid"})) == [ToolResultReady("c1", "paid")]


def test_a_call_of_a_gateway_is_shown_when_it_runs() -> None:
    used = reader()
    assert used.part(called({"eur": 3}, told=facts("requested", server="mcp:bank"))) == []
    assert used.phase(facts("executing")) == begun(arguments='{"eur":3}', server="mcp:bank")
    assert used.phase(facts("progress", text="half")) == []
    assert used.part(answered({"balance": 1}, told=facts("succeeded"))) == [ToolResultReady("c1", {"balance": 1})]


def test_an_outcome_alone_shows_its_call_first() -> None:
    """As in a task whose beginning was not heard."""
    assert reader().part(answered({"result": 1})) == [*begun(), ToolResultReady("c1", 1)]


def test_what_comes_twice_is_given_out_once() -> None:
    used = reader()
    for part in (called({}), answered({"result": 1})):
        used.part(part)
    assert used.part(called({})) == []
    assert used.part(answered({"result": 1})) == []


@pytest.mark.parametrize("phase", ["failed", "interrupted", "cancelled"])
def test_an_outcome_that_is_none_is_an_error(phase: str) -> None:
    used = reader()
    used.part(called({}))
    error = {"error": {"code": phase, "message": "no ink"}}
    assert used.part(answered(error, told=facts(phase))) == [ToolResultReady("c1", "no ink", error=True)]


def test_arguments_that_are_no_json_come_as_they_were() -> None:
    used = reader()
    used.part(called({"raw": "{eur: 3"}, told=facts("requested")))
    assert used.phase(facts("executing"))[1:] == [ToolCallReady("c1", "pay", "{eur: 3", handled=True)]


def test_a_call_that_the_caller_runs_is_left_to_the_question() -> None:
    assert reader().part(called({}, told=facts("requested", origin="client"))) is None


# --- approvals --------------------------------------------------------------------------------------------------------

QUESTION = {URI: {"approval": {"tools": [{"id": "c1", "name": "pay", "args": {"eur": 3}, "tool": "bank.pay"}]}}}


def test_a_call_that_waits_for_approval_is_a_question_and_no_call() -> None:
    used = reader()
    used.part(called({"eur": 3}, told=facts("requested", server="mcp:bank")))
    used.part(called({"eur": 4}, "c2", facts("requested", "c2")))
    assert used.phase(facts("awaiting-approval")) == []
    questions = used.questions(QUESTION)
    assert list(used.ask(questions)) == [
        *begun("c2", '{"eur":4}'),
        ApprovalAsked("c1", "pay", '{"eur":3}', "bank"),
    ]


@pytest.mark.parametrize("metadata", [None, {}, {URI: 1}, {URI: {"approval": {}}}, {URI: {"approval": {"tools": [1]}}}])
def test_a_status_that_asks_for_no_approval_has_no_questions(metadata: Any) -> None:
    assert reader().questions(metadata) == ()


def test_a_call_that_was_approved_runs_under_an_id_of_its_own() -> None:
    used = reader(Asked("c1", "pay", '{"eur":3}', "bank"))
    assert used.part(called({"eur": 3}, told=facts("requested"))) == []
    assert used.phase(facts("executing")) == begun("c1:run", '{"eur":3}', "bank", question="c1")
    assert used.part(answered({"result": "paid"}, told=facts("succeeded"))) == [ToolResultReady("c1:run", "paid")]


def test_the_outcome_of_a_call_that_ran_before_a_question_is_that_of_the_call() -> None:
    before = reader(Asked("c2", "pay", "{}"))
    before.part(called({}, "c1", facts("requested")))
    before.phase(facts("executing", "c1"))
    before.phase(facts("executing", "c2"))
    assert before.given == {"c1": "c1", "c2": "c2:run"}
    after = ToolCallReader({}, frozenset(before.told), dict(before.given))
    assert after.part(answered({"result": "paid"}, "c1")) == [ToolResultReady("c1", "paid")]
    assert after.part(answered({"result": "paid"}, "c2")) == [ToolResultReady("c2:run", "paid")]
    assert after.part(answered({"result": "paid"}, "c1")) == []
    assert after.given == {}


def test_a_call_that_was_rejected_has_no_outcome_but_the_decision() -> None:
    used = reader(Asked("c1", "pay", "{}"))
    assert used.part(answered({"error": {"code": "rejected", "message": "no"}}, told=facts("rejected"))) == []
