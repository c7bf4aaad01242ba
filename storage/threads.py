"""The threads of the ledger that are ours, the writer's and that of the short reads. Law: none ends while somebody waits.

What such a thread does not expect, as that Python finds no memory for a list, leaves work that is neither told nor taken
back, and whoever waits for it would wait for ever. Then the process ends at once, as if it were killed: the next one goes on
from the ledger.
"""

import asyncio
import os
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress

import structlog

from gateway.commits.failures import LedgerUnavailable
from storage.troubles import text_of

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
