# /// script
# requires-python = ">=3.11"
# dependencies = ["a2a-sdk[http-server]==0.3.26"]
# ///
"""Writes what client and server of a2a-sdk 0.3.26 say to each other into tests/fixtures/a2a-0.3, a file for each binding.

    uv run tests/interop/peers/a2a-sdk-0.3/record.py

An exchange is a request of the client and the server's answer for a value of its handler. Ids of JSON-RPC are "1".
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
from a2a import types
from a2a.client.transports.base import ClientTransport
from a2a.client.transports.jsonrpc import JsonRpcTransport
from a2a.client.transports.rest import RestTransport
from a2a.server.apps.jsonrpc.starlette_app import A2AStarletteApplication
from a2a.server.apps.rest.fastapi_app import A2ARESTFastAPIApplication
from a2a.server.request_handlers.request_handler import RequestHandler
from a2a.types import (
    Artifact,
    DataPart,
    FilePart,
    FileWithBytes,
    FileWithUri,
    GetTaskPushNotificationConfigParams,
    Message,
    MessageSendConfiguration,
    MessageSendParams,
    Part,
    PushNotificationAuthenticationInfo,
    PushNotificationConfig,
    Role,
    Task,
    TaskArtifactUpdateEvent,
    TaskIdParams,
    TaskPushNotificationConfig,
    TaskQueryParams,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
    TextPart,
)
from a2a.utils.errors import ServerError

FIXTURES = Path(__file__).parents[3] / "fixtures" / "a2a-0.3"
BASE = "http://agent.example"

# --- values

PARTS = [
    Part(root=TextPart(text="Grüße", metadata={"snake_case": {"a": [1, True]}})),
    Part(root=FilePart(file=FileWithBytes(bytes="AP/+aGVsbG8=", mime_type="image/png", name="p.png"))),
    Part(root=FilePart(file=FileWithUri(uri="https://f.example/x", mime_type="text/csv"))),
    Part(root=DataPart(data={"context_id": [1, "ü", 1.5, True, {}, None]})),
]
TEXT = [Part(root=TextPart(text="Hi"))]
REPLY = Message(
    message_id="reply", role=Role.agent, parts=PARTS, context_id="c", task_id="t", extensions=["https://x.example"]
)
ARTIFACT = Artifact(artifact_id="a", name="Answer", description="All of it", parts=PARTS, metadata={"k": "v"})
WHOLE = Task(
    id="t",
    context_id="c",
    status=TaskStatus(state=TaskState.completed, message=REPLY),
    artifacts=[ARTIFACT],
    history=[Message(message_id="m", role=Role.user, parts=TEXT)],
    metadata={"k": "v"},
)
EVENTS = [
    Task(id="t", context_id="c", status=TaskStatus(state=TaskState.submitted)),
    TaskStatusUpdateEvent(task_id="t", context_id="c", status=TaskStatus(state=TaskState.working), final=False),
    TaskArtifactUpdateEvent(task_id="t", context_id="c", artifact=Artifact(artifact_id="a", parts=TEXT)),
    TaskArtifactUpdateEvent(
        task_id="t", context_id="c", artifact=ARTIFACT, append=True, last_chunk=True, metadata={"k": 1}
    ),
    TaskStatusUpdateEvent(
        task_id="t",
        context_id="c",
        status=TaskStatus(state=TaskState.input_required, message=REPLY),
        final=True,
        metadata={"k": "v"},
    ),
]
PUSH = TaskPushNotificationConfig(
    task_id="t",
    push_notification_config=PushNotificationConfig(
        id="p",
        url="https://h.example/hook",
        token="secret",
        authentication=PushNotificationAuthenticationInfo(schemes=["Bearer", "Basic"], credentials="also secret"),
    ),
)
SHOWN = TaskPushNotificationConfig(
    task_id="t",
    push_notification_config=PushNotificationConfig(
        id="p", url="https://h.example/hook", authentication=PushNotificationAuthenticationInfo(schemes=["Bearer"])
    ),
)
WHOLE_REQUEST = MessageSendParams(
    message=Message(
        message_id="m",
        role=Role.user,
        parts=PARTS,
        context_id="c",
        task_id="t",
        metadata={"a_b": 1},
        extensions=["https://x.example"],
    ),
    configuration=MessageSendConfiguration(
        accepted_output_modes=["text/plain", "image/png"],
        blocking=True,
        history_length=3,
        push_notification_config=PUSH.push_notification_config,
    ),
    metadata={"k": "v"},
)
BARE_REQUEST = MessageSendParams(message=Message(message_id="m", role=Role.user, parts=TEXT))
ERRORS = [
    types.TaskNotFoundError,
    types.TaskNotCancelableError,
    types.PushNotificationNotSupportedError,
    types.UnsupportedOperationError,
    types.ContentTypeNotSupportedError,
    types.InvalidAgentResponseError,
    types.AuthenticatedExtendedCardNotConfiguredError,
    types.InvalidParamsError,
    types.InvalidRequestError,
    types.InternalError,
]
CARD = types.AgentCard(
    name="Agent",
    description="Says what it is told to.",
    url=BASE,
    version="1",
    capabilities=types.AgentCapabilities(streaming=True, push_notifications=True),
    default_input_modes=["text/plain"],
    default_output_modes=["text/plain"],
    skills=[],
    supports_authenticated_extended_card=True,
)

# --- exchanges

Call = Callable[[ClientTransport], Any]


@dataclass
class Exchange:
    name: str
    call: Call
    answer: Any


EXCHANGES = [
    Exchange("send", lambda client: client.send_message(WHOLE_REQUEST), WHOLE),
    Exchange("send, bare", lambda client: client.send_message(BARE_REQUEST), REPLY),
    Exchange("stream", lambda client: client.send_message_streaming(WHOLE_REQUEST), EVENTS),
    Exchange("stream of a message", lambda client: client.send_message_streaming(BARE_REQUEST), [REPLY]),
    *(
        Exchange(
            f"get, {state.value}",
            lambda client: client.get_task(TaskQueryParams(id="t", history_length=3)),
            Task(id="t", context_id="c", status=TaskStatus(state=state)),
        )
        for state in TaskState
        if state is not TaskState.unknown
    ),
    Exchange("get, without a limit", lambda client: client.get_task(TaskQueryParams(id="t", history_length=0)), WHOLE),
    Exchange("get, bare", lambda client: client.get_task(TaskQueryParams(id="t")), WHOLE),
    Exchange("cancel", lambda client: client.cancel_task(TaskIdParams(id="t")), WHOLE),
    Exchange("resubscribe", lambda client: client.resubscribe(TaskIdParams(id="t")), EVENTS[1:]),
    Exchange("set push", lambda client: client.set_task_callback(PUSH), SHOWN),
    Exchange(
        "get push",
        lambda client: client.get_task_callback(
            GetTaskPushNotificationConfigParams(id="t", push_notification_config_id="p")
        ),
        SHOWN,
    ),
    *(
        Exchange(f"error, {kind.__name__}", lambda client: client.cancel_task(TaskIdParams(id="t")), kind())
        for kind in ERRORS
    ),
]


class Handler(RequestHandler):
    """Answers everything with the value of the exchange."""

    answer: Any

    async def _one(self, *_: Any) -> Any:
        if isinstance(self.answer, types.A2ABaseModel) and type(self.answer) in ERRORS:
            raise ServerError(error=self.answer)
        return self.answer

    async def _many(self, *_: Any) -> AsyncIterator[Any]:
        for event in self.answer:
            yield event

    on_get_task = on_cancel_task = on_message_send = _one
    on_set_task_push_notification_config = on_get_task_push_notification_config = _one
    on_list_task_push_notification_config = on_delete_task_push_notification_config = _one
    on_message_send_stream = on_resubscribe_to_task = _many


class Recorder(httpx.AsyncBaseTransport):
    """Passes requests on to the server, and keeps the last one and its answer."""

    def __init__(self, app: Any) -> None:
        self.inner = httpx.ASGITransport(app=app)
        self.last: dict[str, Any] = {}

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        sent = await request.aread()
        response = await self.inner.handle_async_request(request)
        received = await response.aread()
        url = urlsplit(str(request.url))
        self.last = {
            "method": request.method,
            "target": url.path.rstrip("/") + (f"?{url.query}" if url.query else ""),
            "request": json.loads(sent) if sent else None,
            "status": response.status_code,
            **self._answer(response.headers["content-type"], received.decode()),
        }
        return httpx.Response(response.status_code, headers=response.headers, content=received)

    def _answer(self, kind: str, text: str) -> dict[str, Any]:
        if not kind.startswith("text/event-stream"):
            return {"answer": json.loads(text)}
        events = text.replace("\r\n", "\n").split("\n\n")
        # The server writes an event in several lines of data.
        return {
            "events": [
                json.loads("\n".join(line.removeprefix("data: ") for line in event.split("\n")))
                for event in events
                if event
            ]
        }


def without_ids(recorded: Any) -> Any:
    """JSON-RPC with the id "1"."""
    if isinstance(recorded, list):
        return [without_ids(each) for each in recorded]
    return {**recorded, "id": "1"} if isinstance(recorded, dict) and "jsonrpc" in recorded else recorded


async def record(
    app: Any, handler: Handler, connect: Callable[[httpx.AsyncClient], ClientTransport]
) -> list[dict[str, Any]]:
    recorder = Recorder(app)
    found = []
    async with httpx.AsyncClient(transport=recorder) as http:
        client = connect(http)
        for exchange in EXCHANGES:
            handler.answer = exchange.answer
            try:
                called = exchange.call(client)
                if hasattr(called, "__aiter__"):
                    _ = [event async for event in called]
                else:
                    await called
            except Exception as error:
                if not exchange.name.startswith("error"):
                    raise RuntimeError(exchange.name) from error
            found.append({"name": exchange.name, **{key: without_ids(value) for key, value in recorder.last.items()}})
    return found


async def main() -> None:
    handler = Handler()
    rest = A2ARESTFastAPIApplication(CARD, handler).build()
    rpc = A2AStarletteApplication(CARD, handler).build()
    recordings = {
        "http+json": await record(rest, handler, lambda http: RestTransport(http, CARD)),
        "json-rpc": await record(rpc, handler, lambda http: JsonRpcTransport(http, CARD)),
    }
    for name, exchanges in recordings.items():
        recording = {"recorded from": f"a2a-sdk {version('a2a-sdk')}", "exchanges": exchanges}
        text = json.dumps(recording, ensure_ascii=False, indent=1)
        (FIXTURES / f"{name}.json").write_text(text + "\n", encoding="utf-8")


asyncio.run(main())
