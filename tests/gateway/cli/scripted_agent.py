"""A small A2A 1.0 server with one scripted answer for each request; it records the requests."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from gateway.testing.serving import serve
from tests.emulators.scripts import Cut
from tests.emulators.server import EventStream, Frame

Json = Any

WORKING, COMPLETED, FAILED = "TASK_STATE_WORKING", "TASK_STATE_COMPLETED", "TASK_STATE_FAILED"
INPUT_REQUIRED = "TASK_STATE_INPUT_REQUIRED"


@dataclass(frozen=True, slots=True)
class Result:
    """The result of an operation."""

    value: Json


@dataclass(frozen=True, slots=True)
class Plain:
    """A whole HTTP answer."""

    body: Json
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Events:
    """A stream of (id or None, StreamResponse); `cut` drops the connection at its end."""

    events: Sequence[tuple[int | None, Json]]
    cut: bool = False


@dataclass(frozen=True, slots=True)
class Asked:
    """One request. `operation` is the method of JSON-RPC, or HTTP method and path; `body` its params."""

    operation: str
    body: Json
    headers: dict[str, str]


class ScriptedAgent:
    def __init__(self, *answers: Result | Plain | Events, card: Json = None, binding: str = "JSONRPC") -> None:
        """`card` overrides keys of the card; False means no card."""
        self.asked: list[Asked] = []
        self._news = asyncio.Event()
        self._answers = list(answers)
        self._card = card
        self._rpc = binding == "JSONRPC"
        self._binding = binding
        self.url = ""
        self.app = Starlette(
            routes=[
                Route("/.well-known/agent-card.json", self._serve_card),
                Route("/{path:path}", self._answer, methods=["GET", "POST"]),
            ]
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator["ScriptedAgent"]:
        async with serve(self.app) as url:
            self.url = url
            yield self

    @property
    def operations(self) -> list[str]:
        return [asked.operation for asked in self.asked]

    async def until_asked(self, operation: str) -> None:
        while operation not in self.operations:
            self._news.clear()
            await self._news.wait()

    def card(self) -> Json:
        interface = {"url": f"{self.url}/rpc", "protocolBinding": self._binding, "protocolVersion": "1.0"}
        base = {
            "name": "Scripted",
            "description": "Gives scripted answers.",
            "version": "1.2.3",
            "supportedInterfaces": [interface],
            "capabilities": {"streaming": True},
            "defaultInputModes": ["text/plain"],
            "defaultOutputModes": ["text/plain"],
            "skills": [{"id": "say", "name": "Say", "description": "Says it", "tags": ["say"]}],
        }
        return {**base, **(self._card or {})}

    async def _serve_card(self, _: Request) -> Response:
        return JSONResponse({"detail": "Not Found"}, 404) if self._card is False else JSONResponse(self.card())

    async def _answer(self, request: Request) -> Response:
        body = json.loads(await request.body() or b"null")
        if self._rpc and request.method == "POST":
            self.asked.append(Asked(body["method"], body["params"], dict(request.headers)))
        elif request.url.path.endswith(".json") or request.url.path.endswith("/a2a"):
            return JSONResponse({"detail": "Not Found"}, 404)
        else:
            self.asked.append(Asked(f"{request.method} {request.url.path}", body, dict(request.headers)))
        self._news.set()
        match self._answers.pop(0):
            case Result(value):
                return JSONResponse(self._enveloped(value))
            case Plain(str() as text, status, headers):
                return Response(text, status, headers)
            case Plain(value, status, headers):
                return JSONResponse(value, status, headers)
            case Events(events, cut):
                return EventStream(self._frames(events, cut=cut))

    def _enveloped(self, value: Json) -> Json:
        return {"jsonrpc": "2.0", "id": 1, "result": value} if self._rpc else value

    async def _frames(self, events: Sequence[tuple[int | None, Json]], *, cut: bool) -> AsyncGenerator[Frame]:
        for number, event in events:
            head = "" if number is None else f"id: {number}\n"
            yield f"{head}data: {json.dumps(self._enveloped(event))}\n\n".encode()
        if cut:
            yield b"id: 999\ndata: {half an event"
            yield Cut()


# --- what agents say --------------------------------------------------------------------------------------------------


def task(state: str = WORKING, *texts: str, said: str | None = None) -> Json:
    """A task `t-1` of context `c-1` whose artifact `a-1` holds the texts."""
    artifacts = [{"artifactId": "a-1", "parts": [{"text": text} for text in texts]}] if texts else []
    return {"id": "t-1", "contextId": "c-1", "status": _status(state, said), "artifacts": artifacts}


def status(state: str, said: str | None = None, *parts: Json) -> Json:
    return {"statusUpdate": {"taskId": "t-1", "contextId": "c-1", "status": _status(state, said, *parts)}}


def _status(state: str, said: str | None, *parts: Json) -> Json:
    content = [*([{"text": said}] if said else []), *parts]
    return {"state": state, **({"message": said_by_agent(*content)} if content else {})}


def said_by_agent(*parts: Json) -> Json:
    """A message of the agent; its id is made from its parts."""
    return {"messageId": json.dumps(parts), "role": "ROLE_AGENT", "parts": list(parts)}


def says(text: str, *, append: bool = True, artifact: str = "a-1") -> Json:
    return shows({"text": text}, append=append, artifact=artifact)


def shows(*parts: Json, append: bool = True, artifact: str = "a-1") -> Json:
    body = {"artifactId": artifact, "parts": list(parts)}
    return {"artifactUpdate": {"taskId": "t-1", "contextId": "c-1", "artifact": body, "append": append}}


def rpc_error(code: int, message: str, reason: str = "X") -> Json:
    return {"jsonrpc": "2.0", "id": 1, "error": {"code": code, "message": message, "data": [{"reason": reason}]}}
