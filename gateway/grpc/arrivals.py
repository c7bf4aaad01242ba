"""What is being received, in bytes. Law: a call that brings more than a connection or the process may hold is refused at once;
the others go on.

Every call may bring a message of several megabytes, which is kept until it is whole and read.
"""

from gateway.a2a.errors import TooManyRequests

_MOST = 2**26
"""Bytes of one connection."""

_ALL_MOST = 2**28
"""The same in the whole process. Beyond, a connection may have one call that brings something."""

TOO_MANY = TooManyRequests("Too much is being received; try again.", retry_after=1)


class Arriving:
    """In the whole process."""

    __slots__ = ("size",)

    def __init__(self) -> None:
        self.size = 0


class Arrivals:
    """Of one connection."""

    __slots__ = ("_all", "size")

    def __init__(self, arriving: Arriving) -> None:
        self._all = arriving
        self.size = 0

    def hold(self, size: int) -> None:
        """So many bytes more are kept."""
        self.size += size
        self._all.size += size

    def release(self, size: int) -> None:
        self.size -= size
        self._all.size -= size

    def refuses(self, size: int) -> bool:
        """Whether there is too much for a call that has so many of these bytes."""
        return self.size > _MOST or (self._all.size > _ALL_MOST and self.size > size)
