"""The two ends of a call: how far a function may be ahead, what wakes whom, which loop is whose."""

import asyncio
import contextvars
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from adapters.python import wire
from adapters.python.calls import WINDOW, weight
from adapters.python.function import PythonFunction, PythonSettings
from adapters.python.loop_thread import LoopThread, Mailbox, do_all
from adapters.python.tool import PythonTool, PythonToolSettings
from gateway.a2a.model import Artifact, Part
from gateway.agent import Turn
from gateway.foundation.lines import Lines
from gateway.ports import adapter as port
from gateway.ports.adapter import CallStarted, TextDelta
from gateway.ports.tools import ToolOutput, ToolRun
from gateway.testing.adapter_scripts import BOUND, collect, failure, request, text
from tests.adapters.python.python_agents import agent_of
from tests.support.polling import until

# --- how far a function may be ahead


@pytest.mark.parametrize("kind", ["generator", "async generator"])
@pytest.mark.parametrize(("size", "most"), [(1, WINDOW), (4096, WINDOW // 2), (1_000_000, 1)])
async def test_a_function_is_ahead_of_its_reader_by_a_bounded_amount(kind: str, size: int, most: int) -> None:
    made = 0

    def steps(turn: Turn) -> Iterator[str]:
        nonlocal made
        while True:
            made += 1
            yield "x" * size

    async def async_steps(turn: Turn) -> AsyncIterator[str]:
        for value in steps(turn):
            yield value

    async with aclosing(agent_of(steps if kind == "generator" else async_steps).call(request("Hi"))) as events:
        assert await anext(events) == CallStarted()
        await anext(events)
        await until(lambda: made >= most)
        for _ in range(20):
            await asyncio.sleep(0.001)
        assert made <= most + 1
        for _ in range(3 * WINDOW):
            await anext(events)


def test_long_texts_weigh_more() -> None:
    assert [weight(TextDelta("x" * length)) for length in (0, 4095, 4096, 1 << 20)] == [1, 1, 2, 257]


async def test_many_values_at_once_come_in_their_order() -> None:
    async def count(turn: Turn) -> AsyncIterator[str]:
        for number in range(1000):
            yield f"{number} "

    assert text(await collect(agent_of(count), request("Hi"))).split() == [str(number) for number in range(1000)]


async def test_what_is_yielded_and_changed_afterwards_is_what_was_yielded() -> None:
    async def steps(turn: Turn) -> AsyncIterator[Any]:
        part = {"data": [1]}
        yield part
        part["data"].append(2)
        yield part

    events = await collect(agent_of(steps), request("Hi"))
    assert events[1:3] == [port.PartReady(Part(data=[1])), port.PartReady(Part(data=[1, 2]))]


async def test_a_value_that_is_not_allowed_ends_the_function_at_its_yield() -> None:
    reached: list[str] = []

    async def steps(turn: Turn) -> AsyncIterator[Any]:
        try:
            yield object()
            reached.append("next step")
        finally:
            reached.append("closed")

    assert (await failure(agent_of(steps))).kind is port.ErrorClass.CONTRACT_BROKEN
    assert reached == ["closed"]


# --- letters


async def test_letters_that_come_together_are_delivered_together() -> None:
    loop = asyncio.get_running_loop()
    delivered: list[list[int]] = []
    wakes = 0

    def wake(look: Any) -> None:
        nonlocal wakes
        wakes += 1
        loop.call_soon(look)

    mailbox = Mailbox[int](wake, delivered.append)
    for number in range(5):
        mailbox.post(number)
    await asyncio.sleep(0)
    mailbox.post(5)
    await asyncio.sleep(0)
    assert (delivered, wakes) == ([[0, 1, 2, 3, 4], [5]], 2)


async def test_no_letter_is_lost_between_two_threads() -> None:
    loop, got = asyncio.get_running_loop(), []
    done = asyncio.Event()

    def take(letters: list[int]) -> None:
        got.extend(letters)
        if len(got) == 20_000:
            done.set()

    mailbox = Mailbox[int](loop.call_soon_threadsafe, take)

    def send(start: int) -> None:
        for number in range(start, start + 10_000):
            mailbox.post(number)

    threads = [threading.Thread(target=send, args=(start,)) for start in (0, 10_000)]
    for thread in threads:
        thread.start()
    async with asyncio.timeout(BOUND):
        await done.wait()
    assert sorted(got) == list(range(20_000))
    assert [number for number in got if number < 10_000] == list(range(10_000))


async def test_a_letter_to_a_closed_loop_is_lost_in_silence() -> None:
    thread = LoopThread({}, lambda *_: None)
    thread.start()
    await asyncio.wrap_future(thread.close())
    Mailbox(thread.loop.call_soon_threadsafe, do_all).post(lambda: None)


async def test_the_end_of_a_loop_cancels_its_tasks_and_waits_for_them() -> None:
    thread = LoopThread({}, lambda *_: None)
    ended = threading.Event()

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.set()

    thread.start()
    tasks: list[asyncio.Task[None]] = []
    thread.loop.call_soon_threadsafe(lambda: tasks.append(thread.loop.create_task(work())))
    await until(lambda: bool(tasks))
    await asyncio.wrap_future(thread.close())
    assert ended.is_set()
    assert thread.loop.is_closed()


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()])
async def test_what_stops_a_loop_is_told_with_the_context_of_its_callback(error: BaseException) -> None:
    name = contextvars.ContextVar("name", default="nobody")
    told: list[tuple[BaseException, str]] = []

    def escaped(found: BaseException, context: contextvars.Context | None) -> None:
        assert context is not None
        told.append((found, context.get(name, "nobody")))

    thread = LoopThread({}, escaped)
    thread.start()

    def fail() -> None:
        raise error

    async def fail_in_a_task() -> None:
        fail()

    tasks: list[asyncio.Task[None]] = []
    begins: tuple[Callable[[], object], ...] = (
        partial(thread.loop.call_soon, fail),
        partial(thread.loop.call_later, 0, fail),
        lambda: tasks.append(thread.loop.create_task(fail_in_a_task())),
    )
    for number, begin in enumerate(begins):
        context = contextvars.copy_context()
        context.run(name.set, str(number))
        thread.loop.call_soon_threadsafe(begin, context=context)
        await until(lambda: len(told) == number + 1)  # noqa: B023
    await asyncio.wrap_future(thread.close())
    assert told == [(error, "0"), (error, "1"), (error, "2")]


# --- which loop is whose

_MODULE = """
import asyncio

async def agent(turn): return str(id(asyncio.get_running_loop()))

async def other(turn): return str(id(asyncio.get_running_loop()))

async def tool() -> str: return str(id(asyncio.get_running_loop()))

async def another_tool() -> str: return str(id(asyncio.get_running_loop()))
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "shared.py").write_text(_MODULE)
    return tmp_path


def _agent(folder: Path, name: str, function: str = "agent") -> PythonFunction:
    context = {"base_dir": folder, "name": name}
    return PythonFunction(PythonSettings.model_validate({"ref": f"./shared.py:{function}"}, context=context))


async def _loop_of(adapter: PythonFunction) -> str:
    return text(await collect(adapter, request("Hi")))


async def test_each_agent_has_a_loop_and_keeps_it_over_a_reload(module: Path) -> None:
    one, same_function, other = _agent(module, "one"), _agent(module, "two"), _agent(module, "other", "other")
    loops = [await _loop_of(each) for each in (one, same_function, other)]
    assert len(set(loops)) == 3
    reloaded = _agent(module, "one")
    await one.aclose()
    await one.aclose()
    assert await _loop_of(reloaded) == loops[0]
    for each in (reloaded, same_function, other):
        await each.aclose()


async def test_the_tools_of_a_module_share_a_loop_that_ends_with_the_last_of_them(module: Path) -> None:
    tools = [
        PythonTool(PythonToolSettings.model_validate({"ref": f"./shared.py:{name}"}, context={"base_dir": module}))
        for name in ("tool", "another_tool")
    ]
    runs = [await each.run(ToolRun("t", {}, "key", "ctx", "me")) for each in tools]
    assert runs[0] == runs[1]
    before = threading.active_count()
    await tools[0].aclose()
    assert await tools[1].run(ToolRun("t", {}, "key", "ctx", "me")) == runs[0]
    await tools[1].aclose()
    await until(lambda: threading.active_count() < before)


async def test_no_thread_begins_before_the_first_call(module: Path) -> None:
    before = set(threading.enumerate())
    adapter = _agent(module, "one")
    assert set(threading.enumerate()) <= before
    await adapter.aclose()


# --- the wire


@pytest.mark.parametrize(
    "value",
    [
        TextDelta("a\nb\u2028\0"),
        port.PartReady(Part(data=None)),
        port.PartReady(Part(text="t", metadata={"a": [10**19, 1.5]})),
        port.ArtifactReady(Artifact(artifact_id="a", parts=(Part(raw="AA=="),)), append=True),
        port.Progress("p"),
        port.ToolCallAnnounced("c", "n"),
        port.ToolCallReady("c", "n", "{}", handled=True),
        port.ToolResultReady("c", {"a": None}, error=True),
        port.CallCompleted(ending=port.Ending.REJECTED, message=(Part(text="no"),), state={"n": 1}),
        port.DirectReply((Part(text="hi"),), {"n": 1}),
        ToolOutput(None),
    ],
)
def test_every_value_of_a_function_travels_as_one_line(value: object) -> None:
    line = wire.encode_value(7, value)
    assert b"\n" not in line
    message = wire.from_process.decode(line)
    assert isinstance(message, wire.Value)
    assert (message.number, wire.value_of(message)) == (7, value)


def test_lines_are_put_together_from_pieces_of_any_size() -> None:
    whole = b"one\n\ntwo\nthree\n"
    for size in range(1, len(whole) + 1):
        got: list[bytes] = []
        lines = Lines(got.append, lambda: None)
        for at in range(0, len(whole), size):
            lines.data_received(whole[at : at + size])
        assert got == [b"one", b"", b"two", b"three"]
