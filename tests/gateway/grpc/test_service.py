"""The calls of A2AService: every operation, its errors, and what a caller says in metadata."""

import asyncio
from typing import Any

import grpc
import pytest

from gateway.a2a.errors import Busy, InvalidParams, TaskNotFound
from gateway.a2a.model import GetTaskRequest, SendMessageRequest
from gateway.config.agents import ExtensionConfig
from gateway.config.gateway import LimitsConfig
from gateway.operations.quotas import QuotaLimits
from tests.gateway.grpc.calling import VERSION, details, in_json, path, refused, serving
from tests.interaction.harness import NEEDED, SEND, agent
from tests.interaction.scripted import TASK_JSON, ScriptedOperations, ScriptedStream

FIRST = b'{"task":{"id":"task-1","contextId":"c","status":{"state":"TASK_STATE_WORKING"}}}'
SECOND = b'{"artifactUpdate":{"taskId":"task-1","contextId":"c","artifact":{"artifactId":"a","parts":[{"text":"Hi"}]}}}'
EVENTS = [
    {"task": {"id": "task-1", "contextId": "c", "status": {"state": "TASK_STATE_WORKING"}}},
    {
        "artifactUpdate": {
            "taskId": "task-1",
            "contextId": "c",
            "artifact": {"artifactId": "a", "parts": [{"text": "Hi"}]},
        }
    },
]
DOMAIN = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "domain": "a2a-protocol.org"}


def streaming(*batches: Any, **script: Any) -> tuple[ScriptedOperations, ScriptedStream]:
    operations, stream = ScriptedOperations(), ScriptedStream(*batches, **script)
    operations.answers |= {"send_streaming_message": stream, "subscribe_to_task": stream}
    return operations, stream


# --- results


@pytest.mark.parametrize(
    ("method", "params", "result"),
    [
        ("SendMessage", SEND, {"task": TASK_JSON}),
        ("GetTask", {"id": "task-1"}, TASK_JSON),
        ("ListTasks", {}, {"tasks": [TASK_JSON], "pageSize": 50, "totalSize": 1}),
        ("CancelTask", {"id": "task-1"}, TASK_JSON),
    ],
)
async def test_a_method_returns_its_result(method: str, params: Any, result: Any) -> None:
    async with serving() as served:
        answer = in_json(await served.call(method, params))

    assert answer == _with_short_times(result)


def _with_short_times(value: Any) -> Any:
    """As the library prints a whole second."""
    match value:
        case dict():
            return {name: _with_short_times(member) for name, member in value.items()}
        case list():
            return [_with_short_times(each) for each in value]
        case str():
            return value.replace(".000Z", "Z")
    return value


async def test_the_core_gets_what_it_gets_over_http() -> None:
    async with serving() as served:
        await served.call("GetTask", {"id": "task-1", "historyLength": 0})
        await served.call("SendMessage", SEND)

    (_, call, asked), (_, _, sent) = served.operations.calls
    assert asked == GetTaskRequest(id="task-1", history_length=0)
    assert isinstance(sent, SendMessageRequest)
    assert (call.agent.name, call.caller.principal, call.version) == ("echo", "anonymous", "1.0")


async def test_a_tenant_names_the_agent() -> None:
    async with serving(agent("one"), agent("two")) as served:
        await served.call("GetTask", {"id": "task-1", "tenant": "two"})
        error = await refused(served.call("GetTask", {"id": "task-1"}))

    assert served.operations.calls[0][1].agent.name == "two"
    assert error.details() == "Invalid parameters: tenant: this address needs the name of an agent; there are one, two"


# --- streams


@pytest.mark.parametrize(("method", "params"), [("SendStreamingMessage", SEND), ("SubscribeToTask", {"id": "task-1"})])
async def test_a_stream_brings_the_events_in_order_and_says_where_it_begins(method: str, params: Any) -> None:
    operations, stream = streaming([(4, FIRST), (5, SECOND)], [(6, SECOND)])
    async with serving(operations=operations) as served:
        call = served.call(method, params)
        events = [in_json(event) async for event in call]
        begun = dict(await call.initial_metadata())

    assert events == [*EVENTS, EVENTS[1]]
    assert begun["last-event-id"] == "4"
    assert stream.closed.is_set()


