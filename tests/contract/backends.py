"""The rows of the contract matrix: each way in which a type of agents keeps a conversation, in front of its emulator."""

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from tests.emulators.a2a_agent import A2AAgent
from tests.emulators.anthropic import MessagesServer
from tests.emulators.assistants import ASSISTANT, AssistantsServer
from tests.emulators.chat import ChatServer
from tests.emulators.copilot_engine import CONVERSATIONS, CopilotEngine
from tests.emulators.direct_line import BASE
from tests.emulators.direct_line_bots import ScriptedLine
from tests.emulators.foundry import AGENT, PROJECT, FoundryServer
from tests.emulators.langgraph_server import LangGraphServer
from tests.emulators.responses_server import ResponsesServer

KEY = "contract-key-0123456789"


def _openai(url: str) -> dict[str, Any]:
    return {"model": "m", "api_key": KEY, "base_url": f"{url}/v1"}


def _langgraph(url: str) -> dict[str, Any]:
    return {"url": url, "api_key": KEY}


def _foundry(url: str) -> dict[str, Any]:
    return {"endpoint": f"{url}{PROJECT}", "agent": AGENT, "api_key": KEY}


def _assistants(url: str) -> dict[str, Any]:
    return {"base_url": f"{url}/v1", "assistant_id": ASSISTANT, "api_key": KEY}


def _foundry_classic(url: str) -> dict[str, Any]:
    return {"endpoint": f"{url}/v1", "agent_id": ASSISTANT, "api_key": KEY}


def _a2a(url: str) -> dict[str, Any]:
    return {"url": url, "api_key": KEY, "poll": "100ms"}


def _direct_line(url: str) -> dict[str, Any]:
    return {"direct_line": {"secret": KEY, "url": f"{url}{BASE}", "quiet": "200ms", "typing": "400ms"}}


def _engine(url: str) -> dict[str, Any]:
    return {"direct_to_engine": {"url": f"{url}{CONVERSATIONS.format(schema='agent')}", "token": KEY}}


class Service(Protocol):
    """An emulator."""

    def serve(self, port: int = 0) -> AbstractAsyncContextManager[str]: ...

    def forget_everything(self) -> None: ...


@dataclass(frozen=True)
class Row:
    """`settings` are those of an agent for the emulator at this address, `more` those that choose the way. `asks` says that the
    service may ask before it runs a tool of its own, `calls` that it calls functions of the gateway,
    `repeats` that a request of unknown outcome is made again where nothing can be spoiled, `doubles` that the service tells
    nothing of a message whose sender died before it heard of a run, so that the message is said twice."""

    type: str
    way: str
    emulator: Callable[..., Service]
    settings: Callable[[str], Mapping[str, Any]]
    more: Mapping[str, Any] = field(default_factory=dict)
    calls: bool = True
    asks: bool = False
    repeats: bool = True
    doubles: bool = False

    @property
    def name(self) -> str:
        return f"{self.type}, {self.way}" if self.way else self.type


ROWS: tuple[Row, ...] = (
    Row("openai-responses", "chain", ResponsesServer, _openai, asks=True),
    Row("openai-responses", "background", ResponsesServer, _openai, {"background": True}, asks=True),
    Row("openai-responses", "conversation", ResponsesServer, _openai, {"conversation": True}, asks=True),
    Row(
        "openai-responses",
        "conversation, background",
        ResponsesServer,
        _openai,
        {"conversation": True, "background": True},
        asks=True,
    ),
    Row("openai-responses", "gateway", ResponsesServer, _openai, {"history": {"owner": "gateway"}}, asks=True),
    Row("openai-chat", "", ChatServer, _openai),
    Row("anthropic", "", MessagesServer, _openai),
    Row("a2a", "1.0 by JSON-RPC", A2AAgent, _a2a, calls=False, asks=True),
    Row("a2a", "1.0 by HTTP+JSON", A2AAgent, _a2a, {"transport": "HTTP+JSON"}, calls=False, asks=True),
    Row("a2a", "1.0 without streams", partial(A2AAgent, streaming=False), _a2a, calls=False, asks=True),
    Row("a2a", "0.3", partial(A2AAgent, version="0.3"), _a2a, calls=False, asks=True, doubles=True),
    Row("foundry", "chain", FoundryServer, _foundry, asks=True, repeats=False),
    Row("foundry", "conversation", FoundryServer, _foundry, {"conversation": True}, asks=True),
    Row("foundry-classic", "", AssistantsServer, _foundry_classic, asks=True),
    Row("assistants", "", AssistantsServer, _assistants),
    Row("langgraph", "", LangGraphServer, _langgraph, calls=False, asks=True),
    Row("copilot-studio", "direct line", ScriptedLine, _direct_line, calls=False),
    Row("copilot-studio", "direct to engine", CopilotEngine, _engine, calls=False, doubles=True),
)
