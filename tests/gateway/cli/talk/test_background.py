"""A loop beside the main thread: opened in it, closed in it, and never left running."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from gateway.cli.talk.background import Background


async def thread() -> int:
    return threading.get_ident()


async def test_work_is_done_in_another_thread_where_its_things_are_opened_and_closed() -> None:
    threads: list[int] = []

    @asynccontextmanager
    async def opening() -> AsyncIterator[None]:
        threads.append(await thread())
        try:
            yield
        finally:
            threads.append(await thread())

    with Background(opening) as background:
        threads.append(await asyncio.wrap_future(background.start(thread())))
    assert len(threads) == 3
    assert len({*threads}) == 1
    assert threads[0] != await thread()


def test_what_cannot_be_opened_is_told_and_the_thread_is_gone() -> None:
    @asynccontextmanager
    async def opening() -> AsyncIterator[None]:
        raise ZeroDivisionError("no")
        yield

    known = threading.active_count()
    with pytest.raises(ZeroDivisionError), Background(opening):
        raise AssertionError("it was opened")
    assert threading.active_count() == known


def test_what_still_runs_at_the_end_is_cancelled() -> None:
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

    with Background(opening) as background:
        work = background.start(forever())
        begun.wait()
    assert ended == ["cancelled"]
    assert work.cancelled()
