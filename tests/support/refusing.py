"""A port of this machine that refuses connections, and that nobody else is given meanwhile."""

import socket
from functools import cache


def refusing_port() -> int:
    """The same in each test of a process: a socket has it until the process ends, and never listens."""
    port: int = _bound().getsockname()[1]
    return port


@cache
def _bound() -> socket.socket:
    bound = socket.socket()
    bound.bind(("127.0.0.1", 0))
    return bound
