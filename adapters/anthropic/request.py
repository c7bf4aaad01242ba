"""The body of a request to the Messages API. Law: what stays the same comes first and is marked for the cache of the service;
a conversation with tool calls goes out with tools, be it that none may be called.

Source: anthropic 2.14.0, type `MessageCreateParams`.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from msgspec import to_builtins

from adapters.anthropic.content import Block, UserContent
from adapters.anthropic.messages import called_tools, encode_messages, lacks_thinking, tool_name
from adapters.anthropic.settings import MCP_TOOLSET, AnthropicSettings, McpServer
from adapters.http.failures import Failures
from gateway.a2a.model import Json
from gateway.ports.adapter import ErrorClass, ServiceRequest
from gateway.ports.tools import ToolDeclaration

_NO_TOOL = {"type": "none"}
_CACHED_MESSAGES = 2
"""The service takes four marks. The tools and the instructions have one each."""


class RequestBody:
    """Makes the bodies of one agent's requests."""

    def __init__(self, settings: AnthropicSettings, failures: Failures) -> None:
        self._model = settings.model
        self._failures = failures
        self._content = UserContent(failures, citations=settings.citations)
        self._mark: Block = {} if settings.cache == "none" else {"cache_control": _mark(settings.cache)}
        self._thinking = None if settings.thinking is None else settings.thinking.model_dump(exclude_none=True)
        self._tools = [*settings.tools, *_toolsets(settings)]
        optional = {
            "temperature": settings.temperature,
            "top_p": settings.top_p,
            "top_k": settings.top_k,
            "stop_sequences": list(settings.stop_sequences) or None,
            "mcp_servers": [_mcp_server(server) for server in settings.mcp_servers] or None,
            "system": [{"type": "text", "text": settings.instructions, **self._mark}]
            if settings.instructions
            else None,
        }
        given = {name: value for name, value in optional.items() if value is not None}
        fixed = {"model": settings.model, "max_tokens": settings.max_tokens, "stream": True}
        self._fields = {**fixed, **given, **settings.extra_body}

    def of(self, request: ServiceRequest) -> Block:
        """Raises: AdapterError for content that the service does not take."""
        messages = encode_messages(request.items, self._model, self._content)
        if not messages or messages[-1]["role"] != "user":
            raise self._failures.unsendable("The message has no text but blanks, and no file.")
        body = self._with(self._offer(request.tools, messages), messages)
        if self._thinking is not None and not (self._thinking["type"] == "enabled" and lacks_thinking(messages)):
            body["thinking"] = self._thinking
        self._mark_messages(messages)
        return body

    def probe(self, words: str) -> Block:
        """The cheapest request for an answer."""
        messages = [{"role": "user", "content": [{"type": "text", "text": words}]}]
        return {**self._with(self._offer((), messages), messages), "max_tokens": 1}

    def _with(self, offer: Block, messages: Sequence[Block]) -> Block:
        # A choice among no tools is refused.
        fields = self._fields if offer else {name: v for name, v in self._fields.items() if name != "tool_choice"}
        return {**fields, **offer, "messages": messages}

    def _offer(self, declared: Sequence[ToolDeclaration], messages: Sequence[Block]) -> Block:
        tools = [*self._tools, *map(_tool, declared)]
        names = [tool["name"] for tool in tools if isinstance(tool.get("name"), str)]
        for name in names:
            if names.count(name) > 1:
                raise self._failures.error(ErrorClass.NOT_SERVED, f"two tools are called {name!r}")
        called = called_tools(messages) if not tools else ()
        if called:
            return {"tools": [_stand_in(name) for name in called], "tool_choice": _NO_TOOL}
        # The service takes no mark on a tool that the model has to look for.
        last = max((index for index, tool in enumerate(tools) if not tool.get("defer_loading")), default=-1)
        mark = {} if any("cache_control" in tool for tool in tools) else self._mark
        marked = [{**tool, **mark} if index == last else tool for index, tool in enumerate(tools)]
        return {"tools": marked} if tools else {}

    def _mark_messages(self, messages: Sequence[Block]) -> None:
        said = [message for message in messages if message["role"] == "user"]
        for message in said[-_CACHED_MESSAGES:] if self._mark else ():
            message["content"][-1] |= self._mark


def continued(body: Block, content: Sequence[Block], container: str | None = None) -> Block:
    """The request for the rest of an answer that began with this content and was paused by the service, or for the whole of it.
    `container` is the id of the one that the conversation has used last."""
    said = [{"role": "assistant", "content": list(content)}] if content else []
    body = {**body, "messages": [*body["messages"], *said]}
    return body if container is None else with_container(body, container)


def with_container(body: Block, name: str | None) -> Block:
    """The request in the container of this id, or in a new one. What else the settings want of a container stays."""
    given = body.get("container")
    wanted = {field: value for field, value in given.items() if field != "id"} if isinstance(given, dict) else {}
    container = name if not wanted else wanted if name is None else {**wanted, "id": name}
    rest = {field: value for field, value in body.items() if field != "container"}
    return rest if container is None else {**rest, "container": container}


def usable_container(state: Json, now: int) -> str | None:
    """The id of the container in the state of a conversation, unless it has expired. `now`: milliseconds since the epoch."""
    match state:
        case {"container": {"id": str(name), "expires_at": str(until)}}:
            try:
                moment = datetime.fromisoformat(until)
            except ValueError:
                return None
            moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
            return name if moment.timestamp() * 1000 > now else None
    return None


def _mark(lifetime: str) -> Block:
    # Without a lifetime it is the shorter one, which compatible services know as well.
    return {"type": "ephemeral"} if lifetime == "5m" else {"type": "ephemeral", "ttl": lifetime}


def _tool(tool: ToolDeclaration) -> Block:
    return {"name": tool.name, "description": tool.description, "input_schema": to_builtins(tool.parameters)}


def _stand_in(name: str) -> Block:
    """The service refuses a conversation with tool calls in a request that has no tools."""
    return {"name": tool_name(name), "input_schema": {"type": "object"}}


def _mcp_server(server: McpServer) -> Block:
    token = server.authorization_token
    secret = {} if token is None else {"authorization_token": token.get_secret_value()}
    return {"type": "url", "name": server.name, "url": server.url, **secret}


def _toolsets(settings: AnthropicSettings) -> list[Mapping[str, Json]]:
    """All tools of each server, where no setting chooses among them."""
    chosen = {tool.get("mcp_server_name") for tool in settings.tools}
    names = (server.name for server in settings.mcp_servers)
    return [{"type": MCP_TOOLSET, "mcp_server_name": name} for name in names if name not in chosen]
