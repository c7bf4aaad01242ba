"""Questions of waiting tasks in `tasks watch`, `stream` and `chat`, on a terminal and in a pipe, against a real gateway."""

import json
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from gateway.testing.serving import serve
from tests.a2a_client import A2A, a2a_http
from tests.emulators.chat import ChatServer
from tests.emulators.scripts import Call, Say, by_keyword, in_rounds
from tests.gateway.cli.conftest import Ended, Typing
from tests.gateway.cli.pseudo_terminal import terminal
from tests.running import Local, local_gateway

Json = Any

DESK = '''
def book(hotel: str) -> str:
    """Books a room."""
    return f"booked {hotel}"
'''
SETTINGS = 'tools: {desk: {type: python, ref: "./desk.py:book"}}'
SCRIPT = by_keyword(
    {
        "twice": in_rounds(
            [Call("book", {"hotel": "Ritz"})], [Call("book", {"hotel": "Savoy"})], [Say("Both are booked.")]
        ),
        "book": in_rounds([Call("book", {"hotel": "Ritz"})], [Say("All done.")]),
        "picture": in_rounds([Call("camera", {"zoom": 2})], [Say("Nice.")]),
    },
    [Say("Hello there.")],
)
CAMERA = f"camera={sys.executable} -c 'import json, sys; print(json.load(sys.stdin))'"
ASKED = 'May the tool desk.book with {"hotel":"Ritz"} be used?'
ALLOW = 'allow book {"hotel":"Ritz"}? [y/N] '
WAITING, WORKING, COMPLETED = "TASK_STATE_INPUT_REQUIRED", "TASK_STATE_WORKING", "TASK_STATE_COMPLETED"

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Local]:
    folder = tmp_path_factory.mktemp("gateway")
    (folder / "desk.py").write_text(DESK)
    async with serve(ChatServer(SCRIPT).app) as backend:
        agent = (
            f"hotel: {{type: openai-chat, model: m, base_url: '{backend}/v1', tools: [desk], "
            "approvals: [{tool: 'desk.*'}], client_tools: [{name: camera}]}"
        )
        async with local_gateway(agent, folder, settings=SETTINGS) as gateway:
            yield gateway


@pytest_asyncio.fixture(loop_scope="module")
async def hotel(gateway: Local) -> AsyncIterator[A2A]:
    async with a2a_http(gateway.url) as http:
        yield A2A(http, "hotel")


def rest(ended: Ended, beginning: str) -> str:
    """The rest of the line of standard error that begins with this text."""
    return next(line for line in ended.err.splitlines() if line.startswith(beginning)).removeprefix(beginning)


# --- tasks watch ------------------------------------------------------------------------------------------------------


async def test_watch_on_a_terminal_asks_and_goes_on_watching(gateway: Local, hotel: A2A) -> None:
    task = await hotel.send("Book twice.")
    async with terminal("tasks", "watch", task["id"], "-u", gateway.url) as screen:
        await screen.until('tool: book {"hotel":"Ritz"}\ntool: book waits for a yes\n')
        await screen.until(f"{ASKED}\n{ALLOW}")
        screen.type("y\n")
        await screen.until('tool: book gave {"result":"booked Ritz"}')
        await screen.until('tool: book {"hotel":"Savoy"}')
        await screen.until('allow book {"hotel":"Savoy"}? [y/N] ')
        screen.type("no\n")
        await screen.until("why not? (nothing for no reason) ")
        screen.type("too dear\n")
        await screen.until("tool: book rejected: ")
        await screen.until(f"Both are booked.\ncontext {task['contextId']}  task {task['id']}  completed\n")
        assert await screen.ended() == 0
    assert screen.shown.count(ASKED) == 1


async def test_ctrl_d_at_the_question_leaves_the_task_waiting_and_says_how_to_answer(
    gateway: Local, hotel: A2A
) -> None:
    task = await hotel.send("Book it.")
    async with terminal("tasks", "watch", task["id"], "-u", gateway.url) as screen:
        await screen.until(ALLOW)
        screen.type("\x04")
        await screen.until(f"task {task['id']}  input required\nanswer: ")
        await screen.until(f" tasks watch -u {gateway.url} {task['id']}\n")
        assert await screen.ended() == 13
    assert (await hotel.get(task["id"]))["status"]["state"] == WAITING


async def test_ctrl_c_at_the_question_leaves_the_task_waiting_and_says_how_to_answer(
    gateway: Local, hotel: A2A
) -> None:
    task = await hotel.send("Book it.")
    async with terminal("tasks", "watch", task["id"], "-u", gateway.url) as screen:
        await screen.until(ALLOW)
        await screen.interrupt(lambda: screen.until(f"The task {task['id']} waits for an answer.\nanswer: "))
        await screen.until("\ncancel: ")
        assert await screen.ended() == 130


