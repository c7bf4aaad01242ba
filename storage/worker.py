"""The threads of the ledger: the writer and the reader of short reads. Law: no thread ends while a caller waits for it.

An unexpected exception in such a thread, as a MemoryError for a list, would leave callers that wait for ever. The process
then ends at once, as if it were killed, and the next one continues from the ledger.
"""

import asyncio
import os
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import structlog

from gateway.ledger.errors import LedgerUnavailable
from storage.errors import text_of

Answer = tuple[asyncio.Future[Any], Any]
"""What a read has found, or the exception in its place, for the caller that waits for it."""

_SOFTWARE_ERROR = 70
"""Source: sysexits.h."""


def start_worker(name: str, run: Callable[[], None]) -> None:
    """Raises: LedgerUnavailable."""
    try:
        # A daemon: a process that exits without closing loses nothing that was acknowledged.
        threading.Thread(target=_run_or_exit, args=(name, run), name=name, daemon=True).start()
    except (RuntimeError, MemoryError) as error:
        raise no_thread(error) from error


def no_thread(error: Exception) -> LedgerUnavailable:
    """The error when the system starts no thread."""
    return LedgerUnavailable(f"no thread for the database: {text_of(error)}")


def _run_or_exit(name: str, run: Callable[[], None]) -> None:
    try:
        run()
    except BaseException:  # noqa: BLE001  # no caller can be answered any more
        try:
            # A logger of its own: a command that has configured no log prints its results on standard output.
            log = structlog.wrap_logger(structlog.PrintLogger(sys.stderr))
            log.critical("ledger.failed", thread=name, exception=traceback.format_exc())
        finally:
            os._exit(_SOFTWARE_ERROR)


def call_in_loop(loop: asyncio.AbstractEventLoop, callback: Callable[..., None], *arguments: object) -> None:
    """Schedules the callback in the event loop, when a worker calls it. A closed loop has no waiting caller."""
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(callback, *arguments)


def resolve(future: asyncio.Future[None], error: Exception | None = None) -> None:
    """Nothing where its waiter was cancelled."""
    if future.done():
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)


def answer_next(answered: deque[list[Answer]]) -> None:
    """Answers the callers of the batch that was read first, in the event loop."""
    for answer, found in answered.popleft():
        if answer.done():  # the caller was cancelled
            continue
        if isinstance(found, Exception):
            answer.set_exception(found)
        else:
            answer.set_result(found)
