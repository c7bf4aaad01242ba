"""What a failure of SQLite is, in one word for those who run the gateway. Law: the words are ours, never the library's.

The threads of the ledger that are ours, the writer's and that of the short reads. Law: none ends while somebody waits.

What such a thread does not expect, as that Python finds no memory for a list, leaves work that is neither told nor taken
back, and whoever waits for it would wait for ever. Then the process ends at once, as if it were killed: the next one goes on
from the ledger.
"""

import asyncio
import os
import sqlite3
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress

import structlog

from gateway.ledger.errors import LedgerUnavailable

FAILURES = (sqlite3.Error, MemoryError)
"""What SQLite's module raises when the database fails: of SQLITE_NOMEM it makes a MemoryError."""

_WORDS = {
    sqlite3.SQLITE_FULL: "full",
    sqlite3.SQLITE_BUSY: "locked",
    sqlite3.SQLITE_LOCKED: "locked",
    sqlite3.SQLITE_READONLY: "read-only",
    sqlite3.SQLITE_IOERR: "failing",
}
_PRIMARY = 0xFF
"""The bits of an error code that say what kind it is; the others say where it happened."""


def trouble_of(error: Exception) -> str:
    """`full`, `locked`, `read-only`, `failing` (the disk), or `unavailable` for all else."""
    code = getattr(error, "sqlite_errorcode", None)
    return "unavailable" if code is None else _WORDS.get(code & _PRIMARY, "unavailable")


def text_of(error: Exception) -> str:
    """What SQLite says of it; of a lack of memory its module says nothing."""
    return str(error) or "no memory"


_SOFTWARE_ERROR = 70
"""Source: sysexits.h."""


def start(name: str, run: Callable[[], None]) -> None:
    """Raises: LedgerUnavailable."""
    try:
        # A daemon: whoever stops without closing has been told of everything that was acknowledged.
        threading.Thread(target=_to_its_end, args=(name, run), name=name, daemon=True).start()
    except (RuntimeError, MemoryError) as error:
        raise no_thread(error) from error


def no_thread(error: Exception) -> LedgerUnavailable:
    """What it means that the system starts no thread any more."""
    return LedgerUnavailable(f"no thread for the database: {text_of(error)}")


def _to_its_end(name: str, run: Callable[[], None]) -> None:
    try:
        run()
    except BaseException:  # noqa: BLE001  # whatever it is: nobody could be told any more
        try:
            # Of its own: a command that has set up no log has its answers on standard output.
            log = structlog.wrap_logger(structlog.PrintLogger(sys.stderr))
            log.critical("ledger.failed", thread=name, exception=traceback.format_exc())
        finally:
            os._exit(_SOFTWARE_ERROR)


def tell(loop: asyncio.AbstractEventLoop, callback: Callable[..., None], *arguments: object) -> None:
    """From a thread: calls it in the event loop. A loop that is closed has nobody left to tell."""
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(callback, *arguments)


def succeed(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
