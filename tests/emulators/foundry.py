"""An emulator of a Microsoft Foundry project with one agent: the Responses wire at its two addresses.

Source: azure-ai-projects 2.10.0 (addresses, headers, description of an agent), azure-ai-agentserver-responses 2.3.0 (ids,
sandboxes, errors) and Microsoft Foundry's REST reference, "List responses".
"""

import json
from collections.abc import Mapping
from secrets import token_hex
from typing import Any
from urllib.parse import parse_qs

from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from tests.emulators.responses_dialects import ResponsesDialect
from tests.emulators.responses_server import ResponsesServer
from tests.emulators.scripts import Json, Say, Script
from tests.emulators.server import Refused, Validator

PROJECT = "/api/projects/p"
AGENT = "echo"
_DIALECT = ResponsesDialect(id_prefix="caresp_", id_length=50, lists_responses=True)
_OPENAI = f"{PROJECT}/openai/v1"
_ENDPOINT = f"{PROJECT}/agents/{AGENT}/endpoint/protocols/openai"
_DESCRIPTION = f"{PROJECT}/agents/{AGENT}"
_OF_THE_AGENT = ("model", "instructions", "temperature", "top_p", "tools")


def _error(status: int, code: str, message: str, param: str | None = None) -> Refused:
    return Refused(
        status, {"error": {"code": code, "message": message, "param": param, "type": "invalid_request_error"}}
    )


class FoundryServer(ResponsesServer):
    """`paths` are those of the requests, with their queries. `sessions` are the sandboxes of the responses so far. With
    `hosted`, the agent takes tools and has a sandbox."""

    def __init__(
        self,
        script: Script | None = None,
        *,
        api_key: str | None = None,
        tokens: tuple[str, ...] = (),
        hosted: bool = False,
        validator: Validator | None = None,
    ) -> None:
        super().__init__(script, dialect=_DIALECT, validator=validator)
        self.paths: list[str] = []
        self.sessions: list[str] = []
        self._key = api_key
        self._tokens = tokens
        self._hosted = hosted
        self._responses = self.app
        self.app = self._answer  # type: ignore[assignment]  # any ASGI application will do

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._responses(scope, receive, send)
            return
        try:
            inner = self._inner(scope)
        except Refused as error:
            await error.response(scope, receive, send)
            return
        if inner is None:
            await JSONResponse(self.description)(scope, receive, send)
            return
        await self._responses({**scope, "path": inner, "raw_path": inner.encode()}, receive, send)

    @property
    def description(self) -> Json:
        latest = {"object": "agent.version", "version": "3", "description": "Says it again.", "name": AGENT}
        kind = {"kind": "hosted" if self._hosted else "prompt"}
        return {"object": "agent", "id": AGENT, "name": AGENT, "versions": {"latest": latest | {"definition": kind}}}

    def _inner(self, scope: Scope) -> str | None:
        """The path for the Responses server, None for the description. Raises: Refused."""
        path, query = scope["path"], scope["query_string"].decode()
        self.paths.append(f"{path}?{query}" if query else path)
        self._admit(Request(scope).headers)
        versioned = parse_qs(query).get("api-version") == ["v1"]
        if path.startswith(f"{_OPENAI}/"):
            if versioned:
                raise _error(400, "invalid_request", "api-version is not supported here", "api-version")
            return f"/v1{path.removeprefix(_OPENAI)}"
        if not versioned:
            raise _error(400, "MissingApiVersionParameter", "The api-version query parameter is required.")
        if path == _DESCRIPTION:
            return None
        if self._hosted and path.startswith(f"{_ENDPOINT}/responses"):
            return f"/v1{path.removeprefix(_ENDPOINT)}"
        raise _error(404, "not_found", f"{path} is not here")

    def _admit(self, headers: Mapping[str, str]) -> None:
        """Raises: Refused."""
        if self._key is None and not self._tokens:
            return
        token = headers.get("authorization", "").removeprefix("Bearer ")
        if headers.get("api-key", "") != (self._key or None) and token not in self._tokens:
            message = f"Access denied due to invalid subscription key {headers.get('api-key', token)}."
            raise _error(401, "401", message)

    async def read(self, request: Request, schema: str) -> Json:
        """As a Responses server with the model of the agent. Raises: Refused."""
        body = await super().read(request, schema)
        if schema != "CreateResponse":
            return body
        if not self.paths[-1].startswith(_ENDPOINT):
            self._check_reference(body)
        previous = body.get("previous_response_id")
        if previous and not previous.startswith("caresp_"):
            raise _error(400, "invalid_parameters", "Malformed identifier.", "previous_response_id")
        return {"model": "model-of-the-agent", **body}

    def _check_reference(self, body: Json) -> None:
        match body.get("agent_reference"):
            case {"type": "agent_reference", "name": str(name), **rest} if rest.get("version", "3") == "3":
                if name != AGENT:
                    raise _error(404, "not_found", f"Agent {name} was not found.")
            case reference:
                raise _error(400, "invalid_payload", f"not an agent: {json.dumps(reference)}", "agent_reference")
        for name in () if self._hosted else _OF_THE_AGENT:
            if name in body:
                raise _error(400, "invalid_payload", "Not allowed when agent is specified.", name)

    def more_of(self, body: Json) -> Json:
        more: dict[str, Any] = {"agent_reference": {"type": "agent_reference", "name": AGENT, "version": "3"}}
        if self._hosted:
            self.sessions.append(body.get("agent_session_id") or token_hex(16))
            more["agent_session_id"] = self.sessions[-1]
        return more


def app() -> ASGIApp:
    """A project with an agent that says what it was told, for a try by hand."""
    project = FoundryServer(lambda conversation: [Say(f"You said: {conversation.text}", chunks=3)])

    async def answer(
        scope: Scope, receive: Receive, send: Send
    ) -> None:  # uvicorn takes no bound method for an application
        await project.app(scope, receive, send)

    return answer
