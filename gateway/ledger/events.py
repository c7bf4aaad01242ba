"""Rows of the event log: an update of a task as the JSON that is stored, numbered and sent."""

import msgspec

from gateway.a2a.model import StreamResponse, TaskArtifactUpdateEvent, TaskStatusUpdateEvent
from gateway.a2a.wire.dialect import line
from gateway.ledger.errors import CorruptRecord

Update = TaskStatusUpdateEvent | TaskArtifactUpdateEvent

Frame = tuple[int | None, bytes]
"""The number of an event (None: not logged) and its A2A 1.0 StreamResponse as one line of JSON, safe in an SSE field."""

_events = msgspec.json.Decoder(StreamResponse)


def entry(update: Update) -> bytes:
    """The logged event of an update."""
    if isinstance(update, TaskArtifactUpdateEvent):
        return line(StreamResponse(artifact_update=update))
    return line(StreamResponse(status_update=update))


def logged(payload: bytes) -> Update:
    """The update of a logged event. Raises: CorruptRecord."""
    try:
        event = _events.decode(payload)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise CorruptRecord(f"an event cannot be read: {error}") from error
    update = event.status_update or event.artifact_update
    if update is None:
        raise CorruptRecord("an event is no update")
    return update
