"""A2A 0.3 in the JSON of JSON-RPC, in both directions, compared with the types of the official SDK."""

import inspect
import re
from typing import Any

import msgspec
import pytest
from a2a.compat.v0_3 import types as sdk
from pydantic import TypeAdapter

from gateway.a2a import errors, model
from gateway.a2a.errors import A2AError, InvalidParams, MethodNotFound
from gateway.a2a.model import (
    AgentCapabilities,
    AgentCard,
    AgentInterface,
    AgentSkill,
    Artifact,
    AuthenticationInfo,
    ListTaskPushNotificationConfigsResponse,
    Message,
    Part,
    Role,
    SendMessageConfiguration,
    SendMessageRequest,
    SendMessageResponse,
    StreamResponse,
    Task,
    TaskArtifactUpdateEvent,
    TaskPushNotificationConfig,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
    Wire,
)
from gateway.a2a.wire import v1_0
from gateway.a2a.wire.v0_3 import requests
from gateway.a2a.wire.v0_3.json_rpc import DIALECT

PARTS = (
    Part(text="", metadata={"m": {"snake_case": None}}),
    Part(raw="aGVsbG8=", media_type="image/png", filename="p.png"),
    Part(url="https://f.example/x"),
    Part(data={"context_id": [1, None, "ü", 1.5, True, {}]}),
)
PARTS_JSON = [
    {"kind": "text", "text": "", "metadata": {"m": {"snake_case": None}}},
    {"kind": "file", "file": {"bytes": "aGVsbG8=", "mimeType": "image/png", "name": "p.png"}},
    {"kind": "file", "file": {"uri": "https://f.example/x"}},
    {"kind": "data", "data": {"context_id": [1, None, "ü", 1.5, True, {}]}},
]
QUESTION = Message(
    message_id="m2", context_id="c", task_id="t", role=Role.AGENT, parts=(Part(text="Which city?"),), extensions=("u",)
)
QUESTION_JSON = {
    "kind": "message",
    "messageId": "m2",
    "contextId": "c",
    "taskId": "t",
    "role": "agent",
    "parts": [{"kind": "text", "text": "Which city?"}],
    "extensions": ["u"],
}
STATUS = TaskStatus(state=TaskState.INPUT_REQUIRED, timestamp="2026-11-20T10:00:00.123Z", message=QUESTION)
STATUS_JSON = {"state": "input-required", "timestamp": "2026-11-20T10:00:00.123Z", "message": QUESTION_JSON}
ARTIFACT = Artifact(artifact_id="a", name="Answer", parts=PARTS)
ARTIFACT_JSON = {"artifactId": "a", "name": "Answer", "parts": PARTS_JSON}
TASK = Task(
    id="t",
    context_id="c",
    status=STATUS,
    artifacts=(ARTIFACT,),
    history=(Message(message_id="m1", role=Role.USER, parts=(Part(text="Hi"),), reference_task_ids=("r",)),),
    metadata={"k": "v"},
)
TASK_JSON = {
    "kind": "task",
    "id": "t",
    "contextId": "c",
    "status": STATUS_JSON,
    "artifacts": [ARTIFACT_JSON],
    "history": [
        {
            "kind": "message",
            "messageId": "m1",
            "role": "user",
            "parts": [{"kind": "text", "text": "Hi"}],
            "referenceTaskIds": ["r"],
        }
    ],
    "metadata": {"k": "v"},
}
CONFIG = TaskPushNotificationConfig(
    id="p", task_id="t", url="https://h.example", authentication=AuthenticationInfo(scheme="Bearer")
)
CONFIG_JSON = {
    "taskId": "t",
    "pushNotificationConfig": {"id": "p", "url": "https://h.example", "authentication": {"schemes": ["Bearer"]}},
}

