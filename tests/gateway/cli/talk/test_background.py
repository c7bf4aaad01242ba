"""The event loop beside the main thread."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from gateway.cli.talk.conversation import BackgroundLoop


async def thread() -> int:
    return threading.get_ident()


async def test_work_runs_in_another_thread_which_opens_and_closes_the_context() -> None:
    threads: list[int] = []

    @asynccontextmanager
    async def opening() -> AsyncIterator[None]:
        threads.append(await thread())
        try:
            yield
        finally:
            threads.append(await thread())

    with BackgroundLoop(opening) as background:
        threads.append(await asyncio.wrap_future(background.start(thread())))
    assert len(threads) == 3
    assert len({*threads}) == 1
    assert threads[0] != await thread()


def test_an_error_of_opening_is_raised_and_the_thread_ends() -> None:
    @asynccontextmanager
    async def opening() -> AsyncIterator[None]:
        raise ZeroDivisionError("no")
        yield

    known = set(threading.enumerate())
    with pytest.raises(ZeroDivisionError), BackgroundLoop(opening):
        raise AssertionError("it was opened")
    assert set(threading.enumerate()) <= known


def test_running_work_is_cancelled_at_the_end() -> None:
    @asynccontextmanager
    async def opening() -> AsyncIterator[None]:
        yield

    ended: list[str] = []
    begun = threading.Event()

    async def forever() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise

    with BackgroundLoop(opening) as background:
        work = background.start(forever())
        begun.wait()
    assert ended == ["cancelled"]
    assert work.cancelled()
