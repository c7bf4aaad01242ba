"""Rows of the event log: an update of a task as the JSON that is stored, numbered and sent."""

from collections.abc import Callable

import msgspec

from gateway.a2a.model import Artifact, Part, StreamResponse, TaskArtifactUpdateEvent, TaskStatusUpdateEvent
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


_NO_TEXT = b'"text":""'


def text_entries(task_id: str, context_id: str, artifact_id: str) -> Callable[[str], bytes]:
    """Writes the logged events of updates that add a text to this artifact as `entry` does, in a third of the time: nearly all
    events are such."""
    artifact = Artifact(artifact_id=artifact_id, parts=(Part(text=""),))
    update = TaskArtifactUpdateEvent(task_id=task_id, context_id=context_id, artifact=artifact, append=True)
    # A quote within a string has a backslash before it, so these bytes are the field of the part.
    before, after = entry(update).split(_NO_TEXT)
    return lambda text: b'%b"text":%b%b' % (before, line(text), after)


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
