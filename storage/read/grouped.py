"""One thread that answers all short reads of one step of the event loop together. Law: what may be long is not read here.

Waking another thread costs many times what finding a row does: it is paid once for all that ask at the same time.

Reads of what an index finds, in the event loop itself. Law: it waits for nobody, and whoever finds the file slow leaves
it alone for a while.

Taking turns with another thread at the interpreter's lock costs many times what finding a row in memory does: 230 us of
GetTask's 330.
"""

import asyncio
import queue
import sqlite3
import time
from contextlib import suppress
from typing import Any

from gateway.ledger.errors import CorruptRecord, LedgerUnavailable
from storage.threads import FAILURES, start, succeed, tell, text_of, trouble_of

Row = tuple[Any, ...]
Query = tuple[str, dict[str, Any]]
"""SQL and its parameters."""

_Read = tuple[tuple[Query, ...], asyncio.Future[list[list[Row]]]]
_Failure = LedgerUnavailable | CorruptRecord
_Answer = tuple[asyncio.Future[list[list[Row]]], list[list[Row]] | Exception]

_NO_TEXT = "Could not decode to UTF-8"
"""What sqlite3 says of one row, in the words that it has for a fault of the database."""


def read_failure(error: Exception) -> _Failure:
    """What a read that ended so means."""
    if str(error).startswith(_NO_TEXT):
        return CorruptRecord(f"a row cannot be read: {error}")
    return LedgerUnavailable(f"the database could not be read: {text_of(error)}", trouble_of(error))


class GroupedReader:
    """Owns its connection, and a thread from its beginning on. `fetch` and `close` belong to the thread of the event loop."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._loop = asyncio.get_running_loop()
        self._waiting: list[_Read] = []
        self._groups: queue.SimpleQueue[list[_Read] | None] = queue.SimpleQueue()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        start("ledger-reader", self._run)

    async def fetch(self, *queries: Query) -> list[list[Row]]:
        """The rows of each query, all of them from one snapshot. Raises: LedgerUnavailable, CorruptRecord."""
        answer: asyncio.Future[list[list[Row]]] = self._loop.create_future()
        if not self._waiting:
            self._loop.call_soon(self._hand_over)
        self._waiting.append((queries, answer))
        return await answer

    def _hand_over(self) -> None:
        self._groups.put(self._waiting)
        self._waiting = []

    async def close(self) -> None:
        """Answers what was asked before."""
        self._loop.call_soon(self._groups.put, None)
        await asyncio.shield(self._ended)

    # --- in the thread ---

    def _run(self) -> None:
        while (group := self._groups.get()) is not None:
            tell(self._loop, _deliver, self._answers(group))
        self._connection.close()
        tell(self._loop, succeed, self._ended)

    def _answers(self, group: list[_Read]) -> list[_Answer]:
        """One snapshot, begun after the last of them was asked: each is as new as on its own, and it costs its locks once."""
        try:
            if self._connection.in_transaction:  # what ended the last one has failed
                self._connection.execute("ROLLBACK")
            self._connection.execute("BEGIN")
        except FAILURES as error:
            return [(answer, _caused(error)) for _, answer in group]
        try:
            return [(answer, self._read(queries)) for queries, answer in group]
        finally:
            with suppress(*FAILURES):
                self._connection.execute("COMMIT")

    def _read(self, queries: tuple[Query, ...]) -> list[list[Row]] | Exception:
        try:
            return [self._connection.execute(*query).fetchall() for query in queries]
        except FAILURES as error:
            return _caused(error)
        except Exception as error:  # noqa: BLE001  # whatever it is: the thread goes on for those who asked with it
            return error


def _caused(error: Exception) -> _Failure:
    failure = read_failure(error)
    failure.__cause__ = error
    return failure


def _deliver(answers: list[_Answer]) -> None:
    for answer, rows in answers:
        if answer.done():  # who asked has left
            continue
        if isinstance(rows, Exception):
            answer.set_exception(rows)
        else:
            answer.set_result(rows)


_SLOW = 0.005
"""Seconds. Reading a large request takes the event loop as long; a file that is not in memory takes longer."""

_REST = 100
"""Times as long as it took the file is left alone: the event loop stands still for at most a hundredth of the time."""


class Finder:
    """Owns its connection, which does not wait for locks."""

    def __init__(self, connection: sqlite3.Connection, slow: float = _SLOW) -> None:
        self._connection = connection
        self._slow = slow
        self._again = 0.0

    def find(self, sql: str, values: dict[str, Any]) -> list[Row] | None:
        """All rows; None when somebody has to be asked who may wait, or who says what is wrong."""
        began = time.monotonic()
        if began < self._again:
            return None
        try:
            return self._connection.execute(sql, values).fetchall()
        except FAILURES:
            return None
        finally:
            ended = time.monotonic()
            if ended - began >= self._slow:
                self._again = ended + _REST * (ended - began)

    def close(self) -> None:
        self._connection.close()
