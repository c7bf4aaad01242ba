"""The threads of the ledger. Law: none ends while somebody waits for it.

What such a thread does not expect, as that Python finds no memory for a list, leaves work that is neither told nor taken
back, and whoever waits for it would wait for ever. Then the process ends at once, as if it were killed: the next one goes on
from the ledger.
"""

import asyncio
import logging
import os
import threading
from collections.abc import Callable
from contextlib import suppress

from gateway.commits.failures import LedgerUnavailable

_SOFTWARE_ERROR = 70
"""Source: sysexits.h."""

_log = logging.getLogger(__name__)


def start(name: str, run: Callable[[], None]) -> None:
    """Raises: LedgerUnavailable."""
    # A daemon: whoever stops without closing has been told of everything that was acknowledged.
    thread = threading.Thread(target=_to_its_end, args=(name, run), name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError as error:
        raise LedgerUnavailable(f"no thread for the database: {error}") from error


def _to_its_end(name: str, run: Callable[[], None]) -> None:
    try:
        run()
    except BaseException:  # noqa: BLE001  # whatever it is: nobody could be told any more
        try:
            _log.critical("%s failed: the process ends, and the next one goes on from the ledger", name, exc_info=True)
        finally:
            os._exit(_SOFTWARE_ERROR)


def tell(loop: asyncio.AbstractEventLoop, callback: Callable[..., None], *arguments: object) -> None:
    """From a thread: calls it in the event loop. A loop that is closed has nobody left to tell."""
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(callback, *arguments)


def succeed(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
