"""The events of a task as the messages of a call. Law: however the call ends, its stream is closed; a caller that reads
nothing is waited for as long as over HTTP, and no longer.

A message has no place for the number of its event. The initial metadata give the number that the first message stands at, in
`last-event-id`; each later message is the next event, so a caller counts.
"""

import asyncio
from collections.abc import Callable
from functools import partial

import msgspec

from gateway.a2a.errors import A2AError, Busy, Unauthenticated
from gateway.grpc.context import Context, Metadata
from gateway.grpc.messages import portions
from gateway.grpc.turns import Turn, not_given
from gateway.http.sse import OnRevocation, StreamSettings, Translation, translated
from gateway.ledger.events import Frame
from gateway.operations.call import EventStream

_PORTION = 2**16
"""Bytes that are given to a caller at once."""


class _Named(msgspec.Struct):
    id: str


class _First(msgspec.Struct):
    """The first event of a stream, as far as it names its task; None in one that is a bare message."""

    task: _Named | None = None


_first = msgspec.json.Decoder(_First)


class StreamedCall:
    """A call of a streaming operation, from its first event on."""

    def __init__(
        self,
        context: Context,
        stream: EventStream,
        settings: StreamSettings,
        event: Translation,
        turn: Turn,
    ) -> None:
        """`event` translates the logged events. `turn` is that of the call, which ends with its first messages."""
        self._context = context
        self._stream = stream
        self._settings = settings
        self._event = event
        self._turn = turn
        self._end: Callable[[], A2AError] | None = None
        self._reading = asyncio.timeout(None)

    async def run(self, metadata: Metadata, resumed: int | None, on_revocation: OnRevocation) -> None:
        """Returns at the end of the stream. `resumed` is the number of the event that the stream is resumed from.

        Raises: A2AError where it ends before its task, CallerGone, and whatever the stream raises.
        """
        draining, revoked = partial(self._stop, self._drained), partial(self._stop, _revoked)
        if not self._turn.reads:
            # Until its caller has taken the task.
            self._context.carried_out = partial(not_given, None)
        try:
            async with self._reading:
                with self._settings.drain.on_set(draining), on_revocation(revoked):
                    await self._pump(metadata, resumed)
        except TimeoutError:
            if self._end is None:
                raise
        finally:
            # It knows the task of the call, whose end knows this one: a circle of them would wait for the garbage collector.
            del self._reading
            await self._stream.aclose()
        if self._end is not None:
            raise self._end()

    async def _pump(self, metadata: Metadata, resumed: int | None) -> None:
        begun = False
        async for batch in self._stream:
            if not begun and not self._turn.reads:
                self._context.carried_out = partial(_not_given, batch)
                if self._turn.overfull:
                    raise _not_given(batch)
            async with self._turn.writing(sum(len(payload) for _, payload in batch)):
                messages = [message for _, message in await translated(self._event, batch)]
            if messages and not begun:
                begun = True
                first = batch[0][0] if batch[0][0] is not None else resumed
                number = () if first is None else (("last-event-id", str(first)),)
                self._context.send_metadata((*metadata, *number))
            self._turn.made()
            for portion in portions(messages, _PORTION):
                await self._context.write(portion, self._settings.send_timeout)
                self._context.carried_out = None
                self._turn.end()

    def _drained(self) -> A2AError:
        carried_out = self._context.carried_out
        if carried_out is not None:
            return carried_out()
        return Busy("The gateway is shutting down; subscribe again with last-event-id.", retry_after=1)

    def _stop(self, end: Callable[[], A2AError]) -> None:
        if self._end is None:
            self._end = end
            self._reading.reschedule(0)


def _revoked() -> A2AError:
    return Unauthenticated("the API key is not valid any more", presented=True)


def _not_given(batch: list[Frame]) -> A2AError:
    """Of the first events of a stream."""
    task = _first.decode(batch[0][1]).task
    return not_given(None if task is None else task.id)
