"""A checked look-up in the form that aiohttp takes. Law: only modules that use aiohttp import this; a gateway without such a
part starts without loading the library."""

import socket

from aiohttp.abc import AbstractResolver, ResolveResult

from gateway.foundation.resolver import Resolver


class CheckedResolver(AbstractResolver):
    """A resolver with the interface that aiohttp requires. aiohttp does not resolve a host that is an IP address, so
    the caller has to check such a host."""

    def __init__(self, resolver: Resolver) -> None:
        self._resolver = resolver

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """Raises: as `Resolver.addresses`."""
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                proto=socket.IPPROTO_TCP,
                flags=socket.AI_NUMERICHOST,
            )
            for address in await self._resolver.addresses(host, port)
        ]

    async def close(self) -> None:
        """The owner of the resolver closes it."""
