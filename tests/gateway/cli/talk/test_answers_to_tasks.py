"""`stream` and `chat` with a task that waits for an approval or a tool of this machine, against a scripted agent."""

import json
import sys
from typing import Any

import pytest

from gateway.a2a.tool_calls import URI
from tests.gateway.cli.conftest import CommandLine, Typing
from tests.gateway.cli.pseudo_terminal import terminal
from tests.gateway.cli.scripted_agent import (
    COMPLETED,
    INPUT_REQUIRED,
    WORKING,
    Events,
    Result,
    ScriptedAgent,
    says,
    status,
    task,
)
from tests.gateway.cli.talk.test_answers import DELETE, ECHO, SEARCH, asks

Json = Any

ECHO_TOOL = f"echo={sys.executable} -c 'import sys; print(sys.stdin.read())'"


def stream(*events: Json, first: int = 0) -> Events:
    """The Task, then these events."""
    return Events([*enumerate([{"task": task()}, *events], first)])


ASKS = stream(status(WORKING, "thinking"), asks(SEARCH))
DONE = stream(says("Done."), status(COMPLETED), first=3)


def messages(agent: ScriptedAgent) -> list[Json]:
    return [asked.body["message"] for asked in agent.asked if "message" in (asked.body or {})]


# --- stream -----------------------------------------------------------------------------------------------------------


async def test_the_extension_is_asked_for_unless_another_was_named(command_line: CommandLine) -> None:
    async with ScriptedAgent(DONE, DONE).running() as agent:
        await command_line("stream", "Hi", "-u", agent.url)
        await command_line("stream", "Hi", "-u", agent.url, "--header", "a2a-extensions: x")
    assert [asked.headers["a2a-extensions"] for asked in agent.asked] == [URI, "x"]


@pytest.mark.parametrize(("approve", "approved"), [("yes", True), ("no", False)])
async def test_an_option_answers_on_the_same_task(command_line: CommandLine, approve: str, approved: bool) -> None:
    async with ScriptedAgent(ASKS, DONE).running() as agent:
        ended = await command_line("stream", "Hi", "-u", agent.url, "--approve", approve, "--idempotency-key", "k")
    assert (ended.code, ended.out) == (0, "May these tools be used?\nDone.\n")
    first, second = messages(agent)
    assert "taskId" not in first
    assert (second["taskId"], second["contextId"]) == ("t-1", "c-1")
    assert second["parts"] == [{"data": {"approvals": [{"id": "call_1", "approved": approved}]}}]
    assert [asked.headers.get("idempotency-key") for asked in agent.asked] == ["k", None]


async def test_each_typed_line_answers_one_call(typing: Typing) -> None:
    async with ScriptedAgent(stream(asks(SEARCH, DELETE)), DONE).running() as agent:
        ended = await typing("y\nn\nnot today\n", "stream", "Hi", "-u", agent.url, "--approve", "ask")
    assert ended.code == 0
    [part] = messages(agent)[1]["parts"]
    assert part["data"]["approvals"] == [
        {"id": "call_1", "approved": True},
        {"id": "call_2", "approved": False, "reason": "not today"},
    ]


async def test_without_an_answer_the_task_waits_and_the_approving_command_is_printed(typing: Typing) -> None:
    async with ScriptedAgent(ASKS).running() as agent:
        ended = await typing("", "stream", "Hi", "-u", agent.url)
    assert (ended.code, ended.out) == (13, "May these tools be used?\n")
    data = '{"approvals":[{"id":"call_1","approved":true}]}'
    assert ended.err.splitlines()[-1] == f"next: a2a-gateway stream -u {agent.url} --task t-1 --data '{data}' ''"
    assert agent.operations == ["SendStreamingMessage"]


async def test_the_printed_command_approves_the_call(command_line: CommandLine) -> None:
    data = '{"approvals":[{"id":"call_1","approved":true}]}'
    async with ScriptedAgent(Result(task(INPUT_REQUIRED)), DONE).running() as agent:
        ended = await command_line("stream", "-u", agent.url, "--task", "t-1", "--data", data, "")
    assert (ended.code, ended.out) == (0, "Done.\n")
    assert messages(agent)[0]["parts"] == [{"data": json.loads(data)}]


async def test_an_agent_that_repeats_a_question_is_not_answered_endlessly(command_line: CommandLine) -> None:
    async with ScriptedAgent(ASKS, ASKS).running() as agent:
        assert (await command_line("stream", "Hi", "-u", agent.url, "--approve", "yes")).code == 13
    assert len(messages(agent)) == 2


async def test_a_tool_of_this_machine_is_declared_and_run_when_asked_for(command_line: CommandLine) -> None:
    async with ScriptedAgent(stream(asks(calls=[ECHO])), DONE).running() as agent:
        ended = await command_line("stream", "Hi", "-u", agent.url, "--tool", ECHO_TOOL)
    assert (ended.code, ended.out.splitlines()[-1]) == (0, "Done.")
    first, second = messages(agent)
    assert [tool["name"] for tool in first["metadata"][URI]["tools"]] == ["echo"]
    assert second["metadata"] == first["metadata"]
    assert second["taskId"] == "t-1"
    assert [part["data"] for part in second["parts"]] == [
        {"id": "call_3", "name": "echo", "response": {"result": {"a": 1}}}
    ]


