"""Settings of an agent of type `openai-responses`, and the base class of its adapters, which calls the endpoints that
all of them use."""

from collections.abc import AsyncGenerator, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, Self
from urllib.parse import quote

import msgspec
from pydantic import AfterValidator, ConfigDict, Field, JsonValue, field_validator, model_validator

from adapters.http.address import id_segment
from adapters.http.client import EventStream
from adapters.openai.failures import OpenAIFailures
from adapters.openai.responses.continuation import Continuation
from adapters.openai.responses.request import answered_calls, encode_input, encode_tool
from adapters.openai.responses.stream import ResponseParser
from adapters.openai.responses.wire import SESSION
from adapters.openai.service import PROMPT, OpenAIService, OpenAISettings, ServiceAddress
from gateway.a2a.model import Json
from gateway.config.agents import HistoryConfig, check_window
from gateway.config.settings import Count
from gateway.ports.adapter import AdapterError, AdapterEvent, ErrorClass, ServiceRequest
from gateway.ports.capabilities import Fate, Fetched, Model
from gateway.ports.conversation import Item, StorageOwner

RESPONSES = "responses"
CONVERSATIONS = "conversations"
PAGE_SIZE = 100

FATES = {
    "queued": Fate.RUNNING,
    "in_progress": Fate.RUNNING,
    "completed": Fate.COMPLETED,
    "incomplete": Fate.COMPLETED,
    "failed": Fate.FAILED,
    "cancelled": Fate.FAILED,
}
"""The statuses of a response."""

# The service does not run these tools; it waits until the client sends their results.
_CLIENT_TOOLS = frozenset(
    {"function", "custom", "namespace", "local_shell", "apply_patch", "computer", "computer_use_preview"}
)
# Fields that name an object of the service, which may have tools of its own.
_BRINGS_TOOLS = frozenset({"prompt", "agent", "agent_reference"})
# Ids of Microsoft Foundry begin with `ca`.
_PREFIXES = {"resp_": RESPONSES, "caresp_": RESPONSES, "conv_": CONVERSATIONS}


def _backend_tool(tool: dict[str, JsonValue]) -> dict[str, JsonValue]:
    kind = tool.get("type")
    if not isinstance(kind, str) or not kind:
        raise ValueError("a tool needs a `type`, such as web_search or mcp")
    if kind in _CLIENT_TOOLS:
        raise ValueError(
            f"tools of type {kind!r} run at the client: only tools that the service runs itself can be used"
        )
    return tool


Tool = Annotated[dict[str, JsonValue], AfterValidator(_backend_tool)]


def _owner(history: HistoryConfig) -> StorageOwner:
    return StorageOwner(history.owner or StorageOwner.BACKEND)


