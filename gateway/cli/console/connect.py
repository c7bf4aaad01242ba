"""Which agent a command line means, how to get there, and how to say so again.

Errors of the client as ends of commands.
"""

import asyncio
import os
import shlex
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass

from gateway.a2a.tool_calls import URI as TOOL_CALLS
from gateway.cli.console.exits import ExitCode, Stop
from gateway.cli.console.parameters import (
    DEFAULT_URL,
    KEY_VARIABLE,
    BindingChoice,
    read_headers,
    read_key,
    read_url,
    with_key,
)
from gateway.cli.console.terminal import program
from gateway.client.admin import NotOurGateway
from gateway.client.client import Client, Retry
from gateway.client.discovery import Binding, Endpoint, discover
from gateway.client.transport import ClientError, NotA2A, Refused, StreamLost, Unreachable, open_http

_BINDINGS = {BindingChoice.jsonrpc: Binding.JSONRPC, BindingChoice.rest: Binding.REST}


@dataclass(frozen=True, slots=True)
class Reach:
    """An agent as it was typed; `headers` go with every request, and so does the API key."""

    url: str
    agent: str | None
    binding: BindingChoice | None
    headers: dict[str, str]
    key: str | None = None

    @property
    def sent(self) -> dict[str, str]:
        """The headers of every request."""
        return with_key(self.headers, self.key)

    @property
    def words(self) -> list[str]:
        """The options that lead there again. The values of headers, which may be secret, are left out."""
        words: list[str] = []
        if self.url != DEFAULT_URL:
            words += ["-u", self.url]
        if self.agent is not None:
            words += ["-a", self.agent]
        if self.binding is not None:
            words += ["--binding", self.binding.value]
        for name in self.headers:
            words += ["--header", f"{name}: ..."]
        if self.key is not None and self.key != os.environ.get(KEY_VARIABLE):
            words += ["--key", "..."]
        return words

    @property
    def place(self) -> str:
        """For the middle of a sentence."""
        return self.url if self.agent is None else f"{self.url}, agent {self.agent!r}"

    def command(self, *words: str, argument: str | None = None) -> str:
        """A command line to copy; `argument` stands last and may look like an option."""
        last = [] if argument is None else [*(["--"] if argument.startswith("-") else []), argument]
        return f"{program()} {shlex.join([*words, *self.words, *last])}"


def reach(
    agent: str | None,
    url: str,
    binding: BindingChoice | None,
    headers: Sequence[str] | None,
    key: str | None = None,
) -> Reach:
    """`agent` may be an address, too. Raises: Stop (2)."""
    if agent is not None and "://" in agent:
        url, agent = agent, None
    return Reach(read_url(url), agent, binding, read_headers(headers or ()), read_key(key))


@asynccontextmanager
async def connected(
    there: Reach, retry: Retry | None = None, sleep: Callable[[float], Awaitable[object]] = asyncio.sleep
) -> AsyncIterator[Client]:
    """A client of that agent, which is asked for tool calls. Raises: ClientError."""
    asked = {} if any(name.lower() == "a2a-extensions" for name in there.headers) else {"A2A-Extensions": TOOL_CALLS}
    async with open_http(there.url, asked | there.sent) as http:
        binding = None if there.binding is None else _BINDINGS[there.binding]
        endpoint = await discover(http, there.url, there.agent, binding)
        try:
            yield Client(http, endpoint, retry, sleep)
        except Unreachable as error:
            raise Unreachable(f"{error}{_origin(there, endpoint)}") from error


def _origin(there: Reach, endpoint: Endpoint) -> str:
    """An address that the user did not type comes from a card, which may be wrong about it."""
    if endpoint.card is None or endpoint.url.startswith(there.url.rstrip("/")):
        return ""
    return f" (the card at {endpoint.card} names this address)"


_TASK_NOT_FOUND = -32001


@contextmanager
def told_plainly() -> Iterator[None]:
    """Raises: Stop for every ClientError."""
    try:
        yield
    except ClientError as error:
        raise stop(error) from error


def stop(error: ClientError) -> Stop:
    match error:
        case Refused():
            return _refused(error)
        case Unreachable():
            return Stop(ExitCode.UNREACHABLE, f"{error}\nIs it running? Another address is given with -u URL.")
        case NotA2A() | NotOurGateway():
            return Stop(ExitCode.UNREACHABLE, str(error))
        case StreamLost():
            return Stop(ExitCode.TRY_AGAIN, str(error))
        case _:
            return Stop(ExitCode.UNEXPECTED, str(error))


def _refused(error: Refused) -> Stop:
    match error.status:
        case 401:
            remedy = "Give an API key that is in force (--key, or A2A_GATEWAY_KEY) or --header 'Authorization: ...'"
            return Stop(ExitCode.NOT_AUTHORISED, f"not authorised: {error}\n{remedy}")
        case 403:
            remedy = (
                "Give a key that may do this (--key, or A2A_GATEWAY_KEY); for the admin API: keys create NAME --admin"
            )
            return Stop(ExitCode.NOT_AUTHORISED, f"not authorised: {error}\n{remedy}")
        case 404 | 405 if error.mute:
            remedy = "There is no A2A agent at this address. Another is given with -u URL."
            return Stop(ExitCode.UNREACHABLE, f"{error}\n{remedy}")
        case 429 | 503:
            when = f"in {error.retry_after:g} s" if error.retry_after else "later"
            return Stop(ExitCode.TRY_AGAIN, f"{error}\nTry again {when}.")
        case status if status >= 500:
            return Stop(ExitCode.UNREACHABLE, f"{error}")
        case _:
            return Stop(ExitCode.UNEXPECTED, f"the agent refused: {error}")


@contextmanager
def looking_for(there: Reach, task: str) -> Iterator[None]:
    """Raises: Stop for a task that the agent does not know, and says where to look."""
    try:
        yield
    except Refused as error:
        if error.code != _TASK_NOT_FOUND and error.reason != "TASK_NOT_FOUND":
            raise
        text = f"there is no task {task!r} at {there.place}\nThose that are there: {there.command('tasks', 'list')}"
        raise Stop(ExitCode.UNEXPECTED, text) from error
