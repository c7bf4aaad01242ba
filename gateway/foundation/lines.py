"""Reads the lines of a pipe. Law: what writes without an end of a line fills no memory, where a longest line is given."""

import asyncio
from collections.abc import Callable


class Lines(asyncio.Protocol):
    """The lines of a pipe. `received` gets each line, `closed` the end of the pipe. With `longest`, these are lines of text:
    one that is longer comes in pieces, and the last one needs no end."""

    def __init__(
        self, received: Callable[[bytes], None], closed: Callable[[], None], longest: int | None = None
    ) -> None:
        self._received = received
        self._closed = closed
        self._longest = longest
        self._begun: list[bytes] = []

    def data_received(self, data: bytes) -> None:
        *lines, rest = data.split(b"\n")
        if lines and self._begun:
            lines[0], self._begun = b"".join((*self._begun, lines[0])), []
        if rest:
            self._begun.append(rest)
        for line in lines:
            self._received(line)
        if self._longest is not None and sum(map(len, self._begun)) > self._longest:
            self._take_begun()

    def connection_lost(self, error: Exception | None) -> None:
        if self._longest is not None and self._begun:
            self._take_begun()
        self._closed()

    def _take_begun(self) -> None:
        line, self._begun = b"".join(self._begun), []
        self._received(line)
