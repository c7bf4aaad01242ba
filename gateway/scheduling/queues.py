"""The lanes of a process, by thread. Law: a lane keeps the order of its turns; the ledger keeps that of several lanes of one
thread, of which one turn at a time has the lease.

A thread has more than one where turns of a dead process were taken up that come before those that wait here.
"""

from collections.abc import Iterator

from gateway.engine.turn_run import ThreadQueue


class ThreadQueues:
    """The first lane of a thread is the one that new turns go into."""

    __slots__ = ("_of",)

    def __init__(self) -> None:
        self._of: dict[str, list[ThreadQueue]] = {}

    def __iter__(self) -> Iterator[ThreadQueue]:
        return (lane for lanes in self._of.values() for lane in lanes)

    def __contains__(self, thread: str) -> bool:
        return thread in self._of

    @property
    def threads(self) -> tuple[str, ...]:
        return tuple(self._of)

    def of(self, thread: str) -> tuple[ThreadQueue, ...]:
        return tuple(self._of.get(thread, ()))

    def first(self, thread: str) -> ThreadQueue | None:
        lanes = self._of.get(thread)
        return lanes[0] if lanes else None

    def add(self, lane: ThreadQueue) -> ThreadQueue:
        lane.beside = self._of.setdefault(lane.thread.id, [])
        lane.beside.append(lane)
        return lane

    def remove(self, lane: ThreadQueue) -> bool:
        """Whether the thread has none any more."""
        lane.beside.remove(lane)
        if lane.beside:
            return False
        del self._of[lane.thread.id]
        return True
