"""The IP addresses and URLs that may be contacted when another party names them. Law: pure, with a table of its own, because
Python's `is_global` changes with the version and permits some internal addresses; only URLs that every parser reads the same
way pass.

Check every answer of one look-up, and connect to an address of that look-up: a second one may answer differently.
Source: IANA special-purpose address registries; the addresses of clouds that serve only their own machines.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

_V4 = {
    "0.0.0.0/8": "this network",
    "10.0.0.0/8": "private",
    "100.64.0.0/10": "shared by a carrier's customers",
    "127.0.0.0/8": "this machine",
    "168.63.129.16/32": "a cloud's own",
    "169.254.0.0/16": "link-local",
    "172.16.0.0/12": "private",
    "192.0.0.0/24": "reserved",
    "192.0.2.0/24": "for documentation",
    "192.88.99.0/24": "a relay to IPv6",
    "192.168.0.0/16": "private",
    "198.18.0.0/15": "for measurements",
    "198.51.100.0/24": "for documentation",
    "203.0.113.0/24": "for documentation",
    "224.0.0.0/4": "multicast",
    "240.0.0.0/4": "reserved",
}

# The first match gives the reason. Only 2000::/3 is global unicast, so addresses outside it are refused without a row.
_V6 = {
    "::/128": "this machine",
    "::1/128": "this machine",
    "::/96": "an IPv4 address in disguise",
    "64:ff9b::/96": "an IPv4 address in disguise",
    "64:ff9b:1::/48": "an IPv4 address in disguise",
    "fc00::/7": "private",
    "fe80::/10": "link-local",
    "fec0::/10": "private",
    "ff00::/8": "multicast",
    "2001::/23": "reserved",
    "2001:db8::/32": "for documentation",
    "2002::/16": "an IPv4 address in disguise",
    "3fff::/20": "for documentation",
}

_REFUSED_V4: tuple[tuple[IPv4Network, str], ...] = tuple((IPv4Network(net), why) for net, why in _V4.items())
_REFUSED_V6: tuple[tuple[IPv6Network, str], ...] = tuple((IPv6Network(net), why) for net, why in _V6.items())
_GLOBAL_V6 = IPv6Network("2000::/3")
_WRAPPED_V4 = (IPv6Network("::ffff:0:0/96"), IPv6Network("::ffff:0:0:0/96"))

Network = IPv4Network | IPv6Network

_LONGEST = 2048
_VISIBLE = re.compile(r"[!-~]+")
_AUTHORITY = re.compile(r"(?P<host>[a-z0-9](?:[a-z0-9._-]*[a-z0-9])?\.?|\[[0-9a-f:.]+\])(?::(?P<port>[0-9]{1,5}))?")
_PORTS = {"https": 443, "http": 80}


class AddressRefused(Exception):
    """A host that must not be contacted; the text has the reason, the host and the address, and nothing else."""


def refused(address: str) -> str | None:
    """The reason why this IP address may not be contacted, None for a public one."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return "is no IP address"
    match parsed:
        case IPv4Address():
            return _refused_v4(parsed)
        case IPv6Address():
            return _refused_v6(parsed)


def checked(host: str, addresses: Iterable[str]) -> tuple[str, ...]:
    """The addresses that one look-up of `host` returned. Raises: AddressRefused when there is no address, or when any
    address is refused."""
    found = tuple(dict.fromkeys(addresses))
    if not found:
        raise AddressRefused(f"the host {host!r} has no address")
    for address in found:
        why = refused(address)
        if why is not None:
            raise AddressRefused(f"the host {host!r} must not be contacted: its address {address} {why}")
    return found


def _refused_v4(address: IPv4Address) -> str | None:
    return next((f"is {why}" for network, why in _REFUSED_V4 if address in network), None)


def _refused_v6(address: IPv6Address) -> str | None:
    if address.scope_id is not None:
        return "is link-local"
    if any(address in network for network in _WRAPPED_V4):
        return _refused_v4(IPv4Address(int(address) & 0xFFFFFFFF))
    for network, why in _REFUSED_V6:
        if address in network:
            return f"is {why}"
    return None if address in _GLOBAL_V6 else "is reserved"


