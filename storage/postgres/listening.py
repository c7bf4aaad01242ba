"""What other processes have committed, as PostgreSQL tells it. Law: a notification is a hint behind a commit; that they are
heard is tried all the time, and while they are not, the database is asked. A connection that has brought some and brings
none any more is replaced: its other end may be gone without a word.

A pooler that gives each transaction another connection takes the wish to be told, and tells nothing. So another connection
sends one when none was heard for a while: until one is heard, the number of all commits is polled.
"""

import asyncio
import socket
import threading
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from functools import partial

import structlog
from msgspec import MsgspecError, json

from gateway.ledger.errors import LedgerUnavailable
from gateway.ledger.port import Changed
from storage.postgres import sql
from storage.postgres.errors import Failure, Lost, unavailable
from storage.postgres.session import Session
from storage.postgres.text import bound
from storage.worker import call_in_loop, start_worker

_POLL = 0.1
"""Seconds between two looks at the number of all commits."""

_PING = 5.0
"""Seconds of silence after which a notification is sent to everybody, and within which it is heard."""

_tasks = json.Decoder(list[str])

log = structlog.get_logger("storage.postgres.listening")


class Listener:
    """One reader of the changes at a time."""

    def __init__(
        self,
        connect: Callable[[], Session],
        version: Callable[[], Awaitable[int]],
        notify: Callable[[str], Awaitable[None]],
        ping: float = _PING,
    ) -> None:
        """`version` is a number that changes with every commit, `notify` sends a notification on another connection; both raise
        LedgerUnavailable. `connect` raises Lost."""
        self._connect = connect
        self._version = version
        self._notify = notify
        self._ping = ping
        self.hears = False
        """Whether notifications arrive."""

    async def changes(self, wanted: Callable[[], Awaitable[object]]) -> AsyncGenerator[Changed, None]:
        """As `EventReads.changes`."""
        loop = asyncio.get_running_loop()
        told, pings = _Told(loop), set[asyncio.Task[None]]()

        def ping(word: str) -> None:
            sent = loop.create_task(self._sent(word))
            pings.add(sent)
            sent.add_done_callback(pings.discard)

        thread = _Thread(self._connect, self._ping, told.tell, partial(call_in_loop, loop, ping), self._found)
        thread.start()
        try:
            seen = None
            while True:
                if told.error is not None:
                    raise unavailable("notifications of the database are not heard", told.error)
                if self.hears:
                    thread.go_on()
                    yield await told.next()
                    continue
                await _first_of(wanted(), told.some())
                if self.hears:
                    continue
                # What is told from here on may be newer than the number, and is left for the next step.
                told.forget()
                version = await self._version()
                if version != seen:
                    seen = version
                    yield None
                await told.within(_POLL)
        finally:
            self.hears = False
            thread.stop()

    async def _sent(self, word: str) -> None:
        # What does not arrive is not heard either.
        with suppress(LedgerUnavailable):
            await self._notify(word)

    def _found(self, hears: bool) -> None:
        """Called from the thread."""
        if hears != self.hears:
            self.hears = hears
            log.info("changes.heard" if hears else "changes.polled")


class _Told:
    """What the thread has told and nobody has taken yet."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._some = asyncio.Event()
        self._tasks: set[str] = set()
        self._all = False
        self.error: Lost | Failure | None = None

    def tell(self, tasks: Changed, error: Lost | Failure | None = None) -> None:
        """Called from the thread."""
        call_in_loop(self._loop, self._add, tasks, error)

    def _add(self, tasks: Changed, error: Lost | Failure | None) -> None:
        self.error = error
        if tasks is None:
            self._all = True
        else:
            self._tasks |= tasks
        self._some.set()

    async def some(self) -> None:
        await self._some.wait()

    async def next(self) -> Changed:
        await self._some.wait()
        everything, tasks = self._all, frozenset(self._tasks)
        self.forget()
        return None if everything else tasks

    def forget(self) -> None:
        """The number of all commits will show it."""
        self._all, self._tasks = False, set()
        self._some.clear()

    async def within(self, seconds: float) -> None:
        """Returns when something is told, or after so many seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._some.wait()


async def _first_of(*waits: Awaitable[object]) -> None:
    """Returns when one of them does."""
    pending = [asyncio.ensure_future(each) for each in waits]  # noqa: TID251
    try:
        await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in pending:
            each.cancel()


class _Thread:
    """A connection that listens, in a thread of its own; both end with the first failure or with `stop`. It reads on when what
    it has told is taken: a process that hears of many commits is not woken for each."""

    def __init__(
        self,
        connect: Callable[[], Session],
        ping: float,
        tell: Callable[..., None],
        send: Callable[[str], None],
        found: Callable[[bool], None],
    ) -> None:
        self._connect = connect
        self._every = ping
        self._tell = tell
        self._send = send
        self._found = found
        self._woken, self._wake = socket.socketpair()
        self._stopped = threading.Event()
        self._taken = threading.Event()

    def start(self) -> None:
        """Raises: LedgerUnavailable."""
        start_worker("ledger-listener", self._run)

    def go_on(self) -> None:
        """The next change is waited for."""
        self._taken.set()

    def stop(self) -> None:
        self._stopped.set()
        self._taken.set()
        with suppress(OSError):  # it has ended by itself
            self._wake.send(b"x")

    def _run(self) -> None:
        try:
            self._listen()
        except (Failure, Lost) as error:
            self._tell(None, error)
        finally:
            self._woken.close()
            self._wake.close()

    def _listen(self) -> None:
        """Raises: Failure, Lost."""
        session = self._connect()
        try:
            session.one(bound(sql.LISTEN, {}))
            # Whatever was committed before it listened was not told.
            self._tell(None)
            answered, due, heard = True, 0.0, False
            while not self._stopped.is_set():
                if time.monotonic() >= due:
                    if not answered:
                        if heard:
                            raise Lost("the connection has fallen silent")
                        self._found(False)
                        self._tell(None)
                    answered, due = False, time.monotonic() + self._every
                    self._send(sql.PING)
                payloads = session.heard(max(0.0, due - time.monotonic()), self._woken.fileno())
                if not payloads:
                    continue
                # Whoever has sent them: notifications arrive, and none to itself is needed for a while.
                answered, due, heard = True, time.monotonic() + self._every, True
                self._found(True)
                changes = [payload for payload in payloads if payload != sql.PING]
                if changes:
                    self._taken.clear()
                    self._tell(_joined(changes))
                    self._taken.wait()
        finally:
            self._found(False)
            session.close()


def _joined(payloads: list[str]) -> Changed:
    """None where one of them does not name tasks: everybody who reaches the database may send any word."""
    try:
        return frozenset(task for payload in payloads for task in _tasks.decode(payload))
    except MsgspecError:
        return None
