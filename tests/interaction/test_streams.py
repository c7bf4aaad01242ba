"""Streams over both bindings: framing, errors before and after the first byte, silence, drain, disconnecting clients."""

from typing import Any

import msgspec
import pytest

from gateway.a2a.errors import InvalidParams, TaskNotFound
from gateway.a2a.model import SendMessageRequest, SubscribeToTaskRequest
from gateway.config.gateway import LimitsConfig
from gateway.http import pipeline
from gateway.ledger.errors import LedgerUnavailable
from tests.interaction import asgi
from tests.interaction.harness import SEND, Binding, Gateway, Refusal
from tests.interaction.scripted import ScriptedStream

FIRST, SECOND, THIRD = b'{"task":{"id":"1"}}', b'{"statusUpdate":{}}', b'{"artifactUpdate":{}}'
STREAMS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("SendStreamingMessage", "send_streaming_message", SEND),
    ("SubscribeToTask", "subscribe_to_task", {"id": "task-1"}),
)


def events(body: bytes) -> list[dict[str, Any]]:
    """The fields of every event by the line rules of the standard; comments have the empty name."""
    found = []
    for block in body.decode().split("\n\n")[:-1]:
        fields = dict(line.split(": ", 1) for line in block.splitlines())
        if "data" in fields:
            fields["data"] = msgspec.json.decode(fields["data"])
        found.append(fields)
    return found


def opened(gateway: Gateway, *batches: list[tuple[int | None, bytes]], **script: Any) -> ScriptedStream:
    stream = ScriptedStream(*batches, **script)
    gateway.operations.answers |= {"send_streaming_message": stream, "subscribe_to_task": stream}
    return stream


@pytest.mark.parametrize(("operation", "name", "params"), STREAMS)
async def test_events_go_out_with_their_numbers_and_in_order(
    gateway: Gateway, operation: str, name: str, params: dict[str, Any]
) -> None:
    stream = opened(gateway, [(1, FIRST), (2, SECOND)], [(None, THIRD)])

    answer = await gateway.ask(operation, params)

    event = gateway.binding.event
    assert events(answer.body) == [
        {"id": "1", "data": event({"task": {"id": "1"}})},
        {"id": "2", "data": event({"statusUpdate": {}})},
        {"data": event({"artifactUpdate": {}})},
    ]
    assert stream.closed.is_set()
    assert [asked for asked, _ in gateway.operations.requests] == [name]


async def test_a_stream_has_the_headers_that_keep_proxies_from_holding_it_back(gateway: Gateway) -> None:
    opened(gateway, [(1, FIRST)])

    answer = await gateway.ask("SendStreamingMessage", SEND)

    assert answer.status == 200
    assert answer.headers == (
        ("content-type", "text/event-stream"),
        ("cache-control", "no-cache, no-store"),
        ("x-accel-buffering", "no"),
    )


async def test_the_events_of_a_batch_are_one_write(gateway: Gateway) -> None:
    opened(gateway, [(1, FIRST), (2, SECOND)], [], [(3, THIRD)])

    async with gateway.stream("SendStreamingMessage", SEND) as live:
        await live.start()
        chunks = [await live.chunk(), await live.chunk(), await live.chunk()]

    assert [len(events(chunk)) for chunk in chunks] == [2, 1, 0]


async def test_the_same_request_arrives_as_without_a_stream(gateway: Gateway) -> None:
    opened(gateway)

    await gateway.ask("SendMessage", SEND)
    await gateway.ask("SendStreamingMessage", SEND)
    await gateway.ask("SubscribeToTask", {"id": "a:b"}, last_event_id="7")

    (_, _, sent), (_, _, streamed), (_, call, subscribed) = gateway.operations.calls
    assert isinstance(sent, SendMessageRequest)
    assert sent == streamed
    assert subscribed == SubscribeToTaskRequest(id="a:b")
    assert call.last_event_id == 7


async def test_an_error_before_the_stream_is_an_ordinary_answer(gateway: Gateway) -> None:
    gateway.operations.answers["subscribe_to_task"] = TaskNotFound("no such task")

    answer = await gateway.ask("SubscribeToTask", {"id": "task-1"})

    refusal = Refusal(-32001, 404, "NOT_FOUND", "TASK_NOT_FOUND", "no such task")
    assert (answer.status, answer.json) == gateway.binding.refusal(refusal)


@pytest.mark.parametrize(
    ("error", "refusal"),
    [
        (
            InvalidParams("the log is gone"),
            Refusal(-32602, 400, "INVALID_ARGUMENT", "INVALID_PARAMS", "the log is gone"),
        ),
        (
            TimeoutError("sqlite://secret"),
            Refusal(
                -32603,
                500,
                "INTERNAL",
                "INTERNAL_ERROR",
                "Internal error (correlation id c0ffee)",
                metadata={"correlationId": "c0ffee"},
            ),
        ),
        (
            LedgerUnavailable("'/secret/gateway.db' was removed", "removed"),
            Refusal(
                -32603,
                503,
                "UNAVAILABLE",
                "BUSY",
                "The gateway's storage was taken away: nothing new is taken.",
                metadata={"storage": "removed"},
            ),
        ),
    ],
    ids=["known", "unexpected", "storage"],
)
async def test_an_error_inside_a_stream_is_its_last_event(gateway: Gateway, error: Exception, refusal: Refusal) -> None:
    stream = opened(gateway, [(1, FIRST)], error=error)

    answer = await gateway.ask("SendStreamingMessage", SEND)

    _, body = gateway.binding.refusal(refusal)
    assert events(answer.body)[1:] == [{"event": "error", "data": body}]
    assert b"secret" not in answer.body
    assert stream.closed.is_set()


