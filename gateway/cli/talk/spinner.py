"""A line on a terminal that moves while a command waits. Law: nothing of it reaches a pipe or stays on the terminal."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle

from gateway.cli.console.output import Screen

_FRAMES = "|/-\\"
_PERIOD = 0.2
"""Seconds between two frames."""


@contextmanager
def waiting(screen: Screen, text: str) -> Iterator[None]:
    """Shows the text and the seconds that have passed while the block runs, which must not write itself."""
    spinner = _Spinner(screen, text) if screen.paints else None
    try:
        yield
    finally:
        if spinner is not None:
            spinner.stop()


class _Spinner:
    def __init__(self, screen: Screen, text: str) -> None:
        self._screen, self._text = screen, text
        self._loop = asyncio.get_running_loop()
        self._began = self._loop.time()
        self._frames = cycle(_FRAMES)
        self._painted = False
        self._timer = self._loop.call_later(_PERIOD, self._turn)

    def _turn(self) -> None:
        self._painted = True
        self._screen.paint(f"{next(self._frames)} {self._text} ({self._loop.time() - self._began:.0f} s)")
        self._timer = self._loop.call_later(_PERIOD, self._turn)

    def stop(self) -> None:
        self._timer.cancel()
        if self._painted:
            self._screen.paint("")
