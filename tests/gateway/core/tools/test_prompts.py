"""The prompt of a waiting turn: text for people, parts for programs."""

from dataclasses import replace

import msgspec

from gateway.a2a.model import Message, Role
from gateway.a2a.tool_calls import URI, CallFacts
from gateway.core.tools.answers import confirmation_of
from gateway.core.tools.prompts import identities_of, prompt
from gateway.core.tools.tool_call import ToolCall
from gateway.ledger.states import ToolCallStatus

WHEN = "2026-11-21T10:00:00.000Z"


def call(name: str, status: str, executor: str = "gateway", server: str | None = None, **inputs: object) -> ToolCall:
    facts = CallFacts(f"call_{name}", name, 0, 0, executor, server, WHEN)
    return ToolCall(facts, name, arguments="{}", status=ToolCallStatus(status), executor=executor, inputs=dict(inputs))


PAY = call("pay", "pending_approval", server="mcp:bank", sum=3)
MAIL = call("mail", "pending_approval")
CAMERA = call("camera", "announced", "client")


def test_one_call_is_asked_about_in_one_sentence() -> None:
    parts, metadata = prompt([PAY], "r1", WHEN)
    assert [part.text for part in parts[:1]] == ['May the tool pay (mcp:bank) with {"sum":3} be used?']
    tools = [{"id": "call_pay", "name": "pay", "args": {"sum": 3}}]
    approval = {"requestId": "r1", "tools": tools, "expiresAt": WHEN}
    assert metadata == {URI: {"waitsFor": ["call_pay"], "expiresAt": WHEN, "approval": approval}}


def test_several_calls_are_listed_and_each_has_its_own_part() -> None:
    parts, _ = prompt([PAY, MAIL], "r1", WHEN)
    assert parts[0].text == 'May these tools be used?\n- pay (mcp:bank) with {"sum":3}\n- mail with {}'
    ids = [part.data["id"] for part in parts[1:] if isinstance(part.data, dict)]
    assert ids == [confirmation_of("call_pay"), confirmation_of("call_mail")]


def test_what_the_client_runs_is_a_call_to_it_and_no_question_of_approval() -> None:
    parts, metadata = prompt([CAMERA], "r1", WHEN)
    assert parts[0].text == "Waiting for the result of camera."
    assert parts[1].data == {"id": "call_camera", "name": "camera", "args": {}}
    assert parts[1].metadata is not None
    assert parts[1].metadata["adk_type"] == "function_call"
    assert parts[1].metadata["adk_is_long_running"] is True
    assert metadata == {URI: {"waitsFor": ["call_camera"], "expiresAt": WHEN}}


def test_long_arguments_are_cut_in_words_and_whole_in_the_part() -> None:
    parts, _ = prompt([call("pay", "pending_approval", text="x" * 1000)], "r1", WHEN)
    assert len(parts[0].text or "") < 400
    assert isinstance(parts[1].data, dict)
    assert parts[1].data["args"]["originalFunctionCall"]["args"] == {"text": "x" * 1000}


def test_a_tool_of_the_gateway_is_named_as_a_rule_names_it_and_another_with_its_server() -> None:
    ours = replace(PAY, identity="bank.pay")
    theirs = replace(call("pay", "pending_approval", "backend", "mcp:bank"), question=True)
    parts, metadata = prompt([ours, theirs], "r1", WHEN)
    assert parts[0].text == 'May these tools be used?\n- bank.pay with {"sum":3}\n- pay (mcp:bank) with {}'
    message = Message(message_id="m", role=Role.AGENT, parts=parts, metadata=metadata)
    assert identities_of(message) == {"call_pay": "bank.pay"}
    assert (identities_of(None), identities_of(msgspec.structs.replace(message, metadata={}))) == ({}, {})


def test_the_name_that_a_source_gives_its_tool_stays_in_the_line() -> None:
    parts, _ = prompt([replace(PAY, identity="bank.a be used?\nMay b\x1b[2J")], "r1", WHEN)
    assert parts[0].text == 'May the tool bank.a be used? May b [2J with {"sum":3} be used?'
