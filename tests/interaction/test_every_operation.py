"""Every operation of A2A, in each version and binding, with its answer and with every error. What the gateway reads and
writes in A2A 0.3 is compared with what the official SDK makes of the same in 1.0."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import msgspec
import pytest
from a2a.compat.v0_3 import a2a_v0_3_pb2, conversions
from a2a.compat.v0_3.proto_utils import ToProto
from a2a.types import a2a_pb2
from google.protobuf.json_format import MessageToDict, ParseDict  # type: ignore[import-untyped]

from gateway.a2a import errors, model
from gateway.a2a.errors import A2AError
from gateway.a2a.model import StreamResponse, Wire
from gateway.a2a.wire import v1_0
from gateway.operations.call import OperationCall
from tests.interaction import asgi
from tests.interaction.harness import Exchange, Gateway, JsonRpc, Rest
from tests.interaction.scripted import ScriptedStream

TASK = model.Task(
    id="t", context_id="c", status=model.TaskStatus(state=model.TaskState.WORKING, timestamp="2026-11-20T10:00:00.123Z")
)
TASK_JSON = {
    "id": "t",
    "contextId": "c",
    "status": {"state": "TASK_STATE_WORKING", "timestamp": "2026-11-20T10:00:00.123Z"},
}
MESSAGE = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "Hello"}, {"data": {"a": 1}}], "contextId": "c"}
CONFIG = {"taskId": "t", "id": "p", "url": "https://h.example", "authentication": {"scheme": "Bearer"}}
CARD = model.AgentCard(
    name="Echo",
    description="Says it again.",
    supported_interfaces=(
        model.AgentInterface(url="http://localhost/a2a/echo", protocol_binding="JSONRPC", protocol_version="1.0"),
    ),
    version="1",
    capabilities=model.AgentCapabilities(streaming=True),
    default_input_modes=("text/plain",),
    default_output_modes=("text/plain",),
    skills=(model.AgentSkill(id="e", name="Echo", description="Says it again.", tags=("echo",)),),
)


@dataclass(frozen=True)
class Operation:
    """`key` names it in the scripted core, `answer` is the core's, `shown` the result in A2A 1.0. `sdk` ends the names of its
    message and of its conversion."""

    name: str
    key: str
    params: dict[str, Any]
    request: Wire
    answer: Any
    shown: Any
    message: str
    conversion: str
    streaming: bool = False


SENT = model.SendMessageRequest(
    message=model.Message(
        message_id="m",
        role=model.Role.USER,
        parts=(model.Part(text="Hello"), model.Part(data={"a": 1})),
        context_id="c",
    ),
    configuration=model.SendMessageConfiguration(return_immediately=True),
)
SEND = {"message": MESSAGE, "configuration": {"returnImmediately": True}}
PUSH = model.TaskPushNotificationConfig(
    task_id="t", id="p", url="https://h.example", authentication=model.AuthenticationInfo(scheme="Bearer")
)
OPERATIONS = (
    Operation(
        "SendMessage", "send_message", SEND, SENT, model.SendMessageResponse(task=TASK), {"task": TASK_JSON},
        "SendMessageRequest", "send_message_request",
    ),
    Operation(
        "SendStreamingMessage", "send_streaming_message", SEND, SENT, StreamResponse(task=TASK), {"task": TASK_JSON},
        "SendMessageRequest", "send_message_request", streaming=True,
    ),
    Operation(
        "GetTask", "get_task", {"id": "t", "historyLength": 3}, model.GetTaskRequest(id="t", history_length=3), TASK,
        TASK_JSON, "GetTaskRequest", "get_task_request",
    ),
    Operation(
        "ListTasks", "list_tasks", {"contextId": "c"}, model.ListTasksRequest(context_id="c"),
        model.ListTasksResponse(tasks=(TASK,), next_page_token="", page_size=50, total_size=1),
        {"tasks": [TASK_JSON], "nextPageToken": "", "pageSize": 50, "totalSize": 1}, "ListTasksRequest", "",
    ),
    Operation(
        "CancelTask", "cancel_task", {"id": "t"}, model.CancelTaskRequest(id="t"), TASK, TASK_JSON,
        "CancelTaskRequest", "cancel_task_request",
    ),
    Operation(
        "SubscribeToTask", "subscribe_to_task", {"id": "t"}, model.SubscribeToTaskRequest(id="t"), StreamResponse(task=TASK),
        {"task": TASK_JSON}, "SubscribeToTaskRequest", "subscribe_to_task_request", streaming=True,
    ),
    Operation(
        "CreateTaskPushNotificationConfig", "create_push_config", CONFIG, PUSH, PUSH, CONFIG,
        "TaskPushNotificationConfig", "create_task_push_notification_config_request",
    ),
    Operation(
        "GetTaskPushNotificationConfig", "get_push_config", {"taskId": "t", "id": "p"},
        model.GetTaskPushNotificationConfigRequest(task_id="t", id="p"), PUSH, CONFIG,
        "GetTaskPushNotificationConfigRequest", "get_task_push_notification_config_request",
    ),
    Operation(
        "ListTaskPushNotificationConfigs", "list_push_configs", {"taskId": "t"},
        model.ListTaskPushNotificationConfigsRequest(task_id="t"),
        model.ListTaskPushNotificationConfigsResponse(configs=(PUSH,), next_page_token=""),
        {"configs": [CONFIG], "nextPageToken": ""},
        "ListTaskPushNotificationConfigsRequest", "list_task_push_notification_config_request",
    ),
    Operation(
        "DeleteTaskPushNotificationConfig", "delete_push_config", {"taskId": "t", "id": "p"},
        model.DeleteTaskPushNotificationConfigRequest(task_id="t", id="p"), None, None,
        "DeleteTaskPushNotificationConfigRequest", "delete_task_push_notification_config_request",
    ),
    Operation(
        "GetExtendedAgentCard", "get_extended_card", {}, model.GetExtendedAgentCardRequest(), CARD,
        msgspec.json.decode(v1_0.encode(CARD)), "GetExtendedAgentCardRequest", "get_extended_agent_card_request",
    ),
)  # fmt: skip


# --- what each version and binding says


class Rpc10:
    """JSON-RPC of A2A 1.0."""

    name = "json-rpc-1.0"
    version = "1.0"
    has_list = True
    _binding = JsonRpc()

    def ask(self, operation: Operation) -> Any:
        return self._binding.ask(operation.name, operation.params)

    def answer(self, operation: Operation) -> Any:
        return self._binding.result(operation.shown)

    def refusal(self, refusal: "Refusal") -> tuple[int, dict[str, Any]]:
        return refusal.rpc_http, {"code": refusal.code}

    def error(self, answer: Any) -> dict[str, Any]:
        return {"code": answer["error"]["code"]}

    def refused(self, operation: "Operation", refusal: "Refusal", response: asgi.Answer) -> Any:
        """The body of a refusal."""
        return response.json


class Rest10(Rpc10):
    """HTTP+JSON of A2A 1.0."""

    name = "http+json-1.0"
    _binding = Rest()  # type: ignore[assignment]

    def refusal(self, refusal: "Refusal") -> tuple[int, dict[str, Any]]:
        return refusal.http, {"code": refusal.http, "status": refusal.grpc}

    def error(self, answer: Any) -> dict[str, Any]:
        return {"code": answer["error"]["code"], "status": answer["error"]["status"]}


class Rpc03(Rpc10):
    """JSON-RPC of A2A 0.3."""

    name = "json-rpc-0.3"
    version = "0.3"
    has_list = False

    def ask(self, operation: Operation) -> Any:
        asked = ParseDict(operation.params, getattr(a2a_pb2, operation.message)())
        body = getattr(conversions, f"to_compat_{operation.conversion}")(asked, "request-1").model_dump(
            mode="json", by_alias=True, exclude_none=True
        )
        if operation.name == "SendStreamingMessage":
            body["method"] = "message/stream"
        return self._binding.raw(msgspec.json.encode(body))

    def answer(self, operation: Operation) -> Any:
        return self._binding.result(in_0_3(operation))

    def refusal(self, refusal: "Refusal") -> tuple[int, dict[str, Any]]:
        return refusal.rpc_http, {"code": refusal.code_0_3}

    def refused(self, operation: "Operation", refusal: "Refusal", response: asgi.Answer) -> Any:
        """Clients of 0.3 read nothing but events behind a streaming method, except errors of the transport."""
        if not operation.streaming or refusal.rpc_http != 200:
            return response.json
        assert response.header("content-type") == "text/event-stream"
        return msgspec.json.decode(response.body.removeprefix(b"data: ").removesuffix(b"\n\n"))


class Rest03(Rpc10):
    """HTTP+JSON of A2A 0.3."""

    name = "http+json-0.3"
    version = "0.3"
    has_list = False
    addresses: ClassVar = {
        "SendMessage": "POST message:send",
        "SendStreamingMessage": "POST message:stream",
        "GetTask": "GET tasks/t?historyLength=3",
        "CancelTask": "POST tasks/t:cancel",
        "SubscribeToTask": "GET tasks/t:subscribe",
        "CreateTaskPushNotificationConfig": "POST tasks/t/pushNotificationConfigs",
        "GetTaskPushNotificationConfig": "GET tasks/t/pushNotificationConfigs/p",
        "ListTaskPushNotificationConfigs": "GET tasks/t/pushNotificationConfigs",
        "DeleteTaskPushNotificationConfig": "DELETE tasks/t/pushNotificationConfigs/p",
        "GetExtendedAgentCard": "GET card",
    }
    statuses: ClassVar = {-32002: 409, -32003: 501, -32004: 501, -32005: 415, -32006: 502, -32007: 404, -32602: 422}

    def ask(self, operation: Operation) -> Any:
        method, _, address = self.addresses[operation.name].partition(" ")
        body = self._body(operation)
        return Exchange(method, f"/a2a/echo/v1/{address}", b"" if body is None else msgspec.json.encode(body))

    def _body(self, operation: Operation) -> Any:
        if operation.conversion not in ("send_message_request", "create_task_push_notification_config_request"):
            return None
        asked = ParseDict(operation.params, getattr(a2a_pb2, operation.message)())
        params = getattr(conversions, f"to_compat_{operation.conversion}")(asked, "request-1").params
        if operation.conversion == "send_message_request":
            return MessageToDict(
                a2a_v0_3_pb2.SendMessageRequest(
                    request=ToProto.message(params.message),
                    configuration=ToProto.message_send_configuration(params.configuration),
                )
            )
        return {"parent": "tasks/t", "config": MessageToDict(ToProto.task_push_notification_config(params))}

    def answer(self, operation: Operation) -> Any:
        """As the official SDK writes it, which leaves out the time."""
        shown = operation.shown
        written: dict[str, Callable[[], Any]] = {
            "SendMessage": lambda: ToProto.task_or_message(
                converted("send_message_response", a2a_pb2.SendMessageResponse(), shown).root.result
            ),
            "SendStreamingMessage": lambda: ToProto.stream_response(event_in_0_3(shown)),
            "SubscribeToTask": lambda: ToProto.stream_response(event_in_0_3(shown)),
            "GetTask": lambda: ToProto.task(converted("task", a2a_pb2.Task(), shown)),
            "CancelTask": lambda: ToProto.task(converted("task", a2a_pb2.Task(), shown)),
            "CreateTaskPushNotificationConfig": lambda: ToProto.task_push_notification_config(push_config(shown)),
            "GetTaskPushNotificationConfig": lambda: ToProto.task_push_notification_config(push_config(shown)),
            "ListTaskPushNotificationConfigs": lambda: a2a_v0_3_pb2.ListTaskPushNotificationConfigResponse(
                configs=[ToProto.task_push_notification_config(push_config(config)) for config in shown["configs"]]
            ),
        }
        if operation.name in written:
            return timed(MessageToDict(written[operation.name]()))
        return {} if shown is None else shown

    def refusal(self, refusal: "Refusal") -> tuple[int, dict[str, Any]]:
        return self.statuses.get(refusal.code_0_3, refusal.http), {"code": refusal.code_0_3}

    def error(self, answer: Any) -> dict[str, Any]:
        return {"code": answer["code"]}


def timed(written: Any) -> Any:
    """The same with the time of the scripted task."""
    task = written.get("task", written)
    if "status" in task:
        task["status"]["timestamp"] = TASK.status.timestamp
    return written


def event_in_0_3(shown: Any) -> Any:
    return converted("stream_response", a2a_pb2.StreamResponse(), shown).result


def in_0_3(operation: Operation) -> Any:
    """The result of the operation as the official SDK writes it in A2A 0.3."""
    shown = operation.shown
    to: dict[str, Callable[[], Any]] = {
        "SendMessage": lambda: converted("send_message_response", a2a_pb2.SendMessageResponse(), shown).root.result,
        "CreateTaskPushNotificationConfig": lambda: push_config(shown),
        "GetTaskPushNotificationConfig": lambda: push_config(shown),
    }
    if operation.name in ("SendStreamingMessage", "SubscribeToTask"):
        return dumped(event_in_0_3(shown))
    if operation.name in ("GetTask", "CancelTask"):
        return dumped(converted("task", a2a_pb2.Task(), shown))
    if operation.name == "ListTaskPushNotificationConfigs":
        return [dumped(push_config(config)) for config in shown["configs"]]
    if operation.name == "GetExtendedAgentCard" or shown is None:
        return shown
    return dumped(to[operation.name]())


def push_config(shown: Any) -> Any:
    return converted("task_push_notification_config", a2a_pb2.TaskPushNotificationConfig(), shown)


def converted(name: str, message: Any, shown: Any) -> Any:
    return getattr(conversions, f"to_compat_{name}")(ParseDict(shown, message, ignore_unknown_fields=True))


def dumped(value: Any) -> Any:
    return value.model_dump(mode="json", by_alias=True, exclude_none=True)


WIRES = (Rpc10(), Rest10(), Rpc03(), Rest03())


@dataclass(frozen=True)
class Refusal:
    """An error of the core, and its forms: code of JSON-RPC in both versions, status of HTTP+JSON and of gRPC."""

    error: A2AError
    code: int
    code_0_3: int
    http: int
    grpc: str
    rpc_http: int = 200


ERRORS = (
    Refusal(errors.TaskNotFound("x"), -32001, -32001, 404, "NOT_FOUND"),
    Refusal(errors.TaskNotCancelable("x"), -32002, -32002, 400, "FAILED_PRECONDITION"),
    Refusal(errors.PushNotificationNotSupported("x"), -32003, -32003, 400, "FAILED_PRECONDITION"),
    Refusal(errors.UnsupportedOperation("x"), -32004, -32004, 400, "FAILED_PRECONDITION"),
    Refusal(errors.UnsupportedOperation("x", metadata={"taskId": "t"}), -32004, -32602, 400, "FAILED_PRECONDITION"),
    Refusal(errors.ContentTypeNotSupported("x"), -32005, -32005, 400, "INVALID_ARGUMENT"),
    Refusal(errors.InvalidAgentResponse("x"), -32006, -32006, 500, "INTERNAL"),
    Refusal(errors.ExtendedAgentCardNotConfigured("x"), -32007, -32007, 400, "FAILED_PRECONDITION"),
    Refusal(errors.ExtensionSupportRequired("x"), -32008, -32600, 400, "FAILED_PRECONDITION"),
    Refusal(errors.VersionNotSupported("x"), -32009, -32600, 400, "FAILED_PRECONDITION"),
    Refusal(errors.TaskGenerationMismatch("x"), -32010, -32010, 409, "ABORTED"),
    Refusal(errors.invalid("id", "is odd"), -32602, -32602, 400, "INVALID_ARGUMENT"),
    Refusal(errors.NotFound("x"), -32601, -32601, 404, "NOT_FOUND", 404),
    Refusal(errors.Busy("x", retry_after=1), -32603, -32603, 503, "UNAVAILABLE", 503),
    Refusal(errors.TooManyRequests("x", retry_after=1), -32603, -32603, 429, "RESOURCE_EXHAUSTED", 429),
    Refusal(errors.InternalError("x"), -32603, -32603, 500, "INTERNAL"),
)


EVERY = [
    pytest.param(wire, operation, id=f"{wire.name}-{operation.name}")
    for wire in WIRES
    for operation in OPERATIONS
    if wire.has_list or operation.name != "ListTasks"
]
every_operation = pytest.mark.parametrize(("wire", "operation"), EVERY)
every_error = pytest.mark.parametrize("refusal", ERRORS, ids=lambda refusal: type(refusal.error).__name__)


async def asked(wire: Rpc10, operation: Operation, answer: Any) -> tuple[Gateway, asgi.Answer]:
    gateway = Gateway(JsonRpc())
    gateway.operations.answers[operation.key] = answer
    return gateway, await gateway.exchange(wire.ask(operation), a2a_version=wire.version)


@every_operation
async def test_an_operation_reaches_the_core_and_its_answer_the_caller(wire: Rpc10, operation: Operation) -> None:
    stream = operation.streaming
    answer = ScriptedStream([(1, v1_0.encode(operation.answer))]) if stream else operation.answer

    gateway, response = await asked(wire, operation, answer)

    [(key, call, request)] = gateway.operations.calls
    assert (key, call.version, request) == (operation.key, wire.version, operation.request)
    if stream:
        [number, data] = response.body.decode().strip().split("\n")
        assert (number, msgspec.json.decode(data.removeprefix("data: "))) == ("id: 1", wire.answer(operation))
    else:
        assert (response.status, response.json) == (200, wire.answer(operation))


@every_operation
@every_error
async def test_an_error_of_an_operation_reaches_the_caller(wire: Rpc10, operation: Operation, refusal: Refusal) -> None:
    gateway, response = await asked(wire, operation, refusal.error)

    body = wire.refused(operation, refusal, response)
    assert (response.status, wire.error(body)) == wire.refusal(refusal)
    calls: list[tuple[str, OperationCall, Wire]] = gateway.operations.calls
    assert [key for key, _, _ in calls] == [operation.key]


@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.name)
@every_error
async def test_an_error_in_a_stream_reaches_the_caller(wire: Rpc10, refusal: Refusal) -> None:
    stream = ScriptedStream([(1, v1_0.encode(StreamResponse(task=TASK)))], error=refusal.error)

    _, response = await asked(wire, OPERATIONS[1], stream)

    *_, last = response.body.decode().strip().split("\n\n")
    kind, data = last.split("\n")
    assert (response.status, kind) == (200, "event: error")
    assert wire.error(msgspec.json.decode(data.removeprefix("data: "))) == wire.refusal(refusal)[1]


async def test_a_list_of_tasks_is_no_method_of_0_3() -> None:
    gateway = Gateway(JsonRpc())

    answer = await gateway.ask("tasks/list", {}, a2a_version="0.3")

    assert answer.json["error"]["code"] == -32601
