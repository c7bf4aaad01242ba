"""A request of the gateway as a message to another agent. Law: pure; a message has the caller's parts as they are.

An agent keeps its conversation, so a request carries what it does not know yet. A conversation that it has lost is told again
as text, because a message has no other form for what others have said.
"""

from collections.abc import Iterable, Sequence
from uuid import NAMESPACE_URL, uuid5

import msgspec
from msgspec import UNSET

from adapters.a2a import hops, state
from gateway.a2a.model import Json, Message, Part, Role
from gateway.ports.adapter import ServiceRequest
from gateway.ports.conversation import AssistantItem, CallItem, Item, OutputItem, UserItem

_TOLD_AGAIN = "This conversation is told again, because its record was lost here. What was said so far:"
_NOW = "What is said now:"


def encode(request: ServiceRequest, *, task: str | None, references: tuple[str, ...] | None, own: str) -> Message:
    """The message for the agent `own`, in its task `task`. Raises: hops.Loop."""
    said = [item.message for item in request.items if isinstance(item, UserItem)]
    last = said[-1] if said else None
    metadata: dict[str, Json] = {**((last.metadata if last is not None else None) or {})}
    metadata[hops.URI] = hops.passed(last.metadata if last is not None else None, own)
    return Message(
        message_id=message_id(request),
        context_id=request.handle,
        task_id=task,
        role=Role.USER,
        parts=tuple(_parts(_wanted(request.items, task))),
        metadata=metadata,
        extensions=last.extensions if last is not None else None,
        reference_task_ids=references,
    )


def message_id(request: ServiceRequest, items: Sequence[Item] | None = None) -> str:
    """The id of the message with these items, or with all. It is the same for the same request at the same point of the
    conversation: so a repeat can be known, and a message be found that nobody has heard of since."""
    names = [
        each.message.message_id if isinstance(each, UserItem) else _called(each)
        for each in (request.items if items is None else items)
    ]
    thread = state.read(request.state)
    place = (request.context_id, thread.task, str(thread.calls))
    return str(uuid5(NAMESPACE_URL, " ".join((*place, *names))))


def _called(item: Item) -> str:
    return item.call_id if isinstance(item, OutputItem | CallItem) else ""


def _wanted(items: Sequence[Item], task: str | None) -> Sequence[Item]:
    """Beside words for a new task, decisions for an earlier one are void."""
    words = [item for item in items if isinstance(item, UserItem)]
    void = [item for item in items if isinstance(item, OutputItem) and item.approved is not None]
    return words if task is None and words and len(words) + len(void) == len(items) else items


def _parts(items: Sequence[Item]) -> Iterable[Part]:
    decisions = [item for item in items if isinstance(item, OutputItem) and item.approved is not None]
    rest = [item for item in items if item not in decisions]
    if decisions and all(isinstance(item, UserItem) for item in rest):
        yield Part(data={"approvals": [_decision(each) for each in decisions]})
        items = rest
    if all(isinstance(item, UserItem) for item in items):
        for item in items:
            if isinstance(item, UserItem):
                yield from item.message.parts
        return
    yield from _told_again(items)


def _decision(item: OutputItem) -> dict[str, Json]:
    found: dict[str, Json] = {"id": item.call_id, "approved": item.approved}
    if item.output and isinstance(item.output, str):
        found["reason"] = item.output
    return found


def _told_again(items: Sequence[Item]) -> Iterable[Part]:
    """The conversation before the last message as one text, with its files behind it, and then that message."""
    last = items[-1]
    *earlier, _ = items
    now = last.message.parts if isinstance(last, UserItem) else ()
    told = earlier if isinstance(last, UserItem) else items
    lines = [_TOLD_AGAIN, *filter(None, map(_line, told)), _NOW]
    yield Part(text="\n\n".join(lines))
    for item in told:
        if isinstance(item, UserItem):
            yield from (part for part in item.message.parts if part.text is None)
    yield from now


def _line(item: Item) -> str:
    match item:
        case UserItem(message=message):
            return f"User: {_text(message.parts)}"
        case AssistantItem(parts=parts):
            return f"Agent: {_text(parts)}"
        case CallItem(name=name, arguments=arguments):
            return f"Agent called {name} with {arguments}"
        case OutputItem(output=output):
            said = output if isinstance(output, str) else msgspec.json.encode(output).decode()
            return f"Result: {said}"
    return ""


def _text(parts: Sequence[Part]) -> str:
    return " ".join(filter(None, map(_words, parts)))


def _words(part: Part) -> str:
    if part.text is not None:
        return part.text
    if part.data is not UNSET:
        return msgspec.json.encode(part.data).decode()
    return f"({part.filename or part.url or 'a file'})"
