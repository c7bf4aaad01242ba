"""What the client and the server of a2a-sdk 0.3.26 said to each other, said to this gateway again.

The recordings are of tests/interop/peers/a2a-sdk-0.3/record.py.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway.a2a import errors, model
from gateway.a2a.model import Artifact, Message, Part, Role, StreamResponse, Task, TaskState, TaskStatus, Wire
from gateway.a2a.wire import v1_0
from tests.interaction import asgi
from tests.interaction.harness import Gateway, JsonRpc
from tests.interaction.scripted import ScriptedStream

FIXTURES = Path(__file__).parents[1] / "fixtures" / "a2a-0.3"


class Exchange(msgspec.Struct, frozen=True):
    name: str
    method: str
    target: str
    request: Any
    status: int
    answer: Any = None
    events: list[Any] | None = None


class Recording(msgspec.Struct, frozen=True):
    exchanges: list[Exchange]


def recorded(binding: str) -> list[Exchange]:
    return msgspec.json.decode((FIXTURES / f"{binding}.json").read_bytes(), type=Recording).exchanges


JSON_RPC, HTTP_JSON = recorded("json-rpc"), recorded("http+json")

PARTS = (
    Part(text="Grüße", metadata={"snake_case": {"a": [1, True]}}),
    Part(raw="AP/+aGVsbG8=", media_type="image/png", filename="p.png"),
    Part(url="https://f.example/x", media_type="text/csv"),
    Part(data={"context_id": [1, "ü", 1.5, True, {}, None]}),
)
TEXT = (Part(text="Hi"),)
URI = ("https://x.example",)
REPLY = Message(message_id="reply", role=Role.AGENT, parts=PARTS, context_id="c", task_id="t", extensions=URI)
ARTIFACT = Artifact(artifact_id="a", name="Answer", description="All of it", parts=PARTS, metadata={"k": "v"})


def task(state: TaskState) -> Task:
    return Task(id="t", context_id="c", status=TaskStatus(state=state))


WHOLE = Task(
    id="t",
    context_id="c",
    status=TaskStatus(state=TaskState.COMPLETED, message=REPLY),
    artifacts=(ARTIFACT,),
    history=(Message(message_id="m", role=Role.USER, parts=TEXT),),
    metadata={"k": "v"},
)


def changed(status: TaskStatus, metadata: dict[str, Any] | None = None) -> StreamResponse:
    update = model.TaskStatusUpdateEvent(task_id="t", context_id="c", status=status, metadata=metadata)
    return StreamResponse(status_update=update)


def extended(artifact: Artifact, **more: Any) -> StreamResponse:
    return StreamResponse(
        artifact_update=model.TaskArtifactUpdateEvent(task_id="t", context_id="c", artifact=artifact, **more)
    )


EVENTS = (
    StreamResponse(task=task(TaskState.SUBMITTED)),
    changed(TaskStatus(state=TaskState.WORKING)),
    extended(Artifact(artifact_id="a", parts=TEXT)),
    extended(ARTIFACT, append=True, last_chunk=True, metadata={"k": 1}),
    changed(TaskStatus(state=TaskState.INPUT_REQUIRED, message=REPLY), {"k": "v"}),
)
PUSH = model.TaskPushNotificationConfig(
    id="p",
    url="https://h.example/hook",
    token="secret",
    authentication=model.AuthenticationInfo(scheme="Bearer", credentials="also secret"),
)
SHOWN = model.TaskPushNotificationConfig(
    id="p", task_id="t", url="https://h.example/hook", authentication=model.AuthenticationInfo(scheme="Bearer")
)
SENT = model.SendMessageRequest(
    message=Message(
        message_id="m", role=Role.USER, parts=PARTS, context_id="c", task_id="t", metadata={"a_b": 1}, extensions=URI
    ),
    configuration=model.SendMessageConfiguration(
        accepted_output_modes=("text/plain", "image/png"),
        task_push_notification_config=PUSH,
        history_length=3,
        return_immediately=False,
    ),
    metadata={"k": "v"},
)
BARE = model.SendMessageRequest(
    message=Message(message_id="m", role=Role.USER, parts=TEXT),
    configuration=model.SendMessageConfiguration(return_immediately=True),
)


@dataclass(frozen=True)
class Core:
    """The operation that an exchange calls, its request, and its answer: events for a stream."""

    operation: str
    request: Wire
    answer: Any


CORE: dict[str, Core] = {
    "send": Core("send_message", SENT, model.SendMessageResponse(task=WHOLE)),
    "send, bare": Core("send_message", BARE, model.SendMessageResponse(message=REPLY)),
    "stream": Core("send_streaming_message", SENT, EVENTS),
    "stream of a message": Core("send_streaming_message", BARE, (StreamResponse(message=REPLY),)),
    **{
        f"get, {state.removeprefix('TASK_STATE_').lower().replace('_', '-')}": Core(
            "get_task", model.GetTaskRequest(id="t", history_length=3), task(state)
        )
        for state in TaskState
    },
    "get, without a limit": Core("get_task", model.GetTaskRequest(id="t"), WHOLE),
    "get, bare": Core("get_task", model.GetTaskRequest(id="t"), WHOLE),
    "cancel": Core("cancel_task", model.CancelTaskRequest(id="t"), WHOLE),
    "resubscribe": Core("subscribe_to_task", model.SubscribeToTaskRequest(id="t"), EVENTS[1:]),
    "set push": Core("create_push_config", msgspec.structs.replace(PUSH, task_id="t"), SHOWN),
    "get push": Core("get_push_config", model.GetTaskPushNotificationConfigRequest(task_id="t", id="p"), SHOWN),
}
ERRORS = {
    "TaskNotFoundError": errors.TaskNotFound,
    "TaskNotCancelableError": errors.TaskNotCancelable,
    "PushNotificationNotSupportedError": errors.PushNotificationNotSupported,
    "UnsupportedOperationError": errors.UnsupportedOperation,
    "ContentTypeNotSupportedError": errors.ContentTypeNotSupported,
    "InvalidAgentResponseError": errors.InvalidAgentResponse,
    "AuthenticatedExtendedCardNotConfiguredError": errors.ExtendedAgentCardNotConfigured,
    "InvalidParamsError": errors.InvalidParams,
    "InvalidRequestError": errors.InvalidRequest,
    "InternalError": errors.InternalError,
}


async def said_again(exchange: Exchange, operation: str, answer: Any) -> tuple[Gateway, asgi.Answer]:
    gateway = Gateway(JsonRpc())
    gateway.operations.answers[operation] = answer
    body = b"" if exchange.request is None else msgspec.json.encode(exchange.request)
    return gateway, await gateway.request(exchange.method, f"/a2a/echo{exchange.target}", body, a2a_version="")


def of(exchange: Exchange) -> str:
    return exchange.name


@pytest.mark.parametrize("exchange", [each for each in JSON_RPC + HTTP_JSON if each.name in CORE], ids=of)
async def test_what_a_client_of_0_3_said_is_answered_as_its_server_did(exchange: Exchange) -> None:
    core = CORE[exchange.name]
    streamed = isinstance(core.answer, tuple)
    answer = ScriptedStream([(None, v1_0.encode(event)) for event in core.answer]) if streamed else core.answer

    gateway, response = await said_again(exchange, core.operation, answer)

    assert gateway.operations.requests == [(core.operation, core.request)]
    assert response.status == exchange.status
    if streamed:
        events = response.body.decode().strip().split("\n\n")
        assert [msgspec.json.decode(event.removeprefix("data: ")) for event in events] == exchange.events
    else:
        assert response.json == exchange.answer


@pytest.mark.parametrize("name", ERRORS)
async def test_an_error_has_the_code_the_status_and_the_text_of_0_3(name: str) -> None:
    [by_rpc] = [each for each in JSON_RPC if each.name == f"error, {name}"]
    [by_rest] = [each for each in HTTP_JSON if each.name == f"error, {name}"]
    error = ERRORS[name]("The reason")

    _, rpc = await said_again(by_rpc, "cancel_task", error)
    _, rest = await said_again(by_rest, "cancel_task", error)

    code = by_rpc.answer["error"]["code"]
    assert (rpc.status, rpc.json["error"]["code"]) == (by_rpc.status, code)
    assert (rest.status, rest.json["code"], rest.json["message"]) == (by_rest.status, code, "The reason")
    assert by_rest.answer.keys() <= rest.json.keys()


def test_every_exchange_is_said_again() -> None:
    names = {*CORE, *(f"error, {name}" for name in ERRORS)}

    assert {each.name for each in JSON_RPC} == {each.name for each in HTTP_JSON} == names
