"""Calls of an adapter in tests: requests as the core makes them, and checks of the events. Law: every wait has a bound."""

import json
import time
from collections.abc import AsyncGenerator, Sequence
from typing import Any, NoReturn, TypeVar

import msgspec
import pytest

from gateway.a2a.model import Json, Message, Part, Role
from gateway.foundation.causes import causes
from gateway.ports import adapter as port
from gateway.ports.conversation import AssistantItem, CallItem, Item, OutputItem, StorageOwner, UserItem
from gateway.ports.tools import ToolDeclaration
from gateway.testing.checks import BOUND, require, time_limit

T = TypeVar("T")


def message(words: str) -> Message:
    return Message(message_id=f"message-{words[:20]}", role=Role.USER, parts=(Part(text=words),))


def request(
    words: str, *, earlier: Sequence[Item] = (), handle: str | None = None, state: Json = None, **changes: Any
) -> port.ServiceRequest:
    """A request in the form that the core makes. `earlier` are the items before the new message."""
    sent = message(words)
    fields = {
        "handle": handle,
        "items": (*earlier, UserItem(sent)),
        "context_id": "context-1",
        "task_id": "task-1",
        "principal": "somebody",
        "message": sent,
        "first_message": sent,
        "state": state,
        "accepted_output_modes": (),
        "deadline": time.monotonic() + 2 * BOUND,
    }
    return port.ServiceRequest(**{**fields, **changes})


def follow_up(
    adapter: port.Adapter, first: port.CallCompleted, asked: str, answered: str, words: str
) -> port.ServiceRequest:
    """The request of the second turn: a delta for owner BACKEND, the whole conversation for owner GATEWAY."""
    if adapter.ownership.owner is StorageOwner.BACKEND:
        return request(words, handle=first.handle, state=first.state)
    earlier = (UserItem(message(asked)), AssistantItem((Part(text=answered),)))
    return request(words, earlier=earlier, state=first.state)


def request_with_outputs(
    adapter: port.Adapter,
    events: Sequence[port.AdapterEvent],
    outputs: Sequence[Json],
    *,
    before: tuple[Item, ...] = (),
    words: str = "",
    error: bool = False,
    tools: tuple[ToolDeclaration, ...] = (),
) -> port.ServiceRequest:
    """The request with the outputs of a call's tools, followed by the user's `words`, if any.

    `before`: the items of that call, if it had more than the message "Hi".
    """
    done = completed(events)
    calls = of_type(events, port.ToolCallReady)
    answers = [OutputItem(call.call_id, output, error) for call, output in zip(calls, outputs, strict=False)]
    sent = message(words or "Hi")
    new: tuple[Item, ...] = (*answers, UserItem(sent)) if words else tuple(answers)
    if adapter.ownership.owner is StorageOwner.GATEWAY:
        made = tuple(CallItem(call.call_id, call.name, call.arguments) for call in calls)
        new = (*(before or (UserItem(message("Hi")),)), *made, *new)
    return request(words or "Hi", handle=done.handle, state=done.state, items=new, message=sent, tools=tools)


async def collect(adapter: port.Adapter, asked: port.ServiceRequest) -> list[port.AdapterEvent]:
    """All events of one call."""
    async with time_limit("the call ends"):
        return [event async for event in adapter.call(asked)]


async def first_text(events: AsyncGenerator[port.AdapterEvent, None]) -> None:
    """Returns at the first text of the answer."""
    async with time_limit("the first text comes"):
        async for event in events:
            if isinstance(event, port.TextDelta):
                return
        raise AssertionError("the call ended before it gave any text")


async def failure(adapter: port.Adapter, *, secret: str | None = None) -> port.AdapterError:
    """The error of a call that must fail, without a completion before. `secret` must be in none of the error's texts."""
    events: list[port.AdapterEvent] = []
    error: port.AdapterError | None = None
    async with time_limit("the call ends"):
        try:
            async for event in adapter.call(request("Hi")):
                events.append(event)  # noqa: PERF401  # the events before the error count
        except port.AdapterError as raised:
            error = raised
    require(not of_type(events, port.CallCompleted), "the call was completed although it failed")
    if error is None:
        raise AssertionError("the call ended without CallCompleted and without an AdapterError")
    for link in causes(error):
        found = secret is not None and secret in f"{link} {link!r}"
        require(not found, f"the API key is in the text of a {type(link).__name__}")
    return error


def completed(events: Sequence[port.AdapterEvent]) -> port.CallCompleted:
    """The only completion of a call, which must be its last event."""
    found = only(events, port.CallCompleted)
    require(events[-1] is found, f"{events[-1]!r} came after CallCompleted")
    return found


def text(events: Sequence[port.AdapterEvent]) -> str:
    """The text of the answer."""
    said = ""
    for event in events:
        match event:
            case port.TextDelta(text=words):
                said += words
            case port.PartReady(part=part):
                said += part.text or ""
            case port.AnswerReplaced(parts=parts):
                said = "".join(part.text or "" for part in parts)
    return said


def of_type(events: Sequence[port.AdapterEvent], kind: type[T]) -> list[T]:
    return [event for event in events if isinstance(event, kind)]


def only(events: Sequence[port.AdapterEvent], kind: type[T]) -> T:
    found = of_type(events, kind)
    require(len(found) == 1, f"there are {len(found)} {kind.__name__} in {list(events)!r}, not one")
    return found[0]


def require_json(events: Sequence[port.AdapterEvent]) -> None:
    for event in events:
        try:
            json.dumps(msgspec.to_builtins(event), allow_nan=False, ensure_ascii=False).encode()
        except (TypeError, ValueError) as error:
            raise AssertionError(f"{event!r} carries what is no JSON: {error}") from error


def skip(hook: str, *_unused: object) -> NoReturn:
    pytest.skip(f"give your test class `{hook}` and this is tested")
