"""`run_in: process`: the process dies, its turns have failed with the reason, and the next turn has a new one."""

import json
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gateway.ports.adapter import ErrorClass
from gateway.testing.serving import serve
from tests.a2a_client import A2A, COMPLETED, Frame, Json, a2a_http, failed, text_of, why
from tests.emulators.responses_server import ResponsesServer
from tests.emulators.scripts import Call, Conversation, Say, Step
from tests.running import Child, StartChild, child_gateways
from tests.support.polling import until
from tests.support.processes import alive

pytestmark = [pytest.mark.xdist_group("python-process"), pytest.mark.fault("P3")]

_SOURCE = '''
import asyncio
import ctypes
import logging
import os
import signal
import sys
import time

from gateway.agent import Artifact, InputRequired, Status, ToolCall, ToolResult

print("loaded by", os.getpid())


async def agent(turn):
    word, _, rest = turn.text.partition(" ")
    match word:
        case "pid":
            yield str(os.getpid())
        case "exit":
            yield "so far"
            os._exit(int(rest))
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "crash":
            ctypes.string_at(0)
        case "wait":
            yield str(os.getpid())
            await asyncio.Event().wait()
        case "block":
            yield str(os.getpid())
            time.sleep(3600)
        case "print":
            print(rest)
            print(rest.upper(), file=sys.stderr)
            logging.getLogger("mine").warning("warned of %s", rest)
            logging.info("told of %s", rest)
            logging.debug("not told of %s", rest)
            yield "printed"
        case "everything":
            yield Status("looking")
            yield ToolCall("c1", "look", {"n": 10**19})
            yield ToolResult("c1", {"found": [1, None, 2.5, "\\u00e9\\n"]})
            yield {"data": {"a": None}}
            yield Artifact(["one"], artifact_id="report", name="Report")
            yield "x" * 300_000
            turn.state["n"] = turn.state.get("n", 0) + 1
            raise InputRequired(f"more? {turn.state['n']} {len(turn.history)} {turn.message['parts'][0]['text']}")
        case "signals":
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                os.kill(os.getpid(), number)
            await asyncio.sleep(0)
            yield "still here"
        case "sockets":
            fds = [f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd")]
            yield str(sum(os.path.exists(fd) and os.readlink(fd).startswith("socket:") for fd in fds))


def die_tool() -> str:
    """Dies."""
    os._exit(7)


def add_tool(a: int, b: int) -> int:
    """Adds."""
    return a + b
'''


def _script(conversation: Conversation) -> Iterator[Step]:
    if conversation.tool_outputs:
        yield Say("told " + " ".join(conversation.tool_outputs.values()))
    else:
        name, _, argument = conversation.text.partition(" ")
        yield Call(name, json.loads(argument), call_id="c1")


@asynccontextmanager
async def _gateways(folder: Path, source: str = _SOURCE) -> AsyncIterator[StartChild]:
    (folder / "mine.py").write_text(source)
    python = "type: python, run_in: process, ref: './mine.py"
    tools = f"  die: {{{python}:die_tool'}}\n  add: {{{python}:add_tool'}}"
    async with serve(ResponsesServer(_script).app) as url:
        agents = (
            f"mine: {{{python}:agent'}}\n"
            "echo: {type: python, ref: './other.py:reply'}\n"
            f"tools: {{type: openai-responses, model: m, base_url: '{url}/v1', tools: [die, add]}}"
        )
        (folder / "other.py").write_text("def reply(text): return text\n")
        settings = f"server: {{port: 0, shutdown_grace: 5s}}\ntools:\n{tools}"
        async with child_gateways(agents, folder, settings=settings) as start:
            yield start


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Child]:
    async with _gateways(tmp_path) as start:
        yield await start()


def _events(child: Child, event: str) -> list[Json]:
    lines = (json.loads(line) for line in bytes(child.output).split(b"\n") if line.startswith(b"{"))
    return [line for line in lines if line["event"] == event]


def _pid(frames: list[Frame]) -> int | None:
    for frame in frames:
        for part in frame.event.get("artifactUpdate", {}).get("artifact", {}).get("parts", ()):
            return int(part["text"])
    return None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("exit 3", "its process ended with exit code 3"),
        ("exit 0", "its process ended with exit code 0"),
        ("kill", "its process was killed by SIGKILL"),
        ("crash", "its process was killed by SIGSEGV"),
    ],
)
async def test_a_turn_whose_process_dies_has_failed_with_the_reason_and_the_next_one_works(
    gateway: Child, text: str, reason: str
) -> None:
    async with a2a_http(gateway.url) as http:
        agent = A2A(http, "mine")
        before = text_of(await agent.send("pid"))
        assert int(before) != gateway.pid
        task = await agent.send(text)
        assert why(task) == failed(ErrorClass.BACKEND_FAILED)
        assert _events(gateway, "turn.failed")[-1]["detail"] == reason
        ended = _events(gateway, "python.process-ended")[-1]
        assert (ended["agent"], ended["detail"]) == ("mine", reason)
        after = text_of(await agent.send("pid"))
        assert after != before
        assert text_of(await A2A(http, "echo").send("Hi")) == "Hi"


