"""`chat` in a pipe against a scripted agent, and on a terminal against a gateway."""

import asyncio
import json
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from gateway.foundation import tasks
from tests.gateway.cli.conftest import CommandLine, Ended
from tests.gateway.cli.pseudo_terminal import terminal
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
from tests.running import local_gateway

Json = Any
Chat = Callable[..., Awaitable[Ended]]

TOOL = {"data": {"id": "call_1", "name": "lookup", "args": {}}, "metadata": {"adk_type": "function_call"}}
HELLO = Events(((0, {"task": task()}), (1, status(WORKING, None, TOOL)), (2, says("Hello")), (3, status(COMPLETED))))
ASKS = Events(((0, {"task": task()}), (1, status(INPUT_REQUIRED, "Which city?"))))
CANCELED = "TASK_STATE_CANCELED"


@pytest.fixture
def chat(command_line: CommandLine, monkeypatch: pytest.MonkeyPatch) -> Chat:
    """Runs a whole chat with these lines."""

    async def perform(lines: str, *arguments: str) -> Ended:
        read, write = os.pipe()
        os.write(write, lines.encode("utf-8", "surrogateescape"))
        os.close(write)
        with os.fdopen(read) as stream:
            monkeypatch.setattr("sys.stdin", stream)
            return await command_line("chat", *arguments)

    return perform


def messages(agent: ScriptedAgent) -> list[Json]:
    return [asked.body["message"] for asked in agent.asked if "message" in (asked.body or {})]


# --- messages ---------------------------------------------------------------------------------------------------------


async def test_a_line_is_a_message_and_all_are_of_one_conversation(chat: Chat) -> None:
    async with ScriptedAgent(HELLO, HELLO).running() as agent:
        ended = await chat("Hi\n\nand more", agent.url)
        assert (ended.code, ended.out) == (0, "Hello\nHello\n")
        assert ended.err.splitlines() == [
            "tool: lookup {}",
            "tool: lookup {}",
            f"next: a2a-gateway chat --context c-1 -u {agent.url}",
        ]
    first, second = messages(agent)
    assert [part["text"] for part in (*first["parts"], *second["parts"])] == ["Hi", "and more"]
    assert ("contextId" in first, second["contextId"]) == (False, "c-1")
    assert "taskId" not in second


async def test_a_conversation_can_be_continued(chat: Chat) -> None:
    async with ScriptedAgent(Result({"tasks": []}), HELLO).running() as agent:
        assert (await chat("Hi", agent.url, "--context", "c-1")).code == 0
    assert agent.asked[0].body == {"contextId": "c-1", "pageSize": 1}
    assert messages(agent)[0]["contextId"] == "c-1"


async def test_a_conversation_continues_with_an_agent_that_does_not_list_tasks(chat: Chat) -> None:
    async with ScriptedAgent(Plain(rpc_error(-32004, "no lists")), HELLO).running() as agent:
        ended = await chat("Hi", agent.url, "--context", "c-1")
    assert (ended.code, ended.out) == (0, "Hello\n")


async def test_a_resumed_chat_without_a_key_fails_before_the_first_line(chat: Chat) -> None:
    async with ScriptedAgent(Plain(rpc_error(-32600, "who are you?"), 401)).running() as agent:
        ended = await chat("Hi", agent.url, "--context", "c-1")
    assert (ended.code, messages(agent)) == (77, [])


async def test_a_resumed_chat_prints_how_to_follow_a_running_task(chat: Chat) -> None:
    async with ScriptedAgent(Result({"tasks": [task()]}), Result(task()), HELLO).running() as agent:
        ended = await chat("Hi", agent.url, "--context", "c-1")
        expected = f"(at work on an earlier message; to follow it: a2a-gateway tasks watch -u {agent.url} t-1)"
    assert ended.err.splitlines()[0] == expected
    assert "taskId" not in messages(agent)[0]


async def test_a_resumed_chat_can_cancel_a_running_task(chat: Chat) -> None:
    answers = (Result({"tasks": [task()]}), Result(task()), Result(task(CANCELED)))
    async with ScriptedAgent(*answers).running() as agent:
        ended = await chat("/cancel", agent.url, "--context", "c-1")
    assert "(canceled)" in ended.err.splitlines()


