"""A host is looked up once for each connection, and only checked addresses reach aiohttp."""

import socket

import pytest

from gateway.foundation.addresses import AddressRefused, checked
from gateway.foundation.aiohttp_resolver import CheckedResolver
from gateway.foundation.resolver import Resolver


class Names:
    """A look-up with answers of its own."""

    def __init__(self, *addresses: str) -> None:
        self.addresses = addresses
        self.asked: list[str] = []

    async def __call__(self, host: str, port: int) -> list[str]:
        self.asked.append(host)
        return list(self.addresses)


async def test_aiohttp_connects_to_what_was_checked() -> None:
    names = Names("8.8.8.8", "2606:4700::1")
    found = await CheckedResolver(Resolver(checked, names)).resolve("h.example", 443)
    assert [(each["host"], each["family"], each["port"]) for each in found] == [
        ("8.8.8.8", socket.AF_INET, 443),
        ("2606:4700::1", socket.AF_INET6, 443),
    ]
    assert names.asked == ["h.example"]


@pytest.mark.parametrize("addresses", [("10.0.0.1",), ("8.8.8.8", "::1"), ()])
async def test_a_host_with_any_other_address_is_refused(addresses: tuple[str, ...]) -> None:
    with pytest.raises(AddressRefused):
        await CheckedResolver(Resolver(checked, Names(*addresses))).resolve("h.example", 443)


async def test_the_name_of_this_machine_is_refused() -> None:
    resolver = Resolver(checked)
    try:
        with pytest.raises(AddressRefused, match="'localhost' must not be contacted"):
            await CheckedResolver(resolver).resolve("localhost", 80)
    finally:
        resolver.close()


async def test_closing_it_leaves_the_shared_resolver_open() -> None:
    shared = Resolver(checked, Names("8.8.8.8"))
    await CheckedResolver(shared).close()
    assert await shared.addresses("h.example", 443) == ("8.8.8.8",)
