"""The worker's end of the socket to its supervisor. Law: only the supervisor says that a worker is not to wait for its turns:
whatever stops a service may send SIGTERM to every process of it, beside the supervisor."""

import asyncio
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from gateway.app.workers.messages import (
    END,
    LENGTH_BYTES,
    RELOAD,
    Begin,
    Failed,
    Report,
    Serves,
    decode_begin,
    encode,
)
from gateway.foundation.parent import end_with_parent
from gateway.http.server import Signals

_MOST = 65536


class Orders(Signals):
    """The orders of the supervisor, beside the signals. `ports` are reserved for HTTP and gRPC, `fixed` as in Begin."""

    def __init__(self, begin: Begin, channel: socket.socket) -> None:
        super().__init__()
        self.number = begin.number
        self.ports = begin.port, begin.grpc_port
        self.fixed = begin.fixed
        self._channel = channel

    @contextmanager
    def watched(self, *, reloads: bool = False) -> Iterator[None]:
        """Also carries out the orders that came before."""
        loop = asyncio.get_running_loop()
        self._channel.setblocking(False)
        with super().watched(reloads=reloads):
            loop.add_reader(self._channel, self._received)
            try:
                yield
            finally:
                loop.remove_reader(self._channel)

    def ordered(self) -> None:
        self.first.set()

    def serves(self, url: str) -> None:
        self._report(Serves(url))

    def fails(self, code: int, text: str) -> None:
        self._report(Failed(code, text))

    def _report(self, report: Report) -> None:
        with suppress(OSError):  # the supervisor has ended
            self._channel.sendall(encode(report) + b"\n")

    def _received(self) -> None:
        orders = self._channel.recv(_MOST)
        if not orders:  # the supervisor has ended, and the kernel is about to end this process
            asyncio.get_running_loop().remove_reader(self._channel)
        for order in orders:
            if order == RELOAD[0]:
                self.reload.set()
            else:
                self.first.set()
                if order == END[0]:
                    self.second.set()


def take_place(descriptor: int) -> tuple[Begin, Orders]:
    """For a process that a supervisor has started: what it is to do, and who gives it orders. It ends with the supervisor.

    Raises: ValueError where there is no supervisor any more.
    """
    os.set_inheritable(descriptor, False)
    channel = socket.socket(fileno=descriptor)
    try:
        length = int.from_bytes(channel.recv(LENGTH_BYTES, socket.MSG_WAITALL))
        if length == 0:
            raise ValueError("the supervisor has ended")
        begin = decode_begin(channel.recv(length, socket.MSG_WAITALL))
        end_with_parent(begin.parent)
    except BaseException:
        channel.close()
        raise
    return begin, Orders(begin, channel)
