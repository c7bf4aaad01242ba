"""An adapter that breaks its contract: its own task fails, the gateway and all other tasks are not affected."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any, cast

import pytest
from pydantic import BaseModel

from gateway.a2a.model import Part
from gateway.config.plugins import Registry
from gateway.config.settings import Settings
from gateway.core.failures import INTERNAL, TURN_TIMEOUT
from gateway.ledger.calls import RESTARTED
from gateway.ports.adapter import (
    AdapterError,
    AdapterEvent,
    AdapterFactory,
    AnyAdapterFactory,
    CallCompleted,
    CallStarted,
    ErrorClass,
    PartReady,
    ServiceRequest,
    TextDelta,
    ToolResultReady,
)
from gateway.ports.conversation import HandleKind, Ownership, StorageOwner
from tests.a2a_client import A2A, COMPLETED, a2a_http, failed, text_of, why
from tests.running import local_gateway

_WORDS = "canary of the adapter"
_Events = AsyncGenerator[AdapterEvent, None]


async def _says_half_a_character() -> _Events:
    yield TextDelta("one \ud800")
    yield CallCompleted()


async def _says_what_is_no_number() -> _Events:
    yield PartReady(Part(data={"value": float("nan")}))
    yield CallCompleted()


async def _says_what_is_no_json() -> _Events:
    yield PartReady(Part(data={"value": object()}))
    yield CallCompleted()


async def _keeps_what_is_no_json() -> _Events:
    yield CallCompleted(state={"value": object()})


async def _names_a_handle_that_is_no_text() -> _Events:
    yield CallStarted("\ud800")
    yield TextDelta("one ")
    yield CallCompleted()


async def _says_no_event() -> _Events:
    yield cast("AdapterEvent", _WORDS)


async def _answers_a_call_that_nobody_made() -> _Events:
    yield ToolResultReady("call_1", _WORDS)


async def _just_ends() -> _Events:
    yield CallStarted()


async def _raises_anything() -> _Events:
    yield CallStarted()
    raise RuntimeError(_WORDS)


async def _fails_for_a_made_up_reason() -> _Events:
    yield CallStarted()
    raise AdapterError(cast("ErrorClass", "made-up"), _WORDS)


async def _times_out() -> _Events:
    yield CallStarted()
    raise TimeoutError(_WORDS)


async def _cancels_itself() -> _Events:
    yield CallStarted()
    raise asyncio.CancelledError(_WORDS)


async def _cannot_be_closed() -> _Events:
    try:
        yield CallCompleted()
    finally:
        yield TextDelta(_WORDS)


_BROKEN: dict[Callable[[], _Events], tuple[str, str]] = {
    _says_half_a_character: failed(INTERNAL),
    _says_what_is_no_json: failed(INTERNAL),
    _keeps_what_is_no_json: failed(INTERNAL),
    _says_no_event: failed(ErrorClass.CONTRACT_BROKEN),
    _answers_a_call_that_nobody_made: failed(ErrorClass.CONTRACT_BROKEN),
    _just_ends: failed(ErrorClass.CONTRACT_BROKEN),
    _raises_anything: failed(INTERNAL),
    _fails_for_a_made_up_reason: failed(INTERNAL),
    _times_out: failed(TURN_TIMEOUT),
    _cancels_itself: failed(INTERNAL),
    _cannot_be_closed: COMPLETED,
}


class _Settings(Settings):
    pass


class _Adapter:
    """Does what the message's text names; any other text is repeated."""

    ownership = Ownership(StorageOwner.GATEWAY, HandleKind.NONE)

    async def call(self, request: ServiceRequest) -> AsyncGenerator[AdapterEvent, None]:
        text = request.message.parts[0].text or ""
        breaking = next((each for each in (*_BROKEN, _names_a_handle_that_is_no_text) if each.__name__ == text), None)
        if breaking is None:
            yield TextDelta(text)
            yield CallCompleted()
            return
        async for event in breaking():
            yield event

    async def aclose(self) -> None:
        pass


class _Plugins(Registry):
    def known_types(self) -> tuple[str, ...]:
        return ("broken",)

    def settings_model(self, section: str, kind: str) -> type[BaseModel] | None:
        return _Settings if section == "agents" else super().settings_model(section, kind)

    def factory(self, adapter_type: str) -> AnyAdapterFactory:
        factory: AdapterFactory[Any] = AdapterFactory(_Settings, lambda _: _Adapter(), "", ())
        return factory


@pytest.mark.parametrize("breaks", _BROKEN, ids=lambda breaks: breaks.__name__)
async def test_only_the_task_of_a_broken_adapter_fails(tmp_path: Path, breaks: Callable[[], _Events]) -> None:
    async with (
        local_gateway("broken: {type: broken}", tmp_path, registry=_Plugins()) as gateway,
        a2a_http(gateway.url) as http,
    ):
        caller = A2A(http, "broken")
        async with caller.stream(breaks.__name__) as stream:
            frames = await stream.rest()
        task = frames[0].event["task"]
        stored = await caller.get(task["id"])
        after = await caller.send("hello", task["contextId"])

    assert why(frames[-1].event["statusUpdate"]) == why(stored) == _BROKEN[breaks]
    assert (why(after), text_of(after)) == (COMPLETED, "hello")
    assert _WORDS not in caller.seen.decode()


async def test_a_turn_whose_record_cannot_be_kept_is_ended_by_recovery(tmp_path: Path) -> None:
    async with (
        local_gateway("broken: {type: broken}", tmp_path, registry=_Plugins()) as gateway,
        a2a_http(gateway.url) as http,
    ):
        caller = A2A(http, "broken")
        async with caller.stream(_names_a_handle_that_is_no_text.__name__) as stream:
            task = (await stream.rest())[0].event["task"]
        async with caller.subscribe(task["id"], after=0) as stream:
            frames = await stream.rest()
        after = await caller.send("hello", task["contextId"])

    assert why(frames[-1].event["statusUpdate"]) == failed(RESTARTED)
    assert (why(after), text_of(after)) == (COMPLETED, "hello")
