"""The queues of a process, by thread. Law: a queue keeps the order of its turns; the ledger orders the queues of one thread, of
which one turn at a time has the lease.

A thread has several queues when turns of a dead process were taken over that precede turns which wait here already.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from gateway.engine.turn_run import HeldThread, TurnRun


@dataclass(slots=True, eq=False)
class ThreadQueue(HeldThread):
    """Turns of one thread, one after another. `parked`: none of them can begin, because an earlier turn is paused.
    `siblings`: all queues of the thread here, this one among them."""

    parked: bool = False
    waiting: deque[TurnRun] = field(default_factory=deque)
    running: TurnRun | None = None
    siblings: list["ThreadQueue"] = field(default_factory=list, repr=False)

    @property
    def may_release(self) -> bool:
        return not any(queue.leased and queue.running is not None for queue in self.siblings if queue is not self)

    def is_last(self, run: TurnRun) -> bool:
        return self.running is run and not self.waiting and self.may_release

    @property
    def length(self) -> int:
        return len(self.waiting) + (self.running is not None)

    def park(self, run: TurnRun) -> None:
        """The running turn cannot begin yet."""
        # The paused turn may have been queued meanwhile, to go on before all others.
        place = int(bool(self.waiting) and bool(self.waiting[0].open_calls))
        self.running, self.parked, self.current = None, not place, False
        self.waiting.insert(place, run)


class ThreadQueues:
    """The first queue of a thread gets its new turns."""

    __slots__ = ("_of",)

    def __init__(self) -> None:
        self._of: dict[str, list[ThreadQueue]] = {}

    def __iter__(self) -> Iterator[ThreadQueue]:
        return (queue for queues in self._of.values() for queue in queues)

    def __contains__(self, thread: str) -> bool:
        return thread in self._of

    @property
    def threads(self) -> tuple[str, ...]:
        return tuple(self._of)

    def of(self, thread: str) -> tuple[ThreadQueue, ...]:
        return tuple(self._of.get(thread, ()))

    def first(self, thread: str) -> ThreadQueue | None:
        queues = self._of.get(thread)
        return queues[0] if queues else None

    def add(self, queue: ThreadQueue) -> ThreadQueue:
        queue.siblings = self._of.setdefault(queue.thread.id, [])
        queue.siblings.append(queue)
        return queue

    def remove(self, queue: ThreadQueue) -> bool:
        """True if it was the last queue of its thread."""
        queue.siblings.remove(queue)
        if queue.siblings:
            return False
        del self._of[queue.thread.id]
        return True
