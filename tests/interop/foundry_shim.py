"""A Foundry project in front of a Responses server: its addresses, and the agent in the place of a model. The front of a
project itself cannot be run."""

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import httpx2
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

PROJECT = "/api/projects/p"
AGENT = "echo"
_PROJECT_WIRE = f"{PROJECT}/openai/v1"
_AGENT_WIRE = f"{PROJECT}/agents/{AGENT}/endpoint/protocols/openai"
_KEPT = {"content-type", "x-agent-session-id"}


@dataclass
class FoundryShim:
    """`url`: the Responses server behind it. `model`: its model, in place of the agent; None for the server of an agent, which
    takes the reference. `bodies` are those of the requests for an answer."""

    url: str
    model: str | None = None
    bodies: list[dict[str, Any]] = field(default_factory=list)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = await self._answer(Request(scope, receive))
        await answer(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        path = request.url.path
        wire = next((wire for wire in (_PROJECT_WIRE, _AGENT_WIRE) if path.startswith(f"{wire}/")), None)
        if wire is None:
            return JSONResponse({"error": {"code": "not_found", "message": f"{path} is not here"}}, 404)
        client = httpx2.AsyncClient(timeout=30)
        sent = client.build_request(
            request.method,
            f"{self.url}{path.removeprefix(wire)}",
            params=dict(request.query_params),
            content=self._body(await request.body()),
            headers={"content-type": "application/json"},
        )
        received = await client.send(sent, stream=True)
        headers = {name: value for name, value in received.headers.items() if name in _KEPT}
        return StreamingResponse(_pieces(client, received), received.status_code, headers)

    def _body(self, content: bytes) -> bytes:
        body = json.loads(content) if content else {}
        if "input" not in body:
            return content
        self.bodies.append(dict(body))
        if self.model is not None:
            body.pop("agent_reference", None)
            body["model"] = self.model
        return json.dumps(body).encode()


async def _pieces(client: httpx2.AsyncClient, received: httpx2.Response) -> AsyncIterator[bytes]:
    try:
        async for piece in received.aiter_raw():
            yield piece
    finally:
        await received.aclose()
        await client.aclose()
