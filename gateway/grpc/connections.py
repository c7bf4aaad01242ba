"""The sockets behind gRPC, which keeps them to itself: found among the descriptors of the process, by their addresses.

Law: only sockets of the gateway's own port are touched.
"""

import os
import socket
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import unquote

Address = tuple[str, int]


def host_and_port(peer: str) -> Address | None:
    """The address in what gRPC says of a peer: `ipv4:127.0.0.1:50051`, `ipv6:%5B::1%5D:50051`. None for any other."""
    family, _, address = unquote(peer).partition(":")
    host, _, port = address.rpartition(":")
    return (host.strip("[]"), int(port)) if family in ("ipv4", "ipv6") and port.isdecimal() else None


def descriptors(port: int) -> Iterator[int]:
    """Of the listening socket and all connections of a port of this process."""
    for descriptor, found in _sockets(port):
        with found:
            yield descriptor


def close(port: int, peer: str) -> None:
    """Ends the connection of the peer to this port, and with it all of its calls."""
    wanted = host_and_port(peer)
    for _, found in _sockets(port):
        # The listening socket has no peer.
        with found, suppress(OSError):
            if _plain(found.getpeername()) == wanted:
                # gRPC has the descriptor, and closes it when it finds the connection shut.
                found.shutdown(socket.SHUT_RDWR)


def _sockets(port: int) -> Iterator[tuple[int, socket.socket]]:
    """The descriptor of each socket at this port of this process, and a socket of its own to it."""
    for descriptor in [int(each.name) for each in Path("/dev/fd").iterdir()]:
        # The descriptor of the listing itself is gone by now.
        with suppress(OSError):
            if stat.S_ISSOCK(os.fstat(descriptor).st_mode) and _own_port(descriptor) == port:
                yield descriptor, socket.socket(fileno=os.dup(descriptor))


def _own_port(descriptor: int) -> int | None:
    with socket.socket(fileno=os.dup(descriptor)) as found:
        return found.getsockname()[1] if found.family in (socket.AF_INET, socket.AF_INET6) else None


def _plain(address: tuple[str, int, int, int] | Address) -> Address:
    """Without what IPv6 adds; IPv4 in IPv6 as IPv4."""
    return address[0].removeprefix("::ffff:"), address[1]
