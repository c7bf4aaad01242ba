"""A2A 0.3 in the JSON of HTTP+JSON, in both directions. What is written is read by the official SDK, which knows no other
member."""

import base64
from typing import Any

import msgspec
import pytest
from a2a.compat.v0_3 import a2a_v0_3_pb2 as pb
from a2a.compat.v0_3 import types as sdk
from a2a.compat.v0_3.proto_utils import FromProto
from google.protobuf.json_format import MessageToDict, ParseDict  # type: ignore[import-untyped]

from gateway.a2a import errors, model
from gateway.a2a.errors import A2AError, InvalidParams, MethodNotFound
from gateway.a2a.model import (
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
from gateway.a2a.wire.v0_3 import errors as v0_3
from gateway.a2a.wire.v0_3 import requests
from gateway.a2a.wire.v0_3.http_json import DIALECT

RAW = b"\x00\xff\xfehello"
RAW_64 = base64.b64encode(RAW).decode()
RAW_64_64 = base64.b64encode(RAW_64.encode()).decode()
PARTS = (
    Part(text="", metadata={"m": {"snake_case": None}}),
    Part(raw=RAW_64, media_type="image/png", filename="p.png"),
    Part(url="https://f.example/x"),
    Part(data={"context_id": [1, None, "ü", 1.5, True, {}]}),
)
PARTS_JSON = [
    {"text": "", "metadata": {"m": {"snake_case": None}}},
    {"file": {"fileWithBytes": RAW_64_64, "mimeType": "image/png", "name": "p.png"}},
    {"file": {"fileWithUri": "https://f.example/x"}},
    {"data": {"data": {"context_id": [1, None, "ü", 1.5, True, {}]}}},
]
QUESTION = Message(
    message_id="m2", context_id="c", task_id="t", role=Role.AGENT, parts=(Part(text="Which city?"),), extensions=("u",)
)
QUESTION_JSON = {
    "messageId": "m2",
    "contextId": "c",
    "taskId": "t",
    "role": "ROLE_AGENT",
    "content": [{"text": "Which city?"}],
    "extensions": ["u"],
}
STATUS = TaskStatus(state=TaskState.INPUT_REQUIRED, timestamp="2026-11-20T10:00:00.123Z", message=QUESTION)
STATUS_JSON = {
    "state": "TASK_STATE_INPUT_REQUIRED",
    "timestamp": "2026-11-20T10:00:00.123Z",
    "message": QUESTION_JSON,
}
ARTIFACT = Artifact(
    artifact_id="a", name="Answer", description="All", parts=PARTS, metadata={"k": "v"}, extensions=("u",)
)
ARTIFACT_JSON = {
    "artifactId": "a",
    "name": "Answer",
    "description": "All",
    "parts": PARTS_JSON,
    "metadata": {"k": "v"},
    "extensions": ["u"],
}
TASK = Task(
    id="t",
    context_id="c",
    status=STATUS,
    artifacts=(ARTIFACT,),
    history=(Message(message_id="m1", role=Role.USER, parts=(Part(text="Hi"),)),),
    metadata={"k": "v"},
)
TASK_JSON = {
    "id": "t",
    "contextId": "c",
    "status": STATUS_JSON,
    "artifacts": [ARTIFACT_JSON],
    "history": [{"messageId": "m1", "role": "ROLE_USER", "content": [{"text": "Hi"}]}],
    "metadata": {"k": "v"},
}
CONFIG = TaskPushNotificationConfig(
    id="p", task_id="t", url="https://h.example", authentication=AuthenticationInfo(scheme="Bearer")
)
CONFIG_JSON = {
    "name": "tasks/t/pushNotificationConfigs/p",
    "pushNotificationConfig": {"id": "p", "url": "https://h.example", "authentication": {"schemes": ["Bearer"]}},
}
RESULTS: tuple[tuple[Wire, Any, Any], ...] = (
    (TASK, TASK_JSON, pb.Task),
    (SendMessageResponse(task=TASK), {"task": TASK_JSON}, pb.SendMessageResponse),
    (SendMessageResponse(message=QUESTION), {"message": QUESTION_JSON}, pb.SendMessageResponse),
    (CONFIG, CONFIG_JSON, pb.TaskPushNotificationConfig),
    (
        ListTaskPushNotificationConfigsResponse(configs=(CONFIG,), next_page_token="n"),
        {"configs": [CONFIG_JSON], "nextPageToken": "n"},
        pb.ListTaskPushNotificationConfigResponse,
    ),
)
EVENTS: tuple[tuple[StreamResponse, Any], ...] = (
    (StreamResponse(task=TASK), {"task": TASK_JSON}),
    (StreamResponse(message=QUESTION), {"message": QUESTION_JSON}),
    (
        StreamResponse(
            status_update=TaskStatusUpdateEvent(task_id="t", context_id="c", status=STATUS, metadata={"u": 1})
        ),
        {
            "statusUpdate": {
                "taskId": "t",
                "contextId": "c",
                "status": STATUS_JSON,
                "final": True,
                "metadata": {"u": 1},
            }
        },
    ),
    (
        StreamResponse(
            artifact_update=TaskArtifactUpdateEvent(
                task_id="t", context_id="c", artifact=ARTIFACT, append=True, last_chunk=True, metadata={"m": 1}
            )
        ),
        {
            "artifactUpdate": {
                "taskId": "t",
                "contextId": "c",
                "artifact": ARTIFACT_JSON,
                "append": True,
                "lastChunk": True,
                "metadata": {"m": 1},
            }
        },
    ),
)


def translated(found: StreamResponse) -> Any:
    assert DIALECT.event is not None
    return msgspec.json.decode(DIALECT.event(1, v1_0.encode(found)))


def read_by_the_sdk(kind: Any, value: Any) -> Any:
    """The value as the SDK writes it after it has read it. Fails for a member that it does not know."""
    return MessageToDict(ParseDict(value, kind()))


@pytest.mark.parametrize(("value", "expected", "kind"), RESULTS, ids=lambda value: type(value).__name__)
def test_a_result_is_that_of_0_3(value: Wire, expected: Any, kind: Any) -> None:
    assert msgspec.json.decode(DIALECT.encode(value)) == expected
    assert read_by_the_sdk(kind, expected) == expected


def test_an_empty_list_of_configurations_says_so() -> None:
    assert DIALECT.encode(ListTaskPushNotificationConfigsResponse(configs=(), next_page_token="")) == b'{"configs":[]}'


@pytest.mark.parametrize(("found", "expected"), EVENTS, ids=lambda value: type(value).__name__)
def test_an_event_is_that_of_0_3(found: StreamResponse, expected: Any) -> None:
    assert translated(found) == expected
    assert read_by_the_sdk(pb.StreamResponse, expected) == expected


def test_a_long_event_is_translated_like_a_short_one() -> None:
    text = "long " * 5000
    message = Message(message_id="m", role=Role.AGENT, parts=(Part(text=text),))

    assert translated(StreamResponse(message=message))["message"]["content"] == [{"text": text}]


@pytest.mark.parametrize("state", list(TaskState))
def test_the_last_event_of_a_stream_is_final(state: TaskState) -> None:
    update = TaskStatusUpdateEvent(task_id="t", context_id="c", status=TaskStatus(state=state))

    event = translated(StreamResponse(status_update=update))

    read = FromProto.task_status_update_event(ParseDict(event, pb.StreamResponse()).status_update)
    assert read.final is (state not in (TaskState.SUBMITTED, TaskState.WORKING))
    assert read.status.state.name == state.removeprefix("TASK_STATE_").lower()


def test_the_sdk_finds_the_bytes_of_a_file() -> None:
    event = translated(StreamResponse(message=Message(message_id="m", role=Role.AGENT, parts=PARTS)))

    read = FromProto.message(ParseDict(event["message"], pb.Message())).parts[1].root
    assert isinstance(read, sdk.FilePart)
    assert read.file == sdk.FileWithBytes(bytes=RAW_64, mime_type="image/png", name="p.png")


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        (
            Part(text="# Title", media_type="text/markdown", metadata={"k": 1}),
            {"text": "# Title", "metadata": {"mediaType": "text/markdown", "k": 1}},
        ),
        (Part(data={"a": 1}, filename="a.json"), {"data": {"data": {"a": 1}}, "metadata": {"filename": "a.json"}}),
        (Part(data=[1]), {"data": {"data": {"value": [1]}}, "metadata": {"data_part_compat": True}}),
        (Part(raw=""), {"file": {"fileWithBytes": ""}}),
    ],
)
def test_what_a_part_of_0_3_has_no_word_for_is_in_its_metadata(part: Part, expected: Any) -> None:
    message = translated(StreamResponse(message=Message(message_id="m", role=Role.AGENT, parts=(part,))))["message"]

    assert message["content"] == [expected]
    assert read_by_the_sdk(pb.Message, message) == message


