"""A turn that fails leaves no reference cycle: its frames would keep the whole message in memory until the next collection,
which counts objects and not bytes."""

import types
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from ipaddress import ip_network
from itertools import count
from pathlib import Path
from typing import Never

import pytest
import uvloop

import gateway
from adapters.http.client import HttpClient
from adapters.http.failures import Failures
from adapters.http.settings import Timeouts
from adapters.tools.http import HttpTool, HttpToolSettings
from gateway.core.agents import Agent, Agents
from gateway.core.described_card import AgentCards, DescribedCard
from gateway.engine.cancellation import cancel_at_backend
from gateway.engine.tool_sources import AttachedSource, SourceToolset
from gateway.foundation.addresses import TargetRules
from gateway.foundation.clock import Clock
from gateway.foundation.resolver import Resolver
from gateway.foundation.retry import WINDOW
from gateway.foundation.tracebacks import drop_tracebacks
from gateway.http.card_refresh import CardRefresh
from gateway.maintenance.backend_deletions import Deletions
from gateway.ports.adapter import AdapterError, ErrorClass
from gateway.ports.capabilities import Backend, Description, Ongoing
from gateway.ports.tools import SourceTool, ToolError, ToolOutput, ToolRun
from gateway.push.sender import Sender
from tests.a2a_client import A2A, a2a_http, streamed_text, why
from tests.adapters.raw_server import Exchange
from tests.contract.backends import ROWS, Row
from tests.contract.bench import Bench, Caller, plays, state_of
from tests.contract.situations import TWO_CALLS
from tests.emulators.scripts import Say, in_rounds
from tests.faults.broken_backends import FAULTS, WIRES, agent_of, broken_backends
from tests.faults.raw_backends import raw_backend
from tests.garbage import left_behind
from tests.running import AT_ONCE, StartLocal
from tests.support.core import START, Core, running_core
from tests.support.refusing import refusing_port
from tests.support.rows import change
from tests.support.scripted import BR, ScriptedAdapter

_ROOT = Path(gateway.__file__).parents[1]
_OURS = tuple(f"{_ROOT / package}/" for package in ("gateway", "adapters", "storage"))


def _ours(left: list[object]) -> list[str]:
    """The frames of our functions, and the objects of our classes; not those of adapters, as a connection that aiohttp has
    closed is a ring of its own."""
    codes = {one.f_code for one in left if isinstance(one, types.FrameType)}
    frames = {
        f"{Path(code.co_filename).name}: {code.co_qualname}"
        for code in codes
        if code.co_filename.startswith(_OURS) and "/testing/" not in code.co_filename
    }
    kinds = {f"{type(one).__module__}.{type(one).__qualname__}" for one in left}
    return sorted(frames | {kind for kind in kinds if kind.startswith(("gateway.", "storage."))})


async def _left_by(caller: A2A, text: str) -> list[str]:
    state, _ = why(await caller.send(text))
    with left_behind() as found:
        # All of the first one is over when the last has ended.
        for _ in range(3):
            assert why(await caller.send(text))[0] == state == "TASK_STATE_FAILED"
        return _ours(found())


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("name", FAULTS)
async def test_a_turn_whose_backend_fails_leaves_no_ring_of_objects(
    start_local: StartLocal, wire: str, name: str
) -> None:
    # So much time passes that no failure lies near another: the backend is never left alone.
    seldom = Clock(monotonic=partial(next, count(step=WINDOW)))
    async with broken_backends() as broken:
        started = await start_local(broken.agents, clock=seldom, pace=AT_ONCE)
        async with a2a_http(started.url) as http:
            assert await _left_by(A2A(http, agent_of(wire, name)), name) == []


_TURNS = [(row, how) for row in ROWS for how in ("blocking", "stream", "tools") if how != "tools" or row.calls]


