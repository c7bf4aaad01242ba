"""The schema and the golden vectors of `tool-calls/v1`, as docs/extensions ships them."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from jsonschema import Draft202012Validator
from jsonschema.protocols import Validator

from gateway.a2a.model import StreamResponse, TaskStatusUpdateEvent
from gateway.a2a.redaction import json_path
from gateway.a2a.tool_calls import URI, CallFacts, Place, Rendering, Update, update

_FOLDER = Path(__file__).parents[1] / "docs" / "extensions"
SCHEMA: dict[str, Any] = json.loads((_FOLDER / "tool-calls-v1.schema.json").read_text())

_whole: Validator = Draft202012Validator(SCHEMA)


@dataclass(frozen=True)
class Vector:
    """`update` is the StreamResponse, None where nothing is sent."""

    name: str
    given: dict[str, Any]
    update: Any

    def rendered(self) -> Any:
        given = self.given
        place = Place("task-1", "context-1", given["now"], lambda: "message-1")
        rendering = dict(given.get("rendering", {}))
        paths = tuple(json_path(text) for text in rendering.pop("redact", ()))
        made = update(
            CallFacts(**given["call"]), given["phase"], given.get("detail"), Rendering(redact=paths, **rendering), place
        )
        return None if made is None else as_event(made)


def as_event(made: Update) -> Any:
    if isinstance(made, TaskStatusUpdateEvent):
        return json.loads(msgspec.json.encode(StreamResponse(status_update=made)))
    return json.loads(msgspec.json.encode(StreamResponse(artifact_update=made)))


def vectors() -> list[Vector]:
    found = sorted((_FOLDER / "vectors").glob("*.json"))
    read = ((path.stem, json.loads(path.read_text())) for path in found)
    return [Vector(name, vector["given"], vector["update"]) for name, vector in read]


def faults(event: Any) -> list[str]:
    """The errors of an event of a stream, if it is of a tool call."""
    if not _tells(event):
        return []
    return [f"{'/'.join(map(str, error.absolute_path))}: {error.message[:200]}" for error in _whole.iter_errors(event)]


def valid(definition: str, value: Any) -> bool:
    """Does the value fit this definition of the schema?"""
    return bool(Draft202012Validator({**SCHEMA, "oneOf": [{"$ref": f"#/$defs/{definition}"}]}).is_valid(value))


def _tells(event: Any) -> bool:
    """The question of a task that waits has metadata of the extension, too, and is no moment of a call."""
    body = event.get("statusUpdate") or event.get("artifactUpdate") or {}
    status = body.get("status", {})
    if status.get("state", "TASK_STATE_WORKING") != "TASK_STATE_WORKING":
        return False
    parts = [*(status.get("message") or {}).get("parts", ()), *body.get("artifact", {}).get("parts", ())]
    return any(URI in (owner.get("metadata") or {}) for owner in (body, *parts))
