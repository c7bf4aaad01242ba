"""Calls of an adapter in tests: requests as the core makes them, and what came back. Law: every wait has a bound.

The part of the conformance suite for adapters that let the gateway run tools. Law: it knows no backend.
"""

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Awaitable, Sequence
from typing import Any, NoReturn, TypeVar

import msgspec
import pytest

from gateway.a2a.model import Json, Message, Part, Role
from gateway.ports.adapter import (
    Adapter,
    AdapterError,
    AdapterEvent,
    CallCompleted,
    PartReady,
    ServiceRequest,
    TextDelta,
    ToolCallAnnounced,
    ToolCallArguments,
    ToolCallReady,
    ToolResultReady,
)
from gateway.ports.conversation import AssistantItem, CallItem, Item, OutputItem, StorageOwner, UserItem
from gateway.ports.tools import ToolDeclaration

T = TypeVar("T")
BOUND = 30.0
"""Seconds after which something that must happen counts as not happening."""


def message(words: str) -> Message:
    return Message(message_id=f"message-{words[:20]}", role=Role.USER, parts=(Part(text=words),))


def request(
    words: str, *, earlier: Sequence[Item] = (), handle: str | None = None, state: Json = None, **changes: Any
) -> ServiceRequest:
    """A request as the core makes it. `earlier` are the items before the message that is sent."""
    sent = message(words)
    fields: dict[str, Any] = {
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
    return ServiceRequest(**{**fields, **changes})


def follow_up(adapter: Adapter, first: CallCompleted, asked: str, answered: str, words: str) -> ServiceRequest:
    """The request of the second turn: a delta for owner BACKEND, the whole conversation for owner GATEWAY."""
    if adapter.ownership.owner is StorageOwner.BACKEND:
        return request(words, handle=first.handle, state=first.state)
    earlier = (UserItem(message(asked)), AssistantItem((Part(text=answered),)))
    return request(words, earlier=earlier, state=first.state)


def after_calls(
    adapter: Adapter,
    events: Sequence[AdapterEvent],
    outputs: Sequence[Json],
    *,
    before: tuple[Item, ...] = (),
    words: str = "",
    error: bool = False,
    tools: tuple[ToolDeclaration, ...] = (),
) -> ServiceRequest:
    """The request that brings the outputs of a call's tools, and `words` of the user.

    `before` is what that call had, if it was more than the message "Hi".
    """
    done = completed(events)
    calls = of_type(events, ToolCallReady)
    answers = [OutputItem(call.call_id, output, error) for call, output in zip(calls, outputs, strict=False)]
    said = message(words) if words else message("Hi")
    new: tuple[Item, ...] = (*answers, UserItem(said)) if words else tuple(answers)
    if adapter.ownership.owner is StorageOwner.GATEWAY:
        made = tuple(CallItem(call.call_id, call.name, call.arguments) for call in calls)
        new = (*(before or (UserItem(message("Hi")),)), *made, *new)
    return request(words or "Hi", handle=done.handle, state=done.state, items=new, message=said, tools=tools)


# --- answers ----------------------------------------------------------------------------------------------------------


async def collect(adapter: Adapter, asked: ServiceRequest) -> list[AdapterEvent]:
    """All events of one call."""

    async def events() -> list[AdapterEvent]:
        return [event async for event in adapter.call(asked)]

    return await bounded(events(), "the call ends")


async def first_text(events: AsyncGenerator[AdapterEvent, None]) -> None:
    """Returns at the first text of the answer."""

    async def read() -> None:
        async for event in events:
            if isinstance(event, TextDelta):
                return
        raise AssertionError("the call ended before it gave any text")

    await bounded(read(), "the first text comes")


async def failure(adapter: Adapter, *, secret: str | None = None) -> AdapterError:
    """The error of a call that must fail, and must not be completed before it does; `secret` is in none of its texts."""
    events: list[AdapterEvent] = []

    async def run() -> AdapterError | None:
        try:
            async for event in adapter.call(request("Hi")):
                events.append(event)  # noqa: PERF401  # what came before the error counts
        except AdapterError as error:
            return error
        return None

    error = await bounded(run(), "the call ends")
    require(not of_type(events, CallCompleted), "the call was completed although it failed")
    if error is None:
        raise AssertionError("the call ended without CallCompleted and without an AdapterError")
    link: BaseException | None = error
    while secret is not None and link is not None:
        require(secret not in f"{link} {link!r}", f"the API key is in the text of a {type(link).__name__}")
        link = link.__cause__ or link.__context__
    return error


def completed(events: Sequence[AdapterEvent]) -> CallCompleted:
    """The completion of a call, which must be there once and at the end."""
    found = only(events, CallCompleted)
    require(events[-1] is found, f"{events[-1]!r} came after CallCompleted")
    return found


def text(events: Sequence[AdapterEvent]) -> str:
    """The text of the answer."""
    parts = (event.text if isinstance(event, TextDelta) else _text_of(event) for event in events)
    return "".join(parts)


def _text_of(event: AdapterEvent) -> str:
    return (event.part.text or "") if isinstance(event, PartReady) else ""


def of_type(events: Sequence[AdapterEvent], kind: type[T]) -> list[T]:
    return [event for event in events if isinstance(event, kind)]


def only(events: Sequence[AdapterEvent], kind: type[T]) -> T:
    found = of_type(events, kind)
    require(len(found) == 1, f"there are {len(found)} {kind.__name__} in {list(events)!r}, not one")
    return found[0]


# --- checks ----------------------------------------------------------------------------------------------------


def require(holds: bool, otherwise: str) -> None:
    """An assertion that keeps its text when pytest does not rewrite this module, and under `python -O`."""
    if not holds:
        raise AssertionError(otherwise)


def require_json(event: AdapterEvent) -> None:
    try:
        json.dumps(msgspec.to_builtins(event), allow_nan=False, ensure_ascii=False).encode()
    except (TypeError, ValueError) as error:
        raise AssertionError(f"{event!r} carries what is no JSON: {error}") from error


async def bounded(awaitable: Awaitable[T], what: str) -> T:
    """Raises: AssertionError when `what` does not happen in time."""
    try:
        async with asyncio.timeout(BOUND):
            return await awaitable
    except TimeoutError as error:
        raise AssertionError(f"{what}: not within {BOUND:g} s") from error


_TOOLS = tuple(
    ToolDeclaration(name, f"The {name} of a city.", {"type": "object", "properties": {"city": {"type": "string"}}})
    for name in ("weather", "height", "mayor")
)
_OSLO: dict[str, Json] = {"city": "Oslo"}
_TWO_CALLS = [("weather", _OSLO), ("height", {})]


class ToolTests:
    """`AdapterSuite` has these tests; its docstring lists the hooks."""

    async def backend_calls(self, *rounds: Sequence[tuple[str, dict[str, Json]]]) -> None:
        skip("backend_calls", *rounds)

    async def backend_offered(self) -> list[list[ToolDeclaration]]:
        skip("backend_offered")

    async def backend_outputs(self) -> list[list[tuple[str, str]]]:
        skip("backend_outputs")

    # --- what is offered

    async def test_tools_are_offered_with_every_call_that_has_them_and_with_no_other(self, adapter: Adapter) -> None:
        await self.backend_calls([("weather", _OSLO)])
        first = await collect(adapter, request("Hi", tools=_TOOLS))
        last = await collect(adapter, after_calls(adapter, first, ["3C"], tools=_TOOLS))
        await collect(adapter, after_calls(adapter, last, [], words="And now?"))
        offered = await self.backend_offered()
        wanted = [list(_TOOLS), list(_TOOLS), []]
        require(offered == wanted, f"the backend must be offered {wanted!r}; it was offered {offered!r}")

    # --- what the model calls

    async def test_a_call_that_the_backend_does_not_answer_is_left_to_the_gateway(self, adapter: Adapter) -> None:
        await self.backend_calls([("weather", _OSLO)])
        events = await collect(adapter, request("Hi", tools=_TOOLS))
        completed(events)
        calls = of_type(events, ToolCallReady)
        require([call.name for call in calls] == ["weather"], f"the calls are {calls!r}, not one of 'weather'")
        require(not calls[0].handled, "handled is True for a call that the gateway has to answer")
        require(not of_type(events, ToolResultReady), "there is a result of a call that nobody has answered")
        require(json.loads(calls[0].arguments) == _OSLO, f"the arguments are {calls[0].arguments!r}")
        deltas = "".join(event.delta for event in of_type(events, ToolCallArguments))
        require(deltas in ("", calls[0].arguments), f"the deltas of the arguments join to {deltas!r}")
        for event in events:
            require_json(event)

    async def test_parallel_calls_keep_their_order_and_have_ids_of_their_own(self, adapter: Adapter) -> None:
        await self.backend_calls(_TWO_CALLS)
        events = await collect(adapter, request("Hi", tools=_TOOLS))
        calls = of_type(events, ToolCallReady)
        names = [call.name for call in calls]
        require(names == ["weather", "height"], f"the calls are {names!r}, not 'weather' and 'height'")
        ids = {call.call_id for call in calls}
        require(len(ids) == len(calls) and all(ids), f"the ids of two calls are {sorted(ids)!r}")
        of_events = {event.call_id for event in events if isinstance(event, ToolCallAnnounced | ToolCallArguments)}
        require(of_events <= ids, f"events of calls have the ids {sorted(of_events)!r}, the calls {sorted(ids)!r}")

    # --- what goes back

    async def test_outputs_go_back_in_one_request_each_to_its_call(self, adapter: Adapter) -> None:
        await self.backend_calls(_TWO_CALLS)
        first = await collect(adapter, request("Hi", tools=_TOOLS))
        events = await collect(adapter, after_calls(adapter, first, [{"degrees": 3}, ""], tools=_TOOLS))
        answer = text(events)
        require(answer == "Done", f"the answer behind the outputs is {answer!r}, not 'Done'")
        outputs = (await self.backend_outputs())[-1]
        require([name for name, _ in outputs] == ["weather", "height"], f"the outputs that arrived are {outputs!r}")
        require(
            json.loads(outputs[0][1]) == {"degrees": 3}, f"the output {{'degrees': 3}} arrived as {outputs[0][1]!r}"
        )
        require(outputs[1][1] == "", f"the empty output arrived as {outputs[1][1]!r}")

    async def test_a_tool_that_failed_is_told_to_the_model(self, adapter: Adapter) -> None:
        await self.backend_calls([("weather", _OSLO)])
        first = await collect(adapter, request("Hi", tools=_TOOLS))
        await collect(adapter, after_calls(adapter, first, ["no such city"], error=True))
        outputs = (await self.backend_outputs())[-1]
        told = outputs[0][1] if outputs else ""
        require("no such city" in told, f"of a tool that failed with 'no such city' the backend got {outputs!r}")

    async def test_a_turn_of_several_rounds_ends_with_its_answer(self, adapter: Adapter) -> None:
        await self.backend_calls(_TWO_CALLS, [("mayor", _OSLO)])
        items: tuple[Item, ...] = (UserItem(message("Hi")),)
        events = await collect(adapter, request("Hi", tools=_TOOLS))
        for output in ("first", "second"):
            given = [output] * len(of_type(events, ToolCallReady))
            asked = after_calls(adapter, events, given, before=items, tools=_TOOLS)
            items = asked.items
            events = await collect(adapter, asked)
        require(text(events) == "Done", f"the answer behind two rounds is {text(events)!r}, not 'Done'")
        outputs = (await self.backend_outputs())[-1]
        earlier = [("weather", "first"), ("height", "first")]
        wanted = [*(earlier if adapter.ownership.owner is StorageOwner.GATEWAY else ()), ("mayor", "second")]
        require(outputs == wanted, f"the outputs of the last request are {outputs!r}, not {wanted!r}")

    async def test_outputs_and_a_message_behind_them_go_together(self, adapter: Adapter) -> None:
        await self.backend_calls(_TWO_CALLS)
        first = await collect(adapter, request("Hi", tools=_TOOLS))
        completed(await collect(adapter, after_calls(adapter, first, ["not run", "not run"], words="Never mind")))
        outputs = (await self.backend_outputs())[-1]
        wanted = [("weather", "not run"), ("height", "not run")]
        require(outputs == wanted, f"with the message came the outputs {outputs!r}, not {wanted!r}")

    async def test_behind_tools_a_last_call_without_any_is_answered(self, adapter: Adapter) -> None:
        await self.backend_calls([("weather", _OSLO)])
        first = await collect(adapter, request("Hi", tools=_TOOLS))
        answer = text(await collect(adapter, after_calls(adapter, first, ["3C"])))
        require(answer == "Done", f"the answer of the last call is {answer!r}, not 'Done'")


def skip(hook: str, *_unused: object) -> NoReturn:
    pytest.skip(f"give your test class `{hook}` and this is tested")
