"""Which addresses may be contacted: one row for every kind, and the edges of each range; the refused URLs and their reasons."""

import ipaddress
from ipaddress import ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.foundation.addresses import (
    AddressRefused,
    Target,
    TargetRefused,
    TargetRules,
    check_target,
    checked,
    is_loopback,
    origin,
    refused,
)

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


RULES = TargetRules()
ANY_PORT = TargetRules(ports=())


@pytest.mark.parametrize(
    ("url", "target"),
    [
        ("https://hook.example", Target("https", "hook.example", 443)),
        ("https://hook.example/a/b?c=d%20e", Target("https", "hook.example", 443)),
        ("HTTPS://Hook.Example:8443/", Target("https", "hook.example", 8443)),
        ("https://hook.example:443?a=https://x@y", Target("https", "hook.example", 443)),
        ("https://hook.example./", Target("https", "hook.example.", 443)),
        ("https://8.8.8.8/", Target("https", "8.8.8.8", 443)),
        ("https://[2606:4700::1111]:8443/x", Target("https", "2606:4700::1111", 8443)),
        ("https://xn--bcher-kva.example/", Target("https", "xn--bcher-kva.example", 443)),
    ],
)
def test_public_addresses_are_accepted(url: str, target: Target) -> None:
    assert check_target(url, RULES) == target


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("", "visible ASCII"),
        ("hook.example", "begin with https://"),
        ("ftp://hook.example/", "begin with https://"),
        ("file:///etc/passwd", "begin with https://"),
        ("gopher://127.0.0.1:6379/_INFO", "begin with https://"),
        ("javascript://hook.example/", "begin with https://"),
        ("//hook.example/", "begin with https://"),
        ("http://hook.example/", "push.allow_http is not set"),
        ("https://", "host name"),
        ("https:///path", "host name"),
        ("https://?x", "host name"),
        ("https://user:password@hook.example/", "credentials"),
        ("https://user@hook.example/", "credentials"),
        ("https://@hook.example/", "credentials"),
        ("https://hook.example@127.0.0.1/", "credentials"),
        ("https://hook.example\\@127.0.0.1/", "backslash"),
        ("https://127.0.0.1\\.hook.example/", "backslash"),
        ("https://hook.example/#fragment", "fragment"),
        ("https://127.0.0.1#@hook.example/", "fragment"),
        ("https://hook.example/a b", "visible ASCII"),
        ("https://hook.example/\r\nX-Injected: 1", "visible ASCII"),
        ("https://hook.example\t/", "visible ASCII"),
        ("https://ho\x00ok.example/", "visible ASCII"),
        ("https://bücher.example/", "visible ASCII"),
        ("https://hook.example\uff0eevil/", "visible ASCII"),
        ("https://%31%32%37.0.0.1/", "host name"),
        ("https://hook.example%2f/", "host name"),
        ("https://[fe80::1%25eth0]/", "host name"),
        ("https://[::1", "host name"),
        ("https://[hook.example]/", "host name"),
        ("https://[::1]x/", "host name"),
        ("https://[1.2.3.4]/", "IPv6 address"),
        ("https://[:::]/", "IPv6 address"),
        ("https://-hook.example/", "host name"),
        ("https://hook.example:/", "host name"),
        ("https://hook.example:port/", "host name"),
        ("https://hook.example:22/", "port 443 or 8443, not 22"),
        ("https://hook.example:0/", "port 443 or 8443, not 0"),
        ("https://hook.example:99999/", "port 443 or 8443, not 99999"),
        (f"https://hook.example/{'x' * 2048}", "longer than 2048"),
        ("https://127.0.0.1/", "127.0.0.1 that is this machine"),
        ("https://10.1.2.3/", "is private"),
        ("https://172.16.0.1/", "is private"),
        ("https://192.168.0.1/", "is private"),
        ("https://169.254.169.254/latest/meta-data/", "is link-local"),
        ("https://100.100.100.200/", "carrier"),
        ("https://168.63.129.16/", "cloud"),
        ("https://0.0.0.0/", "this network"),
        ("https://255.255.255.255/", "is reserved"),
        ("https://192.0.0.192/", "is reserved"),
        ("https://[::1]/", "this machine"),
        ("https://[::]/", "this machine"),
        ("https://[::ffff:127.0.0.1]/", "this machine"),
        ("https://[::ffff:7f00:1]/", "this machine"),
        ("https://[::ffff:0:169.254.169.254]/", "link-local"),
        ("https://[::127.0.0.1]/", "in disguise"),
        ("https://[2002:7f00:1::]/", "in disguise"),
        ("https://[64:ff9b::a9fe:a9fe]/", "in disguise"),
        ("https://[64:ff9b:1::1]/", "in disguise"),
        ("https://[fd00:ec2::254]/", "is private"),
        ("https://[fe80::1]/", "link-local"),
        ("https://[fec0::1]/", "is private"),
        ("https://[2001:db8::1]/", "documentation"),
        ("https://[ff02::1]/", "multicast"),
    ],
)
def test_ambiguous_or_internal_urls_are_refused_with_the_reason(url: str, why: str) -> None:
    with pytest.raises(TargetRefused, match=why):
        check_target(url, RULES)


def test_any_port_may_be_allowed_except_zero() -> None:
    assert check_target("https://hook.example:22/", ANY_PORT).port == 22
    for port in (0, 65536):
        with pytest.raises(TargetRefused, match="must lead to a port"):
            check_target(f"https://hook.example:{port}/", ANY_PORT)


def test_plain_http_has_to_be_allowed_and_has_its_own_port() -> None:
    rules = TargetRules(http=True, ports=(80,))
    assert check_target("http://hook.example/", rules) == Target("http", "hook.example", 80)


@pytest.mark.parametrize("address", ["10.1.2.3", "::ffff:10.1.2.3"])
def test_only_the_allowed_private_network_is_permitted(address: str) -> None:
    rules = TargetRules(networks=(ip_network("10.1.0.0/16"), ip_network("fd00::/64")))
    assert rules.permit("inside", [address, "fd00::1"]) == (address, "fd00::1")
    for other in ("10.2.0.1", "127.0.0.1", "fd00:1::1", "169.254.169.254"):
        with pytest.raises(TargetRefused):
            rules.permit("inside", [other])


def test_every_answer_for_a_name_has_to_be_public() -> None:
    assert RULES.permit("hook.example", ["8.8.8.8", "8.8.4.4", "8.8.8.8"]) == ("8.8.8.8", "8.8.4.4")
    with pytest.raises(TargetRefused, match=r"^must not lead to an address that is private$"):
        RULES.permit("hook.example", ["8.8.8.8", "10.0.0.1"])
    with pytest.raises(TargetRefused, match="a host that has an address"):
        RULES.permit("hook.example", [])


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://Hook.Example/a?b", "https://hook.example"),
        ("https://hook.example:8443?a", "https://hook.example:8443"),
        ("http://[2606::1]:8080/", "http://[2606::1]:8080"),
    ],
)
def test_the_origin_is_the_one_that_a_signature_names(url: str, expected: str) -> None:
    assert origin(url) == expected
