"""The table of every operation, with its answer and with every error, over gRPC, which speaks A2A 1.0 alone."""

from typing import Any

import pytest
from a2a.types import a2a_pb2
from google.protobuf.json_format import ParseDict  # type: ignore[import-untyped]

from gateway.a2a.model import StreamResponse
from gateway.a2a.wire import v1_0, v1_0_proto
from gateway.http.reply import reason
from gateway.ledger.errors import LedgerUnavailable
from tests.gateway.grpc.calling import METHODS, details, in_json, refused, serving
from tests.interaction.scripted import ScriptedOperations, ScriptedStream
from tests.interaction.test_every_operation import ERRORS, OPERATIONS, TASK, Operation, Refusal, every_error

every_operation = pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)


def answering(operation: Operation, answer: Any) -> ScriptedOperations:
    operations = ScriptedOperations()
    operations.answers[operation.key] = answer
    return operations


@every_operation
async def test_an_operation_reaches_the_core_and_its_answer_the_caller(operation: Operation) -> None:
    stream = ScriptedStream([(1, v1_0.encode(operation.answer))]) if operation.streaming else None
    operations = answering(operation, stream or operation.answer)

    async with serving(operations=operations) as served:
        call = served.call(operation.name, operation.params)
        answers = [each async for each in call] if operation.streaming else [await call]

    [(key, called, request)] = operations.calls
    assert (key, called.version, request) == (operation.key, "1.0", operation.request)
    assert called.in_list is v1_0_proto.in_list
    kind = getattr(a2a_pb2, METHODS[operation.name].output_type.name, None)
    if kind is None:
        assert answers == [b""]
    else:
        # What the protocol has no field for is in the JSON of cards only.
        expected = ParseDict(operation.shown, kind(), ignore_unknown_fields=True)
        assert [in_json(each) for each in answers] == [in_json(expected)]


@every_operation
@every_error
async def test_an_error_of_an_operation_reaches_the_caller(operation: Operation, refusal: Refusal) -> None:
    operations = answering(operation, refusal.error)

    async with serving(operations=operations) as served:
        error = await refused(served.call(operation.name, operation.params))

    assert (error.code().name, details(error)[0]["reason"]) == (refusal.grpc, reason(refusal.error))
    assert [key for key, _, _ in operations.calls] == [operation.key]


async def test_every_error_reaches_the_caller_of_a_stream() -> None:
    for refusal in ERRORS:
        stream = ScriptedStream([(1, v1_0.encode(StreamResponse(task=TASK)))], error=refusal.error)
        async with serving(operations=answering(OPERATIONS[1], stream)) as served:
            error = await refused(served.call("SendStreamingMessage", OPERATIONS[1].params))
        assert (error.code().name, details(error)[0]["reason"]) == (refusal.grpc, reason(refusal.error))


async def test_a_failing_database_reaches_the_caller_of_a_stream() -> None:
    failing = LedgerUnavailable("'/secret/gateway.db' was removed", "removed")
    stream = ScriptedStream([(1, v1_0.encode(StreamResponse(task=TASK)))], error=failing)
    async with serving(operations=answering(OPERATIONS[1], stream)) as served:
        error = await refused(served.call("SendStreamingMessage", OPERATIONS[1].params))
    info = details(error)[0]
    assert (error.code().name, info["reason"], info["metadata"]) == ("UNAVAILABLE", "BUSY", {"storage": "removed"})
    assert error.details() == "The gateway's storage was taken away: nothing new is taken."


@every_operation
async def test_an_operation_of_0_3_is_refused(operation: Operation) -> None:
    async with serving() as served:
        error = await refused(served.call(operation.name, operation.params, (("a2a-version", "0.3"),)))

    assert details(error)[0]["reason"] == "VERSION_NOT_SUPPORTED"
    assert served.operations.calls == []