def is_loopback(host: str) -> bool:
    """Whether the host is this machine alone. A name is foreign, except `localhost`."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def local_url(host: str, port: int) -> str:
    """The URL under which this machine reaches a server that listens on `host`, which may stand for all addresses."""
    try:
        address = ip_address(host)
        name = ("127.0.0.1" if address.version == 4 else "::1") if address.is_unspecified else host
    except ValueError:
        name = host
    return http_url(name, port)


def http_url(host: str, port: int) -> str:
    """The URL of a server without TLS."""
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


class TargetRefused(Exception):
    """A URL to which nothing is sent; the text says why."""


@dataclass(frozen=True, slots=True)
class TargetRules:
    """`networks` may be reached although they are not public. `ports` empty: any."""

    http: bool = False
    ports: tuple[int, ...] = (443, 8443)
    networks: tuple[Network, ...] = ()

    def permit(self, host: str, addresses: Iterable[str]) -> tuple[str, ...]:
        """The addresses that one look-up of `host` returned. Raises: TargetRefused when there is no address, or when
        any address is not permitted."""
        found = tuple(dict.fromkeys(addresses))
        if not found:
            raise TargetRefused("must have a host that has an address")
        for address in found:
            why = refused(address)
            if why is not None and not self._allows(address):
                # The address that a name has in this network is kept from the caller.
                which = address if address == host else "an address"
                raise TargetRefused(f"must not lead to {which} that {why}")
        return found

    def _allows(self, address: str) -> bool:
        parsed = ip_address(address.partition("%")[0])
        if isinstance(parsed, IPv6Address) and parsed.ipv4_mapped is not None:
            parsed = parsed.ipv4_mapped
        return any(parsed in network for network in self.networks)


@dataclass(frozen=True, slots=True)
class Target:
    """`host` is a name, or an address without brackets."""

    scheme: str
    host: str
    port: int


def check_target(url: str, rules: TargetRules) -> Target:
    """What the URL leads to. Raises: TargetRefused."""
    if len(url) > _LONGEST:
        raise TargetRefused(f"must not be longer than {_LONGEST} characters")
    if _VISIBLE.fullmatch(url) is None:
        raise TargetRefused("must be visible ASCII characters, others in percent or IDNA encoding")
    scheme, separator, rest = url.partition("://")
    scheme = scheme.lower()
    if not separator or scheme not in _PORTS:
        raise TargetRefused("must begin with https:// or http://" if rules.http else "must begin with https://")
    if scheme == "http" and not rules.http:
        raise TargetRefused("must begin with https://: push.allow_http is not set")
    for mark, name in (("\\", "a backslash"), ("#", "a fragment")):
        if mark in rest:
            raise TargetRefused(f"must not have {name}")
    authority = re.split(r"[/?]", rest, maxsplit=1)[0].lower()
    if "@" in authority:
        raise TargetRefused("must not have credentials; there is `authentication` for them")
    found = _AUTHORITY.fullmatch(authority)
    if found is None:
        raise TargetRefused("must have a host name or an IP address, and perhaps a port")
    bracketed = found["host"].startswith("[")
    host, port = found["host"].strip("[]"), int(found["port"] or _PORTS[scheme])
    if rules.ports and port not in rules.ports:
        raise TargetRefused(f"must lead to port {' or '.join(map(str, rules.ports))}, not {port}")
    if not 0 < port < 65536:
        raise TargetRefused(f"must lead to a port, not {port}")
    if _is_address(host, bracketed=bracketed):
        rules.permit(host, (host,))
    return Target(scheme, host, port)


def _is_address(host: str, *, bracketed: bool) -> bool:
    try:
        version = ip_address(host).version
    except ValueError:
        version = None
    if bracketed and version != 6:
        raise TargetRefused("must have an IPv6 address in the brackets")
    return version is not None


def origin(url: str) -> str:
    """Scheme, host and port of a checked URL, in the form that its owner knows."""
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{re.split(r'[/?]', rest, maxsplit=1)[0]}".lower()
