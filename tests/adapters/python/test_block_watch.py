"""What the watch says of a blocked loop, in a process whose log is not that of the gateway."""

import threading
from collections.abc import Iterator

import pytest

from adapters.python.block_watch import WatchedLoop
from adapters.python.loop_thread import LoopThread


@pytest.fixture
def thread() -> Iterator[LoopThread]:
    thread = LoopThread({"agent": "mine"}, lambda *_: None)
    thread.start()
    yield thread
    thread.close().result()


def test_a_blocked_loop_is_told_also_where_structlog_is_as_it_comes(
    thread: LoopThread, capsys: pytest.CaptureFixture[str]
) -> None:
    blocked, free = threading.Event(), threading.Event()

    def block() -> None:
        blocked.set()
        free.wait()

    thread.loop.call_soon_threadsafe(block)
    blocked.wait()

    watched = WatchedLoop(thread, under_way=["a call"], after=0.0)
    try:
        watched.look()
        watched.look()
    finally:
        free.set()

    told = capsys.readouterr().out
    assert "python.blocked" in told
    assert "mine" in told
    assert f"{__file__}:" in told
