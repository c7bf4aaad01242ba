"""The adapter of type `anthropic`, for Anthropic's Messages API and for compatible servers. These servers store nothing: the
gateway keeps the conversation, and sends all of it with every request.
"""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from urllib.parse import quote

import msgspec

from adapters.anthropic.content import IMAGES, PDF, TEXTS, Block
from adapters.anthropic.failures import AnthropicFailures
from adapters.anthropic.files import Files
from adapters.anthropic.request import RequestBody, continued, usable_container, with_container
from adapters.anthropic.settings import AnthropicSettings
from adapters.anthropic.stream import MessageParser, SoFar
from adapters.http.client import EventStream, HttpClient
from adapters.http.credentials.signing import signing_of
from gateway.a2a.model import Json
from gateway.foundation.clock import Clock
from gateway.ports.adapter import (
    AdapterError,
    AdapterEvent,
    AdapterFactory,
    AnswerPaused,
    CallStarted,
    ErrorClass,
    ServiceRequest,
    StateKind,
)
from gateway.ports.capabilities import Backend, Model, ProbeReport
from gateway.ports.conversation import HandleKind, Ownership, StorageOwner

_PROMPT = "ping"
_UNUSABLE = frozenset({ErrorClass.UNAUTHORISED, ErrorClass.UNREACHABLE, ErrorClass.TIMED_OUT, ErrorClass.INTERRUPTED})
_MOST_PAUSES = 20
"""How often the service may pause in one answer."""


class AnthropicAdapter:
    """Sends the requests of one agent to the Messages API."""

    def __init__(self, settings: AnthropicSettings) -> None:
        self.ownership = Ownership(
            StorageOwner.GATEWAY, HandleKind.NONE, opaque_replay=True, repeatable=settings.repeatable
        )
        self.backend = Backend(settings.base_url, settings.account)
        self._clock = Clock()
        self.model = Model("anthropic", settings.model)
        self._model = settings.model
        self._models = f"{settings.base_url}/v1/models"
        self._url = f"{settings.base_url}/v1/messages"
        self._failures = AnthropicFailures(settings.secrets())
        self._body = RequestBody(settings, self._failures)
        signing = signing_of(settings.auth, self._failures, settings.timeouts, settings.route)
        self._http = HttpClient(settings.timeouts, self._failures, settings.service_headers, settings.route, signing)
        self._files = Files(self._http, self._failures, settings.base_url)

    async def aclose(self) -> None:
        await self._http.aclose()

    async def call(self, request: ServiceRequest) -> AsyncGenerator[AdapterEvent, None]:
        known = SoFar() if request.so_far is None else msgspec.convert(request.so_far, SoFar)
        parser = MessageParser(self._failures, self._model, known)
        container, asked = self._container(known.state, request.state), self._body.of(request)
        try:
            while True:
                body = continued(asked, known.said, container)
                async with AsyncExitStack() as stack:
                    stream = await self._open(stack, body, parser, lenient=container is not None)
                    yield CallStarted()
                    async for batch in stream:
                        for data in batch:
                            for event in parser.receive(data):
                                yield event
                        if parser.ended:
                            break
                    stream.answered = parser.ended
                    if not (parser.ended and parser.paused and known.pauses < _MOST_PAUSES):
                        last = parser.finish()
                        for name in dict.fromkeys(known.files):
                            yield await self._files.fetch(name)
                        for event in last:
                            yield event
                        return
                parser.go_on()
                container = self._container(known.state, request.state)
                yield AnswerPaused(msgspec.to_builtins(known))
        except AdapterError as error:
            error.usage = parser.usage
            if error.kind is ErrorClass.HANDLE_EXPIRED:
                # It is that of a container, and not of the conversation.
                error.kind = ErrorClass.NOT_SERVED
            raise

    def _container(self, latest: Json, earlier: Json) -> str | None:
        """The id of the container of the answer so far, or of an earlier answer."""
        return usable_container(earlier if latest is None else latest, self._clock.now())

    async def _open(self, stack: AsyncExitStack, body: Block, parser: MessageParser, *, lenient: bool) -> EventStream:
        """The stream of an answer. `lenient`: the container in the body is that of an earlier answer, and where the service
        has lost it, the model gets another one."""
        try:
            return await stack.enter_async_context(self._stream(body))
        except AdapterError as error:
            if not (lenient and error.kind is ErrorClass.HANDLE_EXPIRED):
                raise
        parser.known.state = {}
        return await stack.enter_async_context(self._stream(with_container(body, None)))

    def _stream(self, body: Block) -> EventStream:
        return self._http.stream(self._url, msgspec.json.encode(body))

    async def probe(self) -> ProbeReport:
        listed = await self._lists_model()
        parser = MessageParser(self._failures, self._model)
        async with self._stream(self._body.probe(_PROMPT)) as stream:
            async for batch in stream:
                for data in batch:
                    parser.receive(data)
                if parser.ended:
                    stream.answered = True
                    return ProbeReport(model=listed, streams=True)
        raise self._failures.error(ErrorClass.INTERRUPTED, "the stream ended before the message did")

    async def _lists_model(self) -> bool | None:
        """Whether the service lists the model of the settings, be it under another name; None when it has no list, or more
        than is shown. Raises: AdapterError when the service cannot be used."""
        try:
            listed = await self._http.request_json("GET", f"{self._models}?limit=1000")
            match listed:
                case {"data": [_, *_] as entries}:
                    names = [entry["id"] for entry in entries if isinstance(entry, dict) and "id" in entry]
                    if self._model in names:
                        return True
                    described = await self._http.request_json("GET", f"{self._models}/{quote(self._model)}")
                    if described is None:
                        return False
                    # Some servers describe any model that they are asked for.
                    if isinstance(described, dict) and described.get("id") in names:
                        return True
                    return None if listed.get("has_more") else False
        except AdapterError as error:
            if error.kind in _UNUSABLE:
                raise
        return None


factory = AdapterFactory(
    settings=AnthropicSettings,
    build=AnthropicAdapter,
    summary="Anthropic's Messages API, and servers compatible with it",
    states=(StateKind(StorageOwner.GATEWAY, HandleKind.NONE, AnthropicAdapter),),
    input_modes=("text/plain", "text/*", *TEXTS, PDF, *IMAGES),
    output_modes=("text/plain", "text/*", "application/json", "application/*", "image/*"),
)
