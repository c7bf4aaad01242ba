"""The HTTP+JSON binding of A2A 1.0. Source: A2A 1.0, section 11."""

from urllib.parse import urlencode

import msgspec
from msgspec.structs import replace

from adapters.a2a.binding import Events, HttpBinding, OfTask, Streaming
from adapters.http.address import id_segment
from gateway.a2a import model
from gateway.a2a.model import StreamResponse, Task
from gateway.a2a.wire import answers
from gateway.a2a.wire.answers import UnknownKind, Unreadable
from gateway.ports.adapter import ErrorClass

_encoder = msgspec.json.Encoder()


class Rest(HttpBinding):
    def stream(self, request: Streaming, *, handle: str | None = None) -> Events:
        if isinstance(request, model.SendMessageRequest):
            url, body = self._address(request.tenant, "message:stream"), _body(request)
        else:
            url, body = self._address(request.tenant, f"tasks/{self._segment(request.id)}:subscribe"), None
        return self._stream(request, url, body, handle)

    async def send(self, request: model.SendMessageRequest, *, handle: str | None = None) -> StreamResponse:
        url = self._address(request.tenant, "message:send")
        return self._read(answers.response, await self._document("POST", url, _body(request), handle))

    async def task(self, request: OfTask, *, handle: str | None = None) -> Task:
        url = self._address(request.tenant, f"tasks/{self._segment(request.id)}")
        if isinstance(request, model.CancelTaskRequest):
            return self._read(answers.task, await self._document("POST", f"{url}:cancel", b"{}", handle))
        length = request.history_length
        query = "" if length is None else f"?{urlencode({'historyLength': length})}"
        return self._read(answers.task, await self._document("GET", f"{url}{query}", None, handle))

    async def tasks(self, request: model.ListTasksRequest) -> tuple[Task, ...]:
        where = msgspec.to_builtins(replace(request, tenant=None))
        url = f"{self._address(request.tenant, 'tasks')}?{urlencode(where)}"
        return self._read(answers.tasks, await self._document("GET", url, None, None))

    def _address(self, tenant: str | None, path: str) -> str:
        return f"{self._url}/{path}" if tenant is None else f"{self._url}/{self._segment(tenant)}/{path}"

    def _segment(self, name: str) -> str:
        return id_segment(name, self._failures)

    def _event(self, data: bytes, handle: str | None) -> StreamResponse | None:
        try:
            return answers.response(data)
        except Unreadable as error:
            refused = self._failures.in_stream(data, handle=handle)
            if refused is not None:
                raise refused from error
            if isinstance(error, UnknownKind):
                return None
            raise self._failures.error(ErrorClass.CONTRACT_BROKEN, str(error)) from error

    def _answer(self, body: bytes) -> StreamResponse | None:
        try:
            return answers.response(body)
        except Unreadable:
            return None


def _body(request: model.SendMessageRequest) -> bytes:
    return _encoder.encode(replace(request, tenant=None))