async def test_in_a_resumed_chat_the_next_line_answers_an_open_question_in_text(chat: Chat) -> None:
    asked = task(INPUT_REQUIRED, "so far", said="Which city?")
    async with ScriptedAgent(Result({"tasks": [asked]}), Result(asked), HELLO).running() as agent:
        ended = await chat("Oslo", agent.url, "--context", "c-1")
    assert ended.out == "Which city?\nHello\n"
    assert ended.err.splitlines()[0] == "(input required: the next line goes to the same task)"
    assert messages(agent)[0]["taskId"] == "t-1"


async def test_a_question_answered_by_another_client_is_not_asked_again(chat: Chat) -> None:
    async with ScriptedAgent(ASKS, Result(task(COMPLETED)), HELLO).running() as agent:
        ended = await chat("weather\n/answer\nHi", agent.url)
    assert "(nothing waits for an answer any more: completed)" in ended.err.splitlines()
    assert "taskId" not in messages(agent)[1]


async def test_the_next_line_goes_to_the_waiting_task(chat: Chat) -> None:
    asked = {**task(INPUT_REQUIRED, said="Which city?")}
    goes_on = Events(((2, {"task": asked}), (3, status(WORKING)), (4, says("Paris!")), (5, status(COMPLETED))))
    async with ScriptedAgent(ASKS, goes_on, HELLO).running() as agent:
        ended = await chat("weather\nParis\nthanks", agent.url)
    assert ended.out == "Which city?\nParis!\nHello\n"
    assert ended.err.splitlines()[0] == "(input required: the next line goes to the same task)"
    assert "Which city?" not in ended.err
    assert [message.get("taskId") for message in messages(agent)] == [None, "t-1", None]


async def test_a_bare_message_is_an_answer(chat: Chat) -> None:
    reply = {"message": {"messageId": "m-2", "role": "ROLE_AGENT", "contextId": "c-9", "parts": [{"text": "Hi!"}]}}
    async with ScriptedAgent(Events([(None, reply)]), HELLO).running() as agent:
        assert (await chat("Hi\nmore", agent.url)).out == "Hi!\nHello\n"
    assert messages(agent)[1]["contextId"] == "c-9"


async def test_an_agent_that_does_not_stream_is_waited_for(chat: Chat) -> None:
    answers = (Result({"task": task()}), Result(task(WORKING)), Result(task(COMPLETED, "Hello")))
    async with ScriptedAgent(*answers, card={"capabilities": {}}).running() as agent:
        assert (await chat("Hi", agent.url)).out == "Hello\n"
    assert agent.operations == ["SendMessage", "GetTask", "GetTask"]


async def test_a_failed_task_is_reported_and_the_chat_continues(chat: Chat) -> None:
    fails = Events(((0, {"task": task()}), (1, status(FAILED, "No."))))
    async with ScriptedAgent(fails, HELLO).running() as agent:
        ended = await chat("Hi\nagain", agent.url)
    assert (ended.code, ended.out) == (0, "Hello\n")
    assert "failed: No." in ended.err.splitlines()


async def test_a_cut_stream_is_shown_whole_and_the_wait_is_reported(chat: Chat) -> None:
    cut = Events([(0, {"task": task()}), (1, says("Hel"))], cut=True)
    rest = Events([(None, {"task": task(WORKING, "Hel")}), (2, says("lo")), (3, status(COMPLETED))])
    async with ScriptedAgent(cut, rest).running() as agent:
        ended = await chat("Hi", agent.url)
    assert ended.out == "Hello\n"
    assert ended.err.splitlines()[:2] == [
        "the connection is lost; waiting for the agent to come back",
        "connected again",
    ]
    assert agent.asked[1].headers["last-event-id"] == "1"


@pytest.mark.parametrize("output", ["jsonl", "json"])
async def test_answers_may_be_json(output: str, chat: Chat) -> None:
    whole = task(COMPLETED, "Hello")
    async with ScriptedAgent(HELLO, Result(whole)).running() as agent:
        ended = await chat("Hi", agent.url, "-o", output)
    if output == "json":
        assert json.loads(ended.out) == {"task": whole}
    else:
        assert [json.loads(line) for line in ended.out.splitlines()] == [event for _, event in HELLO.events]


# --- lines for the chat itself ----------------------------------------------------------------------------------------


async def test_a_file_goes_with_the_next_message_only(chat: Chat, tmp_path: Path) -> None:
    file = tmp_path / "my notes.txt"
    file.write_text("abc")
    async with ScriptedAgent(HELLO, HELLO).running() as agent:
        ended = await chat(f"/file '{file}'\nread it\nwell?", agent.url)
    first, second = messages(agent)
    assert first["parts"] == [
        {"text": "read it"},
        {"raw": "YWJj", "filename": "my notes.txt", "mediaType": "text/plain"},
    ]
    assert second["parts"] == [{"text": "well?"}]
    assert "(file: my notes.txt text/plain 3 bytes, goes along with the next message)" in ended.err


