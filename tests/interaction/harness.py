"""One application in this process, called over either binding with the same operation and params."""

import math
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol
from urllib.parse import quote, urlencode

import msgspec
from starlette.applications import Starlette

from gateway.config.agents import CardConfig, ExtensionConfig
from gateway.config.gateway import LimitsConfig
from gateway.core.agents import Agent, Agents
from gateway.foundation.clock import Clock
from gateway.foundation.shutdown import Drain
from gateway.http.auth import NoAuthentication
from gateway.http.cards import build_card
from gateway.http.pipeline import Pipeline
from gateway.http.routes import routes
from gateway.operations.quotas import Quotas
from gateway.ports.adapter import AdapterEvent, ServiceRequest
from gateway.ports.conversation import HandleKind, Ownership, StorageOwner
from tests.interaction import asgi
from tests.interaction.scripted import ScriptedOperations

URL = "http://localhost:8080"
CORRELATION_ID = "c0ffee"
NEEDED = "https://example.com/extensions/needed/v1"
MESSAGE = {"messageId": "message-1", "role": "ROLE_USER", "parts": [{"text": "Hello"}]}
SEND = {"message": MESSAGE}


class Unused:
    """An adapter that no test of the bindings reaches."""

    @property
    def ownership(self) -> Ownership:
        return Ownership(StorageOwner.GATEWAY, HandleKind.NONE)

    async def call(self, request: ServiceRequest) -> AsyncGenerator[AdapterEvent, None]:
        raise AssertionError("the bindings never call a backend")
        yield

    async def aclose(self) -> None:
        pass


def agent(name: str, tenant: str | None = None, extensions: tuple[ExtensionConfig, ...] = ()) -> Agent:
    card = CardConfig(name=name.title(), description="Says it again.", extensions=extensions, tenant=tenant)
    return Agent(name, build_card(name, card, URL), Unused(), tenant)


@dataclass(frozen=True)
class Refusal:
    """An error of the specification's table 5.4, with its text and details."""

    code: int
    http: int
    grpc: str
    reason: str
    message: str
    violations: tuple[tuple[str, str], ...] = ()
    metadata: dict[str, str] = field(default_factory=dict)
    rpc_http: int = 200

    def details(self) -> list[dict[str, Any]]:
        info: dict[str, Any] = {
            "@type": "type.googleapis.com/google.rpc.ErrorInfo",
            "reason": self.reason,
            "domain": "a2a-protocol.org",
        }
        if self.metadata:
            info["metadata"] = self.metadata
        if not self.violations:
            return [info]
        violations = [{"field": name, "description": text} for name, text in self.violations]
        return [info, {"@type": "type.googleapis.com/google.rpc.BadRequest", "fieldViolations": violations}]

    def rpc(self) -> dict[str, Any]:
        return {"code": self.code, "message": self.message, "data": self.details()}

    def rest(self) -> dict[str, Any]:
        return {"error": {"code": self.http, "status": self.grpc, "message": self.message, "details": self.details()}}


def invalid_params(name: str, description: str) -> Refusal:
    message = f"Invalid parameters: {name}: {description}"
    return Refusal(-32602, 400, "INVALID_ARGUMENT", "INVALID_PARAMS", message, ((name, description),))


def parse_error(what: str) -> Refusal:
    return Refusal(-32700, 400, "INVALID_ARGUMENT", "PARSE_ERROR", f"Invalid JSON payload: {what}")


@dataclass(frozen=True)
class Exchange:
    method: str
    target: str
    body: bytes = b""


class Binding(Protocol):
    """The form of an operation on the wire of one binding."""

    name: str
    versions: tuple[str, ...]
    """Of A2A, that it speaks at the addresses of 1.0."""

    elsewhere: str
    """Where it speaks others, at the end of an error's text."""

    def ask(self, operation: str, params: dict[str, Any]) -> Exchange: ...

    def raw(self, body: bytes) -> Exchange:
        """An arbitrary body in place of a SendMessage."""
        ...

    def result(self, value: Any) -> Any: ...

    def refusal(self, refusal: Refusal, *, identified: bool = True) -> tuple[int, Any]:
        """Status and body. `identified`: the request got so far that its id was known."""
        ...

    def event(self, value: Any) -> Any:
        """The content of one event of a stream."""
        ...


