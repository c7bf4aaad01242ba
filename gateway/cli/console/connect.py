"""Calls to the server that a command line names, and their errors as ends of commands."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from types import MappingProxyType
from typing import TypeVar

import httpx2

from gateway.a2a.tool_calls import URI as TOOL_CALLS
from gateway.cli.console.address import AgentAddress, environment_proxy
from gateway.cli.console.output import ExitCode, Stop
from gateway.client.admin import NoAdminApi
from gateway.client.client import Client, Retry
from gateway.client.discovery import Binding, Endpoint, discover
from gateway.client.transport import (
    ClientError,
    NoConnection,
    NotA2A,
    Refused,
    StreamLost,
    TlsFailed,
    Unreachable,
    open_http,
)
from gateway.config.problems import shown_url

_TASK_NOT_FOUND = -32001

ClientT = TypeVar("ClientT")
T = TypeVar("T")


class _ProxyFailed(Unreachable):
    """The proxy did not let the request through, or is not there."""


def call(
    opened: contextlib.AbstractAsyncContextManager[ClientT],
    operation: Callable[[ClientT], Awaitable[T]],
    guard: contextlib.AbstractContextManager[object] | None = None,
) -> T:
    """The result of one operation of a client. `guard` may explain its errors. Raises: Stop."""

    async def run() -> T:
        async with opened as client:
            return await operation(client)

    with client_errors_stop(), guard or contextlib.nullcontext():
        return asyncio.run(run())


def call_admin(
    address: AgentAddress, operation: Callable[[httpx2.AsyncClient], Awaitable[T]], group: str = "contexts"
) -> T:
    """Does what `call` does, with the administration API. `group` is the group of commands one of which lists the
    objects that exist."""
    guard = _must_exist(address, group, lambda error: f"{address.url}: {error}" if error.status == 404 else None)
    return call(open_address(address), operation, guard)


@contextlib.asynccontextmanager
async def open_address(
    address: AgentAddress, extensions: Mapping[str, str] = MappingProxyType({})
) -> AsyncIterator[httpx2.AsyncClient]:
    """Connections to this address. `extensions` are headers that those of the user override. Raises: ClientError."""
    headers = {**extensions, **address.request_headers}
    async with open_http(address.url, headers, address.ca, address.proxy) as http:
        try:
            yield http
        except Unreachable as error:
            through = environment_proxy(address.url) if address.proxy is None else ("--proxy", address.proxy)
            if through is None:
                raise
            kind = _ProxyFailed if isinstance(error, NoConnection) else type(error)
            text = f"{error} (through the proxy {shown_url(through[1])}, of {through[0]})"
            raise kind(text) from error


@contextlib.asynccontextmanager
async def open_client(
    address: AgentAddress, retry: Retry | None = None, sleep: Callable[[float], Awaitable[object]] = asyncio.sleep
) -> AsyncIterator[Client]:
    """A client of that agent, which is asked for tool calls unless the user named other extensions. Raises: ClientError."""
    named = any(name.lower() == "a2a-extensions" for name in address.headers)
    extensions = {} if named else {"A2A-Extensions": TOOL_CALLS}
    async with open_address(address, extensions) as http:
        binding = None if address.binding is None else Binding[address.binding.upper()]
        endpoint = await discover(http, address.url, address.agent, binding)
        try:
            yield Client(http, endpoint, retry, sleep)
        except Unreachable as error:
            raise type(error)(f"{error}{_origin(address, endpoint)}") from error


def _origin(address: AgentAddress, endpoint: Endpoint) -> str:
    """A URL that the user did not type comes from a card, which may be wrong about it."""
    if endpoint.card is None or endpoint.url.startswith(address.url.rstrip("/")):
        return ""
    return f" (the card at {endpoint.card} names this address)"


@contextlib.contextmanager
def client_errors_stop() -> Iterator[None]:
    """Raises: Stop for every ClientError."""
    try:
        yield
    except ClientError as error:
        raise stop_for(error) from error


def stop_for(error: ClientError) -> Stop:
    match error:
        case Refused(status=401) | Refused(reason="UNAUTHENTICATED"):
            remedy = "Give an API key that is in force (--key, or A2A_GATEWAY_KEY) or --header 'Authorization: ...'"
            return Stop(ExitCode.NOT_AUTHORISED, f"not authorised: {error}\n{remedy}")
        case Refused(status=403) | Refused(reason="PERMISSION_DENIED"):
            remedy = "Give a key that may do this (--key, or A2A_GATEWAY_KEY)"
            return Stop(
                ExitCode.NOT_AUTHORISED,
                f"not authorised: {error}\n{remedy}; for the admin API: keys create NAME --admin",
            )
        case Refused(status=407):
            remedy = (
                "A proxy asks for credentials: name it as http://user:password@host:port, in --proxy or HTTPS_PROXY."
            )
            return Stop(ExitCode.UNREACHABLE, f"{error}\n{remedy}")
        case Refused(status=404 | 405, unexplained=True):
            remedy = "There is no A2A agent at this address. Another is given with -u URL."
            return Stop(ExitCode.UNREACHABLE, f"{error}\n{remedy}")
        case Refused(status=429 | 503):
            when = f"in {error.retry_after:g} s" if error.retry_after else "later"
            return Stop(ExitCode.TRY_AGAIN, f"{error}\nTry again {when}.")
        case Refused() if error.status < 500:
            return Stop(ExitCode.UNEXPECTED, f"the agent refused: {error}")
        case _ProxyFailed():
            remedy = "Is the proxy right? Another is given with --proxy URL; NO_PROXY names hosts that need none."
            return Stop(ExitCode.UNREACHABLE, f"{error}\n{remedy}")
        case TlsFailed():
            return Stop(ExitCode.UNREACHABLE, str(error))
        case Unreachable():
            return Stop(ExitCode.UNREACHABLE, f"{error}\nIs it running? Another address is given with -u URL.")
        case Refused() | NotA2A() | NoAdminApi():
            return Stop(ExitCode.UNREACHABLE, str(error))
        case StreamLost():
            return Stop(ExitCode.TRY_AGAIN, str(error))
        case _:
            return Stop(ExitCode.UNEXPECTED, str(error))


def task_must_exist(address: AgentAddress, task: str) -> contextlib.AbstractContextManager[None]:
    """Raises: Stop for a task that the agent does not know, with the command that lists those it does."""

    def missing(error: Refused) -> str | None:
        unknown = error.code == _TASK_NOT_FOUND or error.reason == "TASK_NOT_FOUND"
        return f"there is no task {task!r} at {address.text}" if unknown else None

    return _must_exist(address, "tasks", missing)


@contextlib.contextmanager
def _must_exist(address: AgentAddress, group: str, missing: Callable[[Refused], str | None]) -> Iterator[None]:
    """Raises: Stop where `missing` has a text for the error."""
    try:
        yield
    except Refused as error:
        text = missing(error)
        if text is None:
            raise
        raise not_found(address, text, group) from error


def not_found(address: AgentAddress, text: str, group: str) -> Stop:
    """The end of a command for an object that does not exist. `group` is the group of commands one of which lists the
    objects that exist."""
    return Stop(ExitCode.UNEXPECTED, f"{text}\nThose that are there: {address.command(group, 'list')}")
