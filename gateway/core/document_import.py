"""Checks an exported context before its import. Law: pure; every refusal names its place; a context that passes can be read,
shown and continued like any other."""

from collections.abc import Iterable, Sequence
from typing import TypeVar

import msgspec
from msgspec import UNSET

from gateway.a2a.errors import echo, invalid
from gateway.a2a.model import INTERRUPTED, TERMINAL, Json, Part, StreamResponse
from gateway.ledger import documents
from gateway.ledger.tasks import StoredArtifact
from gateway.ports.conversation import AssistantItem, Ownership, UserItem

T = TypeVar("T")


def read(value: Json) -> documents.ContextDocument:
    """Raises: InvalidParams naming the place."""
    if not isinstance(value, dict) or value.get("format") != documents.FORMAT:
        raise invalid("format", f"must be {documents.FORMAT!r}: this is no exported context")
    version = value.get("version")
    if isinstance(version, int) and version > documents.VERSION:
        raise invalid("version", f"{version} is newer than {documents.VERSION}, the latest that this gateway reads")
    document = _convert(value, documents.ContextDocument, "")
    for index, task in enumerate(document.tasks):
        _check_task(f"tasks[{index}]", task)
    agents = {task.id: task.agent for task in document.tasks}
    for index, thread in enumerate(document.threads):
        _check_thread(f"threads[{index}]", thread, agents)
    known = {turn.task for thread in document.threads for turn in thread.turns}
    for index, task in enumerate(document.tasks):
        if task.id not in known:
            raise invalid(f"tasks[{index}].id", f"no turn belongs to {echo(task.id)}")
    return document


def _convert(value: Json, kind: type[T], place: str) -> T:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        reason, _, inner = str(error).partition(" - at `$")
        joined = f"{place}{inner.removesuffix('`')}".removeprefix(".")
        raise invalid(joined or "document", reason) from error


def _check_task(place: str, task: documents.PortableTask) -> None:
    if task.state not in TERMINAL | INTERRUPTED:
        raise invalid(f"{place}.state", f"a task at work cannot be imported: {task.state}")
    logged = len(task.events)
    if logged != task.last_event and (logged or task.state not in TERMINAL):
        raise invalid(f"{place}.events", f"there are {logged}, and the last one is said to be number {task.last_event}")
    if task.status_message is not None:
        _check_parts(f"{place}.statusMessage", task.status_message.parts)
    for index, event in enumerate(task.events):
        _check_event(f"{place}.events[{index}]", event, task.id)


def _check_event(place: str, event: StreamResponse, task: str) -> None:
    update = event.status_update or event.artifact_update
    if update is None or event.task is not None or event.message is not None:
        raise invalid(place, "must be one update of a status or of an artifact")
    if update.task_id != task:
        raise invalid(place, f"is of another task, {echo(update.task_id)}")


def _check_thread(place: str, thread: documents.PortableThread, agents: dict[str, str]) -> None:
    try:
        Ownership(thread.owner, thread.handle_kind)
    except ValueError as error:
        raise invalid(f"{place}.handleKind", str(error)) from error
    if thread.handle_kind == "none" and (thread.handle or thread.clean_handle) is not None:
        raise invalid(f"{place}.handle", "there is none where the gateway keeps the history")
    for index, turn in enumerate(thread.turns):
        where = f"{place}.turns[{index}]"
        if agents.get(turn.task) != thread.agent:
            raise invalid(f"{where}.task", f"{echo(turn.task)} is no task of the agent {echo(thread.agent)}")
        _check_turn(where, turn)
    _check_items(place, thread)


def _check_turn(place: str, turn: documents.PortableTurn) -> None:
    if turn.displaced and turn.status in ("completed", "rejected"):
        raise invalid(f"{place}.displaced", f"a turn that is {turn.status} is a part of the conversation")
    for index, given in enumerate(turn.inputs):
        _check_parts(f"{place}.inputs[{index}].message", given.message.parts)
        if (given.key is None) != (given.key_kind is None):
            raise invalid(f"{place}.inputs[{index}].keyKind", "key and keyKind go together")
    for index, message in enumerate(turn.messages):
        _check_parts(f"{place}.messages[{index}]", message.parts)
    artifacts = _convert(turn.artifacts, tuple[StoredArtifact, ...], f"{place}.artifacts")
    for index, stored in enumerate(artifacts):
        _check_parts(f"{place}.artifacts[{index}].artifact", stored.artifact.parts)


def _check_items(place: str, thread: documents.PortableThread) -> None:
    turns = {turn.id: {given.ordinal for given in turn.inputs} for turn in thread.turns}
    calls = {call.id for turn in thread.turns for call in turn.calls}
    tools = {made.id for turn in thread.turns for call in turn.calls for made in call.tool_calls}
    for index, item in enumerate(thread.items):
        where = f"{place}.items[{index}]"
        if item.turn not in turns:
            raise invalid(f"{where}.turn", f"{echo(item.turn)} is no turn of the thread")
        if (item.item is None) == (item.input is None):
            raise invalid(where, "must have either item or input")
        if item.input is not None and item.input not in turns[item.turn]:
            raise invalid(f"{where}.input", f"{item.input} is no input of the turn")
        _check_known(f"{where}.serviceCall", item.service_call, calls)
        _check_known(f"{where}.sentIn", item.sent_in, calls)
        _check_known(f"{where}.refusedIn", item.refused_in, calls)
        _check_known(f"{where}.toolCall", item.tool_call, tools)
        _check_item(f"{where}.item", item)


def _check_known(place: str, name: str | None, known: Iterable[str]) -> None:
    if name is not None and name not in known:
        raise invalid(place, f"{echo(name)} is not in the thread")


def _check_item(place: str, item: documents.PortableItem) -> None:
    match item.item:
        case AssistantItem(parts=parts):
            _check_parts(place, parts)
        case UserItem(message=message):
            _check_parts(f"{place}.message", message.parts)


def _check_parts(place: str, parts: Sequence[Part]) -> None:
    for index, part in enumerate(parts):
        given = [content for content in (part.text, part.raw, part.url) if content is not None]
        if len(given) + (part.data is not UNSET) != 1:
            raise invalid(f"{place}.parts[{index}]", "must have exactly one of text, raw, url and data")
