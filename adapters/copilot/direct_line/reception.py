"""What comes from a conversation: by its WebSocket, again after each cut, and by GET where no socket can be had. Law: a cut, or
a change of the way, loses nothing but signs of typing; no task outlives the block.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Self, TypeVar

import structlog

from adapters.copilot.activities import Activity
from adapters.copilot.direct_line.service import DirectLine, Joined
from gateway.foundation.tracebacks import drop_tracebacks
from gateway.ports.adapter import NOT_PROCESSED, AdapterError, ErrorClass

log = structlog.get_logger("adapters.copilot.direct_line.reception")

_FIRST_LOOK = 0.3
"""Seconds. Source: Direct Line API 3.0, "Timing considerations"."""
_CUTS = 3
"""After so many connections of one turn, its messages are looked for."""
_AHEAD = 64

_TRIES = 3
"""Of a request by which a conversation is listened to."""

_PASSING = frozenset(kind for kind in ErrorClass if kind.meaning.transient) | {
    # A service may need a moment until it finds a conversation, as before a message.
    ErrorClass.HANDLE_NOT_FOUND,
    # The page of a proxy.
    ErrorClass.CONTRACT_BROKEN,
}
_OF_THE_CONVERSATION = frozenset({ErrorClass.HANDLE_NOT_FOUND, ErrorClass.HANDLE_EXPIRED})
_OF_THE_SERVICE = (NOT_PROCESSED | {ErrorClass.BACKEND_FAILED}) - _OF_THE_CONVERSATION

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Heard:
    """`watermark` is the place behind these activities; None: it does not change."""

    activities: list[Activity]
    watermark: str | None


@dataclass(frozen=True, slots=True)
class Delivered:
    """The service has taken the message, under this id where it names one."""

    activity_id: str | None


@dataclass(frozen=True, slots=True)
class Deaf:
    """Nothing more is heard. What became of a message that is under way may still come."""

    error: AdapterError


class _HearsAgain:
    """All that was said while a connection was lost is among the news before this."""


class Reception:
    def __init__(self, line: DirectLine, joined: Joined, watermark: str | None, poll: float, *, repeats: bool) -> None:
        """`watermark` is the place from which on the conversation is heard, None for its beginning. `repeats`: its message is
        in the conversation already, and what was said since is heard, too. `poll` is in seconds."""
        self.joined = joined
        self._repeats = repeats
        self._line = line
        self._watermark = watermark
        self._poll = poll
        self._news: asyncio.Queue[Heard | Delivered | Deaf | _HearsAgain | Exception] = asyncio.Queue(_AHEAD)
        self._listening = asyncio.Event()
        self._hears = False
        """While a connection is lost, that nothing comes is no silence of the bot."""
        self._tasks: list[asyncio.Task[None]] = []
        self._sends = repeats
        self._deaf: Exception | None = None
        """Why nothing was heard before anything was sent."""

    async def __aenter__(self) -> Self:
        self._start(self._listen_to_its_end)
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)
        # The ends of the tasks hold the frames that hold this object.
        self._tasks.clear()

    async def ready(self) -> None:
        """Waits until nothing that the bot says can be missed. Raises: AdapterError."""
        await self._listening.wait()
        if self._deaf is not None:
            raise self._deaf

    def send(self, request: Callable[[], Awaitable[str | None]]) -> None:
        """Sends a message while what comes is heard: many bots answer before the service has said that it took the message."""
        self._sends = True
        self._start(partial(self._deliver, request))

    async def next(self, deadline: float | None) -> Heard | Delivered | Deaf:
        """`deadline` is a time of the event loop. Raises: AdapterError; TimeoutError when the bot has said nothing by then."""
        while True:
            try:
                async with asyncio.timeout_at(deadline if self._hears else None):
                    news = await self._news.get()
            except TimeoutError:
                if self._hears:
                    raise
                continue
            if isinstance(news, Exception):
                raise news
            if not isinstance(news, _HearsAgain):
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
                return
            if error.kind in _OF_THE_SERVICE:
                # It says nothing of the message, which may be processed.
                error = error.as_kind(ErrorClass.INTERRUPTED)
            await self._news.put(Deaf(error))
        finally:
            self._listening.set()

    async def _listen(self) -> None:
        if self._repeats:
            await self._join_again()
        for cuts in range(1, _CUTS + 1):
            again = self._repeats or cuts > 1
            if self.joined.stream is None or not await self._hear(self.joined.stream, again=again):
                break
            self._hears = False
            if cuts < _CUTS:
                await self._join_again()
        self._listening.set()
        await self._look()

    async def _join_again(self) -> None:
        # Without a watermark a new connection brings only what is new to the service.
        await self._catch_up()
        self.joined = await self._until_it_works(lambda: self._line.join(self.joined, self._watermark))

    async def _hear(self, stream: str, *, again: bool) -> bool:
        """Listens until the socket ends. Returns whether it could be had. Raises: AdapterError for what cannot be read."""
        had = came = False
        try:
            async with self._line.socket(stream) as socket:
                had = True
                self._listening.set()
                if again:
                    await self._catch_up()
                await self._hear_again()
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
            await self._hear_again()
            wait = self._poll

    async def _catch_up(self) -> None:
        """Looks for what is new."""
        await self._take(*await self._until_it_works(lambda: self._line.activities(self.joined, self._watermark)))

    async def _until_it_works(self, request: Callable[[], Awaitable[T]]) -> T:
        """Raises: AdapterError where it fails several times in a row."""
        failures = 0
        while True:
            try:
                return await request()
            except AdapterError as error:
                failures += 1
                if error.kind not in _PASSING or failures == _TRIES:
                    raise
                self._hears = False
                log.info("conversation.not-heard", failure=error.kind, detail=error.detail)
                drop_tracebacks(error)
                wait = max(self._poll, error.retry_after or 0.0)
            await asyncio.sleep(wait)

    async def _hear_again(self) -> None:
        if not self._hears:
            self._hears = True
            await self._news.put(_HearsAgain())

    async def _take(self, activities: list[Activity], watermark: str | None) -> None:
        self._watermark = watermark or self._watermark
        if activities:
            await self._news.put(Heard(activities, watermark))
