"""The gRPC binding in front of a server that answers with statuses, trailers and bytes of the test's choice."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any, TypeAlias

import grpc
import pytest
from grpc.aio import ServicerContext

from adapters.a2a.adapter import A2AAdapter
from gateway.a2a.errors import A2AError, Busy, ContentTypeNotSupported, TaskNotFound, VersionNotSupported
from gateway.a2a.wire import v1_0_proto
from gateway.grpc.status import details_of, status_of
from gateway.ports.adapter import CallCompleted, ErrorClass, TextDelta
from gateway.testing.adapter_scripts import collect, failure, request
from gateway.testing.serving import serve
from tests.adapters.a2a.conftest import adapter_at
from tests.adapters.emulator_support import KEY
from tests.emulators.a2a_agent import A2AAgent

Context: TypeAlias = ServicerContext[bytes, bytes]
Behaviour: TypeAlias = Callable[[bytes, Context], AsyncIterator[bytes]]
Reach: TypeAlias = Callable[..., Awaitable[A2AAdapter]]

TASK = {"id": "t", "contextId": "c", "status": {"state": "TASK_STATE_WORKING"}}


def event(**members: Any) -> bytes:
    return v1_0_proto.STREAM_RESPONSE.write(members)


async def answers(_: bytes, __: Context) -> AsyncIterator[bytes]:
    owner = {"taskId": "t", "contextId": "c"}
    yield event(task=TASK)
    yield event(artifactUpdate={**owner, "artifact": {"artifactId": "a", "parts": [{"text": "Hello"}]}})
    yield event(statusUpdate={**owner, "status": {"state": "TASK_STATE_COMPLETED"}})


class Handlers(grpc.GenericRpcHandler):
    def __init__(self, behaviour: Behaviour) -> None:
        self.behaviour = behaviour

    def service(self, details: grpc.HandlerCallDetails) -> Any:
        return grpc.unary_stream_rpc_method_handler(self.behaviour)


@pytest.fixture
async def reach() -> AsyncGenerator[Reach]:
    """An adapter by gRPC in front of a server of this behaviour; of none where it is None."""
    async with AsyncExitStack() as stack:

        async def reached(behaviour: Behaviour | None, **values: Any) -> A2AAdapter:
            server = grpc.aio.server()
            port = server.add_insecure_port("127.0.0.1:0")
            if behaviour is not None:
                server.add_generic_rpc_handlers((Handlers(behaviour),))
                await server.start()
            stack.push_async_callback(server.stop, None)
            offer = {"url": f"127.0.0.1:{port}", "protocolBinding": "GRPC", "protocolVersion": "1.0"}
            agent = A2AAgent(lambda _: (), supportedInterfaces=[offer])
            adapter = adapter_at(await stack.enter_async_context(serve(agent.app)), **values)
            stack.push_async_callback(adapter.aclose)
            if behaviour is None:
                await server.stop(None)
            return adapter

        yield reached


def refusing(error: A2AError) -> Behaviour:
    async def behaviour(_: bytes, context: Context) -> AsyncIterator[bytes]:
        status = status_of(error)
        await context.abort(status.code, status.text, status.metadata)
        yield b""

    return behaviour


def aborting(code: grpc.StatusCode, *events: bytes) -> Behaviour:
    async def behaviour(_: bytes, context: Context) -> AsyncIterator[bytes]:
        for each in events:
            yield each
        await context.abort(code, f"no, not for {KEY}")

    return behaviour


async def test_an_agent_that_is_gone_is_unreachable(reach: Reach) -> None:
    adapter = await reach(None, timeouts={"connect": "100ms"})
    assert (await failure(adapter)).kind is ErrorClass.UNREACHABLE


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (grpc.StatusCode.UNAUTHENTICATED, ErrorClass.UNAUTHORISED),
        (grpc.StatusCode.PERMISSION_DENIED, ErrorClass.UNAUTHORISED),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, ErrorClass.RATE_LIMITED),
        (grpc.StatusCode.INVALID_ARGUMENT, ErrorClass.REJECTED),
        (grpc.StatusCode.UNIMPLEMENTED, ErrorClass.NOT_SERVED),
        (grpc.StatusCode.ABORTED, ErrorClass.LOCKED),
        (grpc.StatusCode.DEADLINE_EXCEEDED, ErrorClass.TIMED_OUT),
        (grpc.StatusCode.UNAVAILABLE, ErrorClass.INTERRUPTED),
        (grpc.StatusCode.INTERNAL, ErrorClass.BACKEND_FAILED),
        (grpc.StatusCode.UNKNOWN, ErrorClass.BACKEND_FAILED),
    ],
)
async def test_a_status_has_its_class_and_no_text_has_the_key(
    reach: Reach, code: grpc.StatusCode, kind: ErrorClass
) -> None:
    error = await failure(await reach(aborting(code)))
    assert (error.kind, KEY in error.detail) == (kind, False)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (TaskNotFound("Task not found"), ErrorClass.REJECTED),
        (ContentTypeNotSupported("no"), ErrorClass.REJECTED),
        (VersionNotSupported("no"), ErrorClass.NOT_SERVED),
    ],
)
async def test_the_reason_in_the_trailers_decides_before_the_status(
    reach: Reach, error: A2AError, kind: ErrorClass
) -> None:
    assert (await failure(await reach(refusing(error)))).kind is kind


async def test_a_busy_agent_names_the_time_to_come_back(reach: Reach) -> None:
    error = await failure(await reach(refusing(Busy("later", retry_after=3))))
    assert (error.kind, error.retry_after) == (ErrorClass.RATE_LIMITED, 3)


async def test_a_call_that_breaks_off_behind_its_beginning_is_interrupted(reach: Reach) -> None:
    error = await failure(await reach(aborting(grpc.StatusCode.UNAVAILABLE, event(task=TASK))))
    assert error.kind is ErrorClass.INTERRUPTED


@pytest.mark.parametrize("payload", [b"\xff\xff", event(task={"id": "t"})])
async def test_a_message_that_is_none_of_a2a_breaks_the_contract(reach: Reach, payload: bytes) -> None:
    async def behaviour(_: bytes, __: Context) -> AsyncIterator[bytes]:
        yield payload

    assert (await failure(await reach(behaviour))).kind is ErrorClass.CONTRACT_BROKEN


async def test_a_message_of_a_kind_that_no_version_has_is_passed_over(reach: Reach) -> None:
    async def behaviour(_: bytes, __: Context) -> AsyncIterator[bytes]:
        yield b"\x7a\x02hi"  # field 15, which StreamResponse does not have
        yield event(task=TASK)
        yield event(statusUpdate={"taskId": "t", "contextId": "c", "status": {"state": "TASK_STATE_FAILED"}})

    assert (await failure(await reach(behaviour))).kind is ErrorClass.BACKEND_FAILED


async def test_an_agent_that_says_nothing_is_not_waited_for_for_ever(reach: Reach) -> None:
    async def behaviour(_: bytes, __: Context) -> AsyncIterator[bytes]:
        yield event(task=TASK)
        await asyncio.Event().wait()

    error = await failure(await reach(behaviour, timeouts={"between_bytes": "100ms"}))
    assert error.kind is ErrorClass.TIMED_OUT


async def test_credentials_and_headers_are_metadata(reach: Reach) -> None:
    seen: dict[str, str] = {}

    async def behaviour(message: bytes, context: Context) -> AsyncIterator[bytes]:
        seen.update({str(name): str(value) for name, value in context.invocation_metadata() or ()})
        async for each in answers(message, context):
            yield each

    events = await collect(
        await reach(behaviour, headers={"X-Team": "a"}, extensions=["https://x.example"]), request("Hi")
    )
    assert TextDelta("Hello") in events
    assert isinstance(events[-1], CallCompleted)
    assert seen["authorization"] == f"Bearer {KEY}"
    assert seen["x-team"] == "a"
    assert (seen["a2a-version"], seen["a2a-extensions"]) == ("1.0", "https://x.example")


def test_details_are_read_as_they_are_written_and_unknown_ones_left_out() -> None:
    error = Busy("later", retry_after=3)
    written = status_of(error).metadata
    assert [each["@type"].rpartition(".")[2] for each in details_of(written)] == ["ErrorInfo", "RetryInfo"]
    assert details_of(None) == []
    assert details_of((("grpc-status-details-bin", b"\xff"),)) == []
