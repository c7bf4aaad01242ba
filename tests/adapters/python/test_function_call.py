"""Functions of every kind. None can block the event loop, hide a failure, or prevent its cancellation."""

import asyncio
import contextlib
import contextvars
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from functools import partial
from typing import Any

import pytest
from structlog.testing import capture_logs

from gateway.agent import Turn
from gateway.ports.adapter import AdapterError, CallStarted, ErrorClass, TextDelta
from gateway.testing.adapter_scripts import collect, failure, request, text
from gateway.testing.checks import BOUND
from tests.adapters.python.python_agents import agent_of, events_of


def plain(text: str) -> str:
    return f"heard {text}"


async def coroutine(text: str) -> str:
    return f"heard {text}"


def generator(text: str) -> Iterator[str]:
    yield "heard "
    yield text


async def async_generator(text: str) -> AsyncIterator[str]:
    yield "heard "
    yield text


def disguised_coroutine(text: str) -> Any:
    return coroutine(text)


def disguised_generator(text: str) -> Any:
    return generator(text)


def disguised_async_generator(text: str) -> Any:
    return async_generator(text)


async def coroutine_with_a_generator(text: str) -> Any:
    return generator(text)


class Callable_:  # noqa: N801
    async def __call__(self, text: str) -> str:
        return f"heard {text}"


@pytest.mark.parametrize(
    "function",
    [
        plain,
        coroutine,
        generator,
        async_generator,
        disguised_coroutine,
        disguised_generator,
        disguised_async_generator,
        coroutine_with_a_generator,
        Callable_(),
        partial(lambda greeting, text: f"{greeting} {text}", "heard"),
        lambda text: [*generator(text)],
    ],
)
async def test_every_kind_of_function_answers(function: object) -> None:
    assert text(await collect(agent_of(function), request("Hi"))) == "heard Hi"


def by_annotation(words: str) -> str:
    return type(words).__name__


def by_written_annotation(words: "str") -> str:
    return type(words).__name__


def by_name(text):  # type: ignore[no-untyped-def]
    return type(text).__name__


def by_default(turn):  # type: ignore[no-untyped-def]
    return type(turn).__name__


def by_other_annotation(turn: Turn, unused: int = 0) -> str:
    return type(turn).__name__


def by_any_number(*given: Any) -> str:
    return type(given[0]).__name__


@pytest.mark.parametrize(
    ("function", "gets"),
    [
        (by_annotation, "str"),
        (by_written_annotation, "str"),
        (by_name, "str"),
        (by_default, "Turn"),
        (by_other_annotation, "Turn"),
        (by_any_number, "Turn"),
    ],
)
async def test_a_function_gets_the_text_if_its_signature_asks_for_it_and_else_the_turn(
    function: object, gets: str
) -> None:
    assert text(await collect(agent_of(function), request("Hi"))) == gets


# --- failures ------------------------------------------------------------
def fails(turn: Turn) -> str:
    raise KeyError("no such thing")


async def fails_in_a_coroutine(turn: Turn) -> str:
    return fails(turn)


def fails_between(turn: Turn) -> Iterator[str]:
    yield "so far"
    fails(turn)


async def fails_between_async(turn: Turn) -> AsyncIterator[str]:
    yield "so far"
    fails(turn)


def stops_iterating(turn: Turn) -> str:
    raise StopIteration


def exits(turn: Turn) -> None:
    sys.exit(3)


async def exits_in_a_coroutine(turn: Turn) -> None:
    sys.exit(3)


async def is_not_cancelled_but_says_so(turn: Turn) -> None:
    raise asyncio.CancelledError


async def times_out_by_itself(turn: Turn) -> None:
    raise TimeoutError("mine")