async def test_a_resumed_stream_begins_at_the_event_that_the_caller_names() -> None:
    operations, _ = streaming([(None, FIRST), (8, SECOND)])
    async with serving(operations=operations) as served:
        call = served.call("SubscribeToTask", {"id": "task-1"}, (*VERSION, ("last-event-id", "7")))
        assert len([event async for event in call]) == 2
        begun = dict(await call.initial_metadata())

    assert begun["last-event-id"] == "7"
    assert operations.calls[0][1].last_event_id == 7


async def test_a_reply_without_a_task_has_no_number() -> None:
    operations, _ = streaming([(None, b'{"message":{"messageId":"m","role":"ROLE_AGENT","parts":[{"text":"Hi"}]}}')])
    async with serving(operations=operations) as served:
        call = served.call("SendStreamingMessage", SEND)
        [event] = [in_json(event) async for event in call]
        begun = dict(await call.initial_metadata())

    assert event["message"]["parts"] == [{"text": "Hi"}]
    assert "last-event-id" not in begun


async def test_a_caller_that_cancels_closes_its_stream() -> None:
    operations, stream = streaming([(1, FIRST)], stays_open=True)
    async with serving(operations=operations) as served:
        call = served.call("SendStreamingMessage", SEND)
        await anext(aiter(call))
        call.cancel()
        async with asyncio.timeout(10):
            await stream.closed.wait()


async def test_an_error_inside_a_stream_is_its_status() -> None:
    operations, stream = streaming([(1, FIRST)], error=InvalidParams("the log is gone"))
    async with serving(operations=operations) as served:
        error = await refused(served.call("SendStreamingMessage", SEND))

    assert (error.code(), error.details()) == (grpc.StatusCode.INVALID_ARGUMENT, "the log is gone")
    assert stream.closed.is_set()


async def test_a_fault_inside_a_stream_tells_nothing_but_its_correlation_id() -> None:
    operations, _ = streaming([(1, FIRST)], error=TimeoutError("sqlite://secret"))
    async with serving(operations=operations) as served:
        error = await refused(served.call("SendStreamingMessage", SEND))

    assert (error.code(), error.details()) == (grpc.StatusCode.INTERNAL, "Internal error (correlation id c0ffee)")
    assert details(error) == [{**DOMAIN, "reason": "INTERNAL_ERROR", "metadata": {"correlationId": "c0ffee"}}]


async def test_a_drain_ends_a_stream_and_says_how_to_go_on() -> None:
    operations, stream = streaming([(1, FIRST)], stays_open=True)
    async with serving(operations=operations) as served:
        call = served.call("SendStreamingMessage", SEND)
        await anext(aiter(call))
        served.drain.set()
        error = await refused(call)

    assert error.code() is grpc.StatusCode.UNAVAILABLE
    assert error.details() == "The gateway is shutting down; subscribe again with last-event-id."
    assert stream.closed.is_set()


# --- errors


async def test_an_error_is_a_status_with_its_reason() -> None:
    operations = ScriptedOperations()
    operations.answers["get_task"] = TaskNotFound("no such task", metadata={"taskId": "task-1"})
    async with serving(operations=operations) as served:
        error = await refused(served.call("GetTask", {"id": "task-1"}))

    assert (error.code(), error.details()) == (grpc.StatusCode.NOT_FOUND, "no such task")
    assert details(error) == [{**DOMAIN, "reason": "TASK_NOT_FOUND", "metadata": {"taskId": "task-1"}}]


async def test_a_field_that_does_not_fit_is_named() -> None:
    async with serving() as served:
        error = await refused(served.call("SendMessage", {"message": {"messageId": "m", "role": "ROLE_USER"}}))

    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert details(error)[1] == {
        "@type": "type.googleapis.com/google.rpc.BadRequest",
        "fieldViolations": [{"field": "message.parts", "description": "is required and must not be empty"}],
    }


async def test_an_error_that_passes_says_when_to_try_again() -> None:
    operations = ScriptedOperations()
    operations.answers["send_message"] = Busy("later", retry_after=5)
    async with serving(operations=operations) as served:
        error = await refused(served.call("SendMessage", SEND))

    assert error.code() is grpc.StatusCode.UNAVAILABLE
    assert details(error)[1] == {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "5s"}


@pytest.mark.parametrize(
    ("where", "named"),
    [(path("Frobnicate"), "Frobnicate"), ("/a2a.v1.A2AService/SendMessage", "/a2a.v1.A2AService/SendMessage")],
)
async def test_an_unknown_method_is_named(where: str, named: str) -> None:
    async with serving() as served:
        error = await refused(served.raw(where, b""))

    assert (error.code(), error.details()) == (grpc.StatusCode.UNIMPLEMENTED, f"Method not found: {named!r}")


