"""A host is looked up once, and only public addresses are given on."""

import socket

import pytest
from aiohttp.abc import AbstractResolver, ResolveResult

from adapters.tools.http import PublicResolver
from gateway.foundation.addresses import AddressRefused


class Names(AbstractResolver):
    """A resolver with answers of its own."""

    def __init__(self, *addresses: str) -> None:
        self.addresses = addresses
        self.asked: list[str] = []
        self.closed = False

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        self.asked.append(host)
        return [
            ResolveResult(hostname=host, host=address, port=port, family=family, proto=0, flags=0)
            for address in self.addresses
        ]

    async def close(self) -> None:
        self.closed = True


async def test_what_is_connected_to_is_what_was_checked() -> None:
    names = Names("8.8.8.8", "2606:4700::1")
    found = await PublicResolver(names).resolve("h.example", 443)
    assert [each["host"] for each in found] == ["8.8.8.8", "2606:4700::1"]
    assert names.asked == ["h.example"]


@pytest.mark.parametrize("addresses", [("10.0.0.1",), ("8.8.8.8", "::1"), ()])
async def test_a_host_with_any_other_address_is_refused(addresses: tuple[str, ...]) -> None:
    with pytest.raises(AddressRefused):
        await PublicResolver(Names(*addresses)).resolve("h.example", 443)


async def test_the_name_of_this_machine_is_refused() -> None:
    with pytest.raises(AddressRefused, match="'localhost' must not be contacted"):
        await PublicResolver().resolve("localhost", 80)


async def test_closing_it_closes_the_resolver_below() -> None:
    names = Names()
    await PublicResolver(names).close()
    assert names.closed
