"""Host names to addresses, for targets that other parties name. Law: every answer of one look-up is checked, and only the
returned addresses may be connected to; a look-up that hangs holds up nothing else."""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

_AT_ONCE = 8

Lookup = Callable[[str, int], Awaitable[list[str]]]
Check = Callable[[str, Iterable[str]], tuple[str, ...]]
"""Host and addresses -> the addresses; raises an error of its own when any must not be contacted, or there is none."""


class Resolver:
    def __init__(self, check: Check, lookup: Lookup | None = None) -> None:
        """`lookup` gives all addresses of a name; by default it asks the system's resolver."""
        self._check = check
        self._lookup = lookup or self._ask_system
        # The event loop's own threads are for the database.
        self._threads: ThreadPoolExecutor | None = None

    async def addresses(self, host: str, port: int) -> tuple[str, ...]:
        """Raises: the error of `check`; OSError when the host is unknown now."""
        return self._check(host, await self._lookup(host, port))

    async def _ask_system(self, host: str, port: int) -> list[str]:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="lookup")
        found = await asyncio.get_running_loop().run_in_executor(self._threads, _system, host, port)
        return [str(address[0]) for *_, address in found]

    def close(self) -> None:
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)


def _system(host: str, port: int) -> list[tuple[object, object, object, str, tuple[object, ...]]]:
    try:
        return list(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
    except UnicodeError as error:
        raise OSError(f"{host!r} is no host name") from error
