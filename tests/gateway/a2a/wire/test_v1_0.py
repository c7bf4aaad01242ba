"""A2A 1.0 JSON in both directions, compared with the specification's proto and the official SDK."""

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway.a2a import model
from gateway.a2a.errors import InvalidParams, MethodNotFound
from gateway.a2a.model import (
    Artifact,
    AuthenticationInfo,
    CancelTaskRequest,
    GetExtendedAgentCardRequest,
    GetTaskRequest,
    ListTasksRequest,
    ListTasksResponse,
    Message,
    Part,
    Role,
    SendMessageConfiguration,
    SendMessageRequest,
    SendMessageResponse,
    StreamResponse,
    SubscribeToTaskRequest,
    Task,
    TaskArtifactUpdateEvent,
    TaskPushNotificationConfig,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
    Wire,
)
from gateway.a2a.wire import v1_0
from gateway.a2a.wire.dialect import Method

PROTO = Path(__file__).parents[4] / "../shared/spec/a2a-1.0.proto"

STATUS = TaskStatus(
    state=TaskState.INPUT_REQUIRED,
    timestamp="2026-11-20T10:00:00.123Z",
    message=Message(
        message_id="m2",
        context_id="c",
        task_id="t",
        role=Role.AGENT,
        parts=(Part(text="Which city?"),),
        extensions=("u",),
    ),
)
STATUS_JSON = {
    "state": "TASK_STATE_INPUT_REQUIRED",
    "timestamp": "2026-11-20T10:00:00.123Z",
    "message": {
        "messageId": "m2",
        "contextId": "c",
        "taskId": "t",
        "role": "ROLE_AGENT",
        "parts": [{"text": "Which city?"}],
        "extensions": ["u"],
    },
}
ARTIFACT = Artifact(
    artifact_id="a",
    name="Answer",
    parts=(
        Part(text=""),
        Part(raw="aGVsbG8=", media_type="image/png", filename="p.png"),
        Part(url="https://f.example/x", metadata={"snake_case": {"k": None}}),
        Part(data={"context_id": [1, None, "ü", 1.5, True, {}]}),
    ),
)
ARTIFACT_JSON = {
    "artifactId": "a",
    "name": "Answer",
    "parts": [
        {"text": ""},
        {"raw": "aGVsbG8=", "mediaType": "image/png", "filename": "p.png"},
        {"url": "https://f.example/x", "metadata": {"snake_case": {"k": None}}},
        {"data": {"context_id": [1, None, "ü", 1.5, True, {}]}},
    ],
}
TASK = Task(
    id="t",
    context_id="c",
    status=STATUS,
    artifacts=(ARTIFACT,),
    history=(Message(message_id="m1", role=Role.USER, parts=(Part(text="Hi"),), reference_task_ids=("r",)),),
    metadata={"k": "v"},
)
TASK_JSON = {
    "id": "t",
    "contextId": "c",
    "status": STATUS_JSON,
    "artifacts": [ARTIFACT_JSON],
    "history": [{"messageId": "m1", "role": "ROLE_USER", "parts": [{"text": "Hi"}], "referenceTaskIds": ["r"]}],
    "metadata": {"k": "v"},
}
RESULTS: tuple[tuple[Wire, dict[str, Any]], ...] = (
    (TASK, TASK_JSON),
    (SendMessageResponse(task=TASK), {"task": TASK_JSON}),
    (SendMessageResponse(message=STATUS.message), {"message": STATUS_JSON["message"]}),
    (
        ListTasksResponse(tasks=(TASK,), next_page_token="next", page_size=1, total_size=7),
        {"tasks": [TASK_JSON], "nextPageToken": "next", "pageSize": 1, "totalSize": 7},
    ),
    (
        ListTasksResponse(tasks=(), next_page_token="", page_size=50, total_size=0),
        {"tasks": [], "nextPageToken": "", "pageSize": 50, "totalSize": 0},
    ),
    (StreamResponse(task=TASK), {"task": TASK_JSON}),
    (
        StreamResponse(status_update=TaskStatusUpdateEvent(task_id="t", context_id="c", status=STATUS)),
        {"statusUpdate": {"taskId": "t", "contextId": "c", "status": STATUS_JSON}},
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


@pytest.mark.parametrize(("value", "expected"), RESULTS, ids=lambda value: type(value).__name__)
def test_a_result_is_written_in_camel_case_without_absent_fields(value: Wire, expected: dict[str, Any]) -> None:
    assert msgspec.json.decode(v1_0.encode(value)) == expected


@pytest.mark.parametrize("value", [value for value, _ in RESULTS], ids=lambda value: type(value).__name__)
def test_a_result_is_what_the_official_sdk_reads(value: Wire) -> None:
    json_format = pytest.importorskip("google.protobuf.json_format")
    sdk_types = pytest.importorskip("a2a.types")

    parsed = json_format.Parse(v1_0.encode(value), getattr(sdk_types, type(value).__name__)())

    again = json_format.MessageToDict(parsed, always_print_fields_with_no_presence=isinstance(value, ListTasksResponse))
    assert without_defaults(again) == without_defaults(msgspec.to_builtins(value))


def without_defaults(value: Any) -> Any:
    """Without the members that are optional in ProtoJSON."""
    match value:
        case dict():
            return {k: without_defaults(v) for k, v in value.items() if v not in ([], (), {}, False, "") or k == "text"}
        case list() | tuple():
            return [without_defaults(item) for item in value]
        case _:
            return value


REQUESTS: tuple[tuple[dict[str, Any], Wire], ...] = (
    (
        {
            "tenant": "acme",
            "message": {
                "messageId": "m",
                "contextId": "c",
                "taskId": "t",
                "role": "ROLE_USER",
                "parts": ARTIFACT_JSON["parts"],
                "metadata": {"message_id": "untouched"},
                "extensions": ["u"],
                "referenceTaskIds": ["r"],
            },
            "configuration": {
                "acceptedOutputModes": ["text/plain", "image/png"],
                "taskPushNotificationConfig": {
                    "url": "https://h.example",
                    "token": "x",
                    "authentication": {"scheme": "Bearer", "credentials": "y"},
                },
                "historyLength": 0,
                "returnImmediately": False,
            },
            "metadata": {},
        },
        SendMessageRequest(
            tenant="acme",
            message=Message(
                message_id="m",
                context_id="c",
                task_id="t",
                role=Role.USER,
                parts=ARTIFACT.parts,
                metadata={"message_id": "untouched"},
                extensions=("u",),
                reference_task_ids=("r",),
            ),
            configuration=SendMessageConfiguration(
                accepted_output_modes=("text/plain", "image/png"),
                task_push_notification_config=TaskPushNotificationConfig(
                    url="https://h.example",
                    token="x",
                    authentication=AuthenticationInfo(scheme="Bearer", credentials="y"),
                ),
                history_length=0,
                return_immediately=False,
            ),
            metadata={},
        ),
    ),
    ({"id": "t", "historyLength": 3, "tenant": ""}, GetTaskRequest(id="t", history_length=3)),
    ({"id": "t", "metadata": {"a": 1}}, CancelTaskRequest(id="t", metadata={"a": 1})),
    ({"id": "t", "unknown": {"id": 7}}, SubscribeToTaskRequest(id="t")),
    ({}, GetExtendedAgentCardRequest()),
    (
        {"statusTimestampAfter": "2026-11-20T10:00:00.123456789+02:00", "includeArtifacts": True, "pageSize": 0},
        ListTasksRequest(
            status_timestamp_after="2026-11-20T10:00:00.123456789+02:00", include_artifacts=True, page_size=0
        ),
    ),
)


def decode(kind: type[Wire], params: Any) -> Any:
    return v1_0.decode(Method("", "", kind), params)


def decode_query(kind: type[Wire], pairs: list[tuple[str, str]], path: dict[str, str]) -> Any:
    return v1_0.decode_query(Method("", "", kind), pairs, path)


@pytest.mark.parametrize(("params", "expected"), REQUESTS, ids=lambda value: type(value).__name__)
def test_a_request_is_read(params: dict[str, Any], expected: Wire) -> None:
    assert decode(type(expected), params) == expected


@pytest.mark.parametrize(("params", "expected"), REQUESTS, ids=lambda value: type(value).__name__)
def test_a_request_in_proto_names_means_the_same(params: dict[str, Any], expected: Wire) -> None:
    assert decode(type(expected), snake(params)) == expected


def snake(value: Any) -> Any:
    """Proto names on the structural levels; application data stays."""
    match value:
        case dict():
            return {
                re.sub("[A-Z]", lambda letter: "_" + letter[0].lower(), key): item
                if key in ("data", "metadata", "unknown")
                else snake(item)
                for key, item in value.items()
            }
        case list():
            return [snake(item) for item in value]
        case _:
            return value


@pytest.mark.parametrize(("params", "expected"), REQUESTS, ids=lambda value: type(value).__name__)
def test_null_is_absence(params: dict[str, Any], expected: Wire) -> None:
    absent = {info.encode_name: None for info in msgspec.structs.fields(type(expected))}

    assert decode(type(expected), absent | params) == expected


def part(given: dict[str, Any]) -> Part:
    params = {"message": {"messageId": "m", "role": 1, "parts": [given]}}
    request: SendMessageRequest = decode(SendMessageRequest, params)
    return request.message.parts[0]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"text": ""}, Part(text="")),
        ({"data": None}, Part(data=None)),
        ({"data": 0}, Part(data=0)),
        ({"data": ""}, Part(data="")),
        ({"text": "x", "raw": None, "url": None, "data": None, "filename": "", "mediaType": ""}, Part(text="x")),
        ({"kind": "text", "text": "x"}, Part(text="x")),
        ({"raw": ""}, Part(raw="")),
        ({"raw": "-_-_"}, Part(raw="+/+/")),
        ({"raw": "aGVsbG8"}, Part(raw="aGVsbG8=")),
        ({"raw": "aGVsbG8=", "media_type": "a/b"}, Part(raw="aGVsbG8=", media_type="a/b")),
    ],
)
def test_a_part_holds_one_content_in_any_of_its_spellings(given: dict[str, Any], expected: Part) -> None:
    assert part(given) == expected