@pytest.mark.parametrize(
    ("function", "named"),
    [
        (fails, "KeyError: 'no such thing'"),
        (fails_in_a_coroutine, "KeyError: 'no such thing'"),
        (fails_between, "KeyError: 'no such thing'"),
        (fails_between_async, "KeyError: 'no such thing'"),
        (stops_iterating, "StopIteration"),
        (exits, "SystemExit: 3"),
        (exits_in_a_coroutine, "SystemExit: 3"),
        (is_not_cancelled_but_says_so, "CancelledError"),
        (times_out_by_itself, "TimeoutError: mine"),
    ],
)
async def test_any_other_exception_fails_the_turn_and_is_logged(function: object, named: str) -> None:
    error = await failure(agent_of(function))
    assert error.kind is ErrorClass.BACKEND_FAILED
    assert named in error.detail


async def test_the_log_learns_where_it_happened_but_not_everything() -> None:
    def long(turn: Turn) -> None:
        raise ValueError("x" * 10_000)

    assert "in fails" in (await failure(agent_of(fails_in_a_coroutine))).detail
    assert len((await failure(agent_of(long))).detail) <= 2001


# --- threads, cancelling ------------------------------------------------------------

WHO: contextvars.ContextVar[str] = contextvars.ContextVar("WHO", default="nobody")


def wait_for(event: threading.Event) -> None:
    assert event.wait(BOUND)


async def test_a_function_that_blocks_does_not_block_the_loop() -> None:
    go = threading.Event()

    def block(turn: Turn) -> str:
        wait_for(go)
        return "went on"

    async with asyncio.TaskGroup() as group:
        answer = group.create_task(collect(agent_of(block), request("Hi")))
        await asyncio.sleep(0)
        go.set()
    assert text(answer.result()) == "went on"


async def test_a_generator_that_blocks_keeps_its_thread_and_its_context_variables() -> None:
    threads: list[int] = []

    def steps(turn: Turn) -> Iterator[str]:
        yield WHO.get()
        threads.append(threading.get_ident())
        WHO.set("somebody else")
        yield WHO.get()
        threads.append(threading.get_ident())
        yield WHO.get()

    WHO.set("somebody")
    assert await events_of(agent_of(steps)) == [
        TextDelta(who) for who in ("somebody", "somebody else", "somebody else")
    ]
    assert len(set(threads)) == 1
    assert threading.get_ident() not in threads
    assert WHO.get() == "somebody"


async def test_closing_closes_a_generator_in_its_thread() -> None:
    closed = threading.Event()
    saw: list[bool] = []

    def steps(turn: Turn) -> Iterator[str]:
        saw.append(turn.cancelled)
        try:
            while True:
                yield "one"
        finally:
            saw.append(turn.cancelled)
            closed.set()

    events = agent_of(steps).call(request("Hi"))
    assert [await anext(events), await anext(events)] == [CallStarted(), TextDelta("one")]
    await events.aclose()
    await asyncio.to_thread(wait_for, closed)
    assert saw == [False, True]


async def test_a_function_in_a_thread_sees_that_it_was_cancelled() -> None:
    inside, done = threading.Event(), threading.Event()

    def work(turn: Turn) -> Iterator[str]:
        inside.set()
        deadline = time.monotonic() + BOUND
        while not turn.cancelled and time.monotonic() < deadline:
            pass
        done.set()
        yield "too late"

    async with asyncio.TaskGroup() as group:
        answer = group.create_task(collect(agent_of(work), request("Hi")))
        await asyncio.to_thread(wait_for, inside)
        answer.cancel()
    assert answer.cancelled()
    await asyncio.to_thread(wait_for, done)


async def test_a_coroutine_is_cancelled_in_the_usual_way_and_sees_it() -> None:
    inside = threading.Event()
    saw: list[bool] = []

    async def work(turn: Turn) -> None:
        saw.append(turn.cancelled)
        inside.set()
        try:
            await asyncio.Event().wait()
        finally:
            saw.append(turn.cancelled)

    async with asyncio.TaskGroup() as group:
        answer = group.create_task(collect(agent_of(work), request("Hi")))
        await asyncio.to_thread(wait_for, inside)
        answer.cancel()
    assert answer.cancelled()
    assert saw == [False, True]


