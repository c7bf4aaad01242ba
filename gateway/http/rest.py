"""The HTTP+JSON binding: every operation at an address and an HTTP method of its own, those of A2A 0.3 below /v1.

Law: the path is part of the request, and the body must not contradict it. Source: A2A 1.0, sections 5.3 and 11; A2A 0.3.0,
section 3.5.6.
"""

from typing import Any

import msgspec
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.a2a.errors import A2AError, InvalidRequest, MethodNotAllowed, echo, invalid
from gateway.a2a.model import Json
from gateway.a2a.wire import dialects, strict_json
from gateway.a2a.wire.dialect import Dialect, Method
from gateway.http.arrival import arrival_of
from gateway.http.cards import what_is_said
from gateway.http.documents import private_document
from gateway.http.headers import query, wants_a2a_json
from gateway.http.pipeline import Document, Pipeline
from gateway.http.reply import A2A_JSON, JSON, Reply
from gateway.http.rest_addresses import Resource
from gateway.http.sse import Envelope


class Rest:
    """One request below the base address of an agent. `tenant` is the tenant that the path names."""

    def __init__(self, pipeline: Pipeline, found: Resource, tenant: str | None) -> None:
        self._pipeline = pipeline
        self._resource = found
        self._fields = found.fields if tenant is None else {**found.fields, "tenant": tenant}
        self._media_type = JSON

    async def serve(self, agent: str | None, scope: Scope, receive: Receive, send: Send) -> None:
        """`agent` is the one that the path names."""
        if wants_a2a_json(scope):
            self._media_type = A2A_JSON
        await self._pipeline.respond(self._answer(agent, scope, receive), self._refuse, scope, receive, send)

    def _refuse(self, error: A2AError) -> Reply:
        return self._resource.version.errors.reply(error, self._media_type, self._resource.operations)

    async def _answer(self, agent: str | None, scope: Scope, receive: Receive) -> ASGIApp:
        name = self._resource.operations.get(scope["method"])
        if name is None:
            raise MethodNotAllowed(f"{echo(scope['method'])} is not a method of this address")
        incoming = await self._pipeline.admit(arrival_of(scope), agent)
        document = None
        if scope["method"] == "POST":
            document = await self._pipeline.read_json(scope, receive, empty={} if self._resource.optional_body else ...)

        def read(dialect: Dialect) -> tuple[Method, Any]:
            method = dialect.method(name)
            if document is None:
                return method, dialect.decode_query(method, query(scope["query_string"]), self._fields)
            return method, dialect.decode(method, self._params(document))

        version = self._resource.version
        spoken = self._pipeline.spoken(version.dialects)
        dialect = dialects.negotiate(incoming.parameters.version(), spoken, version.elsewhere)
        envelope = Envelope(b"", b"", version.errors.body, media_type=self._media_type)
        size = len(document.body) if document else 0
        response = await self._pipeline.invoke(incoming, dialect, read, envelope, receive, size=size)
        if name == "GetExtendedAgentCard" and isinstance(response, Reply):
            return private_document(response, scope, what_is_said([msgspec.json.decode(response.body)]))
        return response

    def _params(self, document: Document) -> Json:
        """The body with the fields of the path. Raises: InvalidRequest; InvalidParams where the two disagree."""
        if not isinstance(document.value, dict):
            raise InvalidRequest("Invalid request: the body must be an object")
        strict_json.check_text(document.body, document.value)
        params = dict(document.value)
        for field, value in self._fields.items():
            head, *rest = field.split("_")
            name = head + "".join(word.capitalize() for word in rest)
            for spelling in {field, name}:
                if params.pop(spelling, None) not in (None, "", value):
                    raise invalid(name, f"is not the same in the body as in the path, {echo(value)}")
            params[field] = value
        return params
