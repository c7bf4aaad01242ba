"""What comes from a conversation: by its WebSocket, again after each cut, and by GET where no socket can be had. Law: a cut, or
a change of the way, loses nothing but signs of typing; no task outlives the block.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Self

from adapters.copilot.activities import Activity
from adapters.copilot.direct_line.service import DirectLine, Joined
from gateway.ports.adapter import NOT_PROCESSED, AdapterError, ErrorClass

_FIRST_LOOK = 0.3
"""Seconds. Source: Direct Line API 3.0, "Timing considerations"."""
_CUTS = 3
"""After so many connections of one turn, its messages are looked for."""
_AHEAD = 64

_PASSING = frozenset({ErrorClass.UNREACHABLE, ErrorClass.INTERRUPTED, ErrorClass.TIMED_OUT, ErrorClass.RATE_LIMITED})
_OF_THE_CONVERSATION = frozenset({ErrorClass.HANDLE_NOT_FOUND, ErrorClass.HANDLE_EXPIRED})


@dataclass(frozen=True, slots=True)
class Heard:
    """`watermark` is the place behind these activities; None: it does not change."""

    activities: list[Activity]
    watermark: str | None


@dataclass(frozen=True, slots=True)
class Delivered:
    """The service has taken the message, under this id where it names one."""

    activity_id: str | None


class Reception:
    def __init__(self, line: DirectLine, joined: Joined, watermark: str | None, poll: float, *, repeats: bool) -> None:
        """`watermark` is the place from which on the conversation is heard, None for its beginning. `repeats`: what was said
        since is heard, too, and not only what will be. `poll` is in seconds."""
        self.joined = joined
        self._repeats = repeats
        self._line = line
        self._watermark = watermark
        self._poll = poll
        self._news: asyncio.Queue[Heard | Delivered | Exception] = asyncio.Queue(_AHEAD)
        self._listening = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._sends = False
        self._deaf: Exception | None = None
        """Why nothing was heard before anything was sent."""

    async def __aenter__(self) -> Self:
        self._start(self._listen_to_its_end)
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)

    async def ready(self) -> None:
        """Waits until nothing that the bot says can be missed. Raises: AdapterError."""
        await self._listening.wait()
        if self._deaf is not None:
            raise self._deaf

    def send(self, request: Callable[[], Awaitable[str | None]]) -> None:
        """Sends a message while what comes is heard: many bots answer before the service has said that it took the message."""
        self._sends = True
        self._start(partial(self._deliver, request))

    async def next(self, deadline: float | None) -> Heard | Delivered:
        """`deadline` is a time of the event loop. Raises: AdapterError; TimeoutError when nothing has come by then."""
        async with asyncio.timeout_at(deadline):
            news = await self._news.get()
        if isinstance(news, Exception):
            raise news
        return news

    def _start(self, work: Callable[[], Awaitable[None]]) -> None:
        # In no task group: the reader is a generator, and a group makes an error of the end of a generator.
        self._tasks.append(asyncio.get_running_loop().create_task(self._watched(work)))

    async def _watched(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except Exception as error:  # noqa: BLE001  # the reader raises it
            await self._news.put(error)

    async def _deliver(self, request: Callable[[], Awaitable[str | None]]) -> None:
        await self._news.put(Delivered(await request()))

    async def _listen_to_its_end(self) -> None:
        try:
            await self._listen()
        except AdapterError as error:
            if not self._sends:
                self._deaf = error
            elif error.kind in NOT_PROCESSED - _OF_THE_CONVERSATION:
                # It says nothing of the message, which may be processed.
                raise error.as_kind(ErrorClass.INTERRUPTED) from error
            else:
                raise
        finally:
            self._listening.set()

    async def _listen(self) -> None:
        if self._repeats:
            await self._join_again()
        for cuts in range(1, _CUTS + 1):
            if self.joined.stream is None or not await self._hear(self.joined.stream):
                break
            if cuts < _CUTS:
                await self._join_again()
        self._listening.set()
        await self._look()

    async def _join_again(self) -> None:
        # Without a watermark a new connection brings only what is new to the service.
        await self._catch_up()
        self.joined = await self._line.join(self.joined.handle, self.joined.token, self._watermark)

    async def _hear(self, stream: str) -> bool:
        """Listens until the socket ends. Returns whether it could be had. Raises: AdapterError for what cannot be read."""
        had = came = False
        try:
            async with self._line.socket(stream) as socket:
                had = True
                self._listening.set()
                async for frame in socket:
                    came = True
                    # An empty frame is a sign of life.
                    if frame:
                        await self._take(*self._line.read_frame(frame))
        except AdapterError as error:
            if error.kind is ErrorClass.CONTRACT_BROKEN and came:
                raise
        return had

    async def _look(self) -> None:
        wait = min(_FIRST_LOOK, self._poll)
        while True:
            await asyncio.sleep(wait)
            await self._catch_up()
            wait = self._poll

    async def _catch_up(self) -> None:
        """Looks for what is new. Raises: AdapterError where several looks in a row fail."""
        for failures in range(1, _CUTS + 1):
            try:
                found = await self._line.activities(self.joined, self._watermark)
            except AdapterError as error:
                if error.kind not in _PASSING or failures == _CUTS:
                    raise
                await asyncio.sleep(max(self._poll, error.retry_after or 0.0))
            else:
                await self._take(*found)
                return

    async def _take(self, activities: list[Activity], watermark: str | None) -> None:
        self._watermark = watermark or self._watermark
        if activities:
            await self._news.put(Heard(activities, watermark))
