"""One connection to an MCP server. Law: a task of its own opens and closes it, as its library demands; what was under way
when it ended failed, and is not done again here.

Import it only where it is used: the `mcp` package is an extra, and takes most of a second.
"""

import asyncio
import contextvars
import math
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from types import TracebackType
from typing import Any, Self, cast

import anyio
import httpx2
import mcp_types as types
from mcp import Client, StdioServerParameters
from mcp.client.session import IncomingMessage
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.client.subscriptions import ListenNotSupportedError, SubscriptionLost
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from adapters.tools.mcp_errors import SessionExpired
from gateway.a2a.model import Json
from gateway.foundation.keep_alive import CLIENT_KEEP_ALIVE
from gateway.ports.tools import ConsentNeeded, ConsentPage, SourceTool, ToolError, ToolOutput, ToolRun

_OPEN_SECONDS = 60
_CLOSE_SECONDS = 5
_CONNECT_SECONDS = 10
_EVENT_LIMIT = 4 * 1024 * 1024
_PAGES = 100

_KEY = "a2a-gateway.dev/idempotency-key"

_Message = SessionMessage | Exception
_Streams = tuple[Any, Any]
Transport = AbstractAsyncContextManager[_Streams]


@dataclass(frozen=True, slots=True)
class _Answer:
    """An HTTP answer, and whether the request named a session."""

    status: int
    in_session: bool


_answers: ContextVar[list[_Answer]] = ContextVar("answers")
"""Those to what one call sends: its library keeps them for itself."""

# Most servers answer 404 for a session that they do not know, as the specification asks. Many were made from an example
# that answers 400, with an error of no call in particular.
_FORGOTTEN = {404: None, 400: frozenset({types.CONNECTION_CLOSED, types.INTERNAL_ERROR})}


def over_stdio(command: list[str], env: dict[str, str], cwd: Path | None) -> Transport:
    """The server gets this environment and the few variables that programs need, none of the gateway's secrets.

    What it writes to stderr goes where the gateway's goes.
    """
    parameters = StdioServerParameters(command=command[0], args=command[1:], env=env, cwd=cwd)
    return stdio_client(parameters, errlog=sys.__stderr__ or sys.stderr)


@asynccontextmanager
async def over_http(url: str, headers: dict[str, str]) -> AsyncGenerator[_Streams, None]:
    async with (
        httpx2.AsyncClient(
            headers={"User-Agent": "a2a-gateway", **headers},
            # A tool may be silent for as long as a call may take.
            timeout=httpx2.Timeout(_CONNECT_SECONDS, read=None),
            limits=httpx2.Limits(keepalive_expiry=CLIENT_KEEP_ALIVE),
            trust_env=False,
            event_hooks={"response": [_note]},
        ) as http,
        streamable_http_client(url, http_client=http, max_sse_event_size=_EVENT_LIMIT) as streams,
    ):
        yield streams


async def _note(response: httpx2.Response) -> None:
    _answers.get([]).append(_Answer(response.status_code, "mcp-session-id" in response.request.headers))