async def test_a_file_may_be_all_of_a_message(chat: Chat, tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_text("abc")
    async with ScriptedAgent(HELLO).running() as agent:
        await chat(f"/file {file}\n\n", agent.url)
    assert [list(part) for part in messages(agent)[0]["parts"]] == [["raw", "filename", "mediaType"]]


async def test_a_new_conversation_does_not_know_the_one_before(chat: Chat) -> None:
    async with ScriptedAgent(ASKS, HELLO).running() as agent:
        await chat("weather\n/new\nHi", agent.url)
    assert not {"contextId", "taskId"} & messages(agent)[1].keys()


async def test_a_task_that_waits_can_be_canceled() -> None:
    async with (
        ScriptedAgent(ASKS, Result(task(CANCELED)), HELLO).running() as agent,
        terminal("chat", agent.url) as screen,
    ):
        await screen.until("> ")
        screen.type("weather\n")
        await screen.until("(input required: the next line goes to the same task)\n> ")
        screen.type("/cancel\n")
        await screen.until("(canceled)\n> ")
        screen.type("/cancel\n")
        await screen.until("(there is no task to cancel)\n> ")
        screen.type("Hi\n")
        await screen.until("Hello\n> ")
        screen.type("/quit\n")
        assert await screen.ended() == 0
    assert agent.operations == ["SendStreamingMessage", "CancelTask", "SendStreamingMessage"]
    assert messages(agent)[1]["contextId"] == "c-1"


async def test_a_task_that_runs_can_be_canceled_before_the_agent_has_named_it(chat: Chat) -> None:
    begins = Events([(0, {"task": task()})], cut=True)
    ends = Events([(None, {"task": task()}), (1, status(CANCELED))])
    async with ScriptedAgent(begins, Result(task(CANCELED)), ends).running() as agent:
        ended = await chat("weather\n/cancel\n", agent.url)
    assert agent.operations == ["SendStreamingMessage", "CancelTask", "SubscribeToTask"]
    assert ended.err.splitlines()[-2] == "(canceled)"


async def test_a_refused_cancel_is_reported(chat: Chat) -> None:
    async with ScriptedAgent(ASKS, Plain(rpc_error(-32002, "Task 't-1' has ended."))).running() as agent:
        ended = await chat("weather\n/cancel\n", agent.url)
    assert "the agent refused: Task 't-1' has ended." in ended.err


async def test_events_are_shown_as_json_on_request(chat: Chat) -> None:
    async with ScriptedAgent(HELLO, HELLO).running() as agent:
        ended = await chat("/raw\nHi\n/raw\nHi", agent.url)
    *events, last = ended.out.splitlines()
    assert [json.loads(line) for line in events] == [event for _, event in HELLO.events]
    assert last == "Hello"


async def test_help_lists_the_chat_commands_and_two_slashes_escape_one(chat: Chat) -> None:
    async with ScriptedAgent(HELLO).running() as agent:
        ended = await chat("/help\n//etc\n/quit\nnever sent", agent.url)
    assert "/cancel      cancel the task that runs or waits" in ended.err
    assert [message["parts"][0]["text"] for message in messages(agent)] == ["/etc"]


# --- what goes wrong --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("/fiel x", "chat: /fiel is no command; did you mean /file? /help lists them"),
        ("/", "chat: / is no command; /help lists them"),
        ("/file", "chat: /file needs a path: /file report.pdf"),
        ("/file gone.pdf", "chat: /file 'gone.pdf' cannot be read: no such file or directory"),
        ("a\udcff", "chat: that line is not UTF-8; send it as a file: /file PATH"),
    ],
)
async def test_a_wrong_line_in_a_pipe_ends_the_chat_before_anything_else_is_sent(
    line: str, words: str, chat: Chat
) -> None:
    async with ScriptedAgent().running() as agent:
        ended = await chat(f"{line}\nHi\n", agent.url)
    assert (ended.code, ended.err) == (2, f"{words}\n")


async def test_a_refused_message_from_a_pipe_ends_the_chat_with_the_exit_code_of_the_refusal(
    chat: Chat, tmp_path: Path
) -> None:
    (tmp_path / "a").write_text("abc")
    async with ScriptedAgent(Plain(rpc_error(-32600, "who are you?"), 401)).running() as agent:
        ended = await chat(f"/file {tmp_path}/a\nHi\n", agent.url)
    assert ended.code == 77
    assert ended.err.splitlines()[-1] == "The files did not arrive; attach them again: /file PATH"