async def test_a_second_answer_is_reported_and_the_task_watched_to_its_end(gateway: Local, hotel: A2A) -> None:
    task = await hotel.send("Book it.")
    [asked] = next(iter(task["status"]["message"]["metadata"].values()))["approval"]["tools"]
    async with terminal("tasks", "watch", task["id"], "-u", gateway.url) as screen:
        await screen.until(ALLOW)
        decision = {"data": {"approvals": [{"id": asked["id"], "approved": True}]}}
        message = {"messageId": "m-2", "role": "ROLE_USER", "taskId": task["id"], "parts": [decision]}
        await hotel.call("SendMessage", message=message)
        screen.type("n\n")
        await screen.until("why not? ")
        screen.type("\n")
        await screen.until("the agent refused: ")
        await screen.until("All done.\n")
        assert await screen.ended() == 0


@pytest.mark.parametrize(("approve", "booked"), [("yes", True), ("no", False)])
async def test_an_option_answers_the_question_of_a_watched_task(
    gateway: Local, hotel: A2A, typing: Typing, approve: str, booked: bool
) -> None:
    task = await hotel.send("Book it.")
    ended = await typing("", "tasks", "watch", task["id"], "-u", gateway.url, "--approve", approve)
    assert (ended.code, ended.out) == (0, f"{ASKED}\nAll done.\n")
    assert ('gave {"result":"booked Ritz"}' in ended.err) is booked


async def test_lines_of_a_pipe_answer_a_prompt(gateway: Local, hotel: A2A, typing: Typing) -> None:
    task = await hotel.send("Book it.")
    ended = await typing("y\n", "tasks", "watch", task["id"], "-u", gateway.url, "--approve", "ask")
    assert (ended.code, ended.out) == (0, f"{ASKED}\nAll done.\n")


async def test_watch_in_a_pipe_asks_nothing(gateway: Local, hotel: A2A, typing: Typing) -> None:
    task = await hotel.send("Book it.")
    ended = await typing("y\n", "tasks", "watch", task["id"], "-u", gateway.url)
    assert (ended.code, ended.out) == (13, f"{ASKED}\n")
    assert rest(ended, "answer: ") == f"a2a-gateway tasks watch -u {gateway.url} {task['id']}"
    assert (await hotel.get(task["id"]))["status"]["state"] == WAITING


async def test_watch_runs_the_tools_of_this_machine(gateway: Local, hotel: A2A, typing: Typing) -> None:
    task = await hotel.send("A picture, please.")
    ended = await typing("", "tasks", "watch", task["id"], "-u", gateway.url, "--tool", CAMERA)
    assert (ended.code, ended.out) == (0, "Waiting for the result of camera.\nNice.\n")
    lines = [line for line in ended.err.splitlines() if line.startswith("tool: ")]
    assert lines[0] == 'tool: camera {"zoom":2}'
    assert lines[1].startswith("tool: camera runs ")
    assert lines[2].startswith('tool: camera gave {"result":"{\'zoom\': 2}"}')
    assert len(lines) == 3


@pytest.mark.parametrize("output", ["json", "jsonl"])
async def test_watch_prints_one_document_or_a_line_for_each_event(
    gateway: Local, hotel: A2A, typing: Typing, output: str
) -> None:
    task = await hotel.send("Book twice.")
    ended = await typing("", "tasks", "watch", task["id"], "-u", gateway.url, "--approve", "yes", "-o", output)
    if output == "json":
        assert json.loads(ended.out)["task"]["status"]["state"] == COMPLETED
    else:
        assert json.loads(ended.out.splitlines()[-1])["statusUpdate"]["status"]["state"] == COMPLETED
    assert ended.code == 0


@pytest.mark.parametrize("how", [("send", "Hi"), ("stream", "Hi")])
async def test_a_message_refused_because_of_a_waiting_task_names_the_command_that_answers(
    gateway: Local, hotel: A2A, typing: Typing, how: tuple[str, ...]
) -> None:
    task = await hotel.send("Book it.")
    ended = await typing("", *how, "-u", gateway.url, "--context", task["contextId"])
    assert (ended.code, ended.out) == (1, "")
    assert ended.err.splitlines()[1:] == [
        f"answer: a2a-gateway tasks watch -u {gateway.url} {task['id']}",
        f"cancel: a2a-gateway tasks cancel -u {gateway.url} {task['id']}",
    ]


# --- tools that the client runs ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", [("stream", "-a", "hotel"), ("chat", "hotel")])
async def test_a_call_that_runs_here_is_shown_like_any_other(
    gateway: Local, typing: Typing, how: tuple[str, ...]
) -> None:
    text = "A picture, please."
    said = (text,) if how[0] == "stream" else ()
    ended = await typing(f"{text}\n", *how, *said, "-u", gateway.url, "--tool", CAMERA)
    lines = [line for line in ended.err.splitlines() if line.startswith("tool: ")]
    assert lines[0] == 'tool: camera {"zoom":2}'
    assert lines[1].startswith("tool: camera runs ")
    assert lines[2].startswith("tool: camera gave ")
    assert lines[2].endswith(" s)")
    assert (len(lines), ended.code) == (3, 0)


