"""One connection to an MCP server, and its transport. The transport reports two facts that the MCP library hides: the
HTTP status of an answer, and the end of the connection.

Law: a separate task opens and closes each connection, because the library requires the same task for both. A request
that is in progress when the connection ends fails, and this module does not repeat it.

This module is imported only where it is used: the `mcp` package is an extra, and its import takes most of a second.
"""

import asyncio
import contextvars
import math
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from contextvars import ContextVar
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple, Self, cast

import anyio
import httpx2
import mcp_types as types
import msgspec
import structlog
from mcp import Client, StdioServerParameters
from mcp.client.session import IncomingMessage
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.client.subscriptions import ListenNotSupportedError, SubscriptionLost
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage
from mcp_types.methods import validate_server_result
from mcp_types.version import LATEST_PROTOCOL_VERSION, MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from adapters.tools.mcp_errors import SessionExpired
from adapters.tools.program_output import logged_output
from gateway.a2a.model import Json
from gateway.core.tools.arguments import Checker, SchemaRefused, compiled
from gateway.core.tools.steps import STEPS, Steps, StepsUsedUp
from gateway.foundation import trace
from gateway.foundation.keep_alive import CLIENT_KEEP_ALIVE
from gateway.foundation.route import Route
from gateway.foundation.spellings import pattern_of
from gateway.foundation.tls import ADDRESS_OF_TLS, client_context, tls_problem
from gateway.ports.tools import ConsentNeeded, ConsentPage, SourceTool, TlsFailed, ToolError, ToolOutput, ToolRun

log = structlog.get_logger("adapters.tools.mcp_connection")

_Streams = tuple[Any, Any]
Transport = AbstractAsyncContextManager[_Streams]

_CONNECT_SECONDS = 10
_EVENT_LIMIT = 4 * 1024 * 1024
_OPEN_SECONDS = 60
_CLOSE_SECONDS = 5
_PING_SECONDS = 5
_PAGES = 100
_LINE_LENGTH = 8192
_KEY = "a2a-gateway.dev/idempotency-key"
_RESULT_STEPS = 20 * STEPS
"""Steps for the check of a result, which does not run on the event loop."""

_NOT_SENT = 0
"""In place of the status of an answer to a request that did not go out."""

# Errors of a server that did not carry out the request.
_NOT_RUN = frozenset(
    {
        types.METHOD_NOT_FOUND,
        types.INVALID_PARAMS,
        types.HEADER_MISMATCH,
        types.MISSING_REQUIRED_CLIENT_CAPABILITY,
        types.UNSUPPORTED_PROTOCOL_VERSION,
    }
)

# The answers to a request in a session that has expired. Most servers answer 404, as the specification requires.
# Servers that are derived from a common example answer 400, with an error that belongs to no call.
_EXPIRED = {404: None, 400: frozenset({types.CONNECTION_CLOSED, types.INTERNAL_ERROR})}


class HttpAnswer(NamedTuple):
    """The status of the answer to a POST, and whether the request named a session."""

    status: int
    in_session: bool


http_answers: ContextVar[list[HttpAnswer]] = ContextVar("http_answers")
"""The answers to the requests of the current call."""


@asynccontextmanager
async def over_stdio(
    command: list[str], env: dict[str, str], cwd: Path | None, source: str
) -> AsyncGenerator[_Streams, None]:
    """A transport to a server that runs as a child process. The process gets `env` and the few variables that programs
    need, but none of the gateway's secrets. Its stderr goes to the log, under the name of the source."""
    parameters = StdioServerParameters(command=command[0], args=command[1:], env=env, cwd=cwd)
    async with logged_output(source) as output, stdio_client(parameters, errlog=output) as streams:
        yield streams


@asynccontextmanager
async def over_http(url: str, route: Route) -> AsyncGenerator[_Streams, None]:
    proxy = route.proxy
    async with (
        _HttpClient(
            headers={"User-Agent": "a2a-gateway", **route.headers},
            # Reads have no timeout: a tool may send nothing until its call ends, and the call has a timeout of its own.
            timeout=httpx2.Timeout(_CONNECT_SECONDS, read=None),
            limits=httpx2.Limits(keepalive_expiry=CLIENT_KEEP_ALIVE),
            verify=client_context(route.ca),
            proxy=None if proxy is None else httpx2.Proxy(proxy.url, headers=proxy.headers),
            trust_env=False,
        ) as http,
        streamable_http_client(url, http_client=http, max_sse_event_size=_EVENT_LIMIT) as streams,
    ):
        yield streams


