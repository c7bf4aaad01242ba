"""Whether the server answers. Law: a server that is known to be silent is asked by one thread, and everybody else is refused at
once until it has answered.

A server that refuses a connection answers: whoever asks it learns so in no time, and nothing is kept of it.
"""

import threading
import time
from collections.abc import Callable

from gateway.ledger.errors import LedgerUnavailable
from storage.postgres import sql
from storage.postgres.errors import Failure, Lost
from storage.postgres.session import Connect, Session
from storage.postgres.text import bound
from storage.worker import start_worker

VERDICT = 2.0
"""Seconds within which a server that has not answered somebody answers a new connection, or is known to be silent."""

_LONG = 0.5
"""Seconds after which a failed attempt to connect is no refusal."""

_PAUSE = 0.1
"""Seconds between two attempts to find a server that is silent."""


class Reach:
    """Any thread may use it."""

    def __init__(self, connect: Callable[[], Session]) -> None:
        """`connect` opens a connection for one question. It raises Lost."""
        self._connect = connect
        self._lock = threading.Lock()
        self._answers = threading.Event()
        self._answers.set()
        self._known_at = 0.0
        """The time of the monotonic clock from which on a server counts as silent that has not answered."""
        self._closed = threading.Event()

    def connect(self, connect: Connect) -> Session:
        """A connection that tells when the server falls silent. Raises: Lost."""
        self.check()
        began = time.monotonic()
        try:
            return connect(on_silence=self.suspect)
        except Lost:
            if time.monotonic() - began >= _LONG:
                self._seek(0.0)
            raise

    def suspect(self) -> None:
        """The server has not answered somebody."""
        self._seek(VERDICT)

    def refuse(self) -> None:
        """Raises: Lost where the server is known to be silent."""
        if not self._answers.is_set() and time.monotonic() >= self._known_at:
            raise Lost("the server does not answer")

    def check(self) -> None:
        """Waits until it is known whether the server is silent, where that is in question. Raises: Lost."""
        if not self._answers.is_set():
            self._answers.wait(max(0.0, self._known_at - time.monotonic()))
            self.refuse()

    def close(self) -> None:
        """A server that is silent is not asked again."""
        self._closed.set()

    def _seek(self, verdict: float) -> None:
        known_at = time.monotonic() + verdict
        with self._lock:
            if not self._answers.is_set():
                self._known_at = min(self._known_at, known_at)
                return
            self._known_at = known_at
            self._answers.clear()
        try:
            start_worker("ledger-reach", self._ask)
        except LedgerUnavailable:
            # Without a thread to ask it, everybody finds out for himself.
            self._answers.set()

    # --- in the thread ---

    def _ask(self) -> None:
        while not self._answered():
            if self._closed.wait(_PAUSE):
                return
        self._answers.set()

    def _answered(self) -> bool:
        began = time.monotonic()
        try:
            session = self._connect()
            try:
                # A pooler takes the connection itself.
                session.one(bound(sql.IS_DIRECT, {}))
            finally:
                session.close()
        except Failure:
            return True
        except Lost:
            return time.monotonic() - began < _LONG
        return True
