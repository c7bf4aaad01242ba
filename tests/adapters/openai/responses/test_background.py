"""Responses that continue without a listener: resumed, looked up where that is not possible, and cancelled."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import pytest
from pydantic import ValidationError

from adapters.openai.responses.adapter import BackgroundAdapter, factory
from gateway.ports.adapter import (
    Adapter,
    AdapterError,
    AdapterEvent,
    CallCompleted,
    CallStarted,
    ErrorClass,
    StartedOver,
    TextDelta,
)
from gateway.ports.capabilities import CanCancel, CanResume, Ongoing
from gateway.testing.adapter_scripts import collect, first_text, request
from tests.adapters.emulator_support import KEY, Build, Start, plays, settings
from tests.adapters.openai.openai_support import judge
from tests.emulators.responses_server import ResponsesServer
from tests.emulators.scripts import Cut, Fail, Pause, Restarted, Say, ServerTool
from tests.support.core import BOUND


@pytest.fixture
def server() -> ResponsesServer:
    """Refuses requests that violate the vendor's API description, and any other key."""
    return ResponsesServer(plays(Say("Hello"), Say(" there")), api_key=KEY, validator=judge())


@pytest.fixture
async def adapter(server: ResponsesServer, start: Start, build: Build) -> BackgroundAdapter:
    built = build(factory, await start(server), background=True)
    assert isinstance(built, BackgroundAdapter)
    return built


async def events_of(events: AsyncGenerator[AdapterEvent, None]) -> list[AdapterEvent]:
    async with asyncio.timeout(BOUND):
        return [event async for event in events]


def text(events: Sequence[AdapterEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


def pending_of(event: AdapterEvent) -> str:
    assert isinstance(event, CallStarted)
    assert event.handle is not None
    return event.handle


async def fault(events: AsyncGenerator[AdapterEvent, None]) -> ErrorClass:
    with pytest.raises(AdapterError) as caught:
        await events_of(events)
    assert KEY not in caught.value.detail
    return caught.value.kind


async def test_the_request_is_for_a_stored_background_response(
    server: ResponsesServer, adapter: BackgroundAdapter
) -> None:
    assert text(await collect(adapter, request("hi"))) == "Hello there"
    [body] = server.requests
    assert (body["background"], body["stream"], body["store"]) == (True, True, True)
    assert server.violations == []


async def test_a_resumed_response_gives_the_events_of_its_call(
    server: ResponsesServer, adapter: BackgroundAdapter
) -> None:
    server.script = plays(Say("Hello"), ServerTool("mcp", "look", {}, "3"), Say(" there"))
    events = await collect(adapter, request("hi"))
    assert await events_of(adapter.resume(request("hi"), Ongoing(pending_of(events[0])))) == events


async def test_a_response_continues_when_its_stream_is_dropped(
    server: ResponsesServer, adapter: BackgroundAdapter
) -> None:
    server.script = plays(Say("Hello"), Cut(), Say(" there"))
    events = adapter.call(request("hi"))
    pending = pending_of(await anext(events))
    assert await fault(events) is ErrorClass.INTERRUPTED
    again = await events_of(adapter.resume(request("hi"), Ongoing(pending)))
    assert text(again) == "Hello there"
    assert again[-1] == CallCompleted(pending, usage=again[-1].usage, stored=True)  # type: ignore[union-attr]


async def test_an_early_resumption_gets_the_rest_as_it_comes(
    server: ResponsesServer, adapter: BackgroundAdapter
) -> None:
    go_on = asyncio.Event()
    server.script = plays(Say("Hello"), Pause(go_on), Say(" there"))
    events = adapter.call(request("hi"))
    pending = pending_of(await anext(events))
    await first_text(events)
    await events.aclose()
    again = adapter.resume(request("hi"), Ongoing(pending))
    await first_text(again)
    go_on.set()
    assert text(await events_of(again)) == " there"


async def test_a_response_that_starts_over_gives_the_event_for_it(
    server: ResponsesServer, adapter: BackgroundAdapter
) -> None:
    server.script = plays(Say("Hel"), ServerTool("mcp", "look", {}, "3"), Restarted(), Say("Hello"), Say(" there"))
    events = await collect(adapter, request("hi"))
    at = events.index(StartedOver())
    assert (text(events[:at]), text(events[at:])) == ("Hel", "Hello there")


async def test_without_a_kept_stream_the_finished_response_gives_all_events(
    server: ResponsesServer, adapter: BackgroundAdapter
) -> None:
    events = await collect(adapter, request("hi"))
    server.forget_streams()
    again = await events_of(adapter.resume(request("hi"), Ongoing(pending_of(events[0]))))
    assert again[0] == StartedOver()
    assert (text(again), again[-1]) == ("Hello there", events[-1])


async def test_where_the_stream_is_not_kept_one_that_runs_is_asked_for_later(
    server: ResponsesServer, adapter: BackgroundAdapter
) -> None:
    server.script = plays(Say("Hello"), Pause(asyncio.Event()))
    events = adapter.call(request("hi"))
    pending = pending_of(await anext(events))
    server.forget_streams()
    assert await fault(adapter.resume(request("hi"), Ongoing(pending))) is ErrorClass.INTERRUPTED
    await events.aclose()


# Its stream ends without a word on how the response ended: the response is asked for.

EARLY = b'data: {"type":"response.created","response":{"id":"resp_1","status":"in_progress"}}\n\n'


class EndsEarly(ResponsesServer):
    """The stream of a stored response ends before the response, which is `status`."""

    status = "completed"

    async def _retrieve(self, asked: Any) -> Any:
        from starlette.responses import JSONResponse, Response

        if asked.query_params.get("stream") == "true":
            return Response(EARLY, media_type="text/event-stream")
        if self.status == "away":
            return Response(status_code=500)
        said = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed"}
        output = [said | {"content": [{"type": "output_text", "text": "Hello", "annotations": []}]}]
        why = {"reason": "max_output_tokens"} if self.status == "incomplete" else None
        return JSONResponse({"id": "resp_1", "status": self.status, "output": output, "incomplete_details": why})


@pytest.fixture
async def ending(start: Start, build: Build) -> tuple[EndsEarly, BackgroundAdapter]:
    server = EndsEarly()
    built = build(factory, await start(server), background=True)
    assert isinstance(built, BackgroundAdapter)
    return server, built


@pytest.mark.parametrize("status", ["completed", "incomplete"])
async def test_a_response_whose_stream_ends_early_is_taken_from_the_finished_response(
    ending: tuple[EndsEarly, BackgroundAdapter], status: str
) -> None:
    server, adapter = ending
    server.status = status
    again = await events_of(adapter.resume(request("hi"), Ongoing("resp_1")))
    last = again[-1]
    assert StartedOver() in again
    assert isinstance(last, CallCompleted)
    assert "Hello" in str(again)
    assert (last.handle, last.finish) == ("resp_1", None if status == "completed" else "max_output_tokens")


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        ("failed", ErrorClass.BACKEND_FAILED),
        ("cancelled", ErrorClass.BACKEND_FAILED),
        ("in_progress", ErrorClass.INTERRUPTED),
        ("away", ErrorClass.INTERRUPTED),
    ],
)
async def test_a_response_whose_stream_ends_early_fails_only_when_the_response_did(
    ending: tuple[EndsEarly, BackgroundAdapter], status: str, kind: ErrorClass
) -> None:
    server, adapter = ending
    server.status = status
    assert await fault(adapter.resume(request("hi"), Ongoing("resp_1"))) is kind


