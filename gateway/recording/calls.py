"""Calls that are made without HTTP, as exchanges whose answers are events. Law: a failure that the port names is an answer; any
other breaks the exchange off, and a caller that leaves cancels it.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from types import TracebackType
from typing import Generic, Self, TypeVar

from gateway.a2a.model import Json
from gateway.ports.wire import EVENTS, Answer, End, Recorder, Request
from gateway.recording.lines import Blocks, Event, made
from gateway.recording.pace import passed

E = TypeVar("E", bound=Exception)


class RecordedCall(Generic[E]):
    """A call that is recorded while the block runs."""

    __slots__ = ("_complete", "_failure", "_taking", "_told")

    def __init__(
        self, tap: Recorder, request: Request, failure: type[E], told: Callable[[E], tuple[str, Json]]
    ) -> None:
        """`failure` is the exception that the port names, `told` the event that stands for it."""
        self._taking = tap.begin(request)
        self._taking.answered(200, EVENTS)
        self._failure, self._told = failure, told
        self._complete = False

    def event(self, name: str, value: Json) -> None:
        self._taking.received(made(name, value))

    def complete(self) -> None:
        """Whoever leaves from now on has had the whole answer."""
        self._complete = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        try:
            if isinstance(error, self._failure):
                self.event(*self._told(error))
        finally:
            self._taking.ended(self._how(error))

    def _how(self, error: BaseException | None) -> End:
        if error is None or isinstance(error, self._failure):
            return End.COMPLETE
        if isinstance(error, Exception):
            return End.BROKEN
        return End.COMPLETE if self._complete else End.CANCELLED


async def replayed(answer: Answer) -> AsyncGenerator[Event | None, None]:
    """The events of a recorded call when their time has come; None for one that cannot be read. A call that was cancelled does
    not end."""
    blocks = Blocks()
    async with aclosing(passed(answer)) as pieces:
        async for piece in pieces:
            for block in blocks.feed(piece):
                yield Event.of(block)
    if answer.how is End.CANCELLED:
        await asyncio.Event().wait()
