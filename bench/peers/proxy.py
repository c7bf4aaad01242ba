"""What both proxies share: a2a-sdk's server, with its tasks in memory, in front of an executor."""
from contextlib import asynccontextmanager

from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes
from a2a.server.tasks import InMemoryTaskStore
from a2a.types import AgentCapabilities, AgentCard, AgentInterface, AgentSkill
from starlette.applications import Starlette

CARD = AgentCard(
    name="bench",
    description="bench",
    version="1",
    capabilities=AgentCapabilities(streaming=True),
    default_input_modes=["text/plain"],
    default_output_modes=["text/plain"],
    skills=[AgentSkill(id="s", name="s", description="s", tags=["s"])],
    supported_interfaces=[AgentInterface(url="http://127.0.0.1/", protocol_binding="JSONRPC", protocol_version="1.0")],
)


def application(executor):
    """`executor.open()` is awaited once before the first request."""

    @asynccontextmanager
    async def lifespan(app):
        await executor.open()
        yield

    handler = DefaultRequestHandler(agent_executor=executor, task_store=InMemoryTaskStore(), agent_card=CARD)
    return Starlette(lifespan=lifespan, routes=[*create_agent_card_routes(CARD), *create_jsonrpc_routes(handler, "/")])