@pytest.mark.parametrize(("row", "how"), _TURNS, ids=lambda each: getattr(each, "name", each))
def test_a_turn_that_completes_leaves_no_ring_of_objects(tmp_path: Path, row: Row, how: str) -> None:
    """On the event loop that the gateway runs on: what a loop keeps of a task is its own."""
    bench, done = Bench(row, tmp_path), [Say("Done", chunks=3)]
    bench.script = in_rounds(TWO_CALLS, done) if how == "tools" else plays(*done)

    async def turn(caller: Caller, text: str) -> None:
        if how == "stream":
            async with caller.agent.stream(text) as stream:
                assert streamed_text(await stream.rest()) == "Done"
        else:
            assert state_of(await caller.say(text)) == "COMPLETED"

    async def left_by_turns() -> list[str]:
        await bench.start_backend()
        try:
            async with bench.caller() as caller:
                await turn(caller, "one")
                with left_behind() as found:
                    # All of the first one is over when the last has ended.
                    for number in range(5):
                        await turn(caller, f"text {number}")
                    return _ours(found())
        finally:
            await bench.stop_backend()

    assert uvloop.run(left_by_turns()) == []


_FUNCTIONS = """
import asyncio


def plain(turn):
    raise RuntimeError("no")


def generator(turn):
    yield "x"
    raise RuntimeError("no")


async def coroutine(turn):
    raise RuntimeError("no")


async def stream(turn):
    yield "x"
    raise RuntimeError("no")


async def waiting(turn):
    yield "x"
    await asyncio.Event().wait()
"""


@pytest.mark.parametrize("function", ["plain", "generator", "coroutine", "stream"])
async def test_a_turn_whose_function_raises_leaves_no_ring_of_objects(
    start_local: StartLocal, tmp_path: Path, function: str
) -> None:
    (tmp_path / "raising.py").write_text(_FUNCTIONS)
    started = await start_local(f"raising: {{type: python, ref: './raising.py:{function}'}}")
    async with a2a_http(started.url) as http:
        assert await _left_by(A2A(http, "raising"), "Hi") == []


_LONG = """
def reply(text):
    return "x" * 600_000
"""


@pytest.mark.parametrize("read", ["GetTask", "ListTasks", "SubscribeToTask", "REST"])
async def test_a_task_with_a_long_text_is_read_without_a_ring_of_objects(
    start_local: StartLocal, tmp_path: Path, read: str
) -> None:
    (tmp_path / "long.py").write_text(_LONG)
    started = await start_local("long: {type: python, ref: './long.py:reply'}")
    async with a2a_http(started.url) as http:
        caller = A2A(http, "long")
        task = (await caller.send("Hi"))["id"]

        async def answer() -> int:
            match read:
                case "GetTask":
                    return len(str(await caller.get(task)))
                case "ListTasks":
                    return len(str(await caller.call("ListTasks", includeArtifacts=True)))
                case "REST":
                    return len((await http.get(f"/a2a/long/tasks/{task}")).content)
            async with caller.subscribe(task, after=1) as stream:
                return len(str(await stream.rest()))

        await answer()
        with left_behind() as found:
            assert [await answer() > 600_000 for _ in range(3)] == [True] * 3
            assert _ours(found()) == []


async def test_a_turn_whose_process_does_not_start_leaves_no_ring_of_objects(
    start_local: StartLocal, tmp_path: Path
) -> None:
    (tmp_path / "ending.py").write_text("import os; os._exit(3)")
    started = await start_local("ending: {type: python, ref: './ending.py:agent', run_in: process}", pace=AT_ONCE)
    async with a2a_http(started.url) as http:
        assert await _left_by(A2A(http, "ending"), "Hi") == []


async def test_a_turn_that_is_cancelled_leaves_no_ring_of_objects(start_local: StartLocal, tmp_path: Path) -> None:
    (tmp_path / "waiting.py").write_text(_FUNCTIONS)
    started = await start_local("waiting: {type: python, ref: './waiting.py:waiting'}")

    async def cancelled(caller: A2A) -> str:
        async with caller.stream("Hi") as stream:
            await stream.read_until(lambda frames: streamed_text(frames) == "x")
            task = (await stream.read(1))[0].event["task"]["id"]
            state, _ = why(await caller.call("CancelTask", id=task))
            await stream.rest()
        return state

    async with a2a_http(started.url) as http:
        caller = A2A(http, "waiting")
        await cancelled(caller)
        with left_behind() as found:
            assert [await cancelled(caller) for _ in range(3)] == ["TASK_STATE_CANCELED"] * 3
            assert _ours(found()) == []


