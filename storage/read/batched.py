"""A thread that answers all short reads of one step of the event loop together. Law: no read here finds many rows.

Waking another thread costs many times what finding a row costs: the callers that ask at the same time share it.
"""

import asyncio
import queue
import sqlite3
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from storage.errors import FAILURES, read_failure
from storage.read.queries import Asked
from storage.statement import Row
from storage.worker import Answer, answer_next, call_in_loop, resolve, start_worker

T = TypeVar("T")

Job = Callable[[sqlite3.Connection], T]
"""A read in the thread. It leaves no cursor open."""

_Read = tuple[Job[Any], asyncio.Future[Any]]


class BatchedReader:
    """Owns its connection and its thread. `fetch`, `run` and `close` are called in the event loop."""

    def __init__(self, connection: sqlite3.Connection, name: str = "ledger-reader") -> None:
        self._connection = connection
        self._loop = asyncio.get_running_loop()
        self._waiting: list[_Read] = []
        self._batches: queue.SimpleQueue[list[_Read] | None] = queue.SimpleQueue()
        self._answered: deque[list[Answer]] = deque()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        start_worker(name, self._serve)

    async def fetch(self, *asked: Asked) -> list[list[Row]]:
        """The rows of each query, all from one snapshot. Raises: LedgerUnavailable, CorruptRecord."""
        return await self.run(partial(_rows, asked))

    async def run(self, job: Job[T]) -> T:
        """What the job returns, from one snapshot. Raises: LedgerUnavailable, CorruptRecord, and what the job raises."""
        answer: asyncio.Future[T] = self._loop.create_future()
        if not self._waiting:
            self._loop.call_soon(self._hand_over)
        self._waiting.append((job, answer))
        try:
            return await answer
        finally:
            # An exception of the future leads to this frame: what a caller holds would stay until the garbage collector looks.
            del answer

    def _hand_over(self) -> None:
        self._batches.put(self._waiting)
        self._waiting = []

    async def close(self) -> None:
        """Answers the reads that were asked for before."""
        self._loop.call_soon(self._batches.put, None)
        await asyncio.shield(self._ended)

    # --- in the thread ---

    def _serve(self) -> None:
        while (batch := self._batches.get()) is not None:
            self._answered.append(self._answers(batch))
            # The thread keeps nothing of a read until the next one, however long that takes to come.
            del batch
            call_in_loop(self._loop, answer_next, self._answered)
        self._connection.close()
        call_in_loop(self._loop, resolve, self._ended)

    def _answers(self, batch: list[_Read]) -> list[Answer]:
        """One snapshot, begun after the last read was asked for: as new as a snapshot for each, with the locks of one."""
        try:
            if self._connection.in_transaction:  # the COMMIT of the last batch has failed
                self._connection.execute("ROLLBACK")
            self._connection.execute("BEGIN")
        except FAILURES as error:
            return [(answer, read_failure(error)) for _, answer in batch]
        try:
            return [(answer, self._read(job)) for job, answer in batch]
        finally:
            with suppress(*FAILURES):
                self._connection.execute("COMMIT")

    def _read(self, job: Job[T]) -> T | Exception:
        try:
            return job(self._connection)
        except FAILURES as error:
            return read_failure(error)
        except Exception as error:  # noqa: BLE001  # of this read alone: the thread continues with the others
            return error


def _rows(asked: tuple[Asked, ...], connection: sqlite3.Connection) -> list[list[Row]]:
    return [connection.execute(query.sql, values).fetchall() for query, values in asked]
