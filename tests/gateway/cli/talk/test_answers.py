"""Answers to what a task waits for: approvals by a person or an option, tools by commands of this machine."""

import io
import json
import sys
from collections.abc import Sequence
from typing import Any

import pytest

from gateway.a2a.tool_calls import URI
from gateway.cli.console.output import Screen, Stop
from gateway.cli.console.parameters import Approve
from gateway.cli.talk.answers import Responder, decisions_on, read_tools, with_tools
from gateway.cli.talk.tool_calls import Question, question_of
from tests.gateway.cli.scripted_agent import COMPLETED, INPUT_REQUIRED, WORKING, status, task
from tests.tool_call_vectors import valid

Json = Any

SEARCH = {"id": "call_1", "name": "search", "args": {"q": "x"}}
DELETE = {"id": "call_2", "name": "delete", "args": {}}
ECHO = {"id": "call_3", "name": "echo", "args": {"a": 1}}
CAT = [sys.executable, "-c", "import sys; sys.stdout.write(sys.stdin.read())"]


def asks(*approvals: Json, calls: Sequence[Json] = (), origin: str = "client") -> Json:
    """The status update with which the gateway asks."""
    parts = [{"data": call, "metadata": {"adk_type": "function_call", URI: {"origin": origin}}} for call in calls]
    event = status(INPUT_REQUIRED, "May these tools be used?", *parts)
    if approvals:
        approval = {"requestId": "r-1", "tools": list(approvals), "expiresAt": "2026-11-21T10:00:00.000Z"}
        assert valid("approval", {"approval": approval})
        event["statusUpdate"]["status"]["message"]["metadata"] = {URI: {"approval": approval}}
    return event


class Person:
    """Types these lines, then ends the input. `prompts`: the prompts that were shown."""

    def __init__(self, *lines: str) -> None:
        self._lines = list(lines)
        self.prompts: list[str] = []

    def __call__(self, prompt: str) -> str | None:
        self.prompts.append(prompt)
        return self._lines.pop(0) if self._lines else None


def responder(
    approve: Approve | None, person: Person | None = None, **tools: Sequence[str]
) -> tuple[Responder, io.StringIO]:
    notes = io.StringIO()
    return Responder(approve, tools, person or Person(), Screen(io.StringIO(), notes)), notes


# --- what is asked ----------------------------------------------------------------------------------------------------


def test_a_question_names_calls_to_approve_and_calls_to_run_here() -> None:
    assert question_of(asks(SEARCH, DELETE, calls=[ECHO])) == Question((SEARCH, DELETE), (ECHO,))


def test_a_snapshot_of_a_waiting_task_has_the_same_question() -> None:
    waiting = {**task(), "status": asks(SEARCH)["statusUpdate"]["status"]}
    assert question_of({"task": waiting}) == Question((SEARCH,), ())


@pytest.mark.parametrize(
    "event", [status(WORKING), status(COMPLETED), status(INPUT_REQUIRED, "Which city?"), {"task": task()}]
)
def test_a_task_that_works_or_waits_for_text_has_an_empty_question(event: Json) -> None:
    assert question_of(event) == Question((), ())


@pytest.mark.parametrize("event", [{"artifactUpdate": {}}, {"message": {}}, {}, None, {"statusUpdate": "odd"}])
def test_events_without_a_status_have_no_question(event: Json) -> None:
    assert question_of(event) is None


def test_a_call_that_the_agent_runs_is_not_run_here() -> None:
    assert question_of(asks(calls=[ECHO], origin="gateway")) == Question((), ())
    assert question_of(asks(calls=[{"id": 1}, {}])) == Question((), ())


# --- approvals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("approve", "approved"), [("yes", True), ("no", False)])
def test_an_option_decides_all_calls_alike(approve: Approve, approved: bool) -> None:
    answering, _ = responder(approve)
    [part] = answering.answer(question_of(asks(SEARCH, DELETE))) or []
    assert part == {
        "data": {"approvals": [{"id": "call_1", "approved": approved}, {"id": "call_2", "approved": approved}]}
    }
    assert valid("approvals", part["data"])