def test_the_tasks_that_a_message_refers_to_are_in_its_metadata() -> None:
    message = Message(
        message_id="m", role=Role.USER, parts=(Part(text="x"),), metadata={"k": 1}, reference_task_ids=("r",)
    )

    written = translated(StreamResponse(message=message))["message"]

    assert written["metadata"] == {"referenceTaskIds": ["r"], "k": 1}
    assert read_by_the_sdk(pb.Message, written) == written


# --- requests

SENT: dict[str, Any] = {
    "message": {
        "messageId": "m",
        "contextId": "c",
        "taskId": "t",
        "role": "ROLE_USER",
        "content": PARTS_JSON,
        "metadata": {"message_id": "untouched"},
        "extensions": ["u"],
    },
    "configuration": {
        "acceptedOutputModes": ["text/plain"],
        "blocking": True,
        "historyLength": 3,
        "pushNotification": {
            "id": "p",
            "url": "https://h.example",
            "token": "x",
            "authentication": {"schemes": ["Bearer", "Basic"], "credentials": "y"},
        },
    },
    "metadata": {"k": 1},
}
IN_WORDS: dict[str, Any] = {
    "message": {
        "kind": "message",
        "messageId": "m",
        "contextId": "c",
        "taskId": "t",
        "role": "user",
        "parts": [
            {"kind": "text", "text": "", "metadata": {"m": {"snake_case": None}}},
            {"kind": "file", "file": {"bytes": RAW_64, "mimeType": "image/png", "name": "p.png"}},
            {"kind": "file", "file": {"uri": "https://f.example/x"}},
            {"kind": "data", "data": {"context_id": [1, None, "ü", 1.5, True, {}]}},
        ],
        "metadata": {"message_id": "untouched"},
        "extensions": ["u"],
    },
    "configuration": {
        "acceptedOutputModes": ["text/plain"],
        "blocking": True,
        "historyLength": 3,
        "pushNotificationConfig": SENT["configuration"]["pushNotification"],
    },
    "metadata": {"k": 1},
}
REQUEST = SendMessageRequest(
    message=Message(
        message_id="m",
        context_id="c",
        task_id="t",
        role=Role.USER,
        parts=PARTS,
        metadata={"message_id": "untouched"},
        extensions=("u",),
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
)


def decode(name: str, params: Any) -> Any:
    return DIALECT.decode(DIALECT.method(name), params)


def proto_names(value: dict[str, Any], kind: Any) -> Any:
    return MessageToDict(ParseDict(value, kind()), preserving_proto_field_name=True)


@pytest.mark.parametrize(
    "params",
    [SENT, proto_names(SENT, pb.SendMessageRequest), IN_WORDS, {**SENT, "unknown": 1}],
    ids=["of the SDKs", "of proto names", "of the specification", "of a later version"],
)
@pytest.mark.parametrize("name", ["SendMessage", "SendStreamingMessage"])
def test_a_message_may_have_each_spelling(name: str, params: dict[str, Any]) -> None:
    assert decode(name, params) == REQUEST


@pytest.mark.parametrize("configuration", [None, {}, {"blocking": False}, {"historyLength": 0}])
def test_a_message_is_not_waited_for_by_default(configuration: dict[str, Any] | None) -> None:
    request = decode("SendMessage", {**SENT, "configuration": configuration})

    assert request.configuration == SendMessageConfiguration(return_immediately=True)


HOOK = {"id": "p", "url": "https://h.example", "authentication": {"schemes": ["Bearer"]}}


@pytest.mark.parametrize(
    "body",
    [
        {"parent": "tasks/t", "configId": "p", "config": CONFIG_JSON},
        {"parent": "tasks/t", "config_id": "p", "config": {"push_notification_config": {**HOOK, "id": ""}}},
        {"config": {"taskId": "t", "pushNotificationConfig": HOOK}},
        {"name": "tasks/t/pushNotificationConfigs/p", "pushNotificationConfig": HOOK},
        {"taskId": "t", "pushNotificationConfig": HOOK},
    ],
    ids=["a2a-sdk", "proto names", "the specification", "@a2a-js/sdk", "as in JSON-RPC"],
)
def test_a_push_configuration_may_have_each_spelling(body: dict[str, Any]) -> None:
    assert decode("CreateTaskPushNotificationConfig", {"id": "t", **body}) == CONFIG


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        ({}, "pushNotificationConfig: is required and must not be empty"),
        ({"config": {}}, "config.pushNotificationConfig: is required and must not be empty"),
        (
            {"config": {"pushNotificationConfig": {}}},
            "config.pushNotificationConfig.url: is required and must not be empty",
        ),
        ({"parent": "tasks/u"}, "parent: is not the same in the body as in the path, 'tasks/t'"),
        ({"config": {"name": "tasks/u/x"}}, "config.name: is not the same in the body as in the path, 'tasks/t'"),
        ({"taskId": "u"}, "taskId: is not the same in the body as in the path, 't'"),
    ],
)
def test_a_push_configuration_that_is_not_right_is_named(body: dict[str, Any], fault: str) -> None:
    with pytest.raises(InvalidParams) as caught:
        decode("CreateTaskPushNotificationConfig", {"id": "t", **body})

    assert caught.value.message == f"Invalid parameters: {fault}"