class JsonRpc:
    name = "jsonrpc"
    versions: tuple[str, ...] = ("1.0", "0.3")
    elsewhere = ""

    def ask(self, operation: str, params: dict[str, Any]) -> Exchange:
        body = {"jsonrpc": "2.0", "id": "request-1", "method": operation, "params": params}
        return Exchange("POST", "/a2a/echo", msgspec.json.encode(body))

    def raw(self, body: bytes) -> Exchange:
        return Exchange("POST", "/a2a/echo", body)

    def result(self, value: Any) -> Any:
        return {"jsonrpc": "2.0", "id": "request-1", "result": value}

    def refusal(self, refusal: Refusal, *, identified: bool = True) -> tuple[int, Any]:
        identity = "request-1" if identified else None
        return refusal.rpc_http, {"jsonrpc": "2.0", "id": identity, "error": refusal.rpc()}

    def event(self, value: Any) -> Any:
        return self.result(value)


class Rest:
    name = "rest"
    versions: tuple[str, ...] = ("1.0",)
    elsewhere = "; HTTP+JSON of A2A 0.3 is below /v1 of the agent's address"
    addresses: ClassVar = {
        "SendMessage": ("POST", "/message:send"),
        "SendStreamingMessage": ("POST", "/message:stream"),
        "GetTask": ("GET", "/tasks/{id}"),
        "ListTasks": ("GET", "/tasks"),
        "CancelTask": ("POST", "/tasks/{id}:cancel"),
        "SubscribeToTask": ("POST", "/tasks/{id}:subscribe"),
        "CreateTaskPushNotificationConfig": ("POST", "/tasks/{taskId}/pushNotificationConfigs"),
        "GetTaskPushNotificationConfig": ("GET", "/tasks/{taskId}/pushNotificationConfigs/{id}"),
        "ListTaskPushNotificationConfigs": ("GET", "/tasks/{taskId}/pushNotificationConfigs"),
        "DeleteTaskPushNotificationConfig": ("DELETE", "/tasks/{taskId}/pushNotificationConfigs/{id}"),
        "GetExtendedAgentCard": ("GET", "/extendedAgentCard"),
    }

    def ask(self, operation: str, params: dict[str, Any]) -> Exchange:
        method, path = self.addresses[operation]
        rest = dict(params)
        for name in ("taskId", "id"):
            if f"{{{name}}}" in path:
                path = path.replace(f"{{{name}}}", quote(rest.pop(name), safe=""))
        if method == "POST":
            return Exchange(method, f"/a2a/echo{path}", msgspec.json.encode(rest))
        return Exchange(method, f"/a2a/echo{path}" + (f"?{urlencode(rest)}" if rest else ""))

    def raw(self, body: bytes) -> Exchange:
        return Exchange("POST", "/a2a/echo/message:send", body)

    def result(self, value: Any) -> Any:
        return {} if value is None else value

    def refusal(self, refusal: Refusal, *, identified: bool = True) -> tuple[int, Any]:
        return refusal.http, refusal.rest()

    def event(self, value: Any) -> Any:
        return value


class Gateway:
    """The application with its scripted core, and one binding to speak to it."""

    def __init__(
        self, binding: Binding, *agents: Agent, limits: LimitsConfig | None = None, draft_1_1: bool = False
    ) -> None:
        self.binding = binding
        self.operations = ScriptedOperations()
        self.drain = Drain()
        clock = Clock(now=lambda: 1_795_168_800_000, correlation_id=lambda: CORRELATION_ID)
        self.pipeline = Pipeline(
            self.operations,
            Agents(agents or (agent("echo"),)),
            NoAuthentication(),
            limits or LimitsConfig(),
            clock,
            self.drain,
            Quotas(clock),
            draft_1_1=draft_1_1,
        )
        self.app = Starlette(routes=routes(self.pipeline, clock, public_url=URL))

    async def ask(self, operation: str, params: dict[str, Any], **headers: str) -> asgi.Answer:
        return await self.exchange(self.binding.ask(operation, params), **headers)

    async def exchange(self, exchange: Exchange, **headers: str) -> asgi.Answer:
        return await asgi.request(self.app, exchange.method, exchange.target, self.headers(headers), exchange.body)

    async def request(self, method: str, target: str, body: bytes = b"", **headers: str) -> asgi.Answer:
        return await self.exchange(Exchange(method, target, body), **headers)

    def stream(
        self, operation: str, params: dict[str, Any], takes: float = math.inf
    ) -> AbstractAsyncContextManager[asgi.Live]:
        exchange = self.binding.ask(operation, params)
        return asgi.stream(self.app, exchange.method, exchange.target, self.headers({}), exchange.body, takes)

    @staticmethod
    def headers(more: dict[str, str]) -> list[tuple[str, str]]:
        """`A2A-Version: 1.0` unless said otherwise; underscores stand for hyphens, an empty value for no header."""
        headers = {"a2a-version": "1.0"} | {name.replace("_", "-").lower(): value for name, value in more.items()}
        return [("host", "localhost:8080"), *((name, value) for name, value in headers.items() if value)]
