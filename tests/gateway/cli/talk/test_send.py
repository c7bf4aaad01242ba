"""`send` and `stream` against a scripted agent."""

import asyncio
import json
import shlex
import signal
import sys
from asyncio.subprocess import PIPE
from typing import Any

import pytest

from tests.gateway.cli.conftest import CommandLine
from tests.gateway.cli.scripted_agent import (
    COMPLETED,
    FAILED,
    INPUT_REQUIRED,
    WORKING,
    Events,
    Plain,
    Result,
    ScriptedAgent,
    rpc_error,
    says,
    status,
    task,
)

Json = Any

TOOL = {"data": {"id": "call_1", "name": "lookup", "args": {}}, "metadata": {"adk_type": "function_call"}}
STORY = (
    (0, {"task": task()}),
    (1, status(WORKING, None, TOOL)),
    (2, says("Hel", append=False)),
    (3, says("lo\x1b")),
    (4, status(COMPLETED)),
)
REPLY = {"message": {"messageId": "m-2", "role": "ROLE_AGENT", "contextId": "c-9", "parts": [{"text": "Hi!"}]}}
BOUND = 60.0


# --- stream -----------------------------------------------------------------------------------------------------------


async def test_stream_shows_the_answer_and_beside_it_the_rest(command_line: CommandLine) -> None:
    async with ScriptedAgent(Events(STORY)).running() as agent:
        ended = await command_line("stream", "Hello", "-u", agent.url)
        assert (ended.code, ended.out) == (0, "Hello\\x1b\n")
        assert ended.err.splitlines() == [
            "tool: lookup {}",
            "context c-1  task t-1  completed",
            f"next: a2a-gateway stream -u {agent.url} --context c-1 'your next message'",
        ]


async def test_the_message_carries_what_was_typed(command_line: CommandLine) -> None:
    async with ScriptedAgent(Result(task(INPUT_REQUIRED)), Events(STORY)).running() as agent:
        typed = "--context c-1 --task t-1 --data [1] --header X-Key:k --idempotency-key i"
        assert (await command_line("stream", "Hello", "-u", agent.url, *typed.split())).code == 0
    assert agent.operations == ["GetTask", "SendStreamingMessage"]
    asked = agent.asked[1]
    message = asked.body["message"]
    assert (message["contextId"], message["taskId"]) == ("c-1", "t-1")
    assert message["parts"] == [{"text": "Hello"}, {"data": [1]}]
    assert (asked.headers["x-key"], asked.headers["idempotency-key"]) == ("k", "i")


@pytest.mark.parametrize("command", ["send", "stream"])
@pytest.mark.parametrize("verbose", [True, False])
async def test_the_tokens_of_an_answer_are_shown_where_that_is_asked_for(
    command_line: CommandLine, command: str, verbose: bool
) -> None:
    usage = {"usage": {"turn": {"inputTokens": 12, "outputTokens": 3, "totalTokens": 15}, "task": {}}}
    last = status(COMPLETED)
    last["statusUpdate"]["metadata"] = usage
    whole = Result({"task": task(COMPLETED, "Hello") | {"metadata": usage}})
    async with ScriptedAgent(whole if command == "send" else Events([*STORY[:-1], (4, last)])).running() as agent:
        ended = await command_line(command, "Hello", "-u", agent.url, *(["-v"] if verbose else []))
    assert ended.code == 0
    assert ("tokens: 12 in, 3 out" in ended.err.splitlines()) is verbose


async def test_a_cut_stream_is_shown_whole(command_line: CommandLine) -> None:
    cut = Events([*STORY[:3]], cut=True)
    rest = Events([(None, {"task": task(WORKING, "Hel")}), *STORY[2:]])
    async with ScriptedAgent(cut, rest).running() as agent:
        ended = await command_line("stream", "Hello", "-u", agent.url)
    assert (ended.code, ended.out) == (0, "Hello\\x1b\n")
    assert agent.asked[1].headers["last-event-id"] == "2"


async def test_every_event_may_be_a_line_of_json(command_line: CommandLine) -> None:
    async with ScriptedAgent(Events(STORY)).running() as agent:
        ended = await command_line("stream", "Hello", "-u", agent.url, "-o", "jsonl")
    assert ([json.loads(line) for line in ended.out.splitlines()], ended.err) == ([event for _, event in STORY], "")
    assert "\x1b" not in ended.out


async def test_the_result_of_a_stream_may_be_json(command_line: CommandLine) -> None:
    whole = task(COMPLETED, "Hello")
    async with ScriptedAgent(Events(STORY), Result(whole)).running() as agent:
        ended = await command_line("stream", "Hello", "-u", agent.url, "-o", "json")
    assert (json.loads(ended.out), ended.err) == ({"task": whole}, "")
    async with ScriptedAgent(Events([(None, REPLY)])).running() as agent:
        assert json.loads((await command_line("stream", "Hello", "-u", agent.url, "-o", "json")).out) == REPLY