# --- failures whose cause is not told on


async def _over(failing: Awaitable[object]) -> None:
    """As the callers that turn such a failure into another one."""
    try:
        await failing
    except (AdapterError, ToolError) as error:
        drop_tracebacks(error)


async def test_a_tool_that_nobody_serves_leaves_no_ring_of_objects() -> None:
    settings = {"url": f"http://127.0.0.1:{refusing_port()}/", "description": "d", "method": "POST"}
    tool = HttpTool(HttpToolSettings.model_validate(settings))
    run = ToolRun("t", {"q": "x"}, "key", "c", "p")
    with left_behind() as found:
        for _ in range(2):
            await _over(tool.run(run))
        assert _ours(found()) == []
    await tool.aclose()


async def test_a_receiver_that_is_not_there_leaves_no_ring_of_objects() -> None:
    rules = TargetRules(http=True, ports=(), networks=(ip_network("127.0.0.0/8"),))
    lookup = Resolver(rules.permit)
    sender, url = Sender(rules, lookup, 5.0, Clock()), f"http://127.0.0.1:{refusing_port()}/"
    with left_behind() as found:
        assert not any([(await sender.post(url, {}, b"{}")).delivered for _ in range(2)])
        assert _ours(found()) == []
    await sender.aclose()
    lookup.close()


@pytest.mark.parametrize("sent", [b"nonsense\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}"])
async def test_an_answer_that_is_no_http_or_is_cut_leaves_no_ring_of_objects(sent: bytes) -> None:
    async def answer(exchange: Exchange) -> None:
        await exchange.send(sent)
        exchange.writer.close()

    async with raw_backend(answer) as server:
        client = HttpClient(Timeouts(), Failures(()))
        with left_behind() as found:
            for _ in range(2):
                await _over(client.request_json("GET", server.url))
            assert _ours(found()) == []
        await client.aclose()


# --- failures of plug-ins that only a log tells


class Ringing(ScriptedAdapter):
    """Its failures hold the frames that hold them, as those of HTTP clients do."""

    def __init__(self) -> None:
        super().__init__(BR)
        self.backend = Backend("http://ringing")

    async def forget(self, handle: str) -> None:
        await self._fail()

    async def cancel(self, call: Ongoing) -> bool:
        return await self._fail()

    async def describe(self) -> Description:
        return await self._fail()

    async def tools(self) -> tuple[SourceTool, ...]:
        failed = ToolError("refused")
        raise failed

    async def run(self, run: ToolRun) -> ToolOutput:
        raise NotImplementedError

    async def _fail(self) -> Never:
        failed = AdapterError(ErrorClass.UNREACHABLE, "refused")
        raise failed


async def _deletion(core: Core, agent: Agent) -> None:
    change(core.path, "INSERT INTO delete_job VALUES ('t', ?, 'r-1', ?, 0)", agent.name, START)
    await Deletions(core.ledger, lambda: Agents((agent,)), core.time.clock, core.duties).run_due()


async def _cancellation(_: Core, agent: Agent) -> None:
    assert await cancel_at_backend(agent, "task", Ongoing("r-1")) is False


async def _description(core: Core, agent: Agent) -> None:
    card = agent.card
    described = replace(agent, described=DescribedCard(lambda _: AgentCards(card), AgentCards(card)))
    assert await CardRefresh(lambda: Agents((described,)), core.time.clock, 300.0).ask_due() is not None


async def _listing(_: Core, agent: Agent) -> None:
    assert isinstance(agent.adapter, Ringing)
    source = AttachedSource("away", "mcp", agent.adapter, required=False)
    assert await SourceToolset([source]).offered() == {}


@pytest.mark.parametrize("ask", [_deletion, _cancellation, _description, _listing])
async def test_a_failure_that_only_a_log_tells_leaves_no_ring_of_objects(
    tmp_path: Path, ask: Callable[[Core, Agent], Awaitable[None]]
) -> None:
    async with running_core(tmp_path / "ledger.db") as core:
        agent = core.agent(Ringing())
        with left_behind() as found:
            await ask(core, agent)
            assert _ours(found()) == []
