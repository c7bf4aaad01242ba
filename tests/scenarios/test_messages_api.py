"""Conversations with an agent of the Messages API through a whole gateway: what the model has signed, tools of the service,
restarts, other models, cancelled and refused turns. The emulator refuses what is not in the form and the order that the
service demands."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway.a2a.tool_calls import URI
from gateway.engine.runtime import Pace
from gateway.ports.adapter import ErrorClass
from gateway.testing.serving import serve
from tests.a2a_client import A2A, COMPLETED, a2a_http, failed, streamed_text, text_of, why
from tests.adapters.anthropic.anthropic_support import model, result, unmarked, used, user
from tests.anthropic_types import violations
from tests.emulators.anthropic import MessagesServer
from tests.emulators.chat import ChatServer
from tests.emulators.responses_server import ResponsesServer
from tests.emulators.scripts import (
    Call,
    Conversation,
    Cut,
    ErrorEvent,
    Item,
    Json,
    Pause,
    Say,
    Script,
    ServerTool,
    Status,
    Step,
    Stop,
    Think,
    by_keyword,
    in_rounds,
)
from tests.emulators.server import Emulator
from tests.running import AT_ONCE, child_gateways, local_gateway

TOOL = '''
def book(hotel: str) -> str:
    """Books a room."""
    return f"booked {hotel}"
'''
SETTINGS = 'tools: {desk: {type: python, ref: "./desk.py:book"}}'
THINKS = "thinking: {type: enabled, budget_tokens: 1024}"


def server_of(script: Script) -> MessagesServer:
    return MessagesServer(script, validator=violations)


def agent(url: str, more: str = "", name: str = "m") -> str:
    return f"claude: {{type: anthropic, model: {name}, base_url: '{url}'{', ' if more else ''}{more}}}"


@asynccontextmanager
async def talking(
    server: MessagesServer, directory: Path, more: str = "", pace: Pace | None = None
) -> AsyncIterator[A2A]:
    """A caller of the agent in a gateway of its own, on the database in the folder."""
    async with (
        serve(server.app) as url,
        local_gateway(agent(url, more), directory, pace=pace) as gateway,
        a2a_http(gateway.url) as http,
    ):
        yield A2A(http, "claude")


def sent(server: MessagesServer) -> list[Json]:
    """The messages of the last request."""
    return unmarked(server.requests[-1]["messages"])


def phases(task: Json) -> list[tuple[str, str]]:
    """What the task tells of its tool calls, by name."""
    facts = [part["metadata"][URI] for message in task["history"] for part in message["parts"] if "metadata" in part]
    return [(fact["name"], fact["phase"]) for fact in facts]


def signed(text: str, signature: str) -> Json:
    return {"type": "thinking", "thinking": text, "signature": signature}


BOOKING: Script = in_rounds(
    [Think("Which one?", "sig_1"), Say("I book it."), Call("book", {"hotel": "Ritz"}, "toolu_1")],
    [Think("That was it.", "sig_2"), Say("All done.")],
)
BOOKED = [
    user("Book the Ritz."),
    model(signed("Which one?", "sig_1"), "I book it.", used("toolu_1", "book", hotel="Ritz")),
    user(result("toolu_1", "booked Ritz")),
]
DONE = [*BOOKED, model(signed("That was it.", "sig_2"), "All done.")]


# --- what the model has signed ----------------------------------------------------------------------------------------


async def test_thinking_goes_back_with_the_results_of_its_tools_and_in_the_next_turn_of_another_process(
    tmp_path: Path,
) -> None:
    (tmp_path / "desk.py").write_text(TOOL, encoding="utf-8")
    server = server_of(BOOKING)
    async with serve(server.app) as url:
        configured = agent(url, f"tools: [desk], {THINKS}")
        async with child_gateways(configured, tmp_path, settings=SETTINGS) as start:
            first = await start()
            async with a2a_http(first.url) as http:
                task = await A2A(http, "claude").send("Book the Ritz.", "c")
            assert sent(server) == BOOKED
            await first.kill()
            server.script = lambda _: [Say("Hello")]
            async with a2a_http((await start()).url) as http:
                again = await A2A(http, "claude").send("Thanks", "c")
    assert (text_of(task), text_of(again)) == ("I book it.\n\nAll done.", "Hello")
    assert sent(server) == [*DONE, user("Thanks")]


async def test_another_model_gets_the_conversation_without_the_thinking(tmp_path: Path) -> None:
    (tmp_path / "desk.py").write_text(TOOL, encoding="utf-8")
    server = server_of(BOOKING)
    async with serve(server.app) as url:
        for name in ("m", "n"):
            configured = agent(url, f"tools: [desk], {THINKS}", name)
            async with local_gateway(configured, tmp_path, settings=SETTINGS) as gateway, a2a_http(gateway.url) as http:
                assert why(await A2A(http, "claude").send("Book the Ritz.", "c")) == COMPLETED
    asked = [block["type"] for message in server.requests[2]["messages"] for block in message["content"]]
    assert (server.requests[2]["model"], "thinking" in asked) == ("n", False)
    thoughts = [b["type"] for m in server.requests[3]["messages"] for b in m["content"] if b["type"] == "thinking"]
    assert len(thoughts) == 1


OTHERS: dict[str, tuple[type[Emulator], str]] = {
    "chat": (ChatServer, "type: openai-chat"),
    "responses": (ResponsesServer, "type: openai-responses, history: {owner: gateway}, encrypted_reasoning: false"),
}


@pytest.mark.parametrize("service", OTHERS)
async def test_a_conversation_goes_from_one_service_to_another_and_back(tmp_path: Path, service: str) -> None:
    (tmp_path / "desk.py").write_text(TOOL, encoding="utf-8")
    emulator, settings = OTHERS[service]
    server, foreign = server_of(lambda _: [Think("Hm", "sig_9"), Say("Hello")]), emulator(BOOKING)
    async with serve(server.app) as url, serve(foreign.app) as there:
        other = f"claude: {{{settings}, model: m, base_url: '{there}/v1', tools: [desk]}}"
        for configured in (other, agent(url, "tools: [desk]"), other):
            async with local_gateway(configured, tmp_path, settings=SETTINGS) as gateway, a2a_http(gateway.url) as http:
                assert why(await A2A(http, "claude").send("Book the Ritz.", "c")) == COMPLETED
    assert "sig_9" not in str(foreign.requests)
    assert sent(server) == [
        user("Book the Ritz."),
        model("I book it.", used("toolu_1", "book", hotel="Ritz")),
        user(result("toolu_1", "booked Ritz")),
        model("All done."),
        user("Book the Ritz."),
    ]


# --- tools of the service ---------------------------------------------------------------------------------------------


def searching(conversation: Conversation) -> list[Step]:
    last = conversation.request["messages"][-1]
    if last["role"] == "assistant":
        return [Item({"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}), Say("Nothing.")]
    use = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}}
    return [Think("Hm", "sig_1"), Say("Looking. "), Item(use), Stop("pause_turn", container="container_1")]


async def test_a_tool_of_the_service_and_its_container_are_those_of_the_next_turn_after_a_restart(
    tmp_path: Path,
) -> None:
    server = server_of(searching)
    tools = "service_tools: [{type: web_search_20250305, name: web_search}]"
    async with talking(server, tmp_path, tools) as claude, claude.stream("Search", "c") as stream:
        frames = await stream.rest()
    server.script = lambda _: [Say("Hello")]
    async with talking(server, tmp_path, tools) as claude:
        assert text_of(await claude.send("Thanks", "c")) == "Hello"
    assert streamed_text(frames) == "Looking. Nothing."
    use, found = server.given.blocks[1][1], server.given.blocks[2][1]
    assert sent(server) == [
        user("Search"),
        model(signed("Hm", "sig_1"), "Looking. ", use, found, "Nothing."),
        user("Thanks"),
    ]
    assert server.requests[-1]["container"] == "container_1"


async def test_a_tool_of_the_service_runs_with_the_results_of_the_other_tools_of_its_answer(tmp_path: Path) -> None:
    (tmp_path / "desk.py").write_text(TOOL, encoding="utf-8")
    use = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}}
    found = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}
    server = server_of(
        in_rounds(
            [Think("Hm", "sig_1"), Item(use), Call("book", {"hotel": "Ritz"}, "toolu_1")], [Item(found), Say("Done.")]
        )
    )
    tools = "tools: [desk], service_tools: [{type: web_search_20250305, name: web_search}]"
    waits = model(signed("Hm", "sig_1"), use, used("toolu_1", "book", hotel="Ritz"))
    round_ = [user("Book it"), waits, user(result("toolu_1", "booked Ritz"))]
    async with (
        serve(server.app) as url,
        local_gateway(agent(url, tools), tmp_path, settings=SETTINGS) as gateway,
        a2a_http(gateway.url) as http,
    ):
        claude = A2A(http, "claude")
        async with claude.stream("Book it", "c") as stream:
            frames = await stream.rest()
        assert sent(server) == round_
        server.script = lambda _: [Say("Hello")]
        await claude.send("Thanks", "c")
        task = await claude.get(frames[0].event["task"]["id"])
    assert streamed_text(frames) == "Done."
    assert sent(server) == [*round_, model(found, "Done."), user("Thanks")]
    assert phases(task) == [
        ("web_search", "requested"),
        ("book", "requested"),
        ("book", "succeeded"),
        ("web_search", "succeeded"),
    ]


async def test_callers_see_the_tools_of_the_service_at_work(tmp_path: Path) -> None:
    going_on = asyncio.Event()
    server = server_of(lambda _: [ServerTool("mcp", "look", {"q": 1}, "found", during=Pause(going_on)), Say("There.")])
    async with talking(server, tmp_path) as claude, claude.stream("Look", "c") as stream:
        await stream.read_until(lambda frames: "executing" in str(frames))
        going_on.set()
        frames = await stream.rest()
    assert "found" in str(frames)
    assert streamed_text(frames) == "There."


# --- turns that do not end well ---------------------------------------------------------------------------------------


class Held:
    """A server that holds back the rest of its answer to `slow`."""

    def __init__(self) -> None:
        self.released = asyncio.Event()
        self.server = server_of(self._script)

    async def _script(self, conversation: Conversation) -> AsyncGenerator[Step]:
        yield Say("Well, ")
        if conversation.text == "slow":
            try:
                yield Pause(asyncio.Event())
            finally:
                self.released.set()
        yield Say("yes.")


@pytest.mark.parametrize("turn", [1, 2])
async def test_a_cancel_ends_the_request_and_the_model_learns_what_it_had_said(tmp_path: Path, turn: int) -> None:
    held = Held()
    async with talking(held.server, tmp_path) as claude:
        earlier = [await claude.send("one", "c") for _ in range(turn - 1)]
        async with claude.stream("slow", "c") as stream:
            await stream.read_until(lambda frames: "Well" in str(frames))
            task = stream.frames[0].event["task"]["id"]
            canceled = await claude.call("CancelTask", id=task)
        await asyncio.wait_for(held.released.wait(), 30)
        assert canceled["status"]["state"] == "TASK_STATE_CANCELED"
        assert text_of(await claude.send("and now?", "c")) == "Well, yes."
    before = [message for _ in earlier for message in (user("one"), model("Well, yes."))]
    assert sent(held.server) == [*before, user("slow"), model("Well, "), user("and now?")]


async def test_who_has_left_the_stream_hears_the_rest_of_it_later(tmp_path: Path) -> None:
    going_on = asyncio.Event()
    server = server_of(lambda _: [Say("one "), Pause(going_on), Say("two")])
    async with talking(server, tmp_path) as claude:
        async with claude.stream("Hi", "c") as stream:
            frames = list(await stream.read_until(lambda frames: "one" in str(frames)))
        async with claude.subscribe(frames[0].event["task"]["id"], after=frames[-1].number) as again:
            going_on.set()
            rest = await again.rest()
    assert streamed_text([*frames, *rest]) == "one two"
    assert len(server.requests) == 1


async def test_a_turn_whose_process_dies_before_its_answer_begins_is_made_again(tmp_path: Path) -> None:
    asked, going_on = asyncio.Event(), asyncio.Event()

    async def script(_: Conversation) -> AsyncGenerator[Step]:
        if not asked.is_set():
            asked.set()
            yield Pause(going_on)
        yield Say("Hello")

    server = server_of(script)
    async with serve(server.app) as url, child_gateways(agent(url), tmp_path) as start:
        first = await start()
        async with a2a_http(first.url) as http, A2A(http, "claude").stream("Hi", "c") as stream:
            [frame] = await stream.read(1)
            await asked.wait()
            await first.kill()
        second = await start()
        async with a2a_http(second.url) as http:
            claude = A2A(http, "claude")
            async with claude.subscribe(frame.event["task"]["id"]) as again:
                await again.rest()
            task = await claude.get(frame.event["task"]["id"])
    assert (why(task), text_of(task)) == (COMPLETED, "Hello")
    assert [body["messages"] for body in server.requests] == [server.requests[0]["messages"]] * 2


REFUSALS: dict[str, tuple[list[Step], ErrorClass]] = {
    "by the model": ([Say("Well"), Stop("refusal")], ErrorClass.POLICY),
    "for its length": ([ErrorEvent("invalid_request_error", "prompt is too long: 9 > 8")], ErrorClass.OVERFLOW),
    "for its content": ([ErrorEvent("invalid_request_error", "messages.0: no")], ErrorClass.REJECTED),
}


@pytest.mark.parametrize("refusal", REFUSALS)
async def test_a_message_that_is_refused_is_left_out_of_the_next_request(tmp_path: Path, refusal: str) -> None:
    steps, kind = REFUSALS[refusal]
    server = server_of(by_keyword({"bad": steps}, [Say("Hello")]))
    async with talking(server, tmp_path, pace=AT_ONCE) as claude:
        tasks = [await claude.send(words, "c") for words in ("one", "bad", "two")]
    assert [task["status"]["state"] for task in tasks] == [
        "TASK_STATE_COMPLETED",
        "TASK_STATE_FAILED",
        "TASK_STATE_COMPLETED",
    ]
    assert tasks[1]["status"]["message"]["metadata"]["errorClass"] == str(kind)
    assert sent(server) == [user("one"), model("Hello"), user("two")]


async def test_a_message_that_cannot_be_sent_is_told_as_such_and_left_out(tmp_path: Path) -> None:
    server = server_of(by_keyword({}, [Say("Hello")]))
    async with talking(server, tmp_path, pace=AT_ONCE) as claude:
        tasks = [await claude.send(words, "c") for words in ("one", " ", "two")]
    message = tasks[1]["status"]["message"]
    assert message["metadata"]["errorClass"] == ErrorClass.UNSENDABLE
    assert message["parts"][0]["text"].startswith(
        "The gateway did not send this message: the agent's backend cannot take its content. It is left out of the "
        "conversation from now on. The message has no text but blanks, and no file. (correlation id "
    )
    assert sent(server) == [user("one"), model("Hello"), user("two")]


async def test_an_overloaded_service_is_asked_again(tmp_path: Path) -> None:
    tries: list[Any] = []

    def script(_: Conversation) -> list[Step]:
        tries.append(1)
        return [ErrorEvent("overloaded_error", "Overloaded")] if len(tries) < 3 else [Say("Hello")]

    server = server_of(script)
    async with talking(server, tmp_path, pace=AT_ONCE) as claude:
        assert text_of(await claude.send("Hi", "c")) == "Hello"
    assert len(server.requests) == 3


OVERLOADED = Status(529, {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}})


def failing_behind_a_pause(*failures: Step) -> Script:
    """The request that continues the answer fails so often first."""
    left = list(failures)

    def script(conversation: Conversation) -> list[Step]:
        if conversation.request["messages"][-1]["role"] == "assistant" and left:
            return [left.pop(0)]
        return searching(conversation)

    return script


async def test_an_overloaded_service_is_asked_again_for_the_rest_of_a_paused_answer(tmp_path: Path) -> None:
    server = server_of(failing_behind_a_pause(OVERLOADED, OVERLOADED))
    tools = "service_tools: [{type: web_search_20250305, name: web_search}]"
    async with talking(server, tmp_path, tools, AT_ONCE) as claude:
        async with claude.stream("Search", "c") as stream:
            frames = await stream.rest()
        task = await claude.get(frames[0].event["task"]["id"])
        server.script = lambda _: [Say("Hello")]
        await claude.send("Thanks", "c")
    assert streamed_text(frames) == "Looking. Nothing."
    assert (why(task), text_of(task)) == (COMPLETED, "Looking. Nothing.")
    assert phases(task) == [("web_search", "requested"), ("web_search", "succeeded")]
    asked, *again = [unmarked(body["messages"]) for body in server.requests[:4]]
    use, found = server.given.blocks[1][1], server.given.blocks[2][1]
    assert again == [[*asked, model(signed("Hm", "sig_1"), "Looking. ", use)]] * 3
    assert sent(server) == [
        *asked,
        model(signed("Hm", "sig_1"), "Looking. ", use, found, "Nothing."),
        user("Thanks"),
    ]


@pytest.mark.parametrize(
    ("failures", "kind"),
    [([OVERLOADED] * 3, ErrorClass.RATE_LIMITED), ([Cut()], ErrorClass.INTERRUPTED)],
    ids=["a service that stays overloaded", "a cut of a request that may run tools"],
)
async def test_what_was_shown_of_a_paused_answer_stays_in_a_task_that_fails(
    tmp_path: Path, failures: list[Step], kind: ErrorClass
) -> None:
    server = server_of(failing_behind_a_pause(*failures))
    tools = "service_tools: [{type: web_search_20250305, name: web_search}]"
    async with talking(server, tmp_path, tools, AT_ONCE) as claude:
        task = await claude.send("Search", "c")
        assert why(task) == failed(kind)
        assert text_of(task) == "Looking. "
        assert phases(task) == [("web_search", "requested"), ("web_search", "interrupted")]
        assert text_of(await claude.send("And now?", "c")) == "Looking. Nothing."
    assert sent(server)[0] == user("Search", "And now?")


async def test_messages_at_once_run_one_after_another(tmp_path: Path) -> None:
    server = server_of(lambda conversation: [Say(conversation.text)])
    async with talking(server, tmp_path) as claude:
        tasks = await asyncio.gather(*(claude.send(words, "c") for words in ("one", "two", "three")))
    assert [text_of(task) for task in tasks] == ["one", "two", "three"]
    assert [len(body["messages"]) for body in server.requests] == [1, 3, 5]


async def test_a_wrong_key_is_told_without_the_key(tmp_path: Path) -> None:
    server = MessagesServer(api_key="sk-ant-right")
    async with talking(server, tmp_path, "api_key: sk-ant-wrong-0123456789") as claude:
        assert why(await claude.send("Hi", "c")) == failed(ErrorClass.UNAUTHORISED)
        assert b"sk-ant-wrong" not in claude.seen