async def test_stream_refuses_an_agent_that_does_not_stream(command_line: CommandLine) -> None:
    async with ScriptedAgent(card={"capabilities": {}}).running() as agent:
        ended = await command_line("stream", "Hello", "-u", agent.url)
    expected = "this agent does not stream, as its card says; use send instead of stream\n"
    assert (ended.code, ended.err) == (2, expected)


# --- send -------------------------------------------------------------------------------------------------------------


async def test_send_waits_for_the_end_and_shows_the_answer(command_line: CommandLine) -> None:
    answers = (Result({"task": task()}), Events(STORY), Result(task(COMPLETED, "Hello")))
    async with ScriptedAgent(*answers).running() as agent:
        ended = await command_line("send", "Hello", "-u", agent.url)
        assert (ended.code, ended.out) == (0, "Hello\n")
        assert ended.err.splitlines() == [
            "context c-1  task t-1  completed",
            f"next: a2a-gateway send -u {agent.url} --context c-1 'your next message'",
        ]
    assert agent.operations == ["SendMessage", "SubscribeToTask", "GetTask"]
    assert agent.asked[0].body["configuration"] == {"returnImmediately": True}


async def test_a_follow_up_shows_what_is_new_in_its_task_and_waits_for_the_answer_itself(
    command_line: CommandLine,
) -> None:
    answers = (Result(task(INPUT_REQUIRED, "Hello. ")), Result({"task": task(COMPLETED, "Hello. ", "Paris!")}))
    async with ScriptedAgent(*answers).running() as agent:
        assert (await command_line("send", "Paris", "--task", "t-1", "-u", agent.url)).out == "Paris!\n"
    assert agent.operations == ["GetTask", "SendMessage"]
    assert set(agent.asked[1].body) == {"message"}


@pytest.mark.parametrize("output", ["json", "jsonl"])
async def test_the_result_of_send_may_be_json(output: str, command_line: CommandLine) -> None:
    async with ScriptedAgent(Result(REPLY)).running() as agent:
        ended = await command_line("send", "Hello", "-u", agent.url, "-o", output)
    assert (json.loads(ended.out), ended.err, ended.code) == (REPLY, "", 0)
    assert (len(ended.out.splitlines()) == 1) is (output == "jsonl")


async def test_a_bare_message_is_an_answer(command_line: CommandLine) -> None:
    async with ScriptedAgent(Result(REPLY)).running() as agent:
        ended = await command_line("send", "Hello", "-u", agent.url)
    assert (ended.code, ended.out, ended.err.splitlines()[0]) == (0, "Hi!\n", "context c-9")


async def test_the_other_binding_can_be_asked_for(command_line: CommandLine) -> None:
    answers = (Result({"task": task(COMPLETED, "Hello")}),)
    async with ScriptedAgent(*answers, binding="HTTP+JSON").running() as agent:
        ended = await command_line("send", "Hello", "-u", agent.url, "--binding", "rest")
        assert f"-u {agent.url} --binding rest --context c-1" in ended.err
    assert agent.operations == ["POST /rpc/message:send"]


# --- how it ends ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "code", "out", "word"),
    [
        (COMPLETED, 0, "So.\n", "completed"),
        (FAILED, 10, "", "failed: So."),
        ("TASK_STATE_CANCELED", 11, "", "canceled: So."),
        ("TASK_STATE_REJECTED", 12, "", "rejected: So."),
        (INPUT_REQUIRED, 13, "So.\n", "input required"),
        ("TASK_STATE_AUTH_REQUIRED", 14, "So.\n", "auth required"),
    ],
)
@pytest.mark.parametrize("command", ["send", "stream"])
async def test_the_state_of_the_task_is_the_exit_code(
    command: str, state: str, code: int, out: str, word: str, command_line: CommandLine
) -> None:
    story = Events([(0, {"task": task()}), (1, status(state, "So."))])
    answer = story if command == "stream" else Result({"task": task(state, said="So.")})
    async with ScriptedAgent(answer).running() as agent:
        ended = await command_line(command, "Hello", "-u", agent.url)
    assert (ended.code, ended.out) == (code, out)
    assert word in ended.err
    assert ("--task t-1" in ended.err) is (code in (13, 14))


