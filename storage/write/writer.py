"""The one writer: a thread that has a store write all waiting units as one group. Law: a caller is answered only when its unit
is durable.

A unit that does not find its rows as expected is rolled back alone; the rest of its group is committed. While the database is
locked, a unit waits as long as it may and is retried with the next group.
"""

import asyncio
import math
import queue
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

import msgspec

from gateway.ledger.errors import LedgerUnavailable
from gateway.ports.observer import SILENT, Observer
from storage.statement import Step
from storage.worker import call_in_loop, resolve, start_worker

Done = Callable[[Exception | None], None]

_GROUP = 256
"""Units in one transaction at most: it bounds how long a unit waits for the rest of its group."""

_UNITS = 100
_PERIOD = 0.1
_MIN_GROUP = 8
_LINGER = 0.001
_LONG_LINGER = 0.003
"""Seconds. When `_UNITS` were written in the last `_PERIOD`, a group grows for `_LINGER` before it is written, or for
`_LONG_LINGER` when no unit of it is urgent; unless it is as large as the group before, and at least `_MIN_GROUP`.

A commit costs as much as ten statements: a busy ledger with many small groups is expensive. Units are counted, not commits,
and over a period that ten simultaneous callers do not fill: neither streams of 500 deltas a second nor streams that begin
and end in step are a reason to delay each of them.
"""


class Unit(msgspec.Struct):
    """A unit in the queue of the writer. `until` is the time of the monotonic clock up to which the unit waits for a
    locked database after the busy timeout."""

    steps: list[Step]
    done: Done
    until: float
    urgent: bool


Outcome = tuple[Unit, Exception | None]


class Store(Protocol):
    """Where groups are written; all of it in the writer's thread."""

    def open(self) -> None:
        """Raises: LedgerUnavailable."""

    def write(
        self, units: list[Unit], waiting: Callable[[], list[Unit]], *, closing: bool
    ) -> tuple[list[Outcome], list[Unit]]:
        """The outcomes, and the units that wait and are retried. `waiting` gives the units that came meanwhile, for a group
        that has waited in vain. When the writer is `closing`, no unit is retried."""
        ...

    def close(self) -> None: ...


class Writer:
    """`open`, `submit` and `close` are called in the event loop."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.observer: Observer = SILENT
        self._loop = asyncio.get_running_loop()
        self._queue: queue.SimpleQueue[Unit | None] = queue.SimpleQueue()
        self._submitted: list[Unit] = []
        """Units of the current step of the event loop: they wake the thread once, as one group."""
        self._written: deque[tuple[list[Outcome], float]] = deque()
        """Groups whose callers are not answered yet, and the seconds that each took."""
        self._closing = False
        self._drained = False
        self._started: asyncio.Future[None] = self._loop.create_future()
        self._ended: asyncio.Future[None] = self._loop.create_future()

    async def open(self) -> None:
        """Raises: LedgerUnavailable."""
        try:
            start_worker("ledger-writer", self._run)
        except LedgerUnavailable:
            resolve(self._ended)
            raise
        await self._started

    def submit(self, steps: list[Step], done: Done, patience: float = 0.0, *, urgent: bool = True) -> None:
        """Stores all steps or none; `done` is called in the event loop, in the order of submission.

        `patience`: seconds to wait for a locked database; then units with more patience may be answered after later ones
        with less. A unit that is not urgent may wait some milliseconds for a larger group.
        """
        if self._closing:
            self._loop.call_soon(done, LedgerUnavailable("the ledger is closed"))
        else:
            if not self._submitted:
                self._loop.call_soon(self._hand_over)
            until = time.monotonic() + patience if patience else 0.0
            self._submitted.append(Unit(steps, done, until, urgent))

    def _hand_over(self) -> None:
        submitted, self._submitted = self._submitted, []
        for one in submitted:
            self._queue.put(one)

    @property
    def waiting(self) -> int:
        """The units that were submitted and are in no group yet."""
        return len(self._submitted) + self._queue.qsize()

    async def close(self) -> None:
        """Commits all submitted units, calls their callbacks and ends the thread."""
        if not self._closing:
            self._closing = True
            self._hand_over()
            self._queue.put(None)
        await asyncio.shield(self._ended)

    # --- in the thread ---

    def _run(self) -> None:
        try:
            self._store.open()
        except LedgerUnavailable as error:
            call_in_loop(self._loop, resolve, self._started, error)
        else:
            call_in_loop(self._loop, resolve, self._started)
            try:
                self._write_groups()
            finally:
                self._store.close()
        call_in_loop(self._loop, resolve, self._ended)

    def _write_groups(self) -> None:
        written = deque([-math.inf] * _UNITS, _UNITS)
        retried: list[Unit] = []
        enough = _MIN_GROUP
        while retried or not self._drained:
            retried = retried or self._next()
            if not retried:
                return
            # However many wait for a row, some that need others are written beside them.
            units = [*retried, *self._waiting(max(_GROUP - len(retried), _MIN_GROUP))]
            if time.monotonic() - written[0] < _PERIOD and len(units) < enough and not self._drained:
                time.sleep(_LINGER if any(unit.urgent for unit in units) else _LONG_LINGER)
                units += self._waiting(_GROUP - len(units))
            began = time.monotonic()
            outcomes, retried = self._store.write(units, self._all_waiting, closing=self._closing)
            took = time.monotonic() - began
            count = len(outcomes) + len(retried)
            written.extend([time.monotonic()] * count)
            enough = min(max(count, _MIN_GROUP), _GROUP)
            self._written.append((outcomes, took))
            # What the event loop made is freed there: memory that another core frees moves from cache to cache.
            del units, outcomes
            call_in_loop(self._loop, self._deliver)

    def _next(self) -> list[Unit]:
        unit = self._queue.get()
        return [] if unit is None else [unit]

    def _all_waiting(self) -> list[Unit]:
        return self._waiting(self._queue.qsize())

    def _waiting(self, at_most: int) -> list[Unit]:
        units: list[Unit] = []
        while len(units) < at_most:
            try:
                unit = self._queue.get_nowait()
            except queue.Empty:
                break
            if unit is None:
                self._drained = True
                break
            units.append(unit)
        return units

    # --- back in the event loop ---

    def _deliver(self) -> None:
        outcomes, took = self._written.popleft()
        for unit, outcome in outcomes:
            try:
                unit.done(outcome)
            except Exception as error:  # noqa: BLE001  # reported as the loop does for any callback; the others are called
                what = {"message": "a callback of the ledger failed", "exception": error}
                self._loop.call_exception_handler(what)
        if self.observer is not SILENT:
            failed = sum(outcome is not None for _, outcome in outcomes)
            self.observer.group_committed(len(outcomes), failed, took)