class _HttpClient(httpx2.AsyncClient):
    """Notes the answers to the messages of the current call, which are POSTs: a GET only fetches what a server has to say."""

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        try:
            response = await super().send(request, **options)
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.ProxyError):
            _note(request, _NOT_SENT)
            raise
        _note(request, response.status_code)
        return response


def _note(request: httpx2.Request, status: int) -> None:
    if request.method == "POST":
        http_answers.get([]).append(HttpAnswer(status, "mcp-session-id" in request.headers))


@asynccontextmanager
async def observed(
    transport: Transport, ended: asyncio.Event, received: Callable[[object], None]
) -> AsyncGenerator[_Streams, None]:
    """The same transport, which also sets `ended` when its stream has ended. `received` sees each message before the library,
    and may change it."""
    async with transport as (read, write):
        yield _ObservedStream(read, ended, received), write


class _ObservedStream:
    """Passes every access on to the stream that it wraps, and sets `ended` at the end of that stream."""

    def __init__(self, stream: Any, ended: asyncio.Event, received: Callable[[object], None]) -> None:
        self._stream = stream
        self._ended = ended
        self._received = received

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        try:
            message = await anext(self._stream)
        except (StopAsyncIteration, anyio.ClosedResourceError, asyncio.CancelledError):
            self._ended.set()  # the library cancels its reader when the transport has failed
            raise
        self._received(message)
        return message

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> Any:
        return await self._stream.__aexit__(*error)


