"""Turns with tools on both emulators, with the vendor's client: pairs of calls and outputs are accepted, others refused."""

import json
from collections.abc import Iterable
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI

from tests.emulators.chat import ChatServer
from tests.emulators.conftest import Connect, error_of
from tests.emulators.responses_server import ResponsesServer
from tests.emulators.scripts import Ask, Call, Conversation, Say, ServerTool, Step, in_rounds

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
OFFERED: Any = {"type": "function", "name": "weather", "description": "", "parameters": SCHEMA, "strict": False}
CHAT_OFFERED: Any = {"type": "function", "function": {"name": "weather", "parameters": SCHEMA}}


def report(conversation: Conversation) -> Iterable[Step]:
    return [Say(f"{conversation.round}: {', '.join(conversation.tool_outputs.values())}")]


THREE_CALLS = in_rounds(
    [Call("weather", {"city": "Oslo"}, "c1"), Call("weather", {"city": "Rome"}, "c2")],
    [Say("One more."), Call("weather", {"city": "Bonn"}, "c3")],
    report,
)


def city(arguments: str) -> str:
    return f"{json.loads(arguments)['city']} 3C"


async def test_a_chain_of_rounds_on_responses(connect: Connect) -> None:
    server = ResponsesServer(THREE_CALLS)
    client = await connect(server)
    response = await client.responses.create(model="m", input="weather?", tools=[OFFERED])
    rounds = []
    while calls := [item for item in response.output if item.type == "function_call"]:
        rounds.append([call.call_id for call in calls])
        outputs: Any = [
            {"type": "function_call_output", "call_id": call.call_id, "output": city(call.arguments)} for call in calls
        ]
        response = await client.responses.create(model="m", input=outputs, previous_response_id=response.id)
    assert rounds == [["c1", "c2"], ["c3"]]
    assert response.output_text == "2: Oslo 3C, Rome 3C, Bonn 3C"


async def test_rounds_on_chat_completions(connect: Connect) -> None:
    server = ChatServer(THREE_CALLS)
    client = await connect(server)
    messages: list[Any] = [{"role": "user", "content": "weather?"}]
    rounds = []
    while True:
        completion = await client.chat.completions.create(model="m", messages=messages, tools=[CHAT_OFFERED])
        reply = completion.choices[0].message
        if not reply.tool_calls:
            break
        rounds.append([call.id for call in reply.tool_calls])
        messages.append(reply.model_dump(exclude_none=True, exclude={"annotations"}))
        messages += [
            {"role": "tool", "tool_call_id": call.id, "content": city(call.function.arguments)}
            for call in reply.tool_calls
            if call.type == "function"
        ]
    assert rounds == [["c1", "c2"], ["c3"]]
    assert reply.content == "2: Oslo 3C, Rome 3C, Bonn 3C"
    again = await client.chat.completions.create(model="m", messages=[*messages, {"role": "user", "content": "again"}])
    assert [call.id for call in again.choices[0].message.tool_calls or ()] == ["c1", "c2"]


# --- questions for approval -------------------------------------------------------------------------------------------


def pay(conversation: Conversation) -> Iterable[Step]:
    for question, approved in conversation.decisions.items():
        if approved:
            yield ServerTool("mcp", "pay", {"to": question}, "paid", question=question)
    yield Say(str(conversation.decisions))


def answer(question: str, **fields: Any) -> Any:
    return {"type": "mcp_approval_response", "approval_request_id": question, **fields}


@pytest.fixture
async def asked(connect: Connect) -> tuple[AsyncOpenAI, str]:
    """Two questions are open on the response of this id."""
    client = await connect(
        ResponsesServer(in_rounds([Ask("pay", {"to": "a"}, "mcpr_1"), Ask("pay", {}, "mcpr_2")], pay))
    )
    response = await client.responses.create(model="m", input="pay")
    kinds = [(item.type, item.id) for item in response.output]
    assert kinds[1:] == [("mcp_approval_request", "mcpr_1"), ("mcp_approval_request", "mcpr_2")]
    assert kinds[0][0] == "mcp_list_tools"
    return client, response.id


async def test_what_was_approved_runs(asked: tuple[AsyncOpenAI, str]) -> None:
    client, handle = asked
    answers = [answer("mcpr_1", approve=True), answer("mcpr_2", approve=False, reason="too much")]
    response = await client.responses.create(model="m", input=answers, previous_response_id=handle)
    [call] = [item for item in response.output if item.type == "mcp_call"]
    assert (call.approval_request_id, call.output) == ("mcpr_1", "paid")
    assert response.output_text == "{'mcpr_1': True, 'mcpr_2': False}"


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ("never mind", "The following MCP approval requests do not have an approval: mcpr_1, mcpr_2"),
        ([answer("mcpr_1", approve=True)], "The following MCP approval requests do not have an approval: mcpr_2"),
        ([answer("mcpr_3", approve=True)], "Approval request with id 'mcpr_3' not found."),
    ],
)
async def test_a_question_without_an_answer_and_an_answer_without_a_question_are_refused(
    asked: tuple[AsyncOpenAI, str], given: Any, problem: str
) -> None:
    client, handle = asked
    with pytest.raises(openai.BadRequestError) as refusal:
        await client.responses.create(model="m", input=given, previous_response_id=handle)
    assert error_of(refusal)["message"] == problem


# --- refusals of Chat Completions -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"tools": []}, "Invalid 'tools': empty array."),
        ({"tool_choice": "none"}, "'tool_choice' is only allowed when 'tools' are specified."),
        ({"parallel_tool_calls": False}, "'parallel_tool_calls' is only allowed when 'tools' are specified."),
    ],
)
async def test_words_about_tools_without_any_are_refused(connect: Connect, fields: Any, problem: str) -> None:
    client = await connect(ChatServer(in_rounds([Say("Hello")])))
    with pytest.raises(openai.BadRequestError) as refusal:
        await client.chat.completions.create(model="m", messages=[{"role": "user", "content": "hi"}], **fields)
    assert problem in error_of(refusal)["message"]


async def test_an_output_must_name_a_call_of_the_message_before_it(connect: Connect) -> None:
    client = await connect(ChatServer(in_rounds([Say("Hello")])))
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    messages: Any = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c2", "content": ""},
    ]
    with pytest.raises(openai.BadRequestError, match="'tool_call_id' of 'c2' not found"):
        await client.chat.completions.create(model="m", messages=messages)