RESULTS: tuple[tuple[Wire, Any, Any], ...] = (
    (TASK, TASK_JSON, sdk.Task),
    (SendMessageResponse(task=TASK), TASK_JSON, sdk.Task),
    (SendMessageResponse(message=QUESTION), QUESTION_JSON, sdk.Message),
    (CONFIG, CONFIG_JSON, sdk.TaskPushNotificationConfig),
    (
        ListTaskPushNotificationConfigsResponse(configs=(CONFIG,), next_page_token=""),
        [CONFIG_JSON],
        list[sdk.TaskPushNotificationConfig],
    ),
)
EVENTS: tuple[tuple[StreamResponse, Any, Any], ...] = (
    (StreamResponse(task=TASK), TASK_JSON, sdk.Task),
    (StreamResponse(message=QUESTION), QUESTION_JSON, sdk.Message),
    (
        StreamResponse(
            status_update=TaskStatusUpdateEvent(task_id="t", context_id="c", status=STATUS, metadata={"u": 1})
        ),
        {
            "kind": "status-update",
            "taskId": "t",
            "contextId": "c",
            "status": STATUS_JSON,
            "final": True,
            "metadata": {"u": 1},
        },
        sdk.TaskStatusUpdateEvent,
    ),
    (
        StreamResponse(
            artifact_update=TaskArtifactUpdateEvent(
                task_id="t", context_id="c", artifact=ARTIFACT, append=True, last_chunk=True, metadata={"m": 1}
            )
        ),
        {
            "kind": "artifact-update",
            "taskId": "t",
            "contextId": "c",
            "artifact": ARTIFACT_JSON,
            "append": True,
            "lastChunk": True,
            "metadata": {"m": 1},
        },
        sdk.TaskArtifactUpdateEvent,
    ),
)


def translated(found: StreamResponse) -> Any:
    assert DIALECT.event is not None
    return msgspec.json.decode(DIALECT.event(1, v1_0.encode(found)))


def read_by_the_sdk(kind: Any, value: Any) -> Any:
    adapter = TypeAdapter(kind)
    return adapter.dump_python(adapter.validate_python(value), mode="json", by_alias=True, exclude_none=True)


@pytest.mark.parametrize(("value", "expected", "kind"), RESULTS, ids=lambda value: type(value).__name__)
def test_a_result_is_that_of_0_3(value: Wire, expected: Any, kind: Any) -> None:
    assert msgspec.json.decode(DIALECT.encode(value)) == expected
    assert read_by_the_sdk(kind, expected) == expected


@pytest.mark.parametrize(("found", "expected", "kind"), EVENTS, ids=lambda value: type(value).__name__)
def test_an_event_is_that_of_0_3(found: StreamResponse, expected: Any, kind: Any) -> None:
    assert translated(found) == expected
    assert read_by_the_sdk(kind, expected) == expected


def test_a_long_event_is_translated_like_a_short_one() -> None:
    text = "long " * 5000
    message = Message(message_id="m", role=Role.AGENT, parts=(Part(text=text),))

    assert translated(StreamResponse(message=message))["parts"] == [{"kind": "text", "text": text}]


def test_an_event_is_one_line_for_every_reader() -> None:
    text = "".join(chr(code) for code in [*range(0x20), 0x85, 0x2028, 0x2029])
    message = Message(message_id="m", role=Role.AGENT, parts=(Part(text=text),))

    assert DIALECT.event is not None
    line = DIALECT.event(None, v1_0.encode(StreamResponse(message=message)))

    assert len(line.decode().splitlines()) == 1
    assert msgspec.json.decode(line)["parts"][0]["text"] == text


@pytest.mark.parametrize("state", list(TaskState))
def test_the_last_event_of_a_stream_is_final(state: TaskState) -> None:
    update = TaskStatusUpdateEvent(task_id="t", context_id="c", status=TaskStatus(state=state))

    event = translated(StreamResponse(status_update=update))

    assert event["final"] is (state not in (TaskState.SUBMITTED, TaskState.WORKING))
    assert sdk.TaskState(event["status"]["state"]).name == state.removeprefix("TASK_STATE_").lower()


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        (
            Part(text="# Title", media_type="text/markdown", metadata={"k": 1}),
            {"kind": "text", "text": "# Title", "metadata": {"mediaType": "text/markdown", "k": 1}},
        ),
        (
            Part(data={"a": 1}, filename="a.json"),
            {"kind": "data", "data": {"a": 1}, "metadata": {"filename": "a.json"}},
        ),
        (Part(data=[1]), {"kind": "data", "data": {"value": [1]}, "metadata": {"data_part_compat": True}}),
        (Part(data=None), {"kind": "data", "data": {"value": None}, "metadata": {"data_part_compat": True}}),
    ],
)
def test_what_a_part_of_0_3_has_no_word_for_is_in_its_metadata(part: Part, expected: Any) -> None:
    message = Message(message_id="m", role=Role.AGENT, parts=(part,))

    assert translated(StreamResponse(message=message))["parts"] == [expected]


# --- requests