def test_a_person_decides_one_by_one_and_may_say_why_not() -> None:
    person = Person("Y ", "", "no thanks ", "n")
    answering, _ = responder("ask", person)
    third = {**DELETE, "id": "call_9"}
    [part] = answering.answer(Question((SEARCH, DELETE, third), ())) or []
    assert part["data"]["approvals"] == [
        {"id": "call_1", "approved": True},
        {"id": "call_2", "approved": False, "reason": "no thanks"},
        {"id": "call_9", "approved": False},
    ]
    assert person.prompts[:3] == [
        'allow search {"q":"x"}? [y/N] ',
        "allow delete {}? [y/N] ",
        "why not? (nothing for no reason) ",
    ]
    assert valid("approvals", part["data"])


@pytest.mark.parametrize("line", ["", "n", "sure", "yes please", "Yess", "1", "true"])
def test_only_y_and_yes_are_a_yes(line: str) -> None:
    answering, _ = responder("ask", Person(line, ""))
    [part] = answering.answer(Question((SEARCH,), ())) or []
    assert part["data"]["approvals"] == [{"id": "call_1", "approved": False}]


def test_without_a_person_no_call_is_decided() -> None:
    answering, _ = responder("ask", Person("y"))
    assert answering.answer(Question((SEARCH, DELETE), ())) is None
    assert responder(None)[0].answer(Question((SEARCH,), ())) is None


def test_a_prompt_shows_no_control_characters() -> None:
    person = Person("n", "")
    answering, _ = responder("ask", person)
    answering.answer(Question(({"id": "c", "name": "a\x1b[2J\nb", "args": {"x": "\x1b[1A"}},), ()))
    assert person.prompts[0] == 'allow a\\x1b[2J b {"x":"\\u001b[1A"}? [y/N] '


def test_the_same_question_again_is_not_answered_again() -> None:
    answering, _ = responder("yes")
    assert answering.answer(Question((SEARCH,), ())) is not None
    assert answering.answer(Question((SEARCH,), ())) is None
    assert answering.answer(Question((SEARCH, DELETE), ())) is not None


@pytest.mark.parametrize("asked", [None, Question((), ())])
def test_without_a_question_there_is_no_answer(asked: Question | None) -> None:
    assert responder("yes")[0].answer(asked) is None


def test_a_decision_can_be_composed_for_a_later_command() -> None:
    assert decisions_on([SEARCH], approved=True) == {"approvals": [{"id": "call_1", "approved": True}]}


# --- tools of this machine --------------------------------------------------------------------------------------------


def result(code: str, **call: Json) -> tuple[Json, str]:
    answering, notes = responder(None, None, echo=[sys.executable, "-c", code])
    [part] = answering.answer(Question((), ({**ECHO, **call},))) or []
    assert part["metadata"] == {"adk_type": "function_response", "type": "function_response"}
    assert (part["data"]["id"], part["data"]["name"]) == ("call_3", call.get("name", "echo"))
    assert valid("clientResult", part)
    return part["data"]["response"], notes.getvalue()


@pytest.mark.parametrize(
    ("code", "response"),
    [
        ("import sys; print(sys.stdin.read())", {"result": {"a": 1}}),
        ("print('12 degrees')", {"result": "12 degrees"}),
        ("print('[1]')", {"result": [1]}),
        ("print('3')", {"result": "3"}),
        ("pass", {"result": ""}),
        ("import sys; sys.stdout.buffer.write(b'\\xff')", {"result": "\ufffd"}),
        ("import sys; sys.exit('no such city')", {"error": {"code": "failed", "message": "no such city"}}),
        ("import sys; sys.exit(3)", {"error": {"code": "failed", "message": "The tool ended with 3."}}),
    ],
)
def test_a_command_gets_its_arguments_and_its_output_is_the_result(code: str, response: Json) -> None:
    assert result(code)[0] == response