class Connection:
    """Opens at once, and is `over` for good when it was closed, lost, or could not be opened."""

    def __init__(self, transport: Transport, refusal: Callable[[str], ToolError] = ToolError) -> None:
        """`refusal` makes the error of a connection that could not be opened from what is known of the reason."""
        self._transport = transport
        self._refusal = refusal
        self._opened: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self._ending = asyncio.Event()
        self._scope = anyio.CancelScope()
        self._list_lock = asyncio.Lock()
        self._listed: tuple[SourceTool, ...] = ()
        self._is_listed = False
        self._tells_changes = True
        self._changes = 0
        # In no group: it lasts from one turn to another, and `aclose` waits for it.
        live = self._live()
        self._task = asyncio.get_running_loop().create_task(live, context=contextvars.Context())

    @property
    def over(self) -> bool:
        return self._ending.is_set()

    @property
    def gone(self) -> bool:
        """Over, and nothing of it is left."""
        return self._task.done()

    async def tools(self) -> tuple[SourceTool, ...]:
        """The very same tuple as long as they are the same. Raises: ToolError."""
        client = await asyncio.shield(self._opened)
        async with self._list_lock:
            if not self._is_listed:
                before = self._changes
                found = await self._asked_for_tools(client)
                self._listed = self._listed if found == self._listed else found
                self._is_listed = self._tells_changes and before == self._changes
            return self._listed

    async def _asked_for_tools(self, client: Client) -> tuple[SourceTool, ...]:
        with self._exchange() as answers, _mapped(answers):
            return tuple([tool async for tool in _all_tools(client)])

    async def call(self, run: ToolRun) -> ToolOutput:
        """Raises: ToolError; SessionForgotten when the call was not carried out and can be made on another connection."""
        client = await asyncio.shield(self._opened)
        with self._exchange() as answers, _mapped(answers):
            return await _called(client, run)

    @contextmanager
    def _exchange(self) -> Iterator[list[_Answer]]:
        """The answers to what is sent within. A session that the server has forgotten ends the connection."""
        answers: list[_Answer] = []
        token = _answers.set(answers)
        try:
            yield answers
        except SessionExpired:
            self._ending.set()
            raise
        finally:
            _answers.reset(token)

    async def aclose(self) -> None:
        self._ending.set()
        if not self._opened.done():
            self._scope.cancel()
        await asyncio.wait({self._task})

    async def _live(self) -> None:
        answers: list[_Answer] = []
        _answers.set(answers)
        failed = ToolError("it was closed")
        try:
            with self._scope:
                self._scope.deadline = anyio.current_time() + _OPEN_SECONDS
                transport = _watched(self._transport, self._ending)
                async with Client(
                    transport, cache=None, client_info=_identity(), message_handler=self._heard
                ) as client:
                    self._scope.deadline = math.inf
                    self._opened.set_result(client)
                    await self._lasting(client)
                    self._scope.deadline = anyio.current_time() + _CLOSE_SECONDS
            if self._scope.cancelled_caught and not self._ending.is_set():
                failed = self._refusal(f"it did not open within {_OPEN_SECONDS} s")
        except Exception as error:  # noqa: BLE001  # a library's, a server's: told to whoever waits
            failed = self._refusal(_told(error, answers))
        finally:
            self._ending.set()
            if not self._opened.done():
                self._opened.set_exception(failed)
                self._opened.exception()  # asked for, or asyncio reports it as forgotten

    async def _lasting(self, client: Client) -> None:
        async with anyio.create_task_group() as group:
            tools = client.server_capabilities.tools
            if client.protocol_version in MODERN_PROTOCOL_VERSIONS and tools is not None and tools.list_changed:
                self._tells_changes = False
                group.start_soon(self._listen, client)
            await self._ending.wait()
            group.cancel_scope.cancel()

    async def _listen(self, client: Client) -> None:
        """Servers of 2026 tell changes only to those who listen; until they do, the list is asked for every time."""
        try:
            async with client.listen(tools_list_changed=True) as changes:
                self._tells_changes = bool(changes.honored.tools_list_changed)
                self._forget_list()  # what was listed before may have changed unheard
                async for _ in changes:
                    self._forget_list()
        except (ListenNotSupportedError, SubscriptionLost, MCPError, TimeoutError):
            """The same as a stream that ends."""
        self._tells_changes = False
        self._forget_list()

    async def _heard(self, message: IncomingMessage) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            self._forget_list()

    def _forget_list(self) -> None:
        self._changes += 1
        self._is_listed = False


# --- how a connection ends --------------------------------------------------------------------------------------------


@asynccontextmanager
async def _watched(transport: Transport, ended: asyncio.Event) -> AsyncGenerator[_Streams, None]:
    """The same transport; `ended` is set when the server says nothing more: its library keeps that for itself."""
    async with transport as (read, write):
        yield _Watched(read, ended), write


