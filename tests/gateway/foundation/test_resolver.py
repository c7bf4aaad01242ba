"""Names to addresses: one look-up for each connection, every answer is checked, and only checked addresses reach aiohttp."""

import asyncio
import socket
import threading
from ipaddress import ip_network
from typing import Any

import pytest

from gateway.foundation.addresses import AddressRefused, TargetRefused, TargetRules, checked
from gateway.foundation.aiohttp_resolver import CheckedResolver
from gateway.foundation.resolver import Resolver
from tests.support.core import soon

LOOPBACK = TargetRules(networks=(ip_network("127.0.0.0/8"), ip_network("::1/128")))


async def test_a_name_of_this_machine_is_refused_unless_its_network_is_allowed() -> None:
    strict, open_ = Resolver(TargetRules().permit), Resolver(LOOPBACK.permit)
    try:
        with pytest.raises(TargetRefused, match="this machine"):
            await soon(strict.addresses("localhost", 443))
        assert "127.0.0.1" in await soon(open_.addresses("localhost", 443))
    finally:
        strict.close()
        open_.close()


@pytest.mark.parametrize("host", ["127.1", "0x7f.0.0.1", "2130706433", "0177.0.0.1", "0"])
async def test_other_spellings_of_an_address_are_checked_by_their_meaning(host: str) -> None:
    lookup = Resolver(TargetRules().permit)
    try:
        with pytest.raises(TargetRefused):
            await soon(lookup.addresses(host, 443))
    finally:
        lookup.close()


async def test_one_private_answer_among_public_ones_is_enough() -> None:
    async def answers(host: str, port: int) -> list[str]:
        return ["8.8.8.8", "::ffff:10.0.0.1"]

    with pytest.raises(TargetRefused, match="private"):
        await Resolver(TargetRules().permit, answers).addresses("hook.example", 443)


@pytest.mark.parametrize("host", ["a" * 64 + ".example", "nobody.invalid"])
async def test_an_unknown_name_is_an_error_of_the_system(host: str) -> None:
    lookup = Resolver(TargetRules().permit)
    try:
        with pytest.raises(OSError, match=r".+"):
            await lookup.addresses(host, 443)
    finally:
        lookup.close()


async def test_hanging_look_ups_block_no_other_thread_work(monkeypatch: pytest.MonkeyPatch) -> None:
    go = threading.Event()

    def hangs(*_: Any, **__: Any) -> list[Any]:
        go.wait()
        return []

    monkeypatch.setattr(socket, "getaddrinfo", hangs)
    lookup = Resolver(TargetRules().permit)
    try:
        async with asyncio.TaskGroup() as group:
            asked = [group.create_task(lookup.addresses("hook.example", 443)) for _ in range(40)]
            await asyncio.sleep(0)
            assert await soon(asyncio.to_thread(lambda: 1)) == 1
            go.set()
            results = await asyncio.gather(*asked, return_exceptions=True)
        assert {type(result) for result in results} == {TargetRefused}
    except* TargetRefused:
        pass
    finally:
        go.set()
        lookup.close()


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