# --- metadata


@pytest.mark.parametrize(
    ("metadata", "asked"), [((), "0.3 (assumed without A2A-Version)"), ((("a2a-version", "0.3"),), "'0.3'")]
)
async def test_only_a2a_1_0_is_spoken(metadata: Any, asked: str) -> None:
    async with serving() as served:
        error = await refused(served.call("GetTask", {"id": "task-1"}, metadata))

    assert error.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert error.details() == f"A2A version {asked} is not supported; supported: 1.0"
    assert details(error)[0]["reason"] == "VERSION_NOT_SUPPORTED"


async def test_the_idempotency_key_arrives() -> None:
    async with serving() as served:
        await served.call("SendMessage", SEND, (*VERSION, ("idempotency-key", "once")))

    assert served.operations.calls[0][1].idempotency_key == "once"


async def test_a_required_extension_is_asked_for_and_active_ones_are_named() -> None:
    needing = agent("echo", extensions=(ExtensionConfig(uri=NEEDED, required=True),))
    async with serving(needing) as served:
        error = await refused(served.call("GetTask", {"id": "task-1"}))
        call = served.call(
            "GetTask", {"id": "task-1"}, (*VERSION, ("a2a-extensions", f"{NEEDED}, https://other.example"))
        )
        await call
        begun = dict(await call.initial_metadata())

    assert details(error)[0]["reason"] == "EXTENSION_SUPPORT_REQUIRED"
    assert begun["a2a-extensions"] == NEEDED


# --- limits


async def test_requests_over_the_quota_are_refused() -> None:
    async with serving(quotas=QuotaLimits(requests_per_minute=1)) as served:
        await served.call("GetTask", {"id": "task-1"})
        error = await refused(served.call("GetTask", {"id": "task-1"}))

    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert details(error)[0]["reason"] == "TOO_MANY_REQUESTS"


async def test_a_stream_counts_until_its_caller_leaves() -> None:
    operations, stream = streaming([(1, FIRST)], stays_open=True)
    async with serving(operations=operations, quotas=QuotaLimits(streams=1)) as served:
        first = served.call("SendStreamingMessage", SEND)
        await anext(aiter(first))
        error = await refused(served.call("SubscribeToTask", {"id": "task-1"}))
        first.cancel()
        async with asyncio.timeout(10):
            await stream.closed.wait()
        again = served.call("SubscribeToTask", {"id": "task-1"})
        await anext(aiter(again))
        again.cancel()

    assert details(error)[0]["reason"] == "TOO_MANY_REQUESTS"


async def test_the_limits_of_requests_hold() -> None:
    async with serving(limits=LimitsConfig(parts=1)) as served:
        parts = [{"text": "a"}, {"text": "b"}]
        error = await refused(served.call("SendMessage", {"message": {**SEND["message"], "parts": parts}}))

    assert details(error)[1]["fieldViolations"] == [
        {"field": "message.parts", "description": "must not have more than 1 elements, it has 2"}
    ]


# --- callers that leave


class Waiting(ScriptedOperations):
    """SendMessage that waits for `go`."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.go, self.ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def send_message(self, call: Any, request: Any) -> Any:
        self.begun.set()
        await self.go.wait()
        self.ended.set()
        return await super().send_message(call, request)


async def test_an_operation_goes_on_when_its_caller_has_left() -> None:
    operations = Waiting()
    async with serving(operations=operations) as served, asyncio.timeout(10):
        call = served.call("SendMessage", SEND)
        await operations.begun.wait()
        call.cancel()
        await refused_by_cancel(call)
        operations.go.set()
        await operations.ended.wait()


async def refused_by_cancel(call: Any) -> None:
    with pytest.raises(asyncio.CancelledError):
        await call


async def test_the_deadline_of_a_call_ends_its_wait() -> None:
    operations = Waiting()
    async with serving(operations=operations) as served, asyncio.timeout(10):
        error = await refused(served.call("SendMessage", SEND, timeout=0.2))
        operations.go.set()

    assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED


async def test_an_operation_without_a_caller_ends_with_the_server() -> None:
    operations = Waiting()
    async with asyncio.timeout(10):
        async with serving(operations=operations) as served:
            call = served.call("SendMessage", SEND)
            await operations.begun.wait()
            call.cancel()
            await refused_by_cancel(call)
    assert not operations.ended.is_set()
