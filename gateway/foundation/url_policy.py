"""Where notifications may be sent. Law: pure; only URLs that every parser reads the same way pass, and every IP address of
the host is checked, when a configuration is made and again for each connection."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address

from gateway.foundation.addresses import refused

Network = IPv4Network | IPv6Network

_LONGEST = 2048
_VISIBLE = re.compile(r"[!-~]+")
_AUTHORITY = re.compile(r"(?P<host>[a-z0-9](?:[a-z0-9._-]*[a-z0-9])?\.?|\[[0-9a-f:.]+\])(?::(?P<port>[0-9]{1,5}))?")
_PORTS = {"https": 443, "http": 80}


class TargetRefused(Exception):
    """A URL to which nothing is sent; the text says why."""


@dataclass(frozen=True, slots=True)
class TargetRules:
    """`networks` may be reached although they are not public. `ports` empty: any."""

    http: bool = False
    ports: tuple[int, ...] = (443, 8443)
    networks: tuple[Network, ...] = ()

    def permit(self, host: str, addresses: Iterable[str]) -> tuple[str, ...]:
        """The addresses that one look-up of `host` gave. Raises: TargetRefused for none, or for any that is not permitted."""
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
        raise TargetRefused("must begin with https://")
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
