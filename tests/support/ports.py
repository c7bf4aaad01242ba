"""Ports of this machine for servers that begin later than they are named, or again."""

import secrets
import socket

_PORTS = range(20000, 32000)
"""Below those that the system gives to port 0 and to connections: nobody gets one of them by chance."""


def free_port() -> int:
    """One that nobody has, and that nobody is given before its server begins, or between its end and its next begin."""
    while True:
        port = secrets.choice(_PORTS)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