class _Watched:
    """A stream to read from."""

    def __init__(self, stream: Any, ended: asyncio.Event) -> None:
        self._stream = stream
        self._ended = ended

    @property
    def last_context(self) -> contextvars.Context | None:
        context: contextvars.Context | None = getattr(self._stream, "last_context", None)
        return context

    async def receive(self) -> _Message:
        message: _Message = await self._stream.receive()
        return message

    async def aclose(self) -> None:
        await self._stream.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> _Message:
        try:
            message: _Message = await anext(self._stream)
        except (StopAsyncIteration, anyio.ClosedResourceError):
            self._ended.set()
            raise
        return message

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        handled: bool | None = await self._stream.__aexit__(kind, error, trace)
        return handled


# --- what its library raises ------------------------------------------------------------------------------------------


@contextmanager
def _mapped(answers: Sequence[_Answer] = ()) -> Iterator[None]:
    """Raises: ToolError and SessionForgotten for whatever the library raises."""
    try:
        yield
    except MCPError as error:
        if answers and _is_forgotten(answers[-1], error.code):
            raise SessionExpired(_told(error, answers)) from error
        if error.code == types.URL_ELICITATION_REQUIRED:
            raise ConsentNeeded(_told(error, answers), tuple(_pages(error.data))) from error
        raise ToolError(_told(error, answers)) from error
    except Exception as error:  # noqa: BLE001  # a library's, a server's
        # It may hold the request, and so the headers: not chained.
        failed = ToolError(_told(error, answers))
    else:
        return
    raise failed


def _is_forgotten(answer: _Answer, code: int) -> bool:
    codes = _FORGOTTEN.get(answer.status, frozenset())
    return answer.in_session and (codes is None or code in codes)


def _told(error: BaseException, answers: Sequence[_Answer]) -> str:
    status = f"HTTP {answers[-1].status}: " if answers and answers[-1].status >= 400 else ""
    return status + "; ".join(dict.fromkeys(_leaves(error)))


def _leaves(error: BaseException) -> Iterator[str]:
    match error:
        case BaseExceptionGroup():
            for below in error.exceptions:
                yield from _leaves(below)
        case MCPError():
            yield error.message
        case _:
            yield f"{type(error).__name__}: {error}"


# --- between its words and ours ---------------------------------------------------------------------------------------


def _identity() -> types.Implementation:
    return types.Implementation(name="a2a-gateway", version=version("a2a-gateway"))


async def _all_tools(client: Client) -> AsyncIterator[SourceTool]:
    cursor: str | None = None
    for _ in range(_PAGES):
        page = await client.list_tools(cursor=cursor)
        for tool in page.tools:
            hints = tool.annotations or types.ToolAnnotations()
            repeatable = bool(hints.read_only_hint or hints.idempotent_hint)
            yield SourceTool(tool.name, tool.description or hints.title or tool.name, tool.input_schema, repeatable)
        cursor = page.next_cursor
        if cursor is None:
            return
    raise ToolError(f"its list of tools has more than {_PAGES} pages")


async def _called(client: Client, run: ToolRun) -> ToolOutput:
    # Its type has only the keys that the library itself sends.
    meta = cast("types.RequestParamsMeta", {_KEY: run.key})
    is_over = False

    async def report(progress: float, total: float | None, message: str | None) -> None:
        if not is_over:  # the library may still be busy with one when the result is there
            run.progress(message or (f"{progress:g} of {total:g}" if total else f"{progress:g}"))

    try:
        return _output(await client.call_tool(run.name, run.arguments, progress_callback=report, meta=meta))
    except MCPError as error:
        if error.code == types.INVALID_PARAMS:
            return ToolOutput(error.message, error=True)
        raise
    finally:
        is_over = True


def _pages(data: Json) -> Iterator[ConsentPage]:
    """Source: MCP 2025-11-25, URLElicitationRequiredError."""
    match data:
        case {"elicitations": [*asked]}:
            for one in asked:
                match one:
                    case {"url": str(url), **more}:
                        why = more.get("message")
                        yield ConsentPage(url, why if isinstance(why, str) else "")


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