@pytest.mark.parametrize("name", ["CancelTask", "SubscribeToTask"])
@pytest.mark.parametrize("body", [{}, {"name": "tasks/t"}, {"name": ""}])
def test_the_body_may_name_the_task_again(name: str, body: dict[str, str]) -> None:
    assert decode(name, {"id": "t", **body}).id == "t"


@pytest.mark.parametrize("name", ["CancelTask", "SubscribeToTask"])
def test_the_body_may_not_name_another_task(name: str) -> None:
    with pytest.raises(InvalidParams, match=r"name: is not the same in the body as in the path, 'tasks/t'"):
        decode(name, {"id": "t", "name": "tasks/u"})


@pytest.mark.parametrize(
    ("name", "pairs", "path", "expected"),
    [
        ("GetTask", [("historyLength", "3")], {"id": "t"}, model.GetTaskRequest(id="t", history_length=3)),
        ("GetTask", [("history_length", "0")], {"id": "t"}, model.GetTaskRequest(id="t")),
        ("SubscribeToTask", [("x", "y")], {"id": "t"}, model.SubscribeToTaskRequest(id="t")),
        (
            "GetTaskPushNotificationConfig",
            [],
            {"id": "t", "push_notification_config_id": "p"},
            model.GetTaskPushNotificationConfigRequest(task_id="t", id="p"),
        ),
        (
            "DeleteTaskPushNotificationConfig",
            [],
            {"id": "t", "push_notification_config_id": "p"},
            model.DeleteTaskPushNotificationConfigRequest(task_id="t", id="p"),
        ),
        (
            "ListTaskPushNotificationConfigs",
            [("pageSize", "5"), ("pageToken", "n")],
            {"id": "t"},
            model.ListTaskPushNotificationConfigsRequest(task_id="t", page_size=5, page_token="n"),
        ),
        ("GetExtendedAgentCard", [], {}, model.GetExtendedAgentCardRequest()),
    ],
)
def test_a_url_becomes_a_request_of_the_model(
    name: str, pairs: list[tuple[str, str]], path: dict[str, str], expected: Wire
) -> None:
    assert DIALECT.decode_query(DIALECT.method(name), pairs, path) == expected


