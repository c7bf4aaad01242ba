"""The A2A 1.0 values as JSON, and their comparison with the specification."""

from enum import StrEnum

import msgspec
import pytest
from a2a.types import a2a_pb2

from gateway.a2a import model
from gateway.a2a.model import (
    INTERRUPTED,
    TERMINAL,
    Artifact,
    Message,
    Part,
    Role,
    StreamResponse,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
    Wire,
)

TASK = Task(
    id="t",
    context_id="c",
    status=TaskStatus(state=TaskState.WORKING, timestamp="2026-11-20T10:00:00.000Z"),
    artifacts=(Artifact(artifact_id="a", parts=(Part(text="hi", media_type="text/plain"),)),),
    history=(Message(message_id="m", role=Role.USER, parts=(Part(data={"snake_case": 1}),)),),
)
TASK_JSON = {
    "id": "t",
    "contextId": "c",
    "status": {"state": "TASK_STATE_WORKING", "timestamp": "2026-11-20T10:00:00.000Z"},
    "artifacts": [{"artifactId": "a", "parts": [{"text": "hi", "mediaType": "text/plain"}]}],
    "history": [{"messageId": "m", "role": "ROLE_USER", "parts": [{"data": {"snake_case": 1}}]}],
}


def test_names_are_camel_case_and_the_keys_of_application_data_are_left_alone() -> None:
    assert msgspec.json.decode(msgspec.json.encode(TASK)) == TASK_JSON


def test_what_was_written_is_read_back_as_the_same_value() -> None:
    assert msgspec.json.decode(msgspec.json.encode(TASK), type=Task) == TASK


def test_a_field_that_nobody_set_is_not_on_the_wire() -> None:
    assert msgspec.json.encode(Part(text="")) == b'{"text":""}'


def test_null_is_a_value_for_data_and_an_absent_data_is_none() -> None:
    assert msgspec.json.encode(Part(data=None)) == b'{"data":null}'
    assert msgspec.json.decode(b'{"data":null}', type=Part) == Part(data=None)
    assert msgspec.json.decode(b'{"text":"x"}', type=Part).data is msgspec.UNSET


def test_flags_of_an_artifact_update_are_absent_when_they_are_false() -> None:
    update = TaskArtifactUpdateEvent(task_id="t", context_id="c", artifact=Artifact(artifact_id="a", parts=()))
    assert msgspec.json.decode(msgspec.json.encode(StreamResponse(artifact_update=update))) == {
        "artifactUpdate": {"taskId": "t", "contextId": "c", "artifact": {"artifactId": "a", "parts": []}}
    }


def test_an_unknown_field_is_ignored() -> None:
    assert msgspec.json.decode(b'{"text":"x","later":1}', type=Part) == Part(text="x")


def test_values_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        TASK.id = "other"  # type: ignore[misc]


def test_a_status_update_holds_the_whole_status() -> None:
    update = TaskStatusUpdateEvent(task_id="t", context_id="c", status=TASK.status, metadata={"x": 1})
    assert msgspec.json.decode(msgspec.json.encode(update)) == {
        "taskId": "t",
        "contextId": "c",
        "status": TASK_JSON["status"],
        "metadata": {"x": 1},
    }


def test_a_state_is_terminal_or_interrupted_or_neither() -> None:
    assert not TERMINAL & INTERRUPTED
    assert set(TaskState) - TERMINAL - INTERRUPTED == {TaskState.SUBMITTED, TaskState.WORKING}


# --- against the specification: the official SDK's descriptors are made from `a2a.proto` ---


def _structs() -> dict[str, type[Wire]]:
    return {
        name: value
        for name, value in vars(model).items()
        if isinstance(value, type) and issubclass(value, Wire) and value is not Wire
    }


# Signatures, and security of single skills: no agent of ours declares any.
NOT_OURS = {
    "AgentSkill": {"securityRequirements"},
}


@pytest.mark.parametrize("name", sorted(_structs()))
def test_every_message_has_the_fields_of_the_specification(name: str) -> None:
    specified = {field.json_name for field in a2a_pb2.DESCRIPTOR.message_types_by_name[name].fields}
    ours = {field.encode_name for field in msgspec.structs.fields(_structs()[name])}
    assert ours == specified - NOT_OURS.get(name, set())


@pytest.mark.parametrize("enum", [TaskState, Role])
def test_states_and_roles_are_those_of_the_specification(enum: type[StrEnum]) -> None:
    specified = [value.name for value in a2a_pb2.DESCRIPTOR.enum_types_by_name[enum.__name__].values]
    assert [str(member) for member in enum] == specified[1:]
