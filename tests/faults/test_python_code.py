"""Python agents and tools that exit, block, cancel themselves or stop their loop: one turn pays, and nobody else notices."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gateway.ports.adapter import ErrorClass
from gateway.testing.serving import serve
from tests.a2a_client import A2A, COMPLETED, Json, a2a_http, failed, text_of, why
from tests.emulators.responses_server import ResponsesServer
from tests.emulators.scripts import Call, Conversation, Say, Step
from tests.running import Child, child_gateways
from tests.support.polling import until

pytestmark = pytest.mark.xdist_group("python-code")

_SOURCE = '''
import asyncio
import signal
import sys
import threading
import time

go = threading.Event()


async def leave():
    sys.exit(3)


async def interrupt():
    raise KeyboardInterrupt


async def forever():
    await asyncio.Event().wait()


def interrupted(*_):
    raise KeyboardInterrupt


class Stop(BaseException):
    pass


async def fails(turn):
    loop = asyncio.get_running_loop()
    match turn.text:
        case "exits itself":
            sys.exit(3)
        case "is interrupted itself":
            raise KeyboardInterrupt
        case "stops itself":
            raise Stop
        case "exits in a task that it awaits":
            await loop.create_task(leave())
        case "exits in a task that nobody awaits":
            task = loop.create_task(leave())
            await forever()
        case "is interrupted in a task that nobody awaits":
            task = loop.create_task(interrupt())
            await forever()
        case "exits in a task group":
            async with asyncio.TaskGroup() as group:
                group.create_task(leave())
                group.create_task(forever())
        case "exits in gather":
            await asyncio.gather(leave(), forever())
        case "exits in a callback":
            loop.call_soon(sys.exit, 3)
            await forever()
        case "exits in a timer":
            loop.call_later(0.001, sys.exit, 3)
            await forever()
        case "is interrupted in a callback of a future":
            future = loop.create_future()
            future.add_done_callback(interrupted)
            future.set_result(None)
            await forever()
        case "exits in a callback from a thread":
            threading.Thread(target=loop.call_soon_threadsafe, args=(sys.exit, 1)).start()
            await forever()
        case "exits in to_thread":
            await asyncio.to_thread(sys.exit, 5)
        case "ignores that it has exited":
            task = loop.create_task(leave())
            while True:
                try:
                    await forever()
                except BaseException:
                    pass
        case "cancels itself":
            asyncio.current_task().cancel()
            await forever()
        case "cancels itself between two steps":
            asyncio.current_task().cancel()
        case "cancels all tasks":
            for task in asyncio.all_tasks():
                task.cancel()
            await forever()
        case "waits":
            yield "begun"
            await asyncio.to_thread(go.wait)
            yield " and ended"
            return
        case "raises CancelledError":
            raise asyncio.CancelledError
        case other:
            yield f"heard {other}"
            return
    yield "not reached"
    await asyncio.sleep(0)
    yield "not reached"


async def stops_its_loop(turn):
    yield "one "
    asyncio.get_running_loop().stop()
    await asyncio.sleep(0)
    yield "two"


async def spoils_its_loop(turn):
    loop = asyncio.get_running_loop()
    match turn.text:
        case "a factory of tasks that fails":
            loop.set_task_factory(lambda *given, **named: 1 / 0)
        case "a factory of nothing":
            loop.set_task_factory(lambda *given, **named: None)
        case "begins a task":
            loop.create_task(forever())
    yield "done"


async def waits(turn):
    yield "begun"
    await asyncio.to_thread(go.wait)
    yield " and ended"


def lets_go(turn):
    go.set()
    return "let go"


async def never_ends(turn):
    yield "waiting"
    await asyncio.to_thread(time.sleep, 3600)


async def blocks(turn):
    yield "blocking"
    time.sleep(float(turn.text))
    yield " over"


async def sends(turn):
    exec(turn.text)
    return "sent"


async def echo(turn):
    return turn.text


ticks = []


async def ticking(turn):
    async def tick():
        while True:
            ticks.append(None)
            await asyncio.sleep(0.001)

    if not ticks:
        turn.state["task"] = "begun"
        ticking.task = asyncio.get_running_loop().create_task(tick())
    seen = len(ticks)
    while len(ticks) < seen + 3:
        await asyncio.sleep(0)
    return f"{asyncio.current_task().get_loop() is ticking.task.get_loop()}"


async def exit_tool(how: str) -> str:
    """Exits."""
    loop = asyncio.get_running_loop()
    match how:
        case "task":
            task = loop.create_task(leave())
        case "callback":
            loop.call_soon(interrupted)
        case "itself":
            sys.exit(3)
        case "cancel":
            asyncio.current_task().cancel()
    await forever()


def block_tool(seconds: float) -> str:
    """Blocks."""
    time.sleep(seconds)
    return "slept"


async def async_block_tool(seconds: float) -> str:
    """Blocks its loop."""
    time.sleep(seconds)
    return "slept"
'''

_AGENTS = (
    "fails",
    "stops_its_loop",
    "spoils_its_loop",
    "waits",
    "lets_go",
    "blocks",
    "echo",
    "ticking",
    "never_ends",
    "sends",
)
_BLOCKED_AFTER = "100ms"


def _script(conversation: Conversation) -> Iterator[Step]:
    if conversation.tool_outputs:
        yield Say("told " + " ".join(conversation.tool_outputs.values()))
    else:
        name, _, argument = conversation.text.partition(" ")
        yield Call(name, json.loads(argument), call_id="c1")


@asynccontextmanager
async def _gateway(folder: Path, run_in: str = "thread") -> AsyncIterator[Child]:
    (folder / "stubborn.py").write_text(_SOURCE)
    common = f"type: python, blocked_after: {_BLOCKED_AFTER}, run_in: {run_in}"
    agents = [
        f"{name.replace('_', '-')}: {{{common}, ref: './stubborn.py:{name}', client_context_ids: allow}}"
        for name in _AGENTS
    ]
    tools = "\n".join(
        f"  {name.replace('_', '-')}: {{{common}, ref: './stubborn.py:{name}'}}"
        for name in ("exit_tool", "block_tool", "async_block_tool")
    )
    async with serve(ResponsesServer(_script).app) as url:
        names = "exit-tool, block-tool, async-block-tool"
        agents.append(f"tools: {{type: openai-responses, model: m, base_url: '{url}/v1', tools: [{names}]}}")
        settings = f"server: {{port: 0, shutdown_grace: 10s}}\ntools:\n{tools}"
        async with child_gateways("\n".join(agents), folder, settings=settings) as start:
            yield await start()


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Child]:
    async with _gateway(tmp_path) as child:
        yield child


def _events(child: Child, event: str) -> list[Json]:
    lines = (json.loads(line) for line in bytes(child.output).split(b"\n") if line.startswith(b"{"))
    return [line for line in lines if line["event"] == event]


_EXITS = (
    "exits itself",
    "is interrupted itself",
    "stops itself",
    "exits in a task that it awaits",
    "exits in a task that nobody awaits",
    "is interrupted in a task that nobody awaits",
    "exits in a task group",
    "exits in gather",
    "exits in a callback",
    "exits in a timer",
    "is interrupted in a callback of a future",
    "exits in a callback from a thread",
    "exits in to_thread",
    "ignores that it has exited",
    "cancels itself",
    "cancels itself between two steps",
    "cancels all tasks",
    "raises CancelledError",
)


@pytest.mark.fault("P1")
@pytest.mark.parametrize("run_in", ["thread", "process"])
async def test_code_that_ends_its_process_or_itself_fails_its_own_turn_only(tmp_path: Path, run_in: str) -> None:
    async with _gateway(tmp_path, run_in) as child, a2a_http(child.url) as http:
        agent = A2A(http, "fails")
        for text in _EXITS:
            task = await agent.send(text)
            assert why(task) == failed(ErrorClass.BACKEND_FAILED), text
            correlation = task["status"]["message"]["parts"][0]["text"].rpartition(" ")[2].strip(").")
            (line,) = (each for each in _events(child, "turn.failed") if each["correlation_id"] == correlation)
            assert line["agent"] == "fails"
            assert text_of(await agent.send("Hi")) == "heard Hi"
        child.signal(signal.SIGTERM)
        assert await child.ended() == 0


@pytest.mark.parametrize("code", ["import _thread; _thread.interrupt_main()", "signal.raise_signal(signal.SIGTERM)"])
async def test_a_signal_of_an_agent_to_its_own_process_drains_the_gateway(gateway: Child, code: str) -> None:
    async with a2a_http(gateway.url) as http, A2A(http, "sends").stream(code) as stream:
        await stream.rest()
    assert await gateway.ended() == 0
    assert len(_events(gateway, "drain.begun")) == 1


@pytest.mark.fault("P1")
async def test_a_turn_of_the_same_agent_goes_on_when_another_one_exits(tmp_path: Path) -> None:
    async with _gateway(tmp_path) as child, a2a_http(child.url) as http:
        async with A2A(http, "fails").stream("waits") as stream:
            await stream.read_until(lambda frames: "begun" in str(frames))
            # The first reaches into all turns of its agent, the second has none of its context.
            for text in set(_EXITS) - {"cancels all tasks", "exits in a callback from a thread"}:
                await A2A(http, "fails").send(text)
            assert why(await A2A(http, "lets-go").send("now")) == COMPLETED
            last = (await stream.rest())[-1].event["statusUpdate"]
        assert why(last) == COMPLETED


@pytest.mark.fault("P1")
async def test_code_that_stops_its_loop_does_not_end_it(gateway: Child) -> None:
    async with a2a_http(gateway.url) as http:
        for _ in range(2):
            assert text_of(await A2A(http, "stops-its-loop").send("Hi")) == "one two"


@pytest.mark.fault("P1")
@pytest.mark.parametrize("run_in", ["thread", "process"])
async def test_a_factory_of_tasks_that_fails_is_asked_for_the_tasks_of_the_code_alone(
    tmp_path: Path, run_in: str
) -> None:
    async with _gateway(tmp_path, run_in) as child, a2a_http(child.url) as http:
        agent = A2A(http, "spoils-its-loop")
        for spoiled in ("a factory of nothing", "a factory of tasks that fails"):
            assert text_of(await agent.send(spoiled)) == "done"
            assert text_of(await agent.send("Hi")) == "done"
        assert why(await agent.send("begins a task")) == failed(ErrorClass.BACKEND_FAILED)
        assert "ZeroDivisionError" in _events(child, "turn.failed")[-1]["detail"]
        child.signal(signal.SIGTERM)
        assert await child.ended() == 0
        assert _events(child, "python.not-ended") == []


@pytest.mark.fault("P1")
async def test_a_background_task_of_an_agent_goes_on_between_its_turns(gateway: Child) -> None:
    async with a2a_http(gateway.url) as http:
        for _ in range(3):
            assert text_of(await A2A(http, "ticking").send("Hi")) == "True"


@pytest.mark.fault("P1")
@pytest.mark.parametrize("how", ["task", "callback", "itself", "cancel"])
async def test_a_tool_that_exits_has_failed_and_its_turn_goes_on(gateway: Child, how: str) -> None:
    async with a2a_http(gateway.url) as http:
        task = await A2A(http, "tools").send(f'exit_tool {{"how": "{how}"}}')
        assert why(task) == COMPLETED
        assert text_of(task).startswith("told ")
        assert text_of(await A2A(http, "echo").send("Hi")) == "Hi"


@pytest.mark.fault("P2")
@pytest.mark.parametrize("run_in", ["thread", "process"])
async def test_an_agent_that_blocks_stops_nobody_else_and_the_log_names_its_line(tmp_path: Path, run_in: str) -> None:
    async with _gateway(tmp_path, run_in) as child, a2a_http(child.url) as http:
        async with A2A(http, "blocks").stream("3600") as stream:
            await stream.read_until(lambda frames: "blocking" in str(frames))
            for agent in ("echo", "fails"):
                assert why(await A2A(http, agent).send("Hi")) == COMPLETED
            assert (await http.get("/readyz")).status_code == 200
            await until(lambda: bool(_blocked(child)))
        line = _SOURCE.split("\n").index("    time.sleep(float(turn.text))") + 1
        (found,) = _blocked(child)
        assert found["file"] == str(tmp_path / "stubborn.py")
        assert (found["line"], found["function"]) == (line, "blocks")
        child.signal(signal.SIGTERM)
        child.signal(signal.SIGTERM)
        assert await child.ended() == 0


def _blocked(child: Child) -> list[Json]:
    """What the log says of the agent that blocks: on a busy machine any other may stand still for a moment."""
    return [line for line in _events(child, "python.blocked") if line["agent"] == "blocks"]


@pytest.mark.fault("P2")
async def test_a_block_is_told_once_and_its_end_with_how_long_it_took(gateway: Child) -> None:
    async with a2a_http(gateway.url) as http:
        assert text_of(await A2A(http, "blocks").send("1")) == "blocking over"
    await until(lambda: bool(_events(gateway, "python.unblocked")))
    assert len(_events(gateway, "python.blocked")) == 1
    (over,) = _events(gateway, "python.unblocked")
    assert over["agent"] == "blocks"
    assert over["seconds"] >= 0.5


@pytest.mark.fault("P2")
async def test_a_blocked_agent_can_be_cancelled(gateway: Child) -> None:
    async with a2a_http(gateway.url) as http:
        agent = A2A(http, "blocks")
        async with agent.stream("3600") as stream:
            frames = await stream.read_until(lambda frames: "blocking" in str(frames))
            task = await agent.call("CancelTask", id=frames[0].event["task"]["id"])
            assert task["status"]["state"] == "TASK_STATE_CANCELED"


@pytest.mark.fault("P2")
@pytest.mark.parametrize("tool", ["block_tool", "async_block_tool"])
async def test_a_tool_that_blocks_stops_nobody_else(gateway: Child, tool: str) -> None:
    async with a2a_http(gateway.url) as http, A2A(http, "tools").stream(f'{tool} {{"seconds": 1}}') as stream:
        await stream.read_until(lambda frames: "executing" in str(frames))
        assert why(await A2A(http, "echo").send("Hi")) == COMPLETED
        assert why((await stream.rest())[-1].event["statusUpdate"]) == COMPLETED


@pytest.mark.fault("P2")
async def test_the_end_of_the_process_does_not_wait_for_a_thread_that_goes_on(gateway: Child) -> None:
    async with a2a_http(gateway.url) as http, A2A(http, "never-ends").stream("Hi") as stream:
        await stream.read_until(lambda frames: "waiting" in str(frames))
        gateway.signal(signal.SIGTERM)
        gateway.signal(signal.SIGTERM)
        await stream.rest()
    assert await gateway.ended() == 0


async def test_ctrl_c_of_the_operator_drains_the_gateway(gateway: Child) -> None:
    async with a2a_http(gateway.url) as http, A2A(http, "waits").stream("Hi") as stream:
        await stream.read_until(lambda frames: "begun" in str(frames))
        await A2A(http, "lets-go").send("now")
        gateway.signal(signal.SIGINT)
        await stream.rest()
    async with asyncio.timeout(60):
        assert await gateway.ended() == 0