class ResponsesSettings(OpenAISettings):
    """An agent of type `openai-responses`."""

    model_config = ConfigDict(validate_by_name=True, validate_by_alias=True)

    history: HistoryConfig = Field(HistoryConfig(), description="Who keeps the conversation: the backend by default.")
    max_output_tokens: Count | None = Field(None, description="Limit of an answer, reasoning included.")
    reasoning: dict[str, JsonValue] | None = Field(None, description="Effort and summary of reasoning models.")
    encrypted_reasoning: bool = Field(
        True, description="With a history kept by the gateway: ask for reasoning to send back. Some models refuse it."
    )
    tools: tuple[Tool, ...] = Field(
        (), alias="service_tools", description="Tools that the service runs itself, as its API describes them."
    )
    include: tuple[str, ...] = Field((), description="More output to ask for, as web_search_call.action.sources.")
    truncation: Literal["auto", "disabled"] | None = Field(None, description="What to do when the context is full.")
    metadata: dict[str, str] | None = Field(None, description="Kept with every response at the service.")
    conversation: bool = Field(
        False,
        description="Make one conversation at the service for each context and stay in it: no chain of responses.",
    )
    verify_chain: bool = Field(
        True, description="Fail when the service says that it did not go on from the response it was told to."
    )
    repeat_unknown: bool | None = Field(
        None,
        description="Send a request again when nobody knows what became of it (5xx, a cut, no answer): costs tokens, "
        "and nothing else where the service runs no tools. When not given: unless it is given tools.",
    )
    background: bool = Field(
        False,
        description="Let the service go on when nobody listens, and listen again: a turn outlives its gateway process.",
    )

    @field_validator("history")
    @classmethod
    def _window_over_own_history(cls, history: HistoryConfig) -> HistoryConfig:
        check_window(history, _owner(history))
        return history

    @model_validator(mode="after")
    def _check_combinations(self) -> Self:
        gateway, background, conversation = self.owner is StorageOwner.GATEWAY, self.background, self.conversation
        chain, previous, repeats = "verify_chain", "previous_response_id", "repeat_unknown: true"
        in_background, in_conversation, history = "background: true", "conversation: true", "history.owner: gateway"
        excluded = (
            (background and gateway, in_background, history, ": it has to be kept there"),
            (conversation and gateway, in_conversation, history, ": who keeps it?"),
            (conversation and self.repeat_unknown, in_conversation, repeats, ": it is read before all else"),
            (conversation and chain in self.model_fields_set, in_conversation, chain, ": there is no chain to verify"),
            (conversation and previous in self.extra_body, in_conversation, f"extra_body.{previous}", ""),
        )
        for applies, one, other, why in excluded:
            if applies:
                raise ValueError(f"{one!r} and {other!r} exclude each other{why}")
        self.refuse_fields(("input", "stream", "store", previous))
        return self

    @property
    def owner(self) -> StorageOwner:
        return _owner(self.history)

    @property
    def repeatable(self) -> bool:
        """Whether a request of unknown outcome may be sent again: a tool that the service ran for it would run twice."""
        if self.repeat_unknown is not None:
            return self.repeat_unknown
        return not (self.tools or _BRINGS_TOOLS & self.extra_body.keys())

    @property
    def asks(self) -> bool:
        """Whether the service may ask before it calls an MCP server, which it does unless it is told not to."""
        return any(tool["type"] == "mcp" and tool.get("require_approval") != "never" for tool in self.tools)

    @property
    def fields(self) -> dict[str, Json]:
        """The fields of every request. They include the instructions and the tools, because a response does not inherit
        these from the response that it continues."""
        encrypted = self.owner is StorageOwner.GATEWAY and self.encrypted_reasoning
        wanted = ("reasoning.encrypted_content",) if encrypted else ()
        return self.request_fields(
            *("instructions", "max_output_tokens", "reasoning", "truncation", "metadata"),
            tools=self.tools or None,
            include=tuple(dict.fromkeys((*wanted, *self.include))) or None,
            background=self.background or None,
        )

    @property
    def wire(self) -> "ResponsesWire":
        failures = OpenAIFailures(self.secrets())
        return ResponsesWire(
            self.address, self.fields, failures, self.owner, self.model, self.verify_chain, self.repeatable
        )

    def secrets(self) -> Iterator[str]:
        yield from super().secrets()
        for tool in self.tools:
            headers = tool.get("headers")
            values = headers.values() if isinstance(headers, dict) else ()
            yield from (value for value in (tool.get("authorization"), *values) if isinstance(value, str))


@dataclass(frozen=True, slots=True)
class ResponsesWire:
    """How the adapters talk to one service. `model` is None where the service chooses. `conversations` is the address of its
    conversations, where it is another. Without `declares_tools` no request names the tools of the gateway."""

    address: ServiceAddress
    fields: dict[str, Json]
    failures: OpenAIFailures
    owner: StorageOwner = StorageOwner.BACKEND
    model: str | None = None
    verify_chain: bool = True
    repeatable: bool = True
    conversations: ServiceAddress | None = None
    declares_tools: bool = True


