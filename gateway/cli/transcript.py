"""Tasks of the wire as something to read. Law: the wire's JSON is a stranger's."""

from collections.abc import Iterable, Iterator
from typing import Any

from gateway.cli.terminal import json_text, visible
from gateway.cli.tool_lines import is_said_twice, tool_call
from gateway.cli.view import described, described_file, is_text
from gateway.client_wire import at, objects, text_at

Json = Any

_SPEAKERS = {"ROLE_USER": "you", "ROLE_AGENT": "agent"}


def word(state: Json) -> str:
    """A task's state as a person would write it."""
    return str(state or "").removeprefix("TASK_STATE_").lower().replace("_", " ")


def state_of(task: Json) -> str:
    return word(text_at(task, "status", "state"))


def moment_of(task: Json) -> str:
    return text_at(task, "status", "timestamp") or ""


def opening(task: Json) -> str:
    """The text with which a task began, where the agent tells."""
    messages = (message for message in objects(task, "history") if message.get("role") == "ROLE_USER")
    return next((text for message in messages if (text := _text(objects(message, "parts")))), "")


def transcript(task: Json) -> Iterator[str]:
    """All that was said in a task, line by line: its messages, its artifacts, and what it ended with."""
    for message in objects(task, "history"):
        yield from _said(message)
    for artifact in objects(task, "artifacts"):
        name = text_at(artifact, "name")
        yield from _lines("agent" if name is None else f"agent, {visible(name)}", objects(artifact, "parts"))
    closing = at(task, "status", "message")
    known = {text_at(message, "messageId") for message in objects(task, "history")}
    if closing is not None and text_at(closing, "messageId") not in known:
        yield from _said(closing)
    if at(task, "metadata", "quarantined") is True:
        yield "put aside, because nobody could end it, and without what it had shown: cancel it, or delete its context"


def _said(message: Json) -> Iterator[str]:
    speaker = _SPEAKERS.get(str(at(message, "role")), "somebody")
    yield from _lines(speaker, [part for part in objects(message, "parts") if not is_said_twice(part, message)])


def _lines(speaker: str, parts: list[dict[str, Json]]) -> Iterator[str]:
    text = _text(parts)
    if text:
        yield f"{speaker}: {visible(text)}"
    for part in parts:
        if tool_call(part):
            yield f"{speaker}: {visible(described(part))}"
        elif not is_text(part):
            content = json_text(part["data"]) if "data" in part else described_file(part)
            yield f"{speaker}: {visible(content)}"


def _text(parts: Iterable[Json]) -> str:
    return "".join(part["text"] for part in parts if is_text(part))
