"""A thread that answers all short reads of one step of the event loop together. Law: no read here finds many rows.

Waking another thread costs many times what finding a row costs: the callers that ask at the same time share it.
"""

import asyncio
import queue
import sqlite3
from contextlib import suppress
from typing import Any

from storage.errors import FAILURES, read_failure
from storage.read.inline import Row
from storage.worker import call_in_loop, resolve, start_worker

Query = tuple[str, dict[str, Any]]
"""SQL and its parameters."""

_Read = tuple[tuple[Query, ...], asyncio.Future[list[list[Row]]]]
_Answer = tuple[asyncio.Future[list[list[Row]]], list[list[Row]] | Exception]


class BatchedReader:
    """Owns its connection and its thread. `fetch` and `close` are called in the event loop."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._loop = asyncio.get_running_loop()
        self._waiting: list[_Read] = []
        self._batches: queue.SimpleQueue[list[_Read] | None] = queue.SimpleQueue()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        start_worker("ledger-reader", self._run)

    async def fetch(self, *queries: Query) -> list[list[Row]]:
        """The rows of each query, all from one snapshot. Raises: LedgerUnavailable, CorruptRecord."""
        answer: asyncio.Future[list[list[Row]]] = self._loop.create_future()
        if not self._waiting:
            self._loop.call_soon(self._hand_over)
        self._waiting.append((queries, answer))
        return await answer

    def _hand_over(self) -> None:
        self._batches.put(self._waiting)
        self._waiting = []

    async def close(self) -> None:
        """Answers the reads that were asked for before."""
        self._loop.call_soon(self._batches.put, None)
        await asyncio.shield(self._ended)

    # --- in the thread ---

    def _run(self) -> None:
        while (batch := self._batches.get()) is not None:
            call_in_loop(self._loop, _deliver, self._answers(batch))
        self._connection.close()
        call_in_loop(self._loop, resolve, self._ended)

    def _answers(self, batch: list[_Read]) -> list[_Answer]:
        """One snapshot, begun after the last read was asked for: as new as a snapshot for each, with the locks of one."""
        try:
            if self._connection.in_transaction:  # the COMMIT of the last batch has failed
                self._connection.execute("ROLLBACK")
            self._connection.execute("BEGIN")
        except FAILURES as error:
            return [(answer, read_failure(error)) for _, answer in batch]
        try:
            return [(answer, self._read(queries)) for queries, answer in batch]
        finally:
            with suppress(*FAILURES):
                self._connection.execute("COMMIT")

    def _read(self, queries: tuple[Query, ...]) -> list[list[Row]] | Exception:
        try:
            return [self._connection.execute(*query).fetchall() for query in queries]
        except FAILURES as error:
            return read_failure(error)
        except Exception as error:  # noqa: BLE001  # of this read alone: the thread continues with the others
            return error


def _deliver(answers: list[_Answer]) -> None:
    for answer, rows in answers:
        if answer.done():  # the caller was cancelled
            continue
        if isinstance(rows, Exception):
            answer.set_exception(rows)
        else:
            answer.set_result(rows)
