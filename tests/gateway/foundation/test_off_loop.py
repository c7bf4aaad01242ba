"""Work on large values goes to another thread, work on small ones does not."""

import threading

import pytest

from gateway.foundation.off_loop import off_loop
from gateway.foundation.sizes import LARGE


def work(value: int, *, fails: bool = False) -> tuple[int, bool]:
    if fails:
        raise KeyError(value)
    return value, threading.current_thread() is threading.main_thread()


@pytest.mark.parametrize(("size", "in_loop"), [(0, True), (LARGE, True), (LARGE + 1, False)])
async def test_only_large_work_leaves_the_event_loop(size: int, in_loop: bool) -> None:
    assert await off_loop(size, work, 3) == (3, in_loop)
    with pytest.raises(KeyError):
        await off_loop(size, work, 3, fails=True)