def part(given: dict[str, Any]) -> Part:
    request = decode("SendMessage", {"message": {"messageId": "m", "role": "ROLE_USER", "content": [given]}})
    found: Part = request.message.parts[0]
    return found


def twice(content: bytes) -> str:
    return base64.b64encode(base64.b64encode(content)).decode()


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"text": "x", "file": None, "data": None}, Part(text="x")),
        ({"data": {"data": {}}}, Part(data={})),
        ({"data": {}}, Part(data={})),
        ({"data": {"data": {"value": [1]}}, "metadata": {"data_part_compat": True}}, Part(data=[1])),
        ({"file": {"fileWithBytes": ""}}, Part(raw="")),
        ({"file": {"file_with_uri": "", "file_with_bytes": twice(b"a"), "mime_type": ""}}, Part(raw="YQ==")),
        ({"file": {"fileWithUri": "u", "name": "n"}}, Part(url="u", filename="n")),
    ],
)
def test_a_part_holds_one_content(given: dict[str, Any], expected: Part) -> None:
    assert part(given) == expected


@pytest.mark.parametrize("content", [b"", b"a", b"ab", b"abc", b"test", RAW, bytes(range(256)), b"\xfb\xff" * 300])
def test_bytes_are_read_as_the_sdk_of_python_writes_them(content: bytes) -> None:
    raw = base64.b64encode(content).decode()

    assert part({"file": {"fileWithBytes": twice(content)}}) == Part(raw=raw)


