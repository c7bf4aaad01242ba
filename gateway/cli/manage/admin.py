"""One call of the administration API of a gateway, for `contexts` and `push`."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import httpx2

from gateway.cli.console.address import AgentAddress
from gateway.cli.console.connect import client_errors_stop
from gateway.cli.console.exits import ExitCode, Stop
from gateway.client.transport import Refused, open_http

T = TypeVar("T")


def call_admin(
    address: AgentAddress, operation: Callable[[httpx2.AsyncClient], Awaitable[T]], group: str = "contexts"
) -> T:
    """The result of the operation. `group`: the commands of which one lists what exists. Raises: Stop."""

    async def call() -> T:
        async with open_http(address.url, address.request_headers) as http:
            return await operation(http)

    with client_errors_stop():
        try:
            return asyncio.run(call())
        except Refused as error:
            if error.status != 404:
                raise
            raise not_found(address, f"{address.url}: {error}", group) from error


def not_found(address: AgentAddress, text: str, group: str = "contexts") -> Stop:
    return Stop(ExitCode.UNEXPECTED, f"{text}\nThose that are there: {address.command(group, 'list')}")
