"""A background response: it continues without a listener, and can be streamed again from any of its events."""

import asyncio
import re
from collections.abc import AsyncGenerator
from contextlib import aclosing

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from tests.emulators.scripts import Cut
from tests.emulators.server import EventStream, Frame

_NUMBER = re.compile(rb'"sequence_number":(\d+)')


class BackgroundRun:
    """The events of a response so far, and its end. A Cut ends the streams of that moment, and no later one. `left` is set when
    a listener has left. `unheard`: the stream of the request that made it is cut before the first event."""

    def __init__(self, *, unheard: bool = False) -> None:
        self._unheard = unheard
        self.ended = False
        self.left = asyncio.Event()
        self._sent: list[tuple[int, Frame]] = []
        self._task: asyncio.Task[None] | None = None
        self._grown = asyncio.Event()

    async def run(self, frames: AsyncGenerator[Frame]) -> None:
        """Returns at the end of the response, or after `stop`."""
        try:
            async with asyncio.TaskGroup() as group:
                self._task = group.create_task(self._record(frames))
        finally:
            self.ended = True
            self._notify()

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def listen(self, after: int, *, live: bool) -> AsyncGenerator[Frame]:
        """The events after number `after`. `live`: as they happen, cuts included."""
        place = 0
        try:
            if live and self._unheard:
                yield Cut()
                return
            while True:
                while place < len(self._sent):
                    number, frame = self._sent[place]
                    place += 1
                    if number > after and (live or not isinstance(frame, Cut)):
                        yield frame
                if self.ended:
                    return
                grown = self._grown
                await grown.wait()
        finally:
            self.left.set()

    async def _record(self, frames: AsyncGenerator[Frame]) -> None:
        number = -1
        async with aclosing(frames):
            async for frame in frames:
                found = _NUMBER.search(frame) if isinstance(frame, bytes) else None
                number = int(found[1]) if found is not None else number
                self._sent.append((number, frame))
                self._notify()

    def _notify(self) -> None:
        grown, self._grown = self._grown, asyncio.Event()
        grown.set()


class BackgroundAnswer(Response):
    """The answer to the request that made the response. The response continues when the client leaves."""

    def __init__(self, run: BackgroundRun, frames: AsyncGenerator[Frame], *, stream: bool, body: bytes) -> None:
        super().__init__(body, media_type="application/json")
        self._run = run
        self._frames = frames
        self._stream = stream

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer: Response = self
        if self._stream:
            answer = EventStream(self._run.listen(-1, live=True))
            answer.raw_headers.extend(header for header in self.raw_headers if header[0] == b"x-request-id")
        async with asyncio.TaskGroup() as group:
            group.create_task(self._run.run(self._frames))
            group.create_task(answer(scope, receive, send) if self._stream else super().__call__(scope, receive, send))