async def test_activated_extensions_are_named_in_the_stream_s_headers(gateway: Gateway) -> None:
    opened(gateway)
    uri = "https://a2a-gateway.dev/extensions/tool-calls/v1"

    answer = await gateway.ask("SendStreamingMessage", SEND, a2a_extensions=uri)

    assert answer.header("a2a-extensions") == uri


async def test_a_silent_stream_gets_comments(binding: Binding) -> None:
    gateway = Gateway(binding, limits=LimitsConfig.model_construct(stream_keepalive=0.001))
    opened(gateway, [(1, FIRST)], stays_open=True)

    async with gateway.stream("SendStreamingMessage", SEND) as live:
        await live.start()
        chunks = [await live.chunk(), await live.chunk(), await live.chunk()]

    assert chunks[1:] == [b": keep-alive\n\n"] * 2


async def test_a_client_that_disconnects_closes_its_stream(gateway: Gateway) -> None:
    stream = opened(gateway, [(1, FIRST)], stays_open=True)

    async with gateway.stream("SendStreamingMessage", SEND) as live:
        await live.start()
        await live.chunk()
        live.leave()
        await live.ended.wait()

    assert stream.closed.is_set()
    assert live.messages.empty()


async def test_a_client_that_subscribed_by_get_closes_its_stream_too(rest: Gateway) -> None:
    stream = opened(rest, [(1, FIRST)], stays_open=True)

    async with asgi.stream(rest.app, "GET", "/a2a/echo/tasks/task-1:subscribe", rest.headers({})) as live:
        await live.start()
        await live.chunk()
        live.leave()
        await live.ended.wait()

    assert stream.closed.is_set()


async def test_a_drain_ends_a_stream_with_a_comment(gateway: Gateway) -> None:
    stream = opened(gateway, [(1, FIRST)], stays_open=True)

    async with gateway.stream("SendStreamingMessage", SEND) as live:
        await live.start()
        await live.chunk()
        gateway.drain.set()
        assert await live.rest() == b": draining\n\n"
        await live.ended.wait()

    assert stream.closed.is_set()


async def test_a_stream_that_opens_during_a_drain_ends_at_once(gateway: Gateway) -> None:
    gateway.drain.set()
    opened(gateway, stays_open=True)

    answer = await gateway.ask("SendStreamingMessage", SEND)

    assert answer.body == b": draining\n\n"


@pytest.mark.parametrize("takes", [0, 1, 2])
async def test_a_reader_that_stops_reading_loses_its_stream(binding: Binding, takes: int) -> None:
    gateway = Gateway(binding, limits=LimitsConfig.model_construct(stream_blocked=0.01))
    stream = opened(gateway, [(1, FIRST)], [(2, SECOND)], stays_open=True)

    async with gateway.stream("SendStreamingMessage", SEND, takes=takes) as live:
        await live.ended.wait()

    assert stream.closed.is_set()


async def test_a_reader_that_does_not_read_comments_loses_its_stream(binding: Binding) -> None:
    gateway = Gateway(binding, limits=LimitsConfig.model_construct(stream_keepalive=0.001, stream_blocked=0.01))
    stream = opened(gateway, [(1, FIRST)], stays_open=True)

    async with gateway.stream("SendStreamingMessage", SEND, takes=2) as live:
        await live.ended.wait()

    assert stream.closed.is_set()


async def test_a_body_that_does_not_arrive_is_given_up(binding: Binding, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "_BODY_TIMEOUT", 0.01)
    gateway = Gateway(binding)
    exchange = binding.ask("SendMessage", SEND)

    async with asgi.stream(gateway.app, exchange.method, exchange.target, gateway.headers({}), None) as live:
        start = await live.start()
        body = await live.rest()

    refusal = Refusal(-32600, 400, "INVALID_ARGUMENT", "INVALID_REQUEST", "the body did not arrive within 0.01 s")
    assert (start["status"], msgspec.json.decode(body)) == binding.refusal(refusal, identified=False)


async def test_a_client_that_disconnects_before_its_body_arrived_gets_nothing(gateway: Gateway) -> None:
    exchange = gateway.binding.ask("SendMessage", SEND)

    async with asgi.stream(gateway.app, exchange.method, exchange.target, gateway.headers({}), None) as live:
        live.leave()
        await live.ended.wait()

    assert live.messages.empty()
    assert gateway.operations.calls == []


async def test_a_body_may_come_in_pieces(gateway: Gateway) -> None:
    exchange = gateway.binding.ask("SendMessage", SEND)
    pieces = [exchange.body[:10], b"", exchange.body[10:]]

    answer = await asgi.request(gateway.app, exchange.method, exchange.target, gateway.headers({}), pieces)

    assert answer.status == 200