@pytest.mark.parametrize("raw", ["a", "aGVsb", "aGV sbG8=", "aGVsbG8=\n", "a===", "aGVs====x", "ä", "=aGV", "aG=Vs"])
def test_what_is_no_base64_is_refused(raw: str) -> None:
    with pytest.raises(InvalidParams, match=r"message\.parts\[0\]\.raw: must be base64"):
        part({"raw": raw})


@pytest.mark.parametrize(
    "time",
    ["2026-11-20", "20261120T100000Z", "2026-11-20T10:00:00", "2026-13-01T00:00:00Z", "0000-01-01T00:00:00Z"],
)
def test_what_is_no_time_is_refused(time: str) -> None:
    with pytest.raises(InvalidParams, match="statusTimestampAfter"):
        decode(ListTasksRequest, {"statusTimestampAfter": time})


@pytest.mark.parametrize("state", list(TaskState))
def test_a_state_may_be_a_name_or_its_number(state: TaskState) -> None:
    number = list(TaskState).index(state) + 1

    for given in (state.value, number):
        assert decode(ListTasksRequest, {"status": given}).status is state
    assert decode_query(ListTasksRequest, [("status", str(number))], {}).status is state


def test_what_the_path_says_need_not_be_said_again() -> None:
    again = [("taskId", "t"), ("task_id", "t"), ("id", "c")]
    kind = model.GetTaskPushNotificationConfigRequest

    assert decode_query(kind, again, {"task_id": "t", "id": "c"}) == kind(task_id="t", id="c")
    with pytest.raises(InvalidParams, match="taskId: is given twice"):
        decode_query(kind, [("taskId", "other")], {"task_id": "t", "id": "c"})


