"""Names to addresses, for targets that somebody else names. Law: every answer of one look-up is judged, and what is returned
is what may be connected to; a look-up that hangs holds up nothing else."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor

from gateway.foundation.url_policy import TargetRules, permitted

_AT_ONCE = 8

Answers = Callable[[str, int], Awaitable[list[str]]]


class Lookup:
    def __init__(self, rules: TargetRules, answers: Answers | None = None) -> None:
        """`answers` gives all addresses of a name; the system's resolver where it is not given."""
        self._rules = rules
        self._answers = answers or self._ask
        # The loop's own threads are for the database.
        self._threads: ThreadPoolExecutor | None = None

    async def addresses(self, host: str, port: int) -> tuple[str, ...]:
        """Raises: TargetRefused; OSError when nobody knows the host now."""
        return permitted(host, await self._answers(host, port), self._rules)

    async def _ask(self, host: str, port: int) -> list[str]:
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