class Connection:
    """A connection that starts to open when it is made. `over` becomes true when the connection was closed or lost or
    could not be opened, and then stays true."""

    def __init__(
        self,
        source: str,
        transport: Transport,
        open_error: Callable[[str], ToolError] = ToolError,
        secrets: Iterable[str] = (),
        *,
        is_child: bool = False,
    ) -> None:
        """`source` is the name for the log. `open_error` makes the error of a connection that could not be opened, from a
        description of the reason. `secrets` are masked wherever the server quotes them in an error.

        `is_child`: the server is a child process, which has one stream for all calls. When a call is given up, the server is
        asked whether it answers at all; if not, it is ended, and no call is sent to it meanwhile.
        """
        self._is_child = is_child
        self._check: asyncio.Task[None] | None = None
        self._secrets = pattern_of(secrets, begun=True)
        self._source = source
        self._transport = transport
        self._open_error = open_error
        self._opened: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self._ending = asyncio.Event()
        self._scope = anyio.CancelScope()
        self._list_lock = asyncio.Lock()
        self._listed: tuple[SourceTool, ...] = ()
        self._results = ResultChecks()
        self._is_listed = False
        self._announces_changes = True
        self._changes = 0
        # The task is in no task group, because the connection outlives a turn. `aclose` waits for the task.
        self._task = asyncio.get_running_loop().create_task(self._run(), context=contextvars.Context())

    @property
    def over(self) -> bool:
        return self._ending.is_set()

    @property
    def closed(self) -> bool:
        """Whether the connection is over and its task has ended."""
        return self._task.done()

    async def tools(self) -> tuple[SourceTool, ...]:
        """The tools of the server. The result is the same tuple until the tools change. Raises: ToolError; SessionExpired."""
        await asyncio.shield(self._opened)
        async with self._list_lock:
            if not self._is_listed:
                client = await self._sound()
                before = self._changes
                with self._exchange():
                    found = tuple([tool async for tool in _list_tools(client, self._results)])
                self._listed = self._listed if found == self._listed else found
                self._is_listed = self._announces_changes and before == self._changes
            return self._listed

    async def call(self, run: ToolRun) -> ToolOutput:
        """Calls the tool. Raises: ToolError; SessionExpired when the tool has not run, so that the call can be made on
        another connection."""
        client = await self._sound()
        with self._exchange():
            return await _call(client, run)

    async def _sound(self) -> Client:
        """The client, when the connection is open and in no doubt. Raises: ToolError; SessionExpired when it is over."""
        client = await asyncio.shield(self._opened)
        if self._check is not None:
            await asyncio.wait({self._check})
        if self.over:
            raise SessionExpired("the connection has ended")
        return client

    @contextmanager
    def _exchange(self) -> Iterator[None]:
        """Surrounds the requests of one call. A session that has expired ends the connection, and so does a child that answers
        nothing any more after a call was given up.

        Raises: ToolError, ConsentNeeded and SessionExpired in place of the library's errors.
        """
        answers: list[HttpAnswer] = []
        token = http_answers.set(answers)
        try:
            yield
        except asyncio.CancelledError:
            self._doubt()
            raise
        except MCPError as error:
            if answers and _is_expired(answers[-1], error.code):
                self._ending.set()
                raise SessionExpired(self._describe(error, answers)) from error
            if error.code == types.URL_ELICITATION_REQUIRED:
                raise ConsentNeeded(self._describe(error, answers), tuple(_consent_pages(error.data))) from error
            raise ToolError(self._describe(error, answers), may_have_run=_may_have_run(error, answers)) from error
        except Exception as error:  # noqa: BLE001  # of the library or a server
            # The error may hold the request with its headers, so the new error is not chained to it.
            failed = ToolError(self._describe(error, answers), may_have_run=_may_have_run(error, answers))
        else:
            return
        finally:
            http_answers.reset(token)
        raise failed

    def _doubt(self) -> None:
        """Begins to check whether the server still answers, if that is not being checked."""
        if self._is_child and not self.over and (self._check is None or self._check.done()):
            # In no task group, because the check must not delay the turn that has given up.
            self._check = asyncio.get_running_loop().create_task(self._ping(), context=contextvars.Context())

    async def _ping(self) -> None:
        """Ends the connection when the server does not answer."""
        try:
            async with asyncio.timeout(_PING_SECONDS):
                await self._opened.result().session.send_request(types.PingRequest(), types.EmptyResult)
        except TimeoutError:
            log.error("tools.stalled", source=self._source, waited=_PING_SECONDS)
            self._ending.set()
        except (MCPError, ValidationError):
            """A refusal is an answer too, and a connection that has closed is over without this."""

    def _describe(self, error: BaseException, answers: Sequence[HttpAnswer]) -> str:
        text = _description(error, answers)
        return text if self._secrets is None else self._secrets.sub("***", text)

    async def aclose(self) -> None:
        self._ending.set()
        if not self._opened.done():
            self._scope.cancel()
        await asyncio.wait({self._task} if self._check is None else {self._task, self._check})

    async def _run(self) -> None:
        answers: list[HttpAnswer] = []
        http_answers.set(answers)
        failed = ToolError("it was closed")
        identity = types.Implementation(name="a2a-gateway", version=version("a2a-gateway"))
        try:
            with self._scope:
                self._scope.deadline = anyio.current_time() + _OPEN_SECONDS
                transport = observed(self._transport, self._ending, self._make_readable)
                async with Client(
                    transport, cache=None, client_info=identity, message_handler=self._on_message
                ) as client:
                    # The library's own check of a result may take any time, and stops the event loop.
                    client.session.validate_tool_result = self._results.check  # type: ignore[method-assign]
                    self._scope.deadline = math.inf
                    self._opened.set_result(client)
                    await self._until_ending(client)
                    self._scope.deadline = anyio.current_time() + _CLOSE_SECONDS
            if self._scope.cancelled_caught and anyio.current_time() >= self._scope.deadline:
                failed = self._open_error(f"it did not open within {_OPEN_SECONDS} s")
        except Exception as error:  # noqa: BLE001  # of the library or a server: the callers get it
            failed = _tls_failed(error) or self._open_error(self._describe(error, answers) + _hint(error, answers))
        finally:
            self._ending.set()
            if not self._opened.done():
                self._opened.set_exception(failed)
                self._opened.exception()  # asyncio logs an exception that is never retrieved

    async def _until_ending(self, client: Client) -> None:
        async with anyio.create_task_group() as group:
            tools = client.server_capabilities.tools
            if client.protocol_version in MODERN_PROTOCOL_VERSIONS and tools is not None and tools.list_changed:
                self._announces_changes = False
                group.start_soon(self._subscribe, client)
            await self._ending.wait()
            group.cancel_scope.cancel()

    async def _subscribe(self, client: Client) -> None:
        """Subscribes to changes of the list of tools: servers with a protocol version of 2026 announce them to
        subscribers only. Without a subscription, every use reads the list again."""
        try:
            async with client.listen(tools_list_changed=True) as changes:
                self._announces_changes = bool(changes.honored.tools_list_changed)
                self._invalidate_list()  # the list may have changed before the subscription
                async for _ in changes:
                    self._invalidate_list()
        except (ListenNotSupportedError, SubscriptionLost, MCPError, TimeoutError):
            """These errors have the same effect as the end of the stream."""
        self._announces_changes = False
        self._invalidate_list()

    def _make_readable(self, message: object) -> None:
        """Takes the tools that the library cannot read out of a list of tools, and makes texts of the blocks of a tool's result
        that it cannot read: it refuses the whole list for one of them, and the result of a tool that has run."""
        match message:
            case SessionMessage(message=types.JSONRPCResponse(result={"tools": [*tools]} as result)):
                result["tools"] = [tool for tool in tools if self._is_readable(tool, result, self._version)]
            case SessionMessage(message=types.JSONRPCResponse(result={"content": [*blocks]} as result)):
                if not _is_readable_result(result, self._version):
                    result["content"] = [
                        block if _is_readable_result(result | {"content": [block]}, self._version) else _as_text(block)
                        for block in blocks
                    ]

    @property
    def _version(self) -> str:
        return self._opened.result().protocol_version if self._opened.done() else LATEST_PROTOCOL_VERSION

    def _is_readable(self, tool: Any, page: dict[str, Any], version: str) -> bool:
        """Whether the library can read a page with this tool alone."""
        try:
            validate_server_result("tools/list", version, page | {"tools": [tool]})
            types.Tool.model_validate(tool, by_name=False)
        except ValidationError as error:
            found = error.errors(include_url=False, include_context=False)[0]
            name = tool.get("name") if isinstance(tool, dict) else None
            where = ".".join(map(str, found["loc"]))
            log.error("tool.left-out", source=self._source, tool=name, reason=f"{where}: {found['msg']}")
            return False
        return True

    async def _on_message(self, message: IncomingMessage) -> None:
        match message:
            case types.ToolListChangedNotification():
                self._invalidate_list()
            case Exception():
                log.info("tools.output", source=self._source, line=_written(message)[:_LINE_LENGTH])

    def _invalidate_list(self) -> None:
        self._changes += 1
        self._is_listed = False