def test_an_event_is_one_line_for_every_reader() -> None:
    text = "".join(chr(code) for code in [*range(0x20), 0x85, 0x2028, 0x2029, 0x7F, 0xA0]) + "é\u00c2\u0085 ends"
    event = StreamResponse(message=Message(message_id="m", role=Role.AGENT, parts=(Part(text=text),)))

    line = v1_0.encode(event)

    assert len(line.decode().splitlines()) == 1
    assert msgspec.json.decode(line)["message"]["parts"][0]["text"] == text


def test_every_method_of_the_specification_is_there() -> None:
    assert len(v1_0.METHODS) == 11
    assert [name for name, method in v1_0.METHODS.items() if method.streaming] == [
        "SendStreamingMessage",
        "SubscribeToTask",
    ]
    with pytest.raises(MethodNotFound):
        v1_0.method("sendMessage")


@pytest.fixture(scope="module")
def proto() -> str:
    if not PROTO.exists():
        pytest.skip(f"the specification's proto is not here: {PROTO}")
    return PROTO.read_text()


def test_the_methods_are_those_of_the_specification(proto: str) -> None:
    assert set(v1_0.METHODS) == set(re.findall(r"^  rpc (\w+)\(", proto, re.MULTILINE))


@pytest.mark.parametrize("kind", [TaskState, Role])
def test_the_numbers_of_enums_are_those_of_the_specification(proto: str, kind: type[TaskState] | type[Role]) -> None:
    body = re.search(rf"^enum {kind.__name__} {{(.*?)^}}", proto, re.MULTILINE | re.DOTALL)
    assert body is not None
    numbers = {name: int(number) for name, number in re.findall(r"^  (\w+) = (\d+);", body[1], re.MULTILINE)}

    assert numbers == {unspecified(kind): 0} | {member.value: number for number, member in enumerate(kind, start=1)}


def unspecified(kind: type[TaskState] | type[Role]) -> str:
    return "TASK_STATE_UNSPECIFIED" if kind is TaskState else "ROLE_UNSPECIFIED"


@pytest.mark.parametrize("method", v1_0.METHODS.values(), ids=lambda method: method.name)
def test_a_request_has_the_fields_of_the_specification(proto: str, method: Method) -> None:
    body = re.search(rf"^message {method.request.__name__} {{(.*?)^}}", proto, re.MULTILINE | re.DOTALL)
    assert body is not None
    declared = re.findall(r"^  (?:optional |repeated )?[\w.]+ (\w+) = \d+", body[1], re.MULTILINE)

    assert {info.name for info in msgspec.structs.fields(method.request)} == set(declared)
