"""The JSON-RPC binding of A2A 1.0 and 0.3. Source: A2A 1.0, section 9; A2A 0.3.0, section 7."""

import msgspec

from adapters.a2a.binding import OPERATIONS, Events, HttpBinding, OfTask, Streaming
from adapters.a2a.card import Endpoint
from adapters.a2a.failures import A2AFailures
from adapters.http.client import HttpClient
from gateway.a2a import model
from gateway.a2a.model import Json, StreamResponse, Task, Wire
from gateway.a2a.wire import answers
from gateway.a2a.wire.answers import RpcError, UnknownKind, Unreadable
from gateway.a2a.wire.v0_3 import calls as v0_3
from gateway.ports.adapter import AdapterError, ErrorClass

_encoder = msgspec.json.Encoder()


class JsonRpc(HttpBinding):
    def __init__(
        self, http: HttpClient, endpoint: Endpoint, failures: A2AFailures, extensions: tuple[str, ...]
    ) -> None:
        super().__init__(http, endpoint, failures, extensions)
        self._below_v1 = endpoint.version != "1.0"

    def stream(self, request: Streaming, *, handle: str | None = None) -> Events:
        return self._stream(request, self._url, self._body(OPERATIONS[type(request)], request), handle)

    async def send(self, request: model.SendMessageRequest, *, handle: str | None = None) -> StreamResponse:
        return self._read(answers.response, await self._result("SendMessage", request, handle))

    async def task(self, request: OfTask, *, handle: str | None = None) -> Task:
        return self._read(answers.task, await self._result(OPERATIONS[type(request)], request, handle))

    async def tasks(self, request: model.ListTasksRequest) -> tuple[Task, ...]:
        return self._read(answers.tasks, await self._result("ListTasks", request, None))

    async def _result(self, operation: str, request: Wire, handle: str | None) -> bytes:
        body = await self._document("POST", self._url, self._body(operation, request), handle)
        try:
            result = answers.rpc_result(body)
        except Unreadable as error:
            raise self._unreadable(error) from error
        if isinstance(result, RpcError):
            raise self._failures.from_rpc(result.code, result.message, result.data, handle=handle)
        return result

    def _body(self, operation: str, request: Wire) -> bytes:
        method, params = operation, request
        call: Json = {"jsonrpc": "2.0", "id": "1", "method": method, "params": params}
        if self._below_v1:
            call |= {"method": v0_3.METHODS[operation], "params": v0_3.params(request)}
        return _encoder.encode(call)

    def _event(self, data: bytes, handle: str | None) -> StreamResponse | None:
        try:
            found = answers.rpc_event(data)
        except UnknownKind:
            return None
        except Unreadable as error:
            raise self._unreadable(error) from error
        if isinstance(found, RpcError):
            raise self._failures.from_rpc(found.code, found.message, found.data, handle=handle)
        return found

    def _answer(self, body: bytes) -> StreamResponse | None:
        try:
            found = answers.rpc_event(body)
        except Unreadable:
            return None
        return None if isinstance(found, RpcError) else found

    def _unreadable(self, error: Unreadable) -> AdapterError:
        return self._failures.error(ErrorClass.CONTRACT_BROKEN, str(error))
