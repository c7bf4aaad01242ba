"""The resolver in the form that aiohttp asks for. Law: aiohttp connects to exactly the addresses that this returns.

aiohttp does not ask for a host that is an IP address already; the caller checks such a host itself.
"""

import socket

from aiohttp.abc import AbstractResolver, ResolveResult

from gateway.foundation.resolver import Resolver


class CheckedResolver(AbstractResolver):
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
