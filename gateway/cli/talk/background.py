"""An event loop in a thread beside the main thread, which waits for its user. Law: what opens in the loop closes in it."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, suppress
from types import TracebackType
from typing import Any, Self, TypeVar

T = TypeVar("T")


class BackgroundLoop:
    """The loop runs while the block does, and the context of `opening` is open in it meanwhile."""

    def __init__(self, opening: Callable[[], AbstractAsyncContextManager[object]]) -> None:
        self._opening = opening
        self._opened: Future[None] = Future()
        self._begun = threading.Event()
        self._main: asyncio.Task[None] | None = None
        self._thread = threading.Thread(target=self._run, name="background")

    def __enter__(self) -> Self:
        """Raises: the errors of opening; KeyboardInterrupt."""
        self._thread.start()
        self._begun.wait()
        try:
            self._opened.result()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def _end(self) -> None:
        if self._main is not None:
            with suppress(RuntimeError):  # the loop has ended by itself
                self._loop.call_soon_threadsafe(self._main.cancel)
        self._thread.join()

    def _run(self) -> None:
        with suppress(asyncio.CancelledError):
            asyncio.run(self._stay_open())

    async def _stay_open(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._main = asyncio.current_task()
        self._begun.set()
        try:
            async with self._opening():
                self._opened.set_result(None)
                await asyncio.Event().wait()
        except Exception as error:  # noqa: BLE001 - raised in the main thread, which waits for `_opened`
            if not self._opened.done():
                self._opened.set_exception(error)
