"""A port that several processes of one user serve, each with a listening socket of its own: the kernel spreads the connections.

Law: nobody else gets the port between its reservation and its end. Linux alone spreads connections so (SO_REUSEPORT since 3.9).
Source: socket(7), and net/ipv4/inet_connection_sock.c for who may bind beside whom.
"""

import socket
import sys

BALANCED = sys.platform == "linux"
"""Whether this system spreads connections over the processes of a port."""


def address_family(host: str) -> socket.AddressFamily:
    """Raises: OSError for a text that no host can have as its name."""
    try:
        is_name = "\0" not in host.encode("idna").decode()
    except UnicodeError:
        is_name = False
    if not is_name:
        raise OSError("no host can have this name")
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def reserve(host: str, port: int) -> socket.socket:
    """A socket that keeps the port for those who `join` it, and takes no connection; port 0 lets the system choose.

    Raises: OSError when anybody has the port, also one who shares it.
    """
    kept = _socket(host)
    try:
        kept.bind((host, port))
        if port:
            # A socket that only is bound shares its port with every other one that only is bound. One that listens does not,
            # and is refused where another listens. It does not stay so, or connections would come to it.
            kept.listen(1)
            kept.shutdown(socket.SHUT_RDWR)
        # From now on only those that share are let in.
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    except BaseException:
        kept.close()
        raise
    return kept


def join(host: str, port: int) -> socket.socket:
    """A socket that is bound to a port that is reserved; its connections come once it listens. Raises: OSError."""
    joined = _socket(host)
    try:
        joined.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        joined.bind((host, port))
    except BaseException:
        joined.close()
        raise
    return joined


def _socket(host: str) -> socket.socket:
    family = address_family(host)
    made = socket.socket(family, socket.SOCK_STREAM)
    # Connections of a process that has ended keep the port for a minute otherwise.
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if family == socket.AF_INET6:
        made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    return made
