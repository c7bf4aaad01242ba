"""A thread that answers the reads of one step of the event loop in one trip. Law: a read that fails fails alone; a lost
connection is replaced, and its reads are asked again once.
"""

import asyncio
import queue
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

from gateway.ledger.errors import LedgerUnavailable
from storage.postgres import sql
from storage.postgres.errors import Failure, Lost, unavailable
from storage.postgres.session import Outcome, Session
from storage.postgres.text import Call, bound
from storage.statement import Row
from storage.worker import Answer, answer_next, call_in_loop, resolve, start_worker

T = TypeVar("T")

WHAT = "the database could not be read"

Job = Callable[[Session], T]
"""A read in the thread, of as many trips as it takes. It raises Failure and Lost."""

_Calls = tuple[Call, ...]
_Read = tuple[_Calls | Job[Any], asyncio.Future[Any]]

_SNAPSHOT, _COMMIT, _ROLLBACK = bound(sql.SNAPSHOT, {}), bound(sql.COMMIT, {}), bound(sql.ROLLBACK, {})


class Reader:
    """Owns its connection and its thread. `fetch`, `run` and `close` are called in the event loop."""

    def __init__(self, connect: Callable[[], Session], check: Callable[[], None], name: str) -> None:
        """`check` is called before a connection that is open is used. Both raise Lost."""
        self._connect = connect
        self._check = check
        self._session: Session | None = None
        self._loop = asyncio.get_running_loop()
        self._waiting: list[_Read] = []
        self._batches: queue.SimpleQueue[list[_Read] | None] = queue.SimpleQueue()
        self._answered: deque[list[Answer]] = deque()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        start_worker(name, self._serve)

    async def fetch(self, *calls: Call) -> list[list[Row]]:
        """The rows of each call, of several from one snapshot. Raises: LedgerUnavailable."""
        found: list[list[Row]] = await self._asked(calls)
        return found

    async def run(self, job: Job[T]) -> T:
        """What the job returns, from one snapshot. Raises: LedgerUnavailable, and what the job raises."""
        found: T = await self._asked(job)
        return found

    async def _asked(self, read: _Calls | Job[Any]) -> Any:
        answer: asyncio.Future[Any] = self._loop.create_future()
        if not self._waiting:
            self._loop.call_soon(self._hand_over)
        self._waiting.append((read, answer))
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
        if self._session is not None:
            self._session.close()
        call_in_loop(self._loop, resolve, self._ended)

    def _answers(self, batch: list[_Read]) -> list[Answer]:
        short = [(read, answer) for read, answer in batch if isinstance(read, tuple)]
        found = [
            (answer, rows) for (_, answer), rows in zip(short, self._short([calls for calls, _ in short]), strict=True)
        ]
        return found + [(answer, self._job(read)) for read, answer in batch if not isinstance(read, tuple)]

    def _short(self, reads: list[_Calls]) -> list[list[list[Row]] | Exception]:
        """All in one trip."""
        if not reads:
            return []
        several = [calls if len(calls) == 1 else (_SNAPSHOT, *calls, _COMMIT) for calls in reads]
        try:
            outcomes = iter(
                self._again(lambda session: session.run([call for calls in several for call in calls], apart=True))
            )
        except (Failure, Lost) as error:
            return [unavailable(WHAT, error)] * len(reads)
        found: list[list[list[Row]] | Exception] = []
        for calls in several:
            of_read = [next(outcomes) for _ in calls]
            found.append(_rows(of_read if len(calls) == 1 else of_read[1:-1]))
        return found

    def _job(self, job: Job[T]) -> T | Exception:
        def in_snapshot(session: Session) -> T:
            session.one(_SNAPSHOT)
            try:
                return job(session)
            finally:
                if session.usable:
                    session.one(_ROLLBACK)

        try:
            return self._again(in_snapshot)
        except (Failure, Lost) as error:
            return unavailable(WHAT, error)
        except Exception as error:  # noqa: BLE001  # of this read alone: the thread continues with the others
            return error

    def _again(self, job: Job[T]) -> T:
        """What the job returns; once more on a new connection where the old one is gone. Raises: Failure, Lost."""
        self._check()
        if self._session is not None and self._session.usable:
            try:
                return job(self._session)
            except Lost:
                pass
        self._session = self._connect()
        return job(self._session)


def _rows(outcomes: list[Outcome]) -> list[list[Row]] | LedgerUnavailable:
    found = []
    for outcome in outcomes:
        if isinstance(outcome, Failure):
            return unavailable(WHAT, outcome)
        found.append(outcome.rows)
    return found
