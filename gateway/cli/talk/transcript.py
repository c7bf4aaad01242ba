"""A task as a text to read. Law: nothing is assumed about the agent's JSON."""

from collections.abc import Iterable, Iterator

from gateway.cli.console.terminal import json_text, visible
from gateway.cli.talk.render import file_line, is_text, part_line
from gateway.cli.talk.state import state_words
from gateway.cli.talk.tool_lines import repeats_approval, tool_call
from gateway.client.transport import Json, json_at, objects, text_at

_SPEAKERS = {"ROLE_USER": "you", "ROLE_AGENT": "agent"}


def state_of(task: Json) -> str:
    return state_words(text_at(task, "status", "state"))


def status_time(task: Json) -> str:
    return text_at(task, "status", "timestamp") or ""


def first_text(task: Json) -> str:
    """The user's first text, where the agent gives the history."""
    messages = (message for message in objects(task, "history") if message.get("role") == "ROLE_USER")
    return next((text for message in messages if (text := _text(objects(message, "parts")))), "")


def transcript(task: Json) -> Iterator[str]:
    """The messages of a task, its artifacts and the message of its status, line by line."""
    for message in objects(task, "history"):
        yield from _message_lines(message)
    for artifact in objects(task, "artifacts"):
        name = text_at(artifact, "name")
        yield from _lines("agent" if name is None else f"agent, {visible(name)}", objects(artifact, "parts"))
    closing = json_at(task, "status", "message")
    known = {text_at(message, "messageId") for message in objects(task, "history")}
    if closing is not None and text_at(closing, "messageId") not in known:
        yield from _message_lines(closing)
    if json_at(task, "metadata", "quarantined") is True:
        yield "put aside, because nobody could end it, and without what it had shown: cancel it, or delete its context"


def _message_lines(message: Json) -> Iterator[str]:
    speaker = _SPEAKERS.get(str(json_at(message, "role")), "somebody")
    yield from _lines(speaker, [part for part in objects(message, "parts") if not repeats_approval(part, message)])


def _lines(speaker: str, parts: list[dict[str, Json]]) -> Iterator[str]:
    text = _text(parts)
    if text:
        yield f"{speaker}: {visible(text)}"
    for part in parts:
        if tool_call(part):
            yield f"{speaker}: {visible(part_line(part))}"
        elif not is_text(part):
            content = json_text(part["data"]) if "data" in part else file_line(part)
            yield f"{speaker}: {visible(content)}"


def _text(parts: Iterable[Json]) -> str:
    return "".join(part["text"] for part in parts if is_text(part))
