"""What every answer of the pages tells the browser, and where a form may come from. Law: nothing runs or loads that the gateway
does not serve itself, and no other site sends a form."""

from typing import Final
from urllib.parse import urlsplit

import msgspec
from starlette.types import Scope

from gateway.foundation.addresses import is_loopback
from gateway.http.reply import Headers

POLICY: Final = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    b"base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types live"
)

# `no-referrer` would make browsers send forms with `Origin: null`.
HEADERS: Headers = (
    (b"content-security-policy", POLICY),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
UNCACHED: Headers = (*HEADERS, (b"cache-control", b"no-store"))

_PORTS = {"http": 80, "https": 443}


class Cookies:
    """The one cookie of the pages. Where clients come by https it is bound to this host and to https. `installation` tells
    gateways apart that are on one host: browsers keep the cookies of all its ports together."""

    def __init__(self, public_url: str, installation: str) -> None:
        self._secure = urlsplit(public_url).scheme == "https"
        self.name = f"{'__Host-' if self._secure else ''}a2a-gateway-{installation}"

    def header(self, value: str, seconds: int) -> tuple[bytes, bytes]:
        """`seconds` 0: the browser forgets it."""
        secure = "; Secure" if self._secure else ""
        text = f"{self.name}={value}; Path=/; HttpOnly; SameSite=Strict; Max-Age={seconds}{secure}"
        return b"set-cookie", text.encode()

    def value(self, headers: Headers) -> str | None:
        """None where there is none. Cookies of other programs on this host may have any form."""
        for field, value in headers:
            if field == b"cookie":
                for pair in value.decode("latin-1").split(";"):
                    name, _, found = pair.strip().partition("=")
                    if name == self.name and found:
                        return found
        return None


def stranger(headers: Headers, public_url: str) -> str | None:
    """Why a request that changes something is not taken for one of a page of this gateway; None where it is one."""
    origins = [value for name, value in headers if name == b"origin"]
    hosts = [value for name, value in headers if name == b"host"]
    sites = [value for name, value in headers if name == b"sec-fetch-site"]
    if any(site != b"same-origin" for site in sites):
        return "it comes from a page of another site"
    if len(origins) != 1 or len(hosts) != 1:
        return "it does not say which page it comes from"
    origin = _place(origins[0].decode("latin-1"))
    if origin is not None and origin in (_place(public_url), _place(f"{origin.scheme}://{hosts[0].decode('latin-1')}")):
        return None
    return "it comes from a page of another site"


def comes_from_elsewhere(scope: Scope) -> bool:
    """Whether a link on a page of another site was followed: the browser has kept the cookie back."""
    headers = dict(scope["headers"])
    return headers.get(b"sec-fetch-site") == b"cross-site" and headers.get(b"sec-fetch-mode") == b"navigate"


def is_overheard(public_url: str) -> bool:
    """Whether what browsers send may cross a network as plain text."""
    parts = urlsplit(public_url)
    return parts.scheme != "https" and not is_loopback(parts.hostname or "")


class _Place(msgspec.Struct, frozen=True):
    scheme: str
    host: str
    port: int


def _place(url: str) -> _Place | None:
    """None for what is no address of the web, as the origin `null` is none."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return None
    if parts.scheme not in _PORTS or not parts.hostname:
        return None
    return _Place(parts.scheme, parts.hostname, port or _PORTS[parts.scheme])
