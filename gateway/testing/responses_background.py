"""A response that goes on when nobody listens, and can be listened to again from any of its events."""

import asyncio
import re
from collections.abc import AsyncGenerator
from contextlib import aclosing

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from gateway.testing.emulator import EventStream, Frame
from gateway.testing.scripts import Cut

_NUMBER = re.compile(rb'"sequence_number":(\d+)')


class Generation:
    """What a response has told so far, and its end. A Cut is of who listens at that moment, and of nobody later."""

    def __init__(self) -> None:
        self.ended = False
        self._told: list[tuple[int, Frame]] = []
        self._task: asyncio.Task[None] | None = None
        self._grown = asyncio.Event()

    async def run(self, frames: AsyncGenerator[Frame]) -> None:
        """To its end, or until it is stopped."""
        try:
            async with asyncio.TaskGroup() as group:
                self._task = group.create_task(self._tell(frames))
        finally:
            self.ended = True
            self._wake()

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def listen(self, after: int, *, live: bool) -> AsyncGenerator[Frame]:
        """The events behind number `after`. `live`: from the moment that they happen, cuts included."""
        place = 0
        while True:
            while place < len(self._told):
                number, frame = self._told[place]
                place += 1
                if number > after and (live or not isinstance(frame, Cut)):
                    yield frame
            if self.ended:
                return
            grown = self._grown
            await grown.wait()

    async def _tell(self, frames: AsyncGenerator[Frame]) -> None:
        number = -1
        async with aclosing(frames):
            async for frame in frames:
                found = _NUMBER.search(frame) if isinstance(frame, bytes) else None
                number = int(found[1]) if found is not None else number
                self._told.append((number, frame))
                self._wake()

    def _wake(self) -> None:
        grown, self._grown = self._grown, asyncio.Event()
        grown.set()


class FirstListener(Response):
    """The answer to the request that asked for the response: when its client leaves, the response goes on."""

    def __init__(self, generation: Generation, frames: AsyncGenerator[Frame], *, stream: bool, body: bytes) -> None:
        super().__init__(body, media_type="application/json")
        self._generation = generation
        self._frames = frames
        self._stream = stream

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer: Response = self
        if self._stream:
            answer = EventStream(self._generation.listen(-1, live=True))
            answer.raw_headers.extend(header for header in self.raw_headers if header[0] == b"x-request-id")
        async with asyncio.TaskGroup() as group:
            group.create_task(self._generation.run(self._frames))
            group.create_task(answer(scope, receive, send) if self._stream else super().__call__(scope, receive, send))