# --- errors of the library --------------------------------------------------------------------------------------------


def _is_expired(answer: HttpAnswer, code: int) -> bool:
    codes = _EXPIRED.get(answer.status, frozenset())
    return answer.in_session and (codes is None or code in codes)


def _may_have_run(error: Exception, answers: Sequence[HttpAnswer]) -> bool:
    """Whether the server may have carried out the request that ended with this error."""
    status = answers[-1].status if answers else None
    if status is not None and (status == _NOT_SENT or (400 <= status < 500 and status != 408)):
        return False
    if isinstance(error, MCPError) and error.code == types.INVALID_REQUEST:
        return status is not None  # over HTTP the library itself makes this error, of an answer that is none
    return not isinstance(error, MCPError) or error.code not in _NOT_RUN


def _written(error: Exception) -> str:
    """What a server wrote instead of a message."""
    match error:
        case ValidationError():
            found = error.errors(include_url=False, include_context=False)[0]["input"]
            return found if isinstance(found, str) else msgspec.json.encode(found).decode()
        case _:
            return f"{type(error).__name__}: {error}"


def _description(error: BaseException, answers: Sequence[HttpAnswer]) -> str:
    status = f"HTTP {answers[-1].status}: " if answers and answers[-1].status >= 400 else ""
    return status + "; ".join(dict.fromkeys(map(_text, _leaves(error))))


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from _leaves(each)
    else:
        yield error


def _text(error: BaseException) -> str:
    if isinstance(error, MCPError):
        # Behind the colon the library puts the whole answer, and pydantic's errors.
        return error.message.partition(": ")[0] if error.code == types.PARSE_ERROR else error.message
    if isinstance(error, httpx2.ProxyError):
        return f"the proxy answers {error}"
    return tls_problem(error, "`ca`") or f"{type(error).__name__}: {error}"


def _hint(error: BaseException, answers: Sequence[HttpAnswer]) -> str:
    """Most servers of TLS say nothing to a first request in plain text."""
    for each in () if answers else _leaves(error):
        if isinstance(each, httpx2.RemoteProtocolError) and str(each).startswith("Server disconnected"):
            return f"; {ADDRESS_OF_TLS}" if each.request.url.scheme == "http" else ""
    return ""


