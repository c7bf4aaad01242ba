"""How an agent is spoken to: what every binding does, and what the two over HTTP share. Law: a binding knows bytes and
addresses, and nothing of conversations."""

from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Protocol, TypeAlias, TypeVar

from adapters.a2a.answer import ends
from adapters.a2a.card import Endpoint
from adapters.a2a.failures import A2AFailures
from adapters.http.client import EventStream, HttpClient
from adapters.http.half_characters import with_whole_characters
from adapters.http.sse import EVENT_LIMIT
from adapters.http.streams import media_type
from gateway.a2a import model
from gateway.a2a.model import StreamResponse, Task, Wire
from gateway.a2a.wire.answers import Unreadable
from gateway.ports.adapter import AdapterError, ErrorClass

T = TypeVar("T")
Streaming: TypeAlias = model.SendMessageRequest | model.SubscribeToTaskRequest
OfTask: TypeAlias = model.GetTaskRequest | model.CancelTaskRequest
Events: TypeAlias = AsyncGenerator[list[StreamResponse], None]

OPERATIONS: Mapping[type[Wire], str] = {
    model.SendMessageRequest: "SendStreamingMessage",
    model.SubscribeToTaskRequest: "SubscribeToTask",
    model.GetTaskRequest: "GetTask",
    model.CancelTaskRequest: "CancelTask",
    model.ListTasksRequest: "ListTasks",
}

DOCUMENTS = frozenset({"application/json", "application/a2a+json"})
"""The media types of an answer that is whole, where a stream was asked for."""


class Binding(Protocol):
    """`handle` is the conversation that a request continues. All raise AdapterError: Refused where the agent refuses."""

    def stream(self, request: Streaming, *, handle: str | None = None) -> Events:
        """What the agent sends while it works, as it comes."""

    async def send(self, request: model.SendMessageRequest, *, handle: str | None = None) -> StreamResponse:
        """A task or a message."""

    async def task(self, request: OfTask, *, handle: str | None = None) -> Task: ...

    async def tasks(self, request: model.ListTasksRequest) -> tuple[Task, ...]:
        """One page."""

    async def aclose(self) -> None:
        """Ends what the binding has opened for itself."""


class HttpBinding:
    """The parts of JSON-RPC and HTTP+JSON."""

    def __init__(
        self, http: HttpClient, endpoint: Endpoint, failures: A2AFailures, extensions: tuple[str, ...]
    ) -> None:
        self._http = http
        self._url = endpoint.interface.url.rstrip("/")
        self._failures = failures
        name = "A2A-Extensions" if endpoint.version == "1.0" else "X-A2A-Extensions"
        self._headers = {"A2A-Version": endpoint.version, **({name: ", ".join(extensions)} if extensions else {})}

    async def aclose(self) -> None:
        return

    def _stream(self, request: Streaming, url: str, body: bytes | None, handle: str | None) -> Events:
        """A message may be answered by a whole document, too. A subscription that is one does not work: what follows is not
        in it."""
        documents = DOCUMENTS if isinstance(request, model.SendMessageRequest) else ()
        stream = self._http.stream(url, body, handle=handle, headers=self._headers, documents=documents)
        return self._events(stream, handle)

    async def _events(self, stream: EventStream, handle: str | None) -> Events:
        async with stream:
            is_whole = media_type(stream.headers) in DOCUMENTS
            async for batch in stream:
                if is_whole:
                    yield [self._whole(stream, data, handle) for data in batch]
                    continue
                found: list[StreamResponse] = []
                try:
                    found.extend(event for data in batch if (event := self._event(data, handle)) is not None)
                except AdapterError:
                    # What came before the error counts.
                    yield found
                    raise
                if any(map(ends, found)):
                    stream.answered = True
                yield found

    def _event(self, data: bytes, handle: str | None) -> StreamResponse | None:
        """None for an event of a kind that no version of A2A has. Raises: AdapterError."""
        raise NotImplementedError

    def _answer(self, body: bytes) -> StreamResponse | None:
        """The answer to a message as a whole document; None for any other document."""
        raise NotImplementedError

    def _whole(self, stream: EventStream, body: bytes, handle: str | None) -> StreamResponse:
        """The document that has come in the place of a stream, as its only event. Raises: AdapterError."""
        found = self._answer(body)
        if found is None:
            raise self._failures.from_response(stream.status, stream.headers, body, handle=handle)
        return found

    async def _document(self, method: str, url: str, body: bytes | None, handle: str | None) -> bytes:
        headers = {**self._headers, "Accept": "application/json"}
        reply = await self._http.request(method, url, body, handle=handle, headers=headers, limit=EVENT_LIMIT)
        return with_whole_characters(reply.body)

    def _read(self, read: Callable[[bytes], T], body: bytes) -> T:
        try:
            return read(body)
        except Unreadable as error:
            raise self._failures.error(ErrorClass.CONTRACT_BROKEN, str(error)) from error
