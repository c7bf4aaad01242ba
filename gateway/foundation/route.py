"""The way of the gateway's own requests: whom they trust, through which proxy they go, with which headers. Law: the
credentials of a proxy go to the proxy alone."""

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit


def check_proxy(url: str, schemes: tuple[str, ...] = ("http",)) -> None:
    """Raises: ValueError with what is wrong, without the address, which may hold a password."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in schemes and bool(parts.hostname) and (parts.port or 0) >= 0
        usable = usable and parts.path in ("", "/") and not (parts.query or parts.fragment)
    except ValueError:
        usable = False
    if usable:
        return
    if url.lower().startswith("socks"):
        raise ValueError("must be the address of an HTTP proxy, as http://host:port; SOCKS proxies are not supported")
    raise ValueError("must be the address of a proxy, as http://host:port or http://user:password@host:port")


@dataclass(frozen=True, slots=True)
class Proxy:
    """A proxy for all requests. `headers` are for it alone: its credentials."""

    url: str
    headers: dict[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def at(cls, url: str) -> "Proxy":
        """`url` may hold the credentials."""
        parts = urlsplit(url)
        user, at, host = parts.netloc.rpartition("@")
        credentials = base64.b64encode(unquote(user).encode()).decode()
        return cls(f"{parts.scheme}://{host}", {"Proxy-Authorization": f"Basic {credentials}"} if at else {})

    def arguments(self, url: str) -> dict[str, Any]:
        """The arguments of aiohttp for a request to `url`."""
        return {"proxy": self.url, "proxy_headers": self.headers if url.startswith("https:") else None}

    def headers_of(self, url: str) -> Mapping[str, str]:
        """The headers that a request to `url` itself needs: the proxy reads a request over plain HTTP."""
        return {} if url.startswith("https:") else self.headers


@dataclass(frozen=True, slots=True)
class Route:
    """`ca` is a file with certificates of further authorities to trust, in PEM. `headers` go with every request."""

    ca: Path | None = None
    proxy: Proxy | None = None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)


DIRECT = Route()
