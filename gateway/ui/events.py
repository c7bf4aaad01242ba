"""What did the client see? The event log of a task, as it was sent."""

import msgspec

from gateway.a2a.errors import NotFound
from gateway.a2a.model import Json
from gateway.foundation.clock import milliseconds
from gateway.ledger.admin.timelines import EventLine
from gateway.ui.bodies import plain_text
from gateway.ui.foreign import LIMIT
from gateway.ui.said import PREVIEW
from gateway.ui.tasks import head_of, number_of
from gateway.ui.visit import Outcome, Page, Visit


class EventRow(msgspec.Struct, frozen=True):
    """`kind` is a word, `words` a summary in the words of others, `after` milliseconds since the beginning of the task, where
    the event tells its time."""

    number: int
    kind: str
    words: str
    length: int
    after: int | None = None


async def show(visit: Visit) -> Outcome:
    task = await head_of(visit)
    after = number_of(visit, "after")
    found = await visit.parts.ledger.admin.task_events(visit.caller.tenant, task.id, after)
    values = {
        "task": task,
        "rows": [_row(event, task.created_at) for event in found.events] if found is not None else [],
        "after": None if found is None else found.after,
        "last": 0 if found is None else found.last,
        "first": task.first_event,
    }
    return Page("events.html", f"Events of {task.id[:8]}", values)


async def show_one(visit: Visit) -> Outcome:
    """An event as it went out."""
    task = await head_of(visit)
    number = visit.path["number"]
    event = None
    if number.isascii() and number.isdigit() and len(number) < 16:
        event = await visit.parts.ledger.admin.event(visit.caller.tenant, task.id, int(number))
    if event is None:
        raise NotFound("There is no such event.")
    try:
        text = msgspec.json.format(event, indent=2).decode("utf-8", "replace")
    except msgspec.DecodeError:
        text = event.decode("utf-8", "replace")
    return plain_text(text)


def _row(event: EventLine, begin: int) -> EventRow:
    try:
        value = msgspec.json.decode(event.payload)
    except msgspec.DecodeError:
        return EventRow(event.number, "event", event.payload[:LIMIT].decode("utf-8", "replace"), event.length)
    at = _moment(value)
    return EventRow(event.number, *_summary(value), event.length, None if at is None else at - begin)


def _moment(value: Json) -> int | None:
    """The time of a state, in milliseconds since 1970."""
    match value:
        case {"task": {"status": {"timestamp": str(text)}}} | {"statusUpdate": {"status": {"timestamp": str(text)}}}:
            try:
                return milliseconds(text)
            except ValueError:
                return None
        case _:
            return None


def _summary(value: Json) -> tuple[str, str]:
    """What an event is, and what it says."""
    match value:
        case {"task": {"status": {"state": str(state)}}}:
            return "task", state
        case {"statusUpdate": {"status": {"state": str(state), "message": {"parts": list(parts)}}}}:
            return "status with a message", f"{_state(state)}: {_parts(parts)}"
        case {"statusUpdate": {"status": {"state": str(state)}, "metadata": dict(facts)}}:
            return "status", f"{_state(state)} {_phase(facts)}"
        case {"statusUpdate": {"status": {"state": str(state)}}}:
            return "status", _state(state)
        case {"artifactUpdate": {"artifact": {"artifactId": str(artifact), "parts": list(parts)}}}:
            return "artifact", f"{artifact}: {_parts(parts)}"
        case {"message": {"parts": list(parts)}}:
            return "message", _parts(parts)
        case _:
            return "event", msgspec.json.encode(value)[:PREVIEW].decode("utf-8", "replace")


def _state(state: str) -> str:
    return state.removeprefix("TASK_STATE_").lower().replace("_", " ")


def _phase(facts: dict[str, Json]) -> str:
    for value in facts.values():
        if isinstance(value, dict) and isinstance(value.get("phase"), str):
            return f"{value['phase']} {value.get('name', '')}"
    return ""


def _parts(parts: list[Json]) -> str:
    found = []
    for part in parts:
        if isinstance(part, dict):
            text = part.get("text")
            found.append(
                text if isinstance(text, str) else msgspec.json.encode(part.get("data", part)).decode()[:PREVIEW]
            )
    return " ".join(found)[:PREVIEW]
