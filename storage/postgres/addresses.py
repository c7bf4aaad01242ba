"""The addresses of a server. Law: names are looked up here, as libpq would stop the whole process while it does.

Source: PostgreSQL's manual, "libpq", sections "Connection Strings" and "Specifying Multiple Hosts".
"""

import socket
from itertools import zip_longest

from psycopg.conninfo import conninfo_to_dict, make_conninfo

from storage.postgres.errors import Lost


def attempts(conninfo: str) -> list[bytes]:
    """A connection string for each address, in the order in which they are tried. Raises: Lost where there is none."""
    found = conninfo_to_dict(conninfo)
    hosts, given, ports = (_listed(found.pop(name, None)) for name in ("host", "hostaddr", "port"))
    strings: list[bytes] = []
    why = "no host"
    if len(ports) == 1:
        ports *= max(len(hosts), len(given))
    for host, address, port in zip_longest(hosts, given, ports):
        one = {"host": host, "port": port}
        try:
            addresses = [address] if address or not _is_name(host) else _looked_up(str(host))
        except OSError as error:
            why = f"{host}: {error.strerror}"
            continue
        for each in addresses:
            wanted = {name: value for name, value in {**one, "hostaddr": each}.items() if value}
            strings.append(make_conninfo("", **{**found, **wanted}).encode())
    if not strings:
        raise Lost(f"the server's address is not known: {why}")
    return strings


def _listed(value: object) -> list[str | None]:
    return [None] if not value else [part or None for part in str(value).split(",")]


def _is_name(host: str | None) -> bool:
    """Not a folder with a socket."""
    return host is not None and host[:1] not in ("/", "@")


def _looked_up(host: str) -> list[str]:
    """Raises: OSError."""
    return list(dict.fromkeys(str(entry[4][0]) for entry in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)))