SENT: dict[str, Any] = {
    "message": {
        "kind": "message",
        "messageId": "m",
        "contextId": "c",
        "taskId": "t",
        "role": "user",
        "parts": PARTS_JSON,
        "metadata": {"message_id": "untouched"},
        "extensions": ["u"],
        "referenceTaskIds": ["r"],
    },
    "configuration": {
        "acceptedOutputModes": ["text/plain"],
        "blocking": True,
        "historyLength": 3,
        "pushNotificationConfig": {
            "id": "p",
            "url": "https://h.example",
            "token": "x",
            "authentication": {"schemes": ["Bearer", "Basic"], "credentials": "y"},
        },
    },
    "metadata": {"k": 1},
}
REQUESTS: tuple[tuple[str, dict[str, Any], Wire], ...] = (
    (
        "message/send",
        SENT,
        SendMessageRequest(
            message=Message(
                message_id="m",
                context_id="c",
                task_id="t",
                role=Role.USER,
                parts=PARTS,
                metadata={"message_id": "untouched"},
                extensions=("u",),
                reference_task_ids=("r",),
            ),
            configuration=SendMessageConfiguration(
                accepted_output_modes=("text/plain",),
                task_push_notification_config=TaskPushNotificationConfig(
                    id="p",
                    url="https://h.example",
                    token="x",
                    authentication=AuthenticationInfo(scheme="Bearer", credentials="y"),
                ),
                history_length=3,
                return_immediately=False,
            ),
            metadata={"k": 1},
        ),
    ),
    ("tasks/get", {"id": "t", "historyLength": 3}, model.GetTaskRequest(id="t", history_length=3)),
    ("tasks/get", {"id": "t", "historyLength": 0}, model.GetTaskRequest(id="t")),
    ("tasks/cancel", {"id": "t", "metadata": {"a": 1}}, model.CancelTaskRequest(id="t", metadata={"a": 1})),
    ("tasks/resubscribe", {"id": "t", "unknown": {}}, model.SubscribeToTaskRequest(id="t")),
    (
        "tasks/pushNotificationConfig/set",
        {"taskId": "t", "pushNotificationConfig": {"url": "https://h.example", "authentication": {"schemes": []}}},
        TaskPushNotificationConfig(task_id="t", url="https://h.example"),
    ),
    (
        "tasks/pushNotificationConfig/get",
        {"id": "t", "pushNotificationConfigId": "p"},
        model.GetTaskPushNotificationConfigRequest(task_id="t", id="p"),
    ),
    (
        "tasks/pushNotificationConfig/get",
        {"id": "t"},
        model.GetTaskPushNotificationConfigRequest(task_id="t", id=""),
    ),
    ("tasks/pushNotificationConfig/list", {"id": "t"}, model.ListTaskPushNotificationConfigsRequest(task_id="t")),
    (
        "tasks/pushNotificationConfig/delete",
        {"id": "t", "pushNotificationConfigId": "p"},
        model.DeleteTaskPushNotificationConfigRequest(task_id="t", id="p"),
    ),
    ("agent/getAuthenticatedExtendedCard", {}, model.GetExtendedAgentCardRequest()),
)


def decode(name: str, params: Any) -> Any:
    return DIALECT.decode(DIALECT.method(name), params)


@pytest.mark.parametrize(("name", "params", "expected"), REQUESTS)
def test_a_request_becomes_one_of_the_model(name: str, params: dict[str, Any], expected: Wire) -> None:
    assert decode(name, params) == expected


def test_the_methods_are_those_of_the_official_sdk() -> None:
    named = re.findall(r"method: Literal\['([^']+)'\]", inspect.getsource(sdk))

    assert set(requests.METHODS) == set(named)


@pytest.mark.parametrize("configuration", [None, {}, {"blocking": False}, {"blocking": None}])
def test_a_message_is_not_waited_for_by_default(configuration: dict[str, Any] | None) -> None:
    request = decode("message/send", {**SENT, "configuration": configuration})

    assert request.configuration.return_immediately is True
    assert request.configuration.history_length is None


