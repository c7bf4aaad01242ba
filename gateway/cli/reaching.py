"""Which agent a command line means, how to get there, and how to say so again."""

import asyncio
import os
import shlex
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from gateway.cli.options import KEY_VARIABLE, read_headers, read_key, read_url, with_key
from gateway.cli.parameters import DEFAULT_URL, BindingChoice
from gateway.cli.terminal import program
from gateway.client import Client, Retry
from gateway.client_discovery import Binding, Endpoint, discover
from gateway.client_wire import Unreachable, open_http

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
    """A client of that agent. Raises: ClientError."""
    async with open_http(there.url, there.sent) as http:
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