async def test_a_response_that_is_gone_has_failed(server: ResponsesServer, adapter: BackgroundAdapter) -> None:
    events = await collect(adapter, request("hi"))
    server.stored.clear()
    assert await fault(adapter.resume(request("hi"), Ongoing(pending_of(events[0])))) is ErrorClass.BACKEND_FAILED


async def test_a_response_that_failed_has_failed_when_it_is_resumed(
    server: ResponsesServer, adapter: BackgroundAdapter
) -> None:
    server.script = plays(Say("Hel"), Fail())
    events = adapter.call(request("hi"))
    pending = pending_of(await anext(events))
    assert await fault(events) is ErrorClass.BACKEND_FAILED
    assert await fault(adapter.resume(request("hi"), Ongoing(pending))) is ErrorClass.BACKEND_FAILED


async def test_an_error_of_a_proxy_is_not_about_the_response(start: Start, build: Build) -> None:
    class Down(ResponsesServer):
        async def _retrieve(self, _: object) -> object:  # type: ignore[override]
            from starlette.responses import Response

            return Response(status_code=502, headers={"Retry-After": "90"})

    adapter = build(factory, await start(Down()), background=True)
    assert isinstance(adapter, CanResume)
    with pytest.raises(AdapterError) as caught:
        await anext(adapter.resume(request("hi"), Ongoing("resp_1")))
    error = caught.value
    assert (error.kind, error.backend_down, error.retry_after) == (ErrorClass.INTERRUPTED, True, 90.0)


async def test_it_can_be_cancelled_and_the_service_confirms(
    server: ResponsesServer, adapter: BackgroundAdapter
) -> None:
    server.script = plays(Say("Hello"), Pause(asyncio.Event()))
    events = adapter.call(request("hi"))
    pending = pending_of(await anext(events))
    await events.aclose()
    assert await adapter.cancel(Ongoing(pending)) is True
    assert server.stored[pending].body["status"] == "cancelled"
    assert await adapter.cancel(Ongoing("resp_unknown")) is False


async def test_only_the_background_adapter_has_the_abilities(
    server: ResponsesServer, start: Start, build: Build
) -> None:
    plain: Adapter = build(factory, await start(server))
    assert not isinstance(plain, CanResume)
    assert not isinstance(plain, CanCancel)


async def test_a_response_in_a_conversation_is_resumed_looked_up_and_cancelled_by_its_own_id(
    server: ResponsesServer, start: Start, build: Build
) -> None:
    adapter = build(factory, await start(server), background=True, conversation=True)
    events = await collect(adapter, request("hi"))
    [made, running] = [event for event in events if isinstance(event, CallStarted)]
    [response] = server.stored
    assert (made.run, running) == (None, CallStarted(made.handle, response))
    assert isinstance(adapter, CanResume)
    again = await events_of(adapter.resume(request("hi"), Ongoing(made.handle, response)))
    assert again == events[1:]


def test_it_cannot_go_together_with_a_history_of_the_gateway() -> None:
    more = {"history": {"owner": "gateway"}}
    with pytest.raises(ValidationError, match="exclude each other"):
        factory.settings.model_validate(settings("http://127.0.0.1:1/v1", background=True, **more))