async def test_several_questions_of_one_task_are_answered_in_turn(command_line: CommandLine) -> None:
    async with ScriptedAgent(ASKS, stream(asks(DELETE, calls=[ECHO])), DONE).running() as agent:
        arguments = ("--approve", "yes", "--tool", ECHO_TOOL, "-o", "jsonl")
        ended = await command_line("stream", "Hi", "-u", agent.url, *arguments)
    assert ended.code == 0
    assert [len(message["parts"]) for message in messages(agent)] == [1, 1, 2]


async def test_the_result_is_one_document_however_often_the_task_has_asked(command_line: CommandLine) -> None:
    whole = task(COMPLETED, "Done.")
    async with ScriptedAgent(ASKS, stream(asks(DELETE)), DONE, Result(whole)).running() as agent:
        ended = await command_line("stream", "Hi", "-u", agent.url, "--approve", "yes", "-o", "json")
    assert (ended.code, json.loads(ended.out)) == (0, {"task": whole})


async def test_send_asks_nothing(command_line: CommandLine) -> None:
    waiting = {**task(INPUT_REQUIRED), "status": asks(SEARCH)["statusUpdate"]["status"]}
    async with ScriptedAgent(Result({"task": waiting})).running() as agent:
        ended = await command_line("send", "Hi", "-u", agent.url)
    assert ended.code == 13
    assert '--data \'{"approvals"' in ended.err


async def test_a_malformed_tool_is_reported_before_anything_is_sent(command_line: CommandLine) -> None:
    ended = await command_line("stream", "Hi", "-u", "http://127.0.0.1:1", "--tool", "clock")
    assert (ended.code, ended.err) == (2, "--tool must look like 'clock=date -u', not 'clock'\n")


async def test_on_a_terminal_a_person_is_asked() -> None:
    async with ScriptedAgent(ASKS, DONE).running() as agent, terminal("stream", "Hi", "-u", agent.url) as screen:
        await screen.until('allow search {"q":"x"}? [y/N] ')
        screen.type("y\n")
        await screen.until("Done.")
        assert await screen.ended() == 0
    assert messages(agent)[1]["parts"] == [{"data": {"approvals": [{"id": "call_1", "approved": True}]}}]


async def test_leaving_at_the_prompt_prints_how_to_find_the_task() -> None:
    async with ScriptedAgent(ASKS).running() as agent, terminal("stream", "Hi", "-u", agent.url) as screen:
        await screen.until("[y/N] ")
        await screen.interrupt(lambda: screen.until("The task t-1 waits for an answer.\nanswer: "))
        assert await screen.ended() == 130
    assert len(messages(agent)) == 1


# --- chat -------------------------------------------------------------------------------------------------------------


async def test_in_a_chat_the_next_line_is_the_decision_and_the_line_after_it_a_message(typing: Typing) -> None:
    async with ScriptedAgent(ASKS, DONE, DONE).running() as agent:
        ended = await typing("Hi\ny\nthanks\n", "chat", agent.url)
    assert (ended.code, ended.out) == (0, "May these tools be used?\nDone.\nDone.\n")
    first, second, third = messages(agent)
    assert second["parts"] == [{"data": {"approvals": [{"id": "call_1", "approved": True}]}}]
    assert [message.get("taskId") for message in (first, second, third)] == [None, "t-1", None]
    assert "input required" not in ended.err


async def test_in_a_chat_a_command_leaves_the_question_open(typing: Typing) -> None:
    async with ScriptedAgent(ASKS, DONE).running() as agent:
        ended = await typing("Hi\n/new\nagain\n", "chat", agent.url)
    assert [line for line in ended.err.splitlines() if line.startswith("(")] == [
        "(input required: /answer asks again; a message withdraws the call)",
        "(a new conversation)",
    ]
    first, second = messages(agent)
    assert [part["text"] for part in (*first["parts"], *second["parts"])] == ["Hi", "again"]
    assert "taskId" not in second


async def test_in_a_chat_tools_of_this_machine_run(typing: Typing) -> None:
    async with ScriptedAgent(stream(asks(calls=[ECHO])), DONE).running() as agent:
        ended = await typing("Hi\n", "chat", agent.url, "--tool", ECHO_TOOL)
    assert ended.out.splitlines()[-1] == "Done."
    assert messages(agent)[1]["parts"][0]["data"]["response"] == {"result": {"a": 1}}
    assert all("tools" in message["metadata"][URI] for message in messages(agent))


async def test_a_chat_without_the_tool_says_that_the_task_waits(typing: Typing) -> None:
    async with ScriptedAgent(stream(asks(calls=[ECHO]))).running() as agent:
        ended = await typing("Hi\n", "chat", agent.url)
    expected = (
        "(input required: with --tool echo=COMMAND this chat can run what is asked for; a message withdraws the call)"
    )
    assert expected in ended.err.splitlines()
    assert len(messages(agent)) == 1