async def test_a_process_that_dies_again_and_again_is_waited_for_and_comes_back(gateway: Child) -> None:
    async with a2a_http(gateway.url) as http:
        agent = A2A(http, "mine")
        for _ in range(3):
            assert why(await agent.send("kill")) == failed(ErrorClass.BACKEND_FAILED)
        assert why(await agent.send("pid")) == COMPLETED


async def test_all_values_come_through_as_from_a_thread(gateway: Child) -> None:
    async with a2a_http(gateway.url) as http:
        agent = A2A(http, "mine")
        first = await agent.send("everything é")
        assert first["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
        assert first["status"]["message"]["parts"] == [{"text": "more? 1 0 everything é"}]
        assert text_of(first).replace("x" * 300_000, "") == "one"
        again = await agent.send("everything", first["contextId"], taskId=first["id"])
        assert again["status"]["message"]["parts"] == [{"text": "more? 2 3 everything"}]


async def test_what_a_process_prints_and_logs_is_in_the_log_with_its_agent(gateway: Child) -> None:
    async with a2a_http(gateway.url) as http:
        await A2A(http, "mine").send("print words")
    await until(lambda: len(_events(gateway, "python.output")) == 3)
    assert [line["line"] for line in _events(gateway, "python.output")][1:] == ["words", "WORDS"]
    (warned,) = _events(gateway, "warned of words")
    assert (warned["level"], warned["logger"], warned["agent"]) == ("warning", "mine", "mine")
    (told,) = _events(gateway, "told of words")
    assert (told["level"], told["logger"], told["agent"]) == ("info", "root", "mine")
    assert _events(gateway, "not told of words") == []


async def test_the_module_is_loaded_by_its_process_only_and_before_the_first_turn_by_none(gateway: Child) -> None:
    assert _events(gateway, "python.output") == []
    async with a2a_http(gateway.url) as http:
        pid = text_of(await A2A(http, "mine").send("pid"))
    await until(lambda: bool(_events(gateway, "python.output")))
    assert [line["line"] for line in _events(gateway, "python.output")] == [f"loaded by {pid}"]


async def test_signals_for_the_gateway_and_its_sockets_are_none_of_the_process(gateway: Child) -> None:
    async with a2a_http(gateway.url) as http:
        agent = A2A(http, "mine")
        assert text_of(await agent.send("signals")) == "still here"
        # The pair with which its event loop wakes itself.
        assert text_of(await agent.send("sockets")) == "2"


@pytest.mark.parametrize("text", ["wait", "block"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_a_process_does_not_outlive_its_gateway(gateway: Child, text: str, number: signal.Signals) -> None:
    async with a2a_http(gateway.url) as http, A2A(http, "mine").stream(text) as stream:
        pid = _pid(await stream.read_until(lambda frames: _pid(frames) is not None))
        assert pid is not None
        assert alive(pid)
        gateway.signal(number)
        if number == signal.SIGTERM:
            gateway.signal(number)
        await gateway.ended()
    await until(lambda: not alive(pid))


async def test_a_turn_of_a_blocked_process_can_be_cancelled_and_the_next_one_has_a_new_process(gateway: Child) -> None:
    async with a2a_http(gateway.url) as http:
        agent = A2A(http, "mine")
        async with agent.stream("block") as stream:
            frames = await stream.read_until(lambda frames: _pid(frames) is not None)
            task = await agent.call("CancelTask", id=frames[0].event["task"]["id"])
            assert task["status"]["state"] == "TASK_STATE_CANCELED"
        pid = _pid(frames)
        assert pid is not None
        await until(lambda: not alive(pid))
        assert why(await agent.send("pid")) == COMPLETED


async def test_a_module_that_cannot_be_loaded_fails_its_turns_with_the_reason(tmp_path: Path) -> None:
    async with _gateways(tmp_path, "import no_such_thing\n") as start:
        child = await start()
        async with a2a_http(child.url) as http:
            assert why(await A2A(http, "mine").send("Hi")) == failed(ErrorClass.BACKEND_FAILED)
            assert "No module named 'no_such_thing'" in _events(child, "turn.failed")[-1]["detail"]
            assert text_of(await A2A(http, "echo").send("Hi")) == "Hi"


async def test_a_tool_whose_process_dies_has_failed_and_the_other_one_works(gateway: Child) -> None:
    async with a2a_http(gateway.url) as http:
        agent = A2A(http, "tools")
        task = await agent.send("die_tool {}")
        assert why(task) == COMPLETED
        assert "its process ended with exit code 7" in _events(gateway, "tool.failed")[-1]["detail"]
        assert text_of(await agent.send('add_tool {"a": 2, "b": 3}')) == "told 5"
        assert why(await agent.send("die_tool {}")) == COMPLETED


def test_the_fixture_sees_what_isalive() -> None:
    assert alive(os.getpid())
