"""A Python function that fails leaves no reference cycle, wherever it runs: the frames would keep its message in memory until
the next collection, which counts objects and not bytes."""

import json
from pathlib import Path

import pytest

import gateway
from adapters.python.tool import PythonTool, PythonToolSettings
from gateway.foundation.tracebacks import drop_tracebacks
from gateway.ports.tools import ToolError, ToolOutput, ToolRun
from tests.a2a_client import A2A, a2a_http, streamed_text, text_of, why
from tests.running import StartLocal

pytestmark = pytest.mark.xdist_group("python-process")

_ROOT = Path(gateway.__file__).parents[1]

_SOURCE = f"""
import asyncio
import gc
import json
import sys
import threading
import time
import types

from gateway.agent import InputRequired, Reject

OURS = ("{_ROOT}/gateway/", "{_ROOT}/adapters/", __file__)


def watch(_):
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)


def left(_):
    for thread in threading.enumerate():
        if thread.name == "python-agent" and thread is not threading.current_thread():
            thread.join()
    gc.collect()
    codes = {{one.f_code for one in gc.garbage if isinstance(one, types.FrameType)}}
    gc.set_debug(0)
    gc.garbage.clear()
    gc.enable()
    return json.dumps(sorted(code.co_qualname for code in codes if code.co_filename.startswith(OURS)))


def fail():
    raise ValueError("no")


def plain(turn):
    fail()


def generator(turn):
    yield "x"
    fail()


async def coroutine(turn):
    fail()


async def stream(turn):
    yield "x"
    fail()


def keeps_its_error(turn):
    try:
        fail()
    except ValueError as error:
        kept = error
        raise


async def keeps_its_error_on_the_loop(turn):
    keeps_its_error(turn)


def stops(turn):
    raise StopIteration


def rejects(turn):
    raise Reject("no")


def rejects_late(turn):
    yield "x"
    raise Reject("no")


async def rejects_on_the_loop(turn):
    raise Reject("no")


async def asks(turn):
    yield "x"
    raise InputRequired("what?")


def says_no_value(turn):
    yield object()


async def says_no_value_on_the_loop(turn):
    yield object()


def returns_a_value(turn):
    yield "x"
    return "y"


def fails_at_its_close(turn):
    try:
        yield object()
    finally:
        fail()


async def fails_at_its_close_on_the_loop(turn):
    try:
        yield object()
    finally:
        fail()


async def forgives_a_thread(turn):
    try:
        await asyncio.to_thread(fail)
    except ValueError:
        return "forgiven"


async def fails_in_a_thread(turn):
    await asyncio.to_thread(fail)


def exits(turn):
    sys.exit(3)


async def exits_on_the_loop(turn):
    sys.exit(3)


async def exits_in_a_task(turn):
    async def leave():
        sys.exit(3)

    await asyncio.create_task(leave())


async def exits_in_a_callback(turn):
    asyncio.get_running_loop().call_soon(sys.exit, 3)
    await asyncio.Event().wait()


def waits(turn):
    yield "x"
    while not turn.asked_to_stop():
        time.sleep(0.01)
    fail()


def waits_at_once(turn):
    while not turn.asked_to_stop():
        time.sleep(0.01)
    fail()


async def waits_on_the_loop(turn):
    yield "x"
    await asyncio.Event().wait()


def returns_no_json(turn):
    return object()


def agent(turn):
    return globals()[turn.text](turn)


def tool(way: str):
    return globals()[way](None)


async def tool_on_the_loop(way: str):
    result = globals()[way](None)
    return await result if asyncio.iscoroutine(result) else result
"""

