"""Event streams of Amazon Web Services (`application/vnd.amazon.eventstream`), by botocore: headers and a payload for each.

The package is an extra, so this module is imported where it is needed only (`extras.py`).
"""

import struct
from collections.abc import Mapping

import msgspec
from botocore.eventstream import EventStreamBuffer, ParserError

from adapters.http.sse import LimitedReader
from adapters.http.streams import UnreadableStream
from gateway.a2a.model import Json

AWS_EVENTS = "application/vnd.amazon.eventstream"


class AwsEvent(msgspec.Struct, frozen=True):
    """`headers` tell what it is: `:message-type` (event, exception, error), `:event-type` or `:exception-type`."""

    headers: Mapping[str, Json]
    payload: bytes


class AwsEventReader(LimitedReader):
    """For `HttpClient.read`. botocore limits the size of an event (24 MiB)."""

    def __init__(self) -> None:
        super().__init__()
        self._buffer = EventStreamBuffer()
        self._begun = 0
        """Bytes of events that have come in part."""

    def feed(self, chunk: bytes) -> list[AwsEvent]:
        """The events that `chunk` completes. Raises: UnreadableStream."""
        self._count(chunk)
        self._begun += len(chunk)
        self._buffer.add_data(chunk)
        events = []
        try:
            for message in self._buffer:
                self._begun -= message.prelude.total_length
                events.append(AwsEvent(message.headers, message.payload))
        except (ParserError, struct.error, LookupError, ValueError) as error:
            raise UnreadableStream(f"an event that cannot be read: {error}") from error
        return events

    def finish(self) -> None:
        if self._begun:
            raise UnreadableStream("it ended in an event")
