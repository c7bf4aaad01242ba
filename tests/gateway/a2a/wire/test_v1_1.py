"""The JSON of the draft of A2A 1.1: that of 1.0, with generations."""

from typing import Any

import msgspec
import pytest

from gateway.a2a.draft_1_1 import ConditionalConfiguration, ConditionalMessageRequest, LongPollRequest, numbered
from gateway.a2a.errors import InvalidParams, MethodNotFound
from gateway.a2a.model import (
    Artifact,
    GetTaskRequest,
    ListTasksRequest,
    Message,
    Part,
    Role,
    SendMessageRequest,
    StreamResponse,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
)
from gateway.a2a.wire import v1_0
from gateway.a2a.wire.v1_1 import DIALECT, event
from gateway.ledger.events import entry, logged

MESSAGE = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "Hello"}]}
SAID = Message(message_id="m", role=Role.USER, parts=(Part(text="Hello"),))
TASK = Task(id="t", context_id="c", status=TaskStatus(state=TaskState.WORKING))
STATUS = TaskStatusUpdateEvent(task_id="t", context_id="c", status=TaskStatus(state=TaskState.WORKING))
PIECE = TaskArtifactUpdateEvent(
    task_id="t",
    context_id="c",
    artifact=Artifact(artifact_id="a", parts=(Part(text='{"statusUpdate":{\u2028'),)),
    append=True,
)


def read(method: str, params: Any) -> Any:
    return DIALECT.decode(DIALECT.method(method), params)


# --- requests


@pytest.mark.parametrize("method", ["SendMessage", "SendStreamingMessage"])
@pytest.mark.parametrize(
    ("written", "value"),
    [("3", 3), (3, 3), (3.0, 3), ("-1", -1), (0, 0), (2**63 - 1, 2**63 - 1), (str(-(2**63)), -(2**63))],
)
@pytest.mark.parametrize("name", ["ifGenerationMatch", "if_generation_match"])
def test_a_message_names_the_generation_that_it_is_for(method: str, name: str, written: Any, value: int) -> None:
    found = read(method, {"message": MESSAGE, "configuration": {name: written, "historyLength": 2}})

    configuration = ConditionalConfiguration(if_generation_match=value, history_length=2)
    assert found == ConditionalMessageRequest(message=SAID, configuration=configuration)


@pytest.mark.parametrize(("written", "value"), [("5", 5), (5, 5), (None, None)])
def test_a_reader_names_the_generation_that_it_knows(written: Any, value: int | None) -> None:
    assert read("GetTask", {"id": "t", "currentGeneration": written}) == LongPollRequest(
        id="t", current_generation=value
    )


def test_a_reader_names_it_in_a_url_too() -> None:
    found = DIALECT.decode_query(DIALECT.method("GetTask"), [("currentGeneration", "5")], {"id": "t"})

    assert found == LongPollRequest(id="t", current_generation=5)


@pytest.mark.parametrize(
    ("written", "why"),
    [
        ("x", "must be an integer, not 'x'"),
        ("", "must be an integer, not ''"),
        (1.5, "must be an integer, not 1.5"),
        (True, "must be an integer, not a boolean"),
        (2**63, "must be an integer of 64 bits"),
        ("9" * 19, "must be an integer of 64 bits"),
        ("9" * 20, f"must be an integer, not '{'9' * 20}'"),
    ],
)
def test_a_generation_is_an_integer_of_64_bits(written: Any, why: str) -> None:
    with pytest.raises(InvalidParams) as caught:
        read("GetTask", {"id": "t", "currentGeneration": written})
    assert caught.value.message == f"Invalid parameters: currentGeneration: {why}"

    with pytest.raises(InvalidParams) as caught:
        read("SendMessage", {"message": MESSAGE, "configuration": {"ifGenerationMatch": written}})
    assert caught.value.message == f"Invalid parameters: configuration.ifGenerationMatch: {why}"


@pytest.mark.parametrize("written", ["3", 3, "x", [1], True])
def test_1_0_knows_neither_name(written: Any) -> None:
    sent = {"message": MESSAGE, "configuration": {"ifGenerationMatch": written, "if_generation_match": written}}
    found = v1_0.decode(v1_0.method("SendMessage"), sent)
    assert (type(found), type(found.configuration).__name__) == (SendMessageRequest, "SendMessageConfiguration")

    asked = v1_0.decode(v1_0.method("GetTask"), {"id": "t", "currentGeneration": written})
    assert (type(asked), asked) == (GetTaskRequest, GetTaskRequest(id="t"))


def test_everything_else_is_as_in_1_0() -> None:
    assert {name for name in v1_0.METHODS if DIALECT.method(name) is not v1_0.method(name)} == {
        "SendMessage",
        "SendStreamingMessage",
        "GetTask",
    }
    assert read("ListTasks", {"pageSize": 3}) == ListTasksRequest(page_size=3)
    with pytest.raises(MethodNotFound):
        DIALECT.method("tasks/get")


# --- events and results


@pytest.mark.parametrize(("update", "key"), [(STATUS, "statusUpdate"), (PIECE, "artifactUpdate")])
def test_an_update_carries_the_generation_that_it_leads_to(
    update: TaskStatusUpdateEvent | TaskArtifactUpdateEvent, key: str
) -> None:
    line = event(7, entry(update))

    shown = msgspec.json.decode(line)
    assert shown == {key: {**msgspec.json.decode(entry(update))[key], "generation": "8"}}
    assert logged(line) == update
    assert b"\n" not in line


def test_a_task_has_its_generation_already() -> None:
    line = v1_0.encode(StreamResponse(task=numbered(TASK, 6)))

    assert event(6, line) == event(None, line) == line
    assert msgspec.json.decode(line)["task"]["generation"] == "7"


def test_a_message_has_none() -> None:
    line = v1_0.encode(StreamResponse(message=SAID))

    assert event(None, line) == line