async def test_a_lost_agent_prints_how_to_find_the_task(chat: Chat) -> None:
    cut = Events([(0, {"task": task()}), (1, says("Hel"))], cut=True)
    async with ScriptedAgent(cut, Plain(rpc_error(-32600, "not you"), 401)).running() as agent:
        ended = await chat("Hi", agent.url)
        assert (ended.code, ended.out) == (77, "Hel\n")
        assert f"follow: a2a-gateway tasks watch -u {agent.url} t-1" in ended.err.splitlines()


async def test_a_missing_agent_ends_the_chat_at_once(chat: Chat) -> None:
    ended = await chat("Hi", "notes", "-u", "http://127.0.0.1:1")
    assert ended.code == 69
    assert ended.err.startswith("http://127.0.0.1:1/a2a/notes/.well-known/agent-card.json cannot be reached")


# --- on a terminal ----------------------------------------------------------------------------------------------------

AGENT = """
import asyncio

from gateway.agent import ToolCall, ToolResult


async def reply(turn):
    if turn.text == "wait":
        yield ToolCall("call_1", "lookup", {"city": "Oslo"})
        yield ToolResult("call_1", {"result": "3C"})
        yield "so "
        await asyncio.Event().wait()
    yield f"message {len(turn.history) // 2 + 1}: {turn.text}"
"""
AGENTS = "mine: {type: python, ref: './agent.py:reply'}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "agent.py").write_text(AGENT)
    return tmp_path


async def test_a_person_talks_and_leaves_with_ctrl_d(folder: Path) -> None:
    async with local_gateway(AGENTS, folder) as gateway, terminal("chat", "mine", "-u", gateway.url) as screen:
        await screen.until("/help lists what is not a message; Ctrl-D ends\n> ")
        screen.type("hello\n")
        await screen.until("hello\nmessage 1: hello\n> ")
        screen.type("/oops\n")
        await screen.until("chat: /oops is no command; /help lists them\n> ")
        screen.type("again\n")
        await screen.until("message 2: again\n> ")
        screen.type("\x04")
        await screen.until(" chat mine --context ")
        assert await screen.ended() == 0


@pytest.mark.parametrize("how", ["\x03", "/cancel\n"])
async def test_a_running_task_can_be_canceled(folder: Path, how: str) -> None:
    async with local_gateway(AGENTS, folder) as gateway, terminal("chat", "mine", "-u", gateway.url) as screen:
        await screen.until("> ")
        screen.type("wait\n")
        await screen.until('tool: lookup {"city":"Oslo"}\ntool: lookup gave {"result":"3C"} (')
        await screen.until(" s)\nso ")
        screen.type(how)
        await screen.until("\n(canceled)\n> ")
        screen.type("hello\n")
        await screen.until(": hello\n> ")
        screen.type("/quit\n")
        assert await screen.ended() == 0


async def test_ctrl_c_empties_a_line_and_leaves_the_chat_at_an_empty_line(folder: Path) -> None:
    async with local_gateway(AGENTS, folder) as gateway, terminal("chat", "mine", "-u", gateway.url) as screen:
        await screen.until("> ")
        screen.type("half a li")
        await screen.until("half a li")
        await screen.interrupt(lambda: screen.until("> "))
        assert await screen.interrupt(screen.ended) == 130


async def test_a_second_ctrl_c_leaves_the_chat_and_prints_how_to_resume_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "_GRACE", 60.0)
    (folder / "agent.py").write_text(
        AGENT.replace("        await asyncio.Event().wait()", "        await stubborn()") + STUBBORN
    )
    async with local_gateway(AGENTS, folder) as gateway, terminal("chat", "mine", "-u", gateway.url) as screen:
        await screen.until("> ")
        screen.type("wait\n")
        await screen.until("so ")
        screen.type("\x03")
        await screen.until("(canceling; Ctrl-C again leaves)")
        await screen.interrupt(lambda: screen.until("goes on.\nfollow: "))
        await screen.until(" tasks cancel ")
        assert await screen.ended() == 130
        RELEASED.set()


RELEASED = asyncio.Event()
STUBBORN = """
from tests.gateway.cli.talk import test_chat


async def stubborn():
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        await test_chat.RELEASED.wait()
        raise
"""
