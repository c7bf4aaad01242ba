"""One worker, as its supervisor sees it."""

import asyncio
import signal
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress

import msgspec

from gateway.app.workers.messages import LENGTH_BYTES, Begin, Failed, Report, decode_report, encode
from gateway.foundation.lines import Lines

_LAST_WORDS = 1.0
"""Seconds for the last report of a worker that has ended."""


class WorkerProcess:
    """`pid` is its number. `failure` is what it said before it ended without having served."""

    def __init__(self, process: asyncio.subprocess.Process, channel: socket.socket) -> None:
        self.pid = process.pid
        self.failure: Failed | None = None
        self._process = process
        self._channel = channel

    async def ended(self, on_serves: Callable[[str], None]) -> int:
        """Its exit code, or minus the number of the signal that has killed it. `on_serves` gets the URL of the gateway once it
        accepts requests."""
        closed = asyncio.Event()

        def received(line: bytes) -> None:
            with suppress(msgspec.DecodeError):
                self._take(decode_report(line), on_serves)

        loop = asyncio.get_running_loop()
        reports = self._channel.dup()
        transport, _ = await loop.create_connection(lambda: Lines(received, closed.set), sock=reports)
        try:
            code = await self._process.wait()
            # What it said at its end counts, though a copy of it may have its end of the socket.
            with suppress(TimeoutError):
                await asyncio.wait_for(closed.wait(), _LAST_WORDS)
            return code
        finally:
            transport.abort()
            self._channel.close()

    def _take(self, report: Report, on_serves: Callable[[str], None]) -> None:
        if isinstance(report, Failed):
            self.failure = report
        else:
            on_serves(report.url)

    def order(self, order: bytes) -> None:
        """Does nothing where it has ended, or takes no orders any more."""
        with suppress(OSError):
            self._channel.send(order, socket.MSG_DONTWAIT)

    def signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            self._process.send_signal(number)


async def start_worker(command: Sequence[str], begin: Begin) -> WorkerProcess:
    """By the command, which gets the number of a descriptor as its last argument. Raises: OSError."""
    ours, theirs = socket.socketpair()
    try:
        with theirs:
            process = await asyncio.create_subprocess_exec(
                *(*command, str(theirs.fileno())),
                stdin=asyncio.subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                # Ctrl-C and the end of a terminal are the supervisor's to hear.
                start_new_session=True,
            )
        line = encode(begin)
        ours.sendall(len(line).to_bytes(LENGTH_BYTES) + line)
        ours.setblocking(False)
    except BaseException:
        ours.close()
        raise
    return WorkerProcess(process, ours)
