"""The end of the process as everybody hears of it. Law: it comes once; whoever listens is told without a task of his own."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Drain(asyncio.Event):
    """Set when the process is about to go."""

    def __init__(self) -> None:
        super().__init__()
        self._told: set[Callable[[], None]] = set()

    def set(self) -> None:
        super().set()
        for callback in tuple(self._told):
            callback()

    @contextmanager
    def telling(self, callback: Callable[[], None]) -> Iterator[None]:
        """While the block runs, `callback` is called when it is set; at once if it is set already."""
        self._told.add(callback)
        try:
            if self.is_set():
                callback()
            yield
        finally:
            self._told.discard(callback)