def test_a_missing_command_is_an_error_for_the_agent_and_a_line_for_the_user() -> None:
    answering, notes = responder(None, None, echo=["/no/such/program"])
    [part] = answering.answer(Question((), (ECHO,))) or []
    assert part["data"]["response"] == {"error": {"code": "failed", "message": "The tool could not be run."}}
    assert notes.getvalue().splitlines()[-1] == "tool: echo cannot be run: No such file or directory"


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        ("import sys; sys.stdout.buffer.write(b'a\\0b\\xff')", "a\ufffdb\ufffd"),
        (r"""print('{"a\\u0000": ["\\ud800", 1, "\\ud83d\\ude00"]}')""", {"a\ufffd": ["\ufffd", 1, "\U0001f600"]}),
    ],
)
def test_characters_that_a_message_cannot_hold_are_replaced(program: str, expected: Json) -> None:
    assert result(program)[0] == {"result": expected}


def test_only_named_commands_run() -> None:
    response, notes = result("raise SystemExit('must not run')", name="rm")
    assert response == {"error": {"code": "failed", "message": "There is no tool 'rm' here."}}
    assert notes == ""


def test_without_tools_calls_are_not_answered() -> None:
    assert responder("yes")[0].answer(Question((), (ECHO,))) is None


def test_decisions_and_results_go_together() -> None:
    answering, _ = responder("yes", None, echo=CAT)
    decisions, output = answering.answer(Question((SEARCH,), (ECHO,))) or []
    assert decisions["data"]["approvals"] == [{"id": "call_1", "approved": True}]
    assert output["data"]["response"] == {"result": {"a": 1}}


def test_tools_are_read_from_what_was_typed() -> None:
    assert read_tools(["clock=date -u", "my-tool_2=sh -c 'echo \"$0\"' x=y"]) == {
        "clock": ["date", "-u"],
        "my-tool_2": ["sh", "-c", 'echo "$0"', "x=y"],
    }


@pytest.mark.parametrize(
    "tool", ["clock", "clock=", "=date", "a b=date", "c" * 65 + "=date", "\u00e9=date", "clock='date"]
)
def test_a_malformed_tool_is_refused(tool: str) -> None:
    with pytest.raises(Stop, match="--tool") as refused:
        read_tools([tool])
    assert refused.value.code == 2


def test_a_tool_is_named_once() -> None:
    with pytest.raises(Stop, match="--tool 'a' is given twice"):
        read_tools(["a=x", "a=y"])


def test_a_message_declares_the_tools_and_not_the_command_lines() -> None:
    message = with_tools({"parts": [], "metadata": {"k": 1}}, {"clock": ["/usr/bin/date", "--secret"]})
    assert message["metadata"] == {
        "k": 1,
        URI: {"tools": [{"name": "clock", "description": "Runs date on the user's machine."}]},
    }
    assert valid("tools", message["metadata"][URI])
    assert "secret" not in json.dumps(message)
    assert with_tools({"parts": []}, {}) == {"parts": []}


# --- what is done elsewhere


CONSENT = status("TASK_STATE_AUTH_REQUIRED", "Open https://login.example/.")


def test_a_task_that_needs_consent_asks_whether_it_was_given() -> None:
    asked = question_of(CONSENT)
    assert asked == Question((), (), consent=True)
    answering, _ = responder("ask", person := Person("", "I could not", "\ud800"))
    assert answering.answer(asked) == [{"text": "That is done. Please go on."}]
    assert answering.answer(asked) == [{"text": "I could not"}]
    assert answering.answer(asked) == [{"text": "\ufffd"}]
    assert answering.answer(asked) is None
    assert person.prompts == ["press Enter when that is done, or type a message: "] * 4


@pytest.mark.parametrize("approve", [None, "yes", "no"])
def test_no_option_says_that_consent_was_given(approve: Approve | None) -> None:
    answering, _ = responder(approve, person := Person("y"))
    assert answering.answer(question_of(CONSENT)) is None
    assert person.prompts == []