_FAILED, _REJECTED, _CANCELED = "TASK_STATE_FAILED", "TASK_STATE_REJECTED", "TASK_STATE_CANCELED"
_STATES = {
    "plain": _FAILED,
    "generator": _FAILED,
    "coroutine": _FAILED,
    "stream": _FAILED,
    "keeps_its_error": _FAILED,
    "keeps_its_error_on_the_loop": _FAILED,
    "stops": _FAILED,
    "rejects": _REJECTED,
    "rejects_late": _REJECTED,
    "rejects_on_the_loop": _REJECTED,
    "asks": "TASK_STATE_INPUT_REQUIRED",
    "says_no_value": _FAILED,
    "says_no_value_on_the_loop": _FAILED,
    "returns_a_value": _FAILED,
    "fails_at_its_close": _FAILED,
    "fails_at_its_close_on_the_loop": _FAILED,
    "forgives_a_thread": "TASK_STATE_COMPLETED",
    "fails_in_a_thread": _FAILED,
    "exits": _FAILED,
    "exits_on_the_loop": _FAILED,
    "exits_in_a_task": _FAILED,
    "exits_in_a_callback": _FAILED,
}


def _agent(folder: Path, run_in: str) -> str:
    (folder / "failing.py").write_text(_SOURCE)
    return f"failing: {{type: python, ref: './failing.py:agent', run_in: {run_in}}}"


async def _left(caller: A2A) -> list[str]:
    """The names of the functions whose frames were left since `watch`."""
    found: list[str] = json.loads(text_of(await caller.send("left")))
    return found


@pytest.mark.parametrize("run_in", ["thread", "process"])
async def test_a_function_that_fails_leaves_no_ring_of_objects(
    start_local: StartLocal, tmp_path: Path, run_in: str
) -> None:
    started = await start_local(_agent(tmp_path, run_in))
    states, left = {}, {}
    async with a2a_http(started.url) as http:
        caller = A2A(http, "failing")
        for way in _STATES:
            await caller.send("watch")
            states[way], _ = why(await caller.send(way))
            # All of the first one is over when the next has ended.
            await caller.send(way)
            left[way] = await _left(caller)
    assert {way: names for way, names in left.items() if names} == {}
    assert states == _STATES


@pytest.mark.parametrize("run_in", ["thread", "process"])
async def test_a_function_that_is_cancelled_leaves_no_ring_of_objects(
    start_local: StartLocal, tmp_path: Path, run_in: str
) -> None:
    async def cancelled(way: str) -> str:
        async with caller.stream(way) as stream:
            task = (await stream.read(1))[0].event["task"]["id"]
            if way != "waits_at_once":
                await stream.read_until(lambda frames: streamed_text(frames) == "x")
            state, _ = why(await caller.call("CancelTask", id=task))
            await stream.rest()
        return state

    started = await start_local(_agent(tmp_path, run_in))
    left = {}
    async with a2a_http(started.url) as http:
        caller = A2A(http, "failing")
        for way in ("waits", "waits_at_once", "waits_on_the_loop"):
            await caller.send("watch")
            assert [await cancelled(way) for _ in range(2)] == [_CANCELED] * 2
            left[way] = await _left(caller)
    assert {way: names for way, names in left.items() if names} == {}


_IN_A_THREAD = ["plain", "keeps_its_error", "stops", "exits", "returns_no_json"]
_ON_THE_LOOP = ["coroutine", "fails_in_a_thread", "exits_on_the_loop", "exits_in_a_task"]


@pytest.mark.parametrize("run_in", ["thread", "process"])
@pytest.mark.parametrize(("function", "ways"), [("tool", _IN_A_THREAD), ("tool_on_the_loop", _ON_THE_LOOP)])
async def test_a_tool_that_fails_leaves_no_ring_of_objects(
    tmp_path: Path, run_in: str, function: str, ways: list[str]
) -> None:
    (tmp_path / "failing.py").write_text(_SOURCE)
    settings = {"ref": f"./failing.py:{function}", "run_in": run_in}
    tool = PythonTool(PythonToolSettings.model_validate(settings, context={"base_dir": tmp_path}))

    async def run(way: str) -> ToolOutput:
        return await tool.run(ToolRun("t", {"way": way}, "key", "c", "p"))

    async def fails(way: str) -> bool:
        """As the loop of tools, which turns the failure into another one."""
        try:
            await run(way)
        except ToolError as error:
            drop_tracebacks(error)
            return True
        return False

    left = {}
    for way in ways:
        await run("watch")
        assert [await fails(way) for _ in range(2)] == [True] * 2
        left[way] = (await run("left")).output
    await tool.aclose()
    assert {way: names for way, names in left.items() if names != "[]"} == {}