async def test_a_call_without_its_tool_is_shown_with_the_command_that_runs_it(gateway: Local, typing: Typing) -> None:
    ended = await typing("", "stream", "A picture, please.", "-u", gateway.url)
    assert 'tool: camera {"zoom":2}' in ended.err.splitlines()
    assert rest(ended, "next: ").startswith(f"a2a-gateway tasks watch --tool camera=COMMAND -u {gateway.url} ")
    assert ended.code == 13


async def test_a_question_is_one_line_in_a_later_transcript(gateway: Local, hotel: A2A, typing: Typing) -> None:
    task = await hotel.send("Book it.")
    await typing("", "tasks", "watch", task["id"], "-u", gateway.url, "--approve", "yes")
    ended = await typing("", "tasks", "get", task["id"], "-u", gateway.url)
    assert f"agent: {ASKED}" in ended.out.splitlines()
    assert "adk_request_confirmation" not in ended.out


# --- chat -------------------------------------------------------------------------------------------------------------


async def test_ctrl_d_at_the_question_leaves_it_open_and_the_chat_goes_on(gateway: Local) -> None:
    async with terminal("chat", "hotel", "-u", gateway.url) as screen:
        await screen.until("> ")
        screen.type("Book it.\n")
        await screen.until(ALLOW)
        screen.type("\x04")
        await screen.until("(input required: /answer asks again; a message withdraws the call)\n> ")
        screen.type("/answer\n")
        await screen.until(f"{ASKED}\n{ALLOW}")
        screen.type("y\n")
        await screen.until("All done.\n> ")
        screen.type("/answer\n")
        await screen.until("(nothing waits for an answer)\n> ")
        screen.type("\x04")
        assert await screen.ended() == 0


async def test_a_message_instead_of_an_answer_withdraws_the_call(gateway: Local) -> None:
    async with terminal("chat", "hotel", "-u", gateway.url) as screen:
        await screen.until("> ")
        screen.type("Book it.\n")
        await screen.until(ALLOW)
        screen.type("\x04")
        await screen.until("> ")
        screen.type("Never mind.\n")
        await screen.until("tool: book cancelled: ")
        await screen.until("Hello there.\n> ")
        screen.type("\x04")
        assert await screen.ended() == 0


async def test_a_resumed_chat_asks_an_open_question(gateway: Local, hotel: A2A) -> None:
    task = await hotel.send("Book it.")
    async with terminal("chat", "hotel", "-u", gateway.url, "--context", task["contextId"]) as screen:
        await screen.until(f"{ASKED}\n{ALLOW}")
        screen.type("y\n")
        await screen.until('tool: book gave {"result":"booked Ritz"}')
        await screen.until("All done.\n> ")
        screen.type("Hi\n")
        await screen.until("Hello there.\n> ")
        screen.type("\x04")
        assert await screen.ended() == 0


async def test_a_resumed_chat_can_cancel_a_waiting_task(gateway: Local, hotel: A2A) -> None:
    task = await hotel.send("Book it.")
    async with terminal("chat", "hotel", "-u", gateway.url, "--context", task["contextId"]) as screen:
        await screen.until(ALLOW)
        screen.type("/cancel\n")
        await screen.until("(canceled)\n> ")
        screen.type("Hi\n")
        await screen.until("Hello there.\n> ")
        screen.type("\x04")
        assert await screen.ended() == 0


async def test_in_a_pipe_the_first_line_answers_the_open_question(gateway: Local, hotel: A2A, typing: Typing) -> None:
    task = await hotel.send("Book it.")
    ended = await typing("y\nHi\n", "chat", "hotel", "-u", gateway.url, "--context", task["contextId"])
    assert (ended.code, ended.out) == (0, f"{ASKED}\nAll done.\nHello there.\n")


async def test_a_resumed_chat_without_the_tool_prints_how_to_name_it(
    gateway: Local, hotel: A2A, typing: Typing
) -> None:
    task = await hotel.send("A picture, please.")
    ended = await typing("", "chat", "hotel", "-u", gateway.url, "--context", task["contextId"])
    assert 'tool: camera {"zoom":2}' in ended.err.splitlines()
    expected = (
        "(input required: with --tool camera=COMMAND this chat can run what is asked for; a message withdraws the call)"
    )
    assert expected in ended.err.splitlines()
    again = await typing("", "chat", "hotel", "-u", gateway.url, "--context", task["contextId"], "--tool", CAMERA)
    assert (again.code, again.out.splitlines()[-1]) == (0, "Nice.")


async def test_a_resumed_chat_of_an_idle_conversation_continues_it(gateway: Local, hotel: A2A, typing: Typing) -> None:
    task = await hotel.send("Hi")
    ended = await typing("Hi\n", "chat", "hotel", "-u", gateway.url, "--context", task["contextId"])
    assert (ended.code, ended.out) == (0, "Hello there.\n")
    assert ended.err.splitlines() == [f"next: a2a-gateway chat hotel --context {task['contextId']} -u {gateway.url}"]