@pytest.mark.parametrize("content", [b"a", b"Hello, world", b"{}", RAW, bytes(range(256)), "ü".encode()])
def test_bytes_are_read_as_the_sdk_of_javascript_writes_them(content: bytes) -> None:
    raw = base64.b64encode(content).decode()

    assert part({"file": {"fileWithBytes": raw}}) == Part(raw=raw)


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        ({}, "message.content[0]: has no content: one of text, file and data is required"),
        (
            {"text": "x", "data": {}},
            "message.content[0]: has several contents, text and data: exactly one is allowed",
        ),
        ({"file": {}}, "message.content[0].file: must have exactly one of fileWithBytes and fileWithUri"),
        ({"file": {"fileWithBytes": "a"}}, "message.content[0].file.fileWithBytes: must be base64"),
        ({"data": {"data": [1]}}, "message.content[0].data.data: must be an object, not an array"),
        ({"data": "x"}, "message.content[0].data: must be an object, not a string"),
    ],
)
def test_a_part_that_is_not_right_is_named(given: dict[str, Any], fault: str) -> None:
    with pytest.raises(InvalidParams) as caught:
        part(given)

    assert caught.value.message == f"Invalid parameters: {fault}"


@pytest.mark.parametrize(
    ("message", "fault"),
    [
        ({"messageId": "m", "role": "ROLE_USER"}, "message.content: at least one part is required"),
        ({"messageId": "m", "role": "ROLE_USER", "content": []}, "message.content: at least one part is required"),
        ({"messageId": "m", "content": [{"text": "x"}]}, "message.role: is required and must not be empty"),
        (
            {"messageId": "m", "role": "user", "content": [{"text": "x"}]},
            "message.role: must be one of ROLE_USER, ROLE_AGENT, not 'user'",
        ),
        ([], "message: must be an object, not an array"),
        (None, "message: is required and must not be empty"),
    ],
)
def test_a_message_that_is_not_right_is_named(message: Any, fault: str) -> None:
    with pytest.raises(InvalidParams) as caught:
        decode("SendMessage", {"message": message})

    assert caught.value.message == f"Invalid parameters: {fault}"


def test_it_has_the_operations_of_json_rpc() -> None:
    for operation in v1_0.METHODS:
        if operation == "ListTasks":
            with pytest.raises(MethodNotFound, match=r"A2A 0\.3 has no 'ListTasks'"):
                DIALECT.method(operation)
        else:
            [same] = [each for each in requests.METHODS.values() if each.operation == operation]
            found = DIALECT.method(operation)
            assert (found.streaming, found.needs_extensions) == (same.streaming, same.needs_extensions)


# --- errors


@pytest.mark.parametrize(
    ("error", "status", "name"),
    [
        (errors.TaskNotFound("x"), 404, "TaskNotFoundError"),
        (errors.TaskNotCancelable("x"), 409, "TaskNotCancelableError"),
        (errors.UnsupportedOperation("x"), 501, "UnsupportedOperationError"),
        (errors.UnsupportedOperation("x", metadata={"taskId": "t"}), 422, "InvalidParamsError"),
        (errors.InvalidParams("x"), 422, "InvalidParamsError"),
        (errors.VersionNotSupported("x"), 400, "InvalidRequestError"),
        (errors.ExtensionSupportRequired("x"), 400, "InvalidRequestError"),
        (errors.InternalError("x"), 500, "InternalError"),
        (errors.Busy("x"), 503, "BusyError"),
    ],
)
def test_an_error_has_a_status_and_a_name_of_0_3(error: A2AError, status: int, name: str) -> None:
    assert (v0_3.http(error), v0_3.name(error)) == (status, name)
