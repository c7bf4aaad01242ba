"""How many live pages are open. Law: a browser opens six connections to a host, and the pages leave it some."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

OF_A_SESSION = 4
OF_ALL = 64


class OpenStreams:
    def __init__(self) -> None:
        self._open: Counter[bytes] = Counter()

    def has_room(self, session: bytes) -> bool:
        return self._open[session] < OF_A_SESSION and self._open.total() < OF_ALL

    @contextmanager
    def counted(self, session: bytes) -> Iterator[None]:
        """While the block runs, one of this session is open."""
        self._open[session] += 1
        try:
            yield
        finally:
            self._open[session] -= 1
            if not self._open[session]:
                del self._open[session]
