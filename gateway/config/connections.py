"""Settings of the gateway's own connections: whom to trust, through which proxy, with which headers. Law: a value that cannot
work is refused when it is read.
"""

import re
from collections.abc import Hashable, Iterator
from pathlib import Path
from typing import Annotated
from urllib.parse import unquote, urlsplit

from pydantic import AfterValidator, Field, SecretStr

from gateway.config.settings import LocalPath, Settings, expected
from gateway.foundation.route import Proxy, Route, check_proxy
from gateway.foundation.tls import check_authorities

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_DECIDED = frozenset({"connection", "content-length", "expect", "te", "trailer", "transfer-encoding", "upgrade"})
_HEADER_VALUE = re.compile(r"[\t -~]*")


def _usable_name(name: str) -> str:
    if _HEADER_NAME.fullmatch(name) is None:
        raise ValueError(f"{name!r} is no name of a header")
    if name.lower() in _DECIDED:
        raise ValueError(f"{name!r} is decided by the gateway")
    return name


def _usable_headers(headers: dict[str, SecretStr]) -> dict[str, SecretStr]:
    for name, value in headers.items():
        _usable_name(name)
        if _HEADER_VALUE.fullmatch(value.get_secret_value().strip()) is None:
            raise ValueError(f"the value of {name!r} must be one line of visible ASCII characters")
    return headers


def _usable_proxy(value: SecretStr) -> SecretStr:
    url = value.get_secret_value().strip()
    try:
        check_proxy(url)
    except ValueError as error:
        raise expected(str(error)) from error
    return SecretStr(url)


def _usable_authorities(ca: Path) -> Path:
    check_authorities(ca)
    return ca


HeaderName = Annotated[str, AfterValidator(_usable_name)]
"""A header that the operator may send."""
SecretHeaders = Annotated[dict[str, SecretStr], AfterValidator(_usable_headers)]
"""Headers that the operator sends with every request."""
ProxyUrl = Annotated[SecretStr, AfterValidator(_usable_proxy)]
Authorities = Annotated[LocalPath, AfterValidator(_usable_authorities)]


def plain_headers(headers: dict[str, SecretStr]) -> dict[str, str]:
    return {name: value.get_secret_value().strip() for name, value in headers.items()}


class ConnectionSettings(Settings):
    """How any HTTP service is reached."""

    headers: SecretHeaders = Field({}, description="Headers of every request.")
    ca: Authorities | None = Field(
        None, description="File with certificates (PEM) of authorities to trust besides those of the system."
    )
    proxy: ProxyUrl | None = Field(
        None, description="Proxy for all requests, as http://host:port; those of the environment are not used."
    )

    @property
    def route(self) -> Route:
        proxy = None if self.proxy is None else Proxy.at(self.proxy.get_secret_value())
        return Route(self.ca, proxy, plain_headers(self.headers))

    @property
    def way(self) -> Hashable:
        """What tells the ways to one address apart: another header may name another customer there."""
        return tuple(sorted(plain_headers(self.headers).items())), self.ca, self.proxy

    def connection_secrets(self) -> Iterator[str]:
        """What no text may quote."""
        yield from plain_headers(self.headers).values()
        if self.proxy is not None:
            parts = urlsplit(self.proxy.get_secret_value())
            yield parts.password or ""
            if parts.password:
                yield f"{unquote(parts.username or '')}:{unquote(parts.password)}"