async def test_an_async_generator_that_is_closed_sees_it() -> None:
    saw: list[bool] = []

    async def steps(turn: Turn) -> AsyncIterator[str]:
        try:
            while True:
                yield "one"
        finally:
            await asyncio.sleep(0)
            saw.append(turn.cancelled)

    events = agent_of(steps).call(request("Hi"))
    assert [await anext(events), await anext(events)] == [CallStarted(), TextDelta("one")]
    await events.aclose()
    assert saw == [True]


async def swallows_and_returns(inside: threading.Event) -> str:
    try:
        inside.set()
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        pass
    return "I go on"


async def fails_when_cancelled(inside: threading.Event) -> str:
    try:
        inside.set()
        await asyncio.Event().wait()
    finally:
        raise RuntimeError("while being cancelled")


@pytest.mark.parametrize("reaction", [swallows_and_returns, fails_when_cancelled])
async def test_a_coroutine_cannot_refuse_to_be_cancelled(reaction: Any) -> None:
    inside = threading.Event()

    async def work(turn: Turn) -> Any:
        return await reaction(inside)

    async with asyncio.TaskGroup() as group:
        answer = group.create_task(collect(agent_of(work), request("Hi")))
        await asyncio.to_thread(wait_for, inside)
        answer.cancel()
    assert answer.cancelled()


async def test_an_error_while_closing_goes_to_the_log_only() -> None:
    async def steps(turn: Turn) -> AsyncIterator[str]:
        try:
            while True:
                yield "one"
        finally:
            raise RuntimeError("while being closed")

    events = agent_of(steps).call(request("Hi"))
    assert [await anext(events), await anext(events)] == [CallStarted(), TextDelta("one")]
    with capture_logs() as logged:
        await events.aclose()
    assert "while being closed" in logged[0]["detail"]


async def test_an_error_while_closing_in_a_thread_goes_to_the_log_only() -> None:
    threads: list[threading.Thread] = []

    def steps(turn: Turn) -> Iterator[str]:
        threads.append(threading.current_thread())
        try:
            while True:
                yield "one"
        finally:
            raise RuntimeError("while being closed")

    events = agent_of(steps).call(request("Hi"))
    assert [await anext(events), await anext(events)] == [CallStarted(), TextDelta("one")]
    with capture_logs() as logged:
        await events.aclose()
        await asyncio.to_thread(threads[0].join, BOUND)
    assert "while being closed" in logged[0]["detail"]


async def test_a_task_that_was_cancelled_earlier_can_still_make_calls() -> None:
    async def cancelled_once() -> str:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        return text(await collect(agent_of(plain), request("Hi")))

    async with asyncio.TaskGroup() as group:
        task = group.create_task(cancelled_once())
        await asyncio.sleep(0)
        task.cancel()
    assert task.result() == "heard Hi"


@pytest.mark.parametrize(
    "error", [BaseException("x"), KeyboardInterrupt(), BaseExceptionGroup("x", [KeyboardInterrupt()])]
)
async def test_nothing_that_a_function_raises_gets_past_its_call(error: BaseException) -> None:
    async def reply(turn: Turn) -> str:
        raise error

    with pytest.raises(AdapterError) as caught:
        await events_of(agent_of(reply))
    assert caught.value.kind is ErrorClass.BACKEND_FAILED


async def test_a_function_that_swallows_its_cancellation_for_ever_is_left_to_itself() -> None:
    free = threading.Event()

    async def steps(turn: Turn) -> AsyncIterator[str]:
        yield "one"
        while not free.is_set():
            try:
                await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                continue

    events = agent_of(steps).call(request("Hi"))
    assert [await anext(events), await anext(events)] == [CallStarted(), TextDelta("one")]
    async with asyncio.timeout(BOUND), asyncio.TaskGroup() as group:
        third = group.create_task(anext(events))
        await asyncio.sleep(0)
        third.cancel()
    assert third.cancelled()
    free.set()
