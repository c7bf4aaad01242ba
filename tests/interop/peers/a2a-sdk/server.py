"""An agent of a2a-sdk 1.3 that remembers what it was told: what it does is said by the first word of a message.

    python server.py PORT GRPC_PORT

It speaks A2A 1.0 by JSON-RPC, HTTP+JSON and gRPC, and 0.3 by JSON-RPC.
"""

import asyncio
import sys
from collections import defaultdict
from contextlib import suppress

import grpc
import uvicorn
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler, GrpcHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes, create_rest_routes
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import (
    AgentCapabilities,
    AgentCard,
    AgentInterface,
    AgentSkill,
    Message,
    Part,
    Role,
    Task,
    TaskState,
    TaskStatus,
    a2a_pb2_grpc,
)
from starlette.applications import Starlette

PORT, GRPC_PORT = int(sys.argv[1]), int(sys.argv[2])
HERE = f"http://127.0.0.1:{PORT}"


class Agent(AgentExecutor):
    def __init__(self) -> None:
        self.told: dict[str, list[str]] = defaultdict(list)
        self.running: dict[str, asyncio.Event] = {}

    async def cancel(self, context: RequestContext, queue: EventQueue) -> None:
        task = context.task_id or ""
        if task in self.running:
            self.running[task].set()
        await TaskUpdater(queue, task, context.context_id or "").cancel()

    async def execute(self, context: RequestContext, queue: EventQueue) -> None:
        text, task, conversation = context.get_user_input(), context.task_id or "", context.context_id or ""
        message = context.message
        assert message is not None
        told = self.told[conversation]
        told.append(text)
        word = text.split()[0] if text else ""
        if word == "msg":
            parts = [Part(text=f"no task for {text}")]
            answer = Message(role=Role.ROLE_AGENT, message_id="r", context_id=conversation, parts=parts)
            await queue.enqueue_event(answer)
            return
        updater = TaskUpdater(queue, task, conversation)
        if not context.current_task:
            status = TaskStatus(state=TaskState.TASK_STATE_SUBMITTED)
            submitted = Task(id=task, context_id=conversation, status=status, history=[message])
            await queue.enqueue_event(submitted)
        await updater.start_work()
        match word:
            case "ask":
                await updater.requires_input(updater.new_agent_message(parts=[Part(text="Which city?")]))
            case "auth":
                await updater.requires_auth(updater.new_agent_message(parts=[Part(text="https://login.example/x")]))
            case "boom":
                await updater.failed(updater.new_agent_message(parts=[Part(text="out of ink")]))
            case "raise":
                raise ValueError("out of ink")
            case "no":
                await updater.reject(updater.new_agent_message(parts=[Part(text="Not that.")]))
            case "last":
                await updater.complete(updater.new_agent_message(parts=[Part(text="only with the status")]))
            case "slow":
                await self._slowly(updater, task, int(text.split()[1]))
            case "file":
                file = message.parts[-1]
                about = f"{file.filename} {file.media_type} {file.raw!r} {file.url}"
                await updater.add_artifact(parts=[Part(text=about)], artifact_id="a")
                made = [Part(raw=b"\x00\x01", filename="made.bin", media_type="application/octet-stream")]
                await updater.add_artifact(parts=made, artifact_id="f", name="made")
                await updater.complete()
            case "note":
                await updater.update_status(
                    TaskState.TASK_STATE_WORKING, updater.new_agent_message(parts=[Part(text="looking")])
                )
                await updater.add_artifact(parts=[Part(text="found")], artifact_id="a")
                await updater.complete()
            case _:
                all_of_it = f"{len(told)}: {' | '.join(told)}"
                await updater.add_artifact(parts=[Part(text=all_of_it)], artifact_id="a")
                await updater.complete()

    async def _slowly(self, updater: TaskUpdater, task: str, pieces: int) -> None:
        cancelled = self.running[task] = asyncio.Event()
        for index in range(pieces):
            await updater.add_artifact(parts=[Part(text=f"t{index} ")], artifact_id="a", append=index > 0)
            with suppress(TimeoutError):
                async with asyncio.timeout(0.1):
                    await cancelled.wait()
            if cancelled.is_set():
                return
        await updater.complete()


async def main() -> None:
    interfaces = [
        AgentInterface(protocol_binding="JSONRPC", protocol_version="1.0", url=f"{HERE}/rpc"),
        AgentInterface(protocol_binding="HTTP+JSON", protocol_version="1.0", url=f"{HERE}/rest"),
        AgentInterface(protocol_binding="GRPC", protocol_version="1.0", url=f"127.0.0.1:{GRPC_PORT}"),
        AgentInterface(protocol_binding="JSONRPC", protocol_version="0.3", url=f"{HERE}/rpc"),
    ]
    card = AgentCard(
        name="sdk",
        description="Remembers.",
        version="1",
        capabilities=AgentCapabilities(streaming="whole" not in sys.argv),
        default_input_modes=["text/plain", "*/*"],
        default_output_modes=["text/plain", "*/*"],
        skills=[AgentSkill(id="remember", name="Remember", description="Says what it was told.", tags=["memory"])],
        supported_interfaces=interfaces,
    )
    handler = DefaultRequestHandler(agent_executor=Agent(), task_store=InMemoryTaskStore(), agent_card=card)
    routes = create_agent_card_routes(agent_card=card) + create_rest_routes(
        request_handler=handler, path_prefix="/rest"
    )
    routes += create_jsonrpc_routes(request_handler=handler, rpc_url="/rpc", enable_v0_3_compat=True)
    calls = grpc.aio.server()
    a2a_pb2_grpc.add_A2AServiceServicer_to_server(GrpcHandler(handler), calls)  # type: ignore[no-untyped-call]
    calls.add_insecure_port(f"127.0.0.1:{GRPC_PORT}")
    await calls.start()
    await uvicorn.Server(
        uvicorn.Config(Starlette(routes=routes), host="127.0.0.1", port=PORT, log_level="warning")
    ).serve()


asyncio.run(main())
