"""The adapter of agents that are reached without a channel: one request for each turn, answered by a stream of activities. The
first call of a thread makes its conversation.

Law: only the service's own `end` completes an answer. Source: microsoft-agents-copilotstudio-client 1.9.0.
"""

from collections.abc import AsyncGenerator, Iterable, Iterator
from contextlib import aclosing
from secrets import token_hex

import msgspec

from adapters.copilot.activities import Activity, is_conversation_id, read
from adapters.copilot.answer import Answer
from adapters.copilot.failures import CopilotFailures
from adapters.copilot.message import encode
from adapters.copilot.settings import API_VERSION, CopilotSettings, EngineSettings
from adapters.http.address import id_segment
from adapters.http.client import HttpClient
from adapters.http.credentials.signing import headers_of, signing_of
from adapters.http.failures import nothing_sent
from adapters.http.json_text import decode
from gateway.a2a.model import Json
from gateway.ports.adapter import (
    AdapterError,
    AdapterEvent,
    CallCompleted,
    CallStarted,
    ErrorClass,
    ServiceRequest,
)
from gateway.ports.capabilities import Backend, Fate, Fetched, Ongoing
from gateway.ports.conversation import HandleKind, Ownership, StorageOwner

_CONVERSATION = "x-ms-conversationid"
_ACTIVITY = "activity"
_END = "end"
_ENDED = "ended"


class EngineAdapter:
    ownership = Ownership(StorageOwner.BACKEND, HandleKind.STATIC)

    def __init__(self, settings: CopilotSettings, engine: EngineSettings) -> None:
        self._conversations = engine.conversations
        self._locale = settings.locale
        self._start_event = engine.start_event
        self._failures = CopilotFailures(settings.secrets())
        headers = headers_of(engine.auth)
        if engine.token is not None:
            headers = {"Authorization": f"Bearer {engine.token.get_secret_value()}"}
        signing = signing_of(engine.auth, self._failures, settings.timeouts, settings.route)
        self._http = HttpClient(settings.timeouts, self._failures, headers, settings.route, signing)
        self.backend = Backend(self._conversations, settings.account)

    async def aclose(self) -> None:
        await self._http.aclose()

    async def call(self, request: ServiceRequest) -> AsyncGenerator[AdapterEvent, None]:
        if isinstance(request.state, dict) and request.state.get(_ENDED):
            raise self._failures.error(ErrorClass.HANDLE_EXPIRED, "the agent has ended the conversation")
        try:
            outgoing = encode(request.items)
        except ValueError as error:
            raise self._failures.unsendable("A file is no base64.", str(error)) from error
        answer, handle = Answer(cumulative=False), request.handle
        if handle is None:
            with nothing_sent():
                handle, greeting = await self._start()
            # The core continues this generator when the id of the conversation is stored.
            yield CallStarted(handle)
            for event in self._told(answer, (each for each in greeting if each.unreadable is None)):
                yield event
        activity = self._fields() | outgoing.fields | {"conversation": {"id": handle}}
        if outgoing.files:
            activity["attachments"] = [*outgoing.links, *outgoing.inline_files]
        url = f"{self._conversations}/{id_segment(handle, self._failures)}?api-version={API_VERSION}"
        async with aclosing(self._turn(url, {"activity": activity}, handle, answer)) as events:
            async for event in events:
                yield event
        if answer.failure is not None:
            raise self._failures.error(ErrorClass.BACKEND_FAILED, f"the agent ended the conversation: {answer.failure}")
        for event in answer.close():
            yield event
        yield answer.completed(handle, state={_ENDED: True} if answer.ended is not None else {})

    async def fetch(self, call: Ongoing) -> Fetched:
        """The engine lists nothing. A turn that it has begun to answer is in the conversation, so that its message must not go
        again; what became of the answer is not known."""
        return Fetched(Fate.COMPLETED, (CallCompleted(call.handle),))

    def check_handle(self, handle: str) -> None:
        if not is_conversation_id(handle):
            raise ValueError("is not the id of a conversation with the agent")

    async def _start(self) -> tuple[str, list[Activity]]:
        """A new conversation: its id, and what the agent says in it. Raises: AdapterError."""
        body = self._fields() | {"emitStartConversationEvent": self._start_event}
        url = f"{self._conversations}?api-version={API_VERSION}"
        said: list[Activity] = []
        async with self._http.events(url, msgspec.json.encode(body)) as stream:
            handle = stream.headers.get(_CONVERSATION) or ""
            async for batch in stream:
                for event in batch:
                    if event.name == _END:
                        stream.answered = True
                        break
                    activity = self._read(event.name, event.data)
                    if activity is not None:
                        said.append(activity)
                        handle = handle or activity.conversation or ""
                if stream.answered:
                    break
            else:
                raise self._cut()
        if not handle:
            raise self._failures.error(ErrorClass.CONTRACT_BROKEN, "a conversation was made without an id")
        return handle, said

    async def _turn(self, url: str, body: Json, handle: str, answer: Answer) -> AsyncGenerator[AdapterEvent, None]:
        async with self._http.events(url, msgspec.json.encode(body), handle=handle) as stream:
            # The turn has no name at the engine: this one says only that it was taken.
            yield CallStarted(handle, f"turn_{token_hex(8)}")
            async for batch in stream:
                for event in batch:
                    if event.name == _END:
                        stream.answered = True
                        return
                    activity = self._read(event.name, event.data)
                    if activity is not None:
                        for told in self._told(answer, [activity]):
                            yield told
        raise self._cut()

    def _told(self, answer: Answer, activities: Iterable[Activity]) -> Iterator[AdapterEvent]:
        """Raises: AdapterError for a message that cannot be read."""
        try:
            for activity in activities:
                yield from answer.receive(activity)
        except ValueError as error:
            raise self._failures.error(ErrorClass.CONTRACT_BROKEN, str(error)) from error

    def _read(self, name: str, data: bytes) -> Activity | None:
        """Raises: AdapterError for what is no activity."""
        if name != _ACTIVITY:
            return None
        try:
            return read(decode(data))
        except ValueError as error:
            raise self._failures.error(ErrorClass.CONTRACT_BROKEN, f"an event that is no activity: {error}") from error

    def _fields(self) -> dict[str, Json]:
        return {"locale": self._locale} if self._locale else {}

    def _cut(self) -> AdapterError:
        return self._failures.error(ErrorClass.INTERRUPTED, "the stream ended without its `end`")
