"""`tasks` against a gateway and against a scripted agent."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.a2a_client import A2A, a2a_http
from tests.gateway.cli.conftest import CommandLine
from tests.gateway.cli.pseudo_terminal import terminal
from tests.gateway.cli.scripted_agent import (
    COMPLETED,
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
from tests.running import Local, local_gateway

Json = Any

AGENT = """
import asyncio

from gateway.agent import InputRequired, Reject


async def reply(turn):
    match turn.text:
        case "wait":
            yield "so "
            await asyncio.Event().wait()
        case "ask":
            yield "Hm. "
            raise InputRequired("Which city?")
        case "no":
            raise Reject("Not that.")
    yield f"you said {turn.text}"
"""
AGENTS = "mine: {type: python, ref: './agent.py:reply'}"


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Local]:
    (tmp_path / "agent.py").write_text(AGENT)
    async with local_gateway(AGENTS, tmp_path) as gateway:
        yield gateway


@pytest.fixture
async def mine(gateway: Local) -> AsyncIterator[A2A]:
    async with a2a_http(gateway.url) as http:
        yield A2A(http, "mine")


# --- list -------------------------------------------------------------------------------------------------------------


async def test_tasks_are_listed_with_the_latest_first(gateway: Local, mine: A2A, command_line: CommandLine) -> None:
    one = await mine.send("one", "c-1")
    two = await mine.send("no", "c-2")
    ended = await command_line("tasks", "list", "-u", gateway.url)
    rows = [line.split("\t") for line in ended.out.splitlines()]
    assert rows == [
        [two["id"], "rejected", two["status"]["timestamp"], "c-2", "no"],
        [one["id"], "completed", one["status"]["timestamp"], "c-1", "one"],
    ]
    assert (ended.code, ended.err) == (0, "")


@pytest.mark.parametrize(
    ("options", "texts"),
    [
        (["--context", "c-1"], ["one"]),
        (["--state", "rejected"], ["no"]),
        (["--limit", "1"], ["no"]),
        (["--limit", "9", "--binding", "rest"], ["no", "one"]),
    ],
)
async def test_a_list_can_be_filtered(
    gateway: Local, mine: A2A, command_line: CommandLine, options: list[str], texts: list[str]
) -> None:
    await mine.send("one", "c-1")
    await mine.send("no", "c-2")
    ended = await command_line("tasks", "list", "-u", gateway.url, "-o", "jsonl", *options)
    assert [json.loads(line)["history"][0]["parts"][0]["text"] for line in ended.out.splitlines()] == texts


async def test_all_pages_are_read(command_line: CommandLine) -> None:
    pages = (
        Result({"tasks": [task(COMPLETED)], "nextPageToken": "more"}),
        Result({"tasks": [task(), task()], "nextPageToken": ""}),
    )
    async with ScriptedAgent(*pages).running() as agent:
        ended = await command_line("tasks", "list", "-u", agent.url, "-o", "json", "--state", "input-required")
    assert len(json.loads(ended.out)["tasks"]) == 3
    assert [asked.body for asked in agent.asked] == [
        {"status": INPUT_REQUIRED, "pageSize": 100},
        {"status": INPUT_REQUIRED, "pageSize": 100, "pageToken": "more"},
    ]


async def test_without_tasks_a_message_says_so(gateway: Local, command_line: CommandLine) -> None:
    assert (await command_line("tasks", "list", "-u", gateway.url)).err == "there are no tasks\n"
    narrowed = await command_line("tasks", "list", "-u", gateway.url, "--state", "rejected")
    assert (narrowed.code, narrowed.out, narrowed.err) == (0, "", "there are no such tasks\n")


# --- get, cancel ------------------------------------------------------------------------------------------------------


async def test_a_task_is_shown_with_its_messages(gateway: Local, mine: A2A, command_line: CommandLine) -> None:
    asked = await mine.send("ask", "c-1")
    ended = await command_line("tasks", "get", asked["id"], "-u", gateway.url)
    assert ended.out.splitlines() == [
        f"task     {asked['id']}",
        "context  c-1",
        f"state    input required  {asked['status']['timestamp']}",
        "",
        "you: ask",
        "agent: Hm. ",
        "agent: Which city?",
    ]
    as_json = await command_line("tasks", "get", asked["id"], "-u", gateway.url, "-o", "json")
    assert json.loads(as_json.out) == asked


async def test_the_tokens_of_a_task_are_shown_where_its_agent_tells_them(command_line: CommandLine) -> None:
    numbers = {"inputTokens": 1932, "cachedTokens": 1800, "outputTokens": 211, "totalTokens": 2143}
    found = task(COMPLETED) | {"metadata": {"usage": {"turn": {}, "task": numbers}}}
    async with ScriptedAgent(Result(found)).running() as agent:
        ended = await command_line("tasks", "get", "t-1", "-u", agent.url)
    assert ended.out.splitlines()[-1] == "tokens   1,932 in (1,800 cached), 211 out"


async def test_a_task_that_waits_is_canceled(gateway: Local, mine: A2A, command_line: CommandLine) -> None:
    asked = await mine.send("ask")
    ended = await command_line("tasks", "cancel", asked["id"], "-u", gateway.url, "--binding", "rest")
    assert (ended.code, ended.out) == (0, f"task {asked['id']} is canceled\n")
    again = await command_line("tasks", "cancel", asked["id"], "-u", gateway.url)
    assert (again.code, again.err) == (
        1,
        f"the agent refused: Task {asked['id']!r} has ended (TASK_STATE_CANCELED).\n",
    )


@pytest.mark.parametrize("command", ["get", "cancel", "watch"])
async def test_a_missing_task_is_reported_with_the_command_that_lists_tasks(
    gateway: Local, command_line: CommandLine, command: str
) -> None:
    ended = await command_line("tasks", command, "gone", "-u", gateway.url, "-a", "mine")
    assert (ended.code, ended.out) == (1, "")
    assert ended.err == (
        f"there is no task 'gone' at {gateway.url}, agent 'mine'\n"
        f"Those that are there: a2a-gateway tasks list -u {gateway.url} -a mine\n"
    )


# --- watch ------------------------------------------------------------------------------------------------------------


async def test_a_task_is_watched_from_its_beginning(gateway: Local, mine: A2A, command_line: CommandLine) -> None:
    done = await mine.send("hi", "c-1")
    ended = await command_line("tasks", "watch", done["id"], "-u", gateway.url)
    assert (ended.code, ended.out) == (0, "you said hi\n")
    assert ended.err == f"context c-1  task {done['id']}  completed\n"


async def test_an_earlier_question_is_shown_and_does_not_end_the_task(
    gateway: Local, mine: A2A, command_line: CommandLine
) -> None:
    asked = await mine.send("ask", "c-1")
    waits = await command_line("tasks", "watch", asked["id"], "-u", gateway.url)
    assert (waits.code, waits.out) == (13, "Hm. \nWhich city?\n")
    await mine.send("Oslo", "c-1", taskId=asked["id"])
    ended = await command_line("tasks", "watch", asked["id"], "-u", gateway.url)
    assert (ended.code, ended.out) == (0, "Hm. \nyou said Oslo\n")
    assert ended.err.splitlines()[0] == "... Which city?"


async def test_watch_may_begin_with_a_later_event(gateway: Local, mine: A2A, command_line: CommandLine) -> None:
    asked = await mine.send("ask", "c-1")
    await mine.send("Oslo", "c-1", taskId=asked["id"])
    ended = await command_line("tasks", "watch", asked["id"], "-u", gateway.url, "--from", "3")
    assert (ended.code, ended.out) == (0, "you said Oslo\n")


@pytest.mark.parametrize("output", ["json", "jsonl"])
async def test_events_may_be_json(gateway: Local, mine: A2A, command_line: CommandLine, output: str) -> None:
    done = await mine.send("hi")
    ended = await command_line("tasks", "watch", done["id"], "-u", gateway.url, "-o", output)
    assert ended.err == ""
    if output == "json":
        assert json.loads(ended.out) == {"task": done}
    else:
        kinds = [next(iter(json.loads(line))) for line in ended.out.splitlines()]
        assert kinds == ["task", "artifactUpdate", "statusUpdate"]


async def test_a_cut_stream_continues_and_an_agent_without_a_log_sends_a_snapshot(
    command_line: CommandLine,
) -> None:
    cut = Events([(None, {"task": task(WORKING, "Hel")})], cut=True)
    rest = Events([(None, {"task": task(WORKING, "Hel")}), (None, says("lo")), (None, status(COMPLETED))])
    async with ScriptedAgent(Result(task()), cut, rest).running() as agent:
        ended = await command_line("tasks", "watch", "t-1", "-u", agent.url)
    assert (ended.code, ended.out) == (0, "Hello\n")
    assert agent.operations == ["GetTask", "SubscribeToTask", "SubscribeToTask"]


async def test_an_agent_that_does_not_stream_is_polled(command_line: CommandLine) -> None:
    answers = (Result(task()), Result(task(COMPLETED, "Hello")))
    async with ScriptedAgent(*answers, card={"capabilities": {}}).running() as agent:
        ended = await command_line("tasks", "watch", "t-1", "-u", agent.url)
    assert (ended.code, ended.out) == (0, "Hello\n")


async def test_a_lost_connection_prints_how_to_find_the_watched_task(command_line: CommandLine) -> None:
    cut, refusal = Events([(1, {"task": task()}), (2, says("Hel"))], cut=True), Plain(rpc_error(-32600, "not you"), 401)
    async with ScriptedAgent(Result(task()), cut, refusal).running() as agent:
        ended = await command_line("tasks", "watch", "t-1", "-u", agent.url)
    assert (ended.code, ended.out) == (77, "Hel\n")
    assert "The task t-1 goes on.\nfollow: a2a-gateway tasks watch " in ended.err


async def test_a_refusal_before_the_first_event_names_no_task(command_line: CommandLine) -> None:
    async with ScriptedAgent(Plain(rpc_error(-32600, "not you"), 401)).running() as agent:
        ended = await command_line("tasks", "watch", "t-1", "-u", agent.url)
    assert (ended.code, "goes on" in ended.err) == (77, False)


async def test_ctrl_c_leaves_the_watched_task_running(gateway: Local, mine: A2A) -> None:
    result = await mine.call(
        "SendMessage",
        message={"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "wait"}]},
        configuration={"returnImmediately": True},
    )
    name = result["task"]["id"]
    async with terminal("tasks", "watch", name, "-u", gateway.url) as screen:
        await screen.until("so ")
        screen.type("\x03")
        await screen.until(f"The task {name} goes on.\nfollow: ")
        assert await screen.ended() == 130
    assert (await mine.get(name))["status"]["state"] == WORKING