class ResponsesService(OpenAIService):
    """The base class of the adapters. A handle without a known prefix is the id of an object of the kind `kept`."""

    kept = RESPONSES

    def __init__(self, wire: ResponsesWire) -> None:
        super().__init__(wire.address, RESPONSES, wire.fields, encode_tool, wire.failures)
        self.model = Model("openai", wire.model)
        self._wire = wire

    def _respond(self, request: ServiceRequest, continuation: Continuation) -> AsyncGenerator[AdapterEvent, None]:
        offered = self._offer.fields(request.tools if self._wire.declares_tools else ())
        body = (
            offered
            | {"input": encode_input(request.items, request.state)}
            | continuation.fields
            | _session(request.state)
        )
        opening = self._http.stream(self._url, msgspec.json.encode(body), handle=continuation.handle)
        return self._events(opening, self._parser(continuation, request.items, request.state))

    def _parser(self, continuation: Continuation, items: Sequence[Item] = (), state: Json = None) -> ResponseParser:
        """The parser of the response to a request with these items, and with the state of the call before it."""
        return ResponseParser(self._failures, continuation, answered_calls(items, state))

    async def _events(self, opening: EventStream, parser: ResponseParser) -> AsyncGenerator[AdapterEvent, None]:
        try:
            async with opening as stream:
                async for batch in stream:
                    for data in batch:
                        events = parser.receive(data)
                        stream.answered = parser.ended
                        for event in events:
                            yield event
                        if parser.ended:
                            return
            raise parser.cut()
        except AdapterError as error:
            error.usage = parser.usage
            for event in parser.rest():
                yield event
            raise

    def _events_of(self, response: Json, parser: ResponseParser) -> tuple[AdapterEvent, ...]:
        """The events of a call whose stream ends with this response."""
        event = {"type": f"response.{response['status']}", "response": response}
        return tuple(parser.receive(msgspec.json.encode(event)))

    async def _look_up(self, name: str, continuation: Continuation, sent: Sequence[Item]) -> Fetched:
        """The fate of the response with this id, to a request with these items. Raises: AdapterError."""
        response = await self._http.request_json("GET", self._address(RESPONSES, name), handle=name)
        if response is None:
            return Fetched(Fate.GONE)
        status = response.get("status") if isinstance(response, dict) else None
        fate = FATES.get(status) if isinstance(status, str) else None
        if fate is None:
            raise self._failures.error(ErrorClass.CONTRACT_BROKEN, f"a response has the status {status!r}")
        events = self._events_of(response, self._parser(continuation, sent)) if fate is Fate.COMPLETED else ()
        return Fetched(fate, events)

    async def forget(self, handle: str) -> None:
        kind = next((kind for prefix, kind in _PREFIXES.items() if handle.startswith(prefix)), self.kept)
        if kind is CONVERSATIONS:
            await self._forget_items(handle)
        await self._http.request_json("DELETE", self._address(kind, handle), handle=handle)

    async def _forget_items(self, handle: str) -> None:
        """Deletes the items of a conversation, which the deletion of the conversation itself does not delete (source:
        OpenAI's API reference). A service may have no endpoint for items; then its refusal is ignored."""
        try:
            for name in await self._item_ids(handle):
                url = self._address(CONVERSATIONS, handle, f"/items/{id_segment(name, self._failures)}")
                await self._http.request_json("DELETE", url, handle=handle)
        except AdapterError as error:
            if error.kind not in (ErrorClass.NOT_SERVED, ErrorClass.REJECTED):
                raise

    async def _item_ids(self, handle: str) -> list[str]:
        """The ids of all items. All pages are read before the first deletion, because the next page is requested by the
        last item of the page before it, and that item must still exist."""
        names: dict[str, None] = {}
        after = ""
        while True:
            url = self._address(CONVERSATIONS, handle, "/items", f"order=asc&limit={PAGE_SIZE}{after}")
            match await self._http.request_json("GET", url, handle=handle):
                case {"data": [{"id": str()}, *_] as items, **rest}:
                    page = dict.fromkeys(str(item["id"]) for item in items if isinstance(item, dict) and "id" in item)
                case _:
                    return list(names)
            if not rest.get("has_more") or page.keys() <= names.keys():
                return list(names | page)
            names |= page
            after = f"&after={quote(next(reversed(page)), safe='')}"

    def _address(self, kind: str, handle: str, path: str = "", query: str = "") -> str:
        return self._address_of(kind).link(f"{kind}/{id_segment(handle, self._failures)}{path}", query)

    def _address_of(self, kind: str) -> ServiceAddress:
        return self._wire.conversations or self._service if kind is CONVERSATIONS else self._service

    async def _lists_model(self) -> bool | None:
        """As `_lists`, of the model of the settings. None also where the service chooses."""
        return None if self._wire.model is None else await self._lists(self._wire.model)

    async def _probe_handle(self, continuation: Continuation) -> str | None:
        """Requests a response that the service does not store. Returns its handle at the first output."""
        body = {"input": PROMPT} | continuation.fields | {"store": False}
        return await self._start_answer(body, self._parser(continuation).receive, handle=continuation.handle)

    async def _refuses(self, continuation: Continuation) -> bool | None:
        """Whether the service or this adapter refuses an unknown handle, or None when the service refuses the request
        for another reason."""
        try:
            await self._probe_handle(continuation)
        except AdapterError as error:
            if error.kind not in (ErrorClass.HANDLE_NOT_FOUND, ErrorClass.NOT_SERVED, ErrorClass.REJECTED):
                raise
            return True if error.kind is ErrorClass.HANDLE_NOT_FOUND else None
        return False


def _session(state: Json) -> dict[str, Json]:
    """The field that keeps a hosted agent in its sandbox; another one is made for a request without it."""
    session = state.get(SESSION) if isinstance(state, dict) else None
    return {} if session is None else {SESSION: session}
