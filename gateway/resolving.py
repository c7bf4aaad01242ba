"""Looks a host up once and connects to what was checked. Law: no address that `gateway.addresses` refuses is ever given on."""

import socket

from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.resolver import ThreadedResolver

from gateway.addresses import checked


class PublicResolver(AbstractResolver):
    """For an aiohttp connector, which connects to the very addresses that it is given.

    aiohttp does not ask for a host that is an IP address already: check that with `checked(host, [host])`.
    """

    def __init__(self, lookup: AbstractResolver | None = None) -> None:
        self._lookup = lookup or ThreadedResolver()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """Raises: AddressRefused when any of its addresses is refused, OSError when it has none."""
        found = await self._lookup.resolve(host, port, family)
        checked(host, [each["host"] for each in found])
        return found

    async def close(self) -> None:
        await self._lookup.close()