@pytest.mark.parametrize(
    ("answer", "code", "words"),
    [
        (Plain(rpc_error(-32600, "who are you?"), 401), 77, "not authorised: who are you?"),
        (Plain(rpc_error(-32603, "shutting down"), 503, {"Retry-After": "3"}), 75, "shutting down\nTry again in 3 s."),
        (Plain("", 429), 75, "Try again later."),
        (Plain("", 502), 69, "answered HTTP 502 Bad Gateway"),
        (Plain(rpc_error(-32004, "Task \x1b[1mnot found")), 1, "the agent refused: Task \\x1b[1mnot found"),
        (Plain("<html>"), 69, "does not answer as A2A 1.0 does"),
    ],
)
async def test_an_error_before_the_task_began_names_no_task(
    answer: Plain, code: int, words: str, command_line: CommandLine
) -> None:
    async with ScriptedAgent(answer).running() as agent:
        ended = await command_line("send", "Hello", "--task", "t-1", "-u", agent.url)
    assert (ended.code, ended.out) == (code, "")
    assert words in ended.err
    assert "goes on" not in ended.err


async def test_an_unreachable_address_from_a_card_names_the_card(command_line: CommandLine) -> None:
    interface = {"url": "http://127.0.0.1:1/a2a", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
    async with ScriptedAgent(card={"supportedInterfaces": [interface]}).running() as agent:
        ended = await command_line("send", "Hello", "-u", agent.url)
        card = f"{agent.url}/.well-known/agent-card.json"
        assert (ended.code, ended.err.splitlines()[0]) == (
            69,
            f"http://127.0.0.1:1/a2a cannot be reached: connection refused (the card at {card} names this address)",
        )


async def test_an_error_in_mid_task_prints_how_to_find_the_task(command_line: CommandLine) -> None:
    cut, refusal = Events([*STORY[:3]], cut=True), Plain(rpc_error(-32600, "not you"), 401)
    async with ScriptedAgent(cut, refusal).running() as agent:
        ended = await command_line("stream", "Hello", "-u", agent.url, "--header", "Authorization: Bearer s3cret")
    assert (ended.code, ended.out) == (77, "Hel\n")
    assert "The task t-1 goes on.\nfollow: a2a-gateway tasks watch " in ended.err
    assert "Authorization: ..." in ended.err
    assert "s3cret" not in ended.err


async def test_a_timeout_prints_safe_commands_whatever_the_id_of_the_task(
    command_line: CommandLine,
) -> None:
    evil = {"task": {**task(), "id": "-x'; rm -rf ~;\x1b"}}
    item = {"url": "http://127.0.0.1:1/", "protocolBinding": "HTTP+JSON", "protocolVersion": "1.0", "tenant": "blue"}
    card = {"capabilities": {}, "supportedInterfaces": [item]}
    async with ScriptedAgent(
        Result(evil), *[Result(evil["task"])] * 9, card=card, binding="HTTP+JSON"
    ).running() as agent:
        card["supportedInterfaces"] = [{**item, "url": f"{agent.url}/v1"}]
        ended = await command_line("send", "Hello", "-u", agent.url, "--timeout", "4")
        assert (ended.code, ended.out, ended.err.splitlines()[0]) == (15, "", "no end within 4 s")
        follow, cancel = (line.partition(": ")[2] for line in ended.err.splitlines()[2:])
        there = ["-u", agent.url, "--", "-x'; rm -rf ~;\\x1b"]
        assert shlex.split(follow) == ["a2a-gateway", "tasks", "watch", *there]
        assert shlex.split(cancel) == ["a2a-gateway", "tasks", "cancel", *there]


async def test_a_stream_that_ends_before_there_is_a_task_says_so(command_line: CommandLine) -> None:
    async with ScriptedAgent(Events([])).running() as agent:
        ended = await command_line("stream", "Hello", "-u", agent.url)
    assert (ended.code, ended.err) == (75, "the stream ended before the task did\n")


async def test_ctrl_c_leaves_the_task_running_and_prints_how_to_follow_and_cancel_it() -> None:
    answers = (Result({"task": task()}), *[Result(task())] * 1000)
    async with ScriptedAgent(*answers, card={"capabilities": {}}).running() as agent:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "gateway", "send", "Hello", "-u", agent.url, stdout=PIPE, stderr=PIPE
        )
        async with asyncio.timeout(BOUND):
            await agent.until_asked("GetTask")
            process.send_signal(signal.SIGINT)
            out, err = await process.communicate()
    assert (process.returncode, out) == (130, b"")
    lines = err.decode().splitlines()
    assert lines[:2] == ["interrupted", "The task t-1 goes on."]
    assert lines[2].endswith(f" tasks watch -u {agent.url} t-1")
    assert lines[3].endswith(f" tasks cancel -u {agent.url} t-1")
    assert "CancelTask" not in agent.operations
