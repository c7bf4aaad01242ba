"""Objects that only the garbage collector would free."""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def left_behind() -> Iterator[Callable[[], list[object]]]:
    """Gives the objects that were left since the block began."""

    def found() -> list[object]:
        gc.collect()
        return list(gc.garbage)

    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        yield found
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