def part(given: dict[str, Any]) -> Part:
    params = {"message": {"messageId": "m", "role": "user", "parts": [given]}}
    request: SendMessageRequest = decode("message/send", params)
    return request.message.parts[0]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"text": "x"}, Part(text="x")),
        ({"kind": "text", "text": "x", "file": None, "data": None}, Part(text="x")),
        ({"kind": "data", "data": {}}, Part(data={})),
        ({"kind": "data", "data": {"value": [1]}, "metadata": {"data_part_compat": True}}, Part(data=[1])),
        (
            {"kind": "data", "data": {"value": 1, "b": 2}, "metadata": {"data_part_compat": True}},
            Part(data={"value": 1, "b": 2}, metadata={"data_part_compat": True}),
        ),
        ({"kind": "file", "file": {"bytes": "-_-_"}}, Part(raw="+/+/")),
        ({"kind": "file", "file": {"bytes": ""}}, Part(raw="")),
        ({"kind": "file", "file": {"uri": "u", "mime_type": "a/b"}}, Part(url="u", media_type="a/b")),
    ],
)
def test_a_part_holds_one_content(given: dict[str, Any], expected: Part) -> None:
    assert part(given) == expected


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        ({}, "message.parts[0]: has no content: one of text, file and data is required"),
        ({"kind": "text"}, "message.parts[0]: has no content: one of text, file and data is required"),
        ({"text": "x", "data": {}}, "message.parts[0]: has several contents, text and data: exactly one is allowed"),
        ({"kind": "data", "text": "x"}, "message.parts[0].kind: must be 'text' for a part with text, not 'data'"),
        ({"kind": "file", "file": {}}, "message.parts[0].file: must have exactly one of bytes and uri"),
        (
            {"kind": "file", "file": {"bytes": "", "uri": "u"}},
            "message.parts[0].file: must have exactly one of bytes and uri",
        ),
        ({"kind": "file", "file": {"bytes": "a"}}, "message.parts[0].file.bytes: must be base64"),
        ({"kind": "file", "file": {"bytes": 1}}, "message.parts[0].file.bytes: must be a string, not a number"),
        ({"kind": "data", "data": [1]}, "message.parts[0].data: must be an object"),
    ],
)
def test_a_part_that_is_not_right_is_named(given: dict[str, Any], fault: str) -> None:
    with pytest.raises(InvalidParams) as caught:
        part(given)

    assert caught.value.message == f"Invalid parameters: {fault}"


@pytest.mark.parametrize("role", ["ROLE_USER", 1, "system", None])
def test_a_role_is_a_word_of_0_3(role: Any) -> None:
    with pytest.raises(InvalidParams, match=r"message\.role"):
        decode("message/send", {"message": {**SENT["message"], "role": role}})


def test_a_method_of_1_0_is_refused_with_what_it_lacks() -> None:
    with pytest.raises(MethodNotFound) as caught:
        DIALECT.method("SendMessage")

    assert "send A2A-Version: 1.0" in caught.value.message


@pytest.mark.parametrize("name", ["tasks/list", "message/Send", "", "x" * 9999])
def test_an_unknown_method_is_refused(name: str) -> None:
    with pytest.raises(MethodNotFound) as caught:
        DIALECT.method(name)

    assert len(caught.value.message) < 200


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.TaskNotFound("x"), -32001),
        (errors.UnsupportedOperation("x"), -32004),
        (errors.UnsupportedOperation("x", metadata={"taskId": "t"}), -32602),
        (errors.ExtensionSupportRequired("x"), -32600),
        (errors.VersionNotSupported("x"), -32600),
        (errors.ExtendedAgentCardNotConfigured("x"), -32007),
    ],
)
def test_an_error_has_a_code_of_0_3(error: A2AError, code: int) -> None:
    assert DIALECT.code(error) == code


# --- cards


def test_a_card_is_one_for_both_versions() -> None:
    card = AgentCard(
        name="Echo",
        description="Says it again.",
        supported_interfaces=(
            AgentInterface(url="http://localhost/a2a/echo", protocol_binding="JSONRPC", protocol_version="1.0"),
        ),
        version="1",
        capabilities=AgentCapabilities(streaming=True, extended_agent_card=True),
        default_input_modes=("text/plain",),
        default_output_modes=("text/plain",),
        skills=(AgentSkill(id="e", name="Echo", description="Says it again.", tags=("echo",)),),
    )

    written = msgspec.json.decode(DIALECT.encode(card))

    assert written == msgspec.json.decode(v1_0.encode(card))
    read = sdk.AgentCard.model_validate(written)
    assert (read.url, read.preferred_transport, read.protocol_version) == (
        "http://localhost/a2a/echo",
        "JSONRPC",
        "0.3.0",
    )
    assert read.supports_authenticated_extended_card is True
