"""The official client, a2a-sdk, in front of a gateway with one agent, and how its answers are read."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

import grpc
import httpx
import pytest
from a2a.client import A2ACardResolver, Client, ClientCallContext, ClientConfig, ClientFactory
from a2a.types import (
    AgentCard,
    Message,
    Part,
    Role,
    SendMessageRequest,
    StreamResponse,
    SubscribeToTaskRequest,
    Task,
    TaskState,
)

from gateway.testing.serving import serve
from tests.emulators.chat import ChatServer
from tests.emulators.responses_server import ResponsesServer
from tests.emulators.server import Emulator
from tests.interop.echo_agent import script
from tests.receiver import LOOPBACK
from tests.running import local_gateway

OVER_HTTP = ("JSONRPC", "HTTP+JSON")
_BINDINGS = (*OVER_HTTP, "GRPC")
_AGENTS: dict[str, tuple[type[Emulator] | None, str]] = {
    "function": (None, "{type: python, ref: 'tests.interop.echo_agent:reply'}"),
    "chained": (ResponsesServer, "{type: openai-responses, model: m, base_url: 'URL/v1'}"),
    "unstored": (ResponsesServer, "{type: openai-responses, model: m, base_url: 'URL/v1', history: {owner: gateway}}"),
    "chat": (ChatServer, "{type: openai-chat, model: m, base_url: 'URL/v1'}"),
}
UNFINISHED = (TaskState.TASK_STATE_SUBMITTED, TaskState.TASK_STATE_WORKING)
TOOL_CALLS = "https://a2a-gateway.dev/extensions/tool-calls/v1"


@dataclass(frozen=True, slots=True)
class Sdk:
    """The SDK in front of one agent. `streaming` streams, `blocking` and `polling` do not. `grpc` is the port for gRPC, where
    the binding is that."""

    binding: str
    base: str
    card: AgentCard
    http: httpx.AsyncClient
    streaming: Client
    blocking: Client
    polling: Client
    grpc: int | None = None

    async def send(self, text: str, **where: Any) -> Task:
        (only,) = [response async for response in self.blocking.send_message(request_of(text, **where))]
        assert only.HasField("task")
        return only.task

    async def stream(self, text: str, **where: Any) -> list[StreamResponse]:
        return [response async for response in self.streaming.send_message(request_of(text, **where))]

    @asynccontextmanager
    async def held(self, text: str) -> AsyncIterator[tuple[Task, AsyncIterator[StreamResponse]]]:
        """The task of a message that the agent holds in mid-answer, once the first half was seen, and the rest."""
        stream = cast("AsyncGenerator[StreamResponse]", self.streaming.send_message(request_of(text)))
        async with aclosing(stream), asyncio.timeout(20):
            first = await anext(stream)
            async for response in stream:
                if response.HasField("artifact_update"):
                    break
            yield first.task, stream

    def subscribe(self, task: Task, after: int | None = None) -> AsyncIterator[StreamResponse]:
        """The SDK knows nothing of event numbers, but it sends the headers that it is given."""
        context = None if after is None else ClientCallContext(service_parameters={"Last-Event-ID": str(after)})
        return self.streaming.subscribe(SubscribeToTaskRequest(id=task.id), context=context)


@pytest.fixture
async def sdk(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Sdk]:
    """The SDK on the binding, in front of the agent, that the test's parameter names."""
    binding, agent = request.param
    emulator, settings = _AGENTS[agent]
    async with AsyncExitStack() as stack:
        if emulator is not None:
            settings = settings.replace("URL", await stack.enter_async_context(serve(emulator(script).app)))
        # Without keep-alive comments the client's own time limit ends a stream that nobody ends.
        quiet = f"limits: {{stream_keepalive: 1h}}\npush: {{{LOOPBACK}}}"
        local = local_gateway(f"{agent}: {settings}", tmp_path, settings=quiet, grpc=binding == "GRPC")
        gateway = await stack.enter_async_context(local)
        base = f"{gateway.url}/a2a/{agent}"
        http = await stack.enter_async_context(httpx.AsyncClient(timeout=30, trust_env=False))

        async def client(*, streaming: bool = True, polling: bool = False) -> Client:
            config = ClientConfig(
                streaming,
                polling,
                http,
                grpc_channel_factory=grpc.aio.insecure_channel,
                supported_protocol_bindings=[binding],
            )
            created = await ClientFactory(config).create_from_url(base)
            stack.push_async_callback(created.close)
            return created

        card = await A2ACardResolver(http, base).get_agent_card()
        yield Sdk(
            binding,
            base,
            card,
            http,
            streaming=await client(),
            blocking=await client(streaming=False),
            polling=await client(streaming=False, polling=True),
            grpc=gateway.grpc,
        )


def everywhere(agents: Sequence[str] = tuple(_AGENTS), bindings: Sequence[str] = _BINDINGS) -> pytest.MarkDecorator:
    cells = list(product(bindings, agents))
    return pytest.mark.parametrize("sdk", cells, indirect=True, ids=[" ".join(cell) for cell in cells])


def request_of(text: str, **where: Any) -> SendMessageRequest:
    configuration = where.pop("configuration", None)
    message = Message(role=Role.ROLE_USER, message_id=str(uuid4()), parts=[Part(text=text)], **where)
    return SendMessageRequest(message=message, configuration=configuration)


def held_text() -> str:
    return f"hold {uuid4()}"


def text_of(task: Task) -> str:
    return "".join(part.text for artifact in task.artifacts for part in artifact.parts)


def streamed_text(responses: Sequence[StreamResponse]) -> str:
    return "".join(
        part.text
        for response in responses
        if response.HasField("artifact_update")
        for part in response.artifact_update.artifact.parts
    )


def kinds(responses: Sequence[StreamResponse]) -> list[str]:
    """What each response is; of a status update its state, of neighbours that are alike one."""
    kinds: list[str] = []
    for response in responses:
        kind = response.WhichOneof("payload")
        if kind == "status_update":
            kind = TaskState.Name(response.status_update.status.state)
        assert kind is not None
        if kinds[-1:] != [kind]:
            kinds.append(kind)
    return kinds
