"""The shutdown of the process, as an event with callbacks. Law: it is set once; a subscriber needs no task of its own."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Drain(asyncio.Event):
    """Set when the process is about to end."""

    def __init__(self) -> None:
        super().__init__()
        self._callbacks: set[Callable[[], None]] = set()

    def set(self) -> None:
        super().set()
        for callback in tuple(self._callbacks):
            callback()

    @contextmanager
    def on_set(self, callback: Callable[[], None]) -> Iterator[None]:
        """While the block runs, `callback` is called when the event is set; at once where it is set already."""
        self._callbacks.add(callback)
        try:
            if self.is_set():
                callback()
            yield
        finally:
            self._callbacks.discard(callback)
