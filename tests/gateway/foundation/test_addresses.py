"""Which addresses may be contacted: one row for every kind, and the edges of each range."""

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.foundation.addresses import AddressRefused, checked, is_loopback, refused

PUBLIC = (
    "1.1.1.1",
    "8.8.8.8",
    "9.255.255.255",
    "11.0.0.0",
    "100.63.255.255",
    "100.128.0.0",
    "168.63.129.15",
    "168.63.129.17",
    "172.15.255.255",
    "172.32.0.0",
    "192.0.1.0",
    "192.88.98.255",
    "192.169.0.0",
    "198.17.255.255",
    "198.20.0.0",
    "223.255.255.255",
    "2001:200::1",
    "2001:4860:4860::8888",
    "2606:4700:4700::1111",
    "2a00:1450:4001:829::200e",
    "::ffff:8.8.8.8",
)

REFUSED = (
    "0.0.0.0",
    "0.255.255.255",
    "10.0.0.0",
    "10.255.255.255",
    "100.64.0.0",
    "100.127.255.255",
    "127.0.0.1",
    "127.255.255.255",
    "168.63.129.16",
    "169.254.169.254",
    "172.16.0.0",
    "172.31.255.255",
    "192.0.0.0",
    "192.0.0.192",
    "192.0.2.1",
    "192.88.99.1",
    "192.168.0.1",
    "198.18.0.0",
    "198.19.255.255",
    "198.51.100.1",
    "203.0.113.1",
    "224.0.0.1",
    "239.255.255.255",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::7f00:1",
    "::8.8.8.8",
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.1",
    "::ffff:169.254.169.254",
    "::ffff:0:127.0.0.1",
    "::ffff:0:10.0.0.1",
    "64:ff9b::7f00:1",
    "64:ff9b::8.8.8.8",
    "64:ff9b:1::1",
    "100::1",
    "2001::1",
    "2001:1ff:ffff::1",
    "2001:db8::1",
    "2002:7f00:1::1",
    "2002:808:808::1",
    "3fff::1",
    "4000::1",
    "5f00::1",
    "fc00::1",
    "fd00:ec2::254",
    "fe80::1",
    "fe80::1%eth0",
    "2001:4860:4860::8888%eth0",
    "febf::1",
    "fec0::1",
    "ff02::1",
)

NO_ADDRESS = (
    "",
    "localhost",
    "127.1",
    "2130706433",
    "0x7f.0.0.1",
    "0177.0.0.1",
    "127.0.0.1 ",
    "[::1]",
    "１.1.1.1",
    "1.1.1",
)


@pytest.mark.parametrize("address", PUBLIC)
def test_a_public_address_may_be_contacted(address: str) -> None:
    assert refused(address) is None


@pytest.mark.parametrize("address", REFUSED)
def test_an_address_that_is_not_public_is_refused(address: str) -> None:
    assert (refused(address) or "").startswith("is ")


@pytest.mark.parametrize("text", NO_ADDRESS)
def test_text_that_is_no_canonical_address_is_refused(text: str) -> None:
    assert refused(text) == "is no IP address"


@given(st.ip_addresses())
def test_every_address_that_python_calls_private_is_refused(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> None:
    if not address.is_global and getattr(address, "ipv4_mapped", None) is None:
        assert refused(str(address)) is not None


@given(st.ip_addresses(v=4))
def test_an_ipv4_address_inside_an_ipv6_one_is_checked_as_ipv4(address: ipaddress.IPv4Address) -> None:
    assert refused(f"::ffff:{address}") == refused(str(address))


def test_one_bad_address_among_several_refuses_the_host() -> None:
    with pytest.raises(AddressRefused, match=r"'h.example' must not be contacted: its address 10\.0\.0\.1 is private"):
        checked("h.example", ["8.8.8.8", "10.0.0.1"])


def test_a_host_without_an_address_is_refused() -> None:
    with pytest.raises(AddressRefused, match=r"'h.example' has no address"):
        checked("h.example", [])


def test_the_addresses_of_a_public_host_are_returned_once_each_in_their_order() -> None:
    assert checked("h.example", ["8.8.8.8", "1.1.1.1", "8.8.8.8"]) == ("8.8.8.8", "1.1.1.1")


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.1", "::1", "localhost"])
def test_loopback_hosts_are_recognised(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "localhost.example", "127.0.0.1.example", ""])
def test_other_hosts_are_no_loopback(host: str) -> None:
    assert not is_loopback(host)