def _tls_failed(error: BaseException) -> TlsFailed | None:
    problems = (tls_problem(each, "`ca`") for each in _leaves(error))
    return next((TlsFailed(problem) for problem in problems if problem is not None), None)


def _consent_pages(data: Json) -> Iterator[ConsentPage]:
    """The consent pages that the error data name. Source: MCP 2025-11-25, URLElicitationRequiredError."""
    match data:
        case {"elicitations": [*elicitations]}:
            for one in elicitations:
                match one:
                    case {"url": str(url), **more}:
                        why = more.get("message")
                        yield ConsentPage(url, why if isinstance(why, str) else "")


# --- requests ---------------------------------------------------------------------------------------------------------


class ResultChecks:
    """The checks of results by the output schemas of the listed tools."""

    def __init__(self) -> None:
        self._schemas: dict[str, dict[str, Json] | None] = {}
        self._checkers: dict[str, Checker] = {}

    def expect(self, name: str, schema: dict[str, Json] | None) -> None:
        if schema != self._schemas.get(name):
            self._checkers.pop(name, None)
        self._schemas[name] = schema

    async def check(self, name: str, result: types.CallToolResult) -> None:
        """Raises: RuntimeError for a result that does not fit, as the library does."""
        schema = self._schemas.get(name)
        if schema is None:
            return
        if result.structured_content is None and "structured_content" not in result.model_fields_set:
            raise RuntimeError(f"Tool {name} has an output schema but did not return structured content")
        try:
            wrong = await asyncio.to_thread(self._complaint, name, schema, result.structured_content)
        except StepsUsedUp:
            log.warning("tool.result-not-checked", tool=name, reason="that would take too long with its output schema")
            return
        if wrong is not None:
            raise RuntimeError(f"Invalid structured content returned by tool {name}: {wrong}")

    def _complaint(self, name: str, schema: dict[str, Json], value: Json) -> str | None:
        checker = self._checkers.get(name)
        if checker is None:
            try:
                checker = self._checkers[name] = compiled(schema)
            except SchemaRefused as error:
                raise RuntimeError(f"Invalid output schema of tool {name}: {error}") from error
        return checker.complaint(value, Steps(_RESULT_STEPS))


async def _list_tools(client: Client, results: "ResultChecks") -> AsyncIterator[SourceTool]:
    cursor: str | None = None
    for _ in range(_PAGES):
        page = await client.list_tools(cursor=cursor)
        for tool in page.tools:
            results.expect(tool.name, tool.output_schema)
            hints = tool.annotations or types.ToolAnnotations()
            idempotent = bool(hints.read_only_hint or hints.idempotent_hint)
            yield SourceTool(tool.name, tool.description or hints.title or tool.name, tool.input_schema, idempotent)
        cursor = page.next_cursor
        if cursor is None:
            return
    raise ToolError(f"its list of tools has more than {_PAGES} pages")


async def _call(client: Client, run: ToolRun) -> ToolOutput:
    # The cast is needed because the type of `meta` has only the keys that the library itself sends.
    meta = cast("types.RequestParamsMeta", {_KEY: run.key, **trace.current_headers()})
    is_over = False

    async def report(progress: float, total: float | None, message: str | None) -> None:
        if not is_over:  # the library may still deliver progress after the result
            run.progress(message or (f"{progress:g} of {total:g}" if total else f"{progress:g}"))

    try:
        return _output(await client.call_tool(run.name, run.arguments, progress_callback=report, meta=meta))
    except MCPError as error:
        if error.code == types.INVALID_PARAMS:
            return ToolOutput(error.message, error=True)
        raise
    finally:
        is_over = True


def _is_readable_result(result: dict[str, Any], version: str) -> bool:
    """Whether the library can read this result of a tool."""
    try:
        validate_server_result("tools/call", version, result)
    except ValidationError:
        return False
    return True


def _as_text(block: Json) -> dict[str, Json]:
    """The JSON of a block in a block that every version of the protocol has."""
    return {"type": "text", "text": msgspec.json.encode(block).decode()}


def _output(result: types.CallToolResult) -> ToolOutput:
    if result.structured_content is not None and not result.is_error:
        return ToolOutput(result.structured_content)
    output: Json
    match result.content:
        case []:
            output = None
        case [types.TextContent(text=text)]:
            output = text
        case blocks:
            output = [block.model_dump(mode="json", by_alias=True, exclude_none=True) for block in blocks]
    return ToolOutput(output, error=bool(result.is_error))
