"""The JSON-RPC 2.0 binding: one request in a POST, its answer as JSON or as a stream of answers.

Law: an error of a call has status 200; only errors of the transport have another. Source: A2A 1.0, sections 5.3 and 9.
"""

import re
from collections.abc import Coroutine
from http import HTTPStatus
from typing import Any

import msgspec
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.a2a.errors import A2AError, InvalidRequest, MethodNotAllowed, echo
from gateway.a2a.model import Json
from gateway.a2a.wire import dialects, strict_json, v1_0
from gateway.a2a.wire.dialect import Dialect, Method
from gateway.http.arrival import arrival_of
from gateway.http.pipeline import Pipeline
from gateway.http.reply import Reply, error_headers, rest_reply, rpc_error, rpc_status
from gateway.http.sse import EVENT_STREAM, Envelope

_UNFIT = re.compile("[\x00-\x1f\x7f\ud800-\udfff]")
_NOT_ALLOWED = rest_reply(MethodNotAllowed("JSON-RPC is spoken by POST"), allowed=("POST",))

_encoder = msgspec.json.Encoder()


class JsonRpc:
    """One request at the base address of an agent, and its id, which every answer repeats; null until the id is known.
    Errors have the codes of the request's version, once that is known."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._id = b"null"
        self._code = v1_0.DIALECT.code
        self._refuses_in_stream = False

    def serve(self, agent: str | None, scope: Scope, receive: Receive, send: Send) -> Coroutine[Any, Any, None]:
        """`agent` is the one that the path names."""
        if scope["method"] != "POST":
            return _NOT_ALLOWED(scope, receive, send)
        return self._pipeline.respond(self._answer(agent, scope, receive), self._refuse, scope, receive, send)

    def _refuse(self, error: A2AError) -> Reply:
        status, headers = rpc_status(error), error_headers(error)
        if self._refuses_in_stream and status == HTTPStatus.OK:
            return Reply(b"data: %b\n\n" % self._error(error), status, EVENT_STREAM, headers)
        return Reply(self._error(error), status, headers=headers)

    def _error(self, error: A2AError) -> bytes:
        return b'{"jsonrpc":"2.0","id":%b,"error":%b}' % (self._id, rpc_error(error, self._code(error)))

    async def _answer(self, agent: str | None, scope: Scope, receive: Receive) -> ASGIApp:
        incoming = await self._pipeline.admit(arrival_of(scope), agent)
        document = await self._pipeline.read_json(scope, receive)
        name, params = self._open(document.value)
        dialect = dialects.negotiate(incoming.parameters.version(), self._pipeline.spoken(dialects.JSON_RPC))
        self._code = dialect.code

        def read(dialect: Dialect) -> tuple[Method, Any]:
            method = dialect.method(name)
            self._refuses_in_stream = dialect.refuses_in_stream and method.streaming
            strict_json.check_text(document.body, params)
            return method, dialect.decode(method, params)

        envelope = Envelope(b'{"jsonrpc":"2.0","id":%b,"result":' % self._id, b"}", self._error, empty=b"null")
        return await self._pipeline.invoke(incoming, dialect, read, envelope, receive, size=len(document.body))

    def _open(self, envelope: Json) -> tuple[str, Json]:
        """Method name and params. Raises: InvalidRequest."""
        if isinstance(envelope, list):
            raise InvalidRequest("Invalid request: batches are not supported")
        if not isinstance(envelope, dict):
            raise InvalidRequest("Invalid request: a JSON-RPC request is an object")
        self._id = self._read_id(envelope.get("id"))
        if envelope.get("jsonrpc") != "2.0":
            raise InvalidRequest("Invalid request: 'jsonrpc' must be '2.0'")
        name = envelope.get("method")
        if not isinstance(name, str) or not name:
            raise InvalidRequest("Invalid request: 'method' must be the name of a method")
        params = envelope.get("params")
        return name, {} if params is None else params

    def _read_id(self, value: Json) -> bytes:
        longest = self._pipeline.limits.id_length
        match value:
            case bool() | list() | dict():
                raise InvalidRequest("Invalid request: 'id' must be a string, a number or null")
            case str() if len(value) > longest or _UNFIT.search(value):
                raise InvalidRequest(
                    f"Invalid request: 'id' must be up to {longest} characters of Unicode, not {echo(value)}"
                )
            case _:
                return _encoder.encode(value)
